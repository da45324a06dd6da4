//! Rows that a thread puts in their place: who hands them over goes on meanwhile.
//!
//! ```text
//!  put ─▶ pieces of rows ─▶ thread:  leaves of the dictionary     rows of a load that ascend
//!                                    the sorter                   others, and the rows that follow from each
//! ```
//!
//! A load ([`LoadBehind`]) has both; what is only read so that others follow from it ([`SortBehind`]) goes nowhere
//! itself.
//!
//! Always true: what comes of it does not depend on whether there is a thread.

use super::{Loaded, Room, Unfinished};
use crate::handle::EngineHandle;
use crate::helper::{Helper, Work};
use crate::{DictionaryId, DictionaryOptions, Engine, Result, Sorter};
use cachetable::{MemoryKind, Reservation};
use ftree::TreeLoader;
use std::sync::Arc;

/// Rows are handed over in pieces of so many bytes…
const PIECE_BYTES: usize = 256 << 10;
/// …of which so many wait, with the one that is being worked on.
const MOST_PIECES: usize = 4;

/// Takes rows that are to be sorted: the space, key and value of each.
pub type PutRow<'a> = dyn FnMut(u32, &[u8], &[u8]) -> Result<()> + 'a;

/// Makes the rows that follow from one (its key, its value): the entries of a document in the indexes.
pub type Derive = dyn Fn(&[u8], &[u8], &mut PutRow<'_>) -> Result<()> + Send + Sync;

/// Rows that are being sorted, each of which follows from one that is handed over.
pub struct SortBehind {
    handle: Arc<EngineHandle>,
    piece: Piece,
    writer: Helper<Follower>,
}

/// A dictionary that is being filled, and rows of others that are being sorted.
pub struct LoadBehind {
    unfinished: Unfinished,
    room: Room,
    last_key: Vec<u8>,
    has_rows: bool,
    piece: Piece,
    writer: Helper<Writer>,
}

/// Rows one behind the other.
struct Piece {
    bytes: Vec<u8>,
    rows: Vec<Row>,
    /// Of the bytes.
    memory: Reservation,
}

/// Where a row ends, and where it belongs.
struct Row {
    key_end: usize,
    end: usize,
    /// The space in which it is sorted; `None`: it goes to the dictionary.
    space: Option<u32>,
    /// Others follow from it.
    derives: bool,
}

/// Sorts the rows that follow from others.
struct Follower {
    sorter: Sorter,
    derive: Arc<Derive>,
}

struct Writer {
    handle: Arc<EngineHandle>,
    loader: TreeLoader,
    follower: Follower,
}

impl Follower {
    fn follow(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let sorter = &mut self.sorter;
        (self.derive)(key, value, &mut |space, key, value| sorter.put(space, key, value))
    }
}

impl Work for Follower {
    type Job = Piece;

    fn work(&mut self, piece: Piece) -> Result<()> {
        piece.each(|key, value, _| self.follow(key, value))
    }
}

impl Work for Writer {
    type Job = Piece;

    fn work(&mut self, piece: Piece) -> Result<()> {
        piece.each(|key, value, row| {
            match row.space {
                None => self.handle.check(self.loader.add(key, value))?,
                Some(space) => self.follower.sorter.put(space, key, value)?,
            }
            if row.derives { self.follower.follow(key, value) } else { Ok(()) }
        })
    }
}

impl Piece {
    fn new(handle: &EngineHandle) -> Self {
        let memory = handle.cache.reserve(MemoryKind::Buffers, 0);
        Self { bytes: Vec::new(), rows: Vec::new(), memory }
    }

    /// Adds a row. What is full is handed out, and this one is empty then.
    fn push(
        &mut self,
        handle: &EngineHandle,
        (key, value): (&[u8], &[u8]),
        space: Option<u32>,
        derives: bool,
    ) -> Option<Self> {
        let before = self.bytes.capacity();
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.rows.push(Row { key_end, end: self.bytes.len(), space, derives });
        if self.bytes.capacity() > before {
            handle.cache.resize(&mut self.memory, self.bytes.capacity() as u64);
        }
        (self.bytes.len() >= PIECE_BYTES).then(|| std::mem::replace(self, Self::new(handle)))
    }

    /// Calls with the key and the value of each row.
    fn each(&self, mut take: impl FnMut(&[u8], &[u8], &Row) -> Result<()>) -> Result<()> {
        let mut from = 0;
        for row in &self.rows {
            let (key, value) = self.bytes[from..row.end].split_at(row.key_end - from);
            take(key, value, row)?;
            from = row.end;
        }
        Ok(())
    }
}

impl Engine {
    /// Begins to fill a dictionary that is not there yet, as [`Engine::start_load`] does, on a thread that
    /// also hands rows to a sorter, and makes the rows that follow from others.
    ///
    /// # Errors
    /// As [`Engine::start_load`].
    pub fn start_load_behind(
        &self,
        id: DictionaryId,
        options: DictionaryOptions,
        sorter: Sorter,
        derive: Arc<Derive>,
    ) -> Result<LoadBehind> {
        let unfinished = self.start_tree(id, options)?;
        let handle = Arc::clone(&unfinished.handle);
        let piece = Piece::new(&handle);
        let follower = Follower { sorter, derive };
        let writer = Writer { handle, loader: unfinished.loader(), follower };
        let writer = Helper::new("fern-load", MOST_PIECES, writer);
        let (room, last_key, has_rows) = (Room::default(), Vec::new(), false);
        Ok(LoadBehind { unfinished, room, last_key, has_rows, piece, writer })
    }

    /// Has a thread make rows of others, and hand them to a sorter.
    pub fn sort_behind(&self, sorter: Sorter, derive: Arc<Derive>) -> SortBehind {
        let handle = Arc::clone(self.handle());
        let piece = Piece::new(&handle);
        let writer = Helper::new("fern-keys", MOST_PIECES, Follower { sorter, derive });
        SortBehind { handle, piece, writer }
    }
}

impl SortBehind {
    /// Takes a row from which others follow. May wait for rows that were handed over.
    ///
    /// # Errors
    /// Those of the disk, and those of making rows; then it is of no more use. They may be of earlier rows.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self.piece.push(&self.handle, (key, value), None, true) {
            Some(full) => self.writer.submit(&self.handle.helpers, full),
            None => Ok(()),
        }
    }

    /// Returns when all that follows is with the sorter.
    ///
    /// # Errors
    /// As [`SortBehind::put`].
    pub fn finish(self) -> Result<Sorter> {
        let mut writer = self.writer.finish()?;
        writer.work(self.piece)?;
        Ok(writer.sorter)
    }
}

