//! The tool against data directories that a real engine wrote, whole and damaged.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use blockfile::format::{BlobPointer, Superblock};
use blockfile::{BlockFile, PageContext, UNIT, decode_page, encode_page};
use engine::{
    Background, Compression, DictionaryId, DictionaryOptions, Durability, Engine, Options,
    TxnOptions,
};
use fern::check::{Checkup, check};
use fern::inspect::{Section, inspect};
use fern::{DataDirectory, Findings};
use os::{OpenOptions, Os};
use telemetry::Registry;
use testkit::Gen;
use wal::format::{HEADER_BYTES, SegmentHeader, segment_number};
use wal::{Wal, WalOptions};

const KEYS: u64 = 3000;

/// How much longer than usual random runs are.
fn scale() -> u64 {
    std::env::var("FERN_ENGINE_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn open_engine(dir: &Path) -> engine::Result<Engine> {
    let mut options = Options::new(dir);
    options.background = Background::Manual;
    options.cache_size = 8 << 20;
    options.checkpoint_period = Duration::ZERO;
    options.fs_redzone_percent = 0;
    options.sizes.write_budget = 256 << 10;
    options.sizes.memtable_bytes = 32 << 10;
    options.sizes.chunk_bytes = 2000;
    options.sizes.log_segment_bytes = 64 << 10;
    options.sizes.log_cap = 8 << 20;
    options.sizes.tiny_trees = true;
    Engine::open(Os::real(), Arc::new(Registry::new()), options)
}

fn write(engine: &Engine, random: &mut Gen, dictionary: DictionaryId, commits: u64) {
    for _ in 0..commits {
        let mut txn = engine.begin(TxnOptions::default());
        for _ in 0..40 {
            let key = random.key(KEYS);
            if random.one_in(6) {
                txn.delete(dictionary, &key).unwrap();
            } else {
                txn.put(dictionary, &key, &random.value(60)).unwrap();
            }
        }
        txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    }
}

/// A directory as a kill left it: trees of several levels with runs, a checkpoint, and behind it
/// synced log, then a last commit.
fn killed(dir: &Path) {
    static MADE: OnceLock<Vec<(PathBuf, Vec<u8>)>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let made = tempfile::tempdir().unwrap();
        write_and_die(made.path());
        let relative = |path: &Path| path.strip_prefix(made.path()).unwrap().to_path_buf();
        files(made.path()).into_iter().map(|(path, bytes)| (relative(&path), bytes)).collect()
    });
    fs::create_dir(dir.join("journal")).unwrap();
    for (path, bytes) in made {
        fs::write(dir.join(path), bytes).unwrap();
    }
}

fn write_and_die(dir: &Path) {
    let engine = open_engine(dir).unwrap();
    let mut random = Gen::new(7);
    let mut txn = engine.begin(TxnOptions::default());
    let filtered = DictionaryOptions { leaf_filter: true, ..DictionaryOptions::default() };
    let second = txn.create_dictionary(filtered).unwrap();
    let lz4 = DictionaryOptions { compression: Compression::Lz4, ..filtered };
    let third = txn.create_dictionary(lz4).unwrap();
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    for (dictionary, commits) in [(DictionaryId::ROOT, 60), (second, 60), (third, 5)] {
        write(&engine, &mut random, dictionary, commits);
        while engine.step().unwrap() {}
    }
    engine.checkpoint().unwrap();
    write(&engine, &mut random, second, 20);
    engine.checkpoint().unwrap();
    write(&engine, &mut random, second, 30);
    engine.sync().unwrap();
    write(&engine, &mut random, third, 1);
    drop(engine);
}

fn look(dir: &Path) -> DataDirectory {
    DataDirectory::open(&Os::real(), dir, None).unwrap()
}

fn checkup(dir: &Path) -> Checkup {
    check(&look(dir))
}

fn inspect_all(dir: &Path) -> Findings {
    let directory = look(dir);
    let mut all = Findings::default();
    for section in [Section::Overview, Section::Segments, Section::Tree(1), Section::Tree(2)] {
        let view = inspect(&directory, section).unwrap();
        let (text, json) = (view.text(), view.json().to_string());
        assert!(!text.is_empty() && !json.is_empty());
        all.damages.extend(view.findings.damages);
    }
    all
}

fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for folder in [dir.to_path_buf(), dir.join("journal")] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                all.push((path.clone(), fs::read(path).unwrap()));
            }
        }
    }
    all.sort();
    all
}

/// Changes some bytes of a file and puts them back when dropped.
struct Changed {
    path: PathBuf,
    offset: u64,
    old: Vec<u8>,
}

