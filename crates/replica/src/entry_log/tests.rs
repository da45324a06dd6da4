//! A log of entries over a disk that loses what was not synced: what a member has acknowledged is found again.

use super::*;
use os::Os;
use os::sim::{SimOs, Survival};
use quorum::{Descriptor, MemberId};
use std::collections::BTreeMap;
use std::path::Path;
use telemetry::Registry;
use testkit::Gen;
use wal::{Metrics, WalOptions};

const BASE: Position = Position { term: 1, index: 1 };

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Planted {
    Nothing,
    /// An acknowledgement does not wait for the sync.
    NotSynced,
    /// What takes the place of a tail is written behind it as if it followed.
    CutForgotten,
}

fn open(os: &Os) -> Result<(EntryLog, FoundEntries)> {
    let options = WalOptions {
        segment_bytes: 16 << 10,
        recycle: 1,
        buffer_bytes: 4 << 10,
        compress_from: 100,
    };
    let files = Wal::open(os, Path::new("/entries"), options, Metrics::new(&Registry::new()));
    EntryLog::open(written(files)?)
}

/// A log, and what it must hold.
struct Model {
    sim: SimOs,
    log: EntryLog,
    random: Gen,
    planted: Planted,
    configuration: Configuration,
    /// Behind `begun`.
    entries: BTreeMap<u64, (Entry, Vec<u8>)>,
    begun: Position,
    /// What was synced, and is so still.
    synced: u64,
    decided: u64,
    /// Entries before this one may be gone.
    needed: u64,
    /// No entry has an earlier term than this from here on: a place means one entry.
    term: u64,
}

impl Model {
    fn new(seed: u64, planted: Planted) -> Self {
        let sim = SimOs::new(seed);
        let (log, found) = open(&sim.os()).unwrap();
        assert!(found == FoundEntries::default() && !log.is_begun());
        let configuration = Configuration::of_voters([1, 2, 3].map(MemberId));
        log.begin(BASE, &configuration).unwrap();
        Self {
            sim,
            log,
            random: Gen::new(seed),
            planted,
            configuration,
            entries: BTreeMap::new(),
            begun: BASE,
            synced: BASE.index,
            decided: BASE.index,
            needed: BASE.index + 1,
            term: BASE.term,
        }
    }

    fn last(&self) -> Position {
        self.entries.last_key_value().map_or(self.begun, |(_, (entry, _))| entry.position())
    }

    fn append(&mut self, term: u64) {
        let term = term.max(self.term);
        let index = self.last().index + 1;
        let length =
            if self.random.one_in(8) { self.random.below(5000) } else { self.random.below(300) };
        let payload: Vec<u8> = (0..length).map(|_| self.random.below(256) as u8).collect();
        let records = Descriptor {
            last_ts: index,
            last_time: index,
            bytes: payload.len() as u32,
            checksum: crc32c::crc32c(&payload),
        };
        let (content, payload) = match payload.len() {
            0 => (Content::Fence, Vec::new()),
            _ => (Content::Records(records), payload),
        };
        let entry = Entry { term, index, content };
        self.log.append(&entry, &payload, self.decided).unwrap();
        self.entries.insert(index, (entry, payload));
    }

    fn step(&mut self) {
        let last = self.last();
        match self.random.below(20) {
            0 if last.index > self.decided => {
                let index = self.decided + 1 + self.random.below(last.index - self.decided);
                if self.planted != Planted::CutForgotten {
                    self.log.cut(index).unwrap();
                }
                self.entries.split_off(&index);
                self.synced = self.synced.min(index - 1);
                self.append(last.term + 1);
            }
            1..4 => {
                if self.planted != Planted::NotSynced {
                    self.log.sync().unwrap();
                }
                self.synced = last.index;
            }
            4 | 5 if self.synced > self.decided => {
                self.decided = self.synced;
                let at = self.log.position(self.decided).unwrap();
                let must = self.random.one_in(2);
                self.log.decide(at, &self.configuration, must).unwrap();
            }
            6 => {
                let index = self.random.below(self.decided + 1);
                self.log.forget_up_to(index).unwrap();
                self.needed = self.needed.max(index.min(self.decided) + 1);
            }
            7 if self.random.one_in(4) => {
                let at = Position {
                    term: self.term.max(last.term + 1),
                    index: last.index + 1 + self.random.below(50),
                };
                self.log.begin(at, &self.configuration).unwrap();
                self.entries.clear();
                (self.begun, self.synced, self.decided) = (at, at.index, at.index);
                self.needed = at.index + 1;
            }
            8 => self.check(),
            _ => self.append(last.term),
        }
    }

