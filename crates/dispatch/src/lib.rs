//! Requests and replies: how a command's arguments are read, its reply is built and its errors are
//! labelled. No command's code, no storage: what routes commands to other servers needs as much.
//!
//! Always true: a field that is taken is honoured or refused; a refusal names the field as MongoDB does.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod field_types;
pub mod fields;
pub mod labels;
mod link;
pub mod read_concern;
pub mod reply;
pub mod request;
pub mod rules;
pub mod write_concern;
pub mod writer;

pub use link::{AcceptedLink, HandedOver, LinkAcceptor, TakeOver};
pub use reply::{Reply, Unfinished};
pub use request::{ConnectionInfo, MakeWaker, OpKind, Request, Wake};
