//! Those who wait for a sync of the log without a thread, and when the next sync for them is due. How they meet those who
//! sync: `sync.rs`.
//!
//! Always true: who is in the list is called once, or gives its place up.

use crate::Lsn;
use os::Call;
use os::sync::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A group gathers no longer.
pub(crate) const LONGEST_GATHERING: Duration = Duration::from_millis(1);

/// When the waiting are to be synced for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupDue {
    /// Nobody waits.
    Never,
    /// The group gathers until then, or until the server is woken.
    At(Duration),
    /// Those who are to come have come.
    Now,
}

/// A place among those who wait for a sync, given up when this is dropped.
#[must_use]
pub struct SyncWatch {
    pub(crate) group: Arc<Group>,
    pub(crate) key: (Lsn, u64),
}

/// Who waits for syncs of one log.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) state: Mutex<State>,
    /// The sync that was under way has ended.
    pub(crate) ended: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    /// A thread writes and syncs for the others.
    pub(crate) is_syncing: bool,
    /// Threads that wait for its end.
    pub(crate) blocked: usize,
    /// Who is to be called, by the position that has to be on disk.
    pub(crate) waiting: BTreeMap<(Lsn, u64), Call>,
    pub(crate) next: u64,
    /// Wakes who syncs for those; nobody may wait where there is none.
    pub(crate) server: Option<Call>,
    pub(crate) gathering: Option<Gathering>,
}

/// What the next sync for those who wait waits for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gathering {
    until: Duration,
    pub(crate) writers: usize,
}

impl Gathering {
    /// Behind a sync that took so long, for so many who were writing when it ended.
    pub(crate) fn behind(now: Duration, took: Duration, writers: usize) -> Option<Self> {
        let time = (took / 2).min(LONGEST_GATHERING);
        (writers > 1).then(|| Self { until: now.saturating_add(time), writers })
    }
}

impl State {
    pub(crate) fn due(&self, now: Duration) -> GroupDue {
        match self.gathering {
            Some(next) if self.waiting.len() < next.writers && now < next.until => {
                GroupDue::At(next.until)
            }
            _ if self.waiting.is_empty() => GroupDue::Never,
            _ => GroupDue::Now,
        }
    }

    /// Whether who comes now would write alone.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_syncing && self.waiting.is_empty() && self.gathering.is_none()
    }

    /// Takes those out who wait for what is before a position.
    pub(crate) fn take_before(&mut self, position: Lsn) -> Vec<Call> {
        let later = self.waiting.split_off(&(position.saturating_add(1), 0));
        let covered = std::mem::replace(&mut self.waiting, later);
        covered.into_values().collect()
    }
}

impl Drop for SyncWatch {
    fn drop(&mut self) {
        let mut state = self.group.state.lock();
        let call = state.waiting.remove(&self.key);
        drop(state);
        drop(call);
    }
}

impl std::fmt::Debug for SyncWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SyncWatch({})", self.key.0)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn no_call() -> Call {
        Arc::new(|| ())
    }

    #[test]
    fn group_is_due_when_those_have_come_who_were_writing_or_when_its_time_is_over() {
        let call = no_call();
        let mut state = State::default();
        assert_eq!(state.due(MILLISECOND), GroupDue::Never);
        state.waiting.insert((8, 0), Arc::clone(&call));
        assert_eq!(state.due(MILLISECOND), GroupDue::Now, "nobody else was writing");
        state.gathering = Gathering::behind(MILLISECOND, MILLISECOND, 2);
        let until = MILLISECOND * 3 / 2;
        assert_eq!(state.due(MILLISECOND), GroupDue::At(until));
        assert_eq!(state.due(until), GroupDue::Now, "the other one has not come in time");
        state.waiting.insert((8, 1), call);
        assert_eq!(state.due(MILLISECOND), GroupDue::Now, "both have come");
        assert_eq!(
            Gathering::behind(MILLISECOND, MILLISECOND, 1),
            None,
            "one alone waits for nobody"
        );
        let slow = Gathering::behind(MILLISECOND, MILLISECOND * 100, 2).unwrap();
        assert_eq!(slow.until, MILLISECOND + LONGEST_GATHERING);
    }

    #[test]
    fn who_is_called_is_covered() {
        let call = no_call();
        let mut state = State::default();
        for (number, position) in [8, 16, 16, 24].into_iter().enumerate() {
            state.waiting.insert((position, number as u64), Arc::clone(&call));
        }
        assert_eq!(state.take_before(7).len(), 0);
        assert_eq!(state.take_before(16).len(), 3);
        assert_eq!(state.waiting.len(), 1);
        assert_eq!(state.take_before(Lsn::MAX).len(), 1);
    }
}
