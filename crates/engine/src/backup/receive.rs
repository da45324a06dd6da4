//! A copy of another engine's directory, as it comes in parts: [`crate::Backup`] says what they are.
//!
//! ```text
//! dir/copy/fern.data          what has come of the data file; other files beside it
//! log directory/copy/…        what has come of the log
//! dir/copy/complete           all of it is there and synced; names the files
//! ```
//!
//! [`take_received`] puts a complete copy in the place of what the directory has, before an engine opens it. An
//! incomplete one is nothing, but its parts need not come twice: [`Receiving::known`] gives them back, to be
//! compared.
//!
//! Always true: `complete` is there only where every file that it names is whole and on disk, here or in its place
//! already; so a crash at any moment leaves the old directory, or the new one, or one that the next start makes new.

use super::written::WRITTEN_FILE;
use crate::directory_lock::lock_directory;
use crate::error::Cause;
use crate::{Error, Options, Result};
use blockfile::FileParts;
use os::{File, OpenOptions, Os};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const COPY_DIR: &str = "copy";
const COMPLETE: &str = "complete";
/// The first line of that file.
const COMPLETE_MARK: &str = "FernDB copy, format 1";
/// Its last line.
const COMPLETE_END: &str = "end";
/// Longer than the names of all files of a log.
const COMPLETE_MAX: u64 = 16 << 20;

/// So much is written before the disk is asked to begin with it: asked for each 512 KiB, that took five times the
/// processor time of all the writing.
const WRITEBACK_BYTES: u64 = 8 << 20;
/// The same of a copy that is held to a rate.
const PACED_WRITEBACK_BYTES: u64 = 512 << 10;

/// A file of a copy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CopiedFile {
    /// The data file.
    Data,
    /// A file of the log, by its name.
    Log(String),
}

/// A copy that is being received.
pub struct Receiving {
    os: Os,
    places: Places,
    files: BTreeMap<CopiedFile, Open>,
}

struct Open {
    target: ReceivedFile,
    /// Bytes that were there before this copy was begun.
    known: u64,
}

/// A file of a copy, to be written by any thread.
#[derive(Clone)]
pub struct ReceivedFile {
    file: Arc<dyn File>,
    path: Arc<Path>,
    progress: Arc<Written>,
}

/// How far a file is: parts come in order, but for those that came damaged.
#[derive(Default)]
struct Written {
    /// Up to here it was written.
    end: AtomicU64,
    /// Up to here the disk was asked to begin.
    begun: AtomicU64,
}

impl Written {
    /// What the disk is asked to begin with now, if that is so many bytes at least.
    fn to_begin(&self, least: u64) -> Option<Range<u64>> {
        let (begun, end) = (self.begun.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        if end.saturating_sub(begun) < least {
            return None;
        }
        let before = self.begun.fetch_max(end, Ordering::Relaxed);
        (before < end).then_some(before..end)
    }
}

impl ReceivedFile {
    /// A part has come.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let Self { file, path, progress } = self;
        file.write_all_at(bytes, offset).map_err(failed("write", path))?;
        progress.end.store(offset + bytes.len() as u64, Ordering::Relaxed);
        self.begin_writeback_of(WRITEBACK_BYTES);
        Ok(())
    }

    /// The copy has waited for its rate: the disk is asked to begin with less at a time. What is saved up meanwhile would
    /// go to it at once, and every sync of others would wait behind that.
    pub fn note_held_back(&self) {
        self.begin_writeback_of(PACED_WRITEBACK_BYTES);
    }

    /// The disk is asked to begin where there is so much at least.
    fn begin_writeback_of(&self, least: u64) {
        if let Some(Range { start, end }) = self.progress.to_begin(least) {
            self.file.begin_writeback(start, end - start);
        }
    }
}

impl std::fmt::Debug for ReceivedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ReceivedFile").field(&self.path).finish()
    }
}

/// Where things lie.
struct Places {
    dir: PathBuf,
    log_dir: PathBuf,
}

impl Places {
    fn copy(&self) -> PathBuf {
        self.dir.join(COPY_DIR)
    }

    fn log_copy(&self) -> PathBuf {
        self.log_dir.join(COPY_DIR)
    }

    fn complete(&self) -> PathBuf {
        self.copy().join(COMPLETE)
    }
}

