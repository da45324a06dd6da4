//! The log as the history: every commit once, in order, with its times and notes, over restarts and
//! crashes; as long as it is asked for, and no longer.

use crate::{open, tiny};
use engine::{
    DictionaryId, Durability, Engine, EngineTxn, Error, HistoryCommit, HistoryOperation,
    HistoryOptions, HistoryTail, Options, TxnOptions,
};
use os::Os;
use os::sim::{SimOs, Survival};
use std::collections::BTreeMap;
use std::time::Duration;
use testkit::Gen;

const ROOT: DictionaryId = DictionaryId::ROOT;
const ALL: HistoryOptions = HistoryOptions { bytes: u64::MAX, min_age: Duration::ZERO };

/// What the history says of a commit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct NotedCommit {
    timestamp: u64,
    times: (u64, u64),
    is_client_transaction: bool,
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    notes: Vec<Vec<u8>>,
}

fn with_history(history: HistoryOptions) -> Options {
    Options { history: Some(history), ..tiny() }
}

fn told(commit: &HistoryCommit) -> engine::Result<NotedCommit> {
    let mut told = NotedCommit {
        timestamp: commit.timestamp.0,
        times: (commit.time, commit.last_time()),
        is_client_transaction: commit.is_client_transaction,
        ..NotedCommit::default()
    };
    let mut operations = commit.operations();
    while let Some(operation) = operations.next()? {
        match operation {
            HistoryOperation::Put { key, value, .. } => {
                assert!(told.notes.is_empty(), "notes are behind the writes");
                told.writes.insert(key.to_vec(), Some(value.to_vec()));
            }
            HistoryOperation::Delete { key, .. } => {
                told.writes.insert(key.to_vec(), None);
            }
            HistoryOperation::Update { .. } => panic!("nobody has updated anything"),
            HistoryOperation::Note(note) => told.notes.push(note.to_vec()),
        }
    }
    Ok(told)
}

fn rest(tail: &mut HistoryTail) -> Vec<NotedCommit> {
    let mut all = Vec::new();
    while let Some(commit) = tail.next().unwrap() {
        all.push(told(&commit).unwrap());
    }
    all
}

fn everything(engine: &Engine) -> Vec<NotedCommit> {
    let history = engine.history().unwrap();
    let oldest = history.oldest_time().unwrap();
    rest(&mut history.read_after(oldest).unwrap())
}

/// A random transaction; every tenth one has several chunks, every thirtieth spills.
fn write(engine: &Engine, random: &mut Gen) -> engine::Result<(EngineTxn, NotedCommit)> {
    let mut txn = engine.begin(TxnOptions::default());
    let mut told =
        NotedCommit { is_client_transaction: random.one_in(3), ..NotedCommit::default() };
    let count = match random.below(30) {
        0 => 200,
        1..4 => 30,
        _ => 1 + random.below(4),
    };
    for n in 0..count {
        let key = random.key(500);
        if random.one_in(5) {
            txn.delete(ROOT, &key)?;
            told.writes.insert(key, None);
        } else {
            let value = random.value(60);
            txn.put(ROOT, &key, &value)?;
            told.writes.insert(key, Some(value));
        }
        if random.one_in(2) {
            let note = format!("note {n} of {}", txn.id()).into_bytes();
            txn.note(&note)?;
            told.notes.push(note);
        }
        if random.one_in(10) {
            let place = txn.savepoint();
            txn.put(ROOT, b"taken back", b"")?;
            txn.note(b"taken back")?;
            txn.rollback_to(place);
        }
    }
    if told.is_client_transaction {
        txn.set_client_transaction();
    }
    Ok((txn, told))
}

fn commit(engine: &Engine, random: &mut Gen, durability: Durability) -> NotedCommit {
    let (mut txn, mut told) = write(engine, random).unwrap();
    let span = 1 + random.below(5);
    txn.set_span(span as u32);
    let committed = txn.commit(durability).unwrap();
    told.times = (committed.time() + 1 - span, committed.time());
    told.timestamp = committed.durable().unwrap().0;
    told
}