impl LoadBehind {
    /// Adds a row of the dictionary, whose key is greater than the one before. May wait for rows that were
    /// handed over. `derives`: others follow from it.
    ///
    /// # Errors
    /// Those of the disk, a full one among them, and those of making rows; then the load is of no more use.
    /// They may be of earlier rows.
    pub fn put(&mut self, key: &[u8], value: &[u8], derives: bool) -> Result<()> {
        assert!(!self.has_rows || self.last_key.as_slice() < key, "rows that are loaded ascend");
        key.clone_into(&mut self.last_key);
        self.has_rows = true;
        self.room.add(&self.unfinished.handle, key, value)?;
        self.hand_over(key, value, None, derives)
    }

    /// Adds a row that is to be sorted.
    ///
    /// # Errors
    /// As [`LoadBehind::put`].
    pub fn sort(&mut self, space: u32, key: &[u8], value: &[u8], derives: bool) -> Result<()> {
        self.hand_over(key, value, Some(space), derives)
    }

    /// The key of the dictionary that was added last.
    pub fn last_key(&self) -> Option<&[u8]> {
        self.has_rows.then_some(&self.last_key[..])
    }

    fn hand_over(
        &mut self,
        key: &[u8],
        value: &[u8],
        space: Option<u32>,
        derives: bool,
    ) -> Result<()> {
        let handle = &self.unfinished.handle;
        match self.piece.push(handle, (key, value), space, derives) {
            Some(full) => self.writer.submit(&handle.helpers, full),
            None => Ok(()),
        }
    }

    /// Writes what is left. What was loaded can be read from now on, and be made durable; what was sorted is
    /// for the caller.
    ///
    /// # Errors
    /// As [`LoadBehind::put`].
    pub fn finish(self) -> Result<(Loaded, Sorter)> {
        let Self { unfinished, room, piece, writer, .. } = self;
        let bytes = room.finish(&unfinished.handle)?;
        let mut writer = writer.finish()?;
        writer.work(piece)?;
        let Writer { loader, follower, .. } = writer;
        Ok((unfinished.finish(loader, bytes)?, follower.sorter))
    }
}

impl std::fmt::Debug for LoadBehind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (id, waits) = (self.unfinished.id, self.piece.bytes.len());
        write!(f, "LoadBehind({id:?}, {waits} bytes wait)")
    }
}

impl std::fmt::Debug for SortBehind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SortBehind({} bytes wait)", self.piece.bytes.len())
    }
}
