//! What of a data file has to be copied, byte for byte, so that the copy opens as the checkpoint that a [`Pin`]
//! holds, or a later one.
//!
//! Always true: the superblocks are read before it is asked what is taken. All that the newest of them names is
//! taken then, and is not overwritten while the pin lives.

use std::ops::Range;

use crate::UNIT;
use crate::error::Result;
use crate::file::BlockFile;
use crate::pins::Pin;
use crate::superblock::RESERVED_UNITS;

/// The parts of a data file, as of a moment. They can be read from the file while the pin lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileParts {
    /// The superblocks, which stand at the beginning: the file's own may be newer by now.
    pub superblocks: Vec<u8>,
    /// Where everything else lies that may be needed, in bytes, ascending; none of them touch.
    pub taken: Vec<Range<u64>>,
    /// Bytes that the copy has to be long.
    pub file_bytes: u64,
}

impl BlockFile {
    /// What has to be copied now. `_pin` was taken before the checkpoint that the copy has to show was begun.
    pub fn parts(&self, _pin: &Pin) -> Result<FileParts> {
        let mut superblocks = vec![0; (RESERVED_UNITS * UNIT) as usize];
        self.0.read_at(0, &mut superblocks)?;
        let state = self.0.state.lock();
        let in_bytes = |unit: u64| unit * UNIT;
        let taken = state.space.taken().into_iter().filter_map(|extent| {
            let (from, to) = (extent.unit.max(RESERVED_UNITS), extent.unit + extent.units);
            (from < to).then(|| in_bytes(from)..in_bytes(to))
        });
        Ok(FileParts {
            superblocks,
            taken: taken.collect(),
            file_bytes: in_bytes(state.file_units.max(state.space.end())),
        })
    }

    /// Bytes of the file as they are stored, for who copies it. Touches the disk.
    pub fn read_stored(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.0.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }
}
