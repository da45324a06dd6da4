//! To whom a leader hands over: a pure function of what it sees.

use crate::view::View;
use quorum::{MemberId, PeerPhase};
use replica::MemberReport;

/// The voter that takes over with the shortest pause: of those that answer, get entries as they come and
/// may lead, the one of the lowest rank (the highest priority), then the one whose log is longest. `rank`
/// says `None` of members that may not lead. `None` where nobody can, or this member does not lead.
pub fn successor(view: &View, rank: impl Fn(MemberId) -> Option<u32>) -> Option<MemberId> {
    let able = view.peers.iter().filter(|peer| {
        peer.member != view.id
            && peer.active
            && peer.phase == PeerPhase::Replicating
            && view.configuration.is_voter(peer.member)
            && view.reports.get(&peer.member).is_none_or(|heard| may_lead(&heard.report))
    });
    let ranked = able.filter_map(|peer| rank(peer.member).map(|rank| (rank, peer)));
    ranked.min_by_key(|(rank, peer)| (*rank, u64::MAX - peer.matched)).map(|(_, peer)| peer.member)
}

/// Whether a member may lead, by what it says of itself.
fn may_lead(report: &MemberReport) -> bool {
    !(report.stopped || report.in_maintenance || report.frozen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Heard;
    use quorum::{Configuration, Peer};
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
}
