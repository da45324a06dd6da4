//! Reading ahead and reading together: how many calls, what stays in memory, and that nothing
//! changes but that.
#![allow(clippy::unwrap_used, reason = "a test that meets an error fails")]

use blockfile::{BlockFile, Compression, Metrics, Options};
use cachetable::{CacheTable, MemoryKind};
use ftree::{
    Context, Direction, Effort, KeyHasher, KeyRange, Message, Progress, ReadPool, Tree,
    TreeOptions, Visibility, thread_page_reads,
};
use os::real::RealSpawner;
use os::sim::SimOs;
use std::path::Path;
use std::sync::Arc;
use telemetry::{Registry, Unit};

const KEYS: u64 = 10_000;
/// Of a machine that reads one thing after the other, and of one that reads several at once.
const SEED: u64 = 4;
const SEED_AT_ONCE: u64 = 5;

struct Room {
    registry: Registry,
    tree: Arc<Tree>,
    readers: Arc<ReadPool>,
}

fn options() -> TreeOptions {
    TreeOptions {
        compression: Compression::None,
        page_size: 64 << 10,
        read_page_size: 1 << 10,
        fanout: 8,
        buffer_bytes: 256 << 10,
        ..TreeOptions::default()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:09}").into_bytes()
}

/// A tree of `KEYS` keys in random order; settled, or with much waiting in buffers.
fn room(cache_bytes: u64, threads: usize, settled: bool) -> Room {
    room_on(SEED, cache_bytes, threads, settled)
}

fn room_on(seed: u64, cache_bytes: u64, threads: usize, settled: bool) -> Room {
    let os = SimOs::new(seed).os();
    os.vfs.create_dir_all(Path::new("/data")).unwrap();
    let registry = Registry::new();
    let metrics = Metrics::new(&registry);
    let (blocks, _) =
        BlockFile::open(&os, Path::new("/data"), Options::default(), metrics).unwrap();
    let readers = match threads {
        0 => ReadPool::none(),
        threads => ReadPool::with_threads(Arc::new(RealSpawner), threads),
    };
    let cache = Arc::new(CacheTable::new(cache_bytes));
    let context = Context::with_readers(
        blocks,
        cache,
        Arc::clone(&readers),
        KeyHasher::fixed(),
        None,
        (ftree::no_parts, None),
    );
    let tree = Tree::create(&context, 1, options());
    for number in 0..KEYS {
        let key = key(number * 7919 % KEYS);
        tree.insert(&key, number + 1, Message::Put(&[7; 100]));
        if number % 2000 == 1999 {
            tree.seal(number + 1);
            let visibility = Visibility::newest_only(number + 1);
            let effort = if settled { Effort::Idle } else { Effort::Needed };
            while tree.work(&visibility, effort).unwrap() != Progress::Idle {}
        }
    }
    assert_eq!(tree.stats().runs == 0, settled);
    Room { registry, tree, readers }
}

impl Room {
    fn read_calls(&self) -> u64 {
        self.registry.counter("blockfile.reads", Unit::Count, "").get()
    }

    /// Walks everything; every key must be there once.
    fn scan(&self, direction: Direction) {
        let mut cursor = self.tree.cursor(KeyRange::all(), KEYS, direction);
        let mut count = 0;
        while let Some((found, _)) = cursor.next().unwrap() {
            let number = match direction {
                Direction::Forward => count,
                Direction::Backward => KEYS - 1 - count,
            };
            assert_eq!(found, key(number));
            count += 1;
        }
        assert_eq!(count, KEYS);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.readers.stop();
    }
}

#[test]
fn sequential_cursor_reads_many_pages_at_once_both_ways() {
    for settled in [true, false] {
        for threads in [0, 3] {
            let room = room(150_000, threads, settled);
            for direction in [Direction::Forward, Direction::Backward] {
                let pages = room.tree.stats().raw_bytes / 1024;
                let before = room.read_calls();
                room.scan(direction);
                let calls = room.read_calls() - before;
                assert!(calls * 3 < pages, "{calls} reads of {pages} pages {direction:?}");
            }
            let stats = room.tree.context().cache.stats();
            assert_eq!(stats.prefetches_used > 0, threads > 0, "{stats:?}");
            assert!(stats.prefetches_wasted <= stats.prefetches_used, "{stats:?}");
            assert_eq!(stats.parts.of(MemoryKind::Buffers), 0, "cursors give everything back");
        }
    }
}

