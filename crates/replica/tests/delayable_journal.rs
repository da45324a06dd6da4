//! The journal of a member that is delayed, or was, or comes to be: entries of a leader come into it, one after the other,
//! and it is told what is decided and how late it is.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use engine::{
    Background, DictionaryId, Engine, HistoryOptions, OnConflict, Options, Showing, TxnOptions,
};
use os::Os;
use os::sim::SimOs;
use quorum::{Configuration, Content, Entry, MemberId, Position};
use replica::{
    DelayLog, DelayableJournal, EngineJournal, Journal, MAX_ENTRY_BYTES, Nobody, SyncMode,
};
use telemetry::Registry;

const ROOT: DictionaryId = DictionaryId::ROOT;
const DELAY: u32 = 3600;

fn disk(seed: u64) -> Os {
    Os { vfs: SimOs::new(seed).os().vfs, ..Os::real() }
}

fn voters() -> Configuration {
    Configuration::of_voters([1, 2, 3].map(MemberId))
}

fn engine(os: &Os) -> Engine {
    let mut options = Options::new("/data");
    options.fs_redzone_percent = 0;
    options.background = Background::Threads;
    options.cache_size = 16 << 20;
    options.showing = Showing::Committed;
    options.history = Some(HistoryOptions { bytes: u64::MAX, min_age: Duration::ZERO });
    let engine = Engine::open(os.clone(), Arc::new(Registry::new()), options).unwrap();
    if engine.entries().last.index == 0 {
        let base = Position { term: 1, index: 1 };
        EngineJournal::<Nobody>::begin(&engine, base, &voters()).unwrap();
    }
    engine
}

/// Makes entries, as a leader does.
struct Leader(EngineJournal<Nobody>);

impl Leader {
    fn new() -> Self {
        let mut journal = EngineJournal::new(engine(&disk(1)), Nobody, SyncMode::Inline).unwrap();
        journal.lead().unwrap();
        Self(journal)
    }

    fn next(&self, content: Content) -> Entry {
        Entry { term: 1, index: self.0.engine().entries().last.index + 1, content }
    }

    /// An entry whose only commit puts this key.
    fn put(&mut self, key: &str, bytes: usize) -> (Entry, Vec<u8>) {
        let options = TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: None };
        let mut txn = self.0.engine().begin_newest(options);
        // Logs have it as it is: it cannot be compressed.
        let next = |n: &u64| Some(n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        let noise = std::iter::successors(Some(1_u64), next);
        let value: Vec<u8> = noise.take(bytes).map(|n| (n >> 56) as u8).collect();
        txn.put(ROOT, key.as_bytes(), &value).unwrap();
        let _submitted = txn.submit().unwrap();
        let records = self.0.describe_open(MAX_ENTRY_BYTES).unwrap();
        self.close(Content::Records(records))
    }

    fn close(&mut self, content: Content) -> (Entry, Vec<u8>) {
        let entry = self.next(content);
        self.0.write_entry(&entry, 1).unwrap();
        let payload = self.0.payload(entry.position()).unwrap().unwrap().to_vec();
        self.0.committed(std::slice::from_ref(&entry), &voters()).unwrap();
        (entry, payload)
    }
}

struct Follower {
    os: Os,
    most_bytes: u64,
    journal: Option<DelayableJournal<Nobody>>,
    syncs: u64,
}

impl Follower {
    fn new(most_bytes: u64) -> Self {
        let mut follower = Self { os: disk(2), most_bytes, journal: None, syncs: 0 };
        follower.start();
        follower
    }

    /// Starts again, with all that was written.
    fn start(&mut self) {
        self.journal = None;
        let exists = self.os.vfs.exists("/data/delayed".as_ref()).unwrap();
        let beside = DelayLog { name: "delayed", exists, most_bytes: self.most_bytes };
        let journal = DelayableJournal::open(engine(&self.os), Nobody, SyncMode::Inline, beside);
        self.journal = Some(journal.unwrap());
    }

    fn journal(&mut self) -> &mut DelayableJournal<Nobody> {
        self.journal.as_mut().unwrap()
    }

    fn take(&mut self, (entry, payload): &(Entry, Vec<u8>)) {
        let number = self.syncs + 1;
        let journal = self.journal();
        journal.append(entry, &payload.clone().into(), 1).unwrap();
        journal.begin_sync(number).unwrap();
        journal.apply_appended().unwrap();
        assert_eq!(journal.synced().unwrap(), number, "it acknowledges at once");
        self.syncs = number;
    }

