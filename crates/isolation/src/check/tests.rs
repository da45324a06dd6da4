//! Each anomaly in its smallest history; a store in memory that keeps its promise, and the same
//! store with each way of breaking it.

use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{HashMap, HashSet};

fn append(key: u64, value: u64) -> Op {
    Op::Append { key, value }
}

fn list(key: u64, seen: &[u64]) -> Op {
    Op::ReadList { key, seen: seen.to_vec() }
}

fn write(key: u64, value: u64) -> Op {
    Op::Write { key, value }
}

fn register(key: u64, seen: Option<u64>) -> Op {
    Op::ReadRegister { key, seen }
}

/// Transactions that all ran at the same time.
fn together(all: &[&[Op]]) -> Vec<RecordedTxn> {
    let txn = |(client, ops): (usize, &&[Op])| RecordedTxn {
        client: client as u32,
        begin: 0,
        end: 100,
        outcome: TxnOutcome::Committed,
        ops: ops.to_vec(),
    };
    all.iter().enumerate().map(txn).collect()
}

fn kinds(history: &[RecordedTxn]) -> Vec<Anomaly> {
    check(history).counts().into_keys().collect()
}

#[test]
fn good_history_has_no_finding() {
    let history = together(&[
        &[append(1, 1), list(1, &[1])],
        &[list(1, &[1]), append(1, 2), append(2, 1), list(1, &[1, 2])],
        &[list(2, &[1]), list(1, &[1, 2])],
        &[register(1, None), write(1, 7), register(1, Some(7))],
        &[register(1, Some(7)), write(1, 8)],
    ]);
    let report = check(&history);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!((report.happened, report.operations), (5, 13));
}

#[test]
fn transaction_that_misses_its_own_write_is_internal() {
    assert_eq!(kinds(&together(&[&[append(1, 1), list(1, &[])]])), [Anomaly::Internal]);
    assert_eq!(kinds(&together(&[&[write(1, 1), register(1, None)]])), [Anomaly::Internal]);
    let changed = together(&[&[append(1, 1)], &[list(1, &[]), list(1, &[1])]]);
    assert!(kinds(&changed).contains(&Anomaly::Internal));
}

#[test]
fn aborted_and_intermediate_and_invented_values_are_found() {
    let mut aborted = together(&[&[append(1, 1)], &[list(1, &[1])]]);
    aborted[0].outcome = TxnOutcome::Aborted;
    assert_eq!(kinds(&aborted), [Anomaly::AbortedRead]);
    let between = together(&[&[write(1, 1), write(1, 2)], &[register(1, Some(1))]]);
    assert!(kinds(&between).contains(&Anomaly::IntermediateRead));
    assert_eq!(kinds(&together(&[&[list(1, &[9])]])), [Anomaly::Garbage]);
    assert_eq!(kinds(&together(&[&[append(1, 9)], &[list(1, &[9, 9])]])), [Anomaly::Garbage]);
}

#[test]
fn lists_in_two_orders_are_incompatible() {
    let history =
        together(&[&[append(1, 1)], &[append(1, 2)], &[list(1, &[1, 2])], &[list(1, &[2])]]);
    assert!(kinds(&history).contains(&Anomaly::IncompatibleOrder));
}

#[test]
fn cycles_have_their_names() {
    let written = together(&[
        &[append(1, 1), append(2, 1)],
        &[append(1, 2), append(2, 2)],
        &[list(1, &[1, 2])],
        &[list(2, &[2, 1])],
    ]);
    assert!(kinds(&written).contains(&Anomaly::WriteCycle));
    let flow = together(&[&[append(1, 1), list(2, &[1])], &[append(2, 1), list(1, &[1])]]);
    assert_eq!(kinds(&flow), [Anomaly::CircularInformationFlow]);
    let skew = together(&[&[append(1, 1), append(2, 1)], &[list(1, &[1]), list(2, &[])]]);
    assert_eq!(kinds(&skew), [Anomaly::ReadSkew]);
    let write_skew = together(&[
        &[list(1, &[]), append(2, 1)],
        &[list(2, &[]), append(1, 1)],
        &[list(1, &[1]), list(2, &[1])],
    ]);
    let report = check(&write_skew);
    assert_eq!(report.counts().into_keys().collect::<Vec<_>>(), [Anomaly::WriteSkew]);
    assert_eq!(report.forbidden(Level::Snapshot).count(), 0);
    assert_eq!(report.forbidden(Level::Serializable).count(), 1);
}

