//! Every command by its name.
//!
//! Always true: the list is sorted by name once, names are unique, and a name that is not here
//! answers `CommandNotFound`.

use crate::context::Context;
use crate::fields::Field;
use errors::Result;
use std::sync::LazyLock;

/// What a command counts as in `serverStatus.opcounters`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counter {
    Insert,
    Query,
    Update,
    Delete,
    GetMore,
    Command,
}

/// What a command counts as in `serverStatus.opLatencies` and `top`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Read,
    Write,
    Other,
}

pub(crate) type Run = for<'a, 'b> fn(&mut Context<'a>, &'b [Field<'a>]) -> Result<()>;

/// A command: its name, its rules and its code.
#[expect(clippy::struct_excessive_bools, reason = "independent rules, not states")]
pub(crate) struct Command {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
    /// One line for `listCommands` and `docs/COMPAT.md`.
    pub(crate) about: &'static str,
    pub(crate) run: Run,
    /// Writes the reply of `explain`.
    pub(crate) explain: Option<Run>,
    pub(crate) counter: Counter,
    pub(crate) class: Class,
    pub(crate) admin_only: bool,
    pub(crate) api_v1: bool,
    /// What it does is as durable as the client asks before it is acknowledged: the service waits,
    /// not the command's code. Without this or the next a command writes nothing; the service
    /// checks that.
    pub(crate) write_concern: bool,
    /// What it does is durable before it is acknowledged, whatever is asked.
    pub(crate) durable: bool,
    pub(crate) read_concern: bool,
    /// Only connections that wrote in the old way know it.
    pub(crate) legacy: bool,
    /// The profiler tells of it.
    pub(crate) profiled: bool,
    /// The kind 1 sections it takes.
    pub(crate) sequences: &'static [&'static str],
}

impl Command {
    /// A command with the commonest rules.
    pub(crate) const fn new(name: &'static str, about: &'static str, run: Run) -> Self {
        Self {
            name,
            aliases: &[],
            about,
            run,
            explain: None,
            counter: Counter::Command,
            class: Class::Other,
            admin_only: false,
            api_v1: false,
            write_concern: false,
            durable: false,
            read_concern: false,
            legacy: false,
            profiled: true,
            sequences: &[],
        }
    }

    /// Other spellings.
    pub(crate) const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// Only `admin` may be asked.
    pub(crate) const fn admin_only(mut self) -> Self {
        self.admin_only = true;
        self
    }

    /// It belongs to API version 1.
    pub(crate) const fn api_v1(mut self) -> Self {
        self.api_v1 = true;
        self
    }

    /// It reads documents.
    pub(crate) const fn reads(mut self, counter: Counter) -> Self {
        self.class = Class::Read;
        self.counter = counter;
        self.read_concern = true;
        self
    }

    /// It writes documents.
    pub(crate) const fn writes(mut self, counter: Counter) -> Self {
        self.class = Class::Write;
        self.counter = counter;
        self.write_concern = true;
        self
    }

    /// It writes, and takes a write concern.
    pub(crate) const fn write_concern(mut self) -> Self {
        self.write_concern = true;
        self
    }

    /// Whether it may leave something behind; then its reply waits for the disk.
    pub(crate) const fn leaves_something(&self) -> bool {
        self.write_concern || self.durable
    }

    /// What it writes is durable when it is acknowledged.
    pub(crate) const fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// It takes documents in kind 1 sections.
    pub(crate) const fn sequences(mut self, names: &'static [&'static str]) -> Self {
        self.sequences = names;
        self
    }

    /// It belongs to the old way of writing.
    pub(crate) const fn legacy(mut self) -> Self {
        self.legacy = true;
        self
    }

    /// `system.profile` has no entry of it.
    pub(crate) const fn unprofiled(mut self) -> Self {
        self.profiled = false;
        self
    }

    /// It can be explained.
    pub(crate) const fn explains(mut self, explain: Run) -> Self {
        self.explain = Some(explain);
        self
    }
}

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
    &crate::admin::re_index::RE_INDEX,
    &crate::admin::compact::COMPACT,
    &crate::admin::rename_collection::RENAME_COLLECTION,
    &crate::admin::auto_compact::AUTO_COMPACT,
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
    &crate::admin::shutdown::SHUTDOWN,
    &crate::admin::configure_fail_point::CONFIGURE_FAIL_POINT,
    &crate::admin::merge_authz::MERGE_AUTHZ_COLLECTIONS,
    &crate::admin::users_info::USERS_INFO,
    &crate::admin::authenticate::LOGOUT,
    &crate::admin::authenticate::SASL_CONTINUE,
    &crate::admin::authenticate::SASL_START,
    &crate::admin::search_indexes::CREATE_SEARCH_INDEXES,
    &crate::admin::search_indexes::DROP_SEARCH_INDEX,
    &crate::admin::search_indexes::LIST_SEARCH_INDEXES,
    &crate::admin::search_indexes::UPDATE_SEARCH_INDEX,
    &crate::replication::initiate::REPL_SET_INITIATE,
    &crate::replication::initiate::REPL_SET_RECONFIG,
    &crate::replication::initiate::REPL_SET_GET_CONFIG,
    &crate::replication::status::REPL_SET_GET_STATUS,
    &crate::replication::step_down::REPL_SET_STEP_DOWN,
    &crate::replication::cluster_parameters::GET_CLUSTER_PARAMETER,
    &crate::replication::cluster_parameters::SET_CLUSTER_PARAMETER,
    &crate::replication::apply_ops::APPLY_OPS,
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

/// Names and aliases, sorted, with the command's position in [`COMMANDS`].
static BY_NAME: LazyLock<Vec<(&'static str, usize)>> = LazyLock::new(|| {
    let mut names: Vec<_> = COMMANDS
        .iter()
        .enumerate()
        .flat_map(|(at, command)| {
            std::iter::once(command.name)
                .chain(command.aliases.iter().copied())
                .map(move |n| (n, at))
        })
        .collect();
    names.sort_unstable();
    names
});

/// The command of a name, and its position in [`COMMANDS`].
pub(crate) fn find(name: &str) -> Option<(usize, &'static Command)> {
    let at = BY_NAME.binary_search_by(|(other, _)| (*other).cmp(name)).ok()?;
    let position = BY_NAME[at].1;
    Some((position, COMMANDS[position]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for pair in BY_NAME.windows(2) {
            assert_ne!(pair[0].0, pair[1].0);
        }
    }
}
