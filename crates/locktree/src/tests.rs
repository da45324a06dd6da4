//! The lock table: queues, refusals, memory of commits, ranges, escalation; alone, against a
//! model, and with real threads.

use crate::{Error, LockTable, Mode, Options, Range, Waiting};
use os::Os;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const NOW: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_secs(30);

fn table() -> Arc<LockTable> {
    LockTable::new(Os::real().clock, Options::default())
}

fn small(max_bytes: u64) -> Arc<LockTable> {
    LockTable::new(Os::real().clock, Options { max_bytes, shards: 4, ..Options::default() })
}

fn until_waiting(table: &LockTable, count: usize) {
    while table.waiting().len() < count {
        std::thread::yield_now();
    }
}

#[test]
fn exclusive_lock_keeps_others_out_until_released() {
    let table = table();
    let (mut a, mut b) = (table.owner(1), table.owner(2));
    table.acquire(&mut a, 1, b"k", Mode::Exclusive, NOW).unwrap();
    table.acquire(&mut a, 1, b"k", Mode::Exclusive, NOW).unwrap();
    let refused = table.acquire(&mut b, 1, b"k", Mode::Shared, NOW).unwrap_err();
    assert_eq!(refused, Error::Timeout { waited_ms: 0, blocker: 1 });
    table.acquire(&mut b, 2, b"k", Mode::Exclusive, NOW).unwrap();
    a.release(None);
    table.acquire(&mut b, 1, b"k", Mode::Exclusive, NOW).unwrap();
    assert_eq!(b.held(), 2);
    b.release(None);
    assert_eq!(table.bytes(), 0);
    assert!(table.held(9).is_empty());
}

#[test]
fn lock_at_once_is_granted_only_where_nobody_has_to_be_waited_for() {
    let table = table();
    let (mut a, mut b, mut c) = (table.owner(1), table.owner(2), table.owner(3));
    let at_once = |owner: &mut crate::Owner, key: &[u8]| {
        table.acquire_at_once(owner, 1, key, Mode::Exclusive, NOW).unwrap()
    };
    assert!(at_once(&mut a, b"k") && at_once(&mut a, b"k"));
    assert_eq!(a.held(), 1);
    let bytes = table.bytes();
    assert!(!at_once(&mut b, b"k"));
    assert_eq!((b.held(), b.bytes(), table.bytes()), (0, 0, bytes), "nothing was done");
    assert_eq!(table.stats().timeouts, 0, "who does not wait is not refused");
    a.release(None);
    assert!(at_once(&mut b, b"k"));
    let range =
        Range { lower: Bound::Included(b"x".to_vec()), upper: Bound::Excluded(b"z".to_vec()) };
    table.acquire_range(&mut c, 1, range, Mode::Exclusive, NOW).unwrap();
    assert!(!at_once(&mut b, b"y"), "a range may hold it");
    b.release(None);
    drop(c);
    assert_eq!(table.bytes(), 0);
}

#[test]
fn shared_locks_coexist_and_a_lone_holder_upgrades() {
    let table = table();
    let (mut a, mut b) = (table.owner(1), table.owner(2));
    table.acquire(&mut a, 1, b"k", Mode::Shared, NOW).unwrap();
    table.acquire(&mut b, 1, b"k", Mode::Shared, NOW).unwrap();
    assert!(table.acquire(&mut a, 1, b"k", Mode::Exclusive, NOW).is_err());
    drop(b);
    table.acquire(&mut a, 1, b"k", Mode::Exclusive, NOW).unwrap();
    assert_eq!(a.held(), 1);
}

#[test]
fn waiter_gets_the_lock_when_the_holder_ends() {
    let table = table();
    let mut a = table.owner(1);
    table.acquire(&mut a, 1, b"k", Mode::Exclusive, NOW).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut b = table.owner(2);
            table.acquire(&mut b, 1, b"k", Mode::Exclusive, LONG).map(|_| ())
        });
        until_waiting(&table, 1);
        let seen = table.waiting();
        assert_eq!((seen[0].txn, seen[0].blockers.clone()), (2, vec![1]));
        a.release(None);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(table.stats().waits, 1);
}