#[test]
fn long_fork_is_not_snapshot_isolation() {
    // Two readers see two writes in different orders: rw edges, but never two in a row.
    let history = together(&[
        &[append(1, 1)],
        &[append(2, 1)],
        &[list(1, &[1]), list(2, &[])],
        &[list(1, &[]), list(2, &[1])],
    ]);
    assert_eq!(kinds(&history), [Anomaly::NonAdjacent]);
}

#[test]
fn two_that_replace_one_version_lose_an_update() {
    let history = together(&[
        &[write(1, 1)],
        &[register(1, Some(1)), write(1, 2)],
        &[register(1, Some(1)), write(1, 3)],
    ]);
    assert!(kinds(&history).contains(&Anomaly::LostUpdate));
    let lists = together(&[
        &[append(1, 1)],
        &[list(1, &[1]), append(1, 2)],
        &[list(1, &[1]), append(1, 3)],
        &[list(1, &[1, 2, 3])],
    ]);
    assert_eq!(kinds(&lists), [Anomaly::ReadSkew]);
}

#[test]
fn acknowledged_write_that_a_later_reader_misses_is_found() {
    let mut history = together(&[&[append(1, 1)], &[list(1, &[])]]);
    history[1].begin = 200;
    history[1].end = 300;
    assert_eq!(kinds(&history), [Anomaly::ReadSkew]);
    // Who heard nothing may have been too early, or never.
    history[0].outcome = TxnOutcome::Unknown;
    assert!(kinds(&history).is_empty());
}

#[test]
fn unknown_transaction_counts_once_it_was_seen() {
    let mut history = together(&[&[append(1, 1), append(2, 1)], &[list(1, &[1]), list(2, &[])]]);
    history[0].outcome = TxnOutcome::Unknown;
    assert_eq!(kinds(&history), [Anomaly::ReadSkew]);
}

/// How the store in memory fails its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// Each read sees what is newest then.
    NoSnapshot,
    /// Of two that write a key both commit; the later one writes over the earlier.
    NoConflicts,
    /// What a serializable transaction has read may change before it commits.
    NoReadLocks,
    /// What an aborted one wrote stays.
    KeepsAborted,
    /// A commit is forgotten, now and then.
    Forgets,
    /// A reader's snapshot is old, now and then.
    Stale,
}

/// Commits and the whole value each left, oldest first.
type Versions = Vec<(u64, Vec<u64>)>;

/// A multi-version store; a key is a list's or a register's.
#[derive(Default)]
struct Memory {
    versions: HashMap<(bool, u64), Versions>,
    now: u64,
}

impl Memory {
    fn at(&self, key: (bool, u64), snapshot: u64) -> Vec<u64> {
        let versions = self.versions.get(&key).map_or(&[][..], Vec::as_slice);
        let visible = versions.iter().rev().find(|(commit, _)| *commit <= snapshot);
        visible.map_or(Vec::new(), |(_, value)| value.clone())
    }
}

struct Running {
    txn: RecordedTxn,
    snapshot: u64,
    writes: HashMap<(bool, u64), Vec<u64>>,
    reads: HashSet<(bool, u64)>,
    left: u32,
}

