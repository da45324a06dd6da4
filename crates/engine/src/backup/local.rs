//! A backup written into a directory of this machine: an engine can be opened there, or files moved elsewhere.
//!
//! An incremental one has a data file with holes, where the segments belong that an earlier backup has: it is put
//! together with that one (`chain.rs`) before an engine opens it.
//!
//! Always true: until everything is on disk, a file in the directory says that the backup is not finished, and no engine
//! opens there. The next backup may be written into the same directory.

use super::Backup;
use super::chain::StoredBackup;
use super::manifest::{BACKUP_FILE, BackupManifest, Since, hash_of};
use super::pages::{PageCheck, Placed};
use super::receive::{CopiedFile, Receiving, remove_received, take_received};
use super::written::Written;
use crate::directory_lock::{INCREMENTAL_TEXT, UNFINISHED_BACKUP, VERSION_FILE, VERSION_TEXT};
use crate::error::Cause;
use crate::settings::PlantedBug;
use crate::{Error, Options, Result};
use blockfile::{CheckpointParts, FileParts, UNIT};
use os::{OpenOptions, Os};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes that are copied between two looks at whether to go on.
const PIECE_BYTES: u64 = 4 << 20;

/// How far a backup is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupProgress {
    /// Bytes that are copied, of all files.
    pub bytes_done: u64,
    /// Bytes that there are to be copied; the log grows until it is its turn.
    pub bytes_total: u64,
    /// Bytes that are left out because the earlier backup has them.
    pub bytes_since: u64,
    /// Files that are whole.
    pub files_done: u64,
    /// Files that there are.
    pub files_total: u64,
    /// The file that is being copied, and where to.
    pub source: PathBuf,
    /// See `source`.
    pub target: PathBuf,
    /// Bytes of that file that are copied.
    pub file_done: u64,
    /// Bytes of it that there are to be copied.
    pub file_total: u64,
}

impl Backup {
    /// Copies everything into a directory that is empty, or has a backup that was not finished; with an earlier backup
    /// of this directory only what that one does not have. Pages are checked meanwhile. `look` is shown after each piece
    /// how far the copy is: it may wait, and its error ends the backup.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] where nothing can be built on the earlier backup, and nothing was written then;
    /// [`Error::Corruption`] of the first damaged page; those of the disk, and that of `look`: what was copied is of no
    /// use then.
    pub fn write_to(
        &self,
        os: &Os,
        directory: &Path,
        since: Option<&StoredBackup>,
        look: &mut dyn FnMut(&BackupProgress) -> Result<()>,
    ) -> Result<BackupProgress> {
        self.check_since(since)?;
        let options = Options::new(directory);
        let mark = directory.join(UNFINISHED_BACKUP);
        set_mark(os, directory, &mark)?;
        remove_received(os, &options)?;
        let mut receiving = Receiving::begin(os, &options)?;
        let mut progress = BackupProgress::default();
        let written = self.copy_data(&mut receiving, directory, since, &mut progress, look);
        let written = written.and_then(|superblocks| {
            let log = self.copy_log(&mut receiving, directory, &mut progress, look)?;
            Ok((superblocks, log))
        });
        let (superblocks, log) = match written {
            Ok(written) => written,
            Err(error) => {
                receiving.abandon();
                return Err(error);
            }
        };
        let mut id = [0; 16];
        self.environment.os.entropy.fill(&mut id);
        let manifest = BackupManifest {
            id: u128::from_le_bytes(id),
            data_file: self.environment.blocks.file_id(),
            superblocks,
            since: since.map(|earlier| Since {
                id: earlier.manifest().id,
                superblocks: earlier.manifest().superblocks,
                directory: earlier.directory().to_path_buf(),
            }),
        };
        let version = if since.is_some() { INCREMENTAL_TEXT } else { VERSION_TEXT };
        let mut beside = vec![
            (BACKUP_FILE.to_owned(), manifest.encode()),
            (VERSION_FILE.to_owned(), version.as_bytes().to_vec()),
        ];
        beside.extend(self.keys_file()?.map(|bytes| (crypt::FILE_NAME.to_owned(), bytes)));
        receiving.finish(&log, &beside)?;
        take_received(os, &options)?;
        self.remember(&manifest)?;
        remove_mark(os, directory, &mark)?;
        Ok(progress)
    }

    /// Whether something can be built on an earlier backup.
    fn check_since(&self, since: Option<&StoredBackup>) -> Result<()> {
        let Some(earlier) = since else { return Ok(()) };
        let environment = &self.environment;
        let (id, data_file) = (earlier.manifest().id, environment.blocks.file_id());
        let written = Written::read(&environment.os, &environment.options.dir, data_file);
        if earlier.manifest().data_file == data_file && written.has(id) {
            return Ok(());
        }
        Err(Error::InvalidOption(format!(
            "{} was not written of this data directory, or the directory was restored or copied from another member \
             since: write a whole backup first",
            earlier.directory().display()
        )))
    }

    /// Later backups can be built on this one.
    fn remember(&self, manifest: &BackupManifest) -> Result<()> {
        let environment = &self.environment;
        let (os, dir) = (&environment.os, &environment.options.dir);
        let _one_at_a_time = environment.backups_written.lock();
        Written::read(os, dir, manifest.data_file).add(os, dir, manifest.data_file, manifest.id)
    }