#[test]
fn requests_are_granted_in_the_order_they_came() {
    let table = table();
    let mut first = table.owner(100);
    table.acquire(&mut first, 1, b"k", Mode::Exclusive, NOW).unwrap();
    let order = os::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for txn in 1..=8_u64 {
            let (table, order) = (&table, &order);
            scope.spawn(move || {
                let mut owner = table.owner(txn);
                table.acquire(&mut owner, 1, b"k", Mode::Exclusive, LONG).unwrap();
                order.lock().push(txn);
            });
            until_waiting(table, txn as usize);
        }
        first.release(None);
    });
    assert_eq!(*order.lock(), (1..=8).collect::<Vec<_>>());
}

#[test]
fn request_times_out_at_its_deadline() {
    let table = table();
    let (mut a, mut b) = (table.owner(1), table.owner(2));
    table.acquire(&mut a, 1, b"k", Mode::Exclusive, NOW).unwrap();
    let error =
        table.acquire(&mut b, 1, b"k", Mode::Exclusive, Duration::from_millis(30)).unwrap_err();
    assert!(matches!(error, Error::Timeout { waited_ms: 30.., blocker: 1 }), "{error:?}");
    assert!(table.waiting().is_empty());
    assert_eq!(table.stats().timeouts, 1);
}

#[test]
fn alone_the_clock_moves_instead_of_the_thread() {
    let sim = os::sim::SimOs::new(1).os();
    let options = Options { waiting: Waiting::Alone, ..Options::default() };
    let table = LockTable::new(Arc::clone(&sim.clock), options);
    let (mut a, mut b) = (table.owner(1), table.owner(2));
    table.acquire(&mut a, 1, b"k", Mode::Exclusive, NOW).unwrap();
    let before = sim.clock.monotonic();
    assert!(table.acquire(&mut b, 1, b"k", Mode::Exclusive, LONG).is_err());
    assert!(sim.clock.monotonic() >= before + LONG);
}

#[test]
fn request_that_closes_a_cycle_is_the_victim() {
    let table = table();
    let (mut a, mut b) = (table.owner(1), table.owner(2));
    table.acquire(&mut a, 1, b"x", Mode::Exclusive, NOW).unwrap();
    table.acquire(&mut b, 1, b"y", Mode::Exclusive, NOW).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| table.acquire(&mut a, 1, b"y", Mode::Exclusive, LONG));
        until_waiting(&table, 1);
        let error = table.acquire(&mut b, 1, b"x", Mode::Exclusive, LONG).unwrap_err();
        assert_eq!(error, Error::Deadlock { blocker: 1 });
        drop(b);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(table.stats().deadlocks, 1);
}

#[test]
fn two_upgrades_of_one_key_are_a_deadlock() {
    let table = table();
    let (mut a, mut b) = (table.owner(1), table.owner(2));
    table.acquire(&mut a, 1, b"k", Mode::Shared, NOW).unwrap();
    table.acquire(&mut b, 1, b"k", Mode::Shared, NOW).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| table.acquire(&mut a, 1, b"k", Mode::Exclusive, LONG));
        until_waiting(&table, 1);
        let error = table.acquire(&mut b, 1, b"k", Mode::Exclusive, LONG).unwrap_err();
        assert_eq!(error, Error::Deadlock { blocker: 1 });
        drop(b);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn waiter_that_gives_up_lets_those_behind_it_pass() {
    let table = table();
    let mut reader = table.owner(1);
    table.acquire(&mut reader, 1, b"k", Mode::Shared, NOW).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut owner = table.owner(2);
            let timeout = Duration::from_millis(50);
            table.acquire(&mut owner, 1, b"k", Mode::Exclusive, timeout).map(|_| ())
        });
        until_waiting(&table, 1);
        let mut behind = table.owner(3);
        table.acquire(&mut behind, 1, b"k", Mode::Shared, LONG).unwrap();
        assert!(matches!(writer.join().unwrap(), Err(Error::Timeout { .. })));
    });
}

