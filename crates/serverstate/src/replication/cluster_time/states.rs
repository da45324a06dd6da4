//! The states of times that are over.
//!
//! Always true: the state of a time is that of the newest commit whose times are not later. The clock
//! moves from one visible commit to another that may be several behind it, and the times of those in
//! between were told to nobody by the clock, but the oplog and change streams name them: where such
//! commits are, the history says which of them belong to a time.

use super::{ClusterClock, Inner, Tick, pack, shown};
use bson::Timestamp;
use catalog::from_engine;
use engine::{History, Snapshot, Timestamp as CommitTime};
use errors::{Code, Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// How long the disk is waited for before it is asked whether the operation may go on.
const LOOK: Duration = Duration::from_millis(10);

/// What the clock knows of a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// Its state is that of this commit.
    Commit(u64),
    /// It is later than this time, which shows this commit; others may have come before it.
    Behind { time: u64, commit: u64 },
}

impl Inner {
    /// What is known of a time; `None` where it is before all that is.
    fn known(&self, asked: u64) -> Option<Known> {
        let behind = self.ticks.partition_point(|tick| tick.time <= asked);
        let tick = behind.checked_sub(1).and_then(|at| self.ticks.get(at));
        let next = self.ticks.get(behind);
        match tick {
            // Nothing was committed between the two.
            Some(Tick { time, commit, .. })
                if *time == asked || next.is_some_and(|next| next.commit == *commit) =>
            {
                Some(Known::Commit(*commit))
            }
            Some(Tick { time, commit, .. }) => Some(Known::Behind { time: *time, commit: *commit }),
            None => {
                let pin = self.pins.iter().rev().find(|pin| pin.from <= asked)?;
                let commit = pin.snapshot.timestamp().0;
                Some(Known::Behind { time: pin.from, commit })
            }
        }
    }
}

impl ClusterClock {
    /// The state of a time: of all commits up to it, and of no other. Fails with `SnapshotTooOld` where it is
    /// not kept. Reads the log where the clock has not moved to that time.
    pub fn state_at(&self, time: Timestamp) -> Result<Snapshot> {
        let asked = pack(time);
        self.check_reached("atClusterTime", time)?;
        let known = {
            let mut inner = self.inner.lock();
            let now = self.os.clock.monotonic();
            if let Some(pin) = inner.pins.iter_mut().find(|pin| pin.from == asked) {
                pin.last_use = now;
                return Ok(pin.snapshot.clone());
            }
            if asked == self.tick(&mut inner) {
                return Ok(self.pin(&mut inner));
            }
            inner.known(asked).ok_or_else(|| too_old(time))?
        };
        let commit = match known {
            Known::Commit(commit) => commit,
            Known::Behind { time: from, commit } => match &self.history {
                Some(history) => self.newest_until(history, from, time)?.unwrap_or(commit),
                None => commit,
            },
        };
        let mut inner = self.inner.lock();
        let now = self.os.clock.monotonic();
        let mut pins = inner.pins.iter_mut();
        if let Some(pin) = pins.find(|pin| pin.snapshot.timestamp().0 == commit) {
            pin.last_use = now;
            return Ok(pin.snapshot.clone());
        }
        self.catalog.engine().snapshot_at(CommitTime(commit)).ok_or_else(|| too_old(time))
    }

    /// The newest commit later than `from` that is not later than `time`, both of which the visible state has
    /// reached. An error where the log no longer tells.
    fn newest_until(
        &self,
        history: &Arc<History>,
        from: u64,
        time: Timestamp,
    ) -> Result<Option<u64>> {
        let asked = pack(time);
        let lost_or = |error| match error {
            engine::Error::HistoryLost => too_old(time),
            other => from_engine(other),
        };
        // The history is read as far as it is on disk; what is visible may be yet to come there.
        let reach = asked.min(history.newest().1);
        let mut newest = None;
        let mut tail = history.read_after(from).map_err(lost_or)?;
        loop {
            let durable = history.durable_time();
            loop {
                match tail.next().map_err(lost_or)? {
                    Some(commit) if commit.last_time() > asked => return Ok(newest),
                    Some(commit) => newest = Some(commit.timestamp.0),
                    None => break,
                }
                limits::check()?;
            }
            if durable >= reach {
                return Ok(newest);
            }
            limits::check_wait()?;
            self.catalog.sync()?;
            history.wait_past(durable, self.os.clock.monotonic() + LOOK);
        }
    }
}

fn too_old(time: Timestamp) -> Error {
    Error::new(
        Code::SNAPSHOT_TOO_OLD,
        format!("Read timestamp {} is older than the oldest available timestamp.", shown(time)),
    )
}
