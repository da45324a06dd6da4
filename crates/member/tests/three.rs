//! Three members on threads, over journals in memory and queues: what they see, and what they answer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/set.rs"]
mod support;

use member::{Refusal, View, successor};
use quorum::MemberId;
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::{LONG, Set};

fn id(member: u64) -> MemberId {
    MemberId(member)
}

fn is_primary(view: &View) -> bool {
    view.writable && view.leads()
}

#[test]
fn one_leads_and_what_it_commits_is_shown_by_all() {
    let set = Set::of_three();
    let leader = set.leader();
    for n in 0..20_u8 {
        set.commit(leader, n);
    }
    for member in 0..3 {
        set.shows(member, &(0..20).collect::<Vec<u8>>());
    }
    let view = set.members[leader].view();
    assert!(
        set.members[leader].wait_for(LONG, |view| view.holders_of(view.commit_index).count() == 3)
    );
    assert_eq!(view.peers.len(), 3);
    // The others speak of themselves.
    assert!(set.members[leader].wait_for(LONG, |view| view.reports.len() == 2));
    let told = set.told[leader].lock().clone();
    assert!(told.iter().any(is_primary), "who watches is told of the role");
    assert!(told.windows(2).all(|pair| pair[0] != pair[1]), "and of changes alone");
}

#[test]
fn another_leads_when_the_leader_ends() {
    let set = Set::of_three();
    let first = set.leader();
    set.commit(first, 1);
    set.shows((first + 1) % 3, &[1]);
    set.members[first].stop().unwrap();
    let ended = set.members[first].view();
    assert!(ended.stopped.is_some() && !ended.writable, "{ended:?}");
    set.queues.iter().for_each(|queue| queue.refused(id(first as u64 + 1)));
    let second = set.leader_but(Some(first));
    assert!(set.members[second].view().role_state.term > ended.role_state.term);
    set.commit(second, 2);
    set.shows(3 - first - second, &[1, 2]);
    // Who asks what has ended is told so at once.
    let asked = set.members[first].read_point().wait(LONG);
    assert_eq!(asked, Some(Err(Refusal::Ended)));
}

#[test]
fn leadership_is_handed_over() {
    let set = Set::of_three();
    let first = set.leader();
    set.commit(first, 1);
    assert!(set.members[first].wait_for(LONG, |view| successor(view, |_| Some(0)).is_some()));
    let next = successor(&set.members[first].view(), |_| Some(0)).unwrap();
    assert_eq!(set.members[first].hand_over(next).wait(LONG), Some(Ok(())));
    let second = usize::try_from(next.0).unwrap() - 1;
    assert!(set.members[second].wait_for(LONG, is_primary));
    // One that cannot be reached is not waited for beyond an election's time.
    let away = (0..3).find(|member| *member != second).unwrap();
    set.queues[away].cut.store(true, Ordering::Release);
    let to_away = id(away as u64 + 1);
    let first_asked = set.members[second].hand_over(to_away);
    // Another one does not end that, and who asks for the same is answered with the first.
    let other = id((3 - second - away) as u64 + 1);
    let refused = set.members[second].hand_over(other).wait(LONG);
    assert!(matches!(refused, Some(Err(Refusal::NotNow(_)))), "{refused:?}");
    let second_asked = set.members[second].hand_over(to_away);
    for asked in [first_asked, second_asked] {
        assert_eq!(asked.wait(LONG), Some(Err(Refusal::NotInTime(to_away))));
    }
    assert!(set.members[second].wait_for(LONG, is_primary), "it leads on");
    // A follower has nothing to hand over.
    let asked = set.members[away].hand_over(next).wait(LONG);
    assert!(matches!(asked, Some(Err(Refusal::Refused(_)))), "{asked:?}");
}

#[test]
fn who_asks_what_a_member_is_hears_it_after_those_who_watch() {
    let set = Set::of_three();
    let first = set.leader();
    let says_primary = || set.told[first].lock().last().is_some_and(is_primary);
    assert_eq!(set.members[first].tell_what_is().wait(LONG), Some(Ok(())));
    assert!(says_primary());
    set.queues[first].cut.store(true, Ordering::Release);
    assert!(set.members[first].wait_for(LONG, |view| !view.writable));
    assert_eq!(set.members[first].tell_what_is().wait(LONG), Some(Ok(())));
    assert!(!says_primary(), "it was not told yet");
}

#[test]
fn reads_learn_what_is_decided() {
    let set = Set::of_three();
    let leader = set.leader();
    set.commit(leader, 7);
    set.shows(leader, &[7]);
    let decided = set.members[leader].view().commit_index;
    let other = (leader + 1) % 3;
    for member in [leader, other] {
        assert!(set.members[member].wait_for(LONG, |view| view.role_state.leader.is_some()));
        let point = set.members[member].read_point().wait(LONG).unwrap().unwrap();
        assert!(point >= decided && set.members[member].view().applied_index >= point);
    }
    // A leader that no majority answers gives no read point.
    let others = (0..3).filter(|member| *member != leader);
    others.for_each(|member| set.queues[member].cut.store(true, Ordering::Release));
    let asked = set.members[leader].read_point().wait(Duration::from_millis(300));
    assert!(!matches!(asked, Some(Ok(_))), "{asked:?}");
}

#[test]
fn configurations_are_seen_once_they_are_decided() {
    let set = Set::of_three();
    let leader = set.leader();
    let at = set.members[leader].configure(Vec::new(), b"settings".to_vec()).wait(LONG);
    let at = at.unwrap().unwrap();
    for member in &set.members {
        let shows = |view: &View| {
            view.document.as_ref().is_some_and(|now| now.at == at && *now.bytes == *b"settings")
        };
        assert!(member.wait_for(LONG, shows), "{:?}", member.view());
    }
    let other = (leader + 1) % 3;
    let asked = set.members[other].configure(Vec::new(), b"mine".to_vec()).wait(LONG);
    assert!(matches!(asked, Some(Err(Refusal::Refused(_)))), "{asked:?}");
}

#[test]
fn a_frame_of_somebody_else_ends_its_link_and_a_broken_disk_the_member() {
    let set = Set::of_three();
    let leader = set.leader();
    let other = (leader + 1) % 3;
    set.queues[other].forge(id(leader as u64 + 1), id(other as u64 + 1));
    assert!(set.queues[other].wait_for_hang_up(id(leader as u64 + 1)));
    set.journals[leader].lock().fault = replica::memory::Fault::FailsSyncs;
    set.journals[leader].lock().commit(vec![1]);
    set.members[leader].wake();
    assert!(set.members[leader].wait_for(LONG, |view| view.stopped.is_some() && !view.writable));
}
