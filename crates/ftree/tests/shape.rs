//! What the tree promises about its shape: how much it writes, reads and keeps.
#![allow(clippy::unwrap_used, reason = "a test that meets an error fails")]

use blockfile::{BlockFile, Compression, Metrics, Options};
use cachetable::CacheTable;
use ftree::{
    Context, Direction, Effort, KeyRange, Message, Progress, Tree, TreeOptions, Visibility,
};
use os::sim::SimOs;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

fn context(cache_bytes: u64) -> Arc<Context> {
    let os = SimOs::new(4).os();
    os.vfs.create_dir_all(Path::new("/data")).unwrap();
    let metrics = Metrics::new(&telemetry::Registry::new());
    let (blocks, _) =
        BlockFile::open(&os, Path::new("/data"), Options::default(), metrics).unwrap();
    Context::new(blocks, Arc::new(CacheTable::new(cache_bytes)))
}

fn small() -> TreeOptions {
    TreeOptions {
        compression: Compression::None,
        page_size: 16 << 10,
        read_page_size: 1 << 10,
        fanout: 8,
        buffer_bytes: 64 << 10,
        ..TreeOptions::default()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:09}").into_bytes()
}

fn settle(tree: &Tree, visibility: &Visibility, effort: Effort) {
    while tree.work(visibility, effort).unwrap() != Progress::Idle {}
}

fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

/// A settled tree of `count` keys in random order, all at timestamp `count`.
fn loaded(options: TreeOptions, count: u64, cache_bytes: u64) -> Arc<Tree> {
    let tree = Tree::create(&context(cache_bytes), 1, options);
    for number in 0..count {
        tree.insert(&key(scattered(number)), number + 1, Message::Put(&[7; 100]));
        if number % 1000 == 999 {
            tree.seal(number + 1);
            settle(&tree, &Visibility::newest_only(number + 1), Effort::Needed);
        }
    }
    tree
}

#[test]
fn ascending_load_writes_everything_once_into_full_leaves() {
    let tree = Tree::create(&context(1 << 20), 1, small());
    for number in 0..20_000u64 {
        tree.insert(&key(number), number + 1, Message::Put(&[7; 100]));
        if number % 1000 == 999 || number % 1370 == 1 {
            tree.seal(number + 1);
            settle(&tree, &Visibility::newest_only(number + 1), Effort::Needed);
        }
    }
    let stats = tree.stats();
    assert_eq!((stats.disk_entries, stats.runs), (20_000, 0));
    assert!(stats.leaves_kept >= 5, "{stats:?}");
    assert!(stats.written_bytes < stats.stored_bytes * 5 / 4, "{stats:?}");
    assert!(stats.raw_bytes / stats.leaves > (16 << 10) * 3 / 4, "{stats:?}");
    assert!(stats.height >= 3);
    // Full nodes too: 8 children each, but for the right edge.
    assert!(stats.nodes < stats.leaves / 8 + stats.leaves / 64 + 5, "{stats:?}");
    tree.verify().unwrap();
}

#[test]
fn updates_of_most_keys_leave_the_leaves_their_size() {
    let tree = loaded(small(), 2000, 4 << 20);
    settle(&tree, &Visibility::newest_only(2000), Effort::Idle);
    let before = tree.stats();
    for round in 1..=5 {
        for number in (0..2000u64).filter(|number| number % 4 > 0) {
            tree.insert(&key(scattered(number)), 2000 * round + number, Message::Put(&[8; 100]));
        }
        tree.seal(2000 * round + 1999);
        settle(&tree, &Visibility::newest_only(2000 * round + 1999), Effort::Needed);
    }
    let stats = tree.stats();
    let fuses = stats.leaf_fuses - before.leaf_fuses;
    assert_eq!((fuses, stats.leaves), (0, before.leaves), "{stats:?}");
    let written = stats.leaves_written - before.leaves_written;
    assert_eq!(written, 5 * before.leaves, "each leaf once a round: {stats:?}");
}

#[test]
fn random_load_amplifies_writes_as_the_cost_law_says() {
    let tree = loaded(small(), 30_000, 1 << 20);
    let stats = tree.stats();
    let amplification = stats.written_bytes as f64 / stats.drained_bytes as f64;
    // Tiny fanout and buffers; a B-tree's would be 16 KiB / 110 B = 150.
    assert!(amplification < 12.0, "{amplification} {stats:?}");
    assert!(stats.buffered_bytes > 0 && stats.runs > 0);
}

