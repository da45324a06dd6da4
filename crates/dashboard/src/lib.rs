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
//! 5. What clients sent is shown only to those whom [`ShowValues`] names; others see names and counts.
#![forbid(unsafe_code)]

mod http;
mod json;
mod redact;
mod site;

pub use http::StatusPort;
pub use redact::ShowValues;

use bson::{Document, RawDocumentBuf};

/// What the page is drawn from.
pub trait StatusSource: Send + Sync {
    /// Runs a command as a client's request to `database`; the reply, or MongoDB's error document.
    fn command(&self, database: &str, command: &Document) -> RawDocumentBuf;

    /// The server's figures in Prometheus' text form.
    fn metrics(&self) -> String;

    /// Whether nobody is answered with data: the server asks who somebody is, and this port cannot yet.
    fn is_closed(&self) -> bool;

    /// Random bytes, for what only this one answer may know.
    fn entropy(&self, bytes: &mut [u8]);
}
