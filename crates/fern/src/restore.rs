//! `fern restore`: a hot backup becomes a data directory, with the log that was archived since behind it, up to a
//! moment.
//!
//! A log that is cut at a record's end is one that a start takes as it is: it ends there, as behind a crash. So
//! nothing is replayed here; the server does that when it starts in the new directory.
//!
//! What is always true:
//! 1. Backup and archive are only read.
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
use engine::format::{LOG_DIR, UNFINISHED_BACKUP, VERSION_FILE};
use log::Plan;
use os::{OpenOptions, Os};
use std::path::{Path, PathBuf};

/// Bytes that are copied at once; where all of them are zeros they are left out.
const PIECE_BYTES: usize = 256 << 10;

/// What is to be restored.
#[derive(Debug)]
pub struct Restore {
    /// A finished hot backup.
    pub backup: PathBuf,
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
    let Restore { backup, directory, archive, target, master } = wanted;
    if os.vfs.exists(&backup.join(UNFINISHED_BACKUP))? {
        bail!("{} is a backup that was not written to its end", backup.display());
    }
    if *target != Target::End && archive.is_none() {
        bail!("--to needs --archive: a backup alone has one state, that of its end");
    }
    let mut source = DataDirectory::open(os, backup, None)?;
    if let Some(master) = master {
        source = source.with_key(master)?;
    }
    let mut findings = Findings::default();
    let data = DataFile::read(&source, &mut findings);
    if let Some(damage) = findings.damages.first() {
        bail!("the backup is damaged: {damage}");
    }
    let plan = Plan::make(&source, &data, archive.as_deref(), *target)?;
    let log_dir = directory.join(LOG_DIR);
    begin(os, directory, &log_dir)?;
    let mut copy = Copy { os, done: 0, total: data.bytes + plan.bytes(), look };
    copy.file(&data.path, &directory.join(name_of(&data.path)), data.bytes)?;
    for name in [VERSION_FILE, crypt::FILE_NAME] {
        let from = backup.join(name);
        if os.vfs.exists(&from)? {
            copy.file(&from, &directory.join(name), u64::MAX)?;
        }
    }
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
        let mut buffer = vec![0; PIECE_BYTES];
        let mut at = 0;
        while at < bytes {
            let piece = PIECE_BYTES.min((bytes - at) as usize);
            let buffer = &mut buffer[..piece];
            source.read_exact_at(buffer, at).with_context(reading)?;
            if buffer.iter().any(|byte| *byte != 0) {
                target.write_all_at(buffer, at).with_context(writing)?;
                target.begin_writeback(at, piece as u64);
            }
            at += piece as u64;
            self.done += piece as u64;
            (self.look)(self.done, self.total.max(self.done))?;
        }
        target.set_len(bytes).with_context(writing)?;
        target.sync_all().with_context(writing)
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
