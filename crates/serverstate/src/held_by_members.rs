//! How far members have the log, as a leader knows it, and who is called when they have more.
//!
//! Always true: whoever waits is called by the view that has what it waits for, or looks itself.

use crate::concern_waits::{ConcernWatch, Holders};
use crate::replication::Replication;
use crate::replication::config::member::Member;
use crate::state::ServerState;
use os::Call;
use std::sync::Arc;

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
        self.concern_waits.look_again_by(|| {
            let this = self.this.clone();
            let look: Call = Arc::new(move || {
                if let Some(this) = this.upgrade() {
                    this.call_those_held();
                }
            });
            self.replication.membership()?.watch(look)
        });
    }

    fn call_those_held(&self) {
        // It is made once: before the look, so that no view is missed between the two.
        self.concern_waits.is_looked_at();
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
        let held_by = |count: i64, counts: fn(&Member) -> bool| {
            let mut those = far.iter().filter(|(_, member)| counts(member));
            usize::try_from(count.saturating_sub(1))
                .map_or(u64::MAX, |place| those.nth(place).map_or(0, |(matched, _)| *matched))
        };
        Some(match holders {
            Holders::Count(count) => held_by(*count, |_| true),
            Holders::IndexVoters(count) => {
                held_by(*count, |member| member.votes && member.build_indexes)
            }
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
