//! Following the catalog of another member: what its commits did to `ROOT`, taken over into memory.
//!
//! ```text
//!  a commit's operations ─ read ─► Changes ─ before it is visible: multikey marks
//!                                          └ after it: names, counts, arrivals
//! ```
//!
//! Always true:
//! 1. After [`Follower::after_visible`] the catalog in memory is the one that an opening of the same
//!    state would read.
//! 2. A multikey mark is there before the documents that need it are visible, as on the member that
//!    wrote them.
//! 3. A collection that is renamed or changed keeps what lives longer than a version of its metadata:
//!    locks, counts, statistics, readers that wait.
//! 4. Changes are read, and refused where they are damaged, before any of them is taken over.
//! 5. On a member without indexes no index is taken over that it does without (`left_out.rs`).

use crate::catalog::Catalog;
use crate::failure::from_engine;
use crate::metadata::collection::{
    Collection, Index, IndexState, Shared, clone_index, with_indexes,
};
use crate::metadata::counts::{self, Stripe};
use crate::metadata::namespace::Namespace;
use crate::metadata::records;
use engine::{DictionaryId, Direction, KeyRange, Snapshot, Timestamp};
use errors::Result;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What one commit did that the catalog in memory has to know.
#[derive(Default)]
pub struct Changes {
    /// By the name's key in `ROOT`: the collection, or that there is none any more.
    names: BTreeMap<Vec<u8>, Option<Collection>>,
    masks: Vec<(DictionaryId, u32)>,
    /// By collection and stripe, as they are now.
    stripes: Vec<(u64, Stripe)>,
    /// Orders of capped collections that were written to.
    orders: Vec<DictionaryId>,
    /// Users or roles are others now.
    accounts: bool,
    /// Dictionaries that a member without indexes does without.
    left_out: Vec<DictionaryId>,
}

impl Changes {
    /// Whether it did nothing that the catalog has to know.
    pub fn is_empty(&self) -> bool {
        let Self { names, masks, stripes, orders, accounts, left_out } = self;
        let lists = masks.is_empty() && stripes.is_empty() && orders.is_empty();
        names.is_empty() && lists && !accounts && left_out.is_empty()
    }

    /// Whether it changed names: then what comes before it in the log has to be visible first.
    pub fn changes_names(&self) -> bool {
        !self.names.is_empty()
    }
}

/// Where the pieces of the catalog are that commits of others change, by how those name them.
pub struct Follower {
    catalog: Arc<Catalog>,
    collections: HashMap<u64, Arc<Shared>>,
    indexes: HashMap<DictionaryId, Arc<IndexState>>,
    orders: HashMap<DictionaryId, Arc<Shared>>,
    /// Where users and roles are stored.
    accounts: HashSet<DictionaryId>,
}

impl Follower {
    /// Follows from what the catalog holds now. As long as it follows, nobody else may change it.
    pub fn new(catalog: &Arc<Catalog>) -> Self {
        let mut follower = Self {
            catalog: Arc::clone(catalog),
            collections: HashMap::new(),
            indexes: HashMap::new(),
            orders: HashMap::new(),
            accounts: HashSet::new(),
        };
        let namespaces = catalog.namespaces.read();
        namespaces.values().for_each(|collection| follower.know(collection));
        drop(namespaces);
        // What it committed as a leader, and a majority has, gets its name when it is visible.
        catalog.namespaces.to_come().iter().for_each(|collection| follower.know(collection));
        follower
    }