fn failed<'a>(operation: &'static str, file: &'a Path) -> impl Fn(io::Error) -> Error + 'a {
    move |source| {
        let cause = Cause::File { operation, file: file.to_path_buf(), source };
        match &cause {
            Cause::File { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Error::NoSpace(cause)
            }
            _ => Error::Io(cause),
        }
    }
}

fn data_name() -> String {
    blockfile::Options::default().name
}

/// A plain name in one directory.
fn check_name(name: &str) -> Result<()> {
    let is_plain = !name.is_empty() && !name.contains(['/', '\\', '\n', '\0']) && name != "..";
    if is_plain {
        return Ok(());
    }
    Err(Error::InvalidOption(format!("{name:?} is no name of a file of a copy")))
}

impl Receiving {
    /// Begins to receive a copy for the directory of these options, or goes on with one that was interrupted.
    pub fn begin(os: &Os, options: &Options) -> Result<Self> {
        let places = Places { dir: options.dir.clone(), log_dir: options.log_dir() };
        for dir in [places.copy(), places.log_copy()] {
            os.vfs.create_dir_all(&dir).map_err(failed("create", &dir))?;
        }
        let complete = places.complete();
        if os.vfs.exists(&complete).map_err(failed("look for", &complete))? {
            os.vfs.remove_file(&complete).map_err(failed("remove", &complete))?;
            os.vfs.sync_dir(&places.copy()).map_err(failed("sync", &places.copy()))?;
        }
        Ok(Self { os: os.clone(), places, files: BTreeMap::new() })
    }

    fn path_of(&self, file: &CopiedFile) -> Result<PathBuf> {
        match file {
            CopiedFile::Data => Ok(self.places.copy().join(data_name())),
            CopiedFile::Log(name) if wal::format::segment_number(name).is_some() => {
                Ok(self.places.log_copy().join(name))
            }
            CopiedFile::Log(name) => {
                Err(Error::InvalidOption(format!("{name:?} is no file of a log")))
            }
        }
    }

    fn open(&mut self, file: &CopiedFile) -> Result<&Open> {
        if !self.files.contains_key(file) {
            let path = self.path_of(file)?;
            let opened = self.os.vfs.open(&path, OpenOptions::create());
            let opened = opened.map_err(failed("open", &path))?;
            let known = opened.len().map_err(failed("size of", &path))?;
            let target = ReceivedFile { file: opened, path: path.into(), progress: Arc::default() };
            self.files.insert(file.clone(), Open { target, known });
        }
        self.files.get(file).ok_or_else(|| Error::InvalidOption("a file of the copy".to_owned()))
    }

