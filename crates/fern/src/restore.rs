//! `fern restore`: a hot backup becomes a data directory, with the log that was archived since behind it, up to a
//! moment. An incremental one is put together with those that it was built on.
//!
//! A log that is cut at a record's end is one that a start takes as it is: it ends there, as behind a crash. So
//! nothing is replayed here; the server does that when it starts in the new directory.
//!
//! What is always true:
//! 1. Backup, those that it was built on, and archive are only read.
//! 2. Until all of it is on disk and was read again without damage, the directory says that it is not finished, and
//!    no server starts in it.
//! 3. The log of the new directory is a prefix of what was on disk, and never ends before what the backup's
//!    checkpoint needs.

mod log;
mod moment;

pub use moment::Target;

use crate::check::{Checkup, check};
use crate::datafile::DataFile;
use crate::directory::DataDirectory;
use crate::findings::Findings;
use crate::table::size;
use anyhow::{Context, Result, bail};
use crypt::MasterKey;
use engine::format::{LOG_DIR, UNFINISHED_BACKUP, VERSION_FILE, VERSION_TEXT};
use engine::{BackupChain, DataPiece};
use log::Plan;
use os::{File, OpenOptions, Os};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are copied at once; where all of them are zeros they are left out.
const PIECE_BYTES: usize = 256 << 10;

/// What is to be restored.
#[derive(Debug)]
pub struct Restore {
    /// A finished hot backup.
    pub backup: PathBuf,
    /// Where those are that an incremental one was built on, if not where they were.
    pub bases: Vec<PathBuf>,
    /// The new directory.
    pub directory: PathBuf,
    /// Where the server has archived its log.
    pub archive: Option<PathBuf>,
    /// Up to when.
    pub target: Target,
    /// Of an encrypted backup: what is copied is then checked as a whole.
    pub master: Option<MasterKey>,
}

/// What was restored.
#[derive(Debug)]
pub struct Restored {
    /// Bytes that were copied.
    pub bytes: u64,
    /// What the check of the copy has found.
    pub checkup: Checkup,
    /// In a sentence: up to when.
    pub until: String,
}

/// How far a restore is: bytes copied, and to be copied.
pub type Look<'a> = &'a mut dyn FnMut(u64, u64) -> Result<()>;

/// Restores.
///
/// # Errors
/// Each in a line: the directory is not empty, the backup is not finished or damaged, the archive belongs to another
/// data directory, has a hole, or does not hold the moment; and what the disk says.
pub fn restore(os: &Os, wanted: &Restore, look: Look<'_>) -> Result<Restored> {
    let Restore { backup, bases, directory, archive, target, master } = wanted;
    if os.vfs.exists(&backup.join(UNFINISHED_BACKUP))? {
        bail!("{} is a backup that was not written to its end", backup.display());
    }
    if *target != Target::End && archive.is_none() {
        bail!("--to needs --archive: a backup alone has one state, that of its end");
    }
    let mut source = DataDirectory::open_any(os, backup, None)?;
    let chain =
        source.is_incremental()?.then(|| BackupChain::find(os, backup, bases)).transpose()?;
    // No server starts in them meanwhile.
    let earlier = chain.iter().flat_map(|chain| &chain.backups()[1..]);
    let _locked = earlier
        .map(|earlier| DataDirectory::open_any(os, earlier.directory(), None))
        .collect::<Result<Vec<_>>>()?;
    // The archive has the keys of its newest files, and all older ones.
    let keys_dir = match archive {
        Some(dir) if os.vfs.exists(&dir.join(crypt::FILE_NAME))? => dir,
        _ => backup,
    };
    if let Some(master) = master {
        source = source.with_keys_of(keys_dir, master)?;
    }
    let mut findings = Findings::default();
    let data = DataFile::read(&source, &mut findings);
    if let Some(damage) = findings.damages.first() {
        bail!("the backup is damaged: {damage}");
    }
    let plan = Plan::make(&source, &data, archive.as_deref(), *target)?;
    let log_dir = directory.join(LOG_DIR);
    begin(os, directory, &log_dir)?;
    let data_file = directory.join(name_of(&data.path));
    let pieces = chain.as_ref().map(BackupChain::data_pieces);
    let data_bytes = match &pieces {
        None => data.bytes,
        Some(pieces) => pieces.iter().map(|piece| piece.bytes).sum(),
    };
    let total = data_bytes + plan.bytes();
    let mut copy = Copy { os, is_incremental: chain.is_some(), done: 0, total, look };
    match &pieces {
        None => copy.file(&data.path, &data_file, data.bytes)?,
        Some(pieces) => copy.pieces(pieces, &data_file, data.bytes)?,
    }
    let keys = keys_dir.join(crypt::FILE_NAME);
    if os.vfs.exists(&keys)? {
        copy.file(&keys, &directory.join(crypt::FILE_NAME), u64::MAX)?;
    }
    copy.version(backup, directory)?;
    for (path, bytes) in &plan.files {
        copy.file(path, &log_dir.join(name_of(path)), *bytes)?;
    }
    let bytes = copy.done;
    for dir in [&log_dir, directory] {
        os.vfs.sync_dir(dir).with_context(|| dir.display().to_string())?;
    }
    let mut restored = DataDirectory::open(os, directory, None)?;
    if let Some(master) = master {
        restored = restored.with_key(master)?;
    }
    let checkup = check(&restored);
    if checkup.findings.is_clean() {
        os.vfs.remove_file(&directory.join(UNFINISHED_BACKUP))?;
        os.vfs.sync_dir(directory)?;
    }
    Ok(Restored { bytes, checkup, until: plan.until })
}

