//! Planner, plan execution, explain and write execution.
//!
//! `commands` fills a typed request and calls one function per operation with an [`OpContext`].
#![forbid(unsafe_code)]

mod context;
mod cursor;
mod operations;
mod request;

pub use context::{Interrupt, OpContext, Uninterrupted};
pub use cursor::QueryCursor;
pub use operations::{
    aggregate, count, delete, distinct, explain_aggregate, explain_count, explain_delete,
    explain_distinct, explain_find, explain_find_and_modify, explain_update, find, find_and_modify,
    insert, update,
};
pub use request::{
    AggregateRequest, AggregateTarget, CountRequest, DeleteRequest, DeleteResult, DeleteStatement,
    DistinctRequest, FindAndModifyRequest, FindAndModifyResult, FindRequest, InsertRequest,
    InsertResult, UpdateRequest, UpdateResult, UpdateStatement, Verbosity, WriteError,
};
