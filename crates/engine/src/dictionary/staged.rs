//! Dictionaries that are filled and that no commit has made yet.
//!
//! Their rows are in no log. So each is named by a checkpoint before a commit may adopt it, and by every
//! checkpoint from then on: as staged, until one that knows of the commit names it as any other. A
//! checkpoint older than the commit therefore has the rows that the commit's record speaks of.
//!
//! Always true:
//! 1. A number is staged, or in the directory, or neither; it changes from the one to the other under the
//!    lock under which a checkpoint lists both.
//! 2. What is adopted is durable, and in the copy of every backup that has the commit.

use super::{Dictionary, Directory};
use crate::DictionaryOptions;
use ftree::Tree;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a checkpoint says of a dictionary that no commit it knows of has made.
pub(crate) const STAGED: u64 = u64::MAX;

/// The dictionaries that are staged.
#[derive(Default)]
pub(crate) struct Staging(Mutex<State>);

#[derive(Default)]
struct State {
    dictionaries: BTreeMap<u64, Staged>,
    /// When each backup that goes on began.
    backups: BTreeSet<u64>,
    /// Counts checkpoints that named something staged, and begins of backups.
    clock: u64,
}

struct Staged {
    dictionary: Arc<Dictionary>,
    /// Since when a complete checkpoint names it.
    durable: Option<u64>,
}

impl Staging {
    fn add(&self, dictionary: Arc<Dictionary>) {
        let before =
            self.0.lock().dictionaries.insert(dictionary.id, Staged { dictionary, durable: None });
        assert!(before.is_none(), "the number of a dictionary is used once");
    }

    /// Whether a complete checkpoint names it.
    pub(crate) fn is_durable(&self, id: u64) -> bool {
        self.0.lock().dictionaries.get(&id).is_some_and(|staged| staged.durable.is_some())
    }

    /// Whether a commit may adopt it: it is durable, and every backup that goes on began later, and so has
    /// it. No backup that begins later lacks it.
    pub(crate) fn is_adoptable(&self, id: u64) -> bool {
        let state = self.0.lock();
        let durable = state.dictionaries.get(&id).and_then(|staged| staged.durable);
        durable.is_some_and(|durable| state.backups.first().is_none_or(|begun| *begun > durable))
    }

    /// Whether a backup goes on.
    pub(crate) fn has_backups(&self) -> bool {
        !self.0.lock().backups.is_empty()
    }

    /// A backup begins: what it is ended with.
    pub(crate) fn begin_backup(&self) -> u64 {
        let mut state = self.0.lock();
        state.clock += 1;
        let begun = state.clock;
        state.backups.insert(begun);
        begun
    }

    /// The backup is over.
    pub(crate) fn end_backup(&self, begun: u64) {
        self.0.lock().backups.remove(&begun);
    }

    /// A complete checkpoint names these.
    pub(crate) fn note_durable(&self, ids: &[u64]) {
        let mut state = self.0.lock();
        state.clock += 1;
        let now = state.clock;
        for id in ids {
            if let Some(staged) = state.dictionaries.get_mut(id) {
                staged.durable.get_or_insert(now);
            }
        }
    }

    /// Nobody will adopt it: its tree, whose segments go with the last that reads them.
    pub(crate) fn discard(&self, id: u64) {
        let staged = self.0.lock().dictionaries.remove(&id);
        if let Some(staged) = staged {
            staged.dictionary.tree.discard();
        }
    }

    /// Nobody is left to adopt any of them: how many there were.
    pub(crate) fn discard_all(&self) -> usize {
        let all = std::mem::take(&mut self.0.lock().dictionaries);
        for staged in all.values() {
            staged.dictionary.tree.discard();
        }
        all.len()
    }
}

impl Directory {
    /// Takes in a dictionary that is filled.
    pub(crate) fn stage(&self, id: u64, options: DictionaryOptions, tree: Arc<Tree>) {
        self.taken_below(id + 1);
        self.staging.add(Dictionary::new(id, options, tree, STAGED));
    }

    /// Makes a staged dictionary one of the commit `created`; false where it is not there.
    pub(crate) fn adopt(&self, id: u64, options: DictionaryOptions, created: u64) -> bool {
        assert!(created < STAGED, "a commit adopts it");
        let mut state = self.staging.0.lock();
        let Some(staged) = state.dictionaries.remove(&id) else { return false };
        let tree = Arc::clone(&staged.dictionary.tree);
        // Commits before its own are none of its business: it has flushed them.
        let _empty = tree.seal(created.saturating_sub(1));
        self.add(Dictionary::adopted(id, options, tree, created));
        true
    }

    /// The dictionaries that a checkpoint of this timestamp names, ids ascending, each with the commit that
    /// made it.
    pub(crate) fn listed_at(&self, timestamp: u64) -> Vec<(Arc<Dictionary>, u64)> {
        let state = self.staging.0.lock();
        let listed = self.those(|dictionary| {
            dictionary.visible_at(timestamp) || dictionary.is_adopted_after(timestamp)
        });
        let created = |dictionary: &Dictionary| match dictionary.created {
            created if created <= timestamp => created,
            _ => STAGED,
        };
        let mut listed: Vec<_> =
            listed.into_iter().map(|found| (Arc::clone(&found), created(&found))).collect();
        let staged = state.dictionaries.values();
        listed.extend(staged.map(|staged| (Arc::clone(&staged.dictionary), STAGED)));
        listed.sort_by_key(|(dictionary, _)| dictionary.id);
        listed
    }
}
