//! A disk that fails: work is refused and tried again, damage is found and never returned.
#![allow(clippy::unwrap_used, reason = "a test that meets an error fails")]

use blockfile::{BlockFile, Metrics, Options};
use cachetable::CacheTable;
use ftree::{
    Context, Direction, Effort, Error, KeyRange, Message, Progress, Tree, TreeOptions, Visibility,
};
use os::sim::{Fault, SimOs};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "/data";
const FILE: &str = "/data/fern.data";

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn context(sim: &SimOs) -> Arc<Context> {
    let os = sim.os();
    os.vfs.create_dir_all(Path::new(DIR)).unwrap();
    let metrics = Metrics::new(&telemetry::Registry::new());
    let (blocks, _) = BlockFile::open(&os, Path::new(DIR), Options::default(), metrics).unwrap();
    Context::new(blocks, Arc::new(CacheTable::new(30_000)))
}

fn fill(tree: &Tree, model: &mut Model, round: u64) {
    for number in 0..300u64 {
        let key = format!("{:05}", (number * 7919 + round * 31) % 1000).into_bytes();
        let ts = round * 1000 + number + 1;
        let value = format!("{ts} ").repeat(3).into_bytes();
        tree.insert(&key, ts, Message::Put(&value));
        model.insert(key, value);
    }
    tree.seal(round * 1000 + 999);
}

