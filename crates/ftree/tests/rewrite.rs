//! Rewriting: another shape for all of a tree, or order in what lies around, beside other work.
#![allow(clippy::unwrap_used, reason = "a test that meets an error fails")]

use blockfile::{BlockFile, Compression, Metrics, Options};
use cachetable::CacheTable;
use ftree::{
    Context, Direction, Effort, KeyRange, Message, Progress, Step, Tree, TreeOptions, Visibility,
    Walk,
};
use os::sim::SimOs;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn small() -> TreeOptions {
    TreeOptions {
        compression: Compression::None,
        page_size: 8 << 10,
        read_page_size: 1 << 10,
        fanout: 16,
        buffer_bytes: 32 << 10,
        ..TreeOptions::default()
    }
}

fn empty(options: TreeOptions) -> Arc<Tree> {
    let os = SimOs::new(4).os();
    os.vfs.create_dir_all(Path::new("/data")).unwrap();
    let metrics = Metrics::new(&telemetry::Registry::new());
    let (blocks, _) =
        BlockFile::open(&os, Path::new("/data"), Options::default(), metrics).unwrap();
    Tree::create(&Context::new(blocks, Arc::new(CacheTable::new(4 << 20))), 1, options)
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn scattered(number: u64, among: u64) -> u64 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % among
}

fn settle(tree: &Tree, visibility: &Visibility, effort: Effort) {
    while tree.work(visibility, effort).unwrap() != Progress::Idle {}
}

/// Writes commits `from..to`, some of them deletes, and drains them.
fn write(tree: &Tree, model: &mut Model, from: u64, to: u64, among: u64) {
    write_beside(&[], tree, model, from..to, among);
}

/// The same beside readers at these timestamps.
fn write_beside(live: &[u64], tree: &Tree, model: &mut Model, range: Range<u64>, among: u64) {
    let (from, to) = (range.start, range.end);
    for ts in from..to {
        let key = key(scattered(ts, among));
        if ts % 9 == 0 {
            tree.insert(&key, ts, Message::Delete);
            model.remove(&key);
        } else {
            let value = format!("value {ts} ").repeat(8).into_bytes();
            tree.insert(&key, ts, Message::Put(&value));
            model.insert(key, value);
        }
        if ts % 500 == 0 {
            tree.seal(ts);
            settle(tree, &Visibility::new(ts, live), Effort::Needed);
        }
    }
    tree.seal(to - 1);
    settle(tree, &Visibility::new(to - 1, live), Effort::Needed);
}

fn content(tree: &Arc<Tree>, ts: u64) -> Model {
    let mut cursor = tree.cursor(KeyRange::all(), ts, Direction::Forward);
    let mut found = Model::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        found.insert(key.to_vec(), value.to_vec());
    }
    found
}

/// Walks to the end; says how many bytes it passed.
fn rewrite(tree: &Tree, all: bool, visibility: &Visibility) -> u64 {
    let mut walk = Walk::new(all);
    let mut passed = 0;
    loop {
        match tree.rewrite(&mut walk, visibility).unwrap() {
            Step::Busy => std::thread::yield_now(),
            Step::Passed(bytes) => passed += bytes,
            Step::Ended(bytes) => return passed + bytes,
        }
    }
}

#[test]
fn every_shape_is_taken_on_and_nothing_is_lost() {
    let tree = empty(small());
    let mut model = Model::new();
    write(&tree, &mut model, 1, 6001, 3000);
    let plain = tree.stats();
    let shapes = [
        TreeOptions { compression: Compression::Zstd(19), ..small() },
        TreeOptions { page_size: 64 << 10, fanout: 64, ..small() },
        TreeOptions { page_size: 2 << 10, read_page_size: 512, ..small() },
        small(),
    ];
    for shape in shapes {
        tree.set_options(shape);
        let now = Visibility::newest_only(6000);
        let before = tree.stats().raw_bytes;
        assert!(rewrite(&tree, true, &now) <= before);
        assert!(content(&tree, 6000) == model);
        tree.verify().unwrap();
        let stats = tree.stats();
        assert_eq!(stats.buffered_bytes, 0, "everything is in leaves");
        assert_eq!(stats.disk_entries, model.len() as u64, "{shape:?}");
        let leaf = stats.raw_bytes / stats.leaves;
        assert!(leaf * 3 > shape.page_size && leaf < shape.page_size * 2, "{leaf} {shape:?}");
        match shape.compression {
            Compression::None => assert!(stats.stored_bytes > stats.raw_bytes / 2),
            _ => assert!(stats.stored_bytes * 3 < plain.stored_bytes, "{stats:?}"),
        }
        settle(&tree, &now, Effort::Idle);
        tree.verify().unwrap();
    }
}

#[test]
fn a_tidy_tree_is_left_as_it_is() {
    let tree = empty(small());
    let mut model = Model::new();
    write(&tree, &mut model, 1, 4001, 2000);
    let now = Visibility::newest_only(4000);
    rewrite(&tree, false, &now);
    let tidy = tree.stats();
    assert_eq!((tidy.buffered_bytes, tidy.disk_entries), (0, model.len() as u64));
    let segments = tree.segments();
    rewrite(&tree, false, &now);
    assert_eq!(tree.segments(), segments);
    write(&tree, &mut model, 4001, 4011, 2000);
    rewrite(&tree, false, &Visibility::newest_only(4010));
    let written = tree.stats().leaves_written - tidy.leaves_written;
    assert!((1..30).contains(&written), "{written} leaves for ten keys");
    assert!(content(&tree, 4010) == model);
    tree.verify().unwrap();
}

#[test]
fn snapshots_keep_their_versions_through_a_rewrite() {
    let tree = empty(small());
    let mut model = Model::new();
    write(&tree, &mut model, 1, 1001, 300);
    let then = model.clone();
    write_beside(&[1000], &tree, &mut model, 1001..3001, 300);
    let both = Visibility::new(3000, &[1000]);
    tree.set_options(TreeOptions { compression: Compression::Lz4, ..small() });
    rewrite(&tree, true, &both);
    assert!(content(&tree, 1000) == then && content(&tree, 3000) == model);
    tree.verify().unwrap();
}

#[test]
fn writers_readers_and_other_work_go_on_meanwhile() {
    let tree = empty(small());
    let mut model = Model::new();
    write(&tree, &mut model, 1, 5001, 4000);
    let (newest, stop) = (AtomicU64::new(5000), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let now = Visibility::newest_only(newest.load(Ordering::SeqCst));
                    if tree.work(&now, Effort::Needed).unwrap() == Progress::Idle {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let writer = scope.spawn(|| {
            for ts in 5001..9001 {
                let key = key(scattered(ts, 4000));
                let value = format!("later {ts} ").repeat(8).into_bytes();
                tree.insert(&key, ts, Message::Put(&value));
                model.insert(key, value);
                newest.store(ts, Ordering::SeqCst);
                if ts % 400 == 0 {
                    tree.seal(ts);
                }
            }
        });
        let sizes = [16 << 10, 4 << 10, 8 << 10];
        for page_size in sizes {
            tree.set_options(TreeOptions { page_size, ..small() });
            rewrite(&tree, true, &Visibility::newest_only(newest.load(Ordering::SeqCst)));
        }
        writer.join().unwrap();
        stop.store(true, Ordering::Relaxed);
    });
    tree.seal(9000);
    settle(&tree, &Visibility::newest_only(9000), Effort::Needed);
    assert!(content(&tree, 9000) == model);
    tree.verify().unwrap();
}