impl Changed {
    fn new(path: &Path, offset: u64, change: impl FnOnce(&mut [u8]), length: usize) -> Self {
        let file = Os::real().vfs.open(path, OpenOptions::default()).unwrap();
        let mut old = vec![0; length];
        file.read_exact_at(&mut old, offset).unwrap();
        let mut new = old.clone();
        change(&mut new);
        file.write_all_at(&new, offset).unwrap();
        Self { path: path.to_path_buf(), offset, old }
    }

    fn bit(path: &Path, offset: u64, bit: u64) -> Self {
        Self::new(path, offset, |bytes| bytes[0] ^= 1 << bit, 1)
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        let file = Os::real().vfs.open(&self.path, OpenOptions::default()).unwrap();
        file.write_all_at(&self.old, self.offset).unwrap();
    }
}

/// What counts in the data file, found without the tool.
fn live_in_data(dir: &Path) -> Vec<Range<u64>> {
    let copy = tempfile::tempdir().unwrap();
    fs::copy(dir.join("fern.data"), copy.path().join("fern.data")).unwrap();
    let bytes = fs::read(dir.join("fern.data")).unwrap();
    let newest = [0, 4096].map(|at| Superblock::decode(&bytes[at..]).unwrap());
    let newest = newest.iter().max_by_key(|slot| slot.generation).unwrap();
    let mut live = vec![0..512, 4096..4608];
    let blob = |pointer: &BlobPointer| {
        let start = pointer.unit * UNIT;
        start..start + 32 + pointer.bytes
    };
    live.extend([blob(&newest.table), blob(&newest.root)]);
    let metrics = blockfile::Metrics::new(&Registry::new());
    let options = blockfile::Options::default();
    let (blocks, _) = BlockFile::open(&Os::real(), copy.path(), options, metrics).unwrap();
    live.extend(blocks.segments().iter().map(|s| s.offset..s.offset + s.bytes));
    live
}

/// What counts in the log for sure (the checkpoint to the record before the last, which the last
/// one's group marks as synced), and where the tail begins.
fn live_in_log(dir: &Path) -> Vec<(PathBuf, Range<u64>)> {
    let bytes = fs::read(dir.join("fern.data")).unwrap();
    let slots = [0, 4096].map(|at| Superblock::decode(&bytes[at..]).unwrap());
    let from = slots.iter().max_by_key(|slot| slot.generation).unwrap().lsn;
    let metrics = wal::Metrics::new(&Registry::new());
    let log = dir.join("journal");
    let mut replay = Wal::open(&Os::real(), &log, WalOptions::default(), metrics).unwrap();
    replay.seek(from).unwrap();
    let mut ends = Vec::new();
    while let Some(record) = replay.next_record().unwrap() {
        ends.push(record.end);
    }
    // the last commit is a chunk and a commit record, or a few chunks
    let until = ends[ends.len() - 8];
    let mut live = Vec::new();
    for (path, bytes) in files(dir) {
        let Some(number) = segment_number(path.file_name().unwrap().to_str().unwrap()) else {
            continue;
        };
        let Some(header) = SegmentHeader::decode(number, &bytes[..HEADER_BYTES]) else { continue };
        live.push((path.clone(), 0..HEADER_BYTES as u64));
        let (start, end) = (header.first_lsn.max(from), header.end_lsn().min(until));
        if start < end {
            let at = |lsn| HEADER_BYTES as u64 + lsn - header.first_lsn;
            live.push((path, at(start)..at(end)));
        }
    }
    live
}

#[test]
fn whole_directory_is_clean_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    killed(dir.path());
    let before = files(dir.path());
    let found = checkup(dir.path());
    assert!(found.findings.is_clean(), "{}", found.text());
    assert_eq!(inspect_all(dir.path()).damages, []);
    assert!(files(dir.path()) == before, "something was changed");
    let checked = found.checked;
    assert_eq!(checked.trees, 3);
    assert!(checked.nodes > 5 && checked.segments > 20 && checked.entries > 1000);
    assert!(checked.records > 30, "{checked:?}");
    let overview = inspect(&look(dir.path()), Section::Overview).unwrap();
    let json = overview.json();
    assert_eq!(json["trees"].as_array().unwrap().len(), 3);
    assert!(json["trees"][0]["height"].as_u64().unwrap() >= 2, "{json:#}");
    assert!(json["trees"][0]["ratio"].as_f64().unwrap() > 0.5);
    assert!(json["log"]["commits"].as_u64().unwrap() >= 31);
    let missing = inspect(&look(dir.path()), Section::Tree(99)).unwrap_err();
    assert_eq!(missing.to_string(), "the checkpoint has no tree 99");
    // recovery agrees, and after a clean close nothing is behind the checkpoint
    let engine = open_engine(dir.path()).unwrap();
    engine.verify_all().unwrap();
    engine.close().unwrap();
    drop(engine);
    let found = checkup(dir.path());
    assert!(found.findings.is_clean(), "{}", found.text());
}

