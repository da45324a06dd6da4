//! The archive of a log: a directory elsewhere into which the log's files are copied while it is written,
//! and which keeps them when the log lets them go.
//!
//! ```text
//! ARCHIVE                  what the directory is, and of which data file
//! lock                     locked by who writes to it
//! log.00000007.fernlog     a file of the log, as far as it was synced and copied
//! log.00000007.times       moments, and how far the log was on disk then
//! ```
//!
//! What is always true:
//! 1. Only what is synced in the log is copied, and [`Archive::archived`] names only what is synced in the
//!    archive under its final name: a log that is trimmed up to there leaves no hole.
//! 2. A moment is written down when everything before its position is in the archive. The clock is read
//!    after the position, so the log was on disk up to there at that moment.
//! 3. Only the newest file can be incomplete, at its end: whoever opens the archive compares it with the
//!    log and copies the rest.
//! 4. An archive belongs to one data file and one log: another one is refused.
//!
//! On disk: `docs/formats/archive.md`.

mod files;
mod times;

pub use files::{ArchivedFile, Files};
pub use times::Moment;

use crate::Lsn;
use crate::directory::{Segment, read_header, read_up_to};
use crate::error::{Error, Result};
use crate::frame::{FRAME_HEADER_BYTES, claimed_payload, decode_frame, frame_bytes};
use crate::segment::{HEADER_BYTES, segment_name, segment_number};
use crate::writer::Wal;
use os::{File, LockGuard, OpenOptions, Os};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use times::{Times, is_times_name};

/// Names the format and the data file.
pub(crate) const IDENTITY_NAME: &str = "ARCHIVE";
const IDENTITY_TITLE: &str = "FernDB log archive, format 1";
const IDENTITY_OF: &str = "of data file ";
/// Longer than what is in that file.
const IDENTITY_MAX: usize = 256;
const LOCK_NAME: &str = "lock";
/// What a file is called until it is whole.
const PART_SUFFIX: &str = ".part";
/// Bytes that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// What would go wrong with an archive, for tests that have to see it.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedArchiveBug {
    /// A copy gets its name before it is on disk.
    RenamesUnsynced,
    /// What is copied counts as archived before it is on disk.
    CountsUnsynced,
}

/// The archive of a log, open for writing. One at a time.
pub struct Archive {
    os: Os,
    dir: PathBuf,
    _lock: LockGuard,
    archived: Lsn,
    current: Option<Copy>,
    planted: Option<PlantedArchiveBug>,
}

/// The copy that grows.
struct Copy {
    number: u64,
    first: Lsn,
    file: Arc<dyn File>,
    path: PathBuf,
    times: Times,
}

/// A file of the log, and up to which position it is to be copied now.
struct Part {
    segment: Segment,
    until: Lsn,
}

impl Wal {
    /// The files of the log in their order, each with the position up to which it is synced and belongs to
    /// its epoch; and the position up to which all is synced.
    fn synced_parts(&self) -> (Vec<Part>, Lsn) {
        let writer = self.writer.lock();
        let synced = self.synced_lsn();
        let parts = writer.segments.iter().enumerate().map(|(at, segment)| {
            let next = writer.segments.get(at + 1).map(|next| next.header.first_lsn);
            let end = segment.header.end_lsn().min(next.unwrap_or(Lsn::MAX));
            Part { segment: segment.clone(), until: end.min(synced) }
        });
        (parts.collect(), synced)
    }
}

impl Archive {
    /// Opens or makes the archive of a log in use, whose data file has this id. Reads the newest file of it.
    ///
    /// # Errors
    /// [`Error::Archive`] where the directory is something else, or belongs to another log, or somebody else
    /// writes to it.
    pub fn open(os: &Os, dir: &Path, data_file: u128, wal: &Wal) -> Result<Self> {
        os.vfs.create_dir_all(dir).map_err(|e| Error::io("make", dir, e))?;
        let lock_path = dir.join(LOCK_NAME);
        let lock = os.vfs.lock(&lock_path).map_err(|e| match e.kind() {
            ErrorKind::WouldBlock => refused(dir, "is in use by another server"),
            _ => Error::io("lock", &lock_path, e),
        })?;
        check_identity(os, dir, data_file)?;
        let names = os.vfs.list_dir(dir).map_err(|e| Error::io("list", dir, e))?;
        for part in names.iter().filter(|path| is_part(path)) {
            os.vfs.remove_file(part).map_err(|e| Error::io("remove", part, e))?;
        }
        let archive = Self {
            os: os.clone(),
            dir: dir.to_path_buf(),
            _lock: lock,
            archived: 0,
            current: None,
            planted: None,
        };
        let archived = archive.find_end(wal, &names)?;
        Ok(Self { archived, ..archive })
    }

