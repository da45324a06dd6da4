//! The links between the members of a replica set: connections on the clients' port, over which frames of
//! `replica` go.
//!
//! ```text
//!   replica ── Sender ──▶ queue ──▶ thread ──▶ socket ─ ─ ─ ─▶ the other member's port: hello, then frames
//!      ▲                              │ lost, refused, up
//!      └── Inbox ◀────────────────────┘
//!            ▲
//!            └── thread ◀── socket ◀── net, which hands it over once its hello is answered ([`Links::acceptor`])
//! ```
//!
//! A link goes one way: each member opens one to each other, and sends by its own.
//!
//! Always true:
//! 1. Frames to a member come there whole and in the order in which they were sent, or are lost; then the sender
//!    is told ([`Arrival::Lost`]). Who sends never waits.
//! 2. What waits to be sent and what has come is bounded in bytes and frames, and charged to the account.
//! 3. A frame is handed on only if it says that it is from the member whose link it came by.
//! 4. Of several connections of one member the newest counts; behind its first frame nothing of an older one
//!    comes.
#![forbid(unsafe_code)]

mod address;
mod address_map;
mod ask;
mod backoff;
mod causes;
mod dial;
mod dialer;
mod frames;
mod hello;
mod identity;
mod inbox;
mod incoming;
mod links;
mod peer;
mod queue;
mod signal;
pub mod stand_in;
mod stream;
mod tuning;

pub use address::{HostAndPort, NoHostAndPort};
pub use address_map::{AddressMap, NoAddressMap};
pub use ask::{Answer, Connection, ask};
pub use dialer::Dialer;
pub use hello::{HelloError, LinkHello, VERSION, body_of, read_answer};
pub use identity::{Admission, Identity, LinkRefusal, Mismatch};
pub use inbox::{Arrival, Inbox, Received};
pub use links::{LinkState, Links, Sender};
pub use tuning::Tuning;
