//! A tree that forgets its newest versions is, from then on, one that never had them.
#![allow(clippy::unwrap_used, reason = "a test that meets an error fails")]

use blockfile::{BlockFile, Metrics, Options};
use cachetable::CacheTable;
use ftree::{
    Context, Direction, Effort, KeyRange, Message, Progress, SpillTree, Tree, TreeOptions,
    Visibility,
};
use os::sim::SimOs;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use testkit::Gen;

const TREE: u64 = 7;
const KEYS: u64 = 60;

/// Key → (timestamp, value) ascending.
type Model = BTreeMap<Vec<u8>, Vec<(u64, Option<Vec<u8>>)>>;

fn context() -> Arc<Context> {
    let os = SimOs::new(4).os();
    os.vfs.create_dir_all(Path::new("/data")).unwrap();
    let metrics = Metrics::new(&telemetry::Registry::new());
    let (blocks, _) =
        BlockFile::open(&os, Path::new("/data"), Options::default(), metrics).unwrap();
    Context::new(blocks, Arc::new(CacheTable::new(64 << 10)))
}

struct Run {
    context: Arc<Context>,
    tree: Arc<Tree>,
    model: Model,
    random: Gen,
    /// The newest commit, and the newest that nobody takes back.
    newest: Cell<u64>,
    visible: u64,
    spills: u64,
}

impl Run {
    fn commit(&mut self) {
        let ts = self.newest.get() + 1;
        let mut writes = BTreeMap::new();
        for _ in 0..=self.random.below(4) {
            let value = (!self.random.one_in(4)).then(|| self.random.value(60));
            writes.insert(self.random.key(KEYS), value);
        }
        self.newest.set(ts);
        if self.random.one_in(12) {
            self.spills += 1;
            let number = 1 << 63 | self.spills;
            let mut spill = SpillTree::create(&self.context, number, TreeOptions::tiny(), 4 << 10);
            for (key, value) in &writes {
                spill.write(TREE, key, value.as_deref(), false).unwrap();
            }
            self.tree.adopt(&spill, TREE, ts, self.visible, || self.newest.get());
        } else {
            for (key, value) in &writes {
                let message = value.as_deref().map_or(Message::Delete, Message::Put);
                self.tree.insert(key, ts, message);
            }
        }
        for (key, value) in writes {
            self.model.entry(key).or_default().push((ts, value));
        }
    }

    fn forget(&mut self) {
        let ts = self.visible + self.random.below(self.newest.get() - self.visible + 1);
        // A cursor that was opened before goes on seeing what it saw.
        let at = self.visible + self.random.below(ts - self.visible + 1);
        let expected = self.seen(at);
        let mut cursor = self.tree.cursor(KeyRange::all(), at, Direction::Forward);
        let mut expected = expected.iter();
        for _ in 0..self.random.below(10) {
            let next = expected.next().map(|(key, value)| (&key[..], &value[..]));
            assert_eq!(cursor.next().unwrap(), next);
        }
        self.tree.forget_after(ts);
        for versions in self.model.values_mut() {
            versions.retain(|(written, _)| *written <= ts);
        }
        self.newest.set(ts);
        for (key, value) in expected {
            assert_eq!(cursor.next().unwrap(), Some((&key[..], &value[..])));
        }
        assert_eq!(cursor.next().unwrap(), None);
    }

    fn seen(&self, at: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let visible = |versions: &Vec<(u64, Option<Vec<u8>>)>| {
            let newest = versions.iter().rev().find(|(ts, _)| *ts <= at);
            newest.and_then(|(_, value)| value.clone())
        };
        let all = self.model.iter();
        all.filter_map(|(key, versions)| Some((key.clone(), visible(versions)?))).collect()
    }

    /// The tree is what the model is, at every timestamp that somebody may still read at, and beyond.
    fn check(&self) {
        for at in [self.visible, u64::midpoint(self.visible, self.newest.get()), u64::MAX - 1] {
            for direction in [Direction::Forward, Direction::Backward] {
                let mut cursor = self.tree.cursor(KeyRange::all(), at, direction);
                let mut found = BTreeMap::new();
                while let Some((key, value)) = cursor.next().unwrap() {
                    found.insert(key.to_vec(), value.to_vec());
                }
                assert_eq!(found, self.seen(at), "at {at}");
            }
        }
        for (key, versions) in &self.model {
            let newest = self.tree.newest(key).unwrap();
            let expected = versions.last().map(|(ts, value)| (*ts, value.is_none()));
            // A delete that everybody sees may be gone.
            assert!(newest == expected || newest.is_none() && expected.is_none_or(|(_, d)| d));
        }
    }

    fn work(&self) -> u64 {
        // Nobody reads below what is visible.
        let visibility = Visibility::newest_only(self.visible).draining_to(self.visible);
        let mut drains = 0;
        while let Progress::Done(work) = self.tree.work(&visibility, Effort::Needed).unwrap() {
            drains += u64::from(work == ftree::Work::Drain);
        }
        drains
    }
}

#[test]
fn forgotten_versions_have_never_been() {
    let (mut drains, mut forgotten, mut spills) = (0, 0, 0);
    for seed in 0..12 {
        let context = context();
        let mut run = Run {
            tree: Tree::create(&context, TREE, TreeOptions::tiny()),
            context,
            model: Model::new(),
            random: Gen::new(500 + seed),
            newest: Cell::new(0),
            visible: 0,
            spills: 0,
        };
        for _ in 0..400 {
            match run.random.below(20) {
                0..12 => run.commit(),
                12..14 => {
                    let newest = run.newest.get();
                    run.visible += run.random.below(newest - run.visible + 1);
                }
                14..16 => {
                    run.tree.seal_below(run.visible, || run.newest.get());
                }
                16..18 => drains += run.work(),
                18 if run.random.one_in(3) => {
                    let before = run.newest.get();
                    run.forget();
                    forgotten += before - run.newest.get();
                    run.check();
                }
                _ => run.check(),
            }
        }
        run.visible = run.newest.get();
        run.tree.seal_below(run.visible, || run.newest.get());
        drains += run.work();
        assert_eq!((run.tree.debt().sealed, run.tree.flushed_ts()), (0, run.visible));
        run.check();
        run.tree.verify().unwrap();
        spills += run.spills;
    }
    assert!(drains > 50 && forgotten > 300 && spills > 50, "{drains} {forgotten} {spills}");
}
