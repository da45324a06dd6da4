//! How sure a write must be before it is acknowledged, as clients say it.

use crate::fields::{Field, as_i64, inner, type_name};
use crate::rules::Rules;
use bson::RawBsonRef;
use errors::{Code, Error, Result};

/// A client's write concern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "what a client said, independently")]
pub struct WriteConcern<'a> {
    /// The client sent one, and it said something.
    pub given: bool,
    /// The client waits for no answer.
    pub unacknowledged: bool,
    /// The log must be on stable storage: `j: true`, `fsync: true` or `w: "majority"`.
    pub synced: bool,
    /// It said how many or which members.
    pub names_members: bool,
    /// It said, or it is the default, that a majority must have it.
    pub is_majority: bool,
    /// What it said of the journal.
    pub journal: Option<bool>,
    /// More members than one.
    pub nodes: i64,
    /// A mode of the configuration.
    pub mode: Option<&'a str>,
    /// By tags: refused on every server.
    pub tagged: bool,
    /// `wtimeout`.
    pub timeout_ms: i64,
}

impl WriteConcern<'_> {
    /// All of it but the mode, for who keeps it longer than the request.
    #[must_use]
    pub fn without_mode(self) -> WriteConcern<'static> {
        WriteConcern {
            given: self.given,
            unacknowledged: self.unacknowledged,
            synced: self.synced,
            names_members: self.names_members,
            is_majority: self.is_majority,
            journal: self.journal,
            nodes: self.nodes,
            mode: None,
            tagged: self.tagged,
            timeout_ms: self.timeout_ms,
        }
    }
}

/// Reads a write concern of a command that takes one.
pub fn parse<'a>(command: &Rules, field: &Field<'a>) -> Result<WriteConcern<'a>> {
    let document = field.document()?;
    if !command.takes_write_concern && !document.is_empty() {
        return Err(Error::new(Code::INVALID_OPTIONS, "Command does not support writeConcern"));
    }
    let mut concern = WriteConcern { given: !document.is_empty(), ..WriteConcern::default() };
    let (mut journal, mut fsync) = (None, None);
    for part in inner(document, "writeConcern") {
        let part = part?;
        match part.name {
            "w" => {
                concern.names_members = true;
                match part.value {
                    RawBsonRef::String("majority") => concern.is_majority = true,
                    RawBsonRef::String(mode) => concern.mode = Some(mode),
                    RawBsonRef::Document(_) => concern.tagged = true,
                    value => concern.nodes = parse_nodes(value)?,
                }
                concern.unacknowledged =
                    as_i64(part.value) == Some(0) && concern.mode.is_none() && !concern.tagged;
            }
            "j" => journal = Some(part.bool()?),
            "fsync" => fsync = Some(part.bool()?),
            // Nobody to wait for; only the type matters, and the error says it again.
            "wtimeout" => concern.timeout_ms = part.i64()?,
            "provenance" => crate::read_concern::check_provenance(&part)?,
            "getLastError" | "wElectionId" | "wOpTime" => {}
            _ => return Err(part.unknown()),
        }
    }
    if journal == Some(true) && fsync == Some(true) {
        return Err(Error::failed_to_parse("fsync and j options cannot be used together"));
    }
    concern.journal = journal.or(fsync.filter(|sync| *sync));
    concern.synced = concern.journal.unwrap_or(concern.is_majority);
    Ok(concern)
}

fn parse_nodes(value: RawBsonRef<'_>) -> Result<i64> {
    let Some(nodes) = as_i64(value) else {
        return Err(Error::failed_to_parse(format!(
            "w has to be a number, string, or object; found: {}",
            type_name(value)
        )));
    };
    if !(0..=50).contains(&nodes) {
        return Err(Error::failed_to_parse(format!(
            "w has to be a non-negative number and not greater than 50; found: {nodes}"
        )));
    }
    Ok(nodes)
}
