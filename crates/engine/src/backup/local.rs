//! A backup written into a directory of this machine: an engine can be opened there, or files moved elsewhere.
//!
//! Always true: until everything is on disk, a file in the directory says that the backup is not finished, and no engine
//! opens there. The next backup may be written into the same directory.

use super::Backup;
use super::receive::{CopiedFile, Receiving, take_received};
use crate::directory_lock::{UNFINISHED_BACKUP, VERSION_FILE, VERSION_TEXT};
use crate::error::Cause;
use crate::{Error, Options, Result};
use os::{OpenOptions, Os};
use std::io;
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
    /// Copies everything into a directory that is empty, or has a backup that was not finished. `look` is shown after each piece how far the copy is: it may wait,
    /// and its error ends the backup.
    ///
    /// # Errors
    /// Those of the disk, and that of `look`; what was copied is of no use then.
    pub fn write_to(
        &self,
        os: &Os,
        directory: &Path,
        look: &mut dyn FnMut(&BackupProgress) -> Result<()>,
    ) -> Result<BackupProgress> {
        let options = Options::new(directory);
        let mark = directory.join(UNFINISHED_BACKUP);
        set_mark(os, directory, &mark)?;
        let mut receiving = Receiving::begin(os, &options)?;
        let mut progress = BackupProgress::default();
        let copied = self.copy_files(&mut receiving, directory, &mut progress, look);
        match copied {
            Ok(log) => {
                let version = (VERSION_FILE.to_owned(), VERSION_TEXT.as_bytes().to_vec());
                let keys = self.keys_file()?.map(|bytes| (crypt::FILE_NAME.to_owned(), bytes));
                let beside: Vec<_> = keys.into_iter().chain([version]).collect();
                receiving.finish(&log, &beside)?;
                take_received(os, &options)?;
                remove_mark(os, directory, &mark)?;
                Ok(progress)
            }
            Err(error) => {
                receiving.abandon();
                Err(error)
            }
        }
    }

    /// The names of the log's files.
    fn copy_files(
        &self,
        receiving: &mut Receiving,
        directory: &Path,
        progress: &mut BackupProgress,
        look: &mut dyn FnMut(&BackupProgress) -> Result<()>,
    ) -> Result<Vec<String>> {
        let parts = self.data_parts()?;
        let of_log = || self.log_parts().iter().map(|file| file.bytes).sum::<u64>();
        let of_data: u64 = parts.taken.iter().map(|range| range.end - range.start).sum();
        progress.bytes_total = of_data + of_log();
        progress.files_total = 1 + self.log_parts().len() as u64;
        let data = self.data_file();
        progress.begin_file(&data, directory, of_data);
        for range in &parts.taken {
            for at in (range.start..range.end).step_by(PIECE_BYTES as usize) {
                let length = PIECE_BYTES.min(range.end - at);
                let bytes = self.read_data(at, length as usize)?;
                receiving.write(&CopiedFile::Data, at, &bytes)?;
                progress.copied(length);
                look(progress)?;
            }
        }
        receiving.finish_data(&parts)?;
        progress.files_done += 1;
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
