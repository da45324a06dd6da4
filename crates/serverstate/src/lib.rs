//! What a server knows between two requests: its connections, cursors, sessions and their
//! transactions, its role and the cluster's time, its settings, and the figures of what it did.
//!
//! | file | what it holds |
//! |---|---|
//! | `state` | [`ServerState`]: all of it, and who may wait for what |
//! | `start` | how it is built, and how the replica set's role is taken up |
//! | `connection`, `connections` | one client's connection; the list of those that are open |
//! | `session_state`, `session_rows`, `session_records`, `retryable_write` | transactions and retryable writes by session |
//! | `housekeeping` | what ends by time, by a session's end, or with the server |
//! | `replication`, `cluster_parameters`, `feature_version` | the member of a replica set |
//! | `security`, `logins`, `failed_logins`, `shared_secret`, `known_secret` | users, who is logged in, what the set keeps secret |
//! | `set_member` | how a server becomes a member of a set of several, leads, and follows again |
//! | `failed_updates`, `profiler`, `metrics`, `index_advice`, `log_levels`, `lock_log`, `current_ops` | what is told |
//!
//! What is always true:
//! 1. Nothing here knows a command: no handler, no list of commands. Handlers stand above, in
//!    `commands`, and change the state through what is public here.
//! 2. What is counted for each request takes no lock that all requests share.
#![forbid(unsafe_code)]

pub mod auto_compact;
mod backups;
pub mod cluster_parameters;
mod concern_waits;
mod connection;
mod connections;
mod copies;
pub mod current_ops;
mod emptied_members;
pub mod fail_point;
mod failed_logins;
mod failed_updates;
pub mod feature_version;
mod held_by_members;
mod host;
mod housekeeping;
pub mod index_advice;
mod known_secret;
pub mod last_write;
mod link_acceptance;
mod lock_log;
mod log_levels;
mod logins;
mod making_copies;
mod members_by_tls;
pub mod metrics;
mod parked;
pub mod profiler;
mod rate;
pub mod replication;
mod retryable_write;
pub mod rights;
pub mod scripting;
pub mod security;
mod session_records;
pub mod session_rows;
mod session_state;
mod set_member;
mod shared_secret;
mod start;
mod state;
pub mod versions;
pub mod write_gate;

pub use backups::{Backups, RunningBackup};
pub use concern_waits::{ConcernWatch, Holders};
pub use connection::{Bound, ClientCertificate, Connection, LockWaiting, Origin, Running};
pub use copies::Copies;
pub use host::{
    Allocator, AuditSink, Certificate, Host, LogEvent, Network, Severity, SilentHost, StartAgain,
};
pub use link_acceptance::LinkAcceptance;
pub use log_levels::LogSettings;
pub use members_by_tls::check_members_by_tls;
pub use parked::{Documents, Parked};
pub use query::fast_update_rules;
pub use rate::Rate;
pub use retryable_write::RetryableWrite;
pub use session_records::SessionRecords;
pub use session_state::{Checked, Open, Phase, SessionState};
pub use shared_secret::Signing;
pub use start::Parts;
pub use state::{ServerInfo, ServerState};
