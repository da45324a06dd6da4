//! How much the engine is used: by the maintenance thread's rounds, and since the last of them.

use super::load::{Activity, Rounds, Usage};
use super::{Scheduler, TUNING, policy};
use std::sync::atomic::{AtomicU64, Ordering};

/// What the last round saw.
#[derive(Default)]
pub(super) struct ActivityMeter {
    commits_seen: AtomicU64,
    snapshots_seen: AtomicU64,
    /// Rounds in which nobody wrote and hardly anybody read.
    idle: AtomicU64,
    /// Rounds in which hardly anybody wrote.
    unwritten: AtomicU64,
}

impl Scheduler {
    /// How much the engine is used.
    pub(super) fn activity(&self) -> Activity {
        let meter = &self.activity;
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Activity {
            rounds: Rounds { idle: load(&meter.idle), unwritten: load(&meter.unwritten) },
            since: Usage {
                commits: self.counters.commits.get().saturating_sub(load(&meter.commits_seen)),
                snapshots: self.snapshots.taken().saturating_sub(load(&meter.snapshots_seen)),
            },
        }
    }

    /// Nobody has used the engine for some rounds: the time is the cleaner's.
    pub(crate) fn is_idle(&self) -> bool {
        policy::is_idle(&self.activity(), TUNING)
    }

    /// A round of the maintenance thread: seals what nobody writes to any more. Says what was done
    /// since the round before.
    pub(crate) fn end_round(&self) -> Usage {
        let (meter, activity) = (&self.activity, self.activity());
        let seen = meter.commits_seen.load(Ordering::Relaxed) + activity.since.commits;
        debug_assert!(seen <= self.counters.commits.get(), "what was seen was counted");
        meter.commits_seen.store(seen, Ordering::Relaxed);
        meter.snapshots_seen.store(self.snapshots.taken(), Ordering::Relaxed);
        let rounds = policy::after_round(activity.rounds, activity.since, TUNING);
        meter.idle.store(rounds.idle, Ordering::Relaxed);
        meter.unwritten.store(rounds.unwritten, Ordering::Relaxed);
        let is_cleaning = policy::is_cleaning(&self.cleaner_load(0));
        if let Some(least) = policy::seals_unwritten(rounds, is_cleaning, TUNING) {
            for dictionary in self.directory.all() {
                if dictionary.tree.debt().active_bytes >= least {
                    self.seal(&dictionary);
                }
            }
        }
        activity.since
    }
}