#[test]
fn killed_transaction_stops_waiting_and_never_waits_again() {
    let table = table();
    let (mut a, mut b) = (table.owner(1), table.owner(2));
    table.acquire(&mut a, 1, b"k", Mode::Exclusive, NOW).unwrap();
    let kill = b.interrupt();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let first = table.acquire(&mut b, 1, b"k", Mode::Exclusive, LONG);
            (first, table.acquire(&mut b, 1, b"k", Mode::Exclusive, LONG))
        });
        until_waiting(&table, 1);
        table.interrupt(&kill);
        let (first, second) = waiting.join().unwrap();
        assert_eq!((first, second), (Err(Error::Interrupted), Err(Error::Interrupted)));
    });
    assert!(table.waiting().is_empty());
}

#[test]
fn commit_is_remembered_while_an_older_snapshot_lives() {
    let table = table();
    let mut a = table.owner(1);
    table.acquire(&mut a, 1, b"k", Mode::Exclusive, NOW).unwrap();
    table.acquire(&mut a, 1, b"read", Mode::Shared, NOW).unwrap();
    a.release(Some(17));
    let mut b = table.owner(2);
    let granted = table.acquire(&mut b, 1, b"k", Mode::Exclusive, NOW).unwrap();
    assert_eq!((granted.last_commit, granted.complete_since), (17, 0));
    let granted = table.acquire(&mut b, 1, b"read", Mode::Exclusive, NOW).unwrap();
    assert_eq!(granted.last_commit, 0, "a shared lock wrote nothing");
    b.release(None);
    table.prune(16);
    assert!(table.bytes() > 0);
    table.prune(17);
    assert_eq!(table.bytes(), 0);
}

#[test]
fn forgetting_for_memory_raises_the_floor() {
    let table = small(4000);
    for ts in 1..=200_u64 {
        let mut owner = table.owner(ts);
        table.acquire(&mut owner, 1, &ts.to_le_bytes(), Mode::Exclusive, NOW).unwrap();
        owner.release(Some(ts));
    }
    assert!(table.bytes() <= 4000, "{}", table.bytes());
    let mut owner = table.owner(1000);
    for ts in 1..=200_u64 {
        let granted = table.acquire(&mut owner, 1, &ts.to_le_bytes(), Mode::Shared, NOW).unwrap();
        assert!(granted.last_commit == ts || granted.complete_since >= ts, "commit {ts} is lost");
    }
}

#[test]
fn range_lock_keeps_keys_inside_and_only_those() {
    let table = table();
    let (mut a, mut b) = (table.owner(1), table.owner(2));
    let range =
        Range { lower: Bound::Included(b"b".to_vec()), upper: Bound::Excluded(b"d".to_vec()) };
    table.acquire_range(&mut a, 1, range.clone(), Mode::Shared, NOW).unwrap();
    table.acquire(&mut b, 1, b"a", Mode::Exclusive, NOW).unwrap();
    table.acquire(&mut b, 1, b"d", Mode::Exclusive, NOW).unwrap();
    table.acquire(&mut b, 2, b"c", Mode::Exclusive, NOW).unwrap();
    table.acquire(&mut b, 1, b"c", Mode::Shared, NOW).unwrap();
    assert!(table.acquire(&mut b, 1, b"b", Mode::Exclusive, NOW).is_err());
    assert!(table.acquire_range(&mut b, 1, range.clone(), Mode::Exclusive, NOW).is_err());
    assert!(table.acquire_range(&mut a, 1, range.clone(), Mode::Exclusive, NOW).is_err());
    a.release(None);
    table.acquire_range(&mut b, 1, range, Mode::Exclusive, NOW).unwrap();
    b.release(None);
    assert_eq!(table.bytes(), 0);
}

