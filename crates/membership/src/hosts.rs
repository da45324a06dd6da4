//! What a server asks another one before there are links between them: `_fernMember` and `_fernJoin`.
//!
//! ```text
//! {_fernMember: 1}                                {version: int, member: long, setName, founder: long, hasData: bool, encrypted: bool}
//! {_fernJoin: 1, document: bin, founder: long}    {}
//! ```

use crate::set_document::SetDocument;
use bson::raw::cstr;
use bson::spec::BinarySubtype;
use bson::{RawBinaryRef, RawDocumentBuf, rawdoc};
use links::{Dialer, HostAndPort};
use quorum::MemberId;
use std::time::Duration;

/// What a server says and understands of these commands; another version is refused.
pub const VERSION: i32 = 1;
/// How long one server may take to answer.
pub const ANSWERS: Duration = Duration::from_secs(5);

/// What a host says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAnswer {
    /// Which data directory it is.
    pub member: MemberId,
    /// The set that it was started for.
    pub set: String,
    /// Who has founded the set that it belongs to; nobody where it is in none.
    pub founder: MemberId,
    /// Whether it has anything that others do not have.
    pub has_data: bool,
    /// Whether it encrypts what it keeps.
    pub is_encrypted: bool,
}

fn ask(
    dialer: &Dialer,
    host: &str,
    command: &RawDocumentBuf,
    ended: &dyn Fn() -> bool,
) -> Result<RawDocumentBuf, String> {
    let to = host.parse::<HostAndPort>().map_err(|error| error.to_string())?;
    links::ask(dialer, &to, command, ANSWERS, ended)
}

/// Asks a host who it is.
pub fn ask_member(
    dialer: &Dialer,
    host: &str,
    ended: &dyn Fn() -> bool,
) -> Result<HostAnswer, String> {
    let answer = ask(dialer, host, &rawdoc! { "_fernMember": VERSION, "$db": "admin" }, ended)?;
    let number = |name| answer.get_i64(name).map(|id| MemberId(id.cast_unsigned()));
    let told = || -> bson::error::Result<HostAnswer> {
        Ok(HostAnswer {
            member: number("member")?,
            set: answer.get_str("setName")?.to_owned(),
            founder: number("founder")?,
            has_data: answer.get_bool("hasData")?,
            is_encrypted: answer.get_bool("encrypted")?,
        })
    };
    told().map_err(|error| format!("what it says of itself cannot be read: {error}"))
}

/// Asks a host to belong to a set that another one has founded.
pub fn ask_to_join(
    dialer: &Dialer,
    host: &str,
    set: &SetDocument,
    founder: MemberId,
    ended: &dyn Fn() -> bool,
) -> Result<(), String> {
    let document = set.encode().map_err(|error| error.to_string())?;
    let document = RawBinaryRef { subtype: BinarySubtype::Generic, bytes: &document };
    let mut command = RawDocumentBuf::new();
    command.append(cstr!("_fernJoin"), VERSION);
    command.append(cstr!("document"), document);
    command.append(cstr!("founder"), founder.0.cast_signed());
    command.append(cstr!("$db"), "admin");
    ask(dialer, host, &command, ended).map(drop)
}