    fn decide(&mut self, entries: &[&(Entry, Vec<u8>)]) {
        let entries: Vec<Entry> = entries.iter().map(|(entry, _)| entry.clone()).collect();
        self.journal().committed(&entries, &voters()).unwrap();
    }

    /// Everything that is due so many seconds from now, as memory has room for it.
    fn pass(&mut self, seconds: i64) {
        let wall_ms = self.os.clock.wall_ms() + seconds * 1000;
        loop {
            let has_room = self.journal().engine().has_room_for_entries(0);
            if !self.journal().show_due(wall_ms).unwrap() && has_room {
                return;
            }
            if !has_room {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn shows(&mut self) -> String {
        let snapshot = self.journal().engine().snapshot();
        let all = engine::KeyRange::all();
        let mut cursor = snapshot.cursor(ROOT, all, engine::Direction::Forward).unwrap();
        let mut keys = Vec::new();
        while let Some((key, _)) = cursor.next().unwrap() {
            keys.push(String::from_utf8(key.to_vec()).unwrap());
        }
        keys.join(" ")
    }

    /// What consensus is given by a start: the place behind which entries are decided again, and the last one.
    fn loaded(&mut self) -> (u64, u64) {
        let loaded = self.journal().load().unwrap();
        assert_eq!(loaded.configuration, voters());
        assert_eq!(loaded.base.index, loaded.applied);
        assert!(loaded.commit >= loaded.applied);
        let last = loaded.entries.last().map_or(loaded.applied, |entry| entry.index);
        (loaded.applied, last)
    }
}

#[test]
fn what_is_decided_is_shown_when_it_is_old_enough() {
    let (mut leader, mut follower) = (Leader::new(), Follower::new(u64::MAX));
    follower.journal().set_delay(DELAY);
    let (a, b) = (leader.put("a", 10), leader.put("b", 10));
    follower.take(&a);
    follower.decide(&[&a]);
    follower.take(&b);
    follower.pass(0);
    assert_eq!(follower.shows(), "");
    let held_back = follower.journal().held_back().unwrap();
    assert_eq!((held_back.entries, held_back.seconds, held_back.is_short), (1, DELAY, false));
    assert!(held_back.bytes > 0);
    // What is not decided is not shown however old it is.
    follower.pass(i64::from(DELAY) + 2);
    assert_eq!(follower.shows(), "a");
    // Over a restart; nothing is shown before the delay is known.
    follower.start();
    assert_eq!(follower.loaded(), (1, 3));
    assert_eq!(follower.shows(), "a");
    follower.decide(&[&a, &b]);
    follower.pass(i64::from(DELAY) + 2);
    assert_eq!(follower.shows(), "a");
    follower.journal().set_delay(DELAY);
    follower.pass(0);
    assert_eq!(follower.shows(), "a");
    assert_eq!(follower.journal().payload(b.0.position()).unwrap().as_deref(), Some(&b.1[..]));
    assert_eq!(follower.journal().payload(a.0.position()).unwrap().as_deref(), Some(&a.1[..]));
    assert!(!follower.journal().takes_writes());
    follower.pass(i64::from(DELAY) + 2);
    assert_eq!(follower.shows(), "a b");
}

#[test]
fn a_delay_begins_and_ends_while_entries_come() {
    let (mut leader, mut follower) = (Leader::new(), Follower::new(u64::MAX));
    let entries: Vec<_> = ["a", "b", "c", "d", "e"].iter().map(|k| leader.put(k, 10)).collect();
    let [first, second, third, fourth, fifth] = entries.as_slice() else { unreachable!() };
    follower.journal().set_delay(0);
    follower.take(first);
    follower.take(second);
    follower.decide(&[first]);
    assert_eq!(follower.shows(), "a");
    // What is not decided goes into the log of entries, and is not in the engine any more.
    follower.journal().set_delay(DELAY);
    follower.take(third);
    assert_eq!(follower.journal().engine().entries().last.index, first.0.index);
    assert_eq!(
        follower.journal().payload(second.0.position()).unwrap().as_deref(),
        Some(&second.1[..])
    );
    follower.decide(&[second, third]);
    follower.pass(0);
    assert_eq!(follower.shows(), "a");
    follower.take(fourth);
    follower.start();
    assert_eq!(follower.loaded(), (first.0.index, fourth.0.index));
    follower.journal().set_delay(DELAY);
    // Another leader has something else in that place: here the same again.
    follower.journal().cut(fourth.0.index).unwrap();
    follower.take(fourth);
    follower.decide(&[second, third]);
    follower.take(fifth);
    // It ends: what is decided is shown, the rest is in the engine.
    follower.journal().set_delay(0);
    follower.pass(0);
    assert_eq!(follower.shows(), "a b c");
    assert!(follower.journal().takes_writes() && follower.journal().held_back().is_none());
    assert_eq!(follower.journal().engine().entries().last.index, fifth.0.index);
    follower.decide(&[fourth]);
    assert_eq!(follower.shows(), "a b c d");
    // The start finds that out by itself.
    follower.start();
    assert!(follower.journal().takes_writes());
    assert_eq!(follower.loaded().1, fifth.0.index);
    follower.decide(&[fourth, fifth]);
    assert_eq!(follower.shows(), "a b c d e");
    // And begins again.
    follower.journal().set_delay(DELAY);
    let sixth = leader.put("f", 10);
    follower.take(&sixth);
    follower.decide(&[&sixth]);
    follower.pass(0);
    assert_eq!(follower.shows(), "a b c d e");
    follower.journal().set_delay(1);
    follower.pass(3);
    assert_eq!(follower.shows(), "a b c d e f");
}

#[test]
fn where_there_is_no_room_the_oldest_is_shown_early_and_it_is_said() {
    let (mut leader, mut follower) = (Leader::new(), Follower::new(1 << 20));
    follower.journal().set_delay(DELAY);
    let mut shown = Vec::new();
    for n in 0..40 {
        let entry = leader.put(&format!("{n:02}"), 100_000);
        follower.take(&entry);
        follower.decide(&[&entry]);
        follower.pass(0);
        let held_back = follower.journal().held_back().unwrap();
        assert!(held_back.bytes <= 1 << 20, "{held_back:?}");
        shown.push((held_back.entries, follower.shows().split_whitespace().count()));
    }
    assert_eq!(shown[8], (9, 0), "there is room: {shown:?}");
    let (kept, of) = shown[39];
    assert!((8..12).contains(&kept) && of == 40 - kept as usize, "{shown:?}");
    assert_eq!(follower.shows().split_whitespace().last(), Some(&*format!("{:02}", of - 1)));
}

#[test]
fn a_member_that_goes_on_alone_has_all_that_it_held_back() {
    let (mut leader, mut follower) = (Leader::new(), Follower::new(u64::MAX));
    follower.journal().set_delay(DELAY);
    let (a, b) = (leader.put("a", 10), leader.put("b", 10));
    follower.take(&a);
    follower.decide(&[&a]);
    follower.take(&b);
    follower.start();
    while !follower.journal().take_in().unwrap() {}
    assert_eq!(follower.journal().engine().entries().last.index, b.0.index);
    follower.start();
    assert_eq!(follower.loaded().1, b.0.index);
    assert!(follower.journal().takes_writes());
}

#[test]
fn the_log_of_entries_lets_go_of_what_a_checkpoint_has_and_configurations_are_told() {
    let (mut leader, mut follower) = (Leader::new(), Follower::new(u64::MAX));
    follower.journal().set_delay(DELAY);
    let mut entries = Vec::new();
    for n in 0..40 {
        if n == 20 {
            let document = vec![1; 9];
            entries.push(leader.close(Content::Configuration { changes: Vec::new(), document }));
        }
        entries.push(leader.put(&format!("{n:02}"), 1 << 20));
    }
    for entry in &entries {
        follower.take(entry);
        follower.decide(&[entry]);
    }
    follower.pass(0);
    follower.journal().engine().checkpoint().unwrap();
    assert!(follower.journal().engine().entries().before.index < entries[0].0.index);
    follower.pass(i64::from(DELAY) + 2);
    follower.journal().engine().checkpoint().unwrap();
    let last = entries.last().unwrap().0.index;
    assert_eq!(follower.journal().engine().entries().before.index, last, "no change is in its way");
    for round in 0..8 {
        for n in 0..40 {
            let entry = leader.put(&format!("{n:02}"), 1 << 20);
            follower.take(&entry);
            follower.decide(&[&entry]);
            entries.push(entry);
        }
        follower.pass(i64::from(DELAY) + 9 + 9 * round);
        follower.journal().engine().checkpoint().unwrap();
        follower.pass(i64::from(DELAY) + 12 + 9 * round);
    }
    let files = follower.os.vfs.list_dir("/data/delayed".as_ref()).unwrap();
    let lengths = files.iter().map(|file| {
        follower.os.vfs.open(file, os::OpenOptions::read_only()).unwrap().len().unwrap()
    });
    assert!(lengths.sum::<u64>() < 180 << 20, "{files:?}");
    // What is left is enough.
    follower.start();
    follower.journal().set_delay(DELAY);
    assert_eq!(follower.loaded().1, entries.last().unwrap().0.index);
    assert_eq!(follower.shows().split_whitespace().count(), 40);
}
