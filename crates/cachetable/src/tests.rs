//! The bound holds, pins hold, pages go in two stages, and better ranks stay longer.

use super::*;
use std::convert::Infallible;

fn key(segment: u64, page: u32) -> FrameKey {
    FrameKey { segment, page }
}

/// Pages whose every byte is their number; stored at a third of their length.
struct Made {
    number: u8,
    length: usize,
}

impl Loader for Made {
    type Error = Infallible;

    fn read(&self) -> Result<Cow<'_, [u8]>, Infallible> {
        Ok(vec![self.number; self.length / 3].into())
    }

    fn decode(&self, stored: &[u8], bytes: &mut Vec<u8>) -> Result<(), Infallible> {
        *bytes = vec![stored[0]; self.length];
        Ok(())
    }

    fn now_us(&self) -> u64 {
        0
    }
}

fn load_as(
    table: &CacheTable,
    key: FrameKey,
    length: usize,
    rank: EvictionPriority,
    entry: Access,
) -> Frame {
    if let Some(frame) = table.get(key) {
        return frame;
    }
    let page = PageInfo { raw_len: length, priority: rank, level: Level::Leaf, access: entry };
    table.load(key, page, &Made { number: key.page as u8, length }).expect("cannot fail")
}

fn load(table: &CacheTable, key: FrameKey, length: usize, rank: EvictionPriority) -> Frame {
    load_as(table, key, length, rank, Access::Demand)
}

fn read(table: &CacheTable, page: u32) {
    let frame = load(table, key(1, page), 3000, EvictionPriority::Page);
    assert!(frame.len() == 3000 && frame.iter().all(|byte| *byte == page as u8), "page {page}");
}

#[test]
fn total_never_exceeds_the_capacity() {
    for compressing in [false, true] {
        let table = CacheTable::new(50_000);
        table.set_keeps_compressed(compressing);
        for page in 0..500 {
            let frame = load(&table, key(1, page), 1000, EvictionPriority::Page);
            assert_eq!(frame[0], page as u8);
            assert!(table.stats().parts.total() <= 50_000);
        }
        let stats = table.stats();
        let gone = stats.full_evictions.leaf.count;
        assert_eq!(gone + stats.frames + stats.compressed, 500);
        assert!(gone > 0 && stats.parts.total() > 48_000, "{stats:?}");
        assert_eq!(stats.bypasses, 0);
        assert_eq!(stats.compressed > 0, compressing);
    }
}

#[test]
fn pinned_frame_stays_counted_and_is_not_evicted() {
    let table = CacheTable::new(10_000);
    let pinned = load(&table, key(1, 0), 4000, EvictionPriority::Page);
    for page in 1..50 {
        load(&table, key(1, page), 4000, EvictionPriority::Page);
    }
    assert!(table.get(key(1, 0)).is_some(), "it is still found");
    table.forget(1, 50);
    assert_eq!(table.stats().frames, 0);
    assert_eq!(table.held(MemoryKind::Frames), Frame::cost(4000));
    assert_eq!(&pinned[..3], &[0, 0, 0]);
    drop(pinned);
    assert_eq!(table.stats().parts.total(), 0);
}

#[test]
fn read_goes_on_with_a_private_buffer_when_all_is_pinned() {
    let table = CacheTable::new(3000);
    let first = load(&table, key(1, 1), 2000, EvictionPriority::Page);
    let second = load(&table, key(1, 2), 2000, EvictionPriority::Page);
    assert_eq!(second[0], 2);
    let stats = table.stats();
    assert_eq!((stats.frames, stats.bypasses), (1, 1));
    assert!(stats.parts.of(MemoryKind::Bypass) > 2000);
    drop((first, second));
    assert_eq!(table.held(MemoryKind::Bypass), 0);
}

