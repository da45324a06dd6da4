//! Compression dictionaries: made when a tree has grown, kept by the leaves that need them, and never a wrong answer.
#![allow(clippy::unwrap_used, reason = "a test that meets an error fails")]

use blockfile::{BlockFile, Compression, Metrics, Options, SegmentId};
use cachetable::{CacheTable, MemoryKind};
use ftree::{
    Context, Direction, Effort, Error, KeyRange, Message, Progress, Tree, TreeLoader, TreeOptions,
    Visibility,
};
use os::sim::SimOs;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "/data";
const FILE: &str = "/data/fern.data";
const TREE: u64 = 5;
/// The kind of a dictionary's segment in the block file.
const DICTIONARY_KIND: u8 = 6;
/// So many rows that the last leaf is more than half full: what comes behind it does not rewrite it.
const DAMAGED: u64 = 12_400;
/// Enough for a dictionary to be made.
const ROOMY: u64 = 64 << 20;

fn open(sim: &SimOs) -> BlockFile {
    let os = sim.os();
    os.vfs.create_dir_all(Path::new(DIR)).unwrap();
    let metrics = Metrics::new(&telemetry::Registry::new());
    BlockFile::open(&os, Path::new(DIR), Options::default(), metrics).unwrap().0
}

fn context(sim: &SimOs, cache: u64) -> Arc<Context> {
    Context::new(open(sim), Arc::new(CacheTable::new(cache)))
}

fn options() -> TreeOptions {
    TreeOptions {
        compression: Compression::Zstd(3),
        page_size: 64 << 10,
        read_page_size: 2 << 10,
        buffer_bytes: 256 << 10,
        ..TreeOptions::default()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:07}").into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    let noise = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!(
        "{{\"ticker\": \"T{:05}\", \"exchange\": \"X{}\", \"open\": {}, \"source\": \"{noise:x}\"}}",
        number % 1000,
        number % 7,
        noise % 10_000
    )
    .into_bytes()
}

/// A tree of so many rows that were loaded in order, at timestamp 1.
fn loaded(context: &Arc<Context>, options: TreeOptions, rows: u64) -> Arc<Tree> {
    let tree = Tree::create(context, TREE, options);
    let mut loader = TreeLoader::new(&tree, 1);
    for number in 0..rows {
        loader.add(&key(number), &value(number)).unwrap();
    }
    loader.finish().unwrap();
    tree
}

fn settle(tree: &Tree, ts: u64) {
    let visibility = Visibility::newest_only(ts);
    while tree.work(&visibility, Effort::Idle).unwrap() != Progress::Idle {}
}

fn dictionaries(context: &Context) -> Vec<u64> {
    let segments = context.blocks.segments().into_iter();
    segments.filter(|info| info.kind == DICTIONARY_KIND).map(|info| info.id.0).collect()
}

