//! `set.state`: the newest decided document of the set that this directory belongs to, so that a start finds the
//! others before it has heard of them.
//!
//! ```text
//! 0   [8]  magic "FERNSET\0"
//! 8   u32  format version, 1
//! 12  u32  length of the document
//! 16  …    the document (`set_document.rs`)
//! …   u32  crc32c of all before
//! ```
//!
//! On disk: `docs/formats/set-state.md`.
//!
//! Always true: the file is whole under its name, or is not there; one that is damaged is an error.

use crate::error::{Error, Result};
use crate::set_document::SetDocument;
use os::{File, OpenOptions, Vfs};
use std::io;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"FERNSET\0";
const VERSION: u32 = 1;
const HEAD: usize = 16;
/// Longer than any document of fifty members with their tags.
const MOST_BYTES: u64 = 1 << 20;

/// Its name in a data directory.
pub(crate) const NAME: &str = "set.state";

pub(crate) fn path_in(directory: &Path) -> PathBuf {
    directory.join(NAME)
}

/// What the file of a document has.
pub(crate) fn encode_document(document: &SetDocument) -> Result<Vec<u8>> {
    Ok(encode(&document.encode()?))
}

fn encode(document: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(document.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(document);
    let sum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> std::result::Result<&[u8], String> {
    let damaged = || "it is damaged".to_owned();
    let (checked, sum) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
    if checked.len() < HEAD || !checked.starts_with(MAGIC) {
        return Err(damaged());
    }
    if crc32c::crc32c(checked) != u32::from_le_bytes(*sum) {
        return Err(damaged());
    }
    let number = |at: usize| {
        let bytes = checked.get(at..at + 4).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    if number(8) != VERSION {
        return Err(format!("version {}; this server reads {VERSION}", number(8)));
    }
    let document = checked.get(HEAD..).unwrap_or_default();
    if document.len() == number(12) as usize { Ok(document) } else { Err(damaged()) }
}

/// Reads the file; `None` where there is none.
pub(crate) fn read(vfs: &dyn Vfs, directory: &Path) -> Result<Option<SetDocument>> {
    let path = path_in(directory);
    let refused = |source| Error::File { path: path.clone(), source };
    if !vfs.exists(&path).map_err(refused)? {
        return Ok(None);
    }
    let file = vfs.open(&path, OpenOptions::read_only()).map_err(refused)?;
    let bytes = read_all(&*file).map_err(refused)?;
    let document = decode(&bytes).map_err(|what| refused(io::Error::other(what)))?;
    SetDocument::decode(document).map(Some)
}

fn read_all(file: &dyn File) -> io::Result<Vec<u8>> {
    let length = file.len()?;
    if length > MOST_BYTES {
        return Err(io::Error::other("it is too long"));
    }
    let mut bytes = vec![0; length as usize];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], done as u64)? {
            0 => break,
            read => done += read,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

/// Writes the file in place of the one that is there; on disk when this returns.
pub(crate) fn write(vfs: &dyn Vfs, directory: &Path, document: &SetDocument) -> Result<()> {
    let path = path_in(directory);
    let bytes = encode_document(document)?;
    replace(vfs, &path, &bytes).map_err(|source| Error::File { path, source })
}

fn replace(vfs: &dyn Vfs, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("state.new");
    let file = vfs.open(&unfinished, OpenOptions::create())?;
    file.set_len(0)?;
    file.write_all_at(bytes, 0)?;
    file.sync_all()?;
    vfs.rename(&unfinished, path)?;
    vfs.sync_dir(path.parent().unwrap_or(Path::new(".")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use os::sim::{SimOs, Survival};
    use quorum::MemberId;

    fn document(hosts: i32) -> SetDocument {
        let member = |id: i32| bson::doc! { "_id": id, "host": format!("h{id}:1") };
        let config =
            bson::doc! { "_id": "rs", "members": (0..hosts).map(member).collect::<Vec<_>>() };
        let ids = (0..hosts).map(|id| (id, MemberId(id as u64 + 1))).collect();
        SetDocument::new(config, &ids).unwrap()
    }

    #[test]
    fn a_crash_leaves_the_old_or_the_new_file() {
        let directory = Path::new("/data");
        let (mut old, mut new) = (0, 0);
        for call in 0..40 {
            let sim = SimOs::new(call);
            let vfs = sim.os().vfs;
            vfs.create_dir_all(directory).unwrap();
            assert_eq!(read(&*vfs, directory).unwrap(), None);
            write(&*vfs, directory, &document(1)).unwrap();
            sim.crash_after(1 + call % 12);
            let _crashed = write(&*vfs, directory, &document(3));
            sim.crash();
            let vfs = sim.reboot_with(Survival::Random).vfs;
            let found = read(&*vfs, directory).unwrap().unwrap();
            if found == document(1) {
                old += 1;
            } else {
                assert_eq!(found, document(3));
                new += 1;
            }
        }
        assert!(old > 0 && new > 0, "{old} and {new}");
    }

    #[test]
    fn bytes_are_those_of_before() {
        let bytes = encode(&document(2).encode().unwrap());
        testkit::golden(env!("CARGO_MANIFEST_DIR"), "set-state.v1.bin", &bytes);
    }

    #[test]
    fn damage_is_named() {
        let bytes = encode(&document(2).encode().unwrap());
        assert!(decode(&bytes).is_ok());
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_err());
        }
    }
}
