//! The first bytes of a data file: making it, and finding its newest superblock.

use std::io;
use std::path::{Path, PathBuf};

use os::{AlignedBuf, File, OpenOptions, Os};

use crate::blob::BlobPointer;
use crate::error::{Error, Result};
use crate::inner::io_error;
use crate::superblock::{SUPERBLOCK_BYTES, SlotError, Superblock, VERSION};

/// Makes an empty file under another name and renames it, so that a file of the right name always
/// has a superblock.
pub(crate) fn create_where_missing(
    os: &Os,
    dir: &Path,
    path: &Path,
    encrypted: bool,
) -> Result<()> {
    let failed = |what| move |e| io_error(path, what, 0, e);
    if os.vfs.exists(path).map_err(failed("look for"))? {
        return Ok(());
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    let unfinished = PathBuf::from(unfinished);
    let options = OpenOptions { truncate: true, ..OpenOptions::create() };
    let file = os.vfs.open(&unfinished, options).map_err(failed("make"))?;
    let mut id = [0; 16];
    os.entropy.fill(&mut id);
    let superblock = Superblock {
        file_id: u128::from_le_bytes(id),
        generation: 1,
        lsn: 0,
        written_ms: os.clock.wall_ms(),
        next_segment: 1,
        table: BlobPointer::NONE,
        root: BlobPointer::NONE,
        encrypted,
    };
    let mut bytes = vec![0; 2 * SUPERBLOCK_BYTES];
    let at = Superblock::slot_offset(1) as usize;
    bytes[at..at + SUPERBLOCK_BYTES].copy_from_slice(&superblock.encode());
    file.write_all_at(&bytes, 0).map_err(failed("make"))?;
    file.sync_all().map_err(failed("sync"))?;
    os.vfs.rename(&unfinished, path).map_err(failed("rename"))?;
    os.vfs.sync_dir(dir).map_err(failed("sync the directory of"))
}

/// Whether the data file at a path is encrypted; `None` where there is none. Changes nothing.
///
/// # Errors
/// It has no valid superblock, and what the disk says.
pub fn is_encrypted(os: &Os, path: &Path) -> Result<Option<bool>> {
    let file = match os.vfs.open(path, OpenOptions::read_only()) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(io_error(path, "open", 0, e)),
    };
    Ok(Some(newest_superblock(&*file, path)?.encrypted))
}

pub(crate) fn newest_superblock(file: &dyn File, path: &Path) -> Result<Superblock> {
    let mut bytes = AlignedBuf::zeroed(2 * SUPERBLOCK_BYTES);
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(corrupt_superblocks(path, "the file is shorter than its superblocks"));
        }
        Err(e) => return Err(io_error(path, "read", 0, e)),
    }
    newest_superblock_in(&bytes, path)
}

/// The newest of the superblocks that a file begins with.
pub(crate) fn newest_superblock_in(bytes: &[u8], path: &Path) -> Result<Superblock> {
    let mut newest: Option<Superblock> = None;
    for slot in bytes.chunks(SUPERBLOCK_BYTES) {
        match Superblock::decode_slot(slot) {
            Ok(found) if newest.is_none_or(|n| n.generation < found.generation) => {
                newest = Some(found);
            }
            Err(SlotError::Version(found)) => {
                return Err(Error::Version { file: path.to_path_buf(), found, known: VERSION });
            }
            Ok(_) | Err(SlotError::Invalid) => {}
        }
    }
    newest.ok_or_else(|| corrupt_superblocks(path, "no valid superblock"))
}

fn corrupt_superblocks(path: &Path, what: &'static str) -> Error {
    Error::Corruption { file: path.to_path_buf(), offset: 0, segment: 0, page: 0, what }
}

/// Writes a superblock over itself.
pub(crate) fn write_again(file: &dyn File, superblock: &Superblock) -> io::Result<()> {
    let mut bytes = AlignedBuf::new();
    bytes.extend_from_slice(&superblock.encode());
    file.write_all_at(&bytes, Superblock::slot_offset(superblock.generation))
}
