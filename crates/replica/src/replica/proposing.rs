//! When a leader makes an entry of what is open; what it waits for before that says [`crate::policy`].

use super::Replica;
use crate::error::Result;
use crate::journal::Journal;
use crate::links::Links;
use crate::policy::{self, Closing, MAX_ENTRY_BYTES, OpenLoad};
use crate::state_file::Promises;
use std::time::Duration;

/// Entries that one step proposes at most, so that frames are looked at between.
const ENTRIES_A_STEP: usize = 16;

impl<J: Journal, L: Links, P: Promises> Replica<J, L, P> {
    /// For how long at most there is nothing to be done about open records, unless the journal wakes this member.
    pub fn looks_again(&self) -> Duration {
        self.looks_again.0
    }

    /// What is open, and since when.
    fn open_load(&mut self, now: Duration) -> OpenLoad {
        let bytes = self.journal.open_bytes();
        let is_unawaited = bytes > 0 && !self.journal.is_open_awaited();
        let since = is_unawaited.then(|| *self.unawaited_since.get_or_insert(now));
        self.unawaited_since = since;
        let undecided = self.made.0.saturating_sub(self.applied.index);
        let waiting = self.journal.waiting();
        let (decided, writers) = if undecided > 0 {
            (now, 0)
        } else {
            let journal = &mut self.journal;
            *self
                .decided
                .get_or_insert_with(|| (now, journal.take_released().saturating_add(waiting)))
        };
        OpenLoad {
            bytes,
            unawaited: since.map(|since| now.saturating_sub(since)),
            waiting,
            writers,
            undecided,
            since_made: now.saturating_sub(self.made.1),
            since_decided: now.saturating_sub(decided),
            took: decided.saturating_sub(self.made.1),
        }
    }

    pub(super) fn propose_what_is_open(&mut self, now: Duration) -> Result<bool> {
        let mut done = false;
        for _ in 0..ENTRIES_A_STEP {
            if !self.writable {
                (self.unawaited_since, self.regathers) = (None, false);
                self.look_again(Duration::MAX, 0);
                break;
            }
            let open = self.open_load(now);
            let closing = policy::closing(&open);
            self.regathers = matches!(closing, Closing::Regather(..));
            if let Closing::Later(after, waiting) | Closing::Regather(after, waiting) = closing {
                // Who came before this may not have woken anybody.
                let asks_sooner = self.look_again(after, waiting);
                done |= asks_sooner && self.journal.open_bytes() > 0;
                break;
            }
            self.unawaited_since = None;
            let Some(records) = self.journal.describe_open(MAX_ENTRY_BYTES) else { break };
            if self.node.propose(records).is_err() {
                // It takes nothing now: too much is under way, or it hands over.
                self.journal.reset_description();
                self.look_again(Duration::MAX, 0);
                break;
            }
            (self.made.1, self.decided) = (now, None);
            self.work()?;
            done = true;
        }
        Ok(done)
    }

    /// What is open is looked at again after so long, or when so many wait for it. Says whether fewer must wait than before.
    fn look_again(&mut self, after: Duration, waiting: u64) -> bool {
        let (_, before) = std::mem::replace(&mut self.looks_again, (after, waiting));
        if waiting != before {
            self.journal.wake_from(waiting);
        }
        waiting < before
    }
}
