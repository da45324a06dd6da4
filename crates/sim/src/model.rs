//! Everything that was ever committed, version by version.

use std::collections::{BTreeMap, BTreeSet};

/// A dictionary and a key in it.
pub(crate) type Key = (u64, Vec<u8>);
/// A value, or a delete.
pub(crate) type Write = Option<Vec<u8>>;
pub(crate) type Overlay = BTreeMap<Key, Write>;
pub(crate) type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Of a dictionary that is there.
const NEVER: u64 = u64::MAX;

/// What followers of the log are to be told of a commit.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct NotedCommit {
    pub(crate) writes: Overlay,
    pub(crate) notes: Vec<Vec<u8>>,
    pub(crate) span: u32,
    pub(crate) is_client_transaction: bool,
    /// The last of its times, once it was seen.
    pub(crate) time: Option<u64>,
}

/// What one transaction changes.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) writes: Overlay,
    pub(crate) created: Vec<u64>,
    pub(crate) dropped: Vec<u64>,
    /// Keys whose locks it held.
    pub(crate) locks: BTreeSet<Key>,
    /// Keys that it deleted with their range.
    pub(crate) buried: BTreeSet<Key>,
    /// All of it but the writes.
    pub(crate) told: NotedCommit,
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
            && self.created.is_empty()
            && self.dropped.is_empty()
            && self.buried.is_empty()
            && self.told.notes.is_empty()
    }
}

pub(crate) struct Model {
    /// (timestamp, write), oldest first.
    versions: BTreeMap<Key, Vec<(u64, Write)>>,
    /// The newest commit that held a key's lock since the engine was opened: what a conflict is.
    touched: BTreeMap<Key, u64>,
    /// (created, dropped) of each dictionary.
    lives: BTreeMap<u64, (u64, u64)>,
    /// What the history must say of each commit.
    pub(crate) told: BTreeMap<u64, NotedCommit>,
    pub(crate) newest: u64,
    /// Up to here commits were acknowledged as durable.
    pub(crate) durable: u64,
    /// The commit after the newest, which ended by a bug: it may be in the log.
    pub(crate) in_doubt: Option<Changes>,
}

impl Model {
    pub(crate) fn new() -> Self {
        Self {
            versions: BTreeMap::new(),
            touched: BTreeMap::new(),
            lives: BTreeMap::from([(engine::DictionaryId::ROOT.0, (0, NEVER))]),
            told: BTreeMap::new(),
            newest: 0,
            durable: 0,
            in_doubt: None,
        }
    }

    pub(crate) fn value(&self, key: &Key, at: u64) -> Option<&Vec<u8>> {
        let versions = self.versions.get(key)?;
        versions.iter().rev().find(|(ts, _)| *ts <= at)?.1.as_ref()
    }

    /// What a transaction at `at` sees of a key: its own write first.
    pub(crate) fn seen(&self, own: &Overlay, key: &Key, at: u64) -> Write {
        own.get(key).cloned().unwrap_or_else(|| self.value(key, at).cloned())
    }

    pub(crate) fn exists(&self, dictionary: u64, at: u64) -> bool {
        self.lives.get(&dictionary).is_some_and(|(from, to)| *from <= at && at < *to)
    }

    pub(crate) fn created(&self, dictionary: u64) -> u64 {
        self.lives.get(&dictionary).map_or(0, |life| life.0)
    }

    /// The dictionaries that are there at a commit.
    pub(crate) fn dictionaries(&self, at: u64) -> Vec<u64> {
        self.lives.keys().copied().filter(|id| self.exists(*id, at)).collect()
    }

    /// The commits that wrote a key.
    pub(crate) fn versions_of(&self, key: &Key) -> Vec<u64> {
        let versions = self.versions.get(key).into_iter().flatten();
        versions.map(|(ts, _)| *ts).collect()
    }

    pub(crate) fn touched(&self, key: &Key) -> u64 {
        self.touched.get(key).copied().unwrap_or(0)
    }

    /// A dictionary as of `at`, with `own` writes over it.
    pub(crate) fn contents(&self, dictionary: u64, at: u64, own: &Overlay) -> Contents {
        let range = (dictionary, Vec::new())..(dictionary + 1, Vec::new());
        let committed = self.versions.range(range.clone());
        let mut found: Contents = committed
            .filter_map(|(key, _)| Some((key.1.clone(), self.value(key, at)?.clone())))
            .collect();
        for (key, write) in own.range(range) {
            match write {
                Some(value) => found.insert(key.1.clone(), value.clone()),
                None => found.remove(&key.1),
            };
        }
        found
    }

    pub(crate) fn commit(&mut self, ts: u64, changes: Changes) {
        self.newest = ts;
        for key in changes.locks.into_iter().chain(changes.buried) {
            self.touched.insert(key, ts);
        }
        for id in changes.created {
            self.lives.insert(id, (ts, NEVER));
        }
        for id in &changes.dropped {
            if let Some(life) = self.lives.get_mut(id) {
                life.1 = ts;
            }
        }
        let mut told = changes.told;
        let stays = |(key, _): &(&Key, &Write)| !changes.dropped.contains(&key.0);
        let writes = changes.writes.iter().filter(stays);
        told.writes = writes.map(|(key, write)| (key.clone(), write.clone())).collect();
        self.told.insert(ts, told);
        for (key, write) in changes.writes {
            if !changes.dropped.contains(&key.0) {
                self.versions.entry(key).or_default().push((ts, write));
            }
        }
    }

    /// The newest commit that came back says whether the one in doubt was one.
    pub(crate) fn resolve_doubt(&mut self, at: u64) {
        if let Some(changes) = self.in_doubt.take()
            && at == self.newest + 1
        {
            self.commit(at, changes);
        }
    }

    /// A recovery came back with the state after commit `at`.
    pub(crate) fn recovered(&mut self, at: u64) {
        for versions in self.versions.values_mut() {
            versions.retain(|(ts, _)| *ts <= at);
        }
        self.versions.retain(|_, versions| !versions.is_empty());
        self.lives.retain(|_, (created, _)| *created <= at);
        for life in self.lives.values_mut().filter(|life| life.1 > at) {
            life.1 = NEVER;
        }
        self.told.retain(|ts, _| *ts <= at);
        self.touched.clear();
        self.newest = at;
        // What was shown stays.
        self.durable = at;
    }
}