#[test]
fn cold_point_read_reads_one_page() {
    let tree = loaded(small(), 20_000, 200 << 20);
    // Indexes into memory, pages not: a cache that has seen only other keys' pages.
    settle(&tree, &Visibility::newest_only(20_000), Effort::Idle);
    let image = tree.image().unwrap();
    let fresh = Context::new(tree.context().blocks.clone(), Arc::new(CacheTable::new(64 << 20)));
    let tree = Tree::open(&fresh, 1, tree.options(), image.bytes()).unwrap();
    let mut reads = 0;
    for number in 0..400u64 {
        let before = tree.stats().page_reads;
        assert!(tree.get(&key(scattered(number * 50)), u64::MAX - 1).unwrap().is_some());
        reads += tree.stats().page_reads - before;
    }
    let leaves = tree.stats().leaves;
    assert!(reads <= 400 + leaves, "{reads} reads for 400 gets with {leaves} leaf indexes");
}

#[test]
fn unique_check_of_a_new_key_reads_nothing_with_leaf_filters() {
    let options = TreeOptions { leaf_filter: true, ..small() };
    let tree = loaded(options, 10_000, 64 << 20);
    settle(&tree, &Visibility::newest_only(10_000), Effort::Idle);
    // Filters come into memory with the first check of each leaf.
    for number in 0..2000u64 {
        tree.newest(&key(scattered(number) + 1)).unwrap();
    }
    let before = tree.stats().page_reads;
    let mut absent = 0;
    for number in 2000..4000u64 {
        absent += u64::from(tree.newest(&key(scattered(number) + 1)).unwrap().is_none());
    }
    let reads = tree.stats().page_reads - before;
    assert!(absent > 1990 && reads < 60, "{reads} reads for {absent} absent keys");
}

#[test]
fn idle_work_drains_everything_to_plain_leaves() {
    let tree = loaded(small(), 10_000, 1 << 20);
    assert!(tree.stats().runs > 0);
    settle(&tree, &Visibility::newest_only(10_000), Effort::Idle);
    let stats = tree.stats();
    assert_eq!((stats.runs, stats.buffered_bytes, tree.debt().urgency), (0, 0, 0));
    tree.verify().unwrap();
}

/// Runs that reads of these keys probe, on average.
fn probes(tree: &Tree, numbers: std::ops::Range<u64>) -> f64 {
    let asked = |tree: &Tree| tree.stats().filter_passes + tree.stats().filter_refusals;
    let (before, count) = (asked(tree), numbers.end - numbers.start);
    for number in numbers {
        tree.get(&key(number), u64::MAX - 1).unwrap();
    }
    (asked(tree) - before) as f64 / count as f64
}

#[test]
fn range_that_is_read_drains_to_plain_leaves_and_no_other_does() {
    let tree = Tree::create(&context(8 << 20), 1, small());
    let visibility = Visibility::newest_only(u64::MAX - 1);
    for number in 0..40_000u64 {
        let key = key(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & 0x3fff);
        tree.insert(&key, number + 1, Message::Put(&[7; 100]));
        if number % 1000 == 999 {
            tree.seal(number + 1);
            settle(&tree, &visibility, Effort::Needed);
        }
    }
    let (read, unread) = (0..2000, 10_000..12_000);
    let before = probes(&tree, read.clone());
    assert!(before > 1.0, "only {before} runs are in the way");
    settle(&tree, &visibility, Effort::ReadFlush);
    let flushes = tree.stats().flushes;
    // One reader comes by: nothing is rewritten for it.
    probes(&tree, 3000..3040);
    settle(&tree, &visibility, Effort::ReadFlush);
    assert_eq!(tree.stats().flushes, flushes);
    let written = tree.stats().written_bytes;
    for _ in 0..300 {
        probes(&tree, read.clone());
        settle(&tree, &visibility, Effort::ReadFlush);
    }
    let (after, others) = (probes(&tree, read), probes(&tree, unread));
    assert!(after < before / 10.0, "{before} runs before, {after} after");
    assert!(others > 1.0, "what nobody read was drained too: {others} runs");
    assert!(tree.stats().written_bytes > written);
    settle(&tree, &visibility, Effort::ReadFlush);
    assert!(!tree.debt().wanted);
    tree.verify().unwrap();
}