#[test]
fn reservation_pushes_frames_out_and_gives_room_back() {
    let table = CacheTable::new(20_000);
    for page in 0..10 {
        load(&table, key(1, page), 1500, EvictionPriority::Page);
    }
    let mut reservation = table.reserve(MemoryKind::Memtables, 15_000);
    assert!(table.held(MemoryKind::Frames) <= 5000);
    table.resize(&mut reservation, 19_000);
    assert!(table.held(MemoryKind::Frames) <= 1000);
    table.resize(&mut reservation, 1000);
    assert_eq!(table.held(MemoryKind::Memtables), 1000);
    drop(reservation);
    table.report_held(MemoryKind::Locks, 700);
    table.report_held(MemoryKind::Locks, 300);
    assert_eq!(table.stats().parts.total(), table.held(MemoryKind::Frames) + 300);
}

#[test]
fn page_that_is_not_used_stays_compressed_and_then_goes() {
    let table = CacheTable::new(100_000);
    table.set_keeps_compressed(true);
    read(&table, 0);
    let mut seen = Vec::new();
    for page in 1..400 {
        read(&table, page);
        let state = (table.contains(key(1, 0)), table.shard(key(1, 0)).compressed(key(1, 0)));
        seen.push((state.0, state.1.is_some()));
    }
    seen.dedup();
    assert_eq!(seen, [(true, true), (false, true), (false, false)]);
    let stats = table.stats();
    assert!(stats.partial_evictions.leaf.bytes > stats.full_evictions.leaf.bytes, "{stats:?}");
    assert_eq!(stats.partial_evictions.nonleaf, Amount::default());
    assert_eq!(stats.full_misses.count, 400);
}

#[test]
fn more_pages_stay_readable_without_the_disk_where_they_stay_compressed() {
    let disk_reads = |compressing| {
        let table = CacheTable::new(200_000);
        table.set_keeps_compressed(compressing);
        let mut state = 1u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // 100 pages of 3 KB: half again what fits as frames.
            read(&table, (state >> 33) as u32 % 100);
        }
        let stats = table.stats();
        assert_eq!(stats.hits + stats.misses(), 20_000);
        assert!(stats.parts.total() <= 200_000);
        stats.full_misses.count
    };
    let (without, with) = (disk_reads(false), disk_reads(true));
    assert!(with * 2 < without, "{with} reads with compressed pages, {without} without");
}

#[test]
fn page_used_in_each_round_keeps_its_frame_and_gives_its_compressed_bytes_back() {
    let table = CacheTable::new(100_000);
    table.set_keeps_compressed(true);
    for page in 1..200 {
        read(&table, 0);
        read(&table, page);
    }
    assert!(table.contains(key(1, 0)));
    assert!(table.shard(key(1, 0)).compressed(key(1, 0)).is_none());
    assert_eq!(table.stats().partial_misses.count, 0);
}

#[test]
fn index_frames_outlive_pages_that_are_read_once() {
    let table = CacheTable::new(1 << 20);
    for page in 0..100 {
        load(&table, key(7, page), 500, EvictionPriority::Index);
    }
    for page in 0..1000 {
        load(&table, key(8, page), 2000, EvictionPriority::Page);
    }
    let kept = (0..100).filter(|page| table.get(key(7, *page)).is_some()).count();
    assert!(kept > 80, "{kept} of 100 index frames left");
}

#[test]
fn long_scan_evicts_only_what_it_brought() {
    let table = CacheTable::new(1 << 20);
    let hot = |table: &CacheTable| (0..200).filter(|page| table.contains(key(1, *page))).count();
    for page in 0..200 {
        load(&table, key(1, page), 3000, EvictionPriority::Page);
    }
    assert_eq!(hot(&table), 200);
    for page in 0..5000 {
        load_as(&table, key(2, page), 3000, EvictionPriority::Page, Access::Scan);
    }
    assert_eq!(hot(&table), 200, "nothing but the scan's own pages went");
    assert!(table.stats().full_evictions.leaf.count > 4500);
    // A page of the scan that somebody else uses is a page like others.
    load(&table, key(2, 4999), 3000, EvictionPriority::Page);
    assert!(table.get_passing(key(2, 4990)).is_some());
    for page in 0..5000 {
        load_as(&table, key(3, page), 3000, EvictionPriority::Page, Access::Scan);
    }
    assert!(table.contains(key(2, 4999)));
    assert!(!table.contains(key(2, 4990)), "another scan is nobody else");
    let queue = table.scanned.lock();
    assert!(queue.len() as u64 <= (1 << 20) / SHORT_PAGE + 65);
    let bytes = queue.capacity() * size_of::<FrameKey>();
    drop(queue);
    assert_eq!(
        table.held(MemoryKind::Scanned),
        bytes as u64,
        "what the queue takes is in the bound"
    );
}

