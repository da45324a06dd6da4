//! Those who wait until certain members have an entry, or so many: a leader alone knows who has what.
//!
//! Always true:
//! 1. With each view of the member each group of those who wait for the same members is asked once how far these are,
//!    and who waits for no more than that is called. However many wait, nobody else is.
//! 2. Who is in the list before it looks at the view itself misses no view that the look does not show.
//! 3. While nobody waits, nobody is told of views.

use crate::replication::Replication;
use crate::state::ServerState;
use os::Call;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which members are to have an entry.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Holders {
    /// So many of those that bear data.
    Count(i64),
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
    fn insert(self: &Arc<Self>, holders: Holders, index: u64, call: Call) -> ConcernWatch {
        let mut list = self.list.lock();
        list.next += 1;
        let key = (index, list.next);
        list.groups.entry(holders.clone()).or_default().insert(key, call);
        drop(list);
        ConcernWatch { waits: Arc::clone(self), holders, key }
    }

    /// Takes out the calls of all whose members have what they wait for; `reached` says how far members are, and
    /// nothing where this member does not know, so that all are to look for themselves.
    fn take_reached(&self, reached: impl Fn(&Holders) -> Option<u64>) -> Vec<Call> {
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

impl ServerState {
    /// Has `call` made once these members have an entry, or this member leads no more; it must not wait. The caller
    /// looks for itself after this and before it relies on being called. `None` in no set of several.
    pub fn when_held(&self, holders: Holders, index: u64, call: Call) -> Option<ConcernWatch> {
        self.replication.membership()?;
        let watch = self.concern_waits.insert(holders, index, call);
        self.look_with_next_view();
        Some(watch)
    }

    /// Has the list looked at with the next view, unless that is said already or nobody waits.
    fn look_with_next_view(&self) {
        let mut list = self.concern_waits.list.lock();
        if list.watch.is_some() || list.groups.is_empty() {
            return;
        }
        let this = self.this.clone();
        let look: Call = Arc::new(move || {
            if let Some(this) = this.upgrade() {
                this.call_those_held();
            }
        });
        let membership = self.replication.membership();
        list.watch = membership.and_then(|membership| membership.watch(look));
    }

    fn call_those_held(&self) {
        // It is made once: before the look, so that no view is missed between the two.
        let made = self.concern_waits.list.lock().watch.take();
        drop(made);
        self.look_with_next_view();
        for call in self.concern_waits.take_reached(|who| self.replication.held_up_to(who)) {
            call();
        }
    }
}

impl Replication {
    /// Up to which entry these members have the log on disk; nothing where this member does not lead. `u64::MAX` for
    /// a mode that the configuration does not have: there is nothing to wait for.
    pub fn held_up_to(&self, holders: &Holders) -> Option<u64> {
        let (membership, config) = (self.membership()?, self.config()?);
        let view = membership.view();
        if !view.leads() {
            return None;
        }
        let document = membership.document();
        let mut far: Vec<_> = view
            .peers
            .iter()
            .filter_map(|peer| {
                let id = document.id_of(peer.member)?;
                let member = config.data_bearing().find(|member| member.id == id)?;
                Some((peer.matched, member))
            })
            .collect();
        far.sort_by_key(|(matched, _)| std::cmp::Reverse(*matched));
        Some(match holders {
            Holders::Count(count) => usize::try_from(count.saturating_sub(1))
                .map_or(u64::MAX, |place| far.get(place).map_or(0, |(matched, _)| *matched)),
            Holders::Mode(mode) => {
                let members: Vec<_> = far.iter().map(|(_, member)| *member).collect();
                let reached = |by: usize| config.modes.is_reached(mode, &members[..by]);
                if reached(0) != Some(false) {
                    return Some(u64::MAX);
                }
                let enough = (1..=far.len()).find(|by| reached(*by) == Some(true));
                enough.map_or(0, |by| far[by - 1].0)
            }
        })
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