/// Makes the directory, with the mark that it is not finished.
fn begin(os: &Os, directory: &Path, log_dir: &Path) -> Result<()> {
    let shown = || directory.display().to_string();
    os.vfs.create_dir_all(directory).with_context(shown)?;
    let names = os.vfs.list_dir(directory).with_context(shown)?;
    let mark = directory.join(UNFINISHED_BACKUP);
    if names.contains(&mark) {
        bail!(
            "{} holds a restore or a backup that was not finished: remove what is in it",
            shown()
        );
    }
    if !names.is_empty() {
        bail!("{} is not empty", shown());
    }
    let file = os.vfs.open(&mark, OpenOptions::create()).with_context(shown)?;
    file.sync_all().with_context(shown)?;
    os.vfs.create_dir_all(log_dir).with_context(shown)?;
    os.vfs.sync_dir(directory).with_context(shown)
}

fn name_of(path: &Path) -> &std::ffi::OsStr {
    path.file_name().unwrap_or_default()
}

/// A copy under way.
struct Copy<'a> {
    os: &'a Os,
    is_incremental: bool,
    done: u64,
    total: u64,
    look: Look<'a>,
}

impl Copy<'_> {
    /// Copies the first bytes of a file, as many as it has at most. On disk when it returns.
    fn file(&mut self, from: &Path, to: &Path, bytes: u64) -> Result<()> {
        let reading = || format!("read {}", from.display());
        let writing = || format!("write {}", to.display());
        let source = self.os.vfs.open(from, OpenOptions::read_only()).with_context(reading)?;
        let bytes = bytes.min(source.len().with_context(reading)?);
        let target = self.os.vfs.open(to, OpenOptions::create()).with_context(writing)?;
        self.part((&*source, from, 0), (&*target, to, 0), bytes)?;
        target.set_len(bytes).with_context(writing)?;
        target.sync_all().with_context(writing)
    }

    /// Puts a data file together, `length` bytes long. On disk when it returns.
    fn pieces(&mut self, pieces: &[DataPiece], to: &Path, length: u64) -> Result<()> {
        let writing = || format!("write {}", to.display());
        let target = self.os.vfs.open(to, OpenOptions::create()).with_context(writing)?;
        let mut sources: BTreeMap<&Path, Arc<dyn File>> = BTreeMap::new();
        for DataPiece { file, from, to: at, bytes } in pieces {
            let source = if let Some(source) = sources.get(&**file) {
                source
            } else {
                let reading = || format!("read {}", file.display());
                let opened = self.os.vfs.open(file, OpenOptions::read_only());
                sources.entry(file).or_insert(opened.with_context(reading)?)
            };
            self.part((&**source, file, *from), (&*target, to, *at), *bytes)?;
        }
        target.set_len(length).with_context(writing)?;
        target.sync_all().with_context(writing)
    }

    /// Copies bytes from a place of a file to a place of another one. What is zeros there is left out.
    fn part(
        &mut self,
        (source, from, from_at): (&dyn File, &Path, u64),
        (target, to, to_at): (&dyn File, &Path, u64),
        bytes: u64,
    ) -> Result<()> {
        let reading = || format!("read {}", from.display());
        let writing = || format!("write {}", to.display());
        let mut buffer = vec![0; PIECE_BYTES.min(bytes as usize)];
        let mut at = 0;
        while at < bytes {
            let piece = PIECE_BYTES.min((bytes - at) as usize);
            let buffer = &mut buffer[..piece];
            source.read_exact_at(buffer, from_at + at).with_context(reading)?;
            if buffer.iter().any(|byte| *byte != 0) {
                target.write_all_at(buffer, to_at + at).with_context(writing)?;
                target.begin_writeback(to_at + at, piece as u64);
            }
            at += piece as u64;
            self.done += piece as u64;
            (self.look)(self.done, self.total.max(self.done))?;
        }
        Ok(())
    }

    /// The file that names the format: of an incremental backup as of a directory that is whole.
    fn version(&mut self, backup: &Path, directory: &Path) -> Result<()> {
        let (from, to) = (backup.join(VERSION_FILE), directory.join(VERSION_FILE));
        if !self.is_incremental {
            return if self.os.vfs.exists(&from)? {
                self.file(&from, &to, u64::MAX)
            } else {
                Ok(())
            };
        }
        let writing = || format!("write {}", to.display());
        let file = self.os.vfs.open(&to, OpenOptions::create()).with_context(writing)?;
        file.write_all_at(VERSION_TEXT.as_bytes(), 0).with_context(writing)?;
        file.sync_all().with_context(writing)
    }
}

impl Restored {
    /// For people.
    pub fn text(&self) -> String {
        let clean = self.checkup.findings.is_clean();
        let verdict = if clean { "" } else { "The copy is DAMAGED and not to be used.\n" };
        format!("{}{verdict}{} copied; {}\n", self.checkup.text(), size(self.bytes), self.until)
    }
}

/// A line that says how far a restore is.
pub fn progress_line(done: u64, total: u64, seconds: f64) -> String {
    let percent = done as f64 * 100.0 / total.max(1) as f64;
    let rate = done as f64 / seconds.max(0.001);
    format!("{percent:5.1} %  {} of {}  {}/s", size(done), size(total), size(rate as u64))
}
