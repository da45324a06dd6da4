//! The directory: which dictionaries there are, from which commit to which.
//!
//! A dictionary is in the directory from its commit on; a dropped one stays until no snapshot is
//! old enough to see it.

pub(crate) mod staged;

use crate::settings::{PlantedBug, Sizes};
use crate::watermarks::Visible;
use crate::{Compression, DictionaryId, DictionaryOptions, Error, Result};
use ftree::{Context, Tree, TreeOptions};
use os::{Padded, STRIPES};
use parking_lot::{Mutex, RwLock};
use staged::Staging;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of a dictionary that has not been dropped.
const NEVER: u64 = u64::MAX;

/// One dictionary and its tree. In this order: what every read looks at comes first, what commits write to
/// behind the options, a cache line further. Idle dictionaries are too many to give it lines of its own.
#[repr(C)]
pub(crate) struct Dictionary {
    pub(crate) id: u64,
    pub(crate) tree: Arc<Tree>,
    /// The commit that created it.
    pub(crate) created: u64,
    dropped: AtomicU64,
    /// Its shape, as the newest commit that changed it left it.
    options: RwLock<DictionaryOptions>,
    /// The newest commit that wrote to it since the start.
    written: AtomicU64,
    /// Every commit up to here is in the tree's runs, whatever the tree itself knows.
    quiescent_until: AtomicU64,
    /// `written` as the cleaner saw it last.
    seen: AtomicU64,
    /// Memtable bytes as last added to the engine's total.
    pub(crate) accounted: AtomicU64,
    /// It was filled before the commit that created it: the log does not have what is in it.
    is_adopted: bool,
}

impl Dictionary {
    pub(crate) fn new(
        id: u64,
        options: DictionaryOptions,
        tree: Arc<Tree>,
        created: u64,
    ) -> Arc<Self> {
        Arc::new(Self::made(id, options, tree, created))
    }

    /// One that was filled before.
    fn adopted(id: u64, options: DictionaryOptions, tree: Arc<Tree>, created: u64) -> Arc<Self> {
        Arc::new(Self { is_adopted: true, ..Self::made(id, options, tree, created) })
    }

    fn made(id: u64, options: DictionaryOptions, tree: Arc<Tree>, created: u64) -> Self {
        Self {
            id,
            options: RwLock::new(options),
            tree,
            created,
            dropped: AtomicU64::new(NEVER),
            written: AtomicU64::new(0),
            quiescent_until: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            accounted: AtomicU64::new(0),
            is_adopted: false,
        }
    }

    pub(crate) fn options(&self) -> DictionaryOptions {
        *self.options.read()
    }

    /// Changes the shape of what is written from now on; `shape` is the tree's word for it.
    fn reshape(&self, options: DictionaryOptions, shape: TreeOptions) {
        *self.options.write() = options;
        self.tree.set_options(shape);
    }

    /// A commit is going to insert into the tree.
    pub(crate) fn written_at(&self, timestamp: u64) {
        self.written.fetch_max(timestamp, Ordering::SeqCst);
    }

    /// The newest commit that has written to it, or is about to.
    pub(crate) fn newest_write(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }

    /// Nobody has written to it since this was asked last.
    pub(crate) fn was_quiet(&self) -> bool {
        let written = self.written.load(Ordering::SeqCst);
        self.seen.swap(written, Ordering::Relaxed) == written
    }

    /// Some commit is not yet in the tree's runs.
    pub(crate) fn is_behind(&self) -> bool {
        self.written.load(Ordering::SeqCst) > self.tree.flushed_ts()
    }

    /// It was not behind at this commit, or a checkpoint said so.
    pub(crate) fn note_quiescent(&self, timestamp: u64) {
        self.quiescent_until.fetch_max(timestamp, Ordering::SeqCst);
    }

    /// Every commit up to here is in the tree's runs, if the tree says so of `tree_flushed`.
    pub(crate) fn flushed(&self, tree_flushed: u64) -> u64 {
        tree_flushed.max(self.quiescent_until.load(Ordering::SeqCst))
    }

    /// Commits above `timestamp` have never been.
    pub(crate) fn forget_after(&self, timestamp: u64) {
        self.written.fetch_min(timestamp, Ordering::SeqCst);
        if self.dropped.load(Ordering::SeqCst) > timestamp {
            self.dropped.store(NEVER, Ordering::SeqCst);
        }
        self.tree.forget_after(timestamp);
    }

    pub(crate) fn drop_at(&self, timestamp: u64) {
        self.dropped.fetch_min(timestamp, Ordering::SeqCst);
    }