#[test]
fn dictionaries_have_the_names_of_their_collections_and_indexes() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open_engine(dir.path()).unwrap();
    let mut txn = engine.begin(TxnOptions::default());
    let mut create = || txn.create_dictionary(DictionaryOptions::default()).unwrap();
    let (primary, index, unnamed) = (create(), create(), create());
    txn.commit(Durability::Buffered).unwrap().durable().unwrap();
    let record = |namespace: &str| {
        let record = bson::doc! {
            "v": 2, "ns": namespace, "primary": primary.0 as i64,
            "indexes": [{ "spec": { "name": "a_1" }, "dictionary": index.0 as i64 }],
        };
        bson::RawDocumentBuf::try_from(&record).unwrap().into_bytes()
    };
    let put = |key: &[u8], value: &[u8]| {
        let mut txn = engine.begin(TxnOptions::default());
        txn.put(DictionaryId::ROOT, key, value).unwrap();
        txn.commit(Durability::Synced).unwrap().durable().unwrap();
    };
    put(b"ndb.old", &record("db.old"));
    put(b"nbroken", b"no document");
    while engine.step().unwrap() {}
    engine.checkpoint().unwrap();
    let names = || {
        let json = inspect(&look(dir.path()), Section::Trees).unwrap().json();
        let trees = json["trees"].as_array().unwrap().clone();
        let name = |tree: &serde_json::Value| tree["name"].as_str().unwrap_or("-").to_owned();
        trees.iter().map(name).collect::<Vec<_>>()
    };
    engine.close().unwrap();
    assert_eq!(names(), ["(catalog)", "db.old", "db.old.$a_1", "-"]);
    drop(engine);
    // Renamed behind the last checkpoint: only the log says so.
    let engine = open_engine(dir.path()).unwrap();
    let mut txn = engine.begin(TxnOptions::default());
    txn.put(DictionaryId::ROOT, b"ndb.new", &record("db.new")).unwrap();
    txn.delete(DictionaryId::ROOT, b"ndb.old").unwrap();
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    drop(engine);
    assert_eq!(names(), ["(catalog)", "db.new", "db.new.$a_1", "-"]);
    let text = inspect(&look(dir.path()), Section::Tree(index.0)).unwrap().text();
    assert!(text.contains("db.new.$a_1") && unnamed.0 > index.0, "{text}");
}

#[test]
fn directory_without_a_checkpoint_is_clean() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open_engine(dir.path()).unwrap();
    write(&engine, &mut Gen::new(1), DictionaryId::ROOT, 2);
    drop(engine);
    let found = checkup(dir.path());
    assert!(found.findings.is_clean(), "{}", found.text());
    assert!(found.checked.records >= 2);
}

#[test]
fn every_flipped_byte_of_the_data_file_that_counts_is_named() {
    let dir = tempfile::tempdir().unwrap();
    killed(dir.path());
    let live = live_in_data(dir.path());
    let path = dir.path().join("fern.data");
    let length = fs::metadata(&path).unwrap().len();
    let mut random = Gen::new(3);
    let mut places: Vec<u64> = (0..30 * scale()).map(|_| random.below(length)).collect();
    // each kind of place is hit, however small it is
    for range in live.iter().take(4).chain(live.iter().take(4)) {
        places.push(range.start + random.below(range.end - range.start));
    }
    for _ in 0..30 * scale() {
        let range = random.pick(&live).unwrap();
        places.push(range.start + random.below(range.end - range.start));
    }
    let mut hits = BTreeSet::new();
    for (at, place) in places.into_iter().enumerate() {
        let changed = Changed::bit(&path, place, random.below(8));
        let found = checkup(dir.path());
        let counts = live.iter().any(|range| range.contains(&place));
        assert_eq!(found.findings.is_clean(), !counts, "byte {place}: {}", found.text());
        assert!(found.findings.damages.iter().all(|damage| damage.file == path));
        hits.insert(counts);
        if at % 8 == 0 {
            inspect_all(dir.path());
        }
        drop(changed);
    }
    assert_eq!(hits.len(), 2, "both live and free bytes were hit");
    assert!(checkup(dir.path()).findings.is_clean());
}

