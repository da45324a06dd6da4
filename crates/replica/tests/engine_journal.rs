//! The journal over an engine, with threads: who commits while the role goes is told what became of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use engine::{
    Background, DictionaryId, DictionaryOptions, Engine, Error, HistoryOptions, OnConflict,
    Options, Showing, Timestamp, TxnOptions,
};
use os::Os;
use os::sim::SimOs;
use quorum::{Configuration, Content, Entry, MemberId, Position};
use replica::{
    EngineJournal, Journal, MAX_ENTRY_BYTES, Nobody, Observed, Observer, Payload, SyncMode,
};
use telemetry::Registry;

const ROOT: DictionaryId = DictionaryId::ROOT;
const THREADS: u64 = 4;

fn disk() -> Os {
    Os { vfs: SimOs::new(6).os().vfs, ..Os::real() }
}

fn voters() -> Configuration {
    Configuration::of_voters([1, 2, 3].map(MemberId))
}

fn open(os: &Os) -> Engine {
    let mut options = Options::new("/data");
    options.fs_redzone_percent = 0;
    options.background = Background::Threads;
    options.cache_size = 16 << 20;
    options.showing = Showing::Committed;
    options.history = Some(HistoryOptions { bytes: u64::MAX, min_age: Duration::ZERO });
    Engine::open(os.clone(), Arc::new(Registry::new()), options).unwrap()
}

fn journal(os: &Os, mode: SyncMode) -> EngineJournal<Nobody> {
    let engine = open(os);
    if engine.entries().last.index == 0 {
        let base = Position { term: 1, index: 1 };
        EngineJournal::<Nobody>::begin(&engine, base, &voters()).unwrap();
    }
    EngineJournal::new(engine, Nobody, mode).unwrap()
}

/// A leader's entry, of what is open.
fn entry(journal: &mut EngineJournal<Nobody>, term: u64) -> Option<Entry> {
    let content = Content::Records(journal.describe_open(MAX_ENTRY_BYTES)?);
    let index = journal.engine().entries().last.index + 1;
    let entry = Entry { term, index, content };
    journal.write_entry(&entry, 1).unwrap();
    Some(entry)
}

#[derive(Default)]
struct Outcomes {
    shown: BTreeSet<Vec<u8>>,
    void: BTreeSet<Vec<u8>>,
    refused: u64,
}

/// Commits, and waits for each commit, until it is told to stop.
fn client(engine: &Engine, thread: u64, stop: &AtomicBool) -> Outcomes {
    let mut told = Outcomes::default();
    for n in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let key = [thread.to_be_bytes(), u64::to_be_bytes(n)].concat();
        let mut txn =
            engine.begin_newest(TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: None });
        txn.put(ROOT, &key, &[7; 100]).unwrap();
        match txn.submit() {
            Ok(submitted) => {
                match submitted.wait() {
                    Ok(()) => told.shown.insert(key),
                    Err(Error::Overwritten) => told.void.insert(key),
                    Err(error) => panic!("{error}"),
                };
            }
            Err(Error::NotLeader) => {
                told.refused += 1;
                std::thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    }
    told
}

#[test]
fn who_commits_while_the_role_goes_is_told_what_became_of_it() {
    let os = disk();
    let mut journal = journal(&os, SyncMode::Inline);
    let engine = journal.engine().clone();
    let stop = AtomicBool::new(false);
    let told = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (engine, stop) = (&engine, &stop);
                scope.spawn(move || client(engine, thread, stop))
            })
            .collect();
        for round in 0..120 {
            let term = 2 + round;
            journal.lead().unwrap();
            let mut entries = Vec::new();
            for _ in 0..4 {
                std::thread::sleep(Duration::from_micros(300));
                entries.extend(entry(&mut journal, term));
            }
            // Some of it is decided, the rest another leader overwrites.
            let decided = entries.len() / (1 + round as usize % 3);
            journal.committed(&entries[..decided], &voters()).unwrap();
            journal.discard_open().unwrap();
            if let Some(first) = entries.get(decided) {
                journal.cut(first.index).unwrap();
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        journal.lead().unwrap();
        stop.store(true, Ordering::SeqCst);
        let all = clients.into_iter().map(|client| {
            while !client.is_finished() {
                if let Some(entry) = entry(&mut journal, 500) {
                    journal.committed(&[entry], &voters()).unwrap();
                }
                std::thread::yield_now();
            }
            client.join().unwrap()
        });
        all.collect::<Vec<_>>()
    });
    let snapshot = engine.snapshot();
    let (mut shown, mut void, mut refused) = (0, 0, 0);
    for Outcomes { shown: visible, void: overwritten, refused: no } in &told {
        let is_there = |key: &Vec<u8>| snapshot.get(ROOT, key).unwrap().is_some();
        assert!(visible.iter().all(is_there), "what was said to be visible is");
        assert!(!overwritten.iter().any(is_there), "what was said to be void is");
        (shown, void, refused) = (shown + visible.len(), void + overwritten.len(), refused + no);
    }
    assert!(
        shown > 50 && void > 20 && refused > 0,
        "{shown} shown, {void} void, {refused} refused"
    );
    engine.verify_all().unwrap();
    let last = engine.entries().last;
    journal.begin_sync(1).unwrap();
    assert_eq!(journal.synced().unwrap(), 1);
    drop((snapshot, journal));
    engine.close().unwrap();
    drop(engine);
    let again = self::journal(&os, SyncMode::Inline);
    assert_eq!(again.engine().entries().last, last);
    for Outcomes { shown, .. } in &told {
        let snapshot = again.engine().snapshot();
        assert!(shown.iter().all(|key| snapshot.get(ROOT, key).unwrap().is_some()));
    }
}

