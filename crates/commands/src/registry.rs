//! Every command there is.

use crate::command::Command;

/// All commands, in the order of `docs/COMPAT.md`.
pub(crate) static COMMANDS: &[&Command] = &[
    &crate::diagnostics::hello::HELLO,
    &crate::diagnostics::hello::IS_MASTER,
    &crate::diagnostics::ping::PING,
    &crate::diagnostics::build_info::BUILD_INFO,
    &crate::diagnostics::connection_status::CONNECTION_STATUS,
    &crate::diagnostics::whats_my_uri::WHATS_MY_URI,
    &crate::diagnostics::parameters::GET_PARAMETER,
    &crate::diagnostics::parameters::SET_PARAMETER,
    &crate::diagnostics::get_cmd_line_opts::GET_CMD_LINE_OPTS,
    &crate::diagnostics::get_log::GET_LOG,
    &crate::diagnostics::host_info::HOST_INFO,
    &crate::diagnostics::list_commands::LIST_COMMANDS,
    &crate::diagnostics::server_status::SERVER_STATUS,
    &crate::diagnostics::engine_status::ENGINE_STATUS,
    &crate::diagnostics::get_diagnostic_data::GET_DIAGNOSTIC_DATA,
    &crate::diagnostics::server_history::SERVER_HISTORY,
    &crate::diagnostics::current_op::CURRENT_OP,
    &crate::diagnostics::kill_op::KILL_OP,
    &crate::diagnostics::cursor_info::CURSOR_INFO,
    &crate::diagnostics::top::TOP,
    &crate::diagnostics::profile::PROFILE,
    &crate::diagnostics::plan_cache::PLAN_CACHE_CLEAR,
    &crate::diagnostics::plan_cache::PLAN_CACHE_CLEAR_FILTERS,
    &crate::diagnostics::plan_cache::PLAN_CACHE_LIST_FILTERS,
    &crate::diagnostics::plan_cache::PLAN_CACHE_SET_FILTER,
    &crate::diagnostics::outgoing::CONN_POOL_STATS,
    &crate::diagnostics::outgoing::DROP_CONNECTIONS,
    &crate::diagnostics::feature_version::SET_FEATURE_VERSION,
    &crate::crud::insert::INSERT,
    &crate::crud::update::UPDATE,
    &crate::crud::delete::DELETE,
    &crate::crud::bulk_write::BULK_WRITE,
    &crate::crud::find::FIND,
    &crate::crud::get_more::GET_MORE,
    &crate::crud::kill_cursors::KILL_CURSORS,
    &crate::crud::get_last_error::GET_LAST_ERROR,
    &crate::crud::get_last_error::RESET_ERROR,
    &crate::crud::find_and_modify::FIND_AND_MODIFY,
    &crate::crud::count::COUNT,
    &crate::crud::distinct::DISTINCT,
    &crate::crud::explain::EXPLAIN,
    &crate::aggregation::aggregate::AGGREGATE,
    &crate::aggregation::map_reduce::MAP_REDUCE,
    &crate::admin::create::CREATE,
    &crate::admin::create_indexes::CREATE_INDEXES,
    &crate::admin::drop::DROP,
    &crate::admin::drop::DROP_DATABASE,
    &crate::admin::drop_indexes::DROP_INDEXES,
    &crate::admin::list_collections::LIST_COLLECTIONS,
    &crate::admin::list_databases::LIST_DATABASES,
    &crate::admin::list_indexes::LIST_INDEXES,
    &crate::admin::coll_mod::COLL_MOD,
    &crate::admin::capped::CONVERT_TO_CAPPED,
    &crate::admin::capped::CLONE_AS_CAPPED,
    &crate::admin::capped::EMPTY_CAPPED,
    &crate::admin::partitions::ADD_PARTITION,
    &crate::admin::partitions::DROP_PARTITION,
    &crate::admin::partitions::GET_PARTITION_INFO,
    &crate::admin::re_index::RE_INDEX,
    &crate::admin::compact::COMPACT,
    &crate::admin::rename_collection::RENAME_COLLECTION,
    &crate::admin::auto_compact::AUTO_COMPACT,
    &crate::admin::backup::start::BACKUP_START,
    &crate::admin::backup::status::BACKUP_STATUS,
    &crate::admin::backup::throttle::BACKUP_THROTTLE,
    &crate::admin::touch::TOUCH,
    &crate::admin::validate::VALIDATE,
    &crate::admin::validate_db_metadata::VALIDATE_DB_METADATA,
    &crate::admin::user_write_block::SET_USER_WRITE_BLOCK_MODE,
    &crate::admin::stats::COLL_STATS,
    &crate::admin::stats::DB_STATS,
    &crate::admin::stats::DATA_SIZE,
    &crate::admin::hashes::DB_HASH,
    &crate::admin::hashes::FILE_MD5,
    &crate::admin::fsync::FSYNC,
    &crate::admin::fsync::FSYNC_UNLOCK,
    &crate::admin::fsync::CHECKPOINT,
    &crate::admin::log_rotate::LOG_ROTATE,
    &crate::admin::rotate_certificates::ROTATE_CERTIFICATES,
    &crate::admin::shutdown::SHUTDOWN,
    &crate::admin::configure_fail_point::CONFIGURE_FAIL_POINT,
    &crate::replication::copy::FERN_COPY_BEGIN,
    &crate::replication::copy::FERN_COPY_END,
    &crate::replication::copy::FERN_COPY_LOG,
    &crate::replication::copy::FERN_COPY_READ,
    &crate::replication::several::FERN_JOIN,
    &crate::replication::several::FERN_MEMBER,
    &crate::admin::merge_authz::MERGE_AUTHZ_COLLECTIONS,
    &crate::security::auth_schema_upgrade::AUTH_SCHEMA_UPGRADE,
    &crate::security::create_user::CREATE_USER,
    &crate::security::update_user::UPDATE_USER,
    &crate::security::drop_user::DROP_USER,
    &crate::security::drop_user::DROP_ALL_USERS,
    &crate::security::users_info::USERS_INFO,
    &crate::security::user_roles::GRANT_ROLES_TO_USER,
    &crate::security::user_roles::REVOKE_ROLES_FROM_USER,
    &crate::security::create_role::CREATE_ROLE,
    &crate::security::update_role::UPDATE_ROLE,
    &crate::security::drop_role::DROP_ROLE,
    &crate::security::drop_role::DROP_ALL_ROLES,
    &crate::security::roles_info::ROLES_INFO,
    &crate::security::role_privileges::GRANT_PRIVILEGES,
    &crate::security::role_privileges::REVOKE_PRIVILEGES,
    &crate::security::role_roles::GRANT_ROLES_TO_ROLE,
    &crate::security::role_roles::REVOKE_ROLES_FROM_ROLE,
    &crate::security::invalidate_user_cache::INVALIDATE_USER_CACHE,
    &crate::security::authenticate::AUTHENTICATE,
    &crate::security::logout::LOGOUT,
    &crate::security::sasl::SASL_CONTINUE,
    &crate::security::sasl::SASL_START,
    &crate::admin::search_indexes::CREATE_SEARCH_INDEXES,
    &crate::admin::search_indexes::DROP_SEARCH_INDEX,
    &crate::admin::search_indexes::LIST_SEARCH_INDEXES,
    &crate::admin::search_indexes::UPDATE_SEARCH_INDEX,
    &crate::replication::initiate::REPL_SET_INITIATE,
    &crate::replication::initiate::REPL_SET_RECONFIG,
    &crate::replication::initiate::REPL_SET_GET_CONFIG,
    &crate::replication::status::REPL_SET_GET_STATUS,
    &crate::replication::step_down::REPL_SET_STEP_DOWN,
    &crate::replication::eligibility::REPL_SET_FREEZE,
    &crate::replication::eligibility::REPL_SET_MAINTENANCE,
    &crate::replication::oplog_size::REPL_SET_RESIZE_OPLOG,
    &crate::replication::cluster_parameters::GET_CLUSTER_PARAMETER,
    &crate::replication::cluster_parameters::SET_CLUSTER_PARAMETER,
    &crate::admin::apply_ops::APPLY_OPS,
    &crate::replication::default_concern::GET_DEFAULT_RW_CONCERN,
    &crate::replication::default_concern::SET_DEFAULT_RW_CONCERN,
    &crate::sessions::start_session::START_SESSION,
    &crate::sessions::end_sessions::END_SESSIONS,
    &crate::sessions::end_sessions::REFRESH_SESSIONS,
    &crate::sessions::kill_sessions::KILL_SESSIONS,
    &crate::sessions::kill_sessions::KILL_ALL_SESSIONS,
    &crate::sessions::kill_sessions::KILL_ALL_SESSIONS_BY_PATTERN,
    &crate::transactions::begin_transaction::BEGIN_TRANSACTION,
    &crate::transactions::commit::COMMIT_TRANSACTION,
    &crate::transactions::commit::ABORT_TRANSACTION,
    &crate::transactions::lock_timeout::SET_CLIENT_LOCK_TIMEOUT,
    &crate::transactions::write_lock_yielding::SET_WRITE_LOCK_YIELDING,
    &crate::diagnostics::show_locks::SHOW_LIVE_TRANSACTIONS,
    &crate::diagnostics::show_locks::SHOW_PENDING_LOCK_REQUESTS,
];

#[cfg(test)]
mod tests {
    use super::COMMANDS;
    use crate::command::Registry;
    use dispatch::field_types::FIELD_TYPES;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique() {
        let mut names = BTreeSet::new();
        for command in COMMANDS {
            for name in std::iter::once(&command.name).chain(command.aliases) {
                assert!(names.insert(*name), "{name}");
            }
        }
    }

    #[test]
    fn grammars_name_commands() {
        let registry = Registry::new(COMMANDS);
        for grammar in FIELD_TYPES {
            let (_, command) = registry.find(grammar.command).expect(grammar.command);
            assert_eq!(command.name, grammar.command, "under its own name, not an alias");
        }
    }
}
