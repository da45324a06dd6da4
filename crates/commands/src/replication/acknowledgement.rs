//! What the answer to a command waits for: on a member of a set of several that a majority has what the command did; that
//! it is on this server's own disk, where that is asked for; then whatever else its write concern asks for.
//!
//! Always true:
//! 1. Nothing is acknowledged that is not as sure as was asked for: each look begins at the first condition that
//!    was not met yet, and a condition that was met stays so.
//! 2. Waiting needs no thread: whoever waits is called when a look may find more ([`Acknowledgement::watch`]), and
//!    looks again now and then. Who has a thread anyway may wait on it ([`Acknowledgement::wait_here`]).

use crate::context::Context;
use crate::replication::woken::Woken;
use crate::replication::write_concern::{self, fails, holders};
use catalog::{DecisionWatch, LogWait, SyncWatch, Unsettled};
use dispatch::write_concern::WriteConcern;
use errors::{Code, Error, Result};
use os::Call;
use serverstate::{ConcernWatch, Holders, ServerState};
use session::OperationSlot;
use std::sync::Arc;
use std::time::Duration;

/// How often who waits without a thread looks for what nobody calls it for: an engine that has stopped.
const LOOK_WITHOUT_CALL: Duration = Duration::from_secs(1);

/// What came of the wait for an answer.
pub(crate) enum Acknowledged {
    /// It may be given: with an error beside it where what was done is not as sure as was asked for.
    Answers(Result<()>),
    /// Nobody sees what was done, or it is not known whether anybody will: this is the command's error.
    Fails(Error),
}

/// What an answer waits for.
pub(crate) struct Acknowledgement {
    /// What was written and read, which readers do not see yet.
    unsettled: Unsettled,
    concern: WriteConcern<'static>,
    mode: Option<Box<str>>,
    /// Server time at which `wtimeout` is over.
    until: Option<Duration>,
    /// Something was done that the command's end leaves: the concern asks for more than a majority of it.
    is_kept: bool,
    /// How far this server's log has to be on its disk.
    log: Option<LogWait>,
    condition: Condition,
}

/// The first condition that is not met yet.
enum Condition {
    /// A majority has what was done.
    Majority,
    /// It is on this server's disk.
    Disk,
    /// These have it up to this entry.
    Members(Holders, u64),
}

/// A place among those who wait.
#[expect(dead_code, reason = "each is kept until it is given up")]
pub(crate) enum Watch {
    /// For a majority.
    Decision(DecisionWatch),
    /// For this server's disk.
    Disk(SyncWatch),
    /// For certain members.
    Members(ConcernWatch),
}

impl Acknowledgement {
    /// What the answer to this command waits for. On a standalone and in a set of one, whose own disk is all there is,
    /// for that alone, or for nothing.
    pub(crate) fn of(context: &Context<'_>, result: &Result<()>) -> Option<Self> {
        let Context { service, command, .. } = context;
        if !command.writes_data() {
            return None;
        }
        // A statement of a transaction has done nothing yet. What a command that failed had done by then stays.
        let is_kept = !context.inside && (result.is_ok() || context.committed);
        let log = (is_kept && waits_for_disk(context)).then(|| service.catalog.engine().log_wait());
        let is_of_several = service.replication.is_of_several();
        if !is_of_several && log.is_none() {
            return None;
        }
        let says_nothing =
            matches!(result, Err(error) if error.code() == Code::NOT_WRITABLE_PRIMARY);
        let concern = context.arguments.write_concern;
        Some(Self {
            unsettled: if says_nothing || !is_of_several {
                Unsettled::default()
            } else {
                service.catalog.take_unsettled()
            },
            concern: concern.without_mode(),
            mode: concern.mode.map(Into::into),
            until: write_concern::deadline(context),
            is_kept,
            log,
            condition: if is_of_several { Condition::Majority } else { Condition::Disk },
        })
    }

