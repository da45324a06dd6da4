//! Commands that change or describe databases, collections and indexes, and the server itself.

pub(crate) mod apply_ops;
pub(crate) mod auto_compact;
pub(crate) mod backup;
pub(crate) mod capped;
pub(crate) mod coll_mod;
pub(crate) mod compact;
pub(crate) mod configure_fail_point;
pub(crate) mod create;
pub(crate) mod create_indexes;
pub(crate) mod drop;
pub(crate) mod drop_indexes;
pub(crate) mod fsync;
pub(crate) mod hashes;
pub(crate) mod list_collections;
pub(crate) mod list_databases;
pub(crate) mod list_indexes;
pub(crate) mod log_rotate;
pub(crate) mod merge_authz;
pub(crate) mod partitions;
pub(crate) mod re_index;
pub(crate) mod rename_collection;
pub(crate) mod rotate_certificates;
pub(crate) mod rotate_data_key;
pub(crate) mod rotate_master_key;
pub(crate) mod search_indexes;
pub(crate) mod shutdown;
pub(crate) mod stats;
pub(crate) mod structured_encryption;
pub(crate) mod touch;
pub(crate) mod user_write_block;
pub(crate) mod validate;
pub(crate) mod validate_db_metadata;

use errors::{Code, Error};

/// The refusal of commands that want a collection and got a view.
fn is_a_view(namespace: &catalog::Namespace) -> Error {
    Error::new(
        Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
        format!("Namespace {namespace} is a view, not a collection"),
    )
}
