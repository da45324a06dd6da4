//! The member of a replica set that this server is, as its commands and every other's concerns meet it. What the set is
//! and does stands in [`serverstate::replication`].

pub(crate) mod acknowledgement;
pub(crate) mod cluster_parameters;
pub(crate) mod cluster_time;
pub(crate) mod commit_quorum;
pub(crate) mod copy;
pub(crate) mod default_concern;
pub(crate) mod eligibility;
pub(crate) mod initiate;
pub(crate) mod oplog_age;
pub(crate) mod oplog_partitions;
pub(crate) mod oplog_size;
pub(crate) mod read_concern;
pub(crate) mod reply;
pub(crate) mod several;
pub(crate) mod status;
pub(crate) mod step_down;
pub(crate) mod sync_from;
mod woken;
pub(crate) mod write_concern;
