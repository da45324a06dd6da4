//! One member of a set: consensus (`quorum`), the journal in which its log lies, and the links to the
//! other members, put together without a thread, a socket or a clock.
//!
//! A [`Replica`] does its work in [`Replica::step`], which is told the time, and in
//! [`Replica::receive`], which is handed a frame. Threads only call them; the simulator has none. What
//! it needs is behind three traits: [`Journal`] (the redo log with the engine above it: [`EngineJournal`]),
//! [`Links`] (the connections), [`Promises`] (term and vote on disk; [`StateFile`] over `os::Vfs`).
//!
//! Always true:
//! 1. An entry is acknowledged after the journal has said that its records are synced.
//! 2. Records reach the journal in the order of their entries, checked against the entry's
//!    descriptor; what another leader's entries replace is cut off first.
//! 3. A leader takes writes from when the first entry of its term is committed until it leads no
//!    more; what is in no entry then is cut off.
//! 4. After an error of journal or state file nothing is acknowledged any more.

mod delayable_journal;
mod engine_journal;
mod entry_log;
mod error;
mod frame;
mod journal;
mod links;
pub mod memory;
mod observer;
mod packing;
mod payload;
mod policy;
mod replica;
mod state_file;
mod syncs;
mod witness;

pub use delayable_journal::{DelayLog, DelayableJournal};
pub use engine_journal::EngineJournal;
pub use entry_log::EntryLog;
pub use error::{Error, Result};
pub use frame::{FRAME_VERSION, Frame, MAX_FRAME, MAX_PAYLOAD, MemberReport, OLDEST_FRAME_VERSION};
pub use journal::{HeldBack, Journal, LoadedLog};
pub use links::Links;
pub use observer::{Nobody, Observed, Observer};
pub use packing::PACKING_BYTES;
pub use payload::Payload;
pub use policy::MAX_ENTRY_BYTES;
pub use replica::{Event, Kinds, NeedsCopy, Options, Replica};
pub use state_file::{Promises, StateFile};
pub use syncs::SyncMode;
pub use witness::WitnessJournal;
