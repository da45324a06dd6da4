//! To whom this member hands over, and when: because its operator wants it, because it ends, because it cannot take the
//! writing over, or because a member of a higher priority has caught up.

use super::{Inner, LOOK, Membership};
use crate::set_document::SetDocument;
use member::{Pending, View, keeps_up, successor};
use parking_lot::MutexGuard;
use quorum::MemberId;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a member of a higher priority has to keep up before it takes over: one that comes and goes does not.
const PREFERRED_FOR: Duration = Duration::from_secs(5);
/// How long a member that cannot take the writing over waits for another one to do it.
const HANDING_OVER: Duration = Duration::from_secs(5);

impl Membership {
    /// Hands over to the member that is ready first; `None` where none is.
    pub fn hand_over(&self) -> Option<Pending<()>> {
        self.hand_over_but(|_| false)
    }

    /// As [`Membership::hand_over`], but to none of those that have just not been able to take over.
    pub fn hand_over_but(&self, leaves_out: impl Fn(MemberId) -> bool) -> Option<Pending<()>> {
        self.inner.hand_over(leaves_out)
    }

    /// What its operator has who has this member step down, as long as that goes on; `None` where another one has it.
    pub fn begin_step_down(&self) -> Option<MutexGuard<'_, ()>> {
        self.inner.stepping_down.try_lock()
    }

    /// A member of a higher priority that has caught up takes over from this one, once that has been so for a while.
    /// Called every few seconds; `now` is of the monotonic clock. Answers who it is when it is asked to.
    pub fn prefer_higher_priority(&self, now: Duration) -> Option<MemberId> {
        let (member, document) = (self.inner.member()?, self.document());
        let view = member.view();
        let mut preferred = self.inner.preferred.lock();
        let next = preferred_over(&view, &document).filter(|_| self.takes_writes());
        *preferred = next.map(|next| match *preferred {
            Some((before, since)) if before == next => (next, since),
            _ => (next, now),
        });
        let (next, since) = (*preferred)?;
        if now.saturating_sub(since) < PREFERRED_FOR {
            return None;
        }
        *preferred = None;
        // Where it does not work out it is tried again after the same time.
        drop(member.hand_over(next));
        Some(next)
    }
}

impl Inner {
    fn hand_over(&self, leaves_out: impl Fn(MemberId) -> bool) -> Option<Pending<()>> {
        let (member, document) = (self.member()?, self.admission.document());
        let rank = |other| document.rank(other).filter(|_| !leaves_out(other));
        let next = successor(&member.view(), rank)?;
        Some(member.hand_over(next))
    }

    /// Hands over as soon as somebody is ready, until it is as asked, or this membership ends.
    pub(super) fn hand_over_until(&self, mut is_so: impl FnMut(&View) -> bool) {
        let member = self.member.wait();
        while !self.ends.load(Ordering::Acquire) && !member.wait_for(LOOK, &mut is_so) {
            if let Some(asked) = self.hand_over(|_| false) {
                let _handed_over = asked.wait(HANDING_OVER);
            }
        }
    }
}

/// Who should lead in the place of this leader: the member of the highest priority that keeps up, where that is higher
/// than its own.
fn preferred_over(view: &View, document: &SetDocument) -> Option<MemberId> {
    let own = document.rank(view.id).unwrap_or(u32::MAX);
    let higher = |member: MemberId| {
        document.rank(member).filter(|rank| *rank < own && keeps_up(view, member))
    };
    successor(view, higher)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Document, doc};
    use quorum::{Configuration, Position};

    #[test]
    fn who_is_preferred_keeps_up_and_has_the_highest_priority_above_the_leaders() {
        // Members 1, 2 and 3 by their priorities; 1 leads. Which of the others keep up, and who is preferred.
        let cases: [([i32; 3], &[u64], Option<u64>); 8] = [
            ([1, 1, 1], &[2, 3], None),
            ([1, 2, 1], &[2, 3], Some(2)),
            ([1, 2, 3], &[2, 3], Some(3)),
            ([1, 2, 3], &[2], Some(2)),
            ([1, 2, 1], &[3], None),
            ([3, 2, 1], &[2, 3], None),
            ([0, 1, 0], &[2, 3], Some(2)),
            ([0, 0, 0], &[2, 3], None),
        ];
        for (priorities, near, preferred) in cases {
            let members = priorities.iter().zip(0..).map(|(priority, id)| {
                doc! { "_id": id, "host": format!("h:{}", id + 1), "priority": *priority }
            });
            let config = doc! { "_id": "rs", "members": members.collect::<Vec<Document>>() };
            let ids = (0..3).map(|id| (id, MemberId(id as u64 + 1))).collect();
            let Ok(document) = SetDocument::new(config, &ids) else {
                assert_eq!(priorities, [0; 3], "a set of which nobody may lead is none");
                continue;
            };
            let peer = |member: u64| quorum::Peer {
                member: MemberId(member),
                matched: if near.contains(&member) { 1000 } else { 100 },
                next: 1001,
                phase: quorum::PeerPhase::Replicating,
                active: true,
            };
            let view = View {
                id: MemberId(1),
                configuration: Configuration::of_voters([1, 2, 3].map(MemberId)).into(),
                peers: [1, 2, 3].map(peer).to_vec(),
                last: Position { term: 1, index: 1000 },
                ..View::default()
            };
            let found = preferred_over(&view, &document).map(|member| member.0);
            assert_eq!(found, preferred, "{priorities:?} {near:?}");
        }
    }
}
