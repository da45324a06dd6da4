//! Those who wait until certain members have an entry, or so many: a leader alone knows who has what.
//!
//! Always true:
//! 1. With each view of the member each group of those who wait for the same members is asked once how far these are,
//!    and who waits for no more than that is called. However many wait, nobody else is.
//! 2. Who is in the list before it looks at the view itself misses no view that the look does not show.
//! 3. While nobody waits, nobody is told of views.

use os::Call;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which members are to have an entry.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Holders {
    /// So many of those that bear data.
    Count(i64),
    /// So many of those that vote, bear data and keep indexes.
    IndexVoters(i64),
    /// Those of a mode of the configuration.
    Mode(Box<str>),
}

/// See above.
#[derive(Default)]
pub(crate) struct ConcernWaits {
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    next: u64,
    /// By who is waited for: calls by the entry, and in the order in which they came.
    groups: BTreeMap<Holders, BTreeMap<(u64, u64), Call>>,
    /// What has the list looked at with the next view.
    watch: Option<os::Watch>,
}

/// A place in the list, given up when this is dropped.
#[must_use]
pub struct ConcernWatch {
    waits: Arc<ConcernWaits>,
    holders: Holders,
    key: (u64, u64),
}

impl Drop for ConcernWatch {
    fn drop(&mut self) {
        let mut list = self.waits.list.lock();
        let Some(group) = list.groups.get_mut(&self.holders) else { return };
        let call = group.remove(&self.key);
        if group.is_empty() {
            list.groups.remove(&self.holders);
        }
        drop(list);
        drop(call);
    }
}

impl ConcernWaits {
    pub(crate) fn insert(
        self: &Arc<Self>,
        holders: Holders,
        index: u64,
        call: Call,
    ) -> ConcernWatch {
        let mut list = self.list.lock();
        list.next += 1;
        let key = (index, list.next);
        list.groups.entry(holders.clone()).or_default().insert(key, call);
        drop(list);
        ConcernWatch { waits: Arc::clone(self), holders, key }
    }

    /// Has `watch` say what has the list looked at with the next view, unless that is said already or nobody waits.
    pub(crate) fn look_again_by(&self, watch: impl FnOnce() -> Option<os::Watch>) {
        let mut list = self.list.lock();
        if list.watch.is_none() && !list.groups.is_empty() {
            list.watch = watch();
        }
    }

    /// The view that was to be looked at has come.
    pub(crate) fn is_looked_at(&self) {
        let made = self.list.lock().watch.take();
        drop(made);
    }

    /// Takes out the calls of all whose members have what they wait for; `reached` says how far members are, and
    /// nothing where this member does not know, so that all are to look for themselves.
    pub(crate) fn take_reached(&self, reached: impl Fn(&Holders) -> Option<u64>) -> Vec<Call> {
        let mut list = self.list.lock();
        let mut calls = Vec::new();
        list.groups.retain(|holders, group| {
            let up_to = reached(holders).unwrap_or(u64::MAX);
            let later = group.split_off(&(up_to.saturating_add(1), 0));
            calls.extend(std::mem::replace(group, later).into_values());
            !group.is_empty()
        });
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_whose_members_have_the_entry_are_called_and_who_has_left_is_not() {
        let waits = Arc::new(ConcernWaits::default());
        let made = Arc::new(Mutex::new(Vec::new()));
        let wait = |count: i64, index: u64| {
            let (made, holders) = (Arc::clone(&made), Holders::Count(count));
            waits.insert(holders, index, Arc::new(move || made.lock().push((count, index))))
        };
        let look = |two: u64, three: u64| {
            let reached = |holders: &Holders| match holders {
                Holders::Count(2) => Some(two),
                Holders::Count(3) => Some(three),
                _ => None,
            };
            waits.take_reached(reached).into_iter().for_each(|call| call());
            std::mem::take(&mut *made.lock())
        };
        let watches = [(2, 5), (2, 7), (3, 5), (3, 6), (2, 5)].map(|(n, index)| wait(n, index));
        assert_eq!(look(4, 4), []);
        assert_eq!(look(5, 4), [(2, 5), (2, 5)]);
        let [_, two_seven, three_five, ..] = watches;
        drop(three_five);
        assert_eq!(look(9, 9), [(2, 7), (3, 6)], "who has left is not called");
        drop(two_seven);
        assert!(waits.list.lock().groups.is_empty());
        let _unknown = wait(9, 1);
        assert_eq!(look(0, 0), [(9, 1)], "who leads no more lets all look for themselves");
    }
}
