//! To whom a leader hands over: a pure function of what it sees.

use crate::view::View;
use quorum::{MemberId, Peer, PeerPhase};

/// Entries that a member may be behind and counts as one that keeps up.
const NEAR: u64 = 64;

/// The voter that takes over with the shortest pause: of those that answer, keep up and may lead, the one of the
/// lowest rank (the highest priority), then the one whose log is longest; before all others those that get entries as they
/// come. `rank` says `None` of members that may not lead. `None` where nobody can, or this member does not lead: nobody
/// takes writes while a leader hands over, so it hands over to nobody who has much to get first.
pub fn successor(view: &View, rank: impl Fn(MemberId) -> Option<u32>) -> Option<MemberId> {
    let able = view.peers.iter().filter(|peer| {
        peer.member != view.id
            && peer.active
            && is_near(view, peer)
            && (peer.phase == PeerPhase::Replicating || is_idle_behind_a_lost_link(view, peer))
            && view.configuration.is_voter(peer.member)
            && view.reports.get(&peer.member).is_none_or(|heard| heard.report.may_lead())
    });
    let ranked = able.filter_map(|peer| rank(peer.member).map(|rank| (rank, peer)));
    let order = |(rank, peer): &(u32, &Peer)| {
        (peer.phase != PeerPhase::Replicating, *rank, u64::MAX - peer.matched)
    };
    ranked.min_by_key(order).map(|(_, peer)| peer.member)
}

/// Whether a member gets entries as they come.
pub fn keeps_up(view: &View, member: MemberId) -> bool {
    // Consensus takes one that is new for active, before anything is heard of it.
    let is_so = |peer: &Peer| peer.active && peer.matched > 0 && is_near(view, peer);
    view.peers.iter().any(|peer| peer.member == member && is_so(peer))
}

fn is_near(view: &View, peer: &Peer) -> bool {
    peer.matched.saturating_add(NEAR) >= view.last.index
}

/// After its link was lost a member is probed with the next entry: until there is one, it has everything.
fn is_idle_behind_a_lost_link(view: &View, peer: &Peer) -> bool {
    peer.phase == PeerPhase::Probing && peer.matched > 0 && peer.matched == view.last.index
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Heard;
    use quorum::{Configuration, Position};
    use replica::MemberReport;
    use std::sync::Arc;

    fn peer(member: u64, matched: u64) -> Peer {
        let member = MemberId(member);
        Peer { member, matched, next: matched + 1, phase: PeerPhase::Replicating, active: true }
    }

    fn view(peers: Vec<Peer>) -> View {
        let configuration = Configuration::of_voters([1, 2, 3].map(MemberId)).into();
        View { id: MemberId(1), configuration, peers, ..View::default() }
    }

    #[test]
    fn the_best_that_is_able_takes_over() {
        let same = |_| Some(0);
        let chosen = |view: &View| successor(view, same).map(|member| member.0);
        assert_eq!(chosen(&view(Vec::new())), None, "a follower hands nothing over");
        assert_eq!(chosen(&view(vec![peer(1, 9)])), None, "nor does one that is alone");
        assert_eq!(chosen(&view(vec![peer(1, 9), peer(2, 8), peer(3, 7)])), Some(2));
        let ranks = |member: MemberId| Some(u32::from(member.0 != 3));
        let all = view(vec![peer(1, 9), peer(2, 8), peer(3, 7)]);
        assert_eq!(successor(&all, ranks), Some(MemberId(3)), "priority before length");
        let never = |member: MemberId| (member.0 != 2).then_some(0);
        assert_eq!(successor(&all, never), Some(MemberId(3)), "one of priority 0 never leads");
        let silent = Peer { active: false, ..peer(2, 9) };
        assert_eq!(chosen(&view(vec![silent, peer(3, 1)])), Some(3));
        let behind = Peer { phase: PeerPhase::Snapshot, ..peer(2, 0) };
        assert_eq!(chosen(&view(vec![behind])), None);
        assert_eq!(chosen(&view(vec![peer(4, 9)])), None, "a learner has no vote");
        let long = |peers| View { last: Position { term: 1, index: 100 }, ..view(peers) };
        assert_eq!(chosen(&long(vec![peer(2, 35), peer(3, 36)])), Some(3), "nobody waits for 2");
        assert_eq!(chosen(&long(vec![peer(2, 35), peer(3, 35)])), None);
        let probed = |matched| Peer { phase: PeerPhase::Probing, ..peer(2, matched) };
        assert_eq!(chosen(&long(vec![probed(100)])), Some(2), "it lacks nothing");
        assert_eq!(chosen(&long(vec![probed(99)])), None);
        assert_eq!(chosen(&long(vec![probed(100), peer(3, 90)])), Some(3), "2 may be gone");
        assert_eq!(chosen(&view(vec![probed(0)])), None, "it was never heard of");
        let of_two = MemberReport { from: MemberId(2), ..MemberReport::default() };
        for report in [
            MemberReport { stopped: true, ..of_two },
            MemberReport { in_maintenance: true, ..of_two },
            MemberReport { frozen: true, ..of_two },
        ] {
            let mut unable = view(all.peers.clone());
            unable.reports = Arc::new([(MemberId(2), Heard { report, at_ms: 0 })].into());
            assert_eq!(chosen(&unable), Some(3), "{report:?}");
        }
    }

    #[test]
    fn who_was_never_heard_of_does_not_keep_up_with_a_short_log() {
        let view = |matched| View {
            peers: vec![Peer {
                member: MemberId(2),
                matched,
                next: matched + 1,
                phase: PeerPhase::Probing,
                active: true,
            }],
            last: Position { term: 1, index: NEAR },
            ..View::default()
        };
        assert!(!keeps_up(&view(0), MemberId(2)));
        assert!(keeps_up(&view(1), MemberId(2)));
    }
}
