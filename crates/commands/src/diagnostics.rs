//! Commands that say what the server is and does.

pub(crate) mod build_info;
pub(crate) mod connection_status;
pub(crate) mod current_op;
pub(crate) mod engine_status;
pub(crate) mod exposition;
pub(crate) mod feature_version;
pub(crate) mod ft;
pub(crate) mod get_cmd_line_opts;
pub(crate) mod get_diagnostic_data;
pub(crate) mod get_log;
pub(crate) mod hello;
pub(crate) mod host_info;
pub(crate) mod kill_op;
pub(crate) mod list_commands;
pub(crate) mod outgoing;
pub(crate) mod parameters;
pub(crate) mod ping;
pub(crate) mod plan_cache;
pub(crate) mod profile;
pub(crate) mod sampler;
pub(crate) mod server_history;
pub(crate) mod server_status;
pub(crate) mod show_locks;
pub(crate) mod storage_defaults;
pub(crate) mod top;
pub(crate) mod whats_my_uri;
