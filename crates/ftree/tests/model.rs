//! Random operations on a tree with tiny constants against a sorted map of versions.
//!
//! Every kind of background work happens within a few thousand operations, with live snapshots,
//! cursors both ways, checkpoints, crashes and a full `verify()`.

#![allow(clippy::unwrap_used, reason = "a test that meets an error fails")]

use blockfile::{BlockFile, Compression, Metrics, Options};
use cachetable::CacheTable;
use ftree::{
    Applied, Context, Direction, Effort, KeyHasher, KeyRange, Message, PlantedUpdateBug, Progress,
    ReadPool, Stats, Tombstone, TombstoneBug, Tree, TreeOptions, UpdatePlace, Updates, Visibility,
};
use os::sim::SimOs;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "/data";
const TREE: u64 = 7;

/// Splitmix: a seed is a run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }
}

/// What tombstones of parts look at: the end of the key, or the beginning of a short value.
fn record_part<'a>(part: &[u8], key: &'a [u8], value: Option<&'a [u8]>) -> Option<&'a [u8]> {
    match part {
        b"key" => key.get(key.len().saturating_sub(2)..),
        _ => value.filter(|value| value.len() <= 64)?.get(..1),
    }
}

type Versions = BTreeMap<(Vec<u8>, Reverse<u64>), Option<Vec<u8>>>;

/// Updates that append bytes, of which the last stay: `+` to what is there or nothing, `?` only to what is
/// there; `!` cannot be applied.
#[derive(Debug)]
struct Append {
    most: usize,
    planted: Option<PlantedUpdateBug>,
}

impl Append {
    fn last(&self, bytes: &[u8]) -> Vec<u8> {
        bytes[bytes.len().saturating_sub(self.most)..].to_vec()
    }

    fn append(&self, old: Option<&[u8]>, argument: &[u8]) -> Option<Vec<u8>> {
        match (old, argument[0]) {
            (old, b'!') | (old @ None, b'?') => old.map(<[u8]>::to_vec),
            (old, _) => Some(self.last(&[old.unwrap_or_default(), &argument[1..]].concat())),
        }
    }
}

impl Updates for Append {
    fn apply(&self, _: UpdatePlace<'_>, old: Option<&[u8]>, argument: &[u8]) -> Applied {
        match self.append(old, argument) {
            Some(value) if Some(&value[..]) != old => Applied::Value(value),
            _ => Applied::Unchanged,
        }
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        if older[0] != newer[0] || older[0] == b'!' {
            return None;
        }
        Some([&older[..1], &self.last(&[&older[1..], &newer[1..]].concat())].concat())
    }

    fn planted_bug(&self) -> Option<PlantedUpdateBug> {
        self.planted
    }
}

/// What the run is like.
#[derive(Clone, Copy)]
struct Plan {
    seed: u64,
    operations: u64,
    keys: u64,
    options: TreeOptions,
    /// One in so many writes is a delete.
    delete_odds: u64,
    largest_value: u64,
    cache_bytes: u64,
    /// One in so many writes is an update; 0 for none.
    update_odds: u64,
    planted_update: Option<PlantedUpdateBug>,
    /// Ranges are deleted too.
    tombstones: bool,
    planted: Option<TombstoneBug>,
}

fn plan(seed: u64) -> Plan {
    Plan {
        seed,
        operations: 6000,
        keys: 900,
        options: TreeOptions::tiny(),
        delete_odds: 5,
        largest_value: 60,
        cache_bytes: 20_000,
        update_odds: 0,
        planted_update: None,
        tombstones: seed.is_multiple_of(3),
        planted: None,
    }
}

struct World {
    plan: Plan,
    random: Random,
    sim: SimOs,
    file: BlockFile,
    tree: Arc<Tree>,
    model: Versions,
    /// Every commit, to be replayed; of an update, its argument.
    log: Vec<(u64, Vec<u8>, Option<Vec<u8>>)>,
    /// Every delete of a range.
    tombstones: Vec<Tombstone>,
    now: u64,
    snapshots: Vec<u64>,
    /// What the last checkpoint stored.
    root: Option<Vec<u8>>,
    total: Stats,
}

