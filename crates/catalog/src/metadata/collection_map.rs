//! The collections and views by name, and how often that has changed.
//!
//! Where commits are held back, a change of names is kept here from its commit until readers see that: who changes
//! names, and who writes, find it at once ([`CollectionMap::newest`]); readers find it once it is visible.
//!
//! | a change that waits | becomes |
//! |---|---|
//! | is visible | part of the map, by whoever looks first: a reader, or who is called then |
//! | is overwritten | nothing |
//!
//! Always true:
//! 1. Between two looks at the same count nothing was changed.
//! 2. What waits stands in the order of its commits, and the map is never ahead of what is visible.

use crate::metadata::collection::{Collection, Shared};
use crate::metadata::namespace::Namespace;
use engine::{CommitState, Engine, Seen, Timestamp};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

type ByName = BTreeMap<String, Arc<Collection>>;

/// What a commit does to names.
#[derive(Default)]
pub(crate) struct NameChange {
    /// What stands under each name then; `None` where nothing is left.
    pub(crate) names: Vec<(Namespace, Option<Arc<Collection>>)>,
    /// What is gone then.
    pub(crate) ended: Vec<Arc<Shared>>,
    /// What stands under another name than before got it from this commit.
    pub(crate) renames: bool,
    /// Users or roles are others then, whatever the names say.
    pub(crate) changes_accounts: bool,
}

impl NameChange {
    /// A new version of a collection, or a new collection.
    pub(crate) fn version(collection: &Arc<Collection>) -> Self {
        let name = collection.namespace.clone();
        Self { names: vec![(name, Some(Arc::clone(collection)))], ..Self::default() }
    }

    fn find(&self, name: &str) -> Option<&(Namespace, Option<Arc<Collection>>)> {
        self.names.iter().find(|(changed, _)| changed.as_str() == name)
    }
}

/// A change of names that readers do not see yet.
struct Waiting {
    seen: Seen,
    change: NameChange,
}

/// What stands under a name in the newest complete state.
pub(crate) struct Newest {
    pub(crate) collection: Option<Arc<Collection>>,
    /// The commit that said so, where readers do not see that one yet.
    pub(crate) waits_for: Option<Seen>,
}

/// Collections and views by name.
pub(crate) struct CollectionMap {
    by_name: RwLock<ByName>,
    changes: AtomicU64,
    account_changes: AtomicU64,
    /// Taken before the map's lock.
    waiting: Mutex<Vec<Waiting>>,
    /// As many as wait, for a look without the lock.
    waiting_count: AtomicUsize,
    /// Says what has become of a commit.
    engine: Engine,
}

impl CollectionMap {
    pub(crate) fn new(by_name: ByName, engine: Engine) -> Self {
        Self {
            by_name: RwLock::new(by_name),
            changes: AtomicU64::new(0),
            account_changes: AtomicU64::new(0),
            waiting: Mutex::new(Vec::new()),
            waiting_count: AtomicUsize::new(0),
            engine,
        }
    }

