//! Entries that the checkpoint has, which a start finds again in the log: for members that were away.

use crate::damage::{Files, disk};
use crate::held_back::{latest, member, put};
use crate::open;
use engine::{DictionaryId, Engine, EntryKind, Options, Sizes};
use os::sim::{SimOs, Survival};
use testkit::Gen;

const ROOT: DictionaryId = DictionaryId::ROOT;

type Read = Vec<(engine::EntryHead, Vec<u8>, Vec<u8>)>;

fn close(engine: &Engine, term: u64) {
    let last = engine.entries().last.index;
    let committed = engine.committed_index();
    engine.close_entry((term, last + 1), EntryKind::Records, b"", committed).unwrap().unwrap();
}

/// A leader at work: what the next entry gets is written before the entry before is closed; some commits are
/// longer than an entry, and some tails are cut off.
fn work(engine: &Engine, random: &mut Gen, rounds: u64) {
    for _ in 0..rounds {
        let term = engine.entries().last.term.max(2);
        for _ in 0..=random.below(3) {
            let mut txn = engine.begin_newest(latest());
            let length = if random.one_in(8) { 1500 } else { random.below(60) };
            for n in 0..=length / 200 {
                let key = format!("key {} {n}", random.below(50));
                txn.put(ROOT, key.as_bytes(), &random.value(length.min(200))).unwrap();
            }
            txn.submit().unwrap().state();
        }
        while engine.gather().is_some() {}
        put(engine, "next", "v");
        while engine.open_bytes() > 0 && engine.gather().is_some() {}
        engine.ungather();
        close(engine, term);
        let last = engine.entries().last.index;
        match random.below(8) {
            0 => {
                // Another leader has other entries.
                engine.forbid_writes();
                let committed = engine.committed_index();
                engine.cut(committed + 1 + random.below(last - committed + 1)).unwrap();
                let at = (term + 1, engine.entries().last.index + 1);
                engine.close_entry(at, EntryKind::Fence, b"", committed).unwrap().unwrap();
                engine.allow_writes();
            }
            1 => {
                let at = (term, last + 1);
                engine.close_entry(at, EntryKind::Configuration, b"members", 1).unwrap().unwrap();
                engine.apply_configuration(last + 1, b"members").unwrap();
            }
            2..5 => engine.commit_entries_up_to(last).unwrap(),
            _ => {}
        }
        let _ = engine.step().unwrap();
    }
}

fn begun(sim: &SimOs, options: Options) -> Engine {
    let engine = open(&sim.os(), options).unwrap();
    engine.begin_entries((1, 1), b"one").unwrap();
    engine
}

fn small() -> Options {
    let options = member();
    Options { sizes: Sizes { entry_bytes: 700, ..options.sizes }, ..options }
}

fn read(engine: &Engine, from: u64, to: u64) -> Read {
    (from..=to).map(|index| engine.read_entry(index).unwrap()).collect()
}

#[test]
fn entries_from_before_the_checkpoint_can_be_read_after_a_start() {
    for seed in 0..12 {
        let sim = SimOs::new(seed);
        let mut engine = begun(&sim, small());
        let mut random = Gen::new(seed);
        for _ in 0..3 {
            work(&engine, &mut random, 40);
            if random.one_in(2) {
                let last = engine.entries().last.index;
                engine.commit_entries_up_to(last).unwrap();
            }
            engine.checkpoint().unwrap();
            engine.sync().unwrap();
            let (bounds, committed) = (engine.entries(), engine.committed_index());
            assert_eq!(bounds.first_readable, 2, "seed {seed}");
            assert!(bounds.before.index > 2 && bounds.before.index <= committed);
            let all = read(&engine, 2, bounds.last.index);
            let os = sim.reboot_with(Survival::Nothing);
            drop(engine);
            engine = open(&os, small()).unwrap();
            // All of them, and nothing else of what is decided has changed.
            assert_eq!(engine.entries(), bounds, "seed {seed}");
            assert_eq!(engine.entry(1).map(|first| first.term), Some(1));
            let known = engine.committed_index();
            assert!((bounds.before.index..=committed).contains(&known), "seed {seed}");
            assert_eq!(read(&engine, 2, bounds.last.index), all, "seed {seed}");
            let heads = engine.entry_heads_from(3, 5);
            assert_eq!(heads[..], all[1..6].iter().map(|read| read.0).collect::<Vec<_>>()[..]);
            assert!(engine.entry_heads_from(1, 5).is_empty());
            engine.allow_writes();
        }
        engine.verify_all().unwrap();
    }
}

/// Works, takes a checkpoint behind the last entry, and closes; says which that is, and all entries.
fn closed_behind_a_checkpoint(sim: &SimOs, seed: u64, rounds: u64) -> (u64, Read) {
    let engine = begun(sim, small());
    work(&engine, &mut Gen::new(seed), rounds);
    let last = engine.entries().last.index;
    engine.commit_entries_up_to(last).unwrap();
    engine.checkpoint().unwrap();
    let all = read(&engine, 2, last);
    engine.close().unwrap();
    (last, all)
}

#[test]
fn a_start_looks_back_as_far_as_it_is_told() {
    let sim = SimOs::new(3);
    let (last, all) = closed_behind_a_checkpoint(&sim, 3, 150);
    let mut firsts = Vec::new();
    for bytes in [1, 1000, 1016, 5000, 20_000, 1 << 20] {
        let mut options = small();
        options.sizes.look_back_bytes = bytes;
        let engine = open(&sim.os(), options).unwrap();
        let bounds = engine.entries();
        assert_eq!((bounds.before.index, bounds.last.index), (last, last));
        let first = bounds.first_readable;
        assert_eq!(read(&engine, first, last)[..], all[first as usize - 2..], "{bytes}");
        // Its term is known, so that a leader can say what is before the first.
        let before = (first as usize).checked_sub(3).map_or(1, |at| all[at].0.term);
        assert_eq!(engine.entry(first - 1).map(|id| id.term), Some(before));
        assert!(engine.entry(first.saturating_sub(2)).is_none());
        firsts.push(first);
    }
    assert!(firsts.is_sorted_by(|left, right| left >= right), "{firsts:?}");
    assert!(firsts[0] > firsts[3] && firsts[3] > firsts[4] && firsts[4] > 2, "{firsts:?}");
    assert_eq!(firsts[5], 2);
}

#[test]
fn damage_before_the_checkpoint_ends_how_far_back_is_known() {
    let sim = SimOs::new(4);
    let (last, all) = closed_behind_a_checkpoint(&sim, 4, 120);
    let mut files: Files = sim.files();
    files.retain(|path, _| !path.ends_with("fernd.lock"));
    let is_log = |path: &&std::path::PathBuf| path.to_string_lossy().contains("journal");
    let logs: Vec<_> = files.keys().filter(is_log).cloned().collect();
    let (mut lost, mut refused) = (0, 0);
    for path in &logs[..2] {
        for at in (600..files[path].len()).step_by(701) {
            let mut damaged = files.clone();
            damaged.get_mut(path).unwrap()[at] ^= 0x41;
            // What a start has to replay is not before the checkpoint.
            let Ok(engine) = open(&disk(&damaged).os(), small()) else {
                refused += 1;
                continue;
            };
            let bounds = engine.entries();
            assert_eq!((bounds.before.index, bounds.last.index), (last, last));
            let first = bounds.first_readable;
            assert_eq!(read(&engine, first, last)[..], all[first as usize - 2..], "{at}");
            lost += u64::from(first > 2);
        }
    }
    assert!(refused == 0 && lost > 20, "{refused} refused, in {lost} something is lost");
}