/// Says what is counted while it decodes.
struct Watched<'a> {
    page: Made,
    table: &'a CacheTable,
    seen: std::cell::Cell<u64>,
}

impl Loader for Watched<'_> {
    type Error = Infallible;

    fn read(&self) -> Result<Cow<'_, [u8]>, Infallible> {
        self.page.read()
    }

    fn decode(&self, stored: &[u8], bytes: &mut Vec<u8>) -> Result<(), Infallible> {
        self.seen.set(self.table.held(MemoryKind::Buffers));
        self.page.decode(stored, bytes)
    }

    fn now_us(&self) -> u64 {
        0
    }
}

#[test]
fn what_decoding_a_large_page_takes_is_counted_meanwhile() {
    let table = CacheTable::new(16 << 20);
    for (number, length, counted) in [(1, 2 << 20, 4 << 20), (2, 16 << 10, 0)] {
        let page = PageInfo {
            raw_len: length,
            priority: EvictionPriority::Page,
            level: Level::Leaf,
            access: Access::Demand,
        };
        let made = Made { number, length };
        let loader = Watched { page: made, table: &table, seen: std::cell::Cell::new(0) };
        table.load(key(1, number.into()), page, &loader).expect("cannot fail");
        assert_eq!(loader.seen.get(), counted, "{length}");
        assert_eq!(table.held(MemoryKind::Buffers), 0);
    }
}

#[test]
fn page_loaded_ahead_counts_as_used_or_wasted() {
    let table = CacheTable::new(100_000);
    table.set_keeps_compressed(true);
    for page in 0..10 {
        load_as(&table, key(1, page), 3000, EvictionPriority::Page, Access::Prefetch);
    }
    for page in 0..5 {
        read(&table, page);
        read(&table, page);
    }
    let counts = |table: &CacheTable| {
        let stats = table.stats();
        (stats.prefetches, stats.prefetches_used, stats.prefetches_wasted)
    };
    assert_eq!(counts(&table), (10, 5, 0));
    for page in 100..400 {
        read(&table, page);
    }
    assert_eq!(counts(&table), (10, 5, 5));
}

#[test]
fn bound_holds_under_threads() {
    let table = CacheTable::new(100_000);
    table.set_keeps_compressed(true);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let table = &table;
            scope.spawn(move || {
                let mut state = thread + 1;
                for _ in 0..3000 {
                    state =
                        state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let page = (state >> 33) as u32 % 300;
                    let entry = if page.is_multiple_of(7) { Access::Scan } else { Access::Demand };
                    let frame = load_as(table, key(1, page), 700, EvictionPriority::Page, entry);
                    assert!(frame.iter().all(|byte| *byte == page as u8));
                    let parts = table.stats().parts;
                    assert!(
                        parts.of(MemoryKind::Frames) + parts.of(MemoryKind::Compressed) <= 100_000
                    );
                }
            });
        }
    });
    let stats = table.stats();
    assert!(stats.partial_misses.count > 0 && stats.bypasses == 0, "{stats:?}");
}

#[test]
fn page_just_written_is_found_where_there_is_room_or_others_make_some() {
    let table = CacheTable::new(10_000);
    let page = PageInfo {
        raw_len: 3000,
        priority: EvictionPriority::Page,
        level: Level::Leaf,
        access: Access::Scan,
    };
    table.admit(key(2, 0), page, &[7; 3000], false);
    assert_eq!(table.get(key(2, 0)).expect("there was room")[..], [7; 3000]);
    read(&table, 1);
    read(&table, 2);
    table.admit(key(2, 1), page, &[8; 3000], false);
    assert!(!table.contains(key(2, 1)), "nobody makes room for it");
    table.admit(key(2, 2), page, &[9; 3000], true);
    assert!(table.contains(key(2, 2)));
    assert!(table.stats().parts.total() <= 10_000);
    assert_eq!(table.stats().misses(), 2, "what was written was not loaded");
}