fn open_file(os: &os::Os) -> (BlockFile, Option<Vec<u8>>) {
    let metrics = Metrics::new(&telemetry::Registry::new());
    os.vfs.create_dir_all(Path::new(DIR)).unwrap();
    let (file, image) = BlockFile::open(os, Path::new(DIR), Options::default(), metrics).unwrap();
    (file, image.map(|image| image.root))
}

fn rules(plan: &Plan) -> Append {
    Append { most: plan.largest_value.max(60) as usize, planted: plan.planted_update }
}

fn context(file: &BlockFile, plan: &Plan) -> Arc<Context> {
    let cache = Arc::new(CacheTable::new(plan.cache_bytes));
    let parts = (record_part as ftree::RecordPart, plan.planted);
    let (readers, hasher) = (ReadPool::none(), KeyHasher::fixed());
    Context::with_readers(file.clone(), cache, readers, hasher, Some(Arc::new(rules(plan))), parts)
}

impl World {
    fn new(plan: Plan) -> Self {
        let sim = SimOs::new(plan.seed);
        let (file, _) = open_file(&sim.os());
        let tree = Tree::create(&context(&file, &plan), TREE, plan.options);
        Self {
            plan,
            random: Random(plan.seed),
            sim,
            file,
            tree,
            model: Versions::new(),
            log: Vec::new(),
            tombstones: Vec::new(),
            now: 1,
            snapshots: Vec::new(),
            root: None,
            total: Stats::default(),
        }
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.random.below(self.plan.keys);
        // Keys of several lengths, many with a shared beginning.
        match number % 3 {
            0 => format!("key/{number:06}").into_bytes(),
            1 => number.to_be_bytes()[6..].to_vec(),
            _ => format!("key/{number:06}/and a longer tail").into_bytes(),
        }
    }

    fn visibility(&self) -> Visibility {
        Visibility::new(self.now, &self.snapshots)
    }

    fn write(&mut self) {
        self.now += 1;
        let key = self.key();
        if self.plan.update_odds > 0 && self.random.one_in(self.plan.update_odds) {
            return self.update(key);
        }
        let delete = self.random.one_in(self.plan.delete_odds);
        let length = self.random.below(self.plan.largest_value + 1);
        let value = (!delete).then(|| {
            let seed = self.now as u8;
            (0..length).map(|at| seed.wrapping_add(at as u8 / 3)).collect::<Vec<u8>>()
        });
        self.tree.insert(&key, self.now, value.as_deref().map_or(Message::Delete, Message::Put));
        self.log.push((self.now, key.clone(), None));
        self.model.insert((key, Reverse(self.now)), value);
    }

    fn update(&mut self, key: Vec<u8>) {
        let mut argument = vec![[b'+', b'+', b'?', b'!'][self.random.below(4) as usize]];
        let length = 1 + self.random.below(9);
        argument.extend((0..length).map(|_| b'a' + self.random.below(26) as u8));
        let old = self.visible(&key, self.now).cloned();
        let value = rules(&self.plan).append(old.as_deref(), &argument);
        self.tree.insert(&key, self.now, Message::Update(&argument));
        self.log.push((self.now, key.clone(), Some(argument)));
        self.model.insert((key, Reverse(self.now)), value);
    }

    fn delete_range(&mut self) {
        self.now += 1;
        let (mut low, mut high) = (self.key(), self.key());
        if low > high {
            std::mem::swap(&mut low, &mut high);
        }
        let byte = |random: &mut Random| vec![random.below(256) as u8];
        let (part, low, high): (&[u8], _, _) = match self.random.below(6) {
            0 => (b"key", byte(&mut self.random), byte(&mut self.random)),
            // What an update makes of an entry is not told by its value before.
            1 if self.plan.update_odds == 0 => {
                (b"value", byte(&mut self.random), byte(&mut self.random))
            }
            _ => (b"", low, high),
        };
        let mut range = KeyRange { lower: Bound::Included(low), upper: Bound::Excluded(high) };
        if self.random.one_in(20) {
            range = KeyRange::all();
        }
        self.bury(&range, part);
    }

    fn bury(&mut self, range: &KeyRange, part: &[u8]) {
        if self.tree.has_tombstone_room() {
            let tombstone = Tombstone::new(self.now, range, part);
            self.tree.add_tombstone(tombstone.clone());
            self.tombstones.push(tombstone);
        }
    }