    /// The commit that dropped it, if any.
    pub(crate) fn dropped(&self) -> Option<u64> {
        Some(self.dropped.load(Ordering::SeqCst)).filter(|timestamp| *timestamp != NEVER)
    }

    /// The commit that adopted it is later.
    pub(crate) fn is_adopted_after(&self, timestamp: u64) -> bool {
        self.is_adopted && self.created > timestamp
    }

    pub(crate) fn visible_at(&self, timestamp: u64) -> bool {
        self.created <= timestamp && timestamp < self.dropped.load(Ordering::SeqCst)
    }
}

/// A counted handle on a dictionary, of one stripe: threads that work in the same dictionary do not
/// write to one count.
#[derive(Clone)]
pub(crate) struct Found(Arc<Padded<Arc<Dictionary>>>);

impl Deref for Found {
    type Target = Dictionary;
    fn deref(&self) -> &Dictionary {
        &self.0.0
    }
}

/// Dictionaries that a stripe remembers. Beyond these it begins again: what is looked up again
/// costs one lock more, and idle dictionaries, of which there may be many, cost no handle in each
/// stripe.
const STRIPE_DICTIONARIES: usize = 1024;

/// What one stripe has looked up.
type Stripe = RwLock<BTreeMap<u64, Found>>;

/// All dictionaries, and what their trees are made with.
pub(crate) struct Directory {
    trees: Arc<Context>,
    sizes: Sizes,
    map: RwLock<BTreeMap<u64, Arc<Dictionary>>>,
    /// What each stripe has looked up and is still in `map`. Locked before `map`.
    stripes: Box<[Padded<Stripe>; STRIPES]>,
    next: AtomicU64,
    /// Changes of shape that are not visible yet, in the order of their commits.
    reshapes: Mutex<Vec<Reshape>>,
    /// What is filled and not made yet. Locked before `map`.
    pub(crate) staging: Staging,
}

/// A commit that changes a dictionary's shape, and what it was before.
struct Reshape {
    timestamp: u64,
    dictionary: u64,
    before: DictionaryOptions,
}

impl Directory {
    /// No dictionary yet; trees share `trees`.
    pub(crate) fn new(trees: &Arc<Context>, sizes: Sizes) -> Self {
        let stripes = Box::new(std::array::from_fn(|_| Padded::default()));
        Self {
            trees: Arc::clone(trees),
            sizes,
            map: RwLock::default(),
            stripes,
            next: AtomicU64::new(DictionaryId::ROOT.0 + 1),
            reshapes: Mutex::default(),
            staging: Staging::default(),
        }
    }

    /// Makes an empty dictionary, as commit `created` says.
    pub(crate) fn create(
        &self,
        id: u64,
        options: DictionaryOptions,
        created: u64,
    ) -> Arc<Dictionary> {
        let tree = Tree::create(&self.trees, id, self.shape(&options));
        // Commits before its own are none of its business: it has flushed them.
        let _empty = tree.seal(created.saturating_sub(1));
        let dictionary = Dictionary::new(id, options, tree, created);
        self.add(Arc::clone(&dictionary));
        dictionary
    }

    /// Makes the dictionary that is there from the first start.
    pub(crate) fn create_root(&self) {
        self.create(DictionaryId::ROOT.0, DictionaryOptions::default(), 0);
    }

    /// Changes a dictionary's shape, as the commit at hand or the log says.
    pub(crate) fn reshape(&self, dictionary: &Dictionary, options: DictionaryOptions) {
        dictionary.reshape(options, self.shape(&options));
    }

    /// As [`Directory::reshape`], by a commit that may be void: it is remembered until it is visible.
    pub(crate) fn reshape_held_back(
        &self,
        dictionary: &Dictionary,
        options: DictionaryOptions,
        timestamp: u64,
        visible: Visible,
    ) {
        let mut reshapes = self.reshapes.lock();
        reshapes.retain(|reshape| reshape.timestamp > visible.get());
        let before = dictionary.options();
        reshapes.push(Reshape { timestamp, dictionary: dictionary.id, before });
        self.reshape(dictionary, options);
    }

    /// A dictionary's shape as of a commit that is visible.
    pub(crate) fn options_at(&self, dictionary: &Dictionary, timestamp: u64) -> DictionaryOptions {
        let reshapes = self.reshapes.lock();
        let mut later = reshapes
            .iter()
            .filter(|reshape| reshape.dictionary == dictionary.id && reshape.timestamp > timestamp);
        later.next().map_or_else(|| dictionary.options(), |reshape| reshape.before)
    }

