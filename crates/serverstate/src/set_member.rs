//! This server as a member of a set of several: how it becomes one, what it does when it leads and when it does so
//! no more, and how it leaves.
//!
//! Always true:
//! 1. What only one member may do (expiry of documents, forgetting old sessions, ending what another one began)
//!    is done by who takes writes.
//! 2. When a member leads no more, what it has in memory of sessions is gone, its open transactions are aborted
//!    and commands that write are told to stop.

use crate::feature_version;
use crate::host::StartAgain;
use crate::replication::config_namespace;
use crate::state::ServerState;
use errors::{Code, Error, Result};
use limits::Interrupt;
use links::Tuning;
use membership::{Founding, HeldBack, Membership, Parts, Roles, SetDocument, View};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long a primary that is told to end waits for another one.
const HANDING_OVER: Duration = Duration::from_secs(10);

/// What follows the role of the member's thread.
struct ServerRoles(Weak<ServerState>);

/// Waits of work that no client asked for end with the server.
struct UntilTheEnd(Weak<ServerState>);

impl Interrupt for UntilTheEnd {
    fn check(&self) -> Result<()> {
        if self.0.upgrade().is_none_or(|state| state.is_stopping()) {
            return Err(Error::new(Code::INTERRUPTED_AT_SHUTDOWN, "the server is shutting down"));
        }
        Ok(())
    }
}

impl Roles for ServerRoles {
    fn take_over(&self, _term: u64) -> std::result::Result<(), String> {
        let Some(state) = self.0.upgrade() else { return Err("the server ends".to_owned()) };
        let interrupt = Arc::new(UntilTheEnd(Weak::clone(&self.0)));
        let _limited = limits::enter(interrupt, Arc::clone(&state.memory));
        state.take_over_writing().map_err(|error| error.message().to_owned())
    }

    fn changed(&self, view: &View, takes_writes: bool, document: &SetDocument) {
        let Some(state) = self.0.upgrade() else { return };
        let followed = state.replication.follow(view, takes_writes, document, &state.os);
        if followed.lost_writes {
            state.session_records.follow();
        }
        if followed.lost_writes || followed.gained_writes {
            let follower = Arc::clone(&state);
            let job = Box::new(move || follower.follow_role(followed.lost_writes));
            if let Err(error) = state.os.spawner.spawn("follow-role", job) {
                tracing::error!(target: "REPL", %error, "No thread to follow the member's role");
            }
        }
        state.copy_where_needed(view);
        if followed.changed {
            let leader = view.role_state.leader.and_then(|leader| document.host_of(leader));
            tracing::info!(target: "REPL", id = 21358, term = view.role_state.term, role = ?view.role_state.role,
                leader = leader.unwrap_or("nobody"), takesWrites = takes_writes,
                "Replica set member state transition");
            state.topology_changed();
        }
    }
}

/// A membership's refusal as a client reads it.
fn refused(error: &membership::Error) -> Error {
    let code = match error {
        membership::Error::Document(_) => Code::INVALID_REPLICA_SET_CONFIG,
        membership::Error::Directory(_) => Code::ALREADY_INITIALIZED,
        _ => Code::INTERNAL_ERROR,
    };
    Error::new(code, error.to_string())
}

impl ServerState {
    /// Goes on as the member of a set of several that the data directory is.
    pub fn start_membership(self: &Arc<Self>) -> Result<()> {
        self.load_stored()?;
        let membership = Membership::start(self.member_parts());
        self.join(membership.map_err(|error| refused(&error))?)
    }

    /// Begins a set of several, or goes into one that another member begins. The server has taken no write yet.
    pub fn begin_membership(self: &Arc<Self>, set: &SetDocument, founding: Founding) -> Result<()> {
        let _one_at_a_time = self.beginning.lock();
        if self.replication.is_of_several() {
            let text = "this server is in a replica set already";
            return Err(Error::new(Code::ALREADY_INITIALIZED, text));
        }
        self.catalog.engine().hold_back().map_err(|_| {
            Error::new(
                Code::CANNOT_INITIALIZE_NODE_WITH_DATA,
                "this server has data, which the other members would not get: a set of several members begins with \
                 empty data directories",
            )
        })?;
        let membership = Membership::begin(self.member_parts(), set, founding);
        self.join(membership.map_err(|error| refused(&error))?)
    }

