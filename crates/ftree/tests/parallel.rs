//! Several workers on one tree: they overlap, none of them loses or doubles anything, and one that
//! fails disturbs no other.
#![allow(clippy::unwrap_used, reason = "a test that meets an error fails")]

use blockfile::{BlockFile, Metrics, Options};
use cachetable::CacheTable;
use ftree::{
    Context, Direction, Effort, Error, KeyRange, Message, Progress, Tree, TreeOptions, Visibility,
    Work,
};
use os::sim::SimOs;
use os::{File, LockGuard, OpenOptions, Os, Space, Vfs};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, RwLock, Weak};
use std::time::Duration;

/// A disk that calls `before` at each write.
struct Hooked {
    inner: Arc<dyn Vfs>,
    before: Arc<Hook>,
}

type Hook = dyn Fn() -> io::Result<()> + Send + Sync;

struct HookedFile {
    inner: Arc<dyn File>,
    before: Arc<Hook>,
}

impl Vfs for Hooked {
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let inner = self.inner.open(path, options)?;
        Ok(Arc::new(HookedFile { inner, before: Arc::clone(&self.before) }))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn list_dir(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.inner.list_dir(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_dir(path)
    }
    fn lock(&self, path: &Path) -> io::Result<LockGuard> {
        self.inner.lock(path)
    }
    fn space(&self, path: &Path) -> io::Result<Space> {
        self.inner.space(path)
    }
}

impl File for HookedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buf, offset)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        (self.before)()?;
        self.inner.write_all_at(buf, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }
    fn sync_all(&self) -> io::Result<()> {
        self.inner.sync_all()
    }
    fn permissions(&self) -> io::Result<os::FilePermissions> {
        self.inner.permissions()
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.allocate(offset, len)
    }
    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.punch_hole(offset, len)
    }
}

fn tree_over(hook: Arc<Hook>, seed: u64, options: TreeOptions) -> (Arc<Context>, Arc<Tree>) {
    let sim = SimOs::new(seed).os();
    let vfs = Arc::new(Hooked { inner: Arc::clone(&sim.vfs), before: hook });
    let os = Os { vfs, ..sim };
    os.vfs.create_dir_all(Path::new("/data")).unwrap();
    let metrics = Metrics::new(&telemetry::Registry::new());
    let (blocks, _) =
        BlockFile::open(&os, Path::new("/data"), Options::default(), metrics).unwrap();
    let context = Context::new(blocks, Arc::new(CacheTable::new(100_000)));
    let tree = Tree::create(&context, 3, options);
    (context, tree)
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn settle(tree: &Tree, effort: Effort) {
    let visibility = Visibility::newest_only(u64::MAX - 1);
    while tree.work(&visibility, effort).unwrap() != Progress::Idle {}
}

/// Where threads wait until `wanted` of them are inside, or it has taken too long.
#[derive(Default)]
struct Meeting {
    open: AtomicBool,
    inside: Mutex<u32>,
    changed: Condvar,
    met: AtomicBool,
}

impl Meeting {
    fn attend(&self) {
        if !self.open.load(Ordering::SeqCst) || self.met.load(Ordering::SeqCst) {
            return;
        }
        let mut inside = self.inside.lock().unwrap();
        *inside += 1;
        if *inside == 2 {
            self.met.store(true, Ordering::SeqCst);
            self.changed.notify_all();
        }
        let timeout = Duration::from_secs(10);
        let waiting = |_: &mut u32| !self.met.load(Ordering::SeqCst);
        let (mut inside, _) = self.changed.wait_timeout_while(inside, timeout, waiting).unwrap();
        *inside -= 1;
    }
}

/// A tree of several height-1 nodes with much in their buffers, and one value per key.
fn buffered(tree: &Tree) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut model = BTreeMap::new();
    for number in 0..4000u64 {
        let (key, value) = (key(number * 7919 % 3000), format!("value {number}").into_bytes());
        tree.insert(&key, number + 1, Message::Put(&value));
        model.insert(key, value);
        if number % 500 == 499 {
            tree.seal(number + 1);
            settle(tree, Effort::Needed);
        }
    }
    assert!(tree.stats().height >= 3 && tree.stats().buffered_bytes > 0);
    model
}