#[test]
fn a_thread_syncs_and_says_so() {
    let os = disk();
    let heard = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&heard);
    let tell = Arc::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let mut journal = journal(&os, SyncMode::Thread(Arc::clone(&os.spawner), tell));
    journal.lead().unwrap();
    let engine = journal.engine().clone();
    for number in 1..20 {
        let mut txn = engine.begin_newest(TxnOptions::default());
        txn.put(ROOT, &u64::to_be_bytes(number), b"value").unwrap();
        let submitted = txn.submit().unwrap();
        let entry = entry(&mut journal, 2).unwrap();
        // It can be sent while it is being synced.
        journal.begin_sync(number).unwrap();
        let payload = journal.payload(entry.position()).unwrap().unwrap();
        assert_eq!(payload.len() as u64, entry.record_bytes());
        while journal.synced().unwrap() < number {
            std::thread::yield_now();
        }
        journal.committed(&[entry], &voters()).unwrap();
        submitted.wait().unwrap();
    }
    assert!(heard.load(Ordering::SeqCst) > 0);
}

#[test]
fn payloads_that_cannot_be_are_refused_before_consensus_hears_of_them() {
    let os = disk();
    let mut journal = journal(&os, SyncMode::Inline);
    journal.lead().unwrap();
    let mut txn = journal.engine().begin_newest(TxnOptions::default());
    txn.put(ROOT, b"key", b"value").unwrap();
    let submitted = txn.submit().unwrap();
    let entry = entry(&mut journal, 2).unwrap();
    let payload = journal.payload(entry.position()).unwrap().unwrap();
    assert_eq!(journal.check(&entry.content, &payload), Ok(()));
    assert!(journal.check(&entry.content, &Payload::from(Vec::new())).is_err());
    assert!(journal.check(&Content::Fence, &payload).is_err());
    assert_eq!(journal.check(&Content::Fence, &Payload::from(Vec::new())), Ok(()));
    for end in 0..payload.len() {
        let cut = Payload::from(payload[..end].to_vec());
        assert!(journal.check(&entry.content, &cut).is_err(), "{end}");
    }
    let Content::Records(records) = entry.content else { panic!("{entry:?}") };
    let late = quorum::Descriptor { last_ts: records.last_ts + 1, ..records };
    assert!(journal.check(&Content::Records(late), &payload).is_err());
    drop(submitted);
}

/// Follows `ROOT`, and notes of how many commits and keys it was told.
#[derive(Default)]
struct Listening {
    commits: u64,
    keys: Vec<Vec<u8>>,
}

impl Observer for Listening {
    fn follows(&mut self, dictionary: DictionaryId) -> Observed<bool> {
        Ok(dictionary == ROOT)
    }

    fn read(&mut self, _: DictionaryId, key: &[u8], _: Option<&[u8]>) -> Observed<()> {
        self.keys.push(key.to_vec());
        Ok(())
    }

    fn before_visible(&mut self, _: Timestamp) -> Observed<bool> {
        self.commits += 1;
        Ok(false)
    }

    fn visible(&mut self, _: Timestamp) -> Observed<()> {
        Ok(())
    }
}

#[test]
fn an_observer_is_told_of_entries_that_write_to_what_it_follows() {
    let (leaders, followers) = (disk(), disk());
    let mut leader = journal(&leaders, SyncMode::Inline);
    leader.lead().unwrap();
    let engine = open(&followers);
    let base = Position { term: 1, index: 1 };
    EngineJournal::<Nobody>::begin(&engine, base, &voters()).unwrap();
    let mut follower = EngineJournal::new(engine, Listening::default(), SyncMode::Inline).unwrap();
    let options = TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: None };
    let mut txn = leader.engine().begin_newest(options);
    let other = txn.create_dictionary(DictionaryOptions::default()).unwrap();
    drop(txn.submit().unwrap());
    // What each entry's commits write to, and how many of them are told.
    let entries: [(&[DictionaryId], u64); 5] =
        [(&[other], 0), (&[ROOT], 1), (&[other, other], 0), (&[other, ROOT, other], 3), (&[], 0)];
    let mut told = 0;
    for (number, (written, of_these)) in entries.into_iter().enumerate() {
        for dictionary in written {
            let mut txn = leader.engine().begin_newest(options);
            txn.put(*dictionary, &[number as u8], b"value").unwrap();
            drop(txn.submit().unwrap());
        }
        // The first one has the commit that makes the dictionary, too.
        let Some(entry) = entry(&mut leader, 2) else { continue };
        let payload = leader.payload(entry.position()).unwrap().unwrap();
        let payload = Payload::from(payload.to_vec());
        follower.append(&entry, &payload, 1).unwrap();
        follower.apply_appended().unwrap();
        follower.committed(&[entry], &voters()).unwrap();
        told += of_these;
        assert_eq!(follower.observer().commits, told, "entry {number}");
    }
    assert_eq!(follower.observer().keys, [vec![1], vec![3]]);
    let visible = follower.engine().snapshot();
    assert_eq!(visible.get(other, &[3]).unwrap().as_deref(), Some(&b"value"[..]));
}
