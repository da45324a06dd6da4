//! Changes of whole collections and indexes: made, built, dropped, renamed, capped, rebuilt, checked.
//!
//! Always true: a change is committed to the engine first and published after, one at a time.

pub(crate) mod ahead;
pub(crate) mod build;
pub(crate) mod capped;
pub(crate) mod collections;
pub(crate) mod emptied;
pub(crate) mod made;
pub(crate) mod partition_upkeep;
pub(crate) mod partitions;
pub(crate) mod pending;
pub(crate) mod reindex;
pub(crate) mod sweep;
pub(crate) mod validate;