    /// The newest tombstone at or before `ts` over a version of `key`.
    fn buried(&self, key: &[u8], version: u64, value: Option<&[u8]>, ts: u64) -> Option<u64> {
        let newer = self.tombstones.iter().filter(|one| version < one.ts && one.ts <= ts);
        newer.filter(|one| one.covers(key, value, record_part)).map(|one| one.ts).max()
    }

    fn visible(&self, key: &[u8], ts: u64) -> Option<&Vec<u8>> {
        let versions = self.model.range((key.to_vec(), Reverse(ts))..);
        let ((_, version), value) = versions.take_while(|((k, _), _)| k == key).next()?;
        let value = value.as_ref()?;
        self.buried(key, version.0, Some(value), ts).is_none().then_some(value)
    }

    fn a_snapshot(&mut self) -> u64 {
        let pick = self.random.below(self.snapshots.len() as u64 + 2) as usize;
        self.snapshots.get(pick).copied().unwrap_or(self.now)
    }

    fn check_get(&mut self) {
        let (key, ts) = (self.key(), self.a_snapshot());
        let found = self.tree.get(&key, ts).unwrap();
        let expected = self.visible(&key, ts);
        assert_eq!(found.as_deref(), expected.map(|value| &value[..]), "{key:?} at {ts}");
        let newest = self.tree.newest(&key).unwrap();
        let mut versions = self.model.range((key.clone(), Reverse(u64::MAX))..);
        let expected = versions.next().filter(|((k, _), _)| *k == key);
        match (newest, expected) {
            (Some(newest), Some(((_, ts), value))) => {
                let oldest = self.snapshots.iter().copied().min().unwrap_or(self.now);
                let is_seen = self.buried(&key, ts.0, value.as_deref(), oldest).is_none();
                let expected = match self.buried(&key, ts.0, value.as_deref(), u64::MAX) {
                    // What nobody sees is gone, or a tombstone that covers it: another one, or an
                    // older delete, is what is found then.
                    Some(buried) if !is_seen && newest.0 < buried => (newest.0, true),
                    Some(buried) => (buried, true),
                    None if value.is_none() && ts.0 <= oldest && newest.0 < ts.0 => {
                        (newest.0, true)
                    }
                    None => (ts.0, value.is_none()),
                };
                assert_eq!(newest, expected, "newest of {key:?}");
            }
            (None, None | Some((_, None))) => {}
            (None, Some(((_, ts), value))) => {
                let buried = self.buried(&key, ts.0, value.as_deref(), u64::MAX);
                assert!(buried.is_some(), "newest of {key:?} is gone");
            }
            (Some((ts, true)), None) => assert!(self.buried(&key, 0, None, ts).is_some()),
            (newest, expected) => panic!("newest of {key:?}: {newest:?}, not {expected:?}"),
        }
    }

    fn check_scan(&mut self) {
        let ts = self.a_snapshot();
        let mut random = Random(self.random.next());
        let (mut low, mut high) = (self.key(), self.key());
        if low > high {
            std::mem::swap(&mut low, &mut high);
        }
        let mut bound = |key: Vec<u8>| match random.below(3) {
            0 => Bound::Included(key),
            1 => Bound::Excluded(key),
            _ => Bound::Unbounded,
        };
        let range = KeyRange { lower: bound(low), upper: bound(high) };
        let inside = |key: &Vec<u8>| {
            std::ops::RangeBounds::contains(&(range.lower.as_ref(), range.upper.as_ref()), key)
        };
        let keys: BTreeSet<&Vec<u8>> =
            self.model.keys().map(|(key, _)| key).filter(|key| inside(key)).collect();
        let visible = keys.into_iter().filter_map(|key| Some((key, self.visible(key, ts)?)));
        let mut expected: Vec<(&Vec<u8>, &Vec<u8>)> = visible.collect();
        let forward = random.one_in(2);
        let direction = if forward { Direction::Forward } else { Direction::Backward };
        if !forward {
            expected.reverse();
        }
        let mut cursor = self.tree.cursor(range.clone(), ts, direction);
        let mut at = 0;
        loop {
            if random.one_in(20) {
                cursor.park();
            }
            if random.one_in(30) && at < expected.len() {
                // Seek to a key somewhere ahead, or between two of them.
                let ahead = at + random.below((expected.len() - at) as u64) as usize;
                let mut target = expected[ahead].0.clone();
                if random.one_in(2) {
                    target.push(0);
                }
                cursor.seek(&target).unwrap();
                at += expected[at..]
                    .iter()
                    .take_while(|(key, _)| if forward { **key < target } else { **key > target })
                    .count();
            }
            let found = cursor.next().unwrap();
            let wanted = expected.get(at).map(|(key, value)| (&key[..], &value[..]));
            assert_eq!(found, wanted, "entry {at} at {ts} of {range:?} {direction:?}");
            if found.is_none() {
                break;
            }
            at += 1;
        }
        assert_eq!(cursor.next().unwrap(), None, "a finished cursor stays finished");
    }