/// Reads everything both ways, and some rows alone.
fn read_all(tree: &Arc<Tree>, ts: u64, expected: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<(), Error> {
    for direction in [Direction::Forward, Direction::Backward] {
        let mut rows: Vec<_> = expected.iter().collect();
        if direction == Direction::Backward {
            rows.reverse();
        }
        let mut cursor = tree.cursor(KeyRange::all(), ts, direction);
        for row in rows {
            let found = cursor.next()?.expect("no row is missing");
            assert_eq!(found, (&row.0[..], &row.1[..]));
        }
        assert_eq!(cursor.next()?, None);
    }
    for (key, value) in expected.iter().step_by(37) {
        let found = tree.get(key, ts)?.expect("no row is missing");
        assert_eq!(&found[..], &value[..]);
    }
    Ok(())
}

fn rows(count: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    (0..count).map(|number| (key(number), value(number))).collect()
}

#[test]
fn a_tree_that_grows_makes_one_and_again_after_four_times_as_much() {
    let sim = SimOs::new(4);
    let context = context(&sim, ROOMY);
    // Rows of some 110 bytes. The first leaves are without, and a small tree has none.
    assert_eq!(loaded(&context, options(), 1500).stats().compression_dictionaries, 0);
    let tree = loaded(&context, options(), 12_000);
    assert_eq!(tree.stats().compression_dictionaries, 1);
    let tree = loaded(&context, options(), 60_000);
    assert_eq!(tree.stats().compression_dictionaries, 2);
    tree.verify().unwrap();
    read_all(&tree, 1, &rows(60_000)).unwrap();
    // Other methods have none.
    let zlib = TreeOptions { compression: Compression::Zlib(6), ..options() };
    assert_eq!(loaded(&context, zlib, 60_000).stats().compression_dictionaries, 0);
}

#[test]
fn pages_are_half_as_large_and_take_no_more_of_the_disk() {
    let sim = SimOs::new(4);
    let roomy = context(&sim, ROOMY);
    let with = loaded(&roomy, options(), 60_000).stats();
    // Where there is no room to make one the tree does without.
    let narrow = context(&SimOs::new(4), 4 << 20);
    let without = loaded(&narrow, options(), 60_000).stats();
    assert_eq!((with.compression_dictionaries, without.compression_dictionaries), (2, 0));
    let (with, without) = (with.written_bytes, without.written_bytes);
    assert!(with < without, "{with} bytes with dictionaries, {without} without");
}

#[test]
fn an_opened_tree_reads_with_its_dictionaries_in_any_cache_and_goes_on_with_the_newest() {
    let sim = SimOs::new(4);
    let context = context(&sim, ROOMY);
    let tree = loaded(&context, options(), 60_000);
    let image = tree.image().unwrap();
    let (segments, made) = (tree.segments(), dictionaries(&context));
    assert_eq!(made.len(), 2);
    assert!(made.iter().all(|id| segments.contains(id)), "what is named is kept on the disk");
    let expected = rows(60_000);
    for capacity in [100_000, ROOMY] {
        let cache = Arc::new(CacheTable::new(capacity));
        let narrow = Context::new(context.blocks.clone(), Arc::clone(&cache));
        let opened = Tree::open(&narrow, TREE, options(), image.bytes()).unwrap();
        read_all(&opened, 1, &expected).unwrap();
        opened.verify().unwrap();
        let ready = cache.held(MemoryKind::Dictionaries);
        assert_eq!(ready > 0, capacity == ROOMY, "they take a small part of the cache: {ready}");
        assert!(ready <= capacity / 32);
        assert_eq!(opened.segments(), segments);
        if capacity == ROOMY {
            // A leaf that is rewritten takes the newest, and none is made for it.
            opened.insert(&key(3), 2, Message::Put(b"new"));
            opened.seal(2);
            settle(&opened, 2);
            assert_eq!(opened.stats().compression_dictionaries, 0);
            assert_eq!(dictionaries(&context), made);
            opened.verify().unwrap();
        }
    }
}

#[test]
fn a_dictionary_goes_with_the_last_leaf_that_needs_it() {
    let sim = SimOs::new(4);
    let context = context(&sim, ROOMY);
    let tree = loaded(&context, options(), 60_000);
    assert_eq!(dictionaries(&context).len(), 2);
    for number in 0..60_000 {
        tree.insert(&key(number), 2 + number, Message::Delete);
        if number % 1000 == 999 {
            tree.seal(2 + number);
            settle(&tree, 2 + number);
        }
    }
    assert_eq!(tree.stats().disk_keys, 0);
    assert_eq!(dictionaries(&context), []);
}

#[test]
fn a_load_that_is_given_up_leaves_no_dictionary() {
    let sim = SimOs::new(4);
    let context = context(&sim, ROOMY);
    let tree = Tree::create(&context, TREE, options());
    let mut loader = TreeLoader::new(&tree, 1);
    for number in 0..12_000 {
        loader.add(&key(number), &value(number)).unwrap();
    }
    assert_eq!(dictionaries(&context).len(), 1);
    drop(loader);
    assert_eq!(dictionaries(&context), []);
}

#[test]
fn a_damaged_dictionary_is_an_error_and_never_a_wrong_row() {
    let sim = SimOs::new(4);
    let expected = rows(DAMAGED);
    let blocks = open(&sim);
    let writer = Context::new(blocks.clone(), Arc::new(CacheTable::new(ROOMY)));
    let tree = loaded(&writer, options(), DAMAGED);
    let image = tree.image().unwrap();
    let [dictionary] = dictionaries(&writer)[..] else { panic!("one dictionary") };
    let place = blocks.segments().into_iter().find(|info| info.id == SegmentId(dictionary));
    let first = place.unwrap().offset;
    let file = sim.os().vfs.open(Path::new(FILE), os::OpenOptions::create()).unwrap();
    let mut refused = 0;
    for at in (0..3000).step_by(97) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, first + at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], first + at).unwrap();
        let reader = Context::new(blocks.clone(), Arc::new(CacheTable::new(ROOMY)));
        let opened = Tree::open(&reader, TREE, options(), image.bytes()).unwrap();
        match read_all(&opened, 1, &expected) {
            // Behind its end.
            Ok(()) => {}
            Err(Error::Blocks(blockfile::Error::Corruption { segment, .. })) => {
                assert_eq!(segment, dictionary, "the message names what is damaged");
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
        if at == 970 {
            // New rows do not wait for a dictionary that is damaged.
            for number in DAMAGED..DAMAGED + 4000 {
                opened.insert(&key(number), 2, Message::Put(&value(number)));
            }
            opened.seal(2);
            settle(&opened, 2);
            let found = opened.get(&key(DAMAGED + 3999), 2).unwrap().unwrap();
            assert_eq!(&found[..], value(DAMAGED + 3999));
        }
        file.write_all_at(&byte, first + at).unwrap();
    }
    assert!(refused > 10, "{refused} refused");
}
