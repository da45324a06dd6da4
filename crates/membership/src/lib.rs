//! A data directory as a member of a set: engine, catalog, links and consensus put together.
//!
//! ```text
//!  commands ─ Membership ─┬─ member::Member ─ replica::Replica ─ EngineJournal ─ engine
//!                         │                                        └─ CatalogObserver ─ catalog
//!                         └─ links::Links ─ sockets
//! ```
//!
//! The first member *founds* the set; the others *join* it, with nothing in their directories. All of them
//! begin at one place of the log, [`BASE`], with the founder as the only voter, and learn by entries of the
//! configuration who the others are. Who the founder is stands in `raft.state` as the lineage.
//!
//! Always true:
//! 1. This member takes clients' writes from the end of [`Roles::take_over`] until it leads no more.
//! 2. On a member that does not lead, the catalog in memory is what an opening of the visible state would read.
//! 3. What of a configuration is decided is on disk before the links follow it, so that a start finds the others.

mod admission;
mod catalog_observer;
pub mod copy;
mod delay_log;
mod error;
pub mod hosts;
mod left_out;
mod membership;
mod set_document;
mod set_file;

pub use error::{Error, Result};
pub use links::HostAndPort;
pub use member::{Pending, Refusal, View};
pub use membership::{BASE, Founding, Membership, Parts, Roles, Stored};
pub use quorum::{MemberId, Position};
pub use replica::{HeldBack, NeedsCopy};
pub use set_document::SetDocument;