    /// The hash of the superblocks.
    fn copy_data(
        &self,
        receiving: &mut Receiving,
        directory: &Path,
        since: Option<&StoredBackup>,
        progress: &mut BackupProgress,
        look: &mut dyn FnMut(&BackupProgress) -> Result<()>,
    ) -> Result<u128> {
        let blocks = &self.environment.blocks;
        let checkpoint = blocks.checkpoint_parts(&self.pin)?;
        let planted = self.environment.options.sizes.planted;
        let selected = select(&checkpoint, since, planted);
        let of_data: u64 = selected.ranges.iter().map(|range| range.end - range.start).sum();
        progress.bytes_since = selected.bytes_since;
        progress.bytes_total =
            of_data + self.log_parts().iter().map(|file| file.bytes).sum::<u64>();
        progress.files_total = 1 + self.log_parts().len() as u64;
        let data = self.data_file();
        let is_encrypted = blocks.keys().is_some();
        let mut pages =
            PageCheck::new(data.clone(), &self.owners, is_encrypted, &selected.segments);
        progress.begin_file(&data, directory, of_data);
        for range in &selected.ranges {
            for at in (range.start..range.end).step_by(PIECE_BYTES as usize) {
                let length = PIECE_BYTES.min(range.end - at);
                let bytes = self.read_data(at, length as usize)?;
                pages.feed(at, &bytes)?;
                receiving.write(&CopiedFile::Data, at, &bytes)?;
                progress.copied(length);
                look(progress)?;
            }
        }
        pages.finish();
        let CheckpointParts { superblocks, file_bytes, .. } = checkpoint;
        let hash = hash_of(&superblocks);
        receiving.finish_data(&FileParts { superblocks, taken: selected.ranges, file_bytes })?;
        progress.files_done += 1;
        Ok(hash)
    }

    /// The names of the log's files.
    fn copy_log(
        &self,
        receiving: &mut Receiving,
        directory: &Path,
        progress: &mut BackupProgress,
        look: &mut dyn FnMut(&BackupProgress) -> Result<()>,
    ) -> Result<Vec<String>> {
        let of_data = progress.bytes_done;
        let files = self.log_parts();
        progress.files_total = 1 + files.len() as u64;
        progress.bytes_total = of_data + files.iter().map(|file| file.bytes).sum::<u64>();
        let mut names = Vec::new();
        for file in &files {
            let name = file.path.file_name().map(|name| name.to_string_lossy().into_owned());
            let Some(name) = name else { continue };
            progress.begin_file(&file.path, directory, file.bytes);
            let copied = CopiedFile::Log(name.clone());
            for at in (0..file.bytes).step_by(PIECE_BYTES as usize) {
                let length = PIECE_BYTES.min(file.bytes - at);
                let bytes = self.read_log(&file.path, at, length as usize)?;
                receiving.write(&copied, at, &bytes)?;
                progress.copied(length);
                look(progress)?;
            }
            receiving.finish_log(&name, file.bytes, file.length)?;
            progress.files_done += 1;
            names.push(name);
        }
        Ok(names)
    }
}

/// What is copied of a data file.
struct Selected {
    /// Ascending; none of them touch.
    ranges: Vec<Range<u64>>,
    /// By their place.
    segments: Vec<Placed>,
    /// Bytes that the earlier backup has.
    bytes_since: u64,
}

/// What an earlier backup does not have of a checkpoint, beside its superblocks.
fn select(
    checkpoint: &CheckpointParts,
    since: Option<&StoredBackup>,
    planted: Option<PlantedBug>,
) -> Selected {
    let mut extents = checkpoint.blobs.clone();
    let (mut segments, mut bytes_since) = (Vec::new(), 0);
    for (id, entry) in &checkpoint.segments {
        let is_there = since.is_some_and(|earlier| match planted {
            Some(PlantedBug::BackupComparesPlaces) => earlier.has_at(entry.unit),
            _ => earlier.has(*id, entry),
        });
        if is_there {
            bytes_since += entry.extent().units * UNIT;
            continue;
        }
        segments.push(Placed { start: entry.unit * UNIT, id: id.0, bytes: entry.bytes });
        extents.push(entry.extent());
    }
    segments.sort_unstable_by_key(|segment| segment.start);
    extents.sort_unstable_by_key(|extent| extent.unit);
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for extent in extents {
        let (start, end) = (extent.unit * UNIT, (extent.unit + extent.units) * UNIT);
        match ranges.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => ranges.push(start..end),
        }
    }
    Selected { ranges, segments, bytes_since }
}

fn failed<'a>(operation: &'static str, file: &'a Path) -> impl Fn(io::Error) -> Error + 'a {
    move |source| Error::Io(Cause::File { operation, file: file.to_path_buf(), source })
}

/// Says that the directory has no finished backup. On disk when it returns.
fn set_mark(os: &Os, directory: &Path, mark: &Path) -> Result<()> {
    os.vfs.create_dir_all(directory).map_err(failed("create", directory))?;
    let file = os.vfs.open(mark, OpenOptions::create()).map_err(failed("create", mark))?;
    file.sync_all().map_err(failed("sync", mark))?;
    os.vfs.sync_dir(directory).map_err(failed("sync", directory))
}

/// Everything is on disk.
fn remove_mark(os: &Os, directory: &Path, mark: &Path) -> Result<()> {
    os.vfs.remove_file(mark).map_err(failed("remove", mark))?;
    os.vfs.sync_dir(directory).map_err(failed("sync", directory))
}

impl BackupProgress {
    fn begin_file(&mut self, source: &Path, directory: &Path, bytes: u64) {
        self.source = source.to_path_buf();
        self.target = directory.join(source.file_name().unwrap_or_default());
        (self.file_done, self.file_total) = (0, bytes);
    }

    fn copied(&mut self, bytes: u64) {
        self.bytes_done += bytes;
        self.file_done += bytes;
        debug_assert!(self.file_done <= self.file_total, "no more is copied than there is");
    }
}
