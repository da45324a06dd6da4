//! The copy that this member makes of its primary's data.
//!
//! Always true: while it makes one it acknowledges nothing; either the copy becomes complete and the server starts again
//! with it, or the member goes on as it is. A copy that is complete is touched by nobody until that start.

use crate::state::ServerState;
use membership::copy::{Between, CopyError, Progress, Remote, Watch, receive};
use membership::{HostAndPort, Membership, View};
use os::sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Between two attempts to make a copy, at first and at most.
const PAUSE: Duration = Duration::from_millis(500);
const MOST_PAUSE: Duration = Duration::from_secs(15);
/// How often the log says how far a copy is.
const TELLS: Duration = Duration::from_secs(30);
/// How long a copy is held back by its rate, until that is looked at again.
const LOOKS_AT_RATE: Duration = Duration::from_millis(200);

/// What came of an attempt to make a copy.
enum CopyOutcome {
    /// This member needs none, or does not know of whom.
    NotNeeded,
    /// The server ends, or starts again with the copy.
    ServerEnds,
}

/// Looks at one copy that this member makes, and holds it to its rate.
struct Looks<'a> {
    state: &'a ServerState,
    told: Mutex<Duration>,
    /// When the last part had come, and what had come over the wire by then.
    paced: Mutex<(Duration, u64)>,
}

impl Looks<'_> {
    /// Waits where the copy is ahead of its rate: each part for itself, so that a new rate holds from the next one on.
    /// Says whether it was.
    fn pace(&self, received: u64) -> bool {
        let mut paced = self.paced.lock();
        let (since, before) = *paced;
        let piece = received.saturating_sub(before);
        let mut is_ahead = false;
        loop {
            let now = self.state.os.clock.monotonic();
            let left = self.state.copies.rate.pause_after(piece, now.saturating_sub(since));
            if left.is_zero() || self.has_ended() {
                *paced = (now, received);
                return is_ahead;
            }
            is_ahead = true;
            self.state.wait(left.min(LOOKS_AT_RATE));
        }
    }
}

impl Watch for Looks<'_> {
    fn has_ended(&self) -> bool {
        self.state.is_stopping()
    }

    fn at(&self, progress: Progress) -> bool {
        *self.state.copies.incoming.lock() = Some(progress);
        let now = self.state.os.clock.monotonic();
        let mut told = self.told.lock();
        if now.saturating_sub(*told) >= TELLS {
            *told = now;
            let Progress { done, total, received } = progress;
            tracing::info!(target: "INITSYNC", id = 9_016_764, done, total, received, "Copying another member's data");
        }
        drop(told);
        self.pace(progress.received)
    }
}

impl ServerState {
    /// Begins to make a copy of the primary's data where this member needs one. Does not wait.
    pub(crate) fn copy_where_needed(self: &Arc<Self>, view: &View) {
        if view.needs_copy.is_none() || self.copies.makes_one.swap(true, Ordering::AcqRel) {
            return;
        }
        let state = Arc::clone(self);
        let job = Box::new(move || {
            // Checksums, mostly: whoever has clients on the same machine comes first.
            os::work_in_background();
            let outcome = state.make_copies();
            *state.copies.incoming.lock() = None;
            if matches!(outcome, CopyOutcome::ServerEnds) {
                // The view says until the server has ended that a copy is needed: another one would be made into the place
                // of the one that is complete.
                return;
            }
            state.copies.makes_one.store(false, Ordering::Release);
            // What was told between the last look and now was taken for seen to.
            if let Some(membership) = state.replication.membership()
                && !state.is_stopping()
            {
                state.copy_where_needed(&membership.view());
            }
        });
        if let Err(error) = self.os.spawner.spawn("copy", job) {
            self.copies.makes_one.store(false, Ordering::Release);
            tracing::error!(target: "INITSYNC", %error, "No thread to copy another member's data");
        }
    }

    /// Until there is a copy, or none is needed any more.
    fn make_copies(&self) -> CopyOutcome {
        let mut pause = PAUSE;
        // A member that has just been started may hear of its need before the server knows of its membership.
        while self.replication.membership().is_none() && !self.is_stopping() {
            self.wait(PAUSE);
        }
        let Some(membership) = self.replication.membership() else {
            return CopyOutcome::ServerEnds;
        };
        while !self.is_stopping() {
            match self.make_copy(membership) {
                Ok(CopyOutcome::ServerEnds) => break,
                // It may need one again by the time it is looked at: the view says so, for a while.
                Ok(CopyOutcome::NotNeeded) if membership.view().needs_copy.is_none() => {
                    return CopyOutcome::NotNeeded;
                }
                // Another one leads, which says what it has with its next heartbeat.
                Ok(CopyOutcome::NotNeeded) => self.wait(PAUSE),
                Err(why) => {
                    tracing::warn!(target: "INITSYNC", id = 9_016_765, why, pauseMs = pause.as_millis() as u64,
                        "The copy of another member's data was interrupted: it goes on after a pause");
                    // Another member may lead by now, or this one may need no copy any more.
                    membership.end_copy();
                    self.wait(pause);
                    pause = (pause * 2).min(MOST_PAUSE);
                    membership.wait_for(MOST_PAUSE, |view| view.needs_copy.is_some());
                }
            }
        }
        CopyOutcome::ServerEnds
    }

    /// Copies the primary's data, where that is needed, and starts the server again with it. Does not return
    /// while a start with a complete copy is pending.
    fn make_copy(&self, membership: &Membership) -> Result<CopyOutcome, String> {
        let Some(leader) = membership.begin_copy() else { return Ok(CopyOutcome::NotNeeded) };
        let document = membership.document();
        let host = document.host_of(leader);
        let host = host.ok_or_else(|| format!("the configuration has no host of {leader}"))?;
        let to: HostAndPort =
            host.parse().map_err(|error: links::NoHostAndPort| error.to_string())?;
        tracing::info!(target: "INITSYNC", id = 9_016_763, source = host,
            "This member lacks what its primary's log has no more: it copies the primary's data");
        let now = self.os.clock.monotonic();
        let looks = Looks { state: self, told: Mutex::new(now), paced: Mutex::new((now, 0)) };
        let ended = || self.is_stopping();
        let between =
            Between { source: leader, receiver: membership.own(), founder: membership.founder() };
        let mut source = Remote::new(&self.dialer, to, between, &ended);
        let options = self.catalog.engine().options();
        let began = self.os.clock.monotonic();
        match receive(&self.os, options, membership.own(), &mut source, &looks) {
            Ok(()) => {}
            Err(CopyError::Ended) => return Ok(CopyOutcome::ServerEnds),
            Err(error) => return Err(error.to_string()),
        }
        let Progress { done, received, .. } = self.copies.progress().unwrap_or_default();
        let took = self.os.clock.monotonic().saturating_sub(began);
        tracing::info!(target: "INITSYNC", id = 9_016_766, done, received, durationMillis = took.as_millis() as u64,
            "The copy of the primary's data is complete: the server starts again with it");
        // From here on this member must not go on as it is: the copy lies ready for whichever start comes next, and
        // has nothing of what would be acknowledged meanwhile.
        // It begins as soon as it is asked for: nobody waits for an answer.
        while let Err(why) = self.host.start_again().map(drop) {
            tracing::error!(target: "INITSYNC", id = 9_016_772, why, "The server does not start again: it is tried on");
            self.wait(MOST_PAUSE);
            if self.is_stopping() {
                break;
            }
        }
        Ok(CopyOutcome::ServerEnds)
    }
}