    fn work(&mut self, effort: Effort) -> bool {
        matches!(self.tree.work(&self.visibility(), effort).unwrap(), Progress::Done(_))
    }

    fn checkpoint(&mut self) {
        let image = self.tree.image().unwrap();
        let mark = self.file.begin_checkpoint();
        self.file.finish_checkpoint(mark, image.bytes(), image.flushed_ts()).unwrap();
        self.root = Some(image.bytes().to_vec());
    }

    /// Dies and comes back from the last checkpoint and the log.
    fn crash(&mut self) {
        self.add_stats();
        self.sim.crash();
        let os = self.sim.reboot();
        let (file, root) = open_file(&os);
        assert_eq!(root, self.root);
        let context = context(&file, &self.plan);
        self.tree = match root {
            Some(root) => Tree::open(&context, TREE, self.plan.options, &root).unwrap(),
            None => Tree::create(&context, TREE, self.plan.options),
        };
        let kept: BTreeSet<u64> = self.tree.segments().into_iter().collect();
        file.retain(|segment| kept.contains(&segment.id.0)).unwrap();
        self.file = file;
        self.snapshots.clear();
        let flushed = self.tree.flushed_ts();
        for (ts, key, argument) in self.log.iter().filter(|(ts, ..)| *ts > flushed) {
            let value = &self.model[&(key.clone(), Reverse(*ts))];
            let written = value.as_deref().map_or(Message::Delete, Message::Put);
            let message = argument.as_deref().map_or(written, Message::Update);
            self.tree.insert(key, *ts, message);
        }
        for tombstone in self.tombstones.iter().filter(|one| one.ts > flushed) {
            self.tree.add_tombstone(tombstone.clone());
        }
    }

    fn add_stats(&mut self) {
        let (stats, total) = (self.tree.stats(), &mut self.total);
        total.drains += stats.drains;
        total.flushes += stats.flushes;
        total.merges += stats.merges;
        total.leaves_kept += stats.leaves_kept;
        total.leaf_splits += stats.leaf_splits;
        total.leaf_fuses += stats.leaf_fuses;
        total.node_splits += stats.node_splits;
        total.node_fuses += stats.node_fuses;
        total.root_grows += stats.root_grows;
        total.root_shrinks += stats.root_shrinks;
        total.dropped_versions += stats.dropped_versions;
        total.dropped_deletes += stats.dropped_deletes;
        total.filter_refusals += stats.filter_refusals;
        total.leaves_swept += stats.leaves_swept;
        total.compression_dictionaries += stats.compression_dictionaries;
        total.height = total.height.max(stats.height);
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0 if self.plan.tombstones && self.random.one_in(2) => self.delete_range(),
            0..70 => self.write(),
            70..80 => self.check_get(),
            80 => self.check_scan(),
            81 => self.snapshots.push(self.now),
            82 if !self.snapshots.is_empty() => {
                let at = self.random.below(self.snapshots.len() as u64) as usize;
                self.snapshots.remove(at);
            }
            83..86 if self.tree.debt().active_bytes > 12_000 => {
                // What came since is inside too, and will be replayed over what was drained of it.
                let lag = if self.plan.update_odds > 0 { self.random.below(60) } else { 0 };
                self.tree.seal(self.now.saturating_sub(lag).max(self.tree.flushed_ts()));
            }
            86..98 => {
                self.work(Effort::Needed);
            }
            98 if self.random.one_in(4) => {
                self.work(Effort::Idle);
            }
            _ if self.random.one_in(10) => self.checkpoint(),
            _ if self.random.one_in(40) => self.crash(),
            _ => {}
        }
    }

    fn settle(&mut self) {
        self.tree.seal(self.now);
        let mut units = 0;
        while self.work(Effort::Needed) {
            units += 1;
            assert!(units < 100_000, "work does not end");
        }
    }
}

