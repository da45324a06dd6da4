//! Spills against a model: rollbacks, cursors as of the moment they were opened, and spills laid
//! over a tree while it is written, drained and read.
#![allow(clippy::unwrap_used, reason = "a test that meets an error fails")]

use blockfile::{BlockFile, Metrics, Options};
use cachetable::CacheTable;
use ftree::{
    Context, Direction, Effort, KeyRange, Message, Progress, SpillTree, Tree, TreeOptions,
    Visibility, Written,
};
use os::sim::SimOs;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use testkit::Gen;

type Writes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

fn context() -> Arc<Context> {
    let os = SimOs::new(4).os();
    os.vfs.create_dir_all(Path::new("/data")).unwrap();
    let metrics = Metrics::new(&telemetry::Registry::new());
    let (blocks, _) =
        BlockFile::open(&os, Path::new("/data"), Options::default(), metrics).unwrap();
    Context::new(blocks, Arc::new(CacheTable::new(64 << 10)))
}

fn spill(context: &Arc<Context>, number: u64) -> SpillTree {
    SpillTree::create(context, 1 << 63 | number, TreeOptions::tiny(), 4 << 10)
}

fn range(random: &mut Gen) -> KeyRange {
    let mut bound = || match random.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(random.key(200)),
        _ => Bound::Excluded(random.key(200)),
    };
    KeyRange { lower: bound(), upper: bound() }
}

fn inside(range: &KeyRange, key: &[u8]) -> bool {
    let above = match &range.lower {
        Bound::Included(lower) => key >= &lower[..],
        Bound::Excluded(lower) => key > &lower[..],
        Bound::Unbounded => true,
    };
    let below = match &range.upper {
        Bound::Included(upper) => key <= &upper[..],
        Bound::Excluded(upper) => key < &upper[..],
        Bound::Unbounded => true,
    };
    above && below
}

fn check_walk(spill: &SpillTree, model: &Writes, range: &KeyRange, direction: Direction) {
    let mut expected: Vec<_> = model.iter().filter(|(key, _)| inside(range, key)).collect();
    if direction == Direction::Backward {
        expected.reverse();
    }
    let mut walk = spill.walk(7, range, direction);
    for (at, (key, value)) in expected.into_iter().enumerate() {
        let message = value.as_deref().map_or(Message::Delete, Message::Put);
        if at % 5 == 3 {
            walk.park();
        }
        if at % 7 == 2 {
            walk.seek(key).unwrap();
        }
        assert_eq!(walk.peek().unwrap(), Some((&key[..], message)));
        if at % 5 == 4 {
            // Parked on a write that was only looked at, it is found again.
            walk.park();
            assert_eq!(walk.peek().unwrap(), Some((&key[..], message)));
        }
        walk.pass();
    }
    assert_eq!(walk.peek().unwrap(), None);
}

#[test]
fn spill_agrees_with_a_map_through_rollbacks() {
    for seed in 0..6 {
        let mut random = Gen::new(seed);
        let context = context();
        let mut spill = spill(&context, seed);
        let mut model = Writes::new();
        let mut marks: Vec<(u64, Writes)> = Vec::new();
        for step in 0..1500 {
            match random.below(40) {
                0 => marks.push((spill.clock(), model.clone())),
                1 => {
                    if let Some((mark, before)) = marks.pop() {
                        spill.roll_back(mark).unwrap();
                        model = before;
                    }
                }
                2 => {
                    let range = range(&mut random);
                    check_walk(&spill, &model, &range, Direction::Forward);
                    check_walk(&spill, &model, &range, Direction::Backward);
                }
                // Another space, with the same keys.
                3..6 => spill.write(8, &random.key(200), Some(b"other"), true).unwrap(),
                _ => {
                    let key = random.key(200);
                    let value = (!random.one_in(4)).then(|| random.value(90));
                    spill.write(7, &key, value.as_deref(), true).unwrap();
                    model.insert(key, value);
                }
            }
            if step % 50 == 0 {
                let key = random.key(200);
                let found = spill.get(7, &key).unwrap().map(|written| match written {
                    Written::Value(value) | Written::Update(value) => Some(value.into_vec()),
                    Written::Deleted => None,
                });
                assert_eq!(found.as_ref(), model.get(&key));
            }
        }
        assert!(spill.memory_bytes() < 16 << 10, "{} bytes in memory", spill.memory_bytes());
        spill.settle().unwrap();
        check_walk(&spill, &model, &KeyRange::all(), Direction::Forward);
    }
}

#[test]
fn cursor_over_a_spill_does_not_meet_later_writes() {
    let context = context();
    let mut spill = spill(&context, 1);
    for number in 0..200_u64 {
        spill.write(7, &number.to_be_bytes(), Some(b"early"), false).unwrap();
    }
    let mut walk = spill.walk(7, &KeyRange::all(), Direction::Forward);
    let mut met = 0;
    while let Some((key, message)) = walk.peek().unwrap() {
        assert_eq!(message, Message::Put(b"early"));
        let key = key.to_vec();
        walk.pass();
        spill.write(7, &key, None, false).unwrap();
        spill.write(7, &[&key[..], b"new"].concat(), Some(b"late"), false).unwrap();
        met += 1;
    }
    assert_eq!(met, 200);
}

