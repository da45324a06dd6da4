//! The queue's table, and what threads see of it.

use super::*;

#[test]
fn every_transition_is_as_the_table_says() {
    use Event::{
        BusyBesideOthers, Done, Gone, LastLeft, Nothing, OnlyMerges, Queued, SomebodyEnded,
    };
    use State::{Blocked, Deferred, Ready};
    let all = [None, Some(Ready), Some(Blocked), Some(Deferred)];
    let table = [
        (Queued, [Some(Ready); 4]),
        (Done, [Some(Ready); 4]),
        (BusyBesideOthers, [None, Some(Blocked), Some(Blocked), Some(Blocked)]),
        (LastLeft, [None, Some(Ready), Some(Ready), Some(Deferred)]),
        (OnlyMerges, [None, Some(Deferred), Some(Deferred), Some(Deferred)]),
        (Nothing, [None; 4]),
        (SomebodyEnded, [None, Some(Ready), Some(Blocked), Some(Ready)]),
        (Gone, [None; 4]),
    ];
    for (event, expected) in table {
        assert_eq!(all.map(|state| next(state, event)), expected, "{event:?}");
    }
}

#[test]
fn queue_forgets_no_work_that_came_while_a_worker_looked() {
    let mut queue = Queue::default();
    queue.add(7);
    let lease = queue.enter(7);
    queue.add(7);
    assert!(!queue.leave(&lease, UnitOutcome::Nothing));
    assert_eq!(queue.ready().collect::<Vec<_>>(), [7], "sealed after the worker had looked");
    let lease = queue.enter(7);
    assert!(!queue.leave(&lease, UnitOutcome::Nothing));
    assert_eq!((queue.ready().count(), queue.working()), (0, 0));
}

#[test]
fn few_trees_are_compared_at_a_time_and_each_has_its_turn() {
    let mut queue = Queue::default();
    let few = TUNING.compared;
    (0..few as u64).for_each(|id| queue.add(id));
    let all: Vec<u64> = queue.ready().collect();
    assert_eq!([queue.choice(), queue.choice()], [all.clone(), all], "few are all compared");
    (0..10_000).for_each(|id| queue.add(id));
    queue.change(77, Event::OnlyMerges);
    let few = TUNING.compared_in_turn;
    let turns = 10_000_usize.div_ceil(few);
    let mut looked_at = BTreeSet::new();
    for _ in 0..turns {
        let choice = queue.choice();
        assert_eq!(choice.len(), few);
        looked_at.extend(choice);
    }
    assert_eq!(looked_at.len(), 9_999);
    assert!(!looked_at.contains(&77), "it is deferred");
    queue.add(u64::MAX);
    queue.look_from = u64::MAX;
    assert_eq!(queue.choice()[..3], [u64::MAX, 0, 1], "around the end");
}

#[test]
fn worker_that_meets_others_waits_for_one_of_them() {
    let mut queue = Queue::default();
    queue.add(7);
    let (first, second) = (queue.enter(7), queue.enter(7));
    assert!(!queue.leave(&second, UnitOutcome::Busy));
    assert_eq!(queue.ready().count(), 0, "nothing to take until the first is done");
    let third = queue.enter(7);
    assert!(!queue.leave(&first, UnitOutcome::Done));
    assert_eq!(queue.ready().count(), 1);
    assert!(!queue.leave(&third, UnitOutcome::Busy), "the first was done since it looked");
    assert_eq!(queue.ready().count(), 1);
    let alone = queue.enter(7);
    assert!(queue.leave(&alone, UnitOutcome::Busy), "nobody else will tell it");
}

#[test]
fn tree_that_needs_a_merge_beside_another_waits_until_somebody_is_done() {
    let mut queue = Queue::default();
    queue.add(7);
    queue.add(8);
    let (merging, other) = (queue.enter(7), queue.enter(8));
    assert!(!queue.leave(&other, UnitOutcome::Deferred));
    assert_eq!(queue.ready().collect::<Vec<_>>(), [7], "nothing to do in 8 for now");
    queue.add(8);
    assert_eq!(queue.ready().count(), 2, "there is a memtable to drain");
    let (other, late) = (queue.enter(8), queue.enter(8));
    assert!(!queue.leave(&other, UnitOutcome::Deferred));
    assert!(!queue.leave(&merging, UnitOutcome::Done));
    assert_eq!(queue.ready().count(), 2);
    assert!(!queue.leave(&late, UnitOutcome::Deferred));
    assert_eq!(queue.ready().count(), 2, "the merge ended after it had looked");
}

#[test]
fn tree_with_a_memtable_sealed_while_a_worker_looked_is_not_deferred() {
    let mut queue = Queue::default();
    queue.add(7);
    queue.add(8);
    let (_merging, looking) = (queue.enter(7), queue.enter(8));
    queue.add(8);
    assert!(!queue.leave(&looking, UnitOutcome::Deferred));
    assert!(queue.ready().any(|tree| tree == 8), "a drain waits there for no merge");
}

#[test]
fn last_worker_leaves_no_tree_blocked_whatever_it_found() {
    let mut queue = Queue::default();
    queue.add(7);
    queue.add(8);
    // Somebody outside the queue is at work in 7, then no more; a merge in 8 ends meanwhile.
    let merging = queue.enter(8);
    let (busy, deferred) = (queue.enter(7), queue.enter(7));
    assert!(!queue.leave(&merging, UnitOutcome::Done));
    assert!(!queue.leave(&busy, UnitOutcome::Busy));
    assert!(!queue.leave(&deferred, UnitOutcome::Deferred));
    assert!(queue.ready().any(|tree| tree == 7), "nobody is in it who could unblock it");
    let nothing = queue.enter(7);
    queue.add(7);
    let busy = queue.enter(7);
    assert!(!queue.leave(&busy, UnitOutcome::Busy));
    assert!(!queue.leave(&nothing, UnitOutcome::Nothing));
    assert!(queue.ready().any(|tree| tree == 7), "what came meanwhile is to be looked at");
}

#[test]
fn two_that_wait_for_an_insert_to_end_look_again() {
    let mut queue = Queue::default();
    queue.add(7);
    let (first, second) = (queue.enter(7), queue.enter(7));
    assert!(!queue.leave(&second, UnitOutcome::Busy));
    assert!(queue.leave(&first, UnitOutcome::Busy), "it was not at work either");
    assert_eq!(queue.ready().count(), 1, "nobody will tell of the insert's end");
}

#[test]
fn dictionary_that_is_gone_is_in_no_state() {
    let mut queue = Queue::default();
    queue.add(7);
    let lease = queue.enter(7);
    queue.change(7, Event::OnlyMerges);
    queue.remove(7);
    assert!(!queue.leave(&lease, UnitOutcome::Deferred));
    assert_eq!((queue.trees.len(), queue.deferred.len(), queue.working()), (0, 0, 0));
}

#[test]
fn work_wakes_a_flusher_and_not_the_log_thread() {
    let work = WorkQueue::default();
    let long = Duration::from_secs(20);
    std::thread::scope(|scope| {
        let log = scope.spawn(|| work.pause(long));
        std::thread::sleep(Duration::from_millis(50));
        let flusher = scope.spawn(|| work.wait_for_work(long));
        std::thread::sleep(Duration::from_millis(50));
        work.add(1);
        for _ in 0..100 {
            if flusher.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let woken = (flusher.is_finished(), log.is_finished());
        work.stop();
        assert_eq!(woken, (true, false));
    });
}