/// A random history of that store, its transactions interleaved statement by statement.
fn simulate(seed: u64, level: Level, fault: Fault) -> Vec<RecordedTxn> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut store = Memory::default();
    let mut running: Vec<Option<Running>> = (0..6).map(|_| None).collect();
    let (mut history, mut clock, mut value) = (Vec::new(), 0, 0);
    for _ in 0..12_000 {
        clock += 1;
        let client = random.random_range(0..running.len());
        let Some(mut current) = running[client].take() else {
            let old = fault == Fault::Stale && random.random_ratio(1, 20);
            let snapshot = if old { store.now.saturating_sub(5) } else { store.now };
            let txn = RecordedTxn {
                client: client as u32,
                begin: clock,
                end: u64::MAX,
                outcome: TxnOutcome::Unknown,
                ops: Vec::new(),
            };
            let left = random.random_range(1..5);
            let (writes, reads) = (HashMap::new(), HashSet::new());
            running[client] = Some(Running { txn, snapshot, writes, reads, left });
            continue;
        };
        if current.left > 0 {
            current.left -= 1;
            let key = (random.random(), clock / 2000 * 4 + random.random_range(0..4));
            let snapshot = if fault == Fault::NoSnapshot { store.now } else { current.snapshot };
            let own = current.writes.get(&key).cloned();
            current.reads.insert(key);
            let mut seen = own.unwrap_or_else(|| store.at(key, snapshot));
            current.txn.ops.push(match (random.random::<bool>(), key.0) {
                (true, true) => list(key.1, &seen),
                (true, false) => register(key.1, seen.last().copied()),
                (false, is_list) => {
                    value += 1;
                    seen.push(value);
                    current.writes.insert(key, seen);
                    if is_list { append(key.1, value) } else { write(key.1, value) }
                }
            });
            running[client] = Some(current);
            continue;
        }
        let newer = |key: &(bool, u64)| {
            let newest = store.versions.get(key).and_then(|all| all.last());
            newest.is_some_and(|(commit, _)| *commit > current.snapshot)
        };
        let locks_reads = level == Level::Serializable && fault != Fault::NoReadLocks;
        let conflict = fault != Fault::NoConflicts
            && (current.writes.keys().any(newer) || locks_reads && current.reads.iter().any(newer));
        let aborts = conflict || random.random_ratio(1, 10);
        let lost = fault == Fault::Forgets && random.random_ratio(1, 30);
        if (!aborts || fault == Fault::KeepsAborted) && !lost {
            store.now += 1;
            for (key, whole) in current.writes {
                store.versions.entry(key).or_default().push((store.now, whole));
            }
        }
        current.txn.end = clock;
        current.txn.outcome = if aborts { TxnOutcome::Aborted } else { TxnOutcome::Committed };
        history.push(current.txn);
    }
    history
}

#[test]
fn snapshot_store_shows_write_skew_and_nothing_else() {
    let mut skewed = 0;
    for seed in 0..10 {
        let report = check(&simulate(seed, Level::Snapshot, Fault::None));
        let forbidden: Vec<_> = report.forbidden(Level::Snapshot).collect();
        assert!(forbidden.is_empty(), "seed {seed}: {forbidden:?}");
        skewed += report.findings.len();
    }
    assert!(skewed > 0, "a snapshot store that never skews was not tried hard enough");
}

#[test]
fn serializable_store_shows_nothing() {
    for seed in 0..10 {
        let report = check(&simulate(seed, Level::Serializable, Fault::None));
        assert!(report.findings.is_empty(), "seed {seed}: {:?}", report.findings);
    }
}

#[test]
fn each_planted_fault_is_caught_at_its_level() {
    use Fault::{Forgets, KeepsAborted, NoConflicts, NoReadLocks, NoSnapshot, Stale};
    let caught = |level, fault| check(&simulate(1, level, fault)).forbidden(level).count();
    for fault in [NoSnapshot, NoConflicts, KeepsAborted, Forgets, Stale] {
        assert!(caught(Level::Snapshot, fault) > 0, "{fault:?} was not noticed");
    }
    for fault in [NoReadLocks, NoConflicts, KeepsAborted, Forgets] {
        assert!(caught(Level::Serializable, fault) > 0, "{fault:?} was not noticed");
    }
}