    /// What readers see.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, ByName> {
        self.settle();
        self.by_name.read()
    }

    /// To change it, which counts.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, ByName> {
        self.settle();
        self.write_settled()
    }

    fn write_settled(&self) -> RwLockWriteGuard<'_, ByName> {
        let by_name = self.by_name.write();
        // Under the lock, so that who sees the new count looks at the map after the change.
        self.changes.fetch_add(1, Ordering::SeqCst);
        by_name
    }

    /// How often it was changed, or what is to come of it was. Ask before looking at it.
    pub(crate) fn changes(&self) -> u64 {
        self.settle();
        self.changes.load(Ordering::SeqCst)
    }

    /// Counts the commits that changed users or roles, once they are visible.
    pub(crate) fn account_changes(&self) -> u64 {
        self.settle();
        self.account_changes.load(Ordering::Acquire)
    }

    pub(crate) fn accounts_changed(&self) {
        self.account_changes.fetch_add(1, Ordering::AcqRel);
    }

    /// A commit that is visible has changed names.
    pub(crate) fn apply(&self, change: NameChange, committed: Timestamp) {
        if !change.names.is_empty() {
            let mut by_name = self.write_settled();
            for (name, collection) in &change.names {
                let Some(collection) = collection else {
                    by_name.remove(name.as_str());
                    continue;
                };
                let before = by_name.get(name.as_str());
                let is_another = before.is_none_or(|before| before.number != collection.number);
                if change.renames && is_another {
                    collection.shared.renamed_at(committed);
                }
                by_name.insert(name.as_str().to_owned(), Arc::clone(collection));
            }
        }
        if change.changes_accounts || change.names.iter().any(|(name, _)| name.holds_accounts()) {
            self.accounts_changed();
        }
        for ended in change.ended {
            ended.end();
        }
    }

    /// A commit has changed names that readers do not see yet. To be called while whoever would look for them to
    /// change or to write is kept out. Says how many wait.
    pub(crate) fn push(&self, seen: Seen, change: NameChange) -> usize {
        let mut waiting = self.waiting.lock();
        waiting.push(Waiting { seen, change });
        self.waiting_count.store(waiting.len(), Ordering::SeqCst);
        self.changes.fetch_add(1, Ordering::SeqCst);
        waiting.len()
    }

    /// Whether a change waits.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting_count.load(Ordering::SeqCst) > 0
    }

    /// Takes over what has become visible, and forgets what was overwritten.
    pub(crate) fn settle(&self) {
        if self.has_waiting() {
            drop(self.settled());
        }
    }

    #[cold]
    fn settled(&self) -> MutexGuard<'_, Vec<Waiting>> {
        let mut waiting = self.waiting.lock();
        let mut place = 0;
        while let Some(one) = waiting.get(place) {
            match self.engine.commit_state(one.seen) {
                CommitState::Pending => place += 1,
                CommitState::Visible => {
                    let Waiting { seen, change } = waiting.remove(place);
                    self.apply(change, seen.timestamp());
                }
                CommitState::Overwritten => {
                    waiting.remove(place);
                    self.changes.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
        self.waiting_count.store(waiting.len(), Ordering::SeqCst);
        waiting
    }

    /// What stands under a name once all is visible that is complete.
    pub(crate) fn newest(&self, name: &str) -> Newest {
        if !self.has_waiting() {
            let collection = self.by_name.read().get(name).cloned();
            return Newest { collection, waits_for: None };
        }
        let waiting = self.settled();
        let found = waiting.iter().rev().find_map(|one| Some((one.seen, one.change.find(name)?)));
        let Some((seen, (_, collection))) = found else {
            let collection = self.by_name.read().get(name).cloned();
            return Newest { collection, waits_for: None };
        };
        Newest { collection: collection.clone(), waits_for: Some(seen) }
    }

    /// The same for all names from `from` up to `to`, which is left out; and the newest commit that changed one of
    /// them and waits.
    pub(crate) fn newest_between(
        &self,
        from: &str,
        to: &str,
    ) -> (Vec<Arc<Collection>>, Option<Seen>) {
        let waiting = self.settled();
        let range = (Bound::Included(from), Bound::Excluded(to));
        let by_name = self.by_name.read();
        let mut found: BTreeMap<String, Arc<Collection>> = by_name
            .range::<str, _>(range)
            .map(|(name, collection)| (name.clone(), Arc::clone(collection)))
            .collect();
        drop(by_name);
        let mut waits_for = None;
        for Waiting { seen, change } in &*waiting {
            for (name, collection) in &change.names {
                if !(from..to).contains(&name.as_str()) {
                    continue;
                }
                waits_for = Some(*seen);
                match collection {
                    Some(collection) => {
                        found.insert(name.as_str().to_owned(), Arc::clone(collection));
                    }
                    None => drop(found.remove(name.as_str())),
                }
            }
        }
        (found.into_values().collect(), waits_for)
    }

    /// Everything that is to stand under a name and waits.
    pub(crate) fn to_come(&self) -> Vec<Arc<Collection>> {
        let waiting = self.settled();
        let names = waiting.iter().flat_map(|one| &one.change.names);
        names.filter_map(|(_, collection)| collection.clone()).collect()
    }
}
