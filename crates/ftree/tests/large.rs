//! Values too large for pages: written once, passed by, freed exactly.
#![allow(clippy::unwrap_used, reason = "a test that meets an error fails")]

use blockfile::{BlockFile, Compression, Metrics, Options};
use cachetable::CacheTable;
use ftree::{
    Context, Direction, Effort, KeyRange, Message, Progress, Stats, Step, Tree, TreeOptions,
    Visibility, Walk,
};
use os::sim::SimOs;
use std::path::Path;
use std::sync::Arc;

/// With pages of 1 KiB, the longest value that stays in pages.
const LONGEST: usize = 2 << 10;

fn context() -> Arc<Context> {
    let os = SimOs::new(4).os();
    os.vfs.create_dir_all(Path::new("/data")).unwrap();
    let metrics = Metrics::new(&telemetry::Registry::new());
    let (blocks, _) =
        BlockFile::open(&os, Path::new("/data"), Options::default(), metrics).unwrap();
    Context::new(blocks, Arc::new(CacheTable::new(1 << 20)))
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
    format!("key {:09}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).into_bytes()
}

fn value(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number as usize + at) as u8).collect()
}

fn settle(tree: &Tree, ts: u64, effort: Effort) {
    let visibility = Visibility::newest_only(ts);
    while tree.work(&visibility, effort).unwrap() != Progress::Idle {}
}

/// `count` values in random key order, at timestamps 1 to `count`.
fn load(tree: &Tree, count: u64, len: usize) -> Stats {
    for number in 0..count {
        tree.insert(&key(number), number + 1, Message::Put(&value(number, len)));
        if number % 40 == 39 || number + 1 == count {
            tree.seal(number + 1);
            settle(tree, number + 1, Effort::Needed);
        }
    }
    tree.stats()
}

#[test]
fn merges_pass_large_values_by() {
    let amplification = |len| {
        let tree = Tree::create(&context(), 1, small());
        let loaded = load(&tree, 3000, len);
        settle(&tree, 3000, Effort::Idle);
        let bytes = 3000 * len as u64;
        assert_eq!(tree.stats().value_bytes, bytes, "sizes are those of the values");
        (loaded.large_values, loaded.written_bytes as f64 / bytes as f64)
    };
    let (none, in_pages) = amplification(LONGEST);
    let (all, alone) = amplification(LONGEST + 1);
    assert_eq!((none, all), (0, 3000));
    // What is left are the references, with the shares of indexes and filters that they have.
    assert!(alone < 2.0 && in_pages > 2.0 * alone, "{alone} and {in_pages}");
}

#[test]
fn large_value_goes_with_the_last_version_that_has_it() {
    let context = context();
    let tree = Tree::create(&context, 1, small());
    load(&tree, 200, LONGEST * 3);
    let orphans = || context.blocks.stats().segments - tree.segments().len() as u64;
    let values = || context.blocks.segments().iter().filter(|info| info.kind == 4).count();
    assert_eq!((values(), orphans()), (200, 0));
    for number in 0..200 {
        let message = value(number, LONGEST * 2);
        let message = if number % 4 == 0 { Message::Delete } else { Message::Put(&message) };
        tree.insert(&key(number), 300 + number, message);
    }
    tree.seal(600);
    let old = Visibility::new(600, &[250]);
    while tree.work(&old, Effort::Idle).unwrap() != Progress::Idle {}
    assert_eq!((values(), orphans()), (350, 0), "a snapshot sees the old ones");
    assert_eq!(tree.get(&key(5), 250).unwrap().unwrap()[..], value(5, LONGEST * 3));
    settle(&tree, 600, Effort::Idle);
    for number in 0..200 {
        tree.insert(&key(number), 700 + number, Message::Put(b"small"));
    }
    tree.seal(1000);
    settle(&tree, 1000, Effort::Idle);
    tree.verify().unwrap();
    assert_eq!((values(), orphans()), (0, 0));
    assert_eq!(tree.get(&key(5), 1000).unwrap().unwrap()[..], *b"small");
}

