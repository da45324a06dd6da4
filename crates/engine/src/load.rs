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

mod behind;
mod fill;

pub use behind::{Derive, LoadBehind, PutRow, SortBehind};
pub use fill::{AreSame, FillError, FillTarget, Twice};

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
        let unfinished = self.start_tree(id, options)?;
        let loader = unfinished.loader();
        Ok(Load { unfinished, loader, room: Room::default() })
    }

    fn start_tree(&self, id: DictionaryId, options: DictionaryOptions) -> Result<Unfinished> {
        let handle = Arc::clone(self.handle());
        let options = crate::options::validate(options)?;
        let tree = Tree::create(&handle.trees, id.0, handle.directory.shape(&options));
        // Older than whatever is written to it, and than the commit that adopts it.
        let ts = handle.snapshots.visible().get().max(1);
        Ok(Unfinished { handle, id, options, tree: Unstaged { tree, is_staged: false }, ts })
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
struct Unstaged {
    tree: Arc<Tree>,
    is_staged: bool,
}

impl Drop for Unstaged {
    fn drop(&mut self) {
        if !self.is_staged {
            self.tree.discard();
        }
    }
}

/// A dictionary of which nobody knows yet.
struct Unfinished {
    handle: Arc<EngineHandle>,
    id: DictionaryId,
    options: DictionaryOptions,
    tree: Unstaged,
    /// The timestamp of its rows.
    ts: u64,
}

impl Unfinished {
    /// Takes rows of it.
    fn loader(&self) -> TreeLoader {
        TreeLoader::new(&self.tree.tree, self.ts)
    }

    /// With these rows it can be read from now on, and be made durable.
    fn finish(self, loader: TreeLoader, bytes: u64) -> Result<Loaded> {
        let Self { handle, id, options, mut tree, .. } = self;
        let rows = loader.rows();
        let finished = loader.finish();
        handle.check(finished)?;
        tree.is_staged = true;
        let tree = Arc::clone(&tree.tree);
        handle.directory.stage(id.0, options, Arc::clone(&tree));
        Ok(Loaded { handle, id, options, tree, rows, bytes })
    }
}

/// Room on the disk for rows, which is asked for in pieces.
#[derive(Default)]
struct Room {
    /// Bytes of the rows…
    bytes: u64,
    /// …and those for which no room was asked for yet.
    unasked: u64,
}

impl Room {
    fn add(&mut self, handle: &EngineHandle, key: &[u8], value: &[u8]) -> Result<()> {
        let bytes = (key.len() + value.len()) as u64;
        self.bytes += bytes;
        self.unasked += bytes;
        if self.unasked >= PIECE_BYTES {
            handle.take_room(std::mem::take(&mut self.unasked))?;
        }
        Ok(())
    }

    /// Asks for what is left; says how many bytes there were.
    fn finish(self, handle: &EngineHandle) -> Result<u64> {
        handle.take_room(self.unasked)?;
        Ok(self.bytes)
    }
}

/// A dictionary that is being filled.
pub struct Load {
    unfinished: Unfinished,
    loader: TreeLoader,
    room: Room,
}

impl Load {
    /// Adds a row, whose key is greater than the one before. May write to the disk.
    ///
    /// # Errors
    /// Those of the disk, a full one among them; then the load is of no more use.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let handle = &self.unfinished.handle;
        self.room.add(handle, key, value)?;
        handle.check(self.loader.add(key, value))
    }

    /// Writes what is left. From now on it can be read, and be made durable.
    ///
    /// # Errors
    /// As [`Load::put`].
    pub fn finish(self) -> Result<Loaded> {
        let Self { unfinished, loader, room } = self;
        let bytes = room.finish(&unfinished.handle)?;
        unfinished.finish(loader, bytes)
    }
}

impl std::fmt::Debug for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Load({:?}, {:?})", self.unfinished.id, self.loader)
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
        self.rows_in(KeyRange::all())
    }

    fn rows_in(&self, range: KeyRange) -> LoadedRows {
        let cursor = self.tree.cursor(range, u64::MAX - 1, Direction::Forward);
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