#[test]
fn dropped_spill_gives_its_space_back() {
    let context = context();
    let mut spill = spill(&context, 1);
    for number in 0..2000_u64 {
        spill.write(7, &number.to_be_bytes(), Some(&[1; 50]), true).unwrap();
    }
    spill.settle().unwrap();
    assert!(context.blocks.stats().segments > 10);
    let walk = spill.walk(7, &KeyRange::all(), Direction::Forward);
    drop(spill);
    assert!(context.blocks.stats().segments > 10, "a cursor still reads it");
    drop(walk);
    assert_eq!(context.blocks.stats().segments, 0);
}

/// Versions of every key, oldest first.
type Model = BTreeMap<Vec<u8>, Vec<(u64, Option<Vec<u8>>)>>;

fn at(model: &Model, ts: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let seen = model.iter().filter_map(|(key, versions)| {
        let (_, value) = versions.iter().rev().find(|(at, _)| *at <= ts)?;
        value.clone().map(|value| (key.clone(), value))
    });
    seen.collect()
}

fn check_tree(tree: &Arc<Tree>, model: &Model, ts: u64, random: &mut Gen) {
    let expected = at(model, ts);
    for direction in [Direction::Forward, Direction::Backward] {
        let range = if random.one_in(2) { KeyRange::all() } else { range(random) };
        let mut expected: Vec<_> = expected.iter().filter(|(key, _)| inside(&range, key)).collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        let mut cursor = tree.cursor(range, ts, direction);
        for (key, value) in expected {
            assert_eq!(cursor.next().unwrap(), Some((&key[..], &value[..])), "at {ts}");
            if random.one_in(20) {
                cursor.park();
            }
        }
        assert_eq!(cursor.next().unwrap(), None);
    }
    for _ in 0..10 {
        let key = random.key(200);
        let value = tree.get(&key, ts).unwrap().map(ftree::Value::into_vec);
        assert_eq!(value.as_ref(), expected.get(&key), "at {ts}");
    }
}

#[test]
fn adopted_spill_is_one_commit_before_while_and_after_it_is_drained() {
    let (mut between, mut pieces) = (0, 0);
    for seed in 0..8 {
        let mut random = Gen::new(100 + seed);
        let context = context();
        let tree = Tree::create(&context, 7, TreeOptions::tiny());
        let mut model = Model::new();
        for ts in 1..=120_u64 {
            if random.one_in(9) {
                let mut spill = spill(&context, ts);
                let mut writes = Writes::new();
                for _ in 0..random.below(300) {
                    let value = (!random.one_in(4)).then(|| random.value(60));
                    writes.insert(random.key(200), value);
                }
                for (key, value) in &writes {
                    spill.write(7, key, value.as_deref(), false).unwrap();
                }
                tree.adopt(&spill, 7, ts, ts - 1, || 0);
                for (key, value) in writes {
                    model.entry(key).or_default().push((ts, value));
                }
            } else {
                for _ in 0..random.below(8) {
                    let key = random.key(200);
                    let versions = model.entry(key.clone()).or_default();
                    if versions.last().is_some_and(|(last, _)| *last == ts) {
                        continue;
                    }
                    let value = (!random.one_in(4)).then(|| random.value(60));
                    let message = value.as_deref().map_or(Message::Delete, Message::Put);
                    tree.insert(&key, ts, message);
                    versions.push((ts, value));
                }
            }
            if random.one_in(4) {
                tree.seal(ts);
            }
            // Everything stays readable: nobody knows which snapshots the checks take.
            for _ in 0..random.below(3) {
                pieces += u64::from(matches!(
                    tree.work(&Visibility::newest_only(0), Effort::Needed).unwrap(),
                    Progress::Done(_)
                ));
            }
            between += u64::from(tree.debt().sealed > 1);
            check_tree(&tree, &model, ts, &mut random);
            check_tree(&tree, &model, 1 + random.below(ts), &mut random);
            if let Some((key, versions)) = model.iter().next_back() {
                let newest = versions.last().map(|(ts, value)| (*ts, value.is_none()));
                assert_eq!(tree.newest(key).unwrap(), newest);
            }
        }
        tree.seal(120);
        while tree.work(&Visibility::newest_only(0), Effort::Needed).unwrap() != Progress::Idle {}
        assert_eq!((tree.debt().sealed, tree.flushed_ts()), (0, 120));
        check_tree(&tree, &model, 60, &mut random);
        tree.verify().unwrap();
        let image = tree.image().unwrap();
        let orphans = context.blocks.stats().segments - tree.segments().len() as u64;
        assert_eq!(orphans, 0, "drained spills are gone");
        drop(image);
    }
    assert!(between > 50 && pieces > 500, "{between} layers, {pieces} units");
}