#[test]
fn history_is_what_was_committed_over_restarts_and_checkpoints() {
    let sim = SimOs::new(1);
    let mut random = Gen::new(1);
    let mut engine = open(&sim.os(), with_history(ALL)).unwrap();
    let mut all: Vec<NotedCommit> = Vec::new();
    for n in 0..300_u64 {
        sim.advance(Duration::from_millis(100));
        all.push(commit(&engine, &mut random, Durability::Synced));
        match random.below(20) {
            0 => engine.checkpoint().unwrap(),
            1 => {
                engine.close().unwrap();
                drop(engine);
                engine = open(&sim.os(), with_history(ALL)).unwrap();
            }
            2 => {
                drop(engine);
                engine = open(&sim.os(), with_history(ALL)).unwrap();
            }
            _ => drop(engine.step().unwrap()),
        }
        if n % 37 == 0 {
            assert_eq!(everything(&engine), all);
        }
    }
    assert_eq!(everything(&engine), all);
    assert!(all.is_sorted_by(|left, right| left.times.1 < right.times.0), "times ascend");
    let seconds = sim.os().clock.wall_ms() as u64 / 1000;
    assert!(all.last().unwrap().times.1 >> 32 <= seconds, "they follow the wall clock");
    // From every time on, those that are later.
    let history = engine.history().unwrap();
    for at in (0..all.len()).step_by(7) {
        for time in [all[at].times.1, all[at].times.1 - 1, all[at].times.0 - 1] {
            if time < history.oldest_time().unwrap() {
                continue;
            }
            let mut tail = history.read_after(time).unwrap();
            let next = told(&tail.next().unwrap().unwrap()).map(|told| told.times);
            let expected = all.iter().find(|told| told.times.1 > time).unwrap().times;
            assert_eq!(next.unwrap(), expected, "behind {time}");
            if at + 1 == all.len() {
                break;
            }
        }
    }
}

#[test]
fn reader_follows_and_keeps_its_place() {
    let sim = SimOs::new(2);
    let mut random = Gen::new(2);
    let engine = open(&sim.os(), with_history(ALL)).unwrap();
    let history = engine.history().unwrap();
    let mut tail = history.read_after(history.durable_time()).unwrap();
    let (mut all, mut read) = (Vec::new(), Vec::new());
    for _ in 0..300 {
        match random.below(6) {
            0 => engine.sync().unwrap(),
            1 => {
                tail.park();
                assert_eq!(tail.memory_bytes(), 0);
            }
            2 => read.extend(rest(&mut tail)),
            3 => {
                let before = tail.position();
                if let Some(commit) = tail.next_within(200).unwrap() {
                    assert!(commit.time > before);
                    read.push(told(&commit).unwrap());
                }
            }
            _ => all.push(commit(&engine, &mut random, Durability::Buffered)),
        }
        assert!(all.starts_with(&read));
        assert!(read.last().is_none_or(|told| told.times.1 <= history.durable_time()));
    }
    engine.sync().unwrap();
    read.extend(rest(&mut tail));
    assert_eq!(read, all);
    assert_eq!(tail.position(), history.durable_time());
    assert!(tail.is_at_end());
}

#[test]
fn only_what_is_on_disk_is_told() {
    let sim = SimOs::new(3);
    let mut random = Gen::new(3);
    let engine = open(&sim.os(), with_history(ALL)).unwrap();
    let history = engine.history().unwrap();
    let before = history.durable_time();
    let mut tail = history.read_after(before).unwrap();
    let told = commit(&engine, &mut random, Durability::Buffered);
    assert_eq!(rest(&mut tail), []);
    assert_eq!((history.durable_time(), history.newest().1), (before, told.times.1));
    assert!(!history.wait_past(before, sim.os().clock.monotonic()));
    let second = commit(&engine, &mut random, Durability::Synced);
    assert_eq!(history.durable_time(), second.times.1);
    assert!(history.wait_past(before, Duration::ZERO));
    assert_eq!(rest(&mut tail), [told, second]);
}

#[test]
fn notes_alone_are_a_commit() {
    let sim = SimOs::new(4);
    let engine = open(&sim.os(), with_history(ALL)).unwrap();
    let mut txn = engine.begin(TxnOptions::default());
    txn.note(b"nothing happened").unwrap();
    let committed = txn.commit(Durability::Synced).unwrap();
    assert!(committed.time() > 0);
    committed.durable().unwrap();
    let all = everything(&engine);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].notes, [b"nothing happened"]);
    // A span alone is not.
    let mut txn = engine.begin(TxnOptions::default());
    txn.set_span(7);
    assert_eq!(txn.commit(Durability::Synced).unwrap().time(), 0);
    let mut long = engine.begin(TxnOptions::default());
    let note = vec![0; engine::MAX_NOTE_BYTES + 1];
    assert!(matches!(long.note(&note), Err(Error::TooLarge { .. })));
    long.note(&note[..1 << 20]).unwrap();
}

