//! A commit that was written and not waited for.
//!
//! Always true: it is in the log and in the trees. Whether readers see it is asked here; where the engine
//! shows every complete commit they do already. Only who waits counts as waiting, not who holds this.

use crate::handle::EngineHandle;
use crate::snapshots::CommitState;
use crate::{Error, Result, Timestamp};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// How often who waits looks whether its operation goes on.
const LOOK: Duration = Duration::from_millis(25);

thread_local! {
    /// How long this thread waits for each commit to be visible, where that is limited.
    static LIMIT: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Limits how long this thread waits for a commit to be visible, each time it does; `None` ends that.
pub fn limit_waits(limit: Option<Duration>) {
    LIMIT.set(limit);
}

/// A state that a transaction has read or made: the newest commit in it. Where that is overwritten, another
/// one has its number, which is not what was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    pub(crate) timestamp: u64,
    pub(crate) era: u64,
}

impl Seen {
    /// The newest commit in it.
    pub fn timestamp(self) -> Timestamp {
        Timestamp(self.timestamp)
    }
}

/// A commit on its way to be visible. Dropping it changes nothing for the commit.
#[must_use = "whether readers see the commit is in here"]
pub struct Submitted {
    handle: Arc<EngineHandle>,
    seen: Seen,
    time: u64,
    end: u64,
}

impl Submitted {
    /// The commit `timestamp` of an era, complete or to come, whose record ends at `end`.
    pub(crate) fn of(
        handle: &Arc<EngineHandle>,
        (timestamp, era): (u64, u64),
        time: u64,
        end: u64,
    ) -> Self {
        Self { handle: Arc::clone(handle), seen: Seen { timestamp, era }, time, end }
    }

    /// Where it stands among all commits, unless it is overwritten.
    pub fn timestamp(&self) -> Timestamp {
        self.seen.timestamp()
    }

    /// The last of its cluster times; 0 where no history is kept, or nothing was written.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// What became of it so far.
    pub fn state(&self) -> CommitState {
        self.handle.snapshots.state(self.seen.timestamp, self.seen.era)
    }

    /// Returns once readers see it.
    ///
    /// # Errors
    /// [`Error::Overwritten`]: nobody ever will. [`Error::Undecided`]: the operation of this thread may not
    /// go on waiting; the commit may still become visible. [`Error::NotInTime`]: so, and what is over is the
    /// time of [`limit_waits`]. [`Error::Stopped`]: the engine has stopped, the next start finds out.
    pub fn wait(&self) -> Result<()> {
        self.wait_until(None).map(drop)
    }

    /// As [`Submitted::wait`], until `deadline` of the monotonic clock at most; says whether readers see it.
    ///
    /// # Errors
    /// As [`Submitted::wait`].
    pub fn wait_until(&self, deadline: Option<Duration>) -> Result<bool> {
        let Seen { timestamp, era } = self.seen;
        let Some(waiter) = self.handle.snapshots.until_visible(timestamp, era) else {
            return Ok(true);
        };
        let clock = &self.handle.os.clock;
        let limit = LIMIT.get().map(|limit| clock.monotonic().saturating_add(limit));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_sub(clock.monotonic()));
            match waiter.wait(left.map_or(LOOK, |left| left.min(LOOK))) {
                CommitState::Visible => return Ok(true),
                CommitState::Overwritten => return Err(Error::Overwritten),
                CommitState::Pending => {
                    self.handle.health.check_running()?;
                    self.handle.may_wait.check().map_err(|_| Error::Undecided)?;
                    if left.is_some_and(|left| left.is_zero()) {
                        return Ok(false);
                    }
                    if limit.is_some_and(|limit| clock.monotonic() >= limit) {
                        return Err(Error::NotInTime);
                    }
                }
            }
        }
    }

    /// Returns once its record is on this member's disk.
    pub fn sync(&self) -> Result<()> {
        self.handle.log.sync_to(self.end)
    }
}

impl std::fmt::Debug for Submitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Submitted({} {:?})", self.seen.timestamp, self.state())
    }
}
