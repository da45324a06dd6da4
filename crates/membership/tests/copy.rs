//! Copies of an engine's data over a source that breaks off, lies, and goes on writing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use engine::{
    Background, CopiedFile, DictionaryId, Direction, Durability, Engine, HistoryOptions, KeyRange,
    Options, TxnOptions, take_received,
};
use membership::copy::{
    Arrived, Beginning, CopyError, LogPlan, Outgoing, PART_BYTES, Part, Progress, PublicKey,
    Request, Source, Watch, receive,
};
use membership::{MemberId, SetDocument};
use os::Os;
use os::sim::{SimOs, Survival};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

fn options() -> Options {
    let mut options = Options::new("/data");
    options.cache_size = 32 << 20;
    options.background = Background::Manual;
    options.history = Some(HistoryOptions { bytes: 1 << 30, min_age: Duration::ZERO });
    options
}

fn open(os: &Os) -> Engine {
    open_with(os, options())
}

fn open_with(os: &Os, options: Options) -> Engine {
    Engine::open(os.clone(), Arc::new(telemetry::Registry::new()), options).unwrap()
}

/// With a master key that a letter tells apart; a space is none.
fn encrypted(letter: char) -> Options {
    let text = format!("{}=", letter.to_string().repeat(43));
    let master = || Arc::new(crypt::MasterKey::parse(text.as_bytes()).unwrap());
    Options { master: (letter != ' ').then(master), ..options() }
}

fn write(engine: &Engine, from: u32, to: u32) {
    for at in from..to {
        let mut txn = engine.begin(TxnOptions::default());
        // Not to be compressed.
        let mut number = u64::from(at).wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1;
        let value: Vec<u8> = std::iter::repeat_with(|| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (number >> 56) as u8
        })
        .take(50_000)
        .collect();
        txn.put(DictionaryId::ROOT, &at.to_be_bytes(), &value).unwrap();
        txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    }
}

fn count(engine: &Engine) -> u32 {
    let snapshot = engine.snapshot();
    let mut cursor =
        snapshot.cursor(DictionaryId::ROOT, KeyRange::all(), Direction::Forward).unwrap();
    let mut count = 0;
    while cursor.next().unwrap().is_some() {
        count += 1;
    }
    count
}

fn document() -> SetDocument {
    let config = bson::doc! { "_id": "rs", "members": [{ "_id": 0, "host": "h:1" }] };
    SetDocument::new(config, &[(0, MemberId(7))].into()).unwrap()
}

/// A source in the same process.
struct Near<'a> {
    engine: &'a Engine,
    held: Option<Outgoing>,
    /// It breaks off after so many parts.
    breaks_after: Option<u32>,
    /// Parts that come damaged.
    damages: Vec<u32>,
    reads: u32,
    /// What comes of the parts that were asked for, in order.
    asked: VecDeque<Result<Arrived, String>>,
    /// The most parts that were asked for and had not come.
    most_ahead: usize,
    /// Documents; one more is written with some parts.
    written: &'a Cell<u32>,
    /// How many of them there were when the log was looked at.
    copied: &'a Cell<u32>,
}

impl Near<'_> {
    fn read(&mut self, file: &CopiedFile, request: Request) -> Result<Arrived, String> {
        let Request { offset, length, known } = request;
        self.reads += 1;
        if self.breaks_after == Some(self.reads) {
            return Err("it breaks off".to_owned());
        }
        if self.reads.is_multiple_of(8) {
            let at = self.written.get();
            write(self.engine, at, at + 1);
            self.engine.checkpoint().unwrap();
            self.written.set(at + 1);
        }
        let held = self.held.as_ref().unwrap();
        assert!(held.part(file, offset, PART_BYTES + 1).is_none(), "parts are bounded");
        // As an answer, which has more than the part.
        let mut memory = vec![7; 3 + length + 5];
        let range = 3..3 + length;
        let part = held.part(file, offset, length).unwrap();
        let sum = part.read(&mut memory[range.clone()]).unwrap();
        if known == Some(sum) {
            return Ok(Arrived { memory: Vec::new(), part: Part::Known });
        }
        if self.damages.contains(&self.reads) {
            memory[3 + length / 2] ^= 4;
        }
        Ok(Arrived { memory, part: Part::Bytes(range, sum) })
    }
}

