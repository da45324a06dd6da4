//! A writer, readers and workers that swap the tree's state under them, in every order shuttle
//! finds.
//!
//! Run by `cargo xtask test --only interleavings`.

use crate::{
    Context, Direction, Effort, KeyRange, Message, Progress, Tree, TreeOptions, Visibility,
};
use blockfile::{BlockFile, Metrics, Options};
use cachetable::CacheTable;
use os::sim::SimOs;
use os::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;
use std::path::Path;
use std::sync::Arc;
use telemetry::Registry;

const SCHEDULES: usize = 60;
const COMMITS: u64 = 14;
const KEYS: u64 = 4;

fn tree() -> Arc<Tree> {
    let os = SimOs::new(1).os();
    let dir = Path::new("/data");
    os.vfs.create_dir_all(dir).expect("no fault is planned");
    let metrics = Metrics::new(&Registry::new());
    let opened = BlockFile::open(&os, dir, Options::default(), metrics);
    let (blocks, _) = opened.expect("no fault is planned");
    let context = Context::new(blocks, Arc::new(CacheTable::new(30_000)));
    Tree::create(&context, 1, TreeOptions { buffer_bytes: 1024, ..TreeOptions::tiny() })
}

/// Commit `ts` writes its number under a key of its own turn, and under the clock.
fn commit(tree: &Tree, ts: u64) {
    let value = ts.to_le_bytes().repeat(12);
    tree.insert(&[(ts % KEYS) as u8], ts, Message::Put(&value));
    tree.insert(b"~clock", ts, Message::Put(&value));
}

fn number(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Everything a reader at `ts` must see, by get and by cursor.
fn check(tree: &Arc<Tree>, ts: u64) {
    let clock = tree.get(b"~clock", ts).expect("no fault is planned");
    assert_eq!(clock.map_or(0, |value| number(&value)), ts);
    let expected: Vec<(Vec<u8>, u64)> = (0..KEYS)
        .filter_map(|key| {
            let newest = (1..=ts).rev().find(|commit| commit % KEYS == key)?;
            Some((vec![key as u8], newest))
        })
        .chain((ts > 0).then(|| (b"~clock".to_vec(), ts)))
        .collect();
    let mut cursor = tree.cursor(KeyRange::all(), ts, Direction::Forward);
    let mut found = Vec::new();
    while let Some((key, value)) = cursor.next().expect("no fault is planned") {
        found.push((key.to_vec(), number(value)));
    }
    assert_eq!(found, expected, "at {ts}");
}

#[test]
fn readers_see_every_commit_whatever_is_swapped_under_them() {
    shuttle::check_random(
        || {
            let tree = tree();
            let watermark = Arc::new(AtomicU64::new(0));
            let writer = {
                let (tree, watermark) = (Arc::clone(&tree), Arc::clone(&watermark));
                thread::spawn(move || {
                    for ts in 1..=COMMITS {
                        commit(&tree, ts);
                        watermark.store(ts, Ordering::SeqCst);
                    }
                })
            };
            let worker = || {
                let (tree, watermark) = (Arc::clone(&tree), Arc::clone(&watermark));
                thread::spawn(move || {
                    for _ in 0..4 {
                        tree.seal(watermark.load(Ordering::SeqCst));
                        // Horizon 0: every version is still wanted.
                        let all = Visibility::new(0, &[]);
                        while let Progress::Done(_) =
                            tree.work(&all, Effort::Needed).expect("no fault is planned")
                        {
                        }
                        thread::yield_now();
                    }
                })
            };
            let workers = [worker(), worker()];
            let reader = {
                let (tree, watermark) = (Arc::clone(&tree), Arc::clone(&watermark));
                thread::spawn(move || {
                    for _ in 0..3 {
                        check(&tree, watermark.load(Ordering::SeqCst));
                    }
                })
            };
            for thread in workers.into_iter().chain([writer, reader]) {
                thread.join().expect("no thread panics");
            }
            (0..=COMMITS).for_each(|ts| check(&tree, ts));
            tree.verify().expect("the tree keeps its rules");
        },
        SCHEDULES,
    );
}
