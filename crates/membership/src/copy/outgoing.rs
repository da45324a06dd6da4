//! The data of this member as another one copies it.

use super::{PART_BYTES, checksum};
use crypt::Fingerprint;
use engine::{Backup, CopiedFile, Engine, FileParts, Result, SyncedFile};
use parking_lot::{Mutex, MutexGuard};
use std::ops::Range;
use std::path::PathBuf;

/// Parts of the data file that are told apart, at most: where there are more, what lies between them is copied, too.
const MOST_PARTS: usize = 65_536;

/// A file of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// Its name in the log's directory.
    pub name: String,
    /// What of it is to be copied.
    pub bytes: u64,
    /// How long the copy has to be, with zeros behind that.
    pub length: u64,
}

/// Data that is held while it is copied. Dropping it lets go.
pub struct Outgoing {
    backup: Backup,
    parts: FileParts,
    master: Option<Fingerprint>,
    /// The log's files, once they were asked for.
    log: Mutex<Vec<SyncedFile>>,
    /// One part is read at a time, so that those who ask for many hold the memory of one.
    reading: Mutex<()>,
}

impl Outgoing {
    /// Writes a checkpoint and holds it: may take as long as one.
    pub fn begin(engine: &Engine) -> Result<Self> {
        let backup = engine.backup()?;
        let mut parts = backup.data_parts()?;
        parts.taken = joined(parts.taken, MOST_PARTS);
        let master = engine.encryption().map(|keys| keys.master);
        Ok(Self { backup, parts, master, log: Mutex::default(), reading: Mutex::default() })
    }

    /// What of the data file is to be copied.
    pub fn parts(&self) -> &FileParts {
        &self.parts
    }

    /// The fingerprint of the master key that the files are encrypted with, if they are.
    pub fn master(&self) -> Option<String> {
        self.master.map(|master| master.to_string())
    }

    /// `fern.keys`, which belongs to encrypted files.
    pub fn keys(&self) -> Result<Option<Vec<u8>>> {
        self.backup.keys_file()
    }

    /// The data keys of encrypted files, for a member that has another master key and has made this public key.
    pub fn data_keys_for(
        &self,
        receiver: &[u8; crypt::PUBLIC_KEY_BYTES],
    ) -> Result<Option<Vec<u8>>> {
        self.backup.data_keys_for(receiver)
    }

    /// What of the log is to be copied now.
    pub fn log(&self) -> Vec<LogFile> {
        let files = self.backup.log_parts();
        let told = files.iter().filter_map(|file| {
            let name = file.path.file_name()?.to_str()?.to_owned();
            Some(LogFile { name, bytes: file.bytes, length: file.length })
        });
        let told = told.collect();
        *self.log.lock() = files;
        told
    }

    /// A part of a file, to be read; `None` where it is none of what is to be copied. Waits for its turn.
    pub fn part(&self, file: &CopiedFile, offset: u64, length: usize) -> Option<OutgoingPart<'_>> {
        let end = offset.saturating_add(length as u64);
        if length == 0 || length > PART_BYTES {
            return None;
        }
        let log = match file {
            CopiedFile::Data => {
                let holds = |range: &Range<u64>| range.start <= offset && end <= range.end;
                self.parts.taken.iter().any(holds).then_some(None)?
            }
            CopiedFile::Log(name) => {
                let is_it = |file: &&SyncedFile| {
                    file.path.file_name().and_then(|name| name.to_str()) == Some(name)
                };
                let found = self.log.lock().iter().find(is_it).cloned();
                Some(found.filter(|file| end <= file.bytes)?.path)
            }
        };
        Some(OutgoingPart { of: self, log, offset, length, _turn: self.reading.lock() })
    }
}

/// A part of a file that is being read. There is one at a time of each copy.
pub struct OutgoingPart<'a> {
    of: &'a Outgoing,
    /// The file of the log; none where it is the data file.
    log: Option<PathBuf>,
    offset: u64,
    length: usize,
    _turn: MutexGuard<'a, ()>,
}

impl OutgoingPart<'_> {
    /// Its length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Fills memory of its length; the checksum of what is there then.
    pub fn read(&self, into: &mut [u8]) -> Result<u128> {
        debug_assert_eq!(into.len(), self.length, "a part is read as a whole");
        let backup = &self.of.backup;
        match &self.log {
            None => backup.read_data_into(self.offset, into)?,
            Some(path) => backup.read_log_into(path, self.offset, into)?,
        }
        Ok(checksum(into))
    }
}

impl std::fmt::Debug for OutgoingPart<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { log, offset, length, .. } = self;
        write!(f, "OutgoingPart({log:?}, {offset}, {length})")
    }
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outgoing").field("backup", &self.backup).finish_non_exhaustive()
    }
}

/// Joins ranges over the smallest gaps until there are no more than `most`.
fn joined(mut ranges: Vec<Range<u64>>, most: usize) -> Vec<Range<u64>> {
    let mut gap = 64 << 10;
    while ranges.len() > most.max(1) {
        let mut fewer: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match fewer.last_mut() {
                Some(last) if range.start - last.end <= gap => last.end = range.end,
                _ => fewer.push(range),
            }
        }
        ranges = fewer;
        gap = u64::saturating_mul(gap, 2);
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_parts_become_few() {
        let (unit, far) = (4096, 1 << 30);
        let ranges = vec![0..unit, 2 * unit..3 * unit, far..far + unit];
        assert_eq!(joined(ranges.clone(), 3), ranges);
        assert_eq!(joined(ranges.clone(), 2), [0..3 * unit, far..far + unit]);
        let all: Vec<Range<u64>> = std::iter::once(0..far + unit).collect();
        assert_eq!(joined(ranges, 1), all);
    }
}
