//! What reads of keys with updates that wait above their base pay for, and when a flush has paid for itself.
#![allow(clippy::unwrap_used, reason = "a test that meets an error fails")]

use blockfile::{BlockFile, Compression, Metrics, Options};
use cachetable::CacheTable;
use ftree::{
    Applied, Context, Effort, Message, Progress, Tree, TreeOptions, UpdatePlace, Updates,
    Visibility,
};
use os::sim::SimOs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

const KEYS: u64 = 4000;
/// One key in so many has an update that waits.
const EVERY: u64 = 8;

/// A value is a number and some padding; an argument is added to the number.
#[derive(Debug)]
struct Add;

fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl Updates for Add {
    fn apply(&self, _: UpdatePlace<'_>, old: Option<&[u8]>, argument: &[u8]) -> Applied {
        let mut value = old.map_or_else(|| vec![7; 100], <[u8]>::to_vec);
        let sum = old.map_or(0, number) + number(argument);
        value[..8].copy_from_slice(&sum.to_le_bytes());
        Applied::Value(value)
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        Some((number(older) + number(newer)).to_le_bytes().to_vec())
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:09}").into_bytes()
}

fn settle(tree: &Tree, effort: Effort) {
    let visibility = Visibility::newest_only(u64::MAX - 1);
    while tree.work(&visibility, effort).unwrap() != Progress::Idle {}
}

/// A tree of counters at zero in plain leaves, and in its runs an update of one key in [`EVERY`].
fn with_waiting_updates() -> Arc<Tree> {
    let os = SimOs::new(4).os();
    os.vfs.create_dir_all(Path::new("/data")).unwrap();
    let metrics = Metrics::new(&telemetry::Registry::new());
    let (blocks, _) =
        BlockFile::open(&os, Path::new("/data"), Options::default(), metrics).unwrap();
    let cache = Arc::new(CacheTable::new(8 << 20));
    let context = Context::with_updates(blocks, cache, Arc::new(Add));
    let options = TreeOptions {
        compression: Compression::None,
        page_size: 64 << 10,
        read_page_size: 1 << 10,
        fanout: 8,
        buffer_bytes: 64 << 10,
        ..TreeOptions::default()
    };
    let tree = Tree::create(&context, 1, options);
    for number in 0..KEYS {
        tree.insert(&key(number), number + 1, Message::Put(&[0; 100]));
    }
    tree.seal(KEYS);
    settle(&tree, Effort::Idle);
    for number in (0..KEYS).step_by(EVERY as usize) {
        tree.insert(&key(number), KEYS + number + 1, Message::Update(&1_u64.to_le_bytes()));
    }
    tree.seal(2 * KEYS);
    settle(&tree, Effort::Needed);
    assert!(tree.stats().runs > 0 && tree.stats().buffered_bytes > 0, "the updates wait");
    assert!(!tree.debt().wanted, "nobody has read");
    tree
}

/// Reads the updated keys of a range, with the flushes that they have paid for after each.
fn read(tree: &Tree, keys: Range<u64>) {
    for at in keys.filter(|at| at % EVERY == 0) {
        let value = tree.get(&key(at), u64::MAX - 1).unwrap().unwrap();
        assert_eq!(number(&value), 1, "counter {at}");
        settle(tree, Effort::ReadFlush);
    }
}

#[test]
fn reads_that_gather_updates_have_paid_for_their_flushes_after_one_pass() {
    let tree = with_waiting_updates();
    // The debt of 500 reads at 8 KiB is about ten times what it costs to write all leaves again.
    read(&tree, 0..KEYS);
    let stats = tree.stats();
    assert_eq!((stats.runs, stats.buffered_bytes), (0, 0), "each page was read, so all is flushed");
    read(&tree, 0..KEYS);
    assert!(!tree.debt().wanted, "there is nothing left to pay for");
    tree.verify().unwrap();
}

#[test]
fn a_few_reads_that_gather_updates_flush_nothing() {
    let tree = with_waiting_updates();
    let before = tree.stats();
    // Three pages of 8 KiB are less than a leaf of 64 KiB costs.
    read(&tree, 0..3 * EVERY);
    let after = tree.stats();
    assert_eq!(
        (after.runs, after.leaves_written, after.buffered_bytes),
        (before.runs, before.leaves_written, before.buffered_bytes)
    );
}

#[test]
fn reads_of_keys_without_updates_do_not_pay_for_them() {
    let tree = with_waiting_updates();
    let before = tree.stats().leaves_written;
    // As many reads as flush everything where there are updates.
    for at in (0..KEYS).filter(|at| at % EVERY == 1) {
        assert!(tree.get(&key(at), u64::MAX - 1).unwrap().is_some());
        settle(&tree, Effort::ReadFlush);
    }
    let written = tree.stats().leaves_written - before;
    assert!(written <= 1, "{written} leaves were written for reads that a filter had saved");
}
