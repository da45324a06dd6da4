//! Dictionaries that are filled past the log: rows in order become leaves at once, and one commit adopts
//! the dictionary with all of them.
//!
//! ```text
//!  start_load   a tree that nobody can name
//!  put          rows, keys ascending  →  leaf segments
//!  finish       the nodes over them; staged: every checkpoint names it from now on
//!  make_durable a checkpoint
//!  adopt        in a transaction: its record says that the dictionary is, and not what is in it
//! ```
//!
//! Always true:
//! 1. A snapshot sees all rows or none: those from the adopting commit on see them.
//! 2. What a commit has adopted is in a checkpoint that is complete before the commit's record is in the log.
//! 3. What is not adopted leaves nothing: it goes with its handle, and after a crash at the next start.
//!
//! Where the log has to have everything (it is the history, or is archived, or a backup copies it) there is no
//! loading: callers write as usual. A backup that begins before what is loaded is durable keeps it from being
//! adopted ([`Loaded::is_adoptable`]): then its rows are written as usual, too.

use crate::handle::EngineHandle;
use crate::settings::PlantedBug;
use crate::{DictionaryId, DictionaryOptions, Direction, Engine, KeyRange, Result};
use ftree::{Tree, TreeLoader};
use std::sync::Arc;

/// Room on the disk is asked for in pieces of so many bytes.
const PIECE_BYTES: u64 = 1 << 20;

impl Engine {
    /// Whether dictionaries may be filled past the log now.
    pub fn may_load(&self) -> bool {
        let environment = self.environment();
        environment.history.is_none()
            && environment.archiver.is_none()
            && !environment.directory.staging.has_backups()
    }

    /// A number that no dictionary has: for one that is made later ([`crate::EngineTxn::create_dictionary_as`]).
    pub fn new_dictionary_id(&self) -> DictionaryId {
        DictionaryId(self.environment().directory.new_id())
    }

    /// Begins to fill a dictionary that is not there yet, under a number that was taken for it.
    ///
    /// # Errors
    /// Options out of range.
    pub fn start_load(&self, id: DictionaryId, options: DictionaryOptions) -> Result<Load> {
        let handle = Arc::clone(self.handle());
        let options = crate::options::validate(options)?;
        let tree = Tree::create(&handle.trees, id.0, handle.directory.shape(&options));
        // Older than whatever is written to it, and than the commit that adopts it.
        let loader = TreeLoader::new(&tree, handle.snapshots.visible().get().max(1));
        let tree = Unstaged(Some(tree));
        Ok(Load { handle, id, options, tree, loader, bytes: 0, unasked: 0 })
    }

    /// Returns when what was loaded is on disk, and named there. May take as long as a checkpoint.
    ///
    /// # Errors
    /// Those of a checkpoint. What was loaded is as it was.
    pub fn make_durable(&self, loaded: &[Loaded]) -> Result<()> {
        let environment = self.environment();
        let staging = &environment.directory.staging;
        if environment.options.sizes.planted == Some(PlantedBug::AdoptsBeforeDurable) {
            staging.note_durable(&loaded.iter().map(|loaded| loaded.id.0).collect::<Vec<_>>());
        }
        if loaded.iter().all(|loaded| staging.is_durable(loaded.id.0)) {
            return Ok(());
        }
        environment.checkpoints.write()
    }
}

/// A tree that is not staged yet: its segments go with it.
struct Unstaged(Option<Arc<Tree>>);

impl Drop for Unstaged {
    fn drop(&mut self) {
        if let Some(tree) = &self.0 {
            tree.discard();
        }
    }
}

/// A dictionary that is being filled.
pub struct Load {
    handle: Arc<EngineHandle>,
    id: DictionaryId,
    options: DictionaryOptions,
    tree: Unstaged,
    loader: TreeLoader,
    bytes: u64,
    /// Of those, bytes for which no room was asked for yet.
    unasked: u64,
}

impl Load {
    /// Adds a row, whose key is greater than the one before. May write to the disk.
    ///
    /// # Errors
    /// Those of the disk, a full one among them; then the load is of no more use.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let bytes = (key.len() + value.len()) as u64;
        self.bytes += bytes;
        self.unasked += bytes;
        if self.unasked >= PIECE_BYTES {
            self.handle.take_room(std::mem::take(&mut self.unasked))?;
        }
        let added = self.loader.add(key, value);
        self.handle.check(added)
    }

    /// The key that was added last.
    pub fn last_key(&self) -> Option<&[u8]> {
        self.loader.last_key()
    }

    /// Writes what is left. From now on it can be read, and be made durable.
    ///
    /// # Errors
    /// As [`Load::put`].
    pub fn finish(self) -> Result<Loaded> {
        let Self { handle, id, options, mut tree, loader, bytes, unasked } = self;
        handle.take_room(unasked)?;
        let rows = loader.rows();
        let finished = loader.finish();
        handle.check(finished)?;
        let tree = tree.0.take().expect("a tree is staged once");
        handle.directory.stage(id.0, options, Arc::clone(&tree));
        Ok(Loaded { handle, id, options, tree, rows, bytes })
    }
}

impl std::fmt::Debug for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Load({:?}, {:?})", self.id, self.loader)
    }
}

/// A dictionary that is filled, and that no commit has made. Dropping it leaves nothing of it.
pub struct Loaded {
    handle: Arc<EngineHandle>,
    pub(crate) id: DictionaryId,
    pub(crate) options: DictionaryOptions,
    pub(crate) tree: Arc<Tree>,
    rows: u64,
    bytes: u64,
}

impl Loaded {
    /// Its number.
    pub fn id(&self) -> DictionaryId {
        self.id
    }

    /// How many rows it has.
    pub fn row_count(&self) -> u64 {
        self.rows
    }

    /// Bytes of their keys and values.
    pub fn row_bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a transaction may adopt it: it is durable, and no backup that lacks it goes on.
    pub fn is_adoptable(&self) -> bool {
        self.handle.directory.staging.is_adoptable(self.id.0)
    }

    /// Its rows, ascending.
    pub fn rows(&self) -> LoadedRows {
        let cursor = self.tree.cursor(KeyRange::all(), u64::MAX - 1, Direction::Forward);
        LoadedRows { handle: Arc::clone(&self.handle), cursor }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // Nothing is there where it was adopted.
        self.handle.directory.staging.discard(self.id.0);
    }
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Loaded({:?}, {} rows)", self.id, self.rows)
    }
}

/// A walk over what was loaded.
pub struct LoadedRows {
    handle: Arc<EngineHandle>,
    cursor: ftree::Cursor,
}

impl LoadedRows {
    /// The next row: key and value. May read the disk.
    ///
    /// # Errors
    /// Those of the disk.
    #[allow(clippy::should_implement_trait, reason = "what it hands out borrows from it")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let found = self.cursor.next();
        self.handle.check(found)
    }
}

impl std::fmt::Debug for LoadedRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LoadedRows")
    }
}

impl crate::environment::Environment {
    /// Room on the disk for so many bytes that go there past the log.
    pub(crate) fn take_room(&self, bytes: u64) -> Result<()> {
        self.health.check_writable()?;
        self.free_space.take(bytes)
    }
}
