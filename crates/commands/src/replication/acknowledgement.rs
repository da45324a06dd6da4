//! What the answer to a command waits for on a member of a set of several: that a majority has what the command
//! did, then whatever else its write concern asks for.
//!
//! Always true:
//! 1. Nothing is acknowledged that is not as sure as was asked for: each look begins at the first condition that
//!    was not met yet, and a condition that was met stays so.
//! 2. Waiting needs no thread: whoever waits is called when a look may find more ([`Acknowledgement::watch`]), and
//!    looks again now and then. Who has a thread anyway may wait on it ([`Acknowledgement::wait_here`]).

use crate::context::Context;
use crate::replication::write_concern::{self, fails, holders};
use catalog::{DecisionWatch, Unsettled};
use dispatch::write_concern::WriteConcern;
use errors::{Code, Error, Result};
use os::Call;
use os::sync::{Condvar, Mutex};
use serverstate::{ConcernWatch, Holders, ServerState};
use session::OperationSlot;
use std::sync::Arc;
use std::time::Duration;

/// How often who waits on its thread looks whether its operation goes on.
const LOOK: Duration = Duration::from_millis(25);

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
    /// Who must have which entry, once a majority has what was done.
    beyond: Option<(Holders, u64)>,
}

/// A place among those who wait.
#[expect(dead_code, reason = "each is kept until it is given up")]
pub(crate) enum Watch {
    /// For a majority.
    Decision(DecisionWatch),
    /// For certain members.
    Members(ConcernWatch),
}

impl Acknowledgement {
    /// What the answer to this command waits for. Nothing on a standalone and in a set of one, whose own disk is
    /// all there is.
    pub(crate) fn of(context: &Context<'_>, result: &Result<()>) -> Option<Self> {
        let Context { service, command, .. } = context;
        if !service.replication.is_of_several() || !command.writes_data() {
            return None;
        }
        let says_nothing =
            matches!(result, Err(error) if error.code() == Code::NOT_WRITABLE_PRIMARY);
        let concern = context.arguments.write_concern;
        Some(Self {
            unsettled: if says_nothing {
                Unsettled::default()
            } else {
                service.catalog.take_unsettled()
            },
            concern: concern.without_mode(),
            mode: concern.mode.map(Into::into),
            until: write_concern::deadline(context),
            is_kept: !context.inside && (result.is_ok() || context.committed),
            beyond: None,
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
        if self.beyond.is_none() {
            match state.catalog.is_settled(&self.unsettled) {
                Ok(true) => match self.majority_has_it(state) {
                    Ok(false) => {}
                    Ok(true) => return Some(Acknowledged::Answers(Ok(()))),
                    Err(error) => return Some(Acknowledged::Answers(Err(error))),
                },
                Ok(false) => return self.look_at_time(state, operation, Acknowledged::Fails),
                Err(error) => return Some(Acknowledged::Fails(error.into())),
            }
        }
        self.look_for_members(state, operation)
    }

    /// Goes on to what is asked for beyond a majority; says whether that is nothing.
    fn majority_has_it(&mut self, state: &ServerState) -> Result<bool> {
        let concern = self.concern();
        if !self.is_kept {
            return Ok(true);
        }
        if concern.journal == Some(true) && !concern.is_majority {
            // A majority has it on its disks already; this member's own is asked for by `j`.
            state.catalog.sync()?;
        }
        let wanted = holders(&concern).filter(|_| !fails(&concern, &state.replication));
        self.beyond = wanted.map(|holders| (holders, state.catalog.engine().committed_index()));
        Ok(self.beyond.is_none())
    }

    /// The part of [`Self::look`] behind where a majority has what was done.
    fn look_for_members(
        &self,
        state: &ServerState,
        operation: &OperationSlot,
    ) -> Option<Acknowledged> {
        let beside = |error| Acknowledged::Answers(Err(error));
        let Some((holders, index)) = &self.beyond else {
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
        match &self.beyond {
            None => state.catalog.when_settled(&self.unsettled, call).map(Watch::Decision),
            Some((holders, index)) => {
                state.when_held(holders.clone(), *index, Arc::clone(call)).map(Watch::Members)
            }
        }
    }

    /// Whether it waits for members beyond a majority.
    pub(crate) fn is_beyond_majority(&self) -> bool {
        self.beyond.is_some()
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
        let woken = Arc::new((Mutex::new(false), Condvar::new()));
        loop {
            let waking = Arc::clone(&woken);
            let call: Call = Arc::new(move || {
                *waking.0.lock() = true;
                waking.1.notify_all();
            });
            let _watch = self.watch(state, &call);
            if let Some(acknowledged) = self.look(state, operation) {
                return acknowledged;
            }
            let mut is_woken = woken.0.lock();
            if !*is_woken {
                woken.1.wait_for(&mut is_woken, LOOK);
            }
            *is_woken = false;
        }
    }
}