#[test]
fn rewrite_compresses_large_values_too_some_at_a_time() {
    const LEN: usize = 1 << 20;
    let context = context();
    let tree = Tree::create(&context, 1, small());
    load(&tree, 40, LEN);
    for number in 0..40 {
        tree.insert(&key(number), 100 + number, Message::Put(&value(number + 1, LEN)));
    }
    tree.seal(200);
    // A snapshot sees the old values, which are rewritten as the new ones are.
    let both = Visibility::new(200, &[50]);
    while tree.work(&both, Effort::Idle).unwrap() != Progress::Idle {}
    let plain = tree.stats();
    assert!(plain.large_bytes >= 80 * LEN as u64);
    tree.set_options(TreeOptions { compression: Compression::Zstd(3), ..small() });
    let (mut walk, mut steps, mut passed) = (Walk::new(true), 0, 0);
    loop {
        steps += 1;
        match tree.rewrite(&mut walk, &both).unwrap() {
            Step::Busy => std::thread::yield_now(),
            Step::Passed(bytes) => passed += bytes,
            Step::Ended(bytes) => {
                passed += bytes;
                break;
            }
        }
        for number in [0, 20, 39] {
            assert_eq!(tree.get(&key(number), 50).unwrap().unwrap()[..], value(number, LEN));
        }
    }
    assert!(steps >= 5, "{steps} steps for 80 MiB");
    assert!(passed >= plain.large_bytes && passed < plain.large_bytes * 3 / 2, "{passed}");
    let stats = tree.stats();
    assert!(stats.stored_bytes * 10 < plain.stored_bytes, "{stats:?}");
    assert_eq!(context.blocks.stats().segments, tree.segments().len() as u64);
    for number in 0..40 {
        assert_eq!(tree.get(&key(number), 50).unwrap().unwrap()[..], value(number, LEN));
        assert_eq!(tree.get(&key(number), 200).unwrap().unwrap()[..], value(number + 1, LEN));
    }
    // With larger pages they lie in those.
    tree.set_options(TreeOptions { page_size: 4 << 20, read_page_size: LEN, ..small() });
    let mut walk = Walk::new(true);
    while !matches!(tree.rewrite(&mut walk, &both).unwrap(), Step::Ended(_)) {}
    assert_eq!(tree.stats().large_bytes, 0);
    tree.verify().unwrap();
    assert_eq!(tree.get(&key(7), 200).unwrap().unwrap()[..], value(8, LEN));
}

#[test]
fn opened_tree_has_its_large_values_and_frees_them_later() {
    let context = context();
    let tree = Tree::create(&context, 1, small());
    load(&tree, 300, LONGEST + 500);
    let image = tree.image().unwrap();
    let segments = tree.segments();
    drop(tree);
    let tree = Tree::open(&context, 1, small(), image.bytes()).unwrap();
    drop(image);
    assert_eq!(tree.segments(), segments);
    tree.verify().unwrap();
    let mut backward = tree.cursor(KeyRange::all(), 300, Direction::Backward);
    let mut met = 0;
    while let Some((found, bytes)) = backward.next().unwrap() {
        let number = (0..300).find(|number| key(*number) == found).unwrap();
        assert_eq!(bytes, value(number, LONGEST + 500));
        met += 1;
    }
    assert_eq!(met, 300);
    drop(backward);
    for number in 0..300 {
        tree.insert(&key(number), 400 + number, Message::Delete);
    }
    tree.seal(800);
    settle(&tree, 800, Effort::Idle);
    assert!(context.blocks.segments().iter().all(|info| info.kind != 4));
}

#[test]
fn what_is_stepped_over_is_not_read() {
    let tree = Tree::create(&context(), 1, small());
    load(&tree, 300, 10_000);
    settle(&tree, 300, Effort::Idle);
    let mut keys: Vec<Vec<u8>> = (0..300).map(key).collect();
    keys.sort();
    let mut cursor = tree.cursor(KeyRange::all(), 300, Direction::Forward);
    while cursor.next().unwrap().is_some() {}
    let before = tree.stats().page_reads;
    // Present or absent, a unique check asks for no value.
    for number in 0..300 {
        assert_eq!(tree.newest(&key(number)).unwrap(), Some((number + 1, false)));
    }
    let reads = tree.stats().page_reads - before;
    assert!(reads < 60, "{reads} pages read");
    let mut cursor = tree.cursor(KeyRange::all(), 300, Direction::Forward);
    let before = tree.stats().page_reads;
    for key in keys.iter().step_by(5) {
        cursor.seek(key).unwrap();
        assert_eq!(cursor.next().unwrap().unwrap().0, key);
    }
    let reads = tree.stats().page_reads - before;
    assert!(reads < 60 + 60, "{reads} pages read for 60 values");
}