    /// Tests plant a bug, to see it found.
    #[doc(hidden)]
    #[must_use]
    pub fn planted(self, planted: Option<PlantedArchiveBug>) -> Self {
        Self { planted, ..self }
    }

    /// Everything of the log before this is in the archive, on disk.
    pub fn archived(&self) -> Lsn {
        self.archived
    }

    /// Copies what was synced since the last time, and writes the moment down. Where it fails the next call goes
    /// on where this one was. Touches both disks.
    pub fn round(&mut self, wal: &Wal) -> Result<()> {
        let (parts, synced) = wal.synced_parts();
        let now_ms = self.os.clock.wall_ms();
        let mut newest = None;
        for Part { segment, until } in parts {
            if until <= segment.header.first_lsn {
                continue;
            }
            newest = Some(segment.clone());
            if until > self.archived {
                let copied = self.copy(&segment, until);
                if copied.is_err() {
                    // What reached the file is not known: it is opened again.
                    self.current = None;
                }
                copied?;
            }
        }
        if self.current.is_none()
            && let Some(part) = newest
        {
            self.open_copy(&part)?;
        }
        assert!(self.archived <= synced, "only what is synced in the log is archived");
        if let Some(current) = &mut self.current {
            let noted = current.times.note(now_ms, synced);
            if noted.is_err() {
                self.current = None;
            }
            noted?;
        }
        Ok(())
    }

    /// The copy that grows is that of this file from here on.
    fn open_copy(&mut self, segment: &Segment) -> Result<()> {
        let header = segment.header;
        let first = header.first_lsn;
        if self.current.as_ref().is_some_and(|current| current.number == header.number) {
            return Ok(());
        }
        let path = self.dir.join(segment_name(header.number));
        let is_there = self.archived > first
            && self.os.vfs.exists(&path).map_err(|e| Error::io("look for", &path, e))?;
        let file = if is_there {
            let file = self.os.vfs.open(&path, OpenOptions::default());
            let file = file.map_err(|e| Error::io("open", &path, e))?;
            let kept = HEADER_BYTES as u64 + (self.archived - first);
            if file.len().map_err(|e| Error::io("size of", &path, e))? > kept {
                file.set_len(kept).map_err(|e| Error::io("cut", &path, e))?;
            }
            file
        } else {
            self.begin_file(&path, &header.encode())?
        };
        let times = Times::open(&self.os, &self.dir, header.number)?;
        self.current = Some(Copy { number: header.number, first, file, path, times });
        Ok(())
    }

    /// Brings the copy of one file up to a position.
    fn copy(&mut self, segment: &Segment, until: Lsn) -> Result<()> {
        let header = segment.header;
        let first = header.first_lsn;
        let source = self.os.vfs.open(&segment.path, OpenOptions::read_only());
        let source = source.map_err(|e| Error::io("open", &segment.path, e))?;
        self.open_copy(segment)?;
        let Some(current) = &self.current else { return Ok(()) };
        let failed = |what| move |e| Error::io(what, &current.path, e);
        let mut at = self.archived.max(first);
        assert!(at < until, "a copy goes forward: from {at} to {until}");
        assert_eq!(current.number, header.number, "a file is copied into its own copy");
        let mut bytes = vec![0; PIECE_BYTES.min((until - at) as usize)];
        while at < until {
            let piece = PIECE_BYTES.min((until - at) as usize);
            let offset = HEADER_BYTES as u64 + (at - current.first);
            source
                .read_exact_at(&mut bytes[..piece], offset)
                .map_err(|e| Error::io("read", &segment.path, e))?;
            let written = current.file.write_all_at(&bytes[..piece], offset);
            written.map_err(failed("write"))?;
            at += piece as u64;
        }
        if self.planted != Some(PlantedArchiveBug::CountsUnsynced) {
            current.file.sync_data().map_err(failed("sync"))?;
        }
        assert_eq!(at, until, "all of it was copied");
        self.archived = until;
        Ok(())
    }

