//! The status port: a page that shows every second of the server's life, its data, and `/metrics`.
//!
//! What is always true:
//! 1. It asks the server through [`StatusSource`], by commands that a client could send, from a
//!    list that is written in [`mod@site`]; it can change nothing.
//! 2. One thread serves it, one request at a time: whatever is asked here, a database with two
//!    processors keeps one. Connections, headers and time are bounded.
//! 3. A request must name a host that is an address, `localhost` or a name it was told: a page of
//!    somebody else's, whose name was pointed at this machine, is refused.
//! 4. The page needs nothing from outside, and nobody else's page makes a browser ask for data.
//! 5. Where the server asks for users nobody is answered with data who has not said a password, and nobody is asked for
//!    one over a network that could read it. With TLS a password may come from anywhere.
//! 6. What clients sent is shown only to those whom [`ShowValues`] names; others see names and counts.
#![forbid(unsafe_code)]

mod basic;
mod http;
mod json;
mod redact;
mod site;

pub use http::{PageTls, StatusPort};
pub use redact::ShowValues;

use bson::{Document, RawDocumentBuf};
use std::net::IpAddr;
use std::sync::Arc;

/// What somebody is let see.
pub enum Access {
    /// There is no such user, or the password is another.
    Unauthenticated,
    /// The user may not see the server's figures.
    Forbidden,
    /// What the user may.
    Granted(Arc<dyn StatusSource>),
}

/// What the page is drawn from.
pub trait StatusSource: Send + Sync {
    /// Runs a command as a client's request to `database`; the reply, or MongoDB's error document.
    fn command(&self, database: &str, command: &Document) -> RawDocumentBuf;

    /// The server's figures in Prometheus' text form.
    fn metrics(&self) -> String;

    /// Whether the server asks who somebody is.
    fn requires_authentication(&self) -> bool;

    /// Authenticates a user for a request from `peer`, and returns what that user may see.
    fn authenticate(&self, user: &str, password: &str, peer: IpAddr) -> Access;

    /// Whether this is the token by which the figures in Prometheus' form are read without a user.
    fn admits_token(&self, token: &str, peer: IpAddr) -> bool;

    /// Random bytes, for what only this one answer may know.
    fn entropy(&self, bytes: &mut [u8]);
}