    /// What a copy that was interrupted has left of a part; it may be of an older state of the file.
    pub fn known(
        &mut self,
        file: &CopiedFile,
        offset: u64,
        length: usize,
    ) -> Result<Option<Vec<u8>>> {
        let Open { target: ReceivedFile { file, path, .. }, known } = self.open(file)?;
        if offset.saturating_add(length as u64) > *known {
            return Ok(None);
        }
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset).map_err(failed("read", path))?;
        debug_assert_eq!(bytes.len(), length, "a part is whole, or is not there");
        Ok(Some(bytes))
    }

    /// Where the parts of a file are written. Those of one that is finished have been.
    pub fn file(&mut self, file: &CopiedFile) -> Result<ReceivedFile> {
        Ok(self.open(file)?.target.clone())
    }

    /// A part has come.
    pub fn write(&mut self, file: &CopiedFile, offset: u64, bytes: &[u8]) -> Result<()> {
        self.open(file)?.target.write(offset, bytes)
    }

    /// All that is taken of the data file has come.
    pub fn finish_data(&mut self, parts: &FileParts) -> Result<()> {
        let ReceivedFile { file, path, .. } = &self.open(&CopiedFile::Data)?.target;
        file.write_all_at(&parts.superblocks, 0).map_err(failed("write", path))?;
        file.set_len(parts.file_bytes).map_err(failed("set the length of", path))?;
        file.sync_all().map_err(failed("sync", path))
    }

    /// The first `bytes` of a file of the log have come, which has to be `length` long.
    pub fn finish_log(&mut self, name: &str, bytes: u64, length: u64) -> Result<()> {
        let ReceivedFile { file, path, .. } = &self.open(&CopiedFile::Log(name.to_owned()))?.target;
        debug_assert!(bytes <= length, "what comes of a file is in it");
        // What an interrupted copy has left behind them is not of this one.
        file.set_len(bytes.min(length)).map_err(failed("set the length of", path))?;
        file.set_len(length).map_err(failed("set the length of", path))?;
        file.sync_all().map_err(failed("sync", path))
    }

    /// Removes what has come, as far as the disk lets it: it is nothing without the rest.
    pub(super) fn abandon(self) {
        let Self { os, files, .. } = self;
        for Open { target: ReceivedFile { file, path, .. }, .. } in files.into_values() {
            drop(file);
            // What stays is not taken for a copy.
            let _may_stay = os.vfs.remove_file(&path);
        }
    }

    /// All files have come, the log's in `log`; `beside` are other files of the directory, by their names. On disk
    /// when it returns: the next start takes the copy.
    pub fn finish(self, log: &[String], beside: &[(String, Vec<u8>)]) -> Result<()> {
        let Self { os, places, .. } = self;
        let copy = places.copy();
        let mut text = format!("{COMPLETE_MARK}\n");
        for name in log {
            check_name(name)?;
            text.extend(["log ", name, "\n"]);
        }
        for (name, bytes) in beside {
            check_name(name)?;
            write_whole(&os, &copy.join(name), bytes)?;
            text.extend(["file ", name, "\n"]);
        }
        text.push_str(COMPLETE_END);
        for dir in [places.log_copy(), copy.clone()] {
            os.vfs.sync_dir(&dir).map_err(failed("sync", &dir))?;
        }
        let (new, complete) = (copy.join("complete.new"), places.complete());
        write_whole(&os, &new, text.as_bytes())?;
        os.vfs.rename(&new, &complete).map_err(failed("rename", &new))?;
        os.vfs.sync_dir(&copy).map_err(failed("sync", &copy))
    }
}

impl std::fmt::Debug for Receiving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiving").field("dir", &self.places.dir).finish_non_exhaustive()
    }
}

fn write_whole(os: &Os, path: &Path, bytes: &[u8]) -> Result<()> {
    let options = OpenOptions { truncate: true, ..OpenOptions::create() };
    let file = os.vfs.open(path, options).map_err(failed("open", path))?;
    file.write_all_at(bytes, 0).map_err(failed("write", path))?;
    file.sync_all().map_err(failed("sync", path))
}

/// What a complete copy has: files of the log, and others beside the data file.
#[derive(Default, PartialEq, Eq, Debug)]
struct Listed {
    log: Vec<String>,
    beside: Vec<String>,
}

fn parse(text: &str) -> Option<Listed> {
    let mut listed = Listed::default();
    let mut lines = text.lines();
    if lines.next()? != COMPLETE_MARK {
        return None;
    }
    loop {
        let line = lines.next()?;
        if line == COMPLETE_END {
            return lines.next().is_none().then_some(listed);
        }
        let (kind, name) = line.split_once(' ')?;
        check_name(name).ok()?;
        match kind {
            "log" => listed.log.push(name.to_owned()),
            "file" => listed.beside.push(name.to_owned()),
            _ => return None,
        }
    }
}

/// Puts a complete copy in the place of what the directory has; says whether there was one. No engine is open there.
///
/// # Errors
/// [`Error::Locked`] where one is, [`Error::Corruption`] where what says that the copy is complete cannot be read.
pub fn take_received(os: &Os, options: &Options) -> Result<bool> {
    let places = Places { dir: options.dir.clone(), log_dir: options.log_dir() };
    let complete = places.complete();
    if !os.vfs.exists(&complete).map_err(failed("look for", &complete))? {
        return Ok(false);
    }
    let _locked = lock_directory(os, &places.dir)?;
    let file = os.vfs.open(&complete, OpenOptions::read_only());
    let file = file.map_err(failed("open", &complete))?;
    let length = file.len().map_err(failed("size of", &complete))?;
    let mut bytes = vec![0; length.min(COMPLETE_MAX) as usize];
    file.read_exact_at(&mut bytes, 0).map_err(failed("read", &complete))?;
    let listed = std::str::from_utf8(&bytes).ok().and_then(parse).ok_or_else(|| {
        let text =
            format!("{} is damaged: remove it, and the copy is made again", complete.display());
        Error::Corruption(text.into())
    })?;
    // What was written of the old files says nothing of the new ones.
    remove_if_there(os, &places.dir.join(WRITTEN_FILE))?;
    for name in std::iter::once(&data_name()).chain(&listed.beside) {
        move_into(os, &places.copy(), &places.dir, name)?;
    }
    os.vfs.sync_dir(&places.dir).map_err(failed("sync", &places.dir))?;
    let old = os.vfs.list_dir(&places.log_dir).map_err(failed("list", &places.log_dir))?;
    for path in old {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if wal::format::segment_number(name).is_some()
            && !listed.log.iter().any(|kept| kept == name)
        {
            os.vfs.remove_file(&path).map_err(failed("remove", &path))?;
        }
    }
    for name in &listed.log {
        move_into(os, &places.log_copy(), &places.log_dir, name)?;
    }
    for dir in [&places.log_dir, &places.dir] {
        os.vfs.sync_dir(dir).map_err(failed("sync", dir))?;
    }
    forget_leftovers(os, &places)?;
    os.vfs.remove_file(&complete).map_err(failed("remove", &complete))?;
    os.vfs.sync_dir(&places.copy()).map_err(failed("sync", &places.copy()))?;
    Ok(true)
}

