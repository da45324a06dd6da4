//! Random transactions against a map of all versions, with tiny sizes: several dictionaries,
//! several transactions at once, snapshots held, savepoints, conflicts, aborts, crashes, reopens.

use crate::{open, scale, tiny};
use engine::{
    Cursor, DictionaryId, DictionaryOptions, Direction, Durability, Engine, EngineTxn, Error,
    KeyRange, OnConflict, Savepoint, Snapshot, TxnOptions,
};
use os::sim::{SimOs, Survival};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use testkit::Gen;

type Key = (u64, Vec<u8>);
/// Different keys per dictionary.
const KEYS: u64 = 300;

/// (timestamp, value or delete), oldest first.
type Versions = Vec<(u64, Option<Vec<u8>>)>;
type Overlay = BTreeMap<Key, Option<Vec<u8>>>;

/// Everything that was ever committed.
#[derive(Default)]
struct Model {
    versions: BTreeMap<Key, Versions>,
    /// Newest commit that held a key's lock: what a conflict is.
    touched: BTreeMap<Key, u64>,
    /// (created, dropped) of each dictionary.
    lives: BTreeMap<u64, (u64, u64)>,
    newest: u64,
}

impl Model {
    fn value(&self, key: &Key, ts: u64) -> Option<&Vec<u8>> {
        let versions = self.versions.get(key)?;
        versions.iter().rev().find(|(at, _)| *at <= ts)?.1.as_ref()
    }

    fn exists(&self, dictionary: u64, ts: u64) -> bool {
        self.lives.get(&dictionary).is_some_and(|(from, to)| *from <= ts && ts < *to)
    }

    fn range(&self, dictionary: u64, ts: u64, overlay: &Overlay) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut found = BTreeMap::new();
        for key in self.versions.keys().chain(overlay.keys()).filter(|key| key.0 == dictionary) {
            let value = match overlay.get(key) {
                Some(own) => own.clone(),
                None => self.value(key, ts).cloned(),
            };
            if let Some(value) = value {
                found.insert(key.1.clone(), value);
            }
        }
        found
    }
}

struct Open {
    txn: EngineTxn,
    snapshot: u64,
    on_conflict: OnConflict,
    overlay: Overlay,
    savepoints: Vec<(Savepoint, Overlay)>,
    locks: BTreeSet<Key>,
}

struct World {
    sim: SimOs,
    engine: Engine,
    model: Model,
    open: Vec<Open>,
    snapshots: Vec<Snapshot>,
    random: Gen,
    /// Drains, merges and flushes before the last reopen.
    worked: [u64; 4],
}

