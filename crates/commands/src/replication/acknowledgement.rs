//! What the answer to a command waits for on a member of a set of several: that a majority has what the command
//! did, then whatever else its write concern asks for.
//!
//! Always true:
//! 1. Nothing is acknowledged that is not as sure as was asked for: each look begins at the first condition that
//!    was not met yet, and a condition that was met stays so.
//! 2. Waiting needs no thread: whoever waits is called when a look may find more ([`Acknowledgement::watch`]), and
//!    looks again now and then. Who has a thread anyway may wait on it ([`Acknowledgement::wait_here`]).

use crate::context::Context;
use crate::replication::write_concern::{self, fails, members_have};
use catalog::{DecisionWatch, Unsettled};
use dispatch::write_concern::WriteConcern;
use errors::{Code, Error, Result};
use os::Call;
use os::sync::{Condvar, Mutex};
use serverstate::ServerState;
use session::OperationSlot;
use std::sync::Arc;
use std::time::Duration;

/// How often who waits on its thread looks whether its operation goes on.
const LOOK: Duration = Duration::from_millis(25);

/// How often who waits without a thread looks for what nobody calls it for: an engine that has stopped.
const LOOK_WITHOUT_CALL: Duration = Duration::from_secs(1);

/// How far an answer is.
pub(crate) enum Acknowledged {
    /// It may be given: with an error beside it where what was done is not as sure as was asked for.
    Answers(Result<()>),
    /// Nobody sees what was done, or it is not known whether anybody will: this is the command's error.
    Fails(Error),
    /// Not yet.
    Waits,
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
    /// The entry that the concern's members must have, once a majority has what was done.
    index: Option<u64>,
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
            unsettled: match says_nothing {
                true => Unsettled::default(),
                false => service.catalog.take_unsettled(),
            },
            concern: concern.without_mode(),
            mode: concern.mode.map(Into::into),
            until: write_concern::deadline(context),
            is_kept: !context.inside && (result.is_ok() || context.committed),
            index: None,
        })
    }

    /// The concern that was asked for.
    pub(crate) fn concern(&self) -> WriteConcern<'_> {
        WriteConcern { mode: self.mode.as_deref(), ..self.concern }
    }

    /// Whether it may be answered by now.
    pub(crate) fn look(&mut self, state: &ServerState, operation: &OperationSlot) -> Acknowledged {
        let index = match self.index {
            Some(index) => index,
            None => match self.look_for_majority(state, operation) {
                Some(so_far) => return so_far,
                None => *self.index.insert(state.catalog.engine().committed_index()),
            },
        };
        let may_wait = || operation.check_wait(|| state.os.clock.monotonic());
        match members_have(state, &self.concern(), index) {
            Ok(true) => Acknowledged::Answers(Ok(())),
            Err(error) => Acknowledged::Answers(Err(error)),
            Ok(false) => match may_wait() {
                Ok(()) => self.wait_or_time_out(state),
                Err(error) => Acknowledged::Answers(Err(error)),
            },
        }
    }

    /// The part of [`Self::look`] up to where a majority has what was done. `None` where members are asked for
    /// beyond that.
    fn look_for_majority(
        &self,
        state: &ServerState,
        operation: &OperationSlot,
    ) -> Option<Acknowledged> {
        match state.catalog.is_settled(&self.unsettled) {
            Ok(true) => {}
            Ok(false) => {
                return Some(match operation.check_wait(|| state.os.clock.monotonic()) {
                    Ok(()) => self.wait_or_time_out(state),
                    Err(error) => Acknowledged::Fails(error),
                });
            }
            Err(error) => return Some(Acknowledged::Fails(error.into())),
        }
        let concern = self.concern();
        if self.is_kept && concern.journal == Some(true) && !concern.is_majority {
            // A majority has it on its disks already; this member's own is asked for by `j`.
            if let Err(error) = state.catalog.sync() {
                return Some(Acknowledged::Answers(Err(error)));
            }
        }
        let asks_for_more = concern.nodes > 1 || concern.mode.is_some();
        if !self.is_kept || !asks_for_more || fails(&concern, &state.replication) {
            return Some(Acknowledged::Answers(Ok(())));
        }
        None
    }

    fn wait_or_time_out(&self, state: &ServerState) -> Acknowledged {
        let now = state.os.clock.monotonic();
        if self.until.is_some_and(|until| now >= until) {
            return Acknowledged::Answers(Err(write_concern::timed_out()));
        }
        Acknowledged::Waits
    }

    /// Has `call` made once a look may find more, at the latest when what this gives is dropped no earlier. Who
    /// relies on it looks once more after this.
    pub(crate) fn watch(&self, state: &ServerState, call: &Call) -> Option<DecisionWatch> {
        match self.index {
            None => state.catalog.when_settled(&self.unsettled, call),
            Some(_) => None,
        }
    }

    /// When to look again where no call comes.
    pub(crate) fn next_look(&self, state: &ServerState, operation: &OperationSlot) -> Duration {
        let time = if self.index.is_some() { LOOK } else { LOOK_WITHOUT_CALL };
        let latest = state.os.clock.monotonic().saturating_add(time);
        [self.until, operation.deadline()].into_iter().flatten().fold(latest, Duration::min)
    }

    /// Waits on this thread until it may be answered; what [`Self::look`] says then, which is never that it waits.
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
            let watch = self.watch(state, &call);
            match self.look(state, operation) {
                Acknowledged::Waits => {}
                answer => return answer,
            }
            let mut is_woken = woken.0.lock();
            if !*is_woken {
                woken.1.wait_for(&mut is_woken, LOOK);
            }
            *is_woken = false;
            drop(is_woken);
            drop(watch);
        }
    }
}
