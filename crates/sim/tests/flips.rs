//! A bit flipped anywhere in any file, a block that lies where another belongs: detected and
//! named, or harmless; never returned as data.
//!
//! Every n-th byte and pair of blocks is tried; `FERN_FLIP_STEP=1` tries them all, which takes
//! some minutes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use engine::{
    Background, Compression, DictionaryId, DictionaryOptions, Direction, Durability, Engine, Error,
    KeyRange, Options, TxnOptions,
};
use os::sim::SimOs;
use os::{OpenOptions, Os};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use telemetry::Registry;
use testkit::Gen;

type Files = BTreeMap<PathBuf, Vec<u8>>;
type Contents = BTreeMap<(u64, Vec<u8>), Vec<u8>>;

const COMMITS: u64 = 120;
const BLOCK: usize = 4096;

fn options() -> Options {
    let mut options = Options::new("/data");
    options.cache_size = 8 << 20;
    options.fs_redzone_percent = 0;
    options.background = Background::Manual;
    options.checkpoint_period = Duration::ZERO;
    options.cleaner_period = Duration::ZERO;
    options.sizes.write_budget = 32 << 10;
    options.sizes.memtable_bytes = 4 << 10;
    options.sizes.chunk_bytes = 300;
    options.sizes.log_segment_bytes = 8 << 10;
    options.sizes.tiny_trees = true;
    options
}

fn open(os: &Os) -> engine::Result<Engine> {
    Engine::open(os.clone(), Arc::new(Registry::new()), options())
}

/// How a database ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    /// The process died with the last commit.
    Killed,
    /// It died when nothing had been written for a moment.
    KilledAtRest,
}

/// A database of three dictionaries, and what it holds after each commit.
fn build(end: End) -> (Files, Vec<Contents>) {
    let sim = SimOs::new(1);
    let engine = open(&sim.os()).unwrap();
    let mut random = Gen::new(1);
    let mut states = vec![Contents::new()];
    let mut ids = vec![DictionaryId::ROOT];
    for n in 1..=COMMITS {
        let mut state = states.last().cloned().unwrap_or_default();
        let mut txn = engine.begin(TxnOptions::default());
        if n == 10 || n == 20 {
            let compression = if n == 10 { Compression::None } else { Compression::Zlib(1) };
            let options = DictionaryOptions {
                compression,
                leaf_filter: n == 20,
                ..DictionaryOptions::default()
            };
            ids.push(txn.create_dictionary(options).unwrap());
        }
        for _ in 0..4 {
            let id = *random.pick(&ids).unwrap();
            let key = random.key(90);
            if random.one_in(5) {
                txn.delete(id, &key).unwrap();
                state.remove(&(id.0, key));
            } else {
                let most = if random.one_in(30) { 3000 } else { 120 };
                let value = random.value(most);
                txn.put(id, &key, &value).unwrap();
                state.insert((id.0, key), value);
            }
        }
        txn.commit(Durability::Synced).unwrap().durable().unwrap();
        states.push(state);
        let _ = engine.step().unwrap();
        if n == 60 || n == COMMITS - 15 {
            engine.checkpoint().unwrap();
        }
    }
    match end {
        End::Closed => engine.close().unwrap(),
        End::Killed => {}
        End::KilledAtRest => {
            for _ in 0..3 {
                sim.advance(Duration::from_millis(100));
                let _ = engine.step().unwrap();
            }
        }
    }
    let mut files = sim.files();
    files.retain(|path, _| !path.ends_with("fernd.lock"));
    (files, states)
}

fn is_used(block: &[u8]) -> bool {
    block.iter().any(|byte| *byte != 0)
}

fn disk(files: &Files) -> Os {
    let os = SimOs::new(2).os();
    for (path, bytes) in files {
        os.vfs.create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        let file = os.vfs.open(path, OpenOptions::create()).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        for (n, block) in bytes.chunks(BLOCK).enumerate().filter(|(_, block)| is_used(block)) {
            file.write_all_at(block, (n * BLOCK) as u64).unwrap();
        }
    }
    os
}

/// Everything there is, after the engine's own verification.
fn read(files: &Files) -> engine::Result<(u64, Contents)> {
    let engine = open(&disk(files))?;
    let mut found = Contents::new();
    let snapshot = engine.snapshot();
    for (id, _) in engine.dictionaries() {
        let mut cursor = snapshot.cursor(id, KeyRange::all(), Direction::Forward)?;
        while let Some((key, value)) = cursor.next()? {
            found.insert((id.0, key.to_vec()), value.to_vec());
        }
    }
    engine.verify_all()?;
    Ok((snapshot.timestamp().0, found))
}

