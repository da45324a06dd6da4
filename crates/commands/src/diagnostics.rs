//! Commands that say what the server is and does.

pub(crate) mod hello;
pub(crate) mod ping;