#[test]
fn engine_without_a_history_gives_no_times_and_breaks_it() {
    let sim = SimOs::new(5);
    let mut random = Gen::new(5);
    let engine = open(&sim.os(), tiny()).unwrap();
    assert!(engine.history().is_none());
    assert_eq!(
        write(&engine, &mut random).unwrap().0.commit(Durability::Synced).unwrap().time(),
        0
    );
    drop(engine);
    // It begins here.
    let engine = open(&sim.os(), with_history(ALL)).unwrap();
    assert_eq!(everything(&engine), []);
    let first = commit(&engine, &mut random, Durability::Synced);
    assert_eq!(everything(&engine), std::slice::from_ref(&first));
    drop(engine);
    let engine = open(&sim.os(), with_history(ALL)).unwrap();
    assert_eq!(
        everything(&engine),
        std::slice::from_ref(&first),
        "over a crash before any checkpoint"
    );
    drop(engine);
    for close in [false, true] {
        let engine = open(&sim.os(), tiny()).unwrap();
        write(&engine, &mut random)
            .unwrap()
            .0
            .commit(Durability::Synced)
            .unwrap()
            .durable()
            .unwrap();
        if close {
            engine.close().unwrap();
        }
        drop(engine);
        let engine = open(&sim.os(), with_history(ALL)).unwrap();
        let history = engine.history().unwrap();
        assert_eq!(everything(&engine), [], "what came between was not noted");
        for seen in [first.times.0 - 1, first.times.1] {
            let lost = history.read_after(seen);
            assert!(matches!(lost, Err(Error::HistoryLost)), "also for who had seen all");
        }
        history.read_after(history.durable_time()).unwrap();
        let next = commit(&engine, &mut random, Durability::Synced);
        assert!(next.times.0 > first.times.1, "times go on");
        drop((history, engine));
    }
}

#[test]
fn times_go_on_where_the_log_holds_no_commit_and_the_clock_was_set_back() {
    let sim = SimOs::new(6);
    let mut random = Gen::new(6);
    let engine = open(&sim.os(), with_history(HistoryOptions { bytes: 0, ..ALL })).unwrap();
    let last = commit(&engine, &mut random, Durability::Synced).times.1;
    engine.history().unwrap().raise(last + (1000 << 32));
    engine.close().unwrap();
    drop(engine);
    let engine = open(&sim.os(), with_history(ALL)).unwrap();
    let next = commit(&engine, &mut random, Durability::Synced).times.0;
    assert_eq!(next, last + (1000 << 32) + 1, "also behind what was only told");
}

/// Only the files that are asked for stay, however many checkpoints there are.
#[test]
fn history_is_as_long_as_it_is_asked_for() {
    for (bytes, min_age) in [(0, 0), (200 << 10, 0), (64 << 10, 3600)] {
        let sim = SimOs::new(7);
        let mut random = Gen::new(7);
        let kept = HistoryOptions { bytes, min_age: Duration::from_secs(min_age) };
        let engine = open(&sim.os(), with_history(kept)).unwrap();
        let history = engine.history().unwrap();
        let mut stale = history.read_after(history.durable_time()).unwrap();
        let mut all = Vec::new();
        for n in 0..1500 {
            sim.advance(Duration::from_millis(500));
            all.push(commit(&engine, &mut random, Durability::Synced));
            while engine.step().unwrap() {}
            if n % 10 == 0 {
                engine.checkpoint().unwrap();
            }
        }
        engine.checkpoint().unwrap();
        let stats = history.stats().unwrap();
        let found = everything(&engine);
        assert_eq!(found, all[all.len() - found.len()..], "the newest, without a gap");
        if min_age == 0 {
            let most = bytes + 80 * 1024;
            assert!(stats.bytes >= bytes && stats.bytes < most, "{stats:?} for {bytes}");
            assert!(matches!(stale.next(), Err(Error::HistoryLost)), "it was not read in time");
            let lost = history.read_after(all[0].times.0);
            assert!(matches!(lost, Err(Error::HistoryLost)));
        } else {
            assert_eq!(rest(&mut stale), all, "none of it is as old");
        }
        let went = all.len() - found.len();
        let last_that_went = went.checked_sub(1).map_or(0, |last| all[last].times.1);
        assert!(stats.oldest_time >= last_that_went && stats.oldest_time < found[0].times.0);
        // A shorter one from now on; then the disk is short.
        history.resize(HistoryOptions { bytes: 100 << 10, min_age: Duration::ZERO });
        engine.checkpoint().unwrap();
        assert!(history.stats().unwrap().bytes < 180 << 10);
        drop((stale, history, engine));
        let engine = open(&sim.os(), with_history(kept)).unwrap();
        let found = everything(&engine);
        assert_eq!(found, all[all.len() - found.len()..], "after a start");
    }
}