#[test]
fn every_flipped_byte_of_the_synced_log_is_named() {
    let dir = tempfile::tempdir().unwrap();
    killed(dir.path());
    let live = live_in_log(dir.path());
    assert!(live.len() > 1);
    let mut random = Gen::new(5);
    for at in 0..40 * scale() {
        let (path, range) = random.pick(&live).unwrap();
        let place = range.start + random.below(range.end - range.start);
        let changed = Changed::bit(path, place, random.below(8));
        let found = checkup(dir.path());
        assert!(!found.findings.is_clean(), "{} byte {place}: clean", path.display());
        let damages = &found.findings.damages;
        // a record is named by where it begins, which may be in the file before
        let body = HEADER_BYTES as u64;
        let crossing = (body..body + 4096).contains(&place);
        assert!(crossing || damages.iter().any(|d| d.file == *path), "{}", found.text());
        if at % 8 == 0 {
            inspect_all(dir.path());
        }
        drop(changed);
    }
    // the tail may go; nothing may panic
    for (path, bytes) in files(dir.path()) {
        let is_version = path.ends_with("FERNDB");
        for _ in 0..if path.ends_with("fern.data") { 0 } else { bytes.len().min(8) } {
            let place = random.below(bytes.len() as u64);
            let changed = Changed::bit(&path, place, random.below(8));
            let found = checkup(dir.path());
            assert!(!is_version || !found.findings.is_clean(), "the version file was changed");
            drop(changed);
        }
    }
    assert!(checkup(dir.path()).findings.is_clean());
}

#[test]
fn reading_goes_on_behind_damage() {
    let dir = tempfile::tempdir().unwrap();
    killed(dir.path());
    let whole = checkup(dir.path()).checked;
    // two damaged records: both are named, and what is behind them is read
    let live = live_in_log(dir.path());
    let mut long =
        live.iter().filter(|(_, range)| range.start > 0 && range.end - range.start > 9000);
    let (path, range) = long.next_back().unwrap();
    let first = Changed::bit(path, range.start + 4000, 0);
    let second = Changed::bit(path, range.end - 1000, 0);
    let found = checkup(dir.path());
    assert!(found.findings.damages.len() >= 2, "{}", found.text());
    assert!(found.checked.records > whole.records / 2, "{}", found.text());
    assert_eq!(found.checked.pages, whole.pages);
    drop((first, second));
    // without a translation table the roots and the log can still be seen
    let bytes = fs::read(dir.path().join("fern.data")).unwrap();
    let slots = [0, 4096].map(|at| Superblock::decode(&bytes[at..]).unwrap());
    let newest = slots.iter().max_by_key(|slot| slot.generation).unwrap();
    let changed = Changed::bit(&dir.path().join("fern.data"), newest.table.unit * UNIT + 40, 3);
    let view = inspect(&look(dir.path()), Section::Overview).unwrap();
    assert!(!view.findings.is_clean());
    assert_eq!(view.json()["trees"].as_array().unwrap().len(), 3);
    assert_eq!(checkup(dir.path()).checked.records, whole.records);
    drop(changed);
}

#[test]
fn wrong_order_under_a_right_checksum_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { background: Background::Manual, ..Options::new(dir.path()) };
    let engine = Engine::open(Os::real(), Arc::new(Registry::new()), options).unwrap();
    let mut txn = engine.begin(TxnOptions::default());
    let plain = DictionaryOptions { compression: Compression::None, ..Default::default() };
    let dictionary = txn.create_dictionary(plain).unwrap();
    for key in 0..500_u32 {
        txn.put(dictionary, &key.to_be_bytes(), &[7; 100]).unwrap();
    }
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    engine.close().unwrap();
    drop(engine);
    let json = inspect(&look(dir.path()), Section::Segments).unwrap().json();
    let ours = |segment: &&serde_json::Value| segment["tree"] == dictionary.0;
    let segment = json["segments"].as_array().unwrap().iter().find(ours).unwrap();
    let offset = segment["offset"].as_u64().unwrap();
    let segment = segment["segment"].as_u64().unwrap();
    let context = PageContext { dictionary: dictionary.0, segment, page: 0 };
    let path = dir.path().join("fern.data");
    let bytes = fs::read(&path).unwrap();
    let mut raw = Vec::new();
    let stored = &bytes[offset as usize..];
    let length = decode_page(context, None, None, stored, &mut raw).unwrap();
    assert_eq!(stored[0], 0, "what this dictionary stores is not compressed");
    // the first two heads change places
    let heads = 20 + u32::from_le_bytes([raw[16], raw[17], raw[18], raw[19]]) as usize;
    raw[heads..heads + 8].rotate_left(4);
    let mut page = Vec::new();
    encode_page(context, blockfile::Compression::None.into(), None, &raw, &mut page);
    let changed = Changed::new(&path, offset, |old| old.copy_from_slice(&page), length);
    let found = checkup(dir.path());
    let damage = &found.findings.damages[0];
    assert_eq!(
        (damage.segment, damage.page, damage.offset),
        (Some(segment), Some(0), Some(offset))
    );
    assert_eq!(damage.what, "page entries are out of order");
    drop(changed);
    assert!(checkup(dir.path()).findings.is_clean());
}