fn bound(random: &mut Gen) -> Bound<Vec<u8>> {
    match random.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(random.key(KEYS)),
        _ => Bound::Excluded(random.key(KEYS)),
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let sim = SimOs::new(seed);
        let engine = open(&sim.os(), tiny()).unwrap();
        let mut model = Model::default();
        model.lives.insert(1, (0, u64::MAX));
        Self {
            sim,
            engine,
            model,
            open: Vec::new(),
            snapshots: Vec::new(),
            random: Gen::new(seed),
            worked: [0; 4],
        }
    }

    fn dictionary(&mut self) -> u64 {
        let live: Vec<u64> = self
            .model
            .lives
            .iter()
            .filter(|(_, (_, dropped))| *dropped == u64::MAX)
            .map(|(id, _)| *id)
            .collect();
        *self.random.pick(&live).unwrap()
    }

    fn begin(&mut self) {
        let on_conflict = if self.random.one_in(2) { OnConflict::Fail } else { OnConflict::Latest };
        let txn = self.engine.begin(TxnOptions { on_conflict, lock_timeout: None });
        assert_eq!(txn.snapshot_timestamp().0, self.model.newest);
        self.open.push(Open {
            txn,
            snapshot: self.model.newest,
            on_conflict,
            overlay: Overlay::new(),
            savepoints: Vec::new(),
            locks: BTreeSet::new(),
        });
    }

    /// What locking `key` must answer for transaction `who`.
    fn lock_outcome(&self, who: usize, key: &Key) -> Result<(), &'static str> {
        let own = &self.open[who];
        let others = self.open.iter().enumerate().filter(|(i, _)| *i != who);
        if others.map(|(_, other)| other).any(|other| other.locks.contains(key)) {
            return Err("timeout");
        }
        let touched = self.model.touched.get(key).copied().unwrap_or(0);
        let created = self.model.lives[&key.0].0;
        if own.on_conflict == OnConflict::Fail && touched.max(created) > own.snapshot {
            return Err("conflict");
        }
        Ok(())
    }

    fn write(&mut self, who: usize) {
        let key = (self.dictionary(), self.random.key(KEYS));
        let id = DictionaryId(key.0);
        let outcome = self.lock_outcome(who, &key);
        let value = self.random.value(200);
        let what = self.random.below(5);
        let newest = self.model.value(&key, u64::MAX).cloned();
        let own = &mut self.open[who];
        let result = match what {
            0 => own.txn.delete(id, &key.1).map(|()| Some(None)),
            1 => own.txn.get_for_update(id, &key.1).map(|seen| {
                let expected = own.overlay.get(&key).cloned().unwrap_or(newest);
                assert_eq!(seen.map(|value| value.to_vec()), expected);
                None
            }),
            2 => own.txn.insert(id, &key.1, &value).map(|written| {
                let there = own.overlay.get(&key).cloned().unwrap_or(newest);
                assert_eq!(written, there.is_none());
                written.then_some(Some(value))
            }),
            _ => own.txn.put(id, &key.1, &value).map(|()| Some(Some(value))),
        };
        match (result, outcome) {
            (Ok(write), Ok(())) => {
                own.locks.insert(key.clone());
                if let Some(write) = write {
                    own.overlay.insert(key, write);
                }
            }
            (Err(Error::LockTimeout { .. }), Err("timeout")) => {}
            (Err(Error::WriteConflict), Err("conflict")) => {
                // The lock stays with the transaction.
                own.locks.insert(key);
            }
            (result, outcome) => panic!("{result:?}, expected {outcome:?}"),
        }
    }

    fn read(&mut self, who: usize) {
        let key = (self.dictionary(), self.random.key(KEYS));
        let own = &self.open[who];
        let seen = own.txn.get(DictionaryId(key.0), &key.1);
        if !self.model.exists(key.0, own.snapshot) && !own.overlay.contains_key(&key) {
            assert!(matches!(seen, Err(Error::NoSuchDictionary(_))));
            return;
        }
        let expected = match own.overlay.get(&key) {
            Some(own) => own.clone(),
            None => self.model.value(&key, own.snapshot).cloned(),
        };
        assert_eq!(seen.unwrap().map(|value| value.to_vec()), expected);
    }

    fn walk(
        random: &mut Gen,
        mut cursor: Cursor,
        range: &KeyRange,
        direction: Direction,
        all: &BTreeMap<Vec<u8>, Vec<u8>>,
    ) {
        let bounds = (range.lower.clone(), range.upper.clone());
        let mut expected: Vec<_> = all
            .iter()
            .filter(|(key, _)| std::ops::RangeBounds::contains(&bounds, *key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        let mut left = expected.into_iter().peekable();
        loop {
            match random.below(12) {
                0 => cursor.park(),
                1 => {
                    let to = random.key(KEYS);
                    cursor.seek(&to).unwrap();
                    while left.peek().is_some_and(|(key, _)| match direction {
                        Direction::Forward => *key < to,
                        Direction::Backward => *key > to,
                    }) {
                        left.next();
                    }
                }
                _ => {}
            }
            let seen = cursor.next().unwrap().map(|(key, value)| (key.to_vec(), value.to_vec()));
            let wanted = left.next();
            assert_eq!(seen, wanted);
            if wanted.is_none() {
                return;
            }
        }
    }

    fn scan(&mut self, who: Option<usize>) {
        let dictionary = self.dictionary();
        let direction =
            if self.random.one_in(2) { Direction::Forward } else { Direction::Backward };
        let range = KeyRange { lower: bound(&mut self.random), upper: bound(&mut self.random) };
        let none = Overlay::new();
        let (cursor, ts, overlay) = if let Some(who) = who {
            let own = &self.open[who];
            let cursor = own.txn.cursor(DictionaryId(dictionary), range.clone(), direction);
            (cursor, own.snapshot, &own.overlay)
        } else {
            let Some(snapshot) = self.random.pick(&self.snapshots) else { return };
            let cursor = snapshot.cursor(DictionaryId(dictionary), range.clone(), direction);
            (cursor, snapshot.timestamp().0, &none)
        };
        if !self.model.exists(dictionary, ts) {
            assert!(matches!(cursor, Err(Error::NoSuchDictionary(_))));
            return;
        }
        let all = self.model.range(dictionary, ts, overlay);
        Self::walk(&mut self.random, cursor.unwrap(), &range, direction, &all);
    }

    fn savepoint(&mut self, who: usize) {
        let back = self.random.one_in(2);
        let own = &mut self.open[who];
        if !back {
            own.savepoints.push((own.txn.savepoint(), own.overlay.clone()));
        } else if let Some((savepoint, overlay)) = own.savepoints.pop() {
            own.txn.rollback_to(savepoint);
            own.overlay = overlay;
        }
    }

    fn commit(&mut self, who: usize) {
        let own = self.open.swap_remove(who);
        let synced = self.random.one_in(4);
        let durability = if synced { Durability::Synced } else { Durability::Buffered };
        let ts = own.txn.commit(durability).unwrap().durable().unwrap().0;
        if own.overlay.is_empty() {
            assert_eq!(ts, own.snapshot);
            return;
        }
        assert_eq!(ts, self.model.newest + 1);
        self.model.newest = ts;
        for key in own.locks {
            self.model.touched.insert(key, ts);
        }
        for (key, value) in own.overlay {
            self.model.versions.entry(key).or_default().push((ts, value));
        }
    }

    fn change_dictionaries(&mut self) {
        let mut txn = self.engine.begin(TxnOptions::default());
        let live = self.model.lives.values().filter(|(_, dropped)| *dropped == u64::MAX).count();
        let dictionary = self.dictionary();
        let locked = self.open.iter().any(|own| own.locks.iter().any(|key| key.0 == dictionary));
        if live > 3 && dictionary != 1 {
            let dropped = txn.drop_dictionary(DictionaryId(dictionary));
            if locked {
                assert!(matches!(dropped, Err(Error::LockTimeout { .. })), "{dropped:?}");
                return;
            }
            dropped.unwrap();
            let ts = txn.commit(Durability::Buffered).unwrap().durable().unwrap().0;
            self.model.lives.get_mut(&dictionary).unwrap().1 = ts;
            self.model.newest = ts;
        } else {
            let options = DictionaryOptions {
                leaf_filter: self.random.one_in(2),
                ..DictionaryOptions::default()
            };
            let id = txn.create_dictionary(options).unwrap().0;
            let ts = txn.commit(Durability::Buffered).unwrap().durable().unwrap().0;
            self.model.lives.insert(id, (ts, u64::MAX));
            self.model.newest = ts;
        }
    }

    /// Everything open goes; the state must be exactly the committed one.
    fn reopen(&mut self) {
        self.open.clear();
        self.snapshots.clear();
        let stats = self.engine.stats();
        for (sum, more) in
            self.worked.iter_mut().zip([stats.drains, stats.merges, stats.flushes, stats.spills])
        {
            *sum += more;
        }
        let clean = self.random.one_in(2);
        if clean {
            self.engine.close().unwrap();
        } else {
            self.engine.sync().unwrap();
        }
        let os = self.sim.reboot_with(Survival::Nothing);
        self.engine = open(&os, tiny()).unwrap();
        self.model.touched.clear();
        self.check();
    }

    fn check(&self) {
        let snapshot = self.engine.snapshot();
        assert_eq!(snapshot.timestamp().0, self.model.newest);
        let none = Overlay::new();
        for (dictionary, _) in self.engine.dictionaries() {
            let mut cursor =
                snapshot.cursor(dictionary, KeyRange::all(), Direction::Forward).unwrap();
            let mut found = BTreeMap::new();
            while let Some((key, value)) = cursor.next().unwrap() {
                found.insert(key.to_vec(), value.to_vec());
            }
            assert_eq!(found, self.model.range(dictionary.0, self.model.newest, &none));
        }
        self.engine.verify_all().unwrap();
    }

    fn step(&mut self) {
        let who =
            (!self.open.is_empty()).then(|| self.random.below(self.open.len() as u64) as usize);
        match (self.random.below(100), who) {
            (0..10, _) if self.open.len() < 4 => self.begin(),
            (10..55, Some(who)) => self.write(who),
            (55..65, Some(who)) => self.read(who),
            (65..70, who) => self.scan(who),
            (70..74, _) => self.scan(None),
            (74..78, Some(who)) => self.savepoint(who),
            (78..84, Some(who)) => self.commit(who),
            (84..85, Some(who)) => drop(self.open.swap_remove(who)),
            (85..88, _) if self.snapshots.len() < 5 => {
                self.snapshots.push(self.engine.snapshot());
            }
            (85..89, _) if !self.snapshots.is_empty() => {
                let which = self.random.below(self.snapshots.len() as u64) as usize;
                drop(self.snapshots.swap_remove(which));
            }
            (89..96, _) => {
                let _ = self.engine.step().unwrap();
            }
            (96..98, _) if self.random.one_in(4) => self.engine.checkpoint().unwrap(),
            (98, _) if self.random.one_in(4) => self.change_dictionaries(),
            (99, _) if self.random.one_in(15) => self.reopen(),
            _ => {}
        }
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..10_000 * scale() {
        world.step();
    }
    world.reopen();
    let [drains, merges, flushes, spills] = world.worked;
    assert!(
        drains > 10 && merges > 0 && flushes > 0 && spills > 0,
        "{:?} is too little work",
        world.worked
    );
}

#[test]
fn random_transactions_agree_with_the_model_seed_1() {
    run(1);
}

#[test]
fn random_transactions_agree_with_the_model_seed_2() {
    run(2);
}

#[test]
fn random_transactions_agree_with_the_model_seed_3() {
    run(3);
}

#[test]
fn random_transactions_agree_with_the_model_seed_4() {
    run(4);
}