#[test]
fn range_request_waits_for_the_keys_inside() {
    let table = table();
    let mut a = table.owner(1);
    table.acquire(&mut a, 1, b"k", Mode::Exclusive, NOW).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut b = table.owner(2);
            table.acquire_range(&mut b, 1, Range::all(), Mode::Exclusive, LONG)
        });
        until_waiting(&table, 1);
        // The holder the range waits for is not queued behind it.
        table.acquire(&mut a, 1, b"l", Mode::Exclusive, NOW).unwrap();
        a.release(None);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn large_transaction_is_escalated_to_the_dictionary() {
    let table = small(20_000);
    let (mut a, mut b) = (table.owner(1), table.owner(2));
    for i in 0..5000_u64 {
        table.acquire(&mut a, 7, &i.to_be_bytes(), Mode::Exclusive, NOW).unwrap();
        assert!(table.bytes() <= 40_000);
    }
    assert_eq!(table.stats().escalations, 1);
    assert!(table.acquire(&mut b, 7, &3_u64.to_be_bytes(), Mode::Shared, NOW).is_err());
    assert!(table.acquire(&mut b, 7, b"never seen", Mode::Shared, NOW).is_err());
    table.acquire(&mut b, 8, b"k", Mode::Exclusive, NOW).unwrap();
    a.release(Some(5));
    let granted = table.acquire(&mut b, 7, &3_u64.to_be_bytes(), Mode::Shared, NOW).unwrap();
    assert!(granted.complete_since >= 5, "what an escalated transaction wrote is not known");
}

#[test]
fn full_table_refuses_where_others_prevent_escalation() {
    let table = small(10_000);
    let (mut a, mut b) = (table.owner(1), table.owner(2));
    table.acquire(&mut b, 7, b"other", Mode::Exclusive, NOW).unwrap();
    let refused = (0..5000_u64)
        .map(|i| table.acquire(&mut a, 7, &i.to_be_bytes(), Mode::Exclusive, NOW))
        .find_map(Result::err);
    assert!(matches!(refused, Some(Error::OutOfLocks { .. })), "{refused:?}");
    drop((a, b));
    assert_eq!(table.bytes(), 0);
}