/// Works until nothing is left to do; says how many calls failed.
fn settle(tree: &Tree) -> Result<u32, Error> {
    let visibility = Visibility::newest_only(u64::MAX - 1);
    let mut failures = 0;
    loop {
        match tree.work(&visibility, Effort::Needed) {
            Ok(Progress::Idle) => return Ok(failures),
            Ok(_) => {}
            Err(_) if failures < 3 => failures += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Reads everything both ways: right, or refused with the place of the damage.
fn read_all(tree: &Arc<Tree>, model: &Model) -> Result<(), Error> {
    for direction in [Direction::Forward, Direction::Backward] {
        let mut cursor = tree.cursor(KeyRange::all(), u64::MAX - 1, direction);
        let mut expected: Vec<_> = model.iter().collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        for (key, value) in expected {
            assert_eq!(cursor.next()?, Some((&key[..], &value[..])));
        }
        assert_eq!(cursor.next()?, None);
    }
    for (key, value) in model {
        assert_eq!(tree.get(key, u64::MAX - 1)?.as_deref(), Some(&value[..]));
    }
    Ok(())
}

#[test]
fn work_that_fails_changes_nothing_and_is_done_later() {
    let mut failed = 0;
    for fault in [Fault::NoSpace, Fault::Io, Fault::ShortWrite] {
        for n in (1..60).step_by(3) {
            let sim = SimOs::new(n);
            let context = context(&sim);
            let tree = Tree::create(&context, 3, TreeOptions::tiny());
            let mut model = Model::new();
            sim.fault_at(sim.syscalls() + n, fault);
            for round in 0..5 {
                fill(&tree, &mut model, round);
                failed += settle(&tree).unwrap();
                read_all(&tree, &model).unwrap();
            }
            tree.verify().unwrap();
            let segments = context.blocks.segments().len();
            assert_eq!(segments, tree.segments().len(), "half-written segments are gone");
        }
    }
    assert!(failed > 30, "only {failed} faults struck");
}

#[test]
fn disk_that_lies_about_a_write_is_caught() {
    let mut caught = 0;
    for fault in [Fault::WriteFlip, Fault::Misdirected, Fault::Dropped] {
        for n in (2..100).step_by(7) {
            let sim = SimOs::new(n);
            let context = context(&sim);
            let tree = Tree::create(&context, 3, TreeOptions::tiny());
            let mut model = Model::new();
            sim.fault_at(sim.syscalls() + n, fault);
            for round in 0..5 {
                fill(&tree, &mut model, round);
                let worked = settle(&tree);
                let read = read_all(&tree, &model);
                for result in [worked.map(|_| ()), read] {
                    match result {
                        Ok(()) => {}
                        Err(Error::Corruption { .. } | Error::Blocks(_)) => caught += 1,
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        }
    }
    assert!(caught > 20, "only {caught} lies were caught");
}

#[test]
fn flipped_bit_is_detected_and_never_returned() {
    let sim = SimOs::new(1);
    let context = context(&sim);
    let tree = Tree::create(&context, 3, TreeOptions { leaf_filter: true, ..TreeOptions::tiny() });
    let mut model = Model::new();
    for round in 0..4 {
        fill(&tree, &mut model, round);
        settle(&tree).unwrap();
    }
    let image = tree.image().unwrap();
    let content = sim.files()[Path::new(FILE)].clone();
    let written: Vec<usize> = (0..content.len()).filter(|at| content[*at] != 0).collect();
    let (mut state, mut found) = (1u64, 0);
    for _ in 0..400 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let at = (state >> 20) as usize % written.len();
        let (offset, bit) = (written[at] as u64, (state >> 8) as u8 % 8);
        sim.flip_bit(Path::new(FILE), offset, bit).unwrap();
        // A fresh cache, so that everything is read again.
        let fresh = Context::new(context.blocks.clone(), Arc::new(CacheTable::new(100_000)));
        let opened = Tree::open(&fresh, 3, tree.options(), image.bytes());
        let result = opened.and_then(|tree| {
            let verified = tree.verify().map(|_| ());
            let read = read_all(&tree, &model);
            // What a read trips over, verify finds too.
            assert!(read.is_ok() || verified.is_err());
            verified.and(read)
        });
        match result {
            Ok(()) => {}
            Err(Error::Corruption { .. } | Error::Blocks(blockfile::Error::Corruption { .. })) => {
                found += 1;
            }
            Err(other) => panic!("not a corruption: {other}"),
        }
        sim.flip_bit(Path::new(FILE), offset, bit).unwrap();
    }
    assert!(found > 30, "only {found} of 400 flips lay in live bytes");
    read_all(&tree, &model).unwrap();
}

#[test]
fn damage_below_stops_no_other_work_and_no_drain() {
    let sim = SimOs::new(1);
    let context = context(&sim);
    let tree = Tree::create(&context, 3, TreeOptions::tiny());
    let mut model = Model::new();
    for round in 0..4 {
        fill(&tree, &mut model, round);
        settle(&tree).unwrap();
    }
    // Whatever is on disk now is damaged in many places.
    let content = sim.files()[Path::new(FILE)].clone();
    let written: Vec<usize> = (0..content.len()).filter(|at| content[*at] != 0).collect();
    for at in written.iter().step_by(written.len() / 12) {
        sim.flip_bit(Path::new(FILE), *at as u64, 3).unwrap();
    }
    let visibility = Visibility::newest_only(u64::MAX - 1);
    let (mut failures, mut units) = (0, 0);
    for round in 4..12 {
        fill(&tree, &mut model, round);
        for effort in [Effort::Needed, Effort::Idle] {
            loop {
                match tree.work(&visibility, effort) {
                    Ok(Progress::Idle) => break,
                    Ok(_) => units += 1,
                    Err(_) => failures += 1,
                }
                assert!(failures < 200, "what is damaged is tried again and again");
            }
        }
        assert_eq!(tree.debt().sealed, 0, "memory is drained all the same");
    }
    assert!(failures > 0 && units > 15, "{failures} failures, {units} units");
    let damage = tree.damage();
    assert!(!damage.is_empty() && damage.len() <= failures, "{damage:?}");
    assert!(damage.iter().all(|what| what.contains("segment")), "{damage:?}");
    // What can still be read is right.
    let read = |key: &Vec<u8>| tree.get(key, u64::MAX - 1).ok();
    let right = model.iter().filter_map(|(key, value)| Some((read(key)?, value)));
    let mut count = 0;
    for (found, value) in right {
        assert_eq!(found.as_deref(), Some(&value[..]));
        count += 1;
    }
    assert!(count > 300, "only {count} of {} keys can be read", model.len());
}

#[test]
fn damaged_image_is_refused() {
    let sim = SimOs::new(1);
    let context = context(&sim);
    let tree = Tree::create(&context, 3, TreeOptions::tiny());
    let mut model = Model::new();
    for round in 0..4 {
        fill(&tree, &mut model, round);
        settle(&tree).unwrap();
    }
    let image = tree.image().unwrap();
    let open = |bytes: &[u8]| Tree::open(&context, 3, tree.options(), bytes);
    assert!(open(image.bytes()).is_ok());
    for at in 0..image.bytes().len() {
        let mut bad = image.bytes().to_vec();
        bad[at] ^= 1 << (at % 8);
        assert!(matches!(open(&bad), Err(Error::Corruption { .. })), "byte {at}");
        assert!(matches!(open(&bad[..at]), Err(Error::Corruption { .. })), "cut at {at}");
    }
    read_all(&tree, &model).unwrap();
}