    /// Begins a set of several with this server, which has data: it starts again as the set's first member, and the
    /// others get copies. Whoever is connected by then connects again. It starts once what this gives is dropped.
    pub fn found_with_data(self: &Arc<Self>, set: &SetDocument) -> Result<StartAgain> {
        let _one_at_a_time = self.beginning.lock();
        if self.replication.is_of_several() {
            let text = "this server is in a replica set already";
            return Err(Error::new(Code::ALREADY_INITIALIZED, text));
        }
        let directory = self.catalog.engine().options().dir.clone();
        let term = self.replication.term.load(Ordering::Acquire).max(1).cast_unsigned();
        Membership::prepare(&self.os, &directory, set, term).map_err(|error| refused(&error))?;
        // The configuration of a set of one counts no more; where there is none, there is nothing to do.
        let _stale = self.catalog.drop_collection(&config_namespace()?, &|| Ok(()));
        tracing::info!(target: "REPL", id = 9_016_767, set = set.name(),
            "This server has data, and begins a replica set with others: it starts again");
        self.host.start_again().map_err(|why| {
            let text = format!(
                "this server belongs to the set from its next start on: start it again ({why})"
            );
            Error::new(Code::INTERNAL_ERROR, text)
        })
    }

    /// The set goes on with this member alone: it starts again by itself, once what this gives is dropped, and whoever is
    /// connected by then connects again.
    pub fn go_on_alone(&self, membership: &Membership, set: &SetDocument) -> Result<StartAgain> {
        let _one_at_a_time = self.beginning.lock();
        let gone: Vec<&str> = membership
            .document()
            .ids()
            .into_values()
            .filter(|member| *member != membership.own())
            .filter_map(|member| set.host_of(member))
            .collect();
        tracing::warn!(target: "REPL", id = 9_016_871, set = set.name(), others = ?gone,
            "The set goes on with this member alone, because it was forced to. What a majority has acknowledged and this \
             member does not have on its disk is given up. The other members are refused until their data directories \
             are emptied; while they are a majority of the former set, they may go on by themselves: stop them");
        membership.go_on_alone(set).map_err(|error| refused(&error))?;
        self.host.start_again().map_err(|why| {
            let text =
                format!("this member goes on alone from its next start on: start it again ({why})");
            Error::new(Code::INTERNAL_ERROR, text)
        })
    }

    fn join(&self, membership: Arc<Membership>) -> Result<()> {
        self.pause_expiry();
        self.replication.clock.follow_commits()?;
        self.links.set(Some(membership.acceptor()));
        self.replication.join(membership, &self.os);
        self.topology_changed();
        Ok(())
    }

    fn member_parts(self: &Arc<Self>) -> Parts {
        let engine = self.catalog.engine().clone();
        let directory: PathBuf = engine.options().dir.clone();
        Parts {
            os: self.os.clone(),
            directory,
            engine,
            catalog: Arc::clone(&self.catalog),
            memory: Arc::clone(&self.memory),
            roles: Arc::new(ServerRoles(Arc::downgrade(self))),
            dialer: self.dialer.clone(),
            tuning: Tuning::default(),
            pace_ms: None,
        }
    }

    /// A server that has written nothing yet takes up the writing: it becomes a set of one.
    pub fn begin_writing_alone(&self) -> Result<()> {
        self.catalog.take_over()?;
        self.session_records.take_over()?;
        self.follows.store(false, Ordering::Release);
        self.resume_expiry();
        Ok(())
    }

    /// Whether this server has written nothing on its own yet, nor may: it waits for its set, or is a member of several.
    pub fn follows(&self) -> bool {
        self.follows.load(Ordering::Acquire)
    }

