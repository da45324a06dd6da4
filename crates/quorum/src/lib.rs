//! Consensus: which entries of the log are decided, who leads, who the members are.
//!
//! A [`Node`] is the state of one member. It does nothing by itself: it has no thread, opens no file,
//! knows no socket, reads no clock and draws no random number of its own. The layer above calls
//! [`Node::tick`] as time passes and [`Node::receive`] for what comes in, and then does what
//! [`Node::ready`] says: writes, sends, applies. Given the same calls and the same random numbers it
//! does the same.
//!
//! Underneath is the crate `raft` (ADR 39 says why, and what it lacks); nothing of it shows outside.
//!
//! Always true:
//! 1. What a message says is checked before it is acted on; what cannot be is an [`Error`] and changes
//!    nothing. No message makes a node panic.
//! 2. Nothing that promises (a vote, an acknowledgement) leaves before the write it vouches for was
//!    reported synced by [`Node::persisted`].
//! 3. What is held in memory is bounded: entries are descriptors without records, and are counted. Those that
//!    went are asked of the member's log where another member needs them ([`Older`]); nothing is kept of that.

mod check;
pub mod codec;
mod entry;
mod error;
mod log;
mod message;
mod node;
mod outcome;
pub mod state;
mod timeouts;
mod translate;

pub use entry::{
    Change, Configuration, Content, Descriptor, Entry, MAX_MEMBERS, MemberId, Position, Standing,
};
pub use error::{Error, Result};
pub use log::Older;
pub use message::{Body, Message, ReadId, Snapshot};
pub use node::Node;
pub use outcome::{
    HardState, Peer, PeerPhase, ReadPoint, Ready, Role, RoleState, Settings, Start, Status,
};
