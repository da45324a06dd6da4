//! Who makes leaves of the rows of a load: who puts them in, or a thread behind it.

use crate::Result;
use crate::handle::EngineHandle;
use crate::helper::{Helper, Work};
use cachetable::{MemoryKind, Reservation};
use ftree::TreeLoader;

/// Rows are handed over in pieces of so many bytes…
const PIECE_BYTES: usize = 256 << 10;
/// …of which so many wait, with the one that is being written.
const MOST_PIECES: usize = 4;

/// Rows on their way to leaves.
pub(super) enum Leaves {
    Own(Box<TreeLoader>),
    Behind(Box<Behind>),
}

/// A thread makes leaves of the rows.
pub(super) struct Behind {
    piece: Piece,
    last_key: Vec<u8>,
    has_rows: bool,
    writer: Helper<Writer>,
}

/// Rows one behind the other, and where each key and each value ends.
struct Piece {
    bytes: Vec<u8>,
    ends: Vec<(usize, usize)>,
    /// Of the bytes.
    memory: Reservation,
}

struct Writer(TreeLoader);

impl Work for Writer {
    type Job = Piece;

    fn work(&mut self, piece: Piece) -> ftree::Result<()> {
        piece.load(&mut self.0)
    }
}

impl Piece {
    fn new(handle: &EngineHandle) -> Self {
        let memory = handle.cache.reserve(MemoryKind::Buffers, 0);
        Self { bytes: Vec::new(), ends: Vec::new(), memory }
    }

    /// Adds a row; true where the piece is full.
    fn add(&mut self, handle: &EngineHandle, key: &[u8], value: &[u8]) -> bool {
        let before = self.bytes.capacity();
        self.bytes.extend_from_slice(key);
        let end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((end, self.bytes.len()));
        if self.bytes.capacity() > before {
            handle.cache.resize(&mut self.memory, self.bytes.capacity() as u64);
        }
        self.bytes.len() >= PIECE_BYTES
    }

    /// Hands its rows to a loader.
    fn load(&self, loader: &mut TreeLoader) -> ftree::Result<()> {
        let mut from = 0;
        for (key, value) in &self.ends {
            loader.add(&self.bytes[from..*key], &self.bytes[*key..*value])?;
            from = *value;
        }
        Ok(())
    }
}

impl Leaves {
    pub(super) fn new(_: &EngineHandle, loader: TreeLoader) -> Self {
        Self::Own(Box::new(loader))
    }

    /// With a thread, from the first full piece on.
    pub(super) fn behind(handle: &EngineHandle, loader: TreeLoader) -> Self {
        if !handle.helpers.are_allowed() {
            return Self::Own(Box::new(loader));
        }
        let piece = Piece::new(handle);
        let writer = Helper::new("fern-load", MOST_PIECES, Writer(loader));
        let (last_key, has_rows) = (Vec::new(), false);
        Self::Behind(Box::new(Behind { piece, last_key, has_rows, writer }))
    }

    pub(super) fn add(&mut self, handle: &EngineHandle, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Self::Own(loader) => handle.check(loader.add(key, value)),
            Self::Behind(behind) => behind.add(handle, key, value),
        }
    }

    /// The key that was added last.
    pub(super) fn last_key(&self) -> Option<&[u8]> {
        match self {
            Self::Own(loader) => loader.last_key(),
            Self::Behind(behind) => behind.has_rows.then_some(&behind.last_key[..]),
        }
    }

    /// All rows are the loader's.
    pub(super) fn finish(self, handle: &EngineHandle) -> Result<TreeLoader> {
        match self {
            Self::Own(loader) => Ok(*loader),
            Self::Behind(behind) => {
                let Behind { piece, writer, .. } = *behind;
                let Writer(mut loader) = writer.finish(&handle.helpers)?;
                handle.check(piece.load(&mut loader))?;
                Ok(loader)
            }
        }
    }
}

impl Behind {
    fn add(&mut self, handle: &EngineHandle, key: &[u8], value: &[u8]) -> Result<()> {
        assert!(!self.has_rows || self.last_key.as_slice() < key, "rows that are loaded ascend");
        key.clone_into(&mut self.last_key);
        self.has_rows = true;
        if self.piece.add(handle, key, value) {
            let full = std::mem::replace(&mut self.piece, Piece::new(handle));
            self.writer.submit(&handle.helpers, full)?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Leaves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Own(loader) => write!(f, "{loader:?}"),
            Self::Behind(behind) => write!(f, "behind, {} bytes wait", behind.piece.bytes.len()),
        }
    }
}
