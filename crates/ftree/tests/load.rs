//! Sorting rows beyond memory, and trees that are filled in order, against a model.
#![allow(clippy::unwrap_used, reason = "a test that meets an error fails")]

use blockfile::{BlockFile, Metrics, Options};
use cachetable::CacheTable;
use ftree::{
    Context, Direction, Effort, KeyRange, Message, Progress, RowBounds, RowSorter, SortedRows,
    Tree, TreeLoader, TreeOptions, Visibility,
};
use os::sim::SimOs;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use testkit::Gen;

fn context() -> Arc<Context> {
    let os = SimOs::new(4).os();
    os.vfs.create_dir_all(Path::new("/data")).unwrap();
    let metrics = Metrics::new(&telemetry::Registry::new());
    let (blocks, _) =
        BlockFile::open(&os, Path::new("/data"), Options::default(), metrics).unwrap();
    Context::new(blocks, Arc::new(CacheTable::new(1 << 20)))
}

type Row = (Vec<u8>, Vec<u8>);

/// The rows of a space, read in so many parts at most.
fn rows(sorted: &SortedRows, space: u32, parts: usize) -> Vec<Row> {
    let between = sorted.split(space, parts).unwrap();
    assert!(between.len() < parts && between.is_sorted_by(|one, two| one < two), "{between:?}");
    let mut lower = None;
    let mut found = Vec::new();
    for upper in between.into_iter().map(Some).chain([None]) {
        let part = rows_within(sorted, space, &(lower, upper.clone()));
        if parts == 2 && sorted.bytes_of(space) > 100_000 {
            assert!(!part.is_empty(), "parts are about equal");
        }
        found.extend(part);
        lower = upper;
    }
    found
}

fn rows_within(sorted: &SortedRows, space: u32, bounds: &RowBounds) -> Vec<Row> {
    let mut walk = sorted.walk(space, bounds, 3000).unwrap();
    let mut found = Vec::new();
    while let Some((key, value)) = walk.next().unwrap() {
        found.push((key.to_vec(), value.to_vec()));
    }
    found
}

#[test]
fn rows_of_each_space_come_back_ascending_and_each_as_often_as_it_was_put_in() {
    for seed in 0..40 {
        let mut random = Gen::new(seed);
        let context = context();
        let before = context.blocks.stats().live_bytes;
        let budget = [0, 20_000, 100_000, 100 << 20][random.below(4) as usize];
        let mut sorter = RowSorter::create(&context, 1 << 63 | seed, TreeOptions::tiny(), budget);
        let mut model: BTreeMap<u32, Vec<Row>> = BTreeMap::new();
        let mut batches = Vec::new();
        let most = [10, 3000][random.below(2) as usize];
        for _ in 0..random.below(4000) {
            let space = random.below(3) as u32 * 7;
            let key = random.key(most);
            let long = if random.one_in(40) { 100_000 } else { 40 };
            let value = random.value(long);
            if sorter.put(space, &key, &value) {
                batches.push(sorter.take_batch());
            }
            // They are written whenever it suits.
            while !batches.is_empty() && random.one_in(100) {
                sorter.add(batches.remove(0).write().unwrap());
            }
            model.entry(space).or_default().push((key, value));
        }
        for batch in batches {
            sorter.add(batch.write().unwrap());
        }
        let sorted = sorter.finish();
        for space in [0, 7, 14, 3] {
            let mut found = rows(&sorted, space, [1, 2, 3, 50][random.below(4) as usize]);
            let bytes: usize = found.iter().map(|(key, value)| key.len() + value.len()).sum();
            assert_eq!(sorted.bytes_of(space), bytes as u64, "seed {seed}");
            assert!(found.is_sorted_by(|one, two| one.0 <= two.0), "seed {seed}");
            let mut expected = model.remove(&space).unwrap_or_default();
            found.sort();
            expected.sort();
            assert!(found == expected, "seed {seed}, space {space}");
        }
        drop(sorted);
        assert_eq!(context.blocks.stats().live_bytes, before, "nothing of it stays");
    }
}

fn contents(tree: &Arc<Tree>, ts: u64) -> Vec<Row> {
    let mut cursor = tree.cursor(KeyRange::all(), ts, Direction::Forward);
    let mut found = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        found.push((key.to_vec(), value.to_vec()));
    }
    found
}

#[test]
fn a_loaded_tree_holds_its_rows_from_their_timestamp_on_and_takes_writes() {
    for seed in 0..40 {
        let mut random = Gen::new(seed);
        let context = context();
        let options = TreeOptions { leaf_filter: random.one_in(2), ..TreeOptions::tiny() };
        let tree = Tree::create(&context, 7, options);
        let mut loader = TreeLoader::new(&tree, 5);
        let mut model = BTreeMap::new();
        for _ in 0..random.below(2000) {
            let long = if random.one_in(40) { 3000 } else { 40 };
            model.insert(random.key(1_000_000), random.value(long));
        }
        // As one, or parts of it by themselves.
        let mut part = TreeLoader::new(&tree, 5);
        for (key, value) in &model {
            part.add(key, value).unwrap();
            if random.one_in(200) {
                loader.append(std::mem::replace(&mut part, TreeLoader::new(&tree, 5))).unwrap();
            }
        }
        loader.append(part).unwrap();
        assert_eq!(loader.rows(), model.len() as u64);
        loader.finish().unwrap();
        tree.verify().unwrap();
        let expected: Vec<Row> = model.clone().into_iter().collect();
        assert!(contents(&tree, 5) == expected, "seed {seed}");
        assert!(contents(&tree, 4).is_empty(), "seed {seed}: rows before their timestamp");
        // It goes on as any other tree does.
        let mut now = model.clone();
        let mut written = BTreeSet::new();
        for _ in 0..random.below(300) {
            let old: Vec<_> = now.keys().cloned().collect();
            let key = match random.pick(&old) {
                Some(key) if random.one_in(2) => key.clone(),
                _ => random.key(1_000_000),
            };
            if !written.insert(key.clone()) {
                continue;
            }
            if now.remove(&key).is_some() {
                tree.insert(&key, 6, Message::Delete);
            } else {
                let value = random.value(40);
                tree.insert(&key, 6, Message::Put(&value));
                now.insert(key, value);
            }
        }
        let visibility = Visibility::newest_only(if random.one_in(2) { 0 } else { 6 });
        tree.seal(6);
        while let Progress::Done(_) = tree.work(&visibility, Effort::Needed).unwrap() {}
        tree.verify().unwrap();
        let image = tree.image().unwrap();
        let again = Tree::open(&context, 7, options, image.bytes()).unwrap();
        for tree in [&tree, &again] {
            let expected: Vec<Row> = now.clone().into_iter().collect();
            assert!(contents(tree, 6) == expected, "seed {seed}");
        }
    }
}

#[test]
fn what_is_not_finished_leaves_nothing() {
    let context = context();
    let before = context.blocks.stats().live_bytes;
    let tree = Tree::create(&context, 7, TreeOptions::tiny());
    let mut loader = TreeLoader::new(&tree, 5);
    for number in 0..5000_u32 {
        loader.add(&number.to_be_bytes(), &[7; 40]).unwrap();
    }
    assert!(context.blocks.stats().live_bytes > before);
    drop(loader);
    assert!(contents(&tree, 9).is_empty());
    assert_eq!(context.blocks.stats().live_bytes, before);
}
