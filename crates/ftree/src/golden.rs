//! Golden files of every format of this crate, and decoders on damaged bytes.

use crate::Direction;
use crate::block::BlockHandle;
use crate::filter;
use crate::large::LargeRef;
use crate::message::KeyRange;
use crate::message::{Entry, Message};
use crate::node::{Child, ChildImage, Parts, Shares, StoredNode, decode, encode};
use crate::options::TreeOptions;
use crate::page::{PageBuilder, PageView};
use crate::segment::{
    Bounds, Content, Descriptor, Reading, Role, Segment, SegmentBuilder, SegmentIter,
};
use crate::tombstones::{self, Tombstone, Tombstones, no_parts};
use crate::tree::{Context, Tree, parse_header};
use crate::tree_shared::TreeShared;
use blockfile::{BlockFile, Compression, Metrics, Options, PageRef, SegmentId};
use cachetable::CacheTable;
use proptest::prelude::*;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

fn golden(name: &str, encoded: &[u8]) {
    let committed = testkit::golden(env!("CARGO_MANIFEST_DIR"), name, encoded);
    assert!(committed == encoded, "{name} differs from the committed bytes");
}

fn shared() -> Arc<TreeShared> {
    let os = os::sim::SimOs::new(1).os();
    os.vfs.create_dir_all(Path::new("/data")).unwrap();
    let metrics = Metrics::new(&telemetry::Registry::new());
    let (blocks, _) =
        BlockFile::open(&os, Path::new("/data"), Options::default(), metrics).unwrap();
    TreeShared::new(5, blocks, Arc::new(CacheTable::new(1 << 20)))
}

const ENTRIES: [(&str, u64, Option<&str>); 6] = [
    ("", 9, Some("empty key")),
    ("key", 12, Some("newer")),
    ("key", 7, None),
    ("key/1", 300, Some("")),
    ("key/1000", 1 << 40, Some("a value")),
    ("other", 8, None),
];

fn entries() -> impl Iterator<Item = Entry<'static>> {
    ENTRIES.iter().map(|(key, ts, value)| Entry {
        key: key.as_bytes(),
        ts: *ts,
        message: value.map_or(Message::Delete, |value| Message::Put(value.as_bytes())),
    })
}

#[test]
fn page_matches_its_golden_file() {
    let mut builder = PageBuilder::default();
    entries().for_each(|entry| builder.add(entry));
    let mut bytes = Vec::new();
    builder.finish(&mut bytes);
    golden("page.bin", &bytes);
    let view = PageView::open(&bytes).unwrap();
    view.check().unwrap();
    assert_eq!(view.count(), ENTRIES.len());
    // Shared prefix and four-byte offsets.
    let large = vec![b'v'; 70_000];
    for number in 0..3u8 {
        let key = [&b"prefix/"[..], &[number]].concat();
        builder.add(Entry { key: &key, ts: 5, message: Message::Put(&large[..30_000]) });
    }
    builder.finish(&mut bytes);
    golden("page-wide.bin", &bytes[..64]);
}

#[test]
fn page_with_updates_matches_its_golden_file() {
    let mut builder = PageBuilder::default();
    for (key, ts, message) in [
        ("a", 9, Message::Update(b"newer")),
        ("a", 7, Message::Update(b"older")),
        ("a", 5, Message::Put(b"base")),
        ("b", 8, Message::Update(b"")),
    ] {
        builder.add(Entry { key: key.as_bytes(), ts, message });
    }
    let mut bytes = Vec::new();
    builder.finish(&mut bytes);
    golden("page-update.bin", &bytes);
    let entries = crate::format::read_page(&bytes).unwrap();
    assert_eq!(entries[1].2, crate::format::PageValue::Update(b"older".to_vec()));
}

#[test]
fn filter_matches_its_golden_file() {
    let hashes: Vec<u64> = entries().map(|entry| crate::memtable::hash(entry.key)).collect();
    let bytes = filter::build(&hashes);
    golden("filter.bin", &bytes);
    filter::check(&bytes).unwrap();
}

#[test]
fn segment_matches_its_golden_file_and_reads_back() {
    let shared = shared();
    let options = TreeOptions {
        compression: Compression::None,
        read_page_size: 90,
        ..TreeOptions::default()
    };
    let mut builder = SegmentBuilder::new(&shared, &options, Role::Run);
    entries().for_each(|entry| builder.add(entry).unwrap());
    let segment = builder.finish().unwrap();
    assert!(segment.pages() > 1);
    let mut bytes = vec![0; segment.content().stored_bytes as usize];
    shared.blocks.read(SegmentId(segment.id()), 0, &mut bytes).unwrap();
    golden("segment.bin", &bytes);
    let bounds = Bounds::default();
    let mut iter =
        SegmentIter::new(segment, bounds, None, Direction::Forward, Reading::Streaming).unwrap();
    for entry in entries() {
        assert_eq!(iter.entry(), Some(entry));
        iter.advance().unwrap();
    }
    assert!(iter.entry().is_none());
}

fn descriptor(id: u64, filter: bool) -> Descriptor {
    let block = |page, offset| BlockHandle { page: PageRef { page, len: 70, offset }, raw_len: 99 };
    Descriptor {
        id,
        pages: 3,
        index: block(3, 5000),
        filter: filter.then(|| block(4, 5070)),
        content: Content {
            entries: 40,
            keys: 39,
            deletes: 2,
            key_bytes: 400,
            value_bytes: 4000,
            raw_bytes: 4800,
            stored_bytes: 5200,
            large_bytes: 90_000,
            min_ts: 10,
            max_ts: 500,
            min_key: (*b"a").into(),
            max_key: (*b"zebra").into(),
        },
        large: [id + 5000, id + 5001, id + 9000].into(),
        dictionary: None,
    }
}