impl Source for Near<'_> {
    fn begin(&mut self) -> Result<Beginning, String> {
        self.held = None;
        let held = Outgoing::begin(self.engine).map_err(|error| error.to_string())?;
        let parts = held.parts().clone();
        let master = held.master();
        self.held = Some(held);
        Ok(Beginning { parts, master })
    }

    fn ask_part(&mut self, file: &CopiedFile, request: Request) -> Result<(), String> {
        let part = self.read(file, request);
        self.asked.push_back(part);
        self.most_ahead = self.most_ahead.max(self.asked.len());
        Ok(())
    }

    fn next_part(&mut self, _memory: Vec<u8>) -> Result<Arrived, String> {
        self.asked.pop_front().expect("a part is asked for before it comes")
    }

    fn log(&mut self, keys_for: Option<&PublicKey>) -> Result<LogPlan, String> {
        self.engine.sync().unwrap();
        self.copied.set(self.written.get());
        let held = self.held.as_ref().unwrap();
        let keys = match keys_for {
            Some(receiver) => held.data_keys_for(receiver),
            None => held.keys(),
        };
        let (files, keys) = (held.log(), keys.unwrap());
        Ok(LogPlan { files, document: document().encode().unwrap(), keys })
    }

    fn end(&mut self) {
        self.held = None;
    }
}

#[derive(Default)]
struct Looks(RefCell<Progress>);

impl Watch for Looks {
    fn has_ended(&self) -> bool {
        false
    }

    fn at(&self, progress: Progress) -> bool {
        *self.0.borrow_mut() = progress;
        false
    }
}

struct World {
    target: SimOs,
    engine: Engine,
    written: Cell<u32>,
    copied: Cell<u32>,
    looks: Looks,
}

impl World {
    fn new() -> Self {
        Self::of(options())
    }

    fn of(options: Options) -> Self {
        let engine = open_with(&SimOs::new(1).os(), options);
        write(&engine, 0, 600);
        engine.checkpoint().unwrap();
        Self {
            target: SimOs::new(2),
            engine,
            written: Cell::new(600),
            copied: Cell::default(),
            looks: Looks::default(),
        }
    }

    fn near(&self) -> Near<'_> {
        let (engine, written, copied) = (&self.engine, &self.written, &self.copied);
        Near {
            engine,
            held: None,
            breaks_after: None,
            damages: Vec::new(),
            reads: 0,
            asked: VecDeque::new(),
            most_ahead: 0,
            written,
            copied,
        }
    }

    fn receive(&self, source: &mut Near<'_>) -> Result<(), CopyError> {
        receive(&self.target.os(), &options(), MemberId(7), source, &self.looks)
    }

    /// The directory of the target opens as what was copied.
    fn check(&self, os: &Os) {
        assert!(take_received(os, &options()).unwrap());
        assert!(!take_received(os, &options()).unwrap(), "it is taken once");
        let copy = open(os);
        copy.verify_all().unwrap();
        assert_eq!(
            count(&copy),
            self.copied.get(),
            "all that was synced when the log was looked at"
        );
        write(&copy, 5000, 5001);
    }
}

#[test]
fn copy_takes_the_place_of_what_was_there() {
    let world = World::new();
    let os = world.target.os();
    let old = open(&os);
    write(&old, 9000, 9100);
    old.close().unwrap();
    drop(old);
    assert!(!take_received(&os, &options()).unwrap());
    let mut source = world.near();
    source.damages = vec![2, 3, 5, 17, 40];
    world.receive(&mut source).unwrap();
    assert!((4..=16).contains(&source.most_ahead), "{} parts ahead", source.most_ahead);
    world.check(&os);
}

#[test]
fn interrupted_copy_does_not_bring_the_same_twice() {
    let world = World::new();
    let mut received = 0;
    for broken in 1..=3 {
        let mut source = world.near();
        source.breaks_after = Some(16 * broken + 8);
        assert!(matches!(world.receive(&mut source), Err(CopyError::Source(_))));
        received += world.looks.0.take().received;
        assert!(!take_received(&world.target.os(), &options()).unwrap(), "it is not complete");
    }
    let before = received;
    world.receive(&mut world.near()).unwrap();
    let last = world.looks.0.take();
    received += last.received;
    assert!(before > 8 << 20 && last.done > 16 << 20, "{before} {last:?}");
    // What was written meanwhile is all that had to come again.
    let again = received.saturating_sub(last.done);
    assert!(again < 12 << 20, "{again} of {} bytes came again", last.done);
    world.check(&world.target.os());
}

