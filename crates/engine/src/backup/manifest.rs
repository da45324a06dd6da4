//! `BACKUP`, the file of a backup that says what it is: which backup, of which data file, in which state; and of an
//! incremental one the earlier backup that holds the rest.
//!
//! ```text
//! FernDB backup, format 1
//! id 00112233445566778899aabbccddeeff
//! of data file 0123456789abcdef0123456789abcdef
//! superblocks ffeeddccbbaa99887766554433221100
//! since 8899aabbccddeeff0011223344556677
//! since superblocks 7766554433221100ffeeddccbbaa9988
//! since directory /backups/monday
//! end 0123456789abcdef
//! ```
//!
//! On disk: `docs/formats/backup.md`.

use crate::error::Cause;
use crate::{Error, Result};
use os::{OpenOptions, Os};
use std::io;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// The file's name.
pub const BACKUP_FILE: &str = "BACKUP";
const FIRST_LINE: &str = "FernDB backup, format 1";
/// What the first line of every version begins with.
const ANY_VERSION: &str = "FernDB backup, format ";
/// Longer than a file with the longest path.
const MOST_BYTES: u64 = 64 << 10;

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupManifest {
    /// Random, of this backup alone.
    pub id: u128,
    /// The data file's identity.
    pub data_file: u128,
    /// The xxh3-128 of both superblocks of the backup's data file. They name the table of its segments with its checksum.
    pub superblocks: u128,
    /// Of an incremental backup: where the rest is.
    pub since: Option<Since>,
}

/// The earlier backup that an incremental one needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Since {
    /// Its id.
    pub id: u128,
    /// The xxh3-128 of its superblocks: it is as it was.
    pub superblocks: u128,
    /// Where it was when the incremental one was written. Empty where that cannot be written in a line.
    pub directory: PathBuf,
}

/// The xxh3-128 of superblocks.
pub(super) fn hash_of(superblocks: &[u8]) -> u128 {
    xxh3_128(superblocks)
}

impl BackupManifest {
    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let Self { id, data_file, superblocks, since } = self;
        let mut text = format!(
            "{FIRST_LINE}\nid {id:032x}\nof data file {data_file:032x}\nsuperblocks {superblocks:032x}\n"
        );
        if let Some(Since { id, superblocks, directory }) = since {
            let directory = directory.to_str().filter(|path| !path.contains(char::is_control));
            let directory = directory.unwrap_or_default();
            text.extend([format!(
                "since {id:032x}\nsince superblocks {superblocks:032x}\nsince directory {directory}\n"
            )]);
        }
        let sum = xxh3_64(text.as_bytes());
        text.extend([format!("end {sum:016x}\n")]);
        text.into_bytes()
    }

    /// Reads the file's bytes.
    ///
    /// # Errors
    /// In a phrase: what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let text = std::str::from_utf8(bytes).map_err(|_| "is damaged")?;
        if !text.starts_with(FIRST_LINE) {
            let is_other = text.starts_with(ANY_VERSION);
            return Err(if is_other { "is of a version not known here" } else { "is damaged" });
        }
        Self::parse(text).ok_or("is damaged")
    }

    fn parse(text: &str) -> Option<Self> {
        let body = text.strip_suffix('\n')?.rfind('\n')? + 1;
        let (body, end) = text.split_at(body);
        let sum = end.strip_prefix("end ")?.strip_suffix('\n')?;
        if sum != format!("{:016x}", xxh3_64(body.as_bytes())) {
            return None;
        }
        let mut lines = body.split_terminator('\n');
        if lines.next()? != FIRST_LINE {
            return None;
        }
        let id = number(lines.next()?, "id ")?;
        let data_file = number(lines.next()?, "of data file ")?;
        let superblocks = number(lines.next()?, "superblocks ")?;
        let since = match lines.next() {
            None => None,
            Some(line) => Some(Since {
                id: number(line, "since ")?,
                superblocks: number(lines.next()?, "since superblocks ")?,
                directory: directory(lines.next()?)?,
            }),
        };
        lines.next().is_none().then_some(Self { id, data_file, superblocks, since })
    }

    /// Reads the file of a directory; none where there is none.
    ///
    /// # Errors
    /// It is damaged or of another version, and what the disk says.
    pub fn read(os: &Os, directory: &Path) -> Result<Option<Self>> {
        let path = directory.join(BACKUP_FILE);
        let failed =
            |source| Error::Io(Cause::File { operation: "read", file: path.clone(), source });
        let file = match os.vfs.open(&path, OpenOptions::read_only()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut bytes = vec![0; file.len().map_err(failed)?.min(MOST_BYTES) as usize];
        file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        let read = Self::decode(&bytes);
        let read =
            read.map_err(|what| Error::Corruption(format!("{} {what}", path.display()).into()));
        read.map(Some)
    }
}

fn directory(line: &str) -> Option<PathBuf> {
    let path = line.strip_prefix("since directory ")?;
    (!path.contains(char::is_control)).then(|| path.into())
}

/// 32 hexadecimal digits behind a word.
pub(super) fn number(line: &str, word: &str) -> Option<u128> {
    let digits = line.strip_prefix(word)?;
    let is_plain =
        digits.len() == 32 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(digits, 16).ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> BackupManifest {
        BackupManifest {
            id: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff,
            data_file: 7,
            superblocks: u128::MAX,
            since: Some(Since { id: 1, superblocks: 2, directory: "/backups/monday".into() }),
        }
    }

    #[test]
    fn golden_manifests_are_read_for_ever() {
        let whole = BackupManifest { since: None, ..manifest() };
        let golden =
            |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
        for (name, manifest) in
            [("backup.v1.txt", &whole), ("backup-incremental.v1.txt", &manifest())]
        {
            if std::env::var_os("FERN_GOLDEN").is_some() {
                std::fs::write(golden(name), manifest.encode()).unwrap();
            }
            let bytes = std::fs::read(golden(name)).unwrap();
            assert_eq!(BackupManifest::decode(&bytes).as_ref(), Ok(manifest), "{name}");
            assert_eq!(bytes, manifest.encode(), "{name}");
        }
    }

    #[test]
    fn each_damaged_byte_is_seen() {
        let bytes = manifest().encode();
        for at in 0..bytes.len() {
            for bit in [1, 0x20, 0x80] {
                let mut damaged = bytes.clone();
                damaged[at] ^= bit;
                assert!(BackupManifest::decode(&damaged).is_err(), "{at}");
            }
            assert!(BackupManifest::decode(&bytes[..at]).is_err(), "{at}");
        }
        let newer = String::from_utf8(bytes).unwrap().replace("format 1", "format 2");
        let what = BackupManifest::decode(newer.as_bytes());
        assert_eq!(what, Err("is of a version not known here"));
    }

    #[test]
    fn a_path_that_is_no_line_is_left_out() {
        let mut odd = manifest();
        odd.since.as_mut().unwrap().directory = "/a\nend 0".into();
        let read = BackupManifest::decode(&odd.encode()).unwrap();
        assert_eq!(read.since.unwrap().directory, Path::new(""));
    }
}