#[test]
fn a_damaged_compression_dictionary_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::new(dir.path());
    options.background = Background::Manual;
    options.cache_size = 64 << 20;
    let engine = Engine::open(Os::real(), Arc::new(Registry::new()), options).unwrap();
    let small =
        DictionaryOptions { page_size: 64 << 10, read_page_size: 2 << 10, ..Default::default() };
    let mut txn = engine.begin(TxnOptions::default());
    let dictionary = txn.create_dictionary(small).unwrap();
    for number in 0..20_000_u64 {
        let noise = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let value = format!("ticker=T{:05} open={noise:x} source=feed;", number % 1000);
        txn.put(dictionary, &number.to_be_bytes(), value.repeat(2).as_bytes()).unwrap();
    }
    txn.commit(Durability::Synced).unwrap().durable().unwrap();
    while engine.step().unwrap() {}
    engine.close().unwrap();
    drop(engine);
    let whole = checkup(dir.path());
    assert!(whole.findings.is_clean(), "{}", whole.text());
    let json = inspect(&look(dir.path()), Section::Segments).unwrap().json();
    let ours = |segment: &&serde_json::Value| segment["kind"] == "compression dictionary";
    let segment = json["segments"].as_array().unwrap().iter().find(ours).unwrap();
    assert_eq!(segment["tree"], dictionary.0);
    let offset = segment["offset"].as_u64().unwrap();
    let changed = Changed::bit(&dir.path().join("fern.data"), offset + 100, 3);
    let found = checkup(dir.path());
    let damages = &found.findings.damages;
    let named =
        damages.iter().any(|one| one.what == "its compression dictionary: page checksum differs");
    assert!(named, "{}", found.text());
    drop(changed);
    assert!(checkup(dir.path()).findings.is_clean());
}

#[test]
fn cut_zeroed_and_missing_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    killed(dir.path());
    let mut random = Gen::new(11);
    let data = dir.path().join("fern.data");
    // the last byte that counts
    let last = live_in_data(dir.path()).iter().map(|range| range.end).max().unwrap() - 1;
    for (path, bytes) in files(dir.path()).iter().filter(|(_, bytes)| bytes.len() > 4096) {
        for _ in 0..4 {
            let place = random.below(bytes.len() as u64 - 4096);
            let scribble = random.bytes(4096);
            let garbage = |bytes: &mut [u8]| match scribble.len() % 2 {
                0 => bytes.fill(0),
                _ => bytes[..scribble.len()].copy_from_slice(&scribble),
            };
            let changed = Changed::new(path, place, garbage, 4096);
            let _either = checkup(dir.path());
            inspect_all(dir.path());
            drop(changed);
        }
        for length in [0, 700, bytes.len() / 3, last as usize] {
            fs::write(path, &bytes[..length.min(bytes.len())]).unwrap();
            let found = checkup(dir.path());
            inspect_all(dir.path());
            assert!(path != &data || !found.findings.is_clean(), "cut to {length}");
        }
        fs::remove_file(path).unwrap();
        let found = checkup(dir.path());
        inspect_all(dir.path());
        assert!(path != &data || !found.findings.is_clean(), "{} is gone", path.display());
        fs::write(path, bytes).unwrap();
    }
    assert!(checkup(dir.path()).findings.is_clean());
}

#[test]
fn running_server_and_foreign_directories_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = || DataDirectory::open(&Os::real(), dir.path(), None).map(drop);
    let refused = open().unwrap_err().to_string();
    assert!(refused.ends_with("is no data directory of FernDB"), "{refused}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let engine = open_engine(dir.path()).unwrap();
    let refused = open().unwrap_err().to_string();
    assert!(refused.contains("a server is running"), "{refused}");
    engine.close().unwrap();
    open().unwrap();
}