#[test]
fn copy_is_written_behind_by_a_thread_where_there_are_threads() {
    let world = World::new();
    let directory = tempfile::tempdir().unwrap();
    let on_disk = Options { dir: directory.path().to_path_buf(), ..options() };
    let os = Os::real();
    // Broken off with parts asked for and parts unwritten; what was done by then is there.
    let mut source = world.near();
    source.breaks_after = Some(40);
    let broken = receive(&os, &on_disk, MemberId(7), &mut source, &world.looks);
    assert!(matches!(broken, Err(CopyError::Source(_))));
    let before = world.looks.0.take();
    assert!(before.done > 4 << 20 && before.done <= before.received, "{before:?}");
    let mut source = world.near();
    source.damages = vec![3, 20];
    receive(&os, &on_disk, MemberId(7), &mut source, &world.looks).unwrap();
    let last = world.looks.0.take();
    let again = (before.received + last.received).saturating_sub(last.done);
    assert!(again < 8 << 20, "{again} of {} bytes came again", last.done);
    assert_eq!(last.done, last.total);
    assert!(take_received(&os, &on_disk).unwrap());
    let copy = open_with(&os, on_disk);
    copy.verify_all().unwrap();
    assert_eq!(count(&copy), world.copied.get());
}

#[test]
fn part_that_never_comes_whole_ends_the_copy() {
    let world = World::new();
    let mut source = world.near();
    source.damages = (1..100).collect();
    assert!(matches!(world.receive(&mut source), Err(CopyError::Source(_))));
    assert!(!take_received(&world.target.os(), &options()).unwrap());
}

#[test]
fn crash_leaves_the_old_directory_or_the_new_one() {
    let (mut old_ones, mut new_ones) = (0, 0);
    for crash in (1..60).step_by(3) {
        let world = World::new();
        let old = open(&world.target.os());
        write(&old, 9000, 9002);
        old.close().unwrap();
        drop(old);
        world.receive(&mut world.near()).unwrap();
        world.target.crash_after(crash);
        let _crashed = take_received(&world.target.os(), &options());
        world.target.crash();
        let os = world.target.reboot_with(Survival::Random);
        // Each start goes on with what the one before began.
        if take_received(&os, &options()).unwrap() {
            old_ones += 1;
        } else {
            new_ones += 1;
        }
        let copy = open(&os);
        copy.verify_all().unwrap();
        assert_eq!(count(&copy), world.copied.get(), "crash at call {crash}");
    }
    assert!(old_ones > 0 && new_ones > 0, "{old_ones} {new_ones}");
}

#[test]
fn encrypted_data_is_copied_by_members_that_encrypt_and_plain_data_by_others() {
    let stored = |world: &World| world.target.files().len();
    for (source, target) in [('A', ' '), (' ', 'A')] {
        let world = World::of(encrypted(source));
        let before = stored(&world);
        let os = world.target.os();
        let refused =
            receive(&os, &encrypted(target), MemberId(7), &mut world.near(), &world.looks);
        let line = refused.unwrap_err().to_string();
        assert!(line.contains("all of them or none"), "{line}");
        assert_eq!(stored(&world), before, "nothing of it is written");
    }
    // With the same master key, and with another one.
    for target in ['A', 'Q'] {
        let world = World::of(encrypted('A'));
        let os = world.target.os();
        // It has keys of its own, which the copy's take the place of.
        drop(open_with(&os, encrypted(target)));
        receive(&os, &encrypted(target), MemberId(7), &mut world.near(), &world.looks).unwrap();
        assert!(take_received(&os, &encrypted(target)).unwrap());
        let other = if target == 'A' { 'Q' } else { 'A' };
        let registry = Arc::new(telemetry::Registry::new());
        let refused = Engine::open(os.clone(), registry, encrypted(other));
        assert!(refused.is_err(), "only its own master key opens it");
        let copy = open_with(&os, encrypted(target));
        copy.verify_all().unwrap();
        assert_eq!(count(&copy), world.copied.get());
        write(&copy, 5000, 5001);
    }
}
