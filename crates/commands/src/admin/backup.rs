//! TokuMX's commands for hot backups: one command, one file.

pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod throttle;
