//! The bound holds, pins hold, and better ranks stay longer.

use super::*;
use std::convert::Infallible;

fn key(segment: u64, page: u32) -> FrameKey {
    FrameKey { segment, page }
}

fn load(table: &CacheTable, key: FrameKey, length: usize, rank: Rank) -> Frame {
    if let Some(frame) = table.get(key) {
        return frame;
    }
    let bytes = || Ok::<_, Infallible>(vec![key.page as u8; length]);
    table.load(key, length, rank, bytes).expect("cannot fail")
}

#[test]
fn used_bytes_never_exceed_the_capacity() {
    let table = CacheTable::new(50_000);
    for page in 0..500 {
        let frame = load(&table, key(1, page), 1000, Rank::Page);
        assert_eq!(frame[0], page as u8);
        assert!(table.stats().used_bytes <= 50_000);
    }
    let stats = table.stats();
    assert!(stats.evictions >= 450 && stats.frames >= 40, "{stats:?}");
    assert_eq!(stats.bypasses, 0);
}

#[test]
fn pinned_frame_stays_counted_and_is_not_evicted() {
    let table = CacheTable::new(10_000);
    let pinned = load(&table, key(1, 0), 4000, Rank::Page);
    for page in 1..50 {
        load(&table, key(1, page), 4000, Rank::Page);
    }
    assert!(table.get(key(1, 0)).is_some(), "it is still found");
    table.forget(1, 50);
    assert_eq!(table.stats().frames, 0);
    assert_eq!(table.stats().used_bytes, 4000 + frame::OVERHEAD as u64);
    assert_eq!(&pinned[..3], &[0, 0, 0]);
    drop(pinned);
    assert_eq!(table.stats().used_bytes, 0);
}

#[test]
fn read_goes_on_with_a_private_buffer_when_all_is_pinned() {
    let table = CacheTable::new(3000);
    let first = load(&table, key(1, 1), 2000, Rank::Page);
    let second = load(&table, key(1, 2), 2000, Rank::Page);
    assert_eq!(second[0], 2);
    let stats = table.stats();
    assert_eq!((stats.frames, stats.bypasses), (1, 1));
    assert!(stats.bypass_bytes > 2000);
    drop((first, second));
    assert_eq!(table.stats().bypass_bytes, 0);
}

#[test]
fn reservation_pushes_frames_out_and_gives_room_back() {
    let table = CacheTable::new(20_000);
    for page in 0..10 {
        load(&table, key(1, page), 1500, Rank::Page);
    }
    let reservation = table.reserve(15_000);
    assert!(table.stats().used_bytes <= 5000);
    drop(reservation);
    assert_eq!(table.stats().reserved_bytes, 0);
}

#[test]
fn index_frames_outlive_pages_that_are_read_once() {
    let table = CacheTable::new(1 << 20);
    for page in 0..100 {
        load(&table, key(7, page), 500, Rank::Index);
    }
    for page in 0..1000 {
        load(&table, key(8, page), 2000, Rank::Page);
    }
    let kept = (0..100).filter(|page| table.get(key(7, *page)).is_some()).count();
    assert!(kept > 80, "{kept} of 100 index frames left");
}

#[test]
fn bound_holds_under_threads() {
    let table = CacheTable::new(100_000);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let table = &table;
            scope.spawn(move || {
                let mut state = thread + 1;
                for _ in 0..3000 {
                    state =
                        state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let page = (state >> 33) as u32 % 300;
                    let frame = load(table, key(1, page), 700, Rank::Page);
                    assert!(frame.iter().all(|byte| *byte == page as u8));
                    assert!(table.stats().used_bytes <= 100_000);
                }
            });
        }
    });
}