/// A crash anywhere: what is told afterwards is what survived.
#[test]
fn history_after_a_crash_is_what_survived() {
    let run = |os: &Os, all: &mut Vec<NotedCommit>| -> engine::Result<()> {
        let kept = HistoryOptions { bytes: 40 << 10, min_age: Duration::ZERO };
        let engine = open(os, with_history(kept))?;
        let mut random = Gen::new(8);
        for n in 0..60 {
            let (mut txn, mut told) = write(&engine, &mut random)?;
            txn.set_span(2);
            let durable = if n % 3 == 0 { Durability::Synced } else { Durability::Buffered };
            let before = engine.visible().timestamp().0;
            told.timestamp = before + 1;
            all.push(told);
            txn.commit(durable)?.durable()?;
            let _ = engine.step()?;
            if n % 8 == 7 {
                engine.checkpoint()?;
            }
        }
        Ok(())
    };
    let counted = SimOs::new(9);
    run(&counted.os(), &mut Vec::new()).unwrap();
    let calls = counted.syscalls();
    let step = if std::env::var("FERN_CRASH_STEP").is_ok() { 1 } else { 29 };
    for at in (1..=calls).step_by(step) {
        for survival in [Survival::Nothing, Survival::Random] {
            let sim = SimOs::new(9);
            sim.crash_after(at);
            let mut all = Vec::new();
            let ended = run(&sim.os(), &mut all);
            assert!(ended.is_err() || at + 5 > calls);
            sim.crash();
            let kept = HistoryOptions { bytes: 40 << 10, min_age: Duration::ZERO };
            let engine = open(&sim.reboot_with(survival), with_history(kept)).unwrap();
            let newest = engine.visible().timestamp().0;
            let found = everything(&engine);
            assert_eq!(found.last().map_or(0, |told| told.timestamp), newest, "crash at {at}");
            assert!(found.is_sorted_by(|left, right| left.times.1 < right.times.0));
            for told in &found {
                let expected = &all[told.timestamp as usize - 1];
                let same = NotedCommit { times: told.times, ..expected.clone() };
                assert_eq!(*told, same, "crash at {at}");
            }
            let firsts = found.windows(2).all(|two| two[0].timestamp + 1 == two[1].timestamp);
            assert!(firsts, "none is missing: crash at {at}");
        }
    }
}

/// Each file's end lies in the middle of a transaction that is longer than the file's rest.
#[test]
fn history_of_large_transactions_is_no_longer_either() {
    let sim = SimOs::new(8);
    let bytes = 48 << 10;
    let kept = HistoryOptions { bytes, min_age: Duration::ZERO };
    let engine = open(&sim.os(), with_history(kept)).unwrap();
    let history = engine.history().unwrap();
    let mut all = Vec::new();
    // Two at a time: the one's chunks lie among the other's.
    let mut others = engine.begin(TxnOptions::default());
    for n in 0..200_u32 {
        let mut txn = engine.begin(TxnOptions::default());
        for part in 0..20_u32 {
            let key = |kind: u8| [&[kind], &n.to_be_bytes()[..], &part.to_be_bytes()].concat();
            txn.put(ROOT, &key(1), &[7; 400]).unwrap();
            others.put(ROOT, &key(2), &[8; 200]).unwrap();
        }
        for txn in [std::mem::replace(&mut others, engine.begin(TxnOptions::default())), txn] {
            let mut txn = txn;
            txn.note(b"told").unwrap();
            all.push(txn.commit(Durability::Synced).unwrap().time());
        }
        while engine.step().unwrap() {}
        engine.checkpoint().unwrap();
        let stats = history.stats().unwrap();
        assert!(stats.bytes < bytes + 100 * 1024, "{stats:?} after {n}");
        let found = everything(&engine);
        let times: Vec<u64> = found.iter().map(|commit| commit.times.0).collect();
        assert_eq!(times, all[all.len() - times.len()..], "the newest, whole, without a gap");
        assert!(n < 20 || times.len() > 2, "some are there");
    }
}