    /// What a member does before it takes clients' writes.
    fn take_over_writing(&self) -> Result<()> {
        self.catalog.take_over()?;
        self.session_records.take_over()?;
        self.numbered.clear();
        self.load_stored()
    }

    /// Reads what the set keeps for all its members.
    fn load_stored(&self) -> Result<()> {
        *self.feature_version.lock() = feature_version::load(&self.catalog)?;
        self.load_cluster_parameters()?;
        self.replication.load_default_concern(&self.catalog)
    }

    /// On a member that follows: what the primary has stored counts here, too.
    pub(crate) fn follow_stored(&self) {
        // What cannot be read now is read the next time; whoever reads documents meets the error.
        let _next_time = self.load_stored();
    }

    /// What a member does beside its thread when it takes writes from now on, or does no more. Runs once for each
    /// such change, and goes by the newest one.
    fn follow_role(&self, lost_writes: bool) {
        if lost_writes {
            for running in self.operations.list() {
                if self.writing_commands.contains(&running.name) {
                    let code = Code::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE;
                    self.operations.kill(running.number, code);
                }
            }
        }
        {
            let _one_at_a_time = self.beginning.lock();
            if self.takes_writes() {
                self.resume_expiry();
            } else {
                self.abort_transactions();
                self.numbered.clear();
                self.pause_expiry();
                return;
            }
        }
        // May wait for a majority: what follows the role next must not wait for it.
        let interrupt = Arc::new(UntilTheEnd(Weak::clone(&self.this)));
        let _limited = limits::enter(interrupt, Arc::clone(&self.memory));
        self.ensure_secret_of_users();
    }

    /// Members that have caught up get the votes that the configuration says they have. Does not wait.
    pub(crate) fn give_votes(&self) {
        let Some(membership) = self.replication.membership() else { return };
        if let Err(error) = membership.give_votes() {
            tracing::error!(target: "REPL", %error, "Members that have caught up get no votes");
        }
    }

    /// Lets a member of a higher priority lead, where one has caught up.
    pub(crate) fn prefer_higher_priority(&self, now: Duration) {
        let Some(membership) = self.replication.membership() else { return };
        if let Some(next) = membership.prefer_higher_priority(now) {
            let document = membership.document();
            tracing::info!(target: "REPL", id = 9_016_773, member = document.host_of(next),
                "A member of a higher priority has caught up: it is asked to take over");
        }
    }

    /// Says it where a delayed member has no room for the whole delay, and where it has again. What a full disk did not take
    /// is tried again.
    pub(crate) fn tell_of_room(&self) {
        let Some(membership) = self.replication.membership() else { return };
        membership.follow_again();
        if let Some(held_back) = membership.changed_in_room() {
            let HeldBack { bytes, seconds, is_short, .. } = held_back;
            if is_short {
                tracing::warn!(target: "REPL", id = 9_016_779, bytes, seconds,
                    "This delayed member has no room for the whole delay (--oplogSize): it shows what is oldest before its time");
            } else {
                tracing::info!(target: "REPL", id = 9_016_780, seconds, "This member has room for its whole delay again");
            }
        }
    }

    /// Leaves being primary to another member, where one is ready: the server is about to end.
    pub fn leave_set(&self) {
        let Some(membership) = self.replication.membership() else { return };
        if membership.takes_writes()
            && let Some(asked) = membership.hand_over()
        {
            let _whoever_leads = asked.wait(HANDING_OVER);
        }
    }

    /// Ends this server's part in its set. Nobody runs a command any more.
    pub fn end_membership(&self) {
        if let Some(membership) = self.replication.membership() {
            membership.stop();
        }
    }

    /// Whether this server may change what is stored on its own account.
    pub fn takes_writes(&self) -> bool {
        use crate::replication::Role;
        matches!(self.replication.role(&self.os), Role::Standalone | Role::Primary)
    }
}