fn check(tree: &Arc<Tree>, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    tree.verify().unwrap();
    let mut cursor = tree.cursor(KeyRange::all(), u64::MAX - 1, Direction::Forward);
    for (key, value) in model {
        assert_eq!(cursor.next().unwrap(), Some((&key[..], &value[..])));
    }
    assert_eq!(cursor.next().unwrap(), None);
}

#[test]
fn two_units_of_one_tree_overlap() {
    let meeting = Arc::new(Meeting::default());
    let hook = Arc::clone(&meeting);
    let attend = move || {
        hook.attend();
        Ok(())
    };
    let (_context, tree) = tree_over(Arc::new(attend), 1, TreeOptions::tiny());
    let model = buffered(&tree);
    meeting.open.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| settle(&tree, Effort::Idle));
        }
    });
    assert!(meeting.met.load(Ordering::SeqCst), "no two units were writing at once");
    assert_eq!((tree.stats().runs, tree.debt().urgency), (0, 0));
    check(&tree, &model);
}

#[test]
fn drain_goes_on_beside_a_flush() {
    let meeting = Arc::new(Meeting::default());
    let hook = Arc::clone(&meeting);
    let attend = move || {
        hook.attend();
        Ok(())
    };
    let (_context, tree) = tree_over(Arc::new(attend), 2, TreeOptions::tiny());
    let mut model = buffered(&tree);
    for number in 0..300u64 {
        let (key, value) = (key(number * 10), format!("newer {number}").into_bytes());
        tree.insert(&key, 9000 + number, Message::Put(&value));
        model.insert(key, value);
    }
    tree.seal(9999);
    meeting.open.store(true, Ordering::SeqCst);
    let visibility = Visibility::newest_only(u64::MAX - 1);
    let done = std::thread::scope(|scope| {
        let units: Vec<_> =
            (0..2).map(|_| scope.spawn(|| tree.work(&visibility, Effort::Idle).unwrap())).collect();
        units.into_iter().map(|unit| unit.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(done.contains(&Progress::Done(Work::Drain)), "{done:?}");
    assert!(done.iter().all(|progress| matches!(progress, Progress::Done(_))), "{done:?}");
    assert!(meeting.met.load(Ordering::SeqCst), "they did not overlap");
    check(&tree, &model);
    settle(&tree, Effort::Idle);
    check(&tree, &model);
}

#[test]
fn beside_a_merge_memtables_are_drained_and_nothing_is_merged() {
    let (seen, context_of_hook) =
        (Arc::new(AtomicU64::new(0)), Arc::new(OnceLock::<Weak<Context>>::new()));
    let (most, hooked) = (Arc::clone(&seen), Arc::clone(&context_of_hook));
    let look = move || {
        let context = hooked.get().and_then(Weak::upgrade);
        let merging = context.map_or(0, |context| u64::from(context.merge_limiter.running()));
        most.fetch_max(merging, Ordering::SeqCst);
        Ok(())
    };
    let options = TreeOptions { buffer_bytes: 64 << 10, ..TreeOptions::tiny() };
    let (context, tree) = tree_over(Arc::new(look), 4, options);
    context_of_hook.set(Arc::downgrade(&context)).unwrap();
    // As beside a merge in another tree.
    context.merge_limiter.allow(0);
    let model = buffered(&tree);
    seen.store(0, Ordering::SeqCst);
    let visibility = Visibility::newest_only(u64::MAX - 1);
    let mut ts = 5000;
    while tree.debt().urgency < 1000 || tree.debt().sealed > 0 {
        for (key, value) in &model {
            ts += 1;
            tree.insert(key, ts, Message::Put(value));
        }
        tree.seal(ts);
        let merges = tree.stats().merges;
        while tree.debt().sealed > 0 {
            let done = tree.work(&visibility, Effort::Paced).unwrap();
            assert_eq!(done, Progress::Done(Work::Drain));
        }
        while let Progress::Done(_) = tree.work(&visibility, Effort::Paced).unwrap() {}
        assert_eq!(tree.stats().merges, merges);
    }
    assert_eq!(tree.work(&visibility, Effort::Paced).unwrap(), Progress::Deferred);
    assert_eq!((seen.load(Ordering::SeqCst), context.merge_limiter.running()), (0, 0));
    let idle = tree.stats().merges;
    context.merge_limiter.allow(1);
    assert_eq!(tree.work(&visibility, Effort::Paced).unwrap(), Progress::Done(Work::Merge));
    assert_eq!((seen.load(Ordering::SeqCst), context.merge_limiter.running()), (1, 0));
    assert_eq!(tree.stats().merges, idle + 1);
    settle(&tree, Effort::Needed);
    assert_eq!(tree.work(&visibility, Effort::Paced).unwrap(), Progress::Idle);
    check(&tree, &model);
}

#[test]
fn one_of_two_units_fails_and_the_other_publishes() {
    let meeting = Arc::new(Meeting::default());
    let (hook, fail) = (Arc::clone(&meeting), Arc::new(AtomicBool::new(false)));
    let failing = Arc::clone(&fail);
    let attend = move || {
        hook.attend();
        // Both are inside by now; the one that comes first fails.
        if hook.met.load(Ordering::SeqCst) && failing.swap(false, Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    };
    let (context, tree) = tree_over(Arc::new(attend), 3, TreeOptions::tiny());
    let model = buffered(&tree);
    meeting.open.store(true, Ordering::SeqCst);
    fail.store(true, Ordering::SeqCst);
    let visibility = Visibility::newest_only(u64::MAX - 1);
    let mut done = std::thread::scope(|scope| {
        let units: Vec<_> =
            (0..2).map(|_| scope.spawn(|| tree.work(&visibility, Effort::Idle))).collect();
        units.into_iter().map(|unit| unit.join().unwrap()).collect::<Vec<_>>()
    });
    done.sort_by_key(Result::is_err);
    assert!(meeting.met.load(Ordering::SeqCst));
    assert!(matches!(done[0], Ok(Progress::Done(_))), "{done:?}");
    assert!(matches!(done[1], Err(Error::Blocks(blockfile::Error::NoSpace { .. }))), "{done:?}");
    check(&tree, &model);
    settle(&tree, Effort::Idle);
    check(&tree, &model);
    let segments = context.blocks.segments().len();
    assert_eq!(segments, tree.segments().len(), "half-written segments are gone");
}

type Versions = BTreeMap<(Vec<u8>, Reverse<u64>), Option<Vec<u8>>>;

/// What the engine above knows: every version, the watermark, the snapshots in use.
#[derive(Default)]
struct Truth {
    versions: Versions,
    watermark: u64,
    live: BTreeMap<u64, u32>,
}

impl Truth {
    fn visible_at(&self, ts: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut seen = BTreeMap::new();
        for ((key, Reverse(at)), value) in self.versions.iter().rev() {
            // Oldest first: later ones replace.
            if *at <= ts {
                match value {
                    Some(value) => seen.insert(key.clone(), value.clone()),
                    None => seen.remove(key),
                };
            }
        }
        seen
    }
}

struct World {
    tree: Arc<Tree>,
    truth: RwLock<Truth>,
    stop: AtomicBool,
    units: AtomicU64,
    busy: AtomicU64,
}

/// Splitmix.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl World {
    fn visibility(&self) -> Visibility {
        let truth = self.truth.read().unwrap();
        let live: Vec<u64> = truth.live.keys().copied().collect();
        Visibility::new(truth.watermark, &live)
    }

    fn write(&self, state: &mut u64, keys: u64, deletes: u64) {
        let (key, delete) = (key(random(state) % keys), random(state) % 10 < deletes);
        let value = vec![*state as u8; (random(state) % 60) as usize];
        // The key is written by this thread alone; the commit is visible once the truth knows.
        let ts = self.truth.read().unwrap().watermark + 1;
        let message = if delete { Message::Delete } else { Message::Put(&value) };
        self.tree.insert(&key, ts, message);
        let mut truth = self.truth.write().unwrap();
        truth.versions.insert((key, Reverse(ts)), (!delete).then_some(value));
        truth.watermark = ts;
        drop(truth);
        if self.tree.debt().active_bytes > 12_000 {
            while self.tree.debt().sealed > 2 {
                std::thread::yield_now();
            }
            self.tree.seal(ts);
        }
    }

    fn work(&self, effort: Effort) {
        match self.tree.work(&self.visibility(), effort).unwrap() {
            Progress::Done(_) => self.units.fetch_add(1, Ordering::Relaxed),
            Progress::Busy | Progress::Deferred => self.busy.fetch_add(1, Ordering::Relaxed),
            Progress::Idle => {
                std::thread::yield_now();
                0
            }
        };
    }

    fn read(&self, state: &mut u64) {
        let (ts, expected) = {
            let mut truth = self.truth.write().unwrap();
            let ts = truth.watermark;
            *truth.live.entry(ts).or_default() += 1;
            (ts, truth.visible_at(ts))
        };
        let forward = random(state).is_multiple_of(2);
        let direction = if forward { Direction::Forward } else { Direction::Backward };
        let mut cursor = self.tree.cursor(KeyRange::all(), ts, direction);
        let mut found = Vec::new();
        while let Some((key, value)) = cursor.next().unwrap() {
            found.push((key.to_vec(), value.to_vec()));
        }
        if !forward {
            found.reverse();
        }
        assert!(found.iter().map(|(k, v)| (k, v)).eq(&expected), "a scan at {ts} differs");
        for _ in 0..200 {
            let key = key(random(state) % 3000);
            let value = self.tree.get(&key, ts).unwrap();
            assert_eq!(value.as_deref(), expected.get(&key).map(|value| &value[..]));
        }
        let mut truth = self.truth.write().unwrap();
        *truth.live.get_mut(&ts).unwrap() -= 1;
        truth.live.retain(|_, count| *count > 0);
    }
}

/// One writer, two readers and several workers; then everything is deleted.
fn run(seed: u64, workers: u64) {
    let mut shape = seed;
    let options = TreeOptions {
        fanout: 4 + (random(&mut shape) % 5) as usize,
        page_size: 600 << (random(&mut shape) % 3),
        buffer_bytes: 1500 << (random(&mut shape) % 3),
        leaf_filter: seed.is_multiple_of(2),
        ..TreeOptions::tiny()
    };
    // Writes take turns with everything else.
    let hook: Arc<Hook> = Arc::new(|| {
        std::thread::yield_now();
        Ok(())
    });
    let (context, tree) = tree_over(hook, seed, options);
    context.merge_limiter.allow(1);
    let world = World {
        tree,
        truth: RwLock::default(),
        stop: AtomicBool::new(false),
        units: AtomicU64::new(0),
        busy: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        let world = &world;
        let until_stopped = move |mut state: u64, step: &dyn Fn(&mut u64)| {
            while !world.stop.load(Ordering::Relaxed) {
                step(&mut state);
            }
        };
        for worker in 0..workers {
            scope.spawn(move || {
                until_stopped(seed + worker, &|state| {
                    let idle = random(state).is_multiple_of(20);
                    world.work(if idle { Effort::Idle } else { Effort::Paced });
                });
            });
        }
        for reader in 0..2 {
            scope.spawn(move || until_stopped(seed ^ (reader + 77), &|state| world.read(state)));
        }
        let mut state = seed;
        for phase in 0..3 {
            let keys = [3000, 900, 60][phase];
            for _ in 0..2000 {
                world.write(&mut state, keys, 2 + phase as u64 * 2);
            }
        }
        world.stop.store(true, Ordering::Relaxed);
    });
    let world_now = world.truth.read().unwrap().visible_at(u64::MAX);
    check(&world.tree, &world_now);
    assert!(world.units.load(Ordering::Relaxed) > 50, "few units were done");
    // Everything deleted, several at work: the tree shrinks to nothing.
    let mut ts = world.truth.read().unwrap().watermark;
    for key in world_now.keys() {
        ts += 1;
        world.tree.insert(key, ts, Message::Delete);
    }
    world.tree.seal(ts);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| settle(&world.tree, Effort::Idle));
        }
    });
    settle(&world.tree, Effort::Idle);
    check(&world.tree, &BTreeMap::new());
    let stats = world.tree.stats();
    assert_eq!((stats.disk_entries, stats.buffered_bytes, stats.height), (0, 0, 1), "{stats:?}");
    assert_eq!(context.blocks.segments().len(), world.tree.segments().len(), "orphans");
}

/// `FERN_SEEDS=first..last` chooses others.
#[test]
fn tree_agrees_with_every_snapshot_under_several_workers() {
    let seeds = std::env::var("FERN_SEEDS").unwrap_or_else(|_| "0..2".to_owned());
    let (first, last) = seeds.split_once("..").unwrap();
    for seed in first.parse().unwrap()..last.parse().unwrap() {
        run(seed, 2 + seed % 3);
    }
}