#[test]
fn short_range_reads_only_its_pages() {
    let room = room(150_000, 3, true);
    let mut bytes = 0;
    for start in (0..KEYS - 20).step_by(500) {
        let before = room.registry.counter("blockfile.read_bytes", Unit::Bytes, "").get();
        let range = KeyRange {
            lower: std::ops::Bound::Included(key(start)),
            upper: std::ops::Bound::Unbounded,
        };
        let mut cursor = room.tree.cursor(range, KEYS, Direction::Forward);
        for number in start..start + 10 {
            assert_eq!(cursor.next().unwrap().unwrap().0, key(number));
        }
        bytes += room.registry.counter("blockfile.read_bytes", Unit::Bytes, "").get() - before;
    }
    // Two or three pages of a kilobyte, and an index now and then.
    assert!(bytes / 20 < 6 << 10, "{} bytes a range", bytes / 20);
}

#[test]
fn prefetched_keys_are_read_from_memory() {
    let ways =
        [(SEED, 3, true), (SEED, 3, false), (SEED_AT_ONCE, 0, true), (SEED_AT_ONCE, 0, false)];
    for (seed, threads, settled) in ways {
        let room = room_on(seed, 600_000, threads, settled);
        room.scan(Direction::Forward);
        let keys: Vec<_> = (0..100).map(|number| key(number * 97 % KEYS)).collect();
        // Each batch takes a part of the cache only.
        let read: usize = keys.chunks(25).map(|keys| room.tree.prefetch(keys, KEYS)).sum();
        assert!(read > 10, "{read} pages read");
        let before = thread_page_reads();
        for key in &keys {
            assert!(room.tree.get(key, KEYS).unwrap().is_some());
        }
        let reads = thread_page_reads() - before;
        assert!(reads <= 10, "{reads} reads after all were prefetched");
        assert_eq!(room.tree.prefetch(&keys[50..], KEYS), 0, "everything is there");
        let stats = room.tree.context().cache.stats();
        assert!(stats.prefetches_used * 10 > stats.prefetches * 8, "{stats:?}");
    }
}

#[test]
fn pages_that_are_read_together_take_a_part_of_the_cache() {
    let room = room_on(SEED_AT_ONCE, 600_000, 0, true);
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let read = room.tree.prefetch(&keys, KEYS) as u64;
    assert!((20..=600_000 / 16 / 900).contains(&read), "{read} pages of about a kilobyte");
    assert_eq!(room.tree.context().cache.held(MemoryKind::Buffers), 0);
}

#[test]
fn prefetch_without_threads_leaves_reading_to_the_reader() {
    let room = room(600_000, 0, true);
    let before = room.read_calls();
    assert_eq!(room.tree.prefetch(&[key(1), key(5000)], KEYS), 0);
    assert_eq!(room.read_calls(), before);
}

#[test]
fn scans_of_everything_leave_what_is_read_often_in_memory() {
    let room = room(400_000, 3, true);
    let hot: Vec<_> = (0..100).map(|number| key(number * 97 % KEYS)).collect();
    let read_hot = || {
        let before = thread_page_reads();
        for key in &hot {
            assert!(room.tree.get(key, KEYS).unwrap().is_some());
        }
        thread_page_reads() - before
    };
    read_hot();
    read_hot();
    assert!(read_hot() < 5);
    for direction in [Direction::Forward, Direction::Backward, Direction::Forward] {
        room.scan(direction);
        let reads = read_hot();
        assert!(reads <= 10, "{reads} of 100 hot keys had to be read again");
    }
}

#[test]
fn total_stays_within_the_capacity_whoever_grows() {
    let room = room(1_000_000, 3, false);
    let (tree, cache) = (&room.tree, &room.tree.context().cache);
    let capacity = cache.capacity();
    let check = || {
        let parts = cache.stats().parts;
        assert!(parts.total() <= capacity, "{:?}", parts.iter().collect::<Vec<_>>());
        assert!(parts.of(MemoryKind::Filters) <= capacity / 8);
    };
    room.scan(Direction::Forward);
    let frames = cache.held(MemoryKind::Frames);
    assert!(frames > capacity / 2, "{frames} of {capacity} bytes are frames");
    // Memtables grow: frames go.
    for number in 0..1500 {
        tree.insert(&key(number), KEYS + number + 1, Message::Put(&[8; 100]));
        check();
    }
    let grown = cache.held(MemoryKind::Memtables);
    assert!(grown > capacity / 4 && cache.held(MemoryKind::Frames) < frames, "{grown}");
    let mut cursor = tree.cursor(KeyRange::all(), KEYS, Direction::Forward);
    let mut count = 0;
    while cursor.next().unwrap().is_some() {
        count += 1;
        if count % 50 == 0 {
            check();
        }
    }
    drop(cursor);
    tree.seal(KEYS + 1500);
    while tree.work(&Visibility::newest_only(KEYS + 1500), Effort::Needed).unwrap()
        != Progress::Idle
    {
        check();
    }
    assert!(cache.held(MemoryKind::Memtables) < grown / 4);
}