    /// Commits above `timestamp` have never been. Returns the dictionaries that they made, which are gone.
    pub(crate) fn forget_after(&self, timestamp: u64) -> Vec<Arc<Dictionary>> {
        let reshapes = {
            let mut reshapes = self.reshapes.lock();
            let stay = reshapes.partition_point(|reshape| reshape.timestamp <= timestamp);
            reshapes.split_off(stay)
        };
        for reshape in reshapes.into_iter().rev() {
            if let Some(dictionary) = self.find(reshape.dictionary) {
                self.reshape(&dictionary, reshape.before);
            }
        }
        let made = self.those(|dictionary| dictionary.created > timestamp);
        for dictionary in &made {
            self.remove(dictionary.id);
        }
        if self.sizes.planted != Some(PlantedBug::KeepsForgotten) {
            self.all().iter().for_each(|dictionary| dictionary.forget_after(timestamp));
        }
        made
    }

    /// The tree's shape for a dictionary's options.
    pub(crate) fn shape(&self, options: &DictionaryOptions) -> TreeOptions {
        if self.sizes.tiny_trees {
            return TreeOptions { leaf_filter: options.leaf_filter, ..TreeOptions::tiny() };
        }
        TreeOptions {
            compression: compression(options.compression),
            page_size: u64::from(options.page_size),
            read_page_size: options.read_page_size as usize,
            fanout: usize::from(options.fanout),
            leaf_filter: options.leaf_filter,
            buffer_bytes: self.sizes.buffer_bytes,
            ..TreeOptions::default()
        }
    }

    /// A number no dictionary ever had.
    pub(crate) fn new_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// Ids below this are taken.
    pub(crate) fn taken_below(&self, next: u64) {
        self.next.fetch_max(next, Ordering::SeqCst);
    }

    pub(crate) fn add(&self, dictionary: Arc<Dictionary>) {
        self.taken_below(dictionary.id + 1);
        let before = self.map.write().insert(dictionary.id, dictionary);
        assert!(before.is_none(), "the number of a dictionary is used once");
    }

    pub(crate) fn remove(&self, id: u64) {
        // The map first: a stripe that looks it up meanwhile has done so before its lock is ours.
        self.map.write().remove(&id);
        for stripe in self.stripes.iter() {
            stripe.write().remove(&id);
        }
    }

    pub(crate) fn find(&self, id: u64) -> Option<Found> {
        let stripe = &self.stripes[os::stripe()];
        if let Some(found) = stripe.read().get(&id) {
            return Some(found.clone());
        }
        let mut stripe = stripe.write();
        let dictionary = Arc::clone(self.map.read().get(&id)?);
        if stripe.len() >= STRIPE_DICTIONARIES {
            stripe.clear();
        }
        debug_assert_eq!(dictionary.id, id, "a dictionary is found under its number");
        Some(stripe.entry(id).or_insert_with(|| Found(Arc::new(Padded(dictionary)))).clone())
    }

    /// Shows each of these dictionaries, or that there is none: for who goes through many, and keeps none of them.
    pub(crate) fn visit(&self, ids: &[u64], mut show: impl FnMut(u64, Option<&Dictionary>)) {
        let map = self.map.read();
        for id in ids {
            show(*id, map.get(id).map(|dictionary| &**dictionary));
        }
    }

    /// The dictionary as a snapshot sees it.
    pub(crate) fn at(&self, id: DictionaryId, timestamp: u64) -> Result<Found> {
        let found = self.find(id.0).filter(|dictionary| dictionary.visible_at(timestamp));
        found.ok_or(Error::NoSuchDictionary(id))
    }

    /// The dictionary as the newest commit left it.
    pub(crate) fn newest(&self, id: DictionaryId) -> Result<Found> {
        match self.find(id.0) {
            Some(found) if found.dropped().is_none() => Ok(found),
            _ => Err(Error::NoSuchDictionary(id)),
        }
    }

    /// Those for which `wanted` says so, ids ascending. Under the map's lock: of many idle dictionaries it
    /// takes no handle.
    pub(crate) fn those(&self, wanted: impl Fn(&Dictionary) -> bool) -> Vec<Arc<Dictionary>> {
        self.map.read().values().filter(|dictionary| wanted(dictionary)).cloned().collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.map.read().len()
    }

    /// Ids ascending.
    pub(crate) fn all(&self) -> Vec<Arc<Dictionary>> {
        self.map.read().values().cloned().collect()
    }
}

fn compression(compression: Compression) -> blockfile::Compression {
    match compression {
        Compression::None => blockfile::Compression::None,
        Compression::Lz4 => blockfile::Compression::Lz4,
        Compression::Zlib(level) => blockfile::Compression::Zlib(level),
        Compression::ZstdDefault => blockfile::Compression::Zstd(blockfile::DEFAULT_ZSTD_LEVEL),
        Compression::Zstd(level) => blockfile::Compression::Zstd(level),
    }
}