/// A configuration of its own for every seed.
fn any_plan(seed: u64) -> Plan {
    let mut random = Random(seed ^ 0x00c0_ffee);
    let mut plan = plan(seed);
    plan.keys = [40, 300, 900, 3000][random.below(4) as usize];
    plan.update_odds = [0, 2, 4][random.below(3) as usize];
    plan.delete_odds = 2 + random.below(8);
    plan.largest_value = [0, 20, 200, 1500][random.below(4) as usize];
    plan.cache_bytes = [2000, 20_000, 1 << 20][random.below(3) as usize];
    plan.options = TreeOptions {
        compression: [Compression::None, Compression::Lz4, Compression::Zstd(1)]
            [random.below(3) as usize],
        page_size: 600 << random.below(4),
        read_page_size: 100 << random.below(4),
        fanout: 4 + random.below(10) as usize,
        leaf_filter: random.one_in(2),
        buffer_bytes: 1500 << random.below(5),
        tier: 2 + random.below(3) as usize,
        max_runs: 4 + random.below(6) as usize,
    };
    plan
}

fn run(plan: Plan) -> Stats {
    let mut world = World::new(plan);
    for operation in 0..plan.operations {
        world.step();
        if operation % 500 == 499 {
            world.tree.verify().unwrap();
            world.check_scan();
        }
    }
    world.settle();
    world.tree.verify().unwrap();
    for _ in 0..30 {
        world.check_scan();
        world.check_get();
    }
    // Everything deleted, nobody watching: the tree shrinks to nothing.
    world.snapshots.clear();
    let keys: BTreeSet<Vec<u8>> = world.model.keys().map(|(key, _)| key.clone()).collect();
    let at_once = plan.tombstones && world.random.one_in(2);
    if at_once {
        world.now += 1;
        world.bury(&KeyRange::all(), b"");
    }
    for key in keys.into_iter().filter(|_| !(at_once && world.tree.has_tombstone_room())) {
        world.now += 1;
        world.tree.insert(&key, world.now, Message::Delete);
        world.log.push((world.now, key.clone(), None));
        world.model.insert((key, Reverse(world.now)), None);
    }
    world.settle();
    let mut units = 0;
    while world.work(Effort::Idle) {
        units += 1;
        assert!(units < 100_000, "idle work does not end");
    }
    world.tree.verify().unwrap();
    world.check_scan();
    assert_eq!(world.tree.tombstones(), 0, "nothing is left of what they cover");
    let stats = world.tree.stats();
    assert_eq!((stats.disk_entries, stats.buffered_bytes, stats.height), (0, 0, 1), "{stats:?}");
    world.checkpoint();
    world.crash();
    world.checkpoint();
    world.checkpoint();
    assert_eq!(world.file.segments().len(), world.tree.segments().len(), "orphans");
    world.add_stats();
    world.total.clone()
}

#[test]
fn tree_agrees_with_a_sorted_map_whatever_happens() {
    let mut total = Stats::default();
    let mut swept = 0;
    for seed in 0..6 {
        let stats = run(plan(seed));
        total.leaf_splits += stats.leaf_splits;
        total.leaf_fuses += stats.leaf_fuses;
        total.node_splits += stats.node_splits;
        total.node_fuses += stats.node_fuses;
        total.root_grows += stats.root_grows;
        total.root_shrinks += stats.root_shrinks;
        total.flushes += stats.flushes;
        total.merges += stats.merges;
        total.drains += stats.drains;
        total.dropped_versions += stats.dropped_versions;
        total.dropped_deletes += stats.dropped_deletes;
        total.filter_refusals += stats.filter_refusals;
        total.height = total.height.max(stats.height);
        swept += stats.leaves_swept;
    }
    assert!(swept > 10, "only {swept} leaves were let go of unread");
    for (name, count) in [
        ("drains", total.drains),
        ("flushes", total.flushes),
        ("merges", total.merges),
        ("leaf splits", total.leaf_splits),
        ("leaf fuses", total.leaf_fuses),
        ("node splits", total.node_splits),
        ("node fuses", total.node_fuses),
        ("root grows", total.root_grows),
        ("root shrinks", total.root_shrinks),
        ("dropped versions", total.dropped_versions),
        ("dropped deletes", total.dropped_deletes),
        ("filter refusals", total.filter_refusals),
    ] {
        assert!(count > 10, "only {count} {name} happened");
    }
    assert!(total.height >= 3, "only {} levels", total.height);
}

