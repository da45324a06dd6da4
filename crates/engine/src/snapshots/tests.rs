//! The watermark is passed in order, and nobody's snapshot is forgotten.

use super::*;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

#[test]
fn watermark_waits_for_the_commit_before() {
    let snapshots = Snapshots::new(Showing::Complete);
    snapshots.start_at(4);
    std::thread::scope(|scope| {
        let late = scope.spawn(|| snapshots.publish(6));
        while snapshots.slot(6).load(Ordering::SeqCst) != 6 {
            yield_now();
        }
        assert_eq!(snapshots.complete().get(), 4);
        assert!(!late.is_finished());
        assert!(snapshots.publish(5));
    });
    assert_eq!(snapshots.complete().get(), 6);
}

#[test]
fn commit_that_sleeps_is_woken_by_the_one_before() {
    let snapshots = Snapshots::new(Showing::Complete);
    std::thread::scope(|scope| {
        for timestamp in [4, 3, 2] {
            let snapshots = &snapshots;
            scope.spawn(move || assert!(snapshots.publish(timestamp)));
        }
        while snapshots.waiters.load(Ordering::SeqCst) < 3 {
            yield_now();
        }
        assert!(snapshots.publish(1));
    });
    assert_eq!(snapshots.complete().get(), 4);
}

#[test]
fn commits_behind_one_that_is_never_published_stop_waiting() {
    let snapshots = Snapshots::new(Showing::Complete);
    std::thread::scope(|scope| {
        // The last one waits for its slot in the ring.
        let waiting = [2, 3, 2 + RING as u64].map(|timestamp| {
            let snapshots = &snapshots;
            scope.spawn(move || snapshots.publish(timestamp))
        });
        while snapshots.waiters.load(Ordering::SeqCst) < 3 {
            yield_now();
        }
        snapshots.abandon();
        for waiting in waiting {
            assert!(!waiting.join().unwrap());
        }
    });
    assert_eq!(snapshots.complete().get(), 0);
}

#[test]
fn more_commits_than_the_ring_holds_pass_in_order() {
    let snapshots = Snapshots::new(Showing::Complete);
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..RING {
                    let timestamp = next.fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(snapshots.publish(timestamp));
                    assert!(snapshots.complete().get() >= timestamp, "it sees its own commit");
                }
            });
        }
    });
    assert_eq!(snapshots.complete().get(), 4 * RING as u64);
}

#[test]
fn oldest_is_the_oldest_that_lives() {
    let snapshots = Snapshots::new(Showing::Complete);
    let first = snapshots.register(Watch::Nothing, 0);
    assert!(snapshots.publish(1));
    let second = snapshots.register(Watch::Nothing, 3);
    assert!(snapshots.publish(2));
    assert_eq!((snapshots.oldest(), snapshots.live()), (0, 2));
    snapshots.register_again(Watch::Nothing, 3, second);
    snapshots.release(Watch::Nothing, 0, first);
    snapshots.release(Watch::Nothing, 3, second);
    assert_eq!((snapshots.oldest(), snapshots.live()), (1, 1));
    snapshots.release(Watch::Nothing, 3, second);
    assert_eq!((snapshots.oldest(), snapshots.live()), (2, 0));
}

#[test]
fn commits_are_remembered_for_those_who_watch_alone() {
    let snapshots = Snapshots::new(Showing::Complete);
    let reads = snapshots.register(Watch::Nothing, 0);
    assert!(snapshots.publish(1));
    assert_eq!((snapshots.oldest(), snapshots.oldest_watching()), (0, 1));
    let watches = snapshots.register(Watch::Commits, 0);
    assert!(snapshots.publish(2));
    snapshots.release(Watch::Nothing, 0, reads);
    assert_eq!((snapshots.oldest(), snapshots.oldest_watching()), (1, 1));
    assert_eq!(snapshots.live(), 1);
    snapshots.release(Watch::Commits, 0, watches);
    assert_eq!((snapshots.oldest_watching(), snapshots.live()), (2, 0));
}

#[test]
fn short_snapshots_behind_a_long_one_take_no_room() {
    let snapshots = Snapshots::new(Showing::Complete);
    let long = snapshots.register(Watch::Nothing, 0);
    let mut previous = snapshots.register(Watch::Nothing, 0);
    for timestamp in 1..1000 {
        assert!(snapshots.publish(timestamp));
        let next = snapshots.register(Watch::Nothing, 0);
        snapshots.release(Watch::Nothing, 0, previous);
        previous = next;
    }
    let live = snapshots.stripe(Watch::Nothing, 0).live.lock();
    assert!(live.queue.len() < 50, "{} entries", live.queue.len());
    assert_eq!(live.timestamps().collect::<Vec<_>>(), [long, 999]);
}

#[test]
fn random_snapshots_agree_with_a_map() {
    let snapshots = Snapshots::new(Showing::Complete);
    let mut live: BTreeMap<u64, usize> = BTreeMap::new();
    let mut held: Vec<(usize, u64)> = Vec::new();
    let (mut random, mut timestamp) = (1_u64, 0);
    for _ in 0..5000 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let number = (random >> 33) as usize;
        match number % 5 {
            0 => {
                timestamp += 1;
                assert!(snapshots.publish(timestamp));
            }
            1 | 2 if held.len() < 60 => {
                let stripe = number / 5 % 3;
                held.push((stripe, snapshots.register(Watch::Nothing, stripe)));
                *live.entry(timestamp).or_default() += 1;
            }
            _ if !held.is_empty() => {
                let (stripe, gone) = held.swap_remove(number / 5 % held.len());
                snapshots.release(Watch::Nothing, stripe, gone);
                let count = live.get_mut(&gone).unwrap();
                *count -= 1;
                if *count == 0 {
                    live.remove(&gone);
                }
            }
            _ => {}
        }
        let timestamps: Vec<u64> = live.keys().copied().collect();
        assert_eq!(snapshots.oldest(), timestamps.first().copied().unwrap_or(timestamp));
        assert_eq!(snapshots.visibility(), Visibility::new(timestamp, &timestamps));
        assert_eq!(snapshots.live(), held.len());
    }
}

#[test]
fn nobody_registers_below_what_was_said_to_be_the_oldest() {
    let snapshots = Snapshots::new(Showing::Complete);
    let done = AtomicBool::new(false);
    // The greatest answer to `oldest` so far: a snapshot taken after it must not be older.
    let said = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for stripe in 0..2 {
            let (snapshots, done, said) = (&snapshots, &done, &said);
            scope.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    let before = said.load(Ordering::SeqCst);
                    let timestamp = snapshots.register(Watch::Nothing, stripe);
                    assert!(timestamp >= before, "{timestamp} was taken after {before} was said");
                    // While it lives, nobody may be told of a newer one.
                    assert!(snapshots.oldest() <= timestamp);
                    snapshots.release(Watch::Nothing, stripe, timestamp);
                }
            });
        }
        for timestamp in 1..20_000 {
            assert!(snapshots.publish(timestamp));
            said.fetch_max(snapshots.oldest(), Ordering::SeqCst);
        }
        done.store(true, Ordering::SeqCst);
    });
}