    /// Everything that is on disk and needed is read as it was written.
    fn check(&mut self) {
        for (entry, payload) in self.entries.values() {
            let at = entry.position();
            if at.index >= self.needed && at.index <= self.synced {
                assert_eq!(self.log.position(at.index), Some(at));
                let read = self.log.read(at.index).unwrap();
                assert!(
                    read.as_ref() == Some(&(entry.clone(), payload.clone())),
                    "{at:?}: {:?} is read, from {} on, needed from {}, synced up to {}, decided {}",
                    read.as_ref().map(|(e, p)| (e.position(), p.len())),
                    self.log.first(),
                    self.needed,
                    self.synced,
                    self.decided
                );
            }
        }
        let (low, high) = (self.needed.max(self.log.first()), self.synced + 1);
        let older = self.log.older().entries(low, high, 1000, u64::MAX);
        let expected: Vec<Entry> =
            self.entries.range(low..high.max(low)).map(|(_, (entry, _))| entry.clone()).collect();
        assert_eq!(older, expected);
    }

    /// The power goes.
    fn crash(&mut self) {
        self.sim.crash();
        let survival = if self.random.one_in(3) { Survival::Nothing } else { Survival::Random };
        let (log, found) = open(&self.sim.reboot_with(survival)).unwrap();
        self.log = log;
        let last = self.log.last().index;
        assert!(last >= self.synced, "{last} is found of {}", self.synced);
        assert!(found.decided.at.index <= self.decided && found.commit <= last);
        // What was not synced may be there, and may be what was cut off: consensus writes over it.
        self.check();
        self.term = self.term.max(self.log.last().term + 1);
        if last > self.synced {
            self.log.cut((self.synced + 1).max(found.decided.at.index + 1)).unwrap();
        }
        self.entries.split_off(&(self.synced + 1));
        // A start hands out again what is decided behind what it knows of.
        self.decided = found.decided.at.index;
    }
}

fn play(seed: u64, planted: Planted) {
    let mut model = Model::new(seed, planted);
    for _ in 0..6 {
        for _ in 0..120 {
            model.step();
        }
        model.crash();
    }
}

#[test]
fn what_was_synced_is_found_again() {
    for seed in 0..60 {
        play(seed, Planted::Nothing);
    }
}

#[test]
fn planted_bugs_are_found() {
    for planted in [Planted::NotSynced, Planted::CutForgotten] {
        let fails = |seed| std::panic::catch_unwind(|| play(seed, planted)).is_err();
        assert!((0..20).any(fails), "{planted:?} is not found");
    }
}

#[test]
fn the_log_stays_short_and_keeps_what_is_needed() {
    let mut model = Model::new(1, Planted::Nothing);
    for _ in 0..3000 {
        model.append(1);
    }
    model.log.sync().unwrap();
    let all = model.log.disk_bytes();
    model.log.shorten_to(64 << 10).unwrap();
    assert_eq!(model.log.disk_bytes(), all, "what is not known to be decided stays");
    let at = model.last();
    model.log.decide(at, &model.configuration, true).unwrap();
    model.log.forget_up_to(at.index).unwrap();
    assert_eq!(model.log.disk_bytes(), all, "nor goes anything before that is on disk");
    model.log.sync().unwrap();
    model.log.shorten_to(64 << 10).unwrap();
    let bytes = model.log.disk_bytes();
    assert!(bytes <= (64 << 10) + 3 * (16 << 10), "{bytes} of {all}");
    let first = model.log.first();
    assert!(first > 1000 && first < at.index, "{first}");
    assert_eq!(model.log.read(first).unwrap().map(|(entry, _)| entry.index), Some(first));
    assert_eq!(model.log.read(first - 1).unwrap(), None);
}

#[test]
fn damage_in_the_middle_is_an_error() {
    let mut model = Model::new(2, Planted::Nothing);
    for _ in 0..400 {
        model.append(1);
        model.log.sync().unwrap();
    }
    let vfs = model.sim.os().vfs;
    let names = vfs.list_dir(Path::new("/entries")).unwrap();
    let first = names.iter().min().unwrap();
    let file = vfs.open(&Path::new("/entries").join(first), os::OpenOptions::default()).unwrap();
    let mut bytes = [0; 64];
    let read = file.read_at(&mut bytes, 9000).unwrap();
    for byte in &mut bytes {
        *byte = !*byte;
    }
    file.write_all_at(&bytes[..read], 9000).unwrap();
    assert!(open(&model.sim.os()).is_err());
}

/// Consensus tells again what the log began behind: found by the replica's simulation (seed 801).
#[test]
fn what_is_decided_does_not_go_back() {
    let sim = SimOs::new(3);
    let (log, _) = open(&sim.os()).unwrap();
    let configuration = Configuration::of_voters([1, 2, 3].map(MemberId));
    let begun = Position { term: 2, index: 16 };
    log.begin(begun, &configuration).unwrap();
    log.decide(Position { term: 2, index: 15 }, &configuration, true).unwrap();
    assert_eq!(log.decided().at, begun);
    log.sync().unwrap();
    drop(log);
    let (_log, found) = open(&sim.os()).unwrap();
    assert_eq!(found.decided.at, begun);
}
