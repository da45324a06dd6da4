//! Planner, plan execution, explain and write execution.
//!
//! `commands` fills a typed request and calls one function per operation with an [`OpContext`].
#![forbid(unsafe_code)]

mod aggregate;
mod canonical;
mod context;
mod count;
mod cursor;
mod distinct;
mod examined;
mod exec;
mod explain;
mod fast_updates;
mod find;
mod id_range;
mod index_filter;
mod index_key;
mod past;
mod permit;
mod plan;
mod plan_cache;
mod plan_choice;
mod point;
mod projection;
mod repeat;
mod request;
mod tail;
mod text;
mod ttl;
mod view;
mod write;

pub use aggregate::collection_figures::OplogFigures;
pub use aggregate::oplog_collection::{count_oplog, explain_oplog, find_oplog};
pub use aggregate::{aggregate, explain_aggregate};
pub use context::{Atomicity, Interrupt, OpContext, StatementLog, StatementOutcome, Uninterrupted};
pub use count::count;
pub use cursor::{Found, One, QueryCursor};
pub use distinct::distinct;
pub use examined::{Examined, Plans, plans_taken, restore_plan_summary, take_examined};
pub use explain::{
    explain_count, explain_delete, explain_distinct, explain_find, explain_find_and_modify,
    explain_update,
};
pub use fast_updates::{FailedUpdate, FastUpdateRules, FastUpdates, fast_update_rules};
pub use find::find;
pub use permit::{KeptPermit, Opening, Permit};
pub use plan_cache::{
    bound_plan_caches, clear_filters, clear_plan_cache, clear_plan_of, list_filters,
    plan_cache_bytes, plan_cache_stats, set_filter,
};
pub use repeat::DdlRetries;
pub use request::{
    AggregateRequest, AggregateTarget, CountRequest, DeleteRequest, DeleteResult, DeleteStatement,
    DistinctRequest, FindAndModifyRequest, FindAndModifyResult, FindRequest, InsertRequest,
    InsertResult, UpdateRequest, UpdateResult, UpdateStatement, Verbosity, WriteError,
};
pub use tail::find_tailable;
pub use ttl::{Expiry, TtlMonitor, expire_documents};
pub use write::{delete, ends_command, find_and_modify, insert, new_object_id, update};

#[cfg(test)]
mod tests;