/// Threads lock two or three keys in any order, upgrade some, and add to plain numbers under
/// them. Every cycle must be found (a timeout would mean one was missed or a wake-up lost), and
/// no addition may be lost.
#[test]
fn threads_in_any_order_lose_no_wake_up_and_no_update() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 400;
    let table = table();
    let cells: Vec<AtomicU64> = (0..5).map(|_| AtomicU64::new(0)).collect();
    let ids = AtomicU64::new(0);
    let added = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (table, cells, ids, added) = (&table, &cells, &ids, &added);
            scope.spawn(move || {
                let mut state = thread.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1;
                let mut next = move || {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state
                };
                let mut done = 0;
                while done < ROUNDS {
                    let mut owner = table.owner(ids.fetch_add(1, Ordering::Relaxed));
                    let keys: Vec<usize> =
                        (0..2 + next() % 2).map(|_| (next() % 5) as usize).collect();
                    let granted = keys.iter().try_for_each(|key| {
                        let id = [*key as u8];
                        if next() % 4 == 0 {
                            table.acquire(&mut owner, 1, &id, Mode::Shared, LONG)?;
                            std::thread::yield_now();
                        }
                        if next() % 50 == 0 {
                            let all = Range::all();
                            return table.acquire_range(&mut owner, 1, all, Mode::Exclusive, LONG);
                        }
                        table.acquire(&mut owner, 1, &id, Mode::Exclusive, LONG).map(|_| ())
                    });
                    match granted {
                        Ok(()) => {
                            for key in &keys {
                                let covered = owner.covers(1, &[*key as u8], Mode::Exclusive);
                                if covered || owner.held.iter().any(|held| held.id[8] == *key as u8)
                                {
                                    let seen = cells[*key].load(Ordering::Relaxed);
                                    std::thread::yield_now();
                                    cells[*key].store(seen + 1, Ordering::Relaxed);
                                    added.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                            done += 1;
                        }
                        Err(Error::Deadlock { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    let total: u64 = cells.iter().map(|cell| cell.load(Ordering::Relaxed)).sum();
    assert_eq!(total, added.load(Ordering::Relaxed));
    assert_eq!((table.bytes(), table.waiting().len()), (0, 0));
    assert!(table.shards.iter().all(|shard| shard.lock().entries.is_empty()));
}

/// What one transaction holds, by the plain rules.
#[derive(Default)]
struct Holds {
    keys: BTreeMap<u8, Mode>,
    ranges: Vec<(std::ops::Range<u8>, Mode)>,
}

impl Holds {
    fn covers(&self, wanted: &std::ops::Range<u8>, mode: Mode) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|(r, m)| *m >= mode && r.start <= wanted.start && r.end >= wanted.end)
    }

    /// Whether it is in the way of another that asks for these keys.
    fn refuses(&self, wanted: &std::ops::Range<u8>, mode: Mode) -> bool {
        let keys = self.keys.iter().filter(|(key, _)| wanted.contains(key)).map(|(_, m)| *m);
        let ranges = self.ranges.iter();
        let ranges = ranges.filter(|(r, _)| r.start < wanted.end && wanted.start < r.end);
        keys.chain(ranges.map(|(_, m)| *m)).any(|held| !held.compatible(mode))
    }
}

proptest! {
    /// Without waiting, the table grants keys and ranges exactly as the plain rules allow, in either of
    /// two dictionaries; what others do meanwhile in the one changes nothing in the other.
    #[test]
    fn grants_what_the_model_grants(
        steps in prop::collection::vec((0..4_u64, 0..2_u64, 0..8_u8, any::<bool>(), 0..9_u8), 1..300),
    ) {
        let table = small(1 << 20);
        let mut owners: BTreeMap<u64, _> = (0..4).map(|txn| (txn, table.owner(txn))).collect();
        let mut model: BTreeMap<(u64, u64), Holds> = BTreeMap::new();
        for (txn, dictionary, key, exclusive, what) in steps {
            if what == 0 {
                owners.insert(txn, table.owner(txn));
                model.retain(|(holder, _), _| *holder != txn);
                continue;
            }
            if what == 1 {
                // As the maintenance thread does each second.
                table.prune(u64::MAX);
            }
            let mode = if exclusive { Mode::Exclusive } else { Mode::Shared };
            let is_range = what >= 6;
            // An empty range is none; the other end may be beyond every key.
            let wanted = key..key + if is_range { what - 5 } else { 1 };
            let mut others = model.iter().filter(|((t, d), _)| *t != txn && *d == dictionary);
            let allowed = !others.any(|(_, holds)| holds.refuses(&wanted, mode));
            let own = model.entry((txn, dictionary)).or_default();
            // Holding more than asked for is granted whatever others hold: nobody can.
            let held = own.keys.get(&key).is_some_and(|held| *held >= mode);
            let covered = own.covers(&wanted, mode) || !is_range && held;
            let owner = owners.get_mut(&txn).unwrap();
            let granted = if is_range {
                let range =
                    span(Bound::Included(&[wanted.start]), Bound::Excluded(&[wanted.end]));
                table.acquire_range(owner, dictionary, range, mode, NOW).is_ok()
            } else {
                table.acquire(owner, dictionary, &[key], mode, NOW).is_ok()
            };
            prop_assert_eq!(granted, allowed || covered);
            if !granted || covered {
                continue;
            }
            if is_range {
                own.ranges.push((wanted, mode));
            } else {
                let held = own.keys.entry(key).or_insert(mode);
                *held = (*held).max(mode);
            }
        }
        owners.clear();
        prop_assert_eq!(table.bytes(), 0);
    }
}

#[test]
fn inverted_and_empty_ranges_hold_no_key() {
    let table = table();
    let (mut a, mut b) = (table.owner(1), table.owner(2));
    table.acquire(&mut a, 1, b"k", Mode::Exclusive, NOW).unwrap();
    for (lower, upper) in [
        (Bound::Included(b"z" as &[u8]), Bound::Excluded(b"a" as &[u8])),
        (Bound::Excluded(b"k"), Bound::Excluded(b"k")),
        (Bound::Excluded(b"k"), Bound::Included(b"k")),
    ] {
        table.acquire_range(&mut b, 1, span(lower, upper), Mode::Exclusive, NOW).unwrap();
    }
    drop((a, b));
    assert_eq!(table.bytes(), 0);
}

fn span(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Range {
    Range { lower: lower.map(<[u8]>::to_vec), upper: upper.map(<[u8]>::to_vec) }
}

#[test]
fn range_covers_what_lies_inside() {
    use Bound::{Excluded as Ex, Included as In, Unbounded};
    let range = span(In(b"b"), Ex(b"d"));
    for (lower, upper, covered) in [
        (In(b"b" as &[u8]), Ex(b"d" as &[u8]), true),
        (Ex(b"b"), In(b"c"), true),
        (In(b"b"), In(b"d"), false),
        (In(b"a"), Ex(b"d"), false),
        (Unbounded, Ex(b"d"), false),
        (In(b"b"), Unbounded, false),
    ] {
        let other = span(lower, upper);
        assert_eq!(range.covers(&other), covered, "{other:?}");
        assert!(Range::all().covers(&other));
    }
}

#[test]
fn range_inside_one_that_is_held_costs_nothing() {
    let table = table();
    let mut a = table.owner(1);
    table.acquire_range(&mut a, 1, Range::all(), Mode::Shared, NOW).unwrap();
    let bytes = table.bytes();
    assert!(bytes > 0);
    let inside = span(Bound::Included(b"a"), Bound::Included(b"b"));
    table.acquire_range(&mut a, 1, inside.clone(), Mode::Shared, NOW).unwrap();
    table.acquire(&mut a, 1, b"a", Mode::Shared, NOW).unwrap();
    assert_eq!(table.bytes(), bytes);
    table.acquire_range(&mut a, 1, inside, Mode::Exclusive, NOW).unwrap();
    assert!(table.bytes() > bytes);
    a.release(None);
    assert_eq!(table.bytes(), 0);
}

#[test]
fn shared_ranges_escalate_to_a_shared_lock_on_the_dictionary() {
    let table = small(4 << 10);
    let (mut a, mut b) = (table.owner(1), table.owner(2));
    for number in 0..200_u32 {
        let key = number.to_be_bytes();
        let one = span(Bound::Included(&key), Bound::Included(&key));
        table.acquire_range(&mut a, 1, one, Mode::Shared, NOW).unwrap();
    }
    assert!(table.stats().escalations > 0);
    assert!(table.bytes() <= 4 << 10, "{} bytes", table.bytes());
    table.acquire(&mut b, 1, &7_u32.to_be_bytes(), Mode::Shared, NOW).unwrap();
    assert!(table.acquire(&mut b, 1, &8_u32.to_be_bytes(), Mode::Exclusive, NOW).is_err());
    b.release(None);
    a.release(None);
    assert_eq!(table.bytes(), 0);
}

#[test]
fn commits_without_the_table_are_told_of_until_every_snapshot_is_newer() {
    let table = table();
    let since = |table: &Arc<LockTable>, txn| {
        let mut owner = table.owner(txn);
        table.acquire(&mut owner, 1, b"a", Mode::Exclusive, NOW).unwrap().complete_since
    };
    assert_eq!(since(&table, 1), 0);
    table.not_remembered(9);
    table.not_remembered(7);
    assert_eq!(since(&table, 2), 9);
    table.prune(8);
    assert_eq!(since(&table, 3), 9);
    table.prune(9);
    assert_eq!(since(&table, 4), 0);
    let mut owner = table.owner(5);
    table.acquire(&mut owner, 1, b"b", Mode::Exclusive, NOW).unwrap();
    owner.release(Some(20));
    table.forget_commits();
    let mut owner = table.owner(6);
    let granted = table.acquire(&mut owner, 1, b"b", Mode::Exclusive, NOW).unwrap();
    assert_eq!((granted.last_commit, granted.complete_since), (0, 20));
}

/// What is called, counted.
fn counting() -> (os::Call, Arc<AtomicU64>) {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let call = move || {
        counted.fetch_add(1, Ordering::SeqCst);
    };
    (Arc::new(call), calls)
}

fn queue(
    table: &LockTable,
    owner: &mut crate::Locks,
    key: &[u8],
    timeout: Duration,
) -> Result<bool, Error> {
    let granted = table.acquire_or_queue(owner, 1, key, Mode::Exclusive, timeout)?;
    Ok(granted.is_some())
}

#[test]
fn queued_requests_are_granted_in_order_and_held_until_their_owner_ends() {
    let table = table();
    let (mut a, mut b, mut c) = (table.owner(1), table.owner(2), table.owner(3));
    assert!(queue(&table, &mut a, b"k", LONG).unwrap(), "it is free");
    assert!(!queue(&table, &mut b, b"k", LONG).unwrap());
    assert!(!queue(&table, &mut c, b"k", LONG).unwrap());
    assert_eq!(table.waiting().iter().map(|waiting| waiting.txn).collect::<Vec<_>>(), [2, 3]);
    let ((call, of_b), (other, of_c)) = (counting(), counting());
    table.call_when_settled(&b, call);
    table.call_when_settled(&c, other);
    assert!(!queue(&table, &mut c, b"k", LONG).unwrap(), "asked again it keeps its place");
    a.release(None);
    assert_eq!((of_b.load(Ordering::SeqCst), of_c.load(Ordering::SeqCst)), (1, 0));
    // Granted, whether its owner has looked or not.
    let mut d = table.owner(4);
    assert!(!table.acquire_at_once(&mut d, 1, b"k", Mode::Exclusive, NOW).unwrap());
    assert!(queue(&table, &mut b, b"k", LONG).unwrap());
    assert_eq!((b.held(), b.is_queued()), (1, false));
    b.release(None);
    assert_eq!(of_c.load(Ordering::SeqCst), 1);
    // It never asks for it, and holds it all the same.
    assert!(!table.acquire_at_once(&mut d, 1, b"k", Mode::Exclusive, NOW).unwrap());
    drop(c);
    assert!(table.acquire_at_once(&mut d, 1, b"k", Mode::Exclusive, NOW).unwrap());
    let (call, at_once) = counting();
    table.call_when_settled(&d, call);
    assert_eq!(at_once.load(Ordering::SeqCst), 1, "it waits for nothing");
    d.release(None);
    assert_eq!((table.bytes(), table.waiting().len(), table.held(9).len()), (0, 0, 0));
    assert_eq!(table.stats().waits, 2);
}

#[test]
fn queued_request_that_is_given_up_lets_those_behind_it_pass() {
    let table = table();
    let (mut a, mut b, mut c) = (table.owner(1), table.owner(2), table.owner(3));
    table.acquire(&mut a, 1, b"k", Mode::Exclusive, NOW).unwrap();
    let (call, of_c) = counting();
    for leaves in 0..3 {
        assert!(!queue(&table, &mut b, b"k", LONG).unwrap());
        assert!(!queue(&table, &mut c, b"k", LONG).unwrap());
        table.call_when_settled(&c, Arc::clone(&call));
        match leaves {
            // Another key.
            0 => assert!(queue(&table, &mut b, b"other", LONG).unwrap()),
            1 => {
                table.acquire(&mut b, 1, b"other", Mode::Exclusive, NOW).unwrap();
            }
            // The end of its owner.
            _ => drop(std::mem::replace(&mut b, table.owner(2))),
        }
        let waiting: Vec<_> = table.waiting().iter().map(|waiting| waiting.txn).collect();
        assert_eq!(waiting, [3], "{leaves}");
        drop(std::mem::replace(&mut a, table.owner(1)));
        assert_eq!(of_c.load(Ordering::SeqCst), leaves + 1);
        drop((
            std::mem::replace(&mut b, table.owner(2)),
            std::mem::replace(&mut c, table.owner(3)),
        ));
        table.acquire(&mut a, 1, b"k", Mode::Exclusive, NOW).unwrap();
    }
    drop(a);
    assert_eq!((table.bytes(), table.waiting().len()), (0, 0));
}

#[test]
fn queued_request_ends_with_its_time_by_a_kill_and_where_its_operation_may_not_wait() {
    let table = table();
    let (mut a, mut b) = (table.owner(1), table.owner(2));
    table.acquire(&mut a, 1, b"k", Mode::Exclusive, NOW).unwrap();
    let refused = queue(&table, &mut b, b"k", NOW).unwrap_err();
    assert_eq!(refused, Error::Timeout { waited_ms: 0, blocker: 1 });
    let short = Duration::from_millis(5);
    assert!(!queue(&table, &mut b, b"k", short).unwrap());
    assert!(b.waits_until().is_some());
    std::thread::sleep(short);
    let refused = queue(&table, &mut b, b"k", short).unwrap_err();
    assert!(matches!(refused, Error::Timeout { waited_ms: 5.., blocker: 1 }), "{refused}");
    assert_eq!((b.is_queued(), table.waiting().len()), (false, 0));
    assert!(!queue(&table, &mut b, b"k", LONG).unwrap());
    let (call, calls) = counting();
    table.call_when_settled(&b, call);
    table.interrupt(&b.interrupt());
    assert_eq!(calls.load(Ordering::SeqCst), 1, "a kill calls");
    assert_eq!(queue(&table, &mut b, b"k", LONG).unwrap_err(), Error::Interrupted);
    let mut c = table.owner(3);
    let may_wait = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let asked = Arc::clone(&may_wait);
    table.ask_while_waiting(move || asked.load(Ordering::SeqCst));
    assert!(!queue(&table, &mut c, b"k", LONG).unwrap());
    may_wait.store(false, Ordering::SeqCst);
    assert_eq!(queue(&table, &mut c, b"k", LONG).unwrap_err(), Error::Interrupted);
    drop((a, b, c));
    assert_eq!((table.bytes(), table.waiting().len()), (0, 0));
}

#[test]
fn key_that_was_granted_to_who_wants_another_one_is_open_again() {
    let table = table();
    let (mut a, mut b, mut c) = (table.owner(1), table.owner(2), table.owner(3));
    table.acquire(&mut a, 1, b"k", Mode::Exclusive, NOW).unwrap();
    table.acquire(&mut c, 1, b"other", Mode::Exclusive, NOW).unwrap();
    assert!(!queue(&table, &mut b, b"k", LONG).unwrap());
    a.release(None);
    assert!(!queue(&table, &mut b, b"other", LONG).unwrap());
    assert!(b.holds_nothing() && b.is_queued());
    let mut d = table.owner(4);
    assert!(table.acquire_at_once(&mut d, 1, b"k", Mode::Exclusive, NOW).unwrap());
    drop((b, c, d));
    assert_eq!((table.bytes(), table.waiting().len()), (0, 0));
}