    /// A copy that has its header and nothing else, on disk with its name.
    fn begin_file(&self, path: &Path, header: &[u8]) -> Result<Arc<dyn File>> {
        let part = part_of(path);
        let options = OpenOptions { truncate: true, ..OpenOptions::create() };
        let file = self.os.vfs.open(&part, options).map_err(|e| Error::io("make", &part, e))?;
        file.write_all_at(header, 0).map_err(|e| Error::io("write", &part, e))?;
        if self.planted != Some(PlantedArchiveBug::RenamesUnsynced) {
            file.sync_all().map_err(|e| Error::io("sync", &part, e))?;
        }
        self.os.vfs.rename(&part, path).map_err(|e| Error::io("rename", &part, e))?;
        if self.planted != Some(PlantedArchiveBug::RenamesUnsynced) {
            self.os.vfs.sync_dir(&self.dir).map_err(|e| Error::io("sync", &self.dir, e))?;
        }
        Ok(file)
    }

    /// Up to where the archive has the log from the log's beginning on, where it is of this log.
    fn find_end(&self, wal: &Wal, names: &[PathBuf]) -> Result<Lsn> {
        let copies: BTreeMap<u64, &PathBuf> =
            names.iter().filter_map(|path| Some((number_of(path)?, path))).collect();
        let (parts, _) = wal.synced_parts();
        let newest = copies.last_key_value().map_or(0, |(number, _)| *number);
        if parts.last().is_some_and(|last| last.segment.header.number < newest) {
            return Err(self.ahead());
        }
        let mut archived = parts.first().map_or(0, |part| part.segment.header.first_lsn);
        let mut has_all = true;
        for (at, Part { segment, until }) in parts.iter().enumerate() {
            let header = segment.header;
            let Some(path) = copies.get(&header.number) else {
                has_all = false;
                continue;
            };
            if read_header(&self.os, header.number, path)? != Some(header) {
                let what = format!(
                    "belongs to another log: {} is not the file of this number here (a restored copy needs an \
                     archive of its own)",
                    path.display()
                );
                return Err(refused(&self.dir, what));
            }
            let file = self.os.vfs.open(path, OpenOptions::default());
            let file = file.map_err(|e| Error::io("open", path, e))?;
            let length = file.len().map_err(|e| Error::io("size of", path, e))?;
            let copied = header.first_lsn + length.saturating_sub(HEADER_BYTES as u64);
            if let Some(next) = parts.get(at + 1).map(|part| part.segment.header)
                && next.salt != header.salt
                && copied > next.first_lsn
                && has_record(&*file, header.salt, header.first_lsn, next.first_lsn)
            {
                return Err(self.ahead());
            }
            if !has_all {
                continue;
            }
            let copied = copied.min(*until);
            let same = if header.number == newest {
                let same = self.same_until(&*file, segment, copied)?;
                // What is read may have been only in the kernel's memory, its name too.
                file.sync_all().map_err(|e| Error::io("sync", path, e))?;
                self.os.vfs.sync_dir(&self.dir).map_err(|e| Error::io("sync", &self.dir, e))?;
                same
            } else {
                copied
            };
            archived = archived.max(same);
            has_all = same >= *until;
        }
        Ok(archived)
    }

    fn ahead(&self) -> Error {
        let what = "goes on where this log ends: it is of a later state of the data directory (a restored copy \
                    needs an archive of its own)";
        refused(&self.dir, what)
    }

    /// Up to where a copy has the bytes of the file.
    fn same_until(&self, copy: &dyn File, segment: &Segment, until: Lsn) -> Result<Lsn> {
        let failed = |e| Error::io("read", &segment.path, e);
        let source = self.os.vfs.open(&segment.path, OpenOptions::read_only()).map_err(failed)?;
        let first = segment.header.first_lsn;
        let (mut theirs, mut ours) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
        let mut at = first;
        while at < until {
            let piece = PIECE_BYTES.min((until - at) as usize);
            let offset = HEADER_BYTES as u64 + (at - first);
            source.read_exact_at(&mut theirs[..piece], offset).map_err(failed)?;
            let got = read_up_to(copy, &mut ours[..piece], offset).map_err(failed)?;
            let same = theirs.iter().zip(&ours[..got]).take_while(|(a, b)| a == b).count();
            // Once more, for a sync that failed may have left it out.
            let again = copy.write_all_at(&ours[..same], offset);
            again.map_err(|e| Error::io("write again in", &self.dir, e))?;
            at += same as u64;
            if same < piece {
                break;
            }
        }
        Ok(at)
    }
}