#[test]
fn scan_that_opens_many_runs_asks_for_a_flush() {
    let tree = loaded(small(), 6000, 8 << 20);
    let visibility = Visibility::newest_only(u64::MAX - 1);
    settle(&tree, &visibility, Effort::ReadFlush);
    assert!(tree.stats().runs > 0);
    for _ in 0..200 {
        let mut cursor = tree.cursor(KeyRange::all(), u64::MAX - 1, Direction::Forward);
        while cursor.next().unwrap().is_some() {}
        settle(&tree, &visibility, Effort::ReadFlush);
    }
    assert_eq!(
        (tree.stats().runs, tree.debt().buffered_bytes),
        (0, 0),
        "all is read, all is drained"
    );
    tree.verify().unwrap();
}

#[test]
fn scan_of_plain_leaves_asks_for_no_flush_of_other_keys() {
    // Few enough for one node.
    const COUNT: u64 = 1000;
    // Keys are below twice that.
    const HALF: u64 = 1 << 23;
    let tree = loaded(small(), COUNT, 8 << 20);
    let visibility = Visibility::newest_only(u64::MAX - 1);
    settle(&tree, &visibility, Effort::Idle);
    assert_eq!(tree.stats().runs, 0);
    for number in 0..300 {
        let above = key(HALF + HALF / 300 * number);
        tree.insert(&above, 7000 + number, Message::Put(&[7; 100]));
    }
    tree.seal(8000);
    settle(&tree, &visibility, Effort::Needed);
    let runs = tree.stats().runs;
    assert!(runs > 0);
    let lower_half =
        KeyRange { lower: Bound::Unbounded, upper: Bound::Excluded(key(HALF / 4 * 3)) };
    for _ in 0..2000 {
        let mut cursor = tree.cursor(lower_half.clone(), u64::MAX - 1, Direction::Forward);
        let mut rows = 0;
        while cursor.next().unwrap().is_some() {
            rows += 1;
        }
        assert!(rows > COUNT / 4);
        settle(&tree, &visibility, Effort::ReadFlush);
    }
    assert_eq!(tree.stats().runs, runs);
    tree.verify().unwrap();
}

#[test]
fn snapshot_pins_its_version_and_no_other() {
    let tree = Tree::create(&context(1 << 20), 1, small());
    for ts in 1..=50u64 {
        tree.insert(b"counter", ts, Message::Put(&ts.to_le_bytes()));
        tree.seal(ts);
        settle(&tree, &Visibility::new(ts, &[20, 30]), Effort::Idle);
    }
    assert_eq!(tree.stats().disk_entries, 3, "newest, 30 and 20");
    for (at, expected) in [(20, 20u64), (30, 30), (50, 50), (99, 50)] {
        let value = tree.get(b"counter", at).unwrap().unwrap();
        assert_eq!(&value[..], &expected.to_le_bytes());
    }
    tree.insert(b"counter", 51, Message::Delete);
    tree.seal(51);
    settle(&tree, &Visibility::new(51, &[30]), Effort::Idle);
    assert_eq!(tree.newest(b"counter").unwrap(), Some((51, true)));
    assert!(tree.get(b"counter", 30).unwrap().is_some());
    assert_eq!(tree.debt().garbage_entries, 2);
    settle(&tree, &Visibility::newest_only(51), Effort::Needed);
    assert_eq!(tree.stats().disk_entries, 2, "not urgent");
    // The snapshot goes; idle work forgets the key.
    settle(&tree, &Visibility::newest_only(51), Effort::Idle);
    assert_eq!((tree.stats().disk_entries, tree.debt().garbage_entries), (0, 0));
    assert_eq!(tree.newest(b"counter").unwrap(), None);
}

#[test]
fn parked_cursor_pins_nothing_and_goes_on() {
    let tree = loaded(small(), 3000, 1 << 20);
    let mut cursor = tree.cursor(KeyRange::all(), 3000, Direction::Forward);
    let first = cursor.next().unwrap().map(|(key, _)| key.to_vec()).unwrap();
    cursor.park();
    // Everything is rewritten meanwhile.
    for number in 0..3000u64 {
        tree.insert(&key(scattered(number)), 3001 + number, Message::Delete);
    }
    tree.seal(6001);
    settle(&tree, &Visibility::new(6001, &[3000]), Effort::Idle);
    let mut count = 1;
    let mut last = first;
    while let Some((key, _)) = cursor.next().unwrap() {
        assert!(key > &last[..]);
        last = key.to_vec();
        count += 1;
    }
    assert_eq!(count, 3000);
}

