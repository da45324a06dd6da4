//! Statements on a member of a set: they read and commit ahead of what others see, and who answers for them
//! waits once, for all of a request's.
//!
//! From → to: a statement begins on the newest complete state; its commit returns when it is complete
//! ([`Txn::commit`]); what it wrote, or read without writing, is remembered for its thread; the answer waits
//! until others see that ([`Catalog::settle`]). An engine that shows every complete commit has none of it.
//!
//! Always true:
//! 1. What a statement has read, and an error tells of, is remembered also where it fails or is dropped.
//! 2. The commits of statements are in the log before their collection's metadata lock opens: who locks it
//!    exclusively, and reads documents in a snapshot, waits until they are visible ([`Catalog::lock_metadata`]), and
//!    finds all that was written.
//! 3. Counts and multikey marks in memory are those of what is complete: the next commit is written over
//!    them. What is overwritten goes from them with [`crate::Follower::again`], which reads both anew.
//!
//! [`Txn::commit`]: crate::Txn::commit

use crate::catalog::Catalog;
use crate::failure::from_engine;
use engine::{DecisionWatch, Seen, SettleOutcome, Snapshot, Unsettled};
use errors::{Error, Result};
use os::Call;
use std::sync::Arc;
use std::time::Duration;

/// Why a thread's statements are not settled.
#[derive(Clone, Debug)]
pub enum NotSettled {
    /// Another member's writes have taken the place of something that they wrote or read: 11602
    /// `InterruptedDueToReplStateChange`. It is forgotten.
    Overwritten(Error),
    /// The operation may not go on waiting, for the reason that is told (its time is over, it was killed, the
    /// server stops); what it did may still become visible. It goes on being remembered.
    Undecided(Error),
    /// The storage engine has stopped.
    Stopped(Error),
}

impl From<NotSettled> for Error {
    fn from(not: NotSettled) -> Self {
        match not {
            NotSettled::Overwritten(error)
            | NotSettled::Undecided(error)
            | NotSettled::Stopped(error) => error,
        }
    }
}

impl NotSettled {
    fn of(error: engine::Error) -> Self {
        match error {
            engine::Error::Overwritten => Self::Overwritten(from_engine(error)),
            engine::Error::Undecided | engine::Error::NotInTime => {
                Self::Undecided(from_engine(error))
            }
            _ => Self::Stopped(from_engine(error)),
        }
    }
}

/// A request begins on this thread: what the one before it has written and read, and has not waited for, is
/// not its own.
pub fn forget_statements() {
    engine::forget_unsettled();
}

impl Catalog {
    /// Returns once others see all that this thread's statements have written and read since it was last
    /// settled, or forgotten ([`forget_statements`]). Before that nothing of it may be told, an error neither.
    ///
    /// # Errors
    /// Those of [`NotSettled`], as [`Error`].
    pub fn settle(&self) -> Result<()> {
        self.settle_until(None)?;
        Ok(())
    }

    /// As [`Catalog::settle`], until `deadline` of the monotonic clock at most. Where the time is over first,
    /// what is waited for goes on being remembered.
    ///
    /// # Errors
    /// See [`NotSettled`].
    pub fn settle_until(&self, deadline: Option<Duration>) -> Result<SettleOutcome, NotSettled> {
        if !self.holds_back() {
            return Ok(SettleOutcome::Settled);
        }
        self.engine().settle(deadline).map_err(NotSettled::of)
    }

    /// Takes from this thread what its statements have written and read, and was not waited for: who answers for them
    /// does so on no thread, once [`Catalog::is_settled`].
    pub fn take_unsettled(&self) -> Unsettled {
        self.engine().take_unsettled()
    }

    /// Whether others see all of this by now.
    ///
    /// # Errors
    /// See [`NotSettled`].
    pub fn is_settled(&self, unsettled: &Unsettled) -> Result<bool, NotSettled> {
        self.engine().is_settled(unsettled).map_err(NotSettled::of)
    }

    /// Has `call` made, which must not wait, once something of this is decided that is not yet; `None` where all of
    /// it is.
    pub fn when_settled(&self, unsettled: &Unsettled, call: &Call) -> Option<DecisionWatch> {
        self.engine().watch_unsettled(unsettled, call)
    }

    /// The state that a statement plans on, which writes afterwards: the newest complete one. What is read of
    /// it is remembered as read.
    pub fn statement_snapshot(&self) -> Snapshot {
        if !self.holds_back() {
            return self.snapshot();
        }
        let (snapshot, seen) = self.engine().newest_snapshot();
        self.engine().remember(seen);
        snapshot
    }

    /// Returns once others see all that is complete now.
    ///
    /// # Errors
    /// See [`NotSettled`].
    pub fn wait_complete_visible(&self) -> Result<()> {
        self.engine().wait_complete_visible().map_err(from_engine)
    }

    /// What this thread answers waits until others see all that is complete now: who is asked again whether something
    /// was done, and finds that it was.
    pub fn remember_complete(&self) {
        drop(self.statement_snapshot());
    }
}

/// A statement that reads ahead of what others see. Where it ends otherwise than by a commit, all that it can
/// have read is remembered.
pub(crate) struct Ahead {
    catalog: Arc<Catalog>,
    begun: Seen,
    is_remembered: bool,
}

impl Ahead {
    pub(crate) fn new(catalog: &Arc<Catalog>, begun: Seen) -> Self {
        Self { catalog: Arc::clone(catalog), begun, is_remembered: false }
    }

    /// Its commit is complete: everything it has read comes before that. One that has written nothing is no
    /// newer than its snapshot, and may have read more.
    pub(crate) fn committed(&mut self, seen: Seen) {
        if seen != self.begun {
            self.is_remembered = true;
            self.catalog.engine().remember(seen);
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if !self.is_remembered {
            let engine = self.catalog.engine();
            engine.remember(engine.newest_since(self.begun));
        }
    }
}