/// What damage came to.
#[derive(Default, Debug)]
struct Verdicts {
    tried: u64,
    harmless: u64,
    named: u64,
    /// Passed for a torn tail: the last commits are missing, and nothing else.
    torn: u64,
}

impl Verdicts {
    /// `tail` is how many of the last commits may be gone: records that have nothing valid behind
    /// them, which would say that they were synced, end the log as a torn write does.
    fn judge(&mut self, files: &Files, states: &[Contents], tail: u64, what: &str) {
        self.tried += 1;
        match read(files) {
            Ok((at, found)) => {
                let newest = states.len() as u64 - 1;
                assert_eq!(found, states[at as usize], "{what}: commit {at} was not like this");
                assert!(at + tail >= newest, "{what}: {newest} commits became {at}");
                let torn = at < newest;
                self.torn += u64::from(torn);
                self.harmless += u64::from(!torn);
            }
            Err(error) => {
                let known = matches!(error, Error::Corruption(_) | Error::InvalidOption(_));
                assert!(known, "{what}: {error:?}");
                let text = error.to_string();
                let place = ["/data/", "log position", "checkpoint root", "segment"];
                assert!(place.iter().any(|place| text.contains(place)), "{what}: {text}");
                self.named += 1;
            }
        }
    }
}

fn step(default: usize) -> usize {
    std::env::var("FERN_FLIP_STEP").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn flips(end: End) {
    let (mut files, states) = build(end);
    let mut verdicts = Verdicts::default();
    verdicts.judge(&files, &states, 0, "undamaged");
    assert_eq!(verdicts.harmless, 1);
    let names: Vec<PathBuf> = files.keys().cloned().collect();
    for path in names {
        // Short files are flipped everywhere, long ones strewn, empty space seldom.
        let bytes = &files[&path];
        let mut places = Vec::new();
        for (n, block) in bytes.chunks(BLOCK).enumerate() {
            let stride = if bytes.len() < 100 { 1 } else { step(307) };
            let stride = if is_used(block) { stride } else { BLOCK };
            places.extend((0..block.len()).step_by(stride).map(|at| n * BLOCK + at));
        }
        for (n, at) in places.into_iter().enumerate() {
            let bit = 1 << (n % 8);
            files.get_mut(&path).unwrap()[at] ^= bit;
            let what = format!("bit {bit} of byte {at} of {}", path.display());
            verdicts.judge(&files, &states, u64::from(end == End::Killed), &what);
            files.get_mut(&path).unwrap()[at] ^= bit;
        }
    }
    assert!(verdicts.named > 50 && verdicts.harmless > 50, "{verdicts:?}");
}

#[test]
fn flipped_bit_after_a_clean_close_is_named_or_harmless() {
    flips(End::Closed);
}

#[test]
fn flipped_bit_after_a_crash_is_named_or_harmless() {
    flips(End::Killed);
}

/// Once a mark says that the last record was synced, no damage to it passes for a torn tail.
#[test]
fn flipped_bit_after_a_crash_while_idle_loses_nothing() {
    flips(End::KilledAtRest);
}

/// Blocks that are right in themselves, in the wrong place.
#[test]
fn block_in_the_place_of_another_is_named_or_harmless() {
    for end in [End::Closed, End::Killed] {
        let (mut files, states) = build(end);
        let mut verdicts = Verdicts::default();
        let names: Vec<PathBuf> = files.keys().cloned().collect();
        let is_log = |path: &&PathBuf| path.extension().is_some_and(|e| e == "fernlog");
        // The last one may be made ahead, of an old one's blocks: then the one before is in use.
        let newest_logs: Vec<PathBuf> =
            names.iter().rev().filter(is_log).take(2).cloned().collect();
        for path in names {
            // A whole block of the log in use: so many commits fit into one.
            let tail = if end == End::Killed && newest_logs.contains(&path) { 8 } else { 0 };
            let whole = files[&path].clone();
            let blocks: Vec<usize> = whole
                .chunks_exact(BLOCK)
                .enumerate()
                .filter_map(|(n, block)| is_used(block).then_some(n * BLOCK))
                .collect();
            let pairs = blocks.iter().flat_map(|from| blocks.iter().map(move |to| (*from, *to)));
            for (from, to) in pairs.filter(|(from, to)| from != to).step_by(step(13)) {
                let target = files.get_mut(&path).unwrap();
                target.copy_within(from..from + BLOCK, to);
                let what = format!("block at {from} on {to} of {}", path.display());
                verdicts.judge(&files, &states, tail, &what);
                files.insert(path.clone(), whole.clone());
            }
        }
        assert!(verdicts.named > 20, "{verdicts:?}");
    }
}