const LARGE_BYTES: usize = 1 << 20;

/// Large pages whose reads begin, and end when they may.
#[derive(Default)]
struct Slow {
    state: Mutex<SlowReads>,
    changed: os::sync::Condvar,
}

#[derive(Default)]
struct SlowReads {
    may_end: bool,
    under_way: usize,
    most: usize,
    begun: usize,
}

impl Slow {
    fn load(&self, table: &CacheTable, page: u32) -> Frame {
        let info = PageInfo {
            raw_len: LARGE_BYTES,
            priority: EvictionPriority::Page,
            level: Level::Leaf,
            access: Access::Demand,
        };
        table.load(key(1, page), info, self).expect("cannot fail")
    }

    fn wait_for_reads(&self, begun: usize) {
        let mut state = self.state.lock();
        while state.begun < begun {
            let waited = self.changed.wait_for(&mut state, Duration::from_mins(1));
            assert!(!waited.timed_out(), "{} of {begun} reads have begun", state.begun);
        }
    }

    fn end(&self) {
        self.state.lock().may_end = true;
        self.changed.notify_all();
    }
}

impl Loader for Slow {
    type Error = Infallible;

    fn read(&self) -> Result<Cow<'_, [u8]>, Infallible> {
        let mut state = self.state.lock();
        state.begun += 1;
        state.under_way += 1;
        state.most = state.most.max(state.under_way);
        self.changed.notify_all();
        while !state.may_end {
            self.changed.wait(&mut state);
        }
        state.under_way -= 1;
        Ok(vec![7; LARGE_BYTES / 3].into())
    }

    fn decode(&self, stored: &[u8], bytes: &mut Vec<u8>) -> Result<(), Infallible> {
        *bytes = vec![stored[0]; LARGE_BYTES];
        Ok(())
    }

    fn now_us(&self) -> u64 {
        0
    }
}

/// Ends what is held, also where the test fails.
struct EndAtLast<'s>(&'s Slow);

impl Drop for EndAtLast<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[test]
fn a_large_page_that_does_not_come_holds_up_those_who_want_it_and_nobody_else() {
    let table = CacheTable::new(100 << 20);
    let (held, other) = (Slow::default(), Slow::default());
    other.end();
    std::thread::scope(|scope| {
        let _at_last = EndAtLast(&held);
        let first = scope.spawn(|| held.load(&table, 1));
        held.wait_for_reads(1);
        let same = scope.spawn(|| held.load(&table, 1));
        let others = scope.spawn(|| other.load(&table, 2));
        other.wait_for_reads(1);
        assert_eq!(others.join().expect("it is loaded").len(), LARGE_BYTES);
        assert!(!same.is_finished() && !first.is_finished());
        held.end();
        assert_eq!(first.join().expect("it is loaded").len(), LARGE_BYTES);
        assert_eq!(same.join().expect("it is loaded").len(), LARGE_BYTES);
    });
    assert_eq!(held.state.lock().begun, 1, "it is read once");
}

#[test]
fn large_pages_are_loaded_within_their_part_of_the_capacity() {
    for (capacity, at_once) in [(16, 1), (100, 4)] {
        let table = CacheTable::new(capacity << 20);
        let slow = Slow::default();
        std::thread::scope(|scope| {
            let _at_last = EndAtLast(&slow);
            let loads: Vec<_> = (0..8)
                .map(|page| {
                    scope.spawn({
                        let (slow, table) = (&slow, &table);
                        move || slow.load(table, page)
                    })
                })
                .collect();
            slow.wait_for_reads(at_once);
            slow.end();
            for load in loads {
                assert_eq!(load.join().expect("it is loaded").len(), LARGE_BYTES);
            }
        });
        let state = slow.state.lock();
        assert!(state.most <= at_once && state.begun == 8, "{} at once", state.most);
    }
}