    /// Follows again, from the state that readers see: what this catalog has written, and was taken back, goes.
    /// Nobody writes meanwhile.
    pub fn again(catalog: &Arc<Catalog>) -> Result<Self> {
        let mut follower = Self::new(catalog);
        let state = catalog.snapshot();
        let namespaces = catalog.namespaces.read();
        let known = namespaces.values();
        let mut names: BTreeMap<Vec<u8>, Option<Collection>> =
            known.map(|collection| (records::namespace_key(&collection.namespace), None)).collect();
        drop(namespaces);
        let mut cursor = state
            .cursor(DictionaryId::ROOT, KeyRange::all(), Direction::Forward)
            .map_err(from_engine)?;
        let (mut stripes, mut masks, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
        while let Some((key, value)) = cursor.next().map_err(from_engine)? {
            match key.first() {
                Some(&records::NAMESPACE_PREFIX) => {
                    let (collection, without) = catalog.read_collection(value)?;
                    left_out.extend(without);
                    names.insert(key.to_vec(), Some(collection));
                }
                Some(&counts::PREFIX) => stripes.extend(Stripe::read(key, value)),
                Some(&records::MULTIKEY_PREFIX) => masks.extend(read_mask(key, value)),
                _ => {}
            }
        }
        follower.take_names(names, state.timestamp())?;
        let masks: HashMap<DictionaryId, u32> = masks.into_iter().collect();
        for (dictionary, index) in &follower.indexes {
            set_mask(index, masks.get(dictionary).copied().unwrap_or(0));
        }
        let mut counted: HashMap<u64, Vec<Stripe>> = HashMap::new();
        for (number, stripe) in stripes {
            counted.entry(number).or_default().push(stripe);
        }
        for (number, shared) in &follower.collections {
            shared.counts.start_over(counted.remove(number).unwrap_or_default());
        }
        let changes = Changes { accounts: true, left_out, ..Changes::default() };
        follower.after_visible(changes, state.timestamp())?;
        Ok(follower)
    }

    fn know(&mut self, collection: &Collection) {
        self.collections.insert(collection.number, Arc::clone(&collection.shared));
        for partition in collection.partitions() {
            self.collections.insert(partition.number, Arc::clone(&partition.shared));
        }
        for index in &collection.indexes {
            self.indexes.insert(index.dictionary, Arc::clone(&index.state));
        }
        if collection.namespace.holds_accounts() {
            self.accounts.insert(collection.primary);
        }
        if let Some(order) = collection.order {
            self.orders.insert(order, Arc::clone(&collection.shared));
        }
    }

    fn forget(&mut self, collection: &Collection) {
        self.collections.remove(&collection.number);
        for partition in collection.partitions() {
            self.collections.remove(&partition.number);
        }
        for index in &collection.indexes {
            self.indexes.remove(&index.dictionary);
        }
        self.accounts.remove(&collection.primary);
        if let Some(order) = collection.order {
            self.orders.remove(&order);
        }
    }

    /// Whether [`Follower::read`] looks at what is written to a dictionary.
    pub fn follows(&self, dictionary: DictionaryId) -> bool {
        dictionary == DictionaryId::ROOT
            || self.orders.contains_key(&dictionary)
            || self.accounts.contains(&dictionary)
    }

    /// Takes in one operation of a commit: a key's new value, or that it is gone.
    pub fn read(
        &self,
        changes: &mut Changes,
        dictionary: DictionaryId,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        if dictionary != DictionaryId::ROOT {
            if self.orders.contains_key(&dictionary) && changes.orders.last() != Some(&dictionary) {
                changes.orders.push(dictionary);
            }
            changes.accounts |= self.accounts.contains(&dictionary);
            return Ok(());
        }
        match (key.first(), value) {
            (Some(&records::NAMESPACE_PREFIX), None) => {
                changes.names.insert(key.to_vec(), None);
            }
            (Some(&records::NAMESPACE_PREFIX), Some(value)) => {
                let (collection, left_out) = self.catalog.read_collection(value)?;
                changes.left_out.extend(left_out);
                changes.names.insert(key.to_vec(), Some(collection));
            }
            (Some(&records::BUILDING_PREFIX), Some(_)) if self.catalog.leaves_out_indexes() => {
                changes.left_out.extend(records::building_dictionary(key));
            }
            (Some(&records::MULTIKEY_PREFIX), Some(value)) => {
                changes.masks.extend(read_mask(key, value));
            }
            (Some(&counts::PREFIX), Some(value)) => {
                changes.stripes.extend(Stripe::read(key, value));
            }
            // A mark or a count goes with its index or collection. Versions and side dictionaries are
            // read where they are needed, unfinished builds by who takes the writing over.
            _ => {}
        }
        Ok(())
    }

    /// To be called before the commit is visible.
    pub fn before_visible(&self, changes: &Changes) {
        for (dictionary, mask) in &changes.masks {
            // That of an index which is being built is read once it has a name.
            if let Some(state) = self.indexes.get(dictionary) {
                set_mask(state, *mask);
            }
        }
    }

    /// To be called when the commit is visible, and before a later one is.
    pub fn after_visible(&mut self, changes: Changes, committed: Timestamp) -> Result<()> {
        for (number, stripe) in &changes.stripes {
            if let Some(shared) = self.collections.get(number) {
                shared.counts.replace(*stripe);
            }
        }
        let holds_accounts = |key: &Vec<u8>| Namespace::ACCOUNTS.contains(&name_of(key));
        let accounts = changes.accounts || changes.names.keys().any(holds_accounts);
        if changes.changes_names() {
            self.take_names(changes.names, committed)?;
        }
        if accounts {
            self.catalog.accounts_changed();
        }
        self.catalog.engine().leave_out(changes.left_out);
        for order in &changes.orders {
            if let Some(shared) = self.orders.get(order) {
                shared.arrivals.tell();
            }
        }
        Ok(())
    }

    fn take_names(
        &mut self,
        names: BTreeMap<Vec<u8>, Option<Collection>>,
        committed: Timestamp,
    ) -> Result<()> {
        let catalog = Arc::clone(&self.catalog);
        let state = catalog.snapshot();
        let before: Vec<Arc<Collection>> = {
            let namespaces = catalog.namespaces.read();
            names.keys().filter_map(|key| namespaces.get(name_of(key)).cloned()).collect()
        };
        let mut now = Vec::with_capacity(names.len());
        for (key, collection) in names {
            let known = |collection: &Collection| {
                before.iter().find(|old| old.number == collection.number).cloned()
            };
            let collection = match collection {
                None => None,
                Some(read) => {
                    let old = known(&read);
                    Some(next_version(&read, old.as_deref(), &state, committed)?)
                }
            };
            now.push((key, collection));
        }
        for old in &before {
            self.forget(old);
        }
        let mut namespaces = catalog.namespaces.write();
        for (key, collection) in &now {
            match collection {
                Some(collection) => {
                    namespaces.insert(name_of(key).to_owned(), Arc::clone(collection));
                }
                None => drop(namespaces.remove(name_of(key))),
            }
        }
        drop(namespaces);
        for (_, collection) in &now {
            if let Some(collection) = collection {
                let numbers = collection.partitions().iter().map(|partition| partition.number);
                for number in numbers.chain([collection.number]) {
                    catalog.ddl_lock.passed(number);
                }
                self.know(collection);
            }
        }
        for old in before.iter().flat_map(|old| old.stores().iter().chain([old])) {
            if !self.collections.contains_key(&old.number) {
                old.shared.end();
            }
        }
        Ok(())
    }
}

/// An index's multikey mask, and whose it is.
fn read_mask(key: &[u8], value: &[u8]) -> Option<(DictionaryId, u32)> {
    let dictionary = key.get(1..).and_then(|key| <[u8; 8]>::try_from(key).ok())?;
    Some((DictionaryId(u64::from_be_bytes(dictionary)), records::read_multikey(value)))
}

/// The name in a key of `ROOT`; one that is none names nothing.
fn name_of(key: &[u8]) -> &str {
    key.get(1..).and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default()
}

fn set_mask(state: &IndexState, mask: u32) {
    state.observed.store(mask, Ordering::Release);
    state.persisted.store(mask, Ordering::Release);
}

/// The collection as it was read, with what the version before it has. What is new of it is in `state`.
fn next_version(
    read: &Collection,
    old: Option<&Collection>,
    state: &Snapshot,
    committed: Timestamp,
) -> Result<Arc<Collection>> {
    let mut indexes = Vec::with_capacity(read.indexes.len());
    for index in &read.indexes {
        let known = old
            .and_then(|old| old.indexes.iter().find(|known| known.dictionary == index.dictionary));
        indexes.push(Arc::new(if let Some(known) = known {
            Index { state: Arc::clone(&known.state), ..clone_index(index, known.created) }
        } else {
            let key = records::multikey_key(index.dictionary);
            let mask = state.get(DictionaryId::ROOT, &key).map_err(from_engine)?;
            set_mask(&index.state, mask.map_or(0, |mask| records::read_multikey(&mask)));
            clone_index(index, committed)
        }));
    }
    let mut collection = with_indexes(read, indexes);
    match old {
        Some(old) => {
            collection.shared = Arc::clone(&old.shared);
            if old.namespace != collection.namespace {
                collection.shared.renamed_at(committed);
            }
            collection.primary_index.clone_from(&old.primary_index);
        }
        None => load_counts(collection.number, &collection.shared, state)?,
    }
    let mut partitions = collection.partitions.clone();
    let known = |number| old.and_then(|old| old.partitions().iter().find(|p| p.number == number));
    for partition in &mut partitions.list {
        if let Some(known) = known(partition.number) {
            partition.shared = Arc::clone(&known.shared);
        } else {
            partition.shared = Arc::new(collection.shared.of_partition());
            load_counts(partition.number, &partition.shared, state)?;
        }
    }
    Ok(Arc::new(collection.with_partitions(partitions)))
}

/// Reads the stripes of a collection or partition that was not known.
fn load_counts(number: u64, shared: &Shared, state: &Snapshot) -> Result<()> {
    let range = Stripe::keys(number);
    let mut cursor =
        state.cursor(counts::DICTIONARY, range, Direction::Forward).map_err(from_engine)?;
    while let Some((key, value)) = cursor.next().map_err(from_engine)? {
        if let Some((_, stripe)) = Stripe::read(key, value) {
            shared.counts.load(stripe);
        }
    }
    Ok(())
}
