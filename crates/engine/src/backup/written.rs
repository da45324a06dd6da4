//! `fern.backups`, beside the data file: which backups were written of this directory, so that later ones can build on
//! them.
//!
//! Segments keep their numbers for the life of a data file, but a directory that was restored from a backup goes on
//! with numbers that the original goes on with too, for other segments. So a backup can be built on only by the
//! directory that it was written of: the list is in no backup and in no copy for another member.
//!
//! ```text
//! FernDB backups, format 1
//! of data file 0123456789abcdef0123456789abcdef
//! 00112233445566778899aabbccddeeff        a line for each, the oldest first
//! ```
//!
//! Always true: where the list is lost or cannot be read nothing is built on, and the next backup is a whole one.
//!
//! On disk: `docs/formats/backup.md`.

use super::manifest::number;
use crate::error::Cause;
use crate::{Error, Result};
use os::{OpenOptions, Os};
use std::io;
use std::path::Path;

/// The file's name.
pub(crate) const WRITTEN_FILE: &str = "fern.backups";
const FIRST_LINE: &str = "FernDB backups, format 1";
/// Backups that are remembered: two years of daily ones.
const MOST: usize = 1000;
/// Longer than the file of so many.
const MOST_BYTES: u64 = 64 << 10;

/// The backups that were written of a directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Written(Vec<u128>);

impl Written {
    /// Reads the list. One that is of another data file, or cannot be read, is empty.
    pub(super) fn read(os: &Os, dir: &Path, data_file: u128) -> Self {
        let read = || -> io::Result<Vec<u8>> {
            let file = os.vfs.open(&dir.join(WRITTEN_FILE), OpenOptions::read_only())?;
            let mut bytes = vec![0; file.len()?.min(MOST_BYTES) as usize];
            file.read_exact_at(&mut bytes, 0)?;
            Ok(bytes)
        };
        let bytes = read().unwrap_or_default();
        std::str::from_utf8(&bytes).ok().and_then(|text| parse(text, data_file)).unwrap_or_default()
    }

    pub(super) fn has(&self, id: u128) -> bool {
        self.0.contains(&id)
    }

    /// Adds one. On disk when it returns.
    pub(super) fn add(mut self, os: &Os, dir: &Path, data_file: u128, id: u128) -> Result<()> {
        self.0.push(id);
        let kept = &self.0[self.0.len().saturating_sub(MOST)..];
        let mut text = format!("{FIRST_LINE}\nof data file {data_file:032x}\n");
        text.extend(kept.iter().map(|id| format!("{id:032x}\n")));
        let path = dir.join(WRITTEN_FILE);
        let new = dir.join("fern.backups.new");
        let failed = |operation| {
            let file = path.clone();
            move |source: io::Error| {
                let is_full = source.kind() == io::ErrorKind::StorageFull;
                let cause = Cause::File { operation, file, source };
                if is_full { Error::NoSpace(cause) } else { Error::Io(cause) }
            }
        };
        let options = OpenOptions { truncate: true, ..OpenOptions::create() };
        let file = os.vfs.open(&new, options).map_err(failed("create"))?;
        file.write_all_at(text.as_bytes(), 0).map_err(failed("write"))?;
        file.sync_all().map_err(failed("sync"))?;
        os.vfs.rename(&new, &path).map_err(failed("rename"))?;
        os.vfs.sync_dir(dir).map_err(failed("sync the directory of"))
    }
}

fn parse(text: &str, data_file: u128) -> Option<Written> {
    let mut lines = text.lines();
    if lines.next()? != FIRST_LINE || number(lines.next()?, "of data file ")? != data_file {
        return None;
    }
    lines.map(|line| number(line, "")).collect::<Option<_>>().map(Written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use os::sim::SimOs;

    #[test]
    fn the_newest_are_remembered_of_one_data_file() {
        let os = SimOs::new(1).os();
        let dir = Path::new("/db");
        os.vfs.create_dir_all(dir).unwrap();
        for id in 0..=MOST as u128 {
            let written = Written::read(&os, dir, 7);
            assert!(!written.has(id));
            written.add(&os, dir, 7, id).unwrap();
        }
        let written = Written::read(&os, dir, 7);
        assert!(!written.has(0) && written.has(1) && written.has(MOST as u128));
        assert_eq!(Written::read(&os, dir, 8), Written::default());
        assert_eq!(parse("FernDB backups, format 2\n", 7), None);
    }
}
