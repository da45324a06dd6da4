//! Backups that lie in directories: an earlier one, which another can be built on; and an incremental one with all that
//! it needs, down to a whole one.
//!
//! A segment is in the newest backup of the chain unless the one before has it, and so on: exactly what is left out
//! when an incremental backup is written. For segments never change, and keep their numbers.
//!
//! Always true: each backup of a chain is the one that the one behind it names, in the state in which it was written.

use super::manifest::{BACKUP_FILE, BackupManifest, hash_of};
use crate::directory_lock::UNFINISHED_BACKUP;
use crate::{Error, Result};
use blockfile::format::{Entry, Extent};
use blockfile::{CheckpointParts, SegmentId, UNIT, read_checkpoint};
use os::Os;
use std::path::{Path, PathBuf};

/// A finished backup in a directory.
#[derive(Debug)]
pub struct StoredBackup {
    directory: PathBuf,
    manifest: BackupManifest,
    checkpoint: CheckpointParts,
}

impl StoredBackup {
    /// Reads what a directory has. Changes nothing.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] where it is no finished backup, or was changed since; damage, and what the disk says.
    pub fn read(os: &Os, directory: &Path) -> Result<Self> {
        let shown = directory.display();
        let refused = |what: &str| Err(Error::InvalidOption(format!("{shown} {what}")));
        let failed = |source| {
            let file = directory.to_path_buf();
            Error::Io(crate::error::Cause::File { operation: "look for", file, source })
        };
        if os.vfs.exists(&directory.join(UNFINISHED_BACKUP)).map_err(failed)? {
            return refused("is a backup that was not written to its end");
        }
        let Some(manifest) = BackupManifest::read(os, directory)? else {
            return refused(&format!("is no backup: it has no file {BACKUP_FILE}"));
        };
        let data = directory.join(blockfile::Options::default().name);
        let checkpoint = read_checkpoint(os, &data)?;
        if hash_of(&checkpoint.superblocks) != manifest.superblocks {
            return refused("was changed since it was written: a server was started in it");
        }
        Ok(Self { directory: directory.to_path_buf(), manifest, checkpoint })
    }

    /// Where it lies.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What it says of itself.
    pub fn manifest(&self) -> &BackupManifest {
        &self.manifest
    }

    /// The bytes of its data file, if that were whole.
    pub fn file_bytes(&self) -> u64 {
        self.checkpoint.file_bytes
    }

    /// Whether it has the same segment.
    pub(super) fn has(&self, id: SegmentId, entry: &Entry) -> bool {
        self.place_of(id, entry).is_some()
    }

    /// Whether it has any segment at the same place: a planted bug.
    pub(super) fn has_at(&self, unit: u64) -> bool {
        self.checkpoint.segments.values().any(|entry| entry.unit == unit)
    }

    /// Where it has the same segment, in its own data file or in that of an earlier one.
    fn place_of(&self, id: SegmentId, entry: &Entry) -> Option<&Entry> {
        let own = self.checkpoint.segments.get(&id);
        own.filter(|own| own.bytes == entry.bytes && own.kind == entry.kind)
    }
}

/// Bytes of a data file that is put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataPiece {
    /// The file that has them.
    pub file: PathBuf,
    /// Where in it.
    pub from: u64,
    /// Where they belong.
    pub to: u64,
    /// How many.
    pub bytes: u64,
}

/// An incremental backup and all that it needs; or a whole one alone.
#[derive(Debug)]
pub struct BackupChain {
    /// The newest first.
    backups: Vec<StoredBackup>,
}

impl BackupChain {
    /// Looks for what a backup needs: where it was when the backup was written, and in these directories.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] where an earlier one is not found, or is another one; and those of
    /// [`StoredBackup::read`].
    pub fn find(os: &Os, newest: &Path, bases: &[PathBuf]) -> Result<Self> {
        let mut backups = vec![StoredBackup::read(os, newest)?];
        loop {
            let last = &backups[backups.len() - 1];
            if last.manifest.since.is_none() {
                return Ok(Self { backups });
            }
            let earlier = earlier_of(os, last, bases)?;
            backups.push(earlier);
        }
    }

    /// The newest first.
    pub fn backups(&self) -> &[StoredBackup] {
        &self.backups
    }

    /// All of the newest one's data file that is not zeros.
    pub fn data_pieces(&self) -> Vec<DataPiece> {
        let newest = &self.backups[0];
        let CheckpointParts { superblocks, segments, blobs, .. } = &newest.checkpoint;
        let file_of =
            |at: usize| self.backups[at].directory.join(blockfile::Options::default().name);
        let own = |extent: &Extent| {
            let (from, bytes) = (extent.unit * UNIT, extent.units * UNIT);
            DataPiece { file: file_of(0), from, to: from, bytes }
        };
        let superblocks = Extent { unit: 0, units: superblocks.len() as u64 / UNIT };
        let mut pieces: Vec<_> = std::iter::once(&superblocks).chain(blobs).map(own).collect();
        for (id, entry) in segments {
            let (mut at, mut place) = (0, entry);
            while let Some(earlier) = self.backups.get(at + 1)
                && let Some(there) = earlier.place_of(*id, entry)
            {
                (at, place) = (at + 1, there);
            }
            pieces.push(DataPiece {
                file: file_of(at),
                from: place.unit * UNIT,
                to: entry.unit * UNIT,
                bytes: entry.bytes,
            });
        }
        pieces.sort_unstable_by_key(|piece| piece.to);
        pieces
    }
}

/// The backup that another one was built on.
fn earlier_of(os: &Os, later: &StoredBackup, bases: &[PathBuf]) -> Result<StoredBackup> {
    let Some(since) = &later.manifest.since else {
        return Err(Error::InvalidOption("a whole backup needs no other".to_owned()));
    };
    let shown = later.directory.display();
    let was = since.directory.display();
    let mut why = String::new();
    for directory in std::iter::once(&since.directory).chain(bases) {
        let manifest = BackupManifest::read(os, directory);
        let is_wanted = |manifest: &BackupManifest| manifest.id == since.id;
        match manifest {
            Ok(Some(manifest)) if is_wanted(&manifest) => {}
            Ok(_) => continue,
            Err(error) => {
                why = format!("; {error}");
                continue;
            }
        }
        let found = StoredBackup::read(os, directory)?;
        let is_same = found.manifest.superblocks == since.superblocks
            && found.manifest.data_file == later.manifest.data_file
            // So no chain is a circle.
            && found.checkpoint.superblock.generation < later.checkpoint.superblock.generation;
        if !is_same {
            return Err(Error::InvalidOption(format!(
                "{} is not as it was when {shown} was built on it",
                directory.display()
            )));
        }
        return Ok(found);
    }
    Err(Error::InvalidOption(format!(
        "{shown} needs the backup {:032x}, which was in {was} and is not found: name its directory with --base{why}",
        since.id
    )))
}