/// Removes what has come of a copy that was interrupted, complete or not.
pub(super) fn remove_received(os: &Os, options: &Options) -> Result<()> {
    let places = Places { dir: options.dir.clone(), log_dir: options.log_dir() };
    // First the file that says that the others count.
    remove_if_there(os, &places.complete())?;
    for dir in [places.copy(), places.log_copy()] {
        if os.vfs.exists(&dir).map_err(failed("look for", &dir))? {
            for path in os.vfs.list_dir(&dir).map_err(failed("list", &dir))? {
                os.vfs.remove_file(&path).map_err(failed("remove", &path))?;
            }
        }
    }
    Ok(())
}

fn remove_if_there(os: &Os, path: &Path) -> Result<()> {
    if os.vfs.exists(path).map_err(failed("look for", path))? {
        os.vfs.remove_file(path).map_err(failed("remove", path))?;
    }
    Ok(())
}

/// Renames a file, unless that was done before a crash.
fn move_into(os: &Os, from: &Path, to: &Path, name: &str) -> Result<()> {
    let (from, to) = (from.join(name), to.join(name));
    if os.vfs.exists(&from).map_err(failed("look for", &from))? {
        os.vfs.rename(&from, &to).map_err(failed("rename", &from))?;
    }
    Ok(())
}

/// Files of copies that were interrupted, and which the complete one does not have.
fn forget_leftovers(os: &Os, places: &Places) -> Result<()> {
    let dir = places.log_copy();
    for path in os.vfs.list_dir(&dir).map_err(failed("list", &dir))? {
        os.vfs.remove_file(&path).map_err(failed("remove", &path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_asked_to_begin_once_with_what_was_written() {
        let written = Written::default();
        // Up to where the file was written, how much there has to be, and what is begun.
        for (end, least, begun) in [
            (0, 1, None),
            (5, 8, None),
            (5, 1, Some(0..5)),
            (5, 1, None),
            (12, 8, None),
            (13, 8, Some(5..13)),
            // A part that came again lies before that.
            (7, 1, None),
            (14, 1, Some(13..14)),
        ] {
            written.end.store(end, Ordering::Relaxed);
            assert_eq!(written.to_begin(least), begun, "{end} {least}");
        }
    }

    #[test]
    fn a_list_that_was_cut_off_or_names_other_places_is_none() {
        let log = |name: &str| vec![name.to_owned()];
        let whole = "FernDB copy, format 1\nlog log.00000001.fernlog\nfile set.state\nend";
        let listed = Listed { log: log("log.00000001.fernlog"), beside: log("set.state") };
        assert_eq!(parse(whole), Some(listed));
        assert_eq!(parse("FernDB copy, format 1\nend"), Some(Listed::default()));
        for wrong in [
            "",
            "FernDB copy, format 2\nend",
            "FernDB copy, format 1\nlog log.00000001.fernlog",
            "FernDB copy, format 1\nlog ../x\nend",
            "FernDB copy, format 1\nfile \nend",
            "FernDB copy, format 1\nfile a/b\nend",
            "FernDB copy, format 1\nother a\nend",
            "FernDB copy, format 1\nend\nlog log.00000001.fernlog",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