#[test]
fn values_larger_than_pages_and_leaves_agree_too() {
    let mut plan = Plan { operations: 1500, keys: 120, largest_value: 6000, ..plan(77) };
    plan.options.leaf_filter = true;
    for compression in
        [Compression::None, Compression::Lz4, Compression::Zlib(6), Compression::Zstd(3)]
    {
        plan.options.compression = compression;
        plan.seed += 1;
        run(plan);
    }
}

/// Leaves are compressed with what their pages have in common, before and after every crash.
#[test]
fn trees_with_compression_dictionaries_agree_too() {
    for seed in [3, 8, 40] {
        let mut plan = Plan { keys: 3000, cache_bytes: 64 << 20, ..plan(seed) };
        plan.options = TreeOptions {
            compression: Compression::Zstd(3),
            page_size: 32 << 10,
            read_page_size: 512,
            ..plan.options
        };
        let total = run(plan);
        assert!(total.compression_dictionaries > 0, "seed {seed}");
    }
}

#[test]
fn many_versions_of_few_keys_agree_too() {
    run(Plan { operations: 4000, keys: 9, delete_odds: 3, ..plan(5) });
}

/// `FERN_SEEDS=first..last` chooses others: each is a configuration and a history.
#[test]
fn random_configurations_agree_too() {
    let seeds = std::env::var("FERN_SEEDS").unwrap_or_else(|_| "0..6".to_owned());
    let (first, last) = seeds.split_once("..").unwrap();
    for seed in first.parse().unwrap()..last.parse().unwrap() {
        run_seed(seed);
    }
}

fn run_seed(seed: u64) {
    let failed = std::panic::catch_unwind(|| run(Plan { operations: 3000, ..any_plan(seed) }));
    assert!(failed.is_ok(), "seed {seed} fails");
}

#[test]
fn runs_of_one_age_meet_in_a_fused_node_seed_99() {
    run_seed(99);
}

#[test]
fn updates_agree_too() {
    for seed in 0..4 {
        run(Plan { operations: 4000, keys: 200, update_odds: 2, ..plan(1000 + seed) });
    }
    run(Plan { operations: 4000, keys: 9, update_odds: 2, delete_odds: 3, ..plan(1010) });
    let large = plan(1020);
    run(Plan { operations: 1500, keys: 60, update_odds: 2, largest_value: 3000, ..large });
}

#[test]
fn updates_of_what_was_deleted_by_ranges_agree_too() {
    for seed in 0..4 {
        let plan = Plan { operations: 4000, update_odds: 2, tombstones: true, ..plan(1100 + seed) };
        run(Plan { keys: 200, ..plan });
        run(Plan { keys: 20, delete_odds: 3, ..plan });
    }
}

/// Whether a run with a bug in it fails.
fn is_found(planted: PlantedUpdateBug) -> bool {
    (0..10).any(|seed| {
        let plan = Plan { operations: 3000, keys: 60, update_odds: 2, ..plan(2000 + seed) };
        let plan = Plan { planted_update: Some(planted), ..plan };
        std::panic::catch_unwind(|| run(plan)).is_err()
    })
}

#[test]
fn planted_bugs_of_updates_are_found() {
    for planted in [
        PlantedUpdateBug::CombinesInWrongOrder,
        PlantedUpdateBug::HidesBaseBackward,
        PlantedUpdateBug::AppliesReplayAgain,
    ] {
        assert!(is_found(planted), "{planted:?} is not found");
    }
}

#[test]
fn planted_bugs_of_tombstones_are_found() {
    let bugs =
        [TombstoneBug::BackwardIgnores, TombstoneBug::ConflictIgnores, TombstoneBug::FreesSeen];
    for planted in bugs {
        let fails = |seed| {
            let plan = Plan { operations: 3000, planted: Some(planted), ..any_plan(seed) };
            std::panic::catch_unwind(|| run(plan)).is_err()
        };
        assert!((0..60).step_by(3).any(fails), "nobody finds {planted:?}");
    }
}