/// The first leaf of [`nodes`] with a compression dictionary.
fn node_with_dictionary() -> Vec<u8> {
    let page = PageRef { page: 0, len: 2900, offset: 0 };
    let at = LargeRef { segment: 990, block: BlockHandle { page, raw_len: 4096 } };
    nodes_of(Descriptor { dictionary: Some(at), ..descriptor(1000, false) })[0].clone()
}

/// A node over two leaves with one run, and a root over that node.
fn nodes() -> [Vec<u8>; 2] {
    nodes_of(descriptor(1000, false))
}

fn nodes_of(leaf: Descriptor) -> [Vec<u8>; 2] {
    let (shared, options) = (shared(), TreeOptions::default());
    let mut parts = Parts::over(1, Child::Empty);
    let leaf = Segment::new(&shared, Role::Leaf, leaf);
    let pivot: Arc<[u8]> = b"middle".as_slice().into();
    parts.replace(0..1, vec![Child::Leaf(leaf), Child::Empty], vec![pivot]);
    let shares = Shares { places: parts.places(), bytes: vec![1500, 0] };
    parts.attach(Segment::new(&shared, Role::Run, descriptor(1001, true)), 77, &shares);
    let below = parts.close(&options, &shared).remove(0);
    let mut bytes = [Vec::new(), Vec::new()];
    encode(&below, &mut bytes[0]);
    let page = PageRef { page: 0, len: 321, offset: 0 };
    assert!(below.stored.set(StoredNode { id: 1002, page, shared: Arc::clone(&shared) }).is_ok());
    let root = Parts::over(2, Child::Node(below)).close(&options, &shared).remove(0);
    encode(&root, &mut bytes[1]);
    bytes
}

#[test]
fn node_matches_its_golden_file() {
    let [below, root] = nodes();
    golden("node.bin", &below);
    golden("node-root.bin", &root);
    assert!(decode(&below).is_some() && decode(&root).is_some());
}

#[test]
fn node_with_a_compression_dictionary_matches_its_golden_file() {
    let node = node_with_dictionary();
    golden("node-dictionary.bin", &node);
    assert_eq!(node[0], 3, "programs that know no dictionaries refuse it");
    let image = decode(&node).unwrap();
    let Some(ChildImage::Leaf(leaf)) = image.children.first() else { panic!("a leaf") };
    assert_eq!(leaf.dictionary.map(|at| at.segment), Some(990));
}

/// An empty tree, with these tombstones, that has flushed every commit up to 20.
fn image(tombstones: &[Tombstone]) -> Vec<u8> {
    let shared = shared();
    let context = Context::new(shared.blocks.clone(), Arc::clone(&shared.cache));
    let tree = Tree::create(&context, 5, TreeOptions::default());
    for one in tombstones {
        tree.add_tombstone(one.clone());
    }
    tree.seal(20);
    tree.image().unwrap().bytes().to_vec()
}

fn tombstones() -> Vec<Tombstone> {
    let range = |lower: &[u8], upper: &[u8]| KeyRange {
        lower: Bound::Included(lower.to_vec()),
        upper: Bound::Excluded(upper.to_vec()),
    };
    vec![
        Tombstone::new(7, &range(b"a", b"zebra"), &[]),
        Tombstone::new(20, &range(b"", b"b"), b"a part"),
        Tombstone::new(9, &KeyRange::all(), &[]),
    ]
}

#[test]
fn tree_image_matches_its_golden_file() {
    let (without, with) = (image(&[]), image(&tombstones()));
    golden("tree-image.bin", &without);
    golden("tree-image-2.bin", &with);
    assert_eq!(parse_header(&without).unwrap().tombstones, []);
    let header = parse_header(&with).unwrap();
    assert_eq!((header.tombstones, header.flushed_ts), (tombstones(), 20));
    assert!(decode(header.root).is_some());
    // What is not flushed is in the log.
    let later = Tombstone::new(21, &KeyRange::all(), &[]);
    assert_eq!(image(&[later]), without);
}

#[test]
fn tree_image_cut_or_changed_anywhere_does_not_parse() {
    let bytes = image(&tombstones());
    for cut in 0..bytes.len() {
        assert!(parse_header(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        assert!(parse_header(&bytes).is_err(), "changed at {at}");
    }
}

#[test]
fn node_cut_anywhere_does_not_parse() {
    for bytes in nodes().into_iter().chain([node_with_dictionary()]) {
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_none(), "cut at {cut}");
        }
    }
}

proptest! {
    #[test]
    fn mutated_node_never_panics(
        which in 0usize..3,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let [below, root] = nodes();
        let mut bytes = [below, root, node_with_dictionary()][which].clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _either = decode(&bytes);
    }

    #[test]
    fn mutated_tombstones_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut bytes = Vec::new();
        let list = Tombstones::new(tombstones(), no_parts, None).unwrap();
        list.encode(20, &mut bytes);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _either = tombstones::decode(&bytes);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _node = decode(&bytes);
        let _tombstones = tombstones::decode(&bytes);
        let _filter = filter::check(&bytes);
        if let Ok(view) = PageView::open(&bytes) {
            let _page = view.check();
        }
    }
}