impl std::fmt::Debug for Archive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archive").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Whether a whole record of this epoch begins at a position of a file that begins with `first`.
fn has_record(file: &dyn File, salt: u64, first: Lsn, at: Lsn) -> bool {
    let offset = HEADER_BYTES as u64 + (at - first);
    let mut header = [0; FRAME_HEADER_BYTES];
    if file.read_exact_at(&mut header, offset).is_err() {
        return false;
    }
    let Some(payload) = claimed_payload(&header, at) else { return false };
    let mut frame = vec![0; frame_bytes(payload)];
    file.read_exact_at(&mut frame, offset).is_ok() && decode_frame(salt, at, &frame).is_some()
}

fn refused(dir: &Path, what: impl Into<String>) -> Error {
    Error::Archive { dir: dir.to_path_buf(), what: what.into() }
}

fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(PART_SUFFIX);
    name.into()
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn number_of(path: &Path) -> Option<u64> {
    segment_number(name_of(path))
}

fn is_part(path: &Path) -> bool {
    let whole = name_of(path).strip_suffix(PART_SUFFIX);
    whole.is_some_and(|name| name == IDENTITY_NAME || segment_number(name).is_some())
}

fn identity_text(data_file: u128) -> String {
    format!("{IDENTITY_TITLE}\n{IDENTITY_OF}{data_file:032x}\n")
}

/// The data file that an archive belongs to; `None` where the directory is no archive.
fn identity(os: &Os, dir: &Path) -> Result<Option<u128>> {
    let path = dir.join(IDENTITY_NAME);
    let file = match os.vfs.open(&path, OpenOptions::read_only()) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|e| Error::io("open", &path, e))?,
    };
    let mut bytes = [0; IDENTITY_MAX];
    let length = read_up_to(&*file, &mut bytes, 0).map_err(|e| Error::io("read", &path, e))?;
    let text = String::from_utf8_lossy(&bytes[..length]);
    let mut lines = text.lines();
    let is_known = lines.next() == Some(IDENTITY_TITLE);
    let id = lines.next().and_then(|line| line.strip_prefix(IDENTITY_OF));
    match id.and_then(|id| u128::from_str_radix(id, 16).ok()).filter(|_| is_known) {
        Some(id) => Ok(Some(id)),
        None => Err(refused(dir, format!("is of a format not known here: {:?}", text.trim_end()))),
    }
}

fn check_identity(os: &Os, dir: &Path, data_file: u128) -> Result<()> {
    match identity(os, dir)? {
        Some(found) if found == data_file => return Ok(()),
        Some(_) => return Err(refused(dir, "belongs to another data directory")),
        None => {}
    }
    let names = os.vfs.list_dir(dir).map_err(|e| Error::io("list", dir, e))?;
    let is_ours = |path: &PathBuf| name_of(path) == LOCK_NAME || is_part(path);
    if let Some(other) = names.iter().find(|path| !is_ours(path)) {
        let what = format!("is not empty, and no archive: it holds {}", name_of(other));
        return Err(refused(dir, what));
    }
    let path = dir.join(IDENTITY_NAME);
    let part = part_of(&path);
    let options = OpenOptions { truncate: true, ..OpenOptions::create() };
    let file = os.vfs.open(&part, options).map_err(|e| Error::io("make", &part, e))?;
    let written = file.write_all_at(identity_text(data_file).as_bytes(), 0);
    written.map_err(|e| Error::io("write", &part, e))?;
    file.sync_all().map_err(|e| Error::io("sync", &part, e))?;
    os.vfs.rename(&part, &path).map_err(|e| Error::io("rename", &part, e))?;
    os.vfs.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))
}

fn is_times(path: &Path) -> Option<u64> {
    is_times_name(name_of(path))
}