    /// The concern that was asked for.
    pub(crate) fn concern(&self) -> WriteConcern<'_> {
        WriteConcern { mode: self.mode.as_deref(), ..self.concern }
    }

    /// What came of it, where it may be answered by now.
    pub(crate) fn look(
        &mut self,
        state: &ServerState,
        operation: &OperationSlot,
    ) -> Option<Acknowledged> {
        let beside = |error| Acknowledged::Answers(Err(error));
        if let Condition::Majority = self.condition {
            match state.catalog.is_settled(&self.unsettled) {
                Ok(true) => self.condition = Condition::Disk,
                Ok(false) => return self.look_at_time(state, operation, Acknowledged::Fails),
                Err(error) => return Some(Acknowledged::Fails(error.into())),
            }
        }
        if let Condition::Disk = self.condition {
            match self.log.as_ref().map_or(Ok(true), |log| state.catalog.sync_or_join(log)) {
                Ok(true) => {}
                Ok(false) => return self.look_at_time(state, operation, beside),
                Err(error) => return Some(beside(error)),
            }
            let Some(members) = self.members_beyond(state) else {
                return Some(Acknowledged::Answers(Ok(())));
            };
            self.condition = members;
        }
        self.look_for_members(state, operation)
    }

    /// What is asked for beyond a majority and this server's disk.
    fn members_beyond(&self, state: &ServerState) -> Option<Condition> {
        let concern = self.concern();
        if !self.is_kept || !state.replication.is_of_several() {
            return None;
        }
        let wanted = holders(&concern).filter(|_| !fails(&concern, &state.replication))?;
        Some(Condition::Members(wanted, state.catalog.engine().committed_index()))
    }

    /// The part of [`Self::look`] behind where a majority has what was done.
    fn look_for_members(
        &self,
        state: &ServerState,
        operation: &OperationSlot,
    ) -> Option<Acknowledged> {
        let beside = |error| Acknowledged::Answers(Err(error));
        let Condition::Members(holders, index) = &self.condition else {
            return Some(Acknowledged::Answers(Ok(())));
        };
        match state.replication.held_up_to(holders) {
            Some(up_to) if up_to >= *index => Some(Acknowledged::Answers(Ok(()))),
            Some(_) => self.look_at_time(state, operation, beside),
            None => Some(beside(Error::new(
                Code::PRIMARY_STEPPED_DOWN,
                "Primary stepped down while waiting for replication",
            ))),
        }
    }

    /// What ends a wait whose condition is not met: the operation may wait no longer, or `wtimeout` is over.
    fn look_at_time(
        &self,
        state: &ServerState,
        operation: &OperationSlot,
        interrupted: impl FnOnce(Error) -> Acknowledged,
    ) -> Option<Acknowledged> {
        let now = state.os.clock.monotonic();
        if let Err(error) = operation.check_wait(|| now) {
            return Some(interrupted(error));
        }
        let is_over = self.until.is_some_and(|until| now >= until);
        is_over.then(|| Acknowledged::Answers(Err(write_concern::timed_out())))
    }

    /// Has `call` made once a look may find more, as long as what this gives is kept. Who relies on it looks after
    /// this; where that look goes on to another condition, it watches again and looks again.
    pub(crate) fn watch(&self, state: &ServerState, call: &Call) -> Option<Watch> {
        match &self.condition {
            Condition::Majority => {
                state.catalog.when_settled(&self.unsettled, call).map(Watch::Decision)
            }
            Condition::Disk => {
                let log = self.log.as_ref()?;
                state.catalog.engine().watch_sync(log, call).map(Watch::Disk)
            }
            Condition::Members(holders, index) => {
                state.when_held(holders.clone(), *index, Arc::clone(call)).map(Watch::Members)
            }
        }
    }

    /// How many of its conditions are met.
    pub(crate) fn met(&self) -> usize {
        match self.condition {
            Condition::Majority => 0,
            Condition::Disk => 1,
            Condition::Members(..) => 2,
        }
    }

    /// When to look again where no call comes.
    pub(crate) fn next_look(&self, state: &ServerState, operation: &OperationSlot) -> Duration {
        let latest = state.os.clock.monotonic().saturating_add(LOOK_WITHOUT_CALL);
        [self.until, operation.deadline()].into_iter().flatten().fold(latest, Duration::min)
    }

    /// Waits on this thread until it may be answered.
    pub(crate) fn wait_here(
        &mut self,
        state: &ServerState,
        operation: &OperationSlot,
    ) -> Acknowledged {
        operation.set_awaits_members();
        let woken = Woken::default();
        let call = woken.call();
        loop {
            let _watch = self.watch(state, &call);
            if let Some(acknowledged) = self.look(state, operation) {
                return acknowledged;
            }
            woken.wait();
        }
    }
}

/// Whether a command's answer waits for this server's own disk. Of a member of a set of several a majority has it on disk,
/// whatever was asked for.
fn waits_for_disk(context: &Context<'_>) -> bool {
    let Context { service, command, .. } = context;
    let concern = &context.arguments.write_concern;
    if service.replication.is_of_several() {
        return concern.journal == Some(true) && !concern.is_majority;
    }
    let options = service.catalog.engine().options();
    command.is_always_durable || options.log_flush_period.is_zero() || concern.synced
}