#[test]
fn discarded_tree_gives_its_space_back_once_nobody_reads() {
    let tree = loaded(small(), 3000, 1 << 20);
    let blocks = tree.context().blocks.clone();
    drop(tree.image().unwrap());
    assert!(blocks.segments().len() > 10);
    let mut cursor = tree.cursor(KeyRange::all(), 3000, Direction::Backward);
    assert!(cursor.next().unwrap().is_some());
    tree.discard();
    drop(tree);
    assert!(cursor.next().unwrap().is_some(), "a reader goes on");
    assert!(blocks.segments().len() > 10);
    drop(cursor);
    assert_eq!(blocks.segments().len(), 0);
}

#[test]
fn closed_tree_keeps_its_segments() {
    let tree = loaded(small(), 3000, 1 << 20);
    let blocks = tree.context().blocks.clone();
    let image = tree.image().unwrap();
    let count = blocks.segments().len();
    let (context, options) = (Arc::clone(tree.context()), tree.options());
    drop(tree);
    assert_eq!(blocks.segments().len(), count);
    let tree = Tree::open(&context, 1, options, image.bytes()).unwrap();
    tree.verify().unwrap();
    let ids: Vec<u64> = blocks.segments().iter().map(|segment| segment.id.0).collect();
    assert_eq!(tree.segments(), ids);
}

#[test]
fn cache_stays_within_its_bound_while_scans_and_reads_run() {
    let tree = loaded(small(), 10_000, 300_000);
    let cache = Arc::clone(&tree.context().cache);
    for round in 0..5 {
        let mut cursor = tree.cursor(KeyRange::all(), 10_000, Direction::Forward);
        let mut count = 0;
        while cursor.next().unwrap().is_some() {
            count += 1;
            if count % 100 == 0 {
                tree.get(&key(scattered(count + round)), 10_000).unwrap();
                let stats = cache.stats();
                assert!(stats.parts.total() <= stats.capacity_bytes, "{stats:?}");
            }
        }
        assert_eq!(count, 10_000);
    }
    assert!(cache.stats().full_evictions.total().count > 100);
}

#[test]
fn leaf_compressed_in_haste_is_written_anew_once_nobody_writes() {
    let context = context(8 << 20);
    let options = TreeOptions { compression: Compression::default(), ..small() };
    let tree = Tree::create(&context, 1, options);
    let text = |round: u64, number: u64| format!("round {round} of {}", number % 10).repeat(8);
    let write = |tree: &Tree, round: u64| {
        for number in 0..2000 {
            let ts = round * 10_000 + number;
            tree.insert(&key(number), ts, Message::Put(text(round, number).as_bytes()));
        }
        let newest = round * 10_000 + 2000;
        tree.seal(newest);
        settle(tree, &Visibility::newest_only(newest), Effort::Needed);
    };
    write(&tree, 1);
    assert_eq!(tree.debt().lightly_compressed_bytes, 0, "new leaves are compressed well");
    write(&tree, 2);
    let light = tree.debt().lightly_compressed_bytes;
    assert!(light > 100_000, "{light} bytes were in use and lightly compressed");
    let image = tree.image().unwrap();
    let tree = Tree::open(&context, 1, options, image.bytes()).unwrap();
    assert_eq!(
        tree.debt().lightly_compressed_bytes,
        light,
        "what is to be done outlives a restart"
    );
    let visibility = Visibility::newest_only(u64::MAX - 1);
    settle(&tree, &visibility, Effort::Idle);
    assert_eq!(
        tree.debt().lightly_compressed_bytes,
        light,
        "others write: it would be for nothing"
    );
    let stored = tree.stats().stored_bytes;
    settle(&tree, &visibility, Effort::IdleWithoutWrites);
    assert_eq!(tree.debt().lightly_compressed_bytes, 0);
    assert!(tree.stats().stored_bytes < stored * 9 / 10, "{stored} bytes got no fewer");
    for number in 0..2000 {
        let value = tree.get(&key(number), u64::MAX - 1).unwrap().unwrap();
        assert_eq!(&value[..], text(2, number).as_bytes());
    }
    tree.verify().unwrap();
}
