//! `fern.keys` on a filesystem: `slot` says what its bytes are.
//!
//! Always true: what a call returned is on disk in both slots. A change is written to the first slot
//! and synced before the second is touched, so that one slot is whole at any time.

use crate::error::{Error, Result};
use crate::master::MasterKey;
use crate::ring::KeyRing;
use crate::slot::{self, SLOT_BYTES, Slot, SlotBytes};
use os::{File, OpenOptions, Os, Vfs};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Its name in the data directory.
pub const FILE_NAME: &str = "fern.keys";
/// Bytes that it is long.
pub const FILE_BYTES: usize = 2 * SLOT_BYTES;

/// The file of a data directory that is open. A call that changes it takes it away where it fails:
/// what is on disk is then found out by opening it again.
pub struct KeysFile {
    os: Os,
    file: Arc<dyn File>,
    ring: KeyRing,
    generation: u64,
}

impl KeysFile {
    /// Makes the file of a new data directory, with one data key. Whole under its name, or not there.
    ///
    /// # Errors
    /// `AlreadyExists` where there is one, and what the disk says.
    pub fn create(os: &Os, directory: &Path, master: &MasterKey) -> Result<Self> {
        let path = directory.join(FILE_NAME);
        if os.vfs.exists(&path)? {
            return Err(Error::Io(io::ErrorKind::AlreadyExists.into()));
        }
        let ring = KeyRing::new(&*os.entropy);
        let bytes = slot::encode(&ring, master, 1, &*os.entropy)?;
        let unfinished = directory.join("fern.keys.new");
        let options = OpenOptions { create: true, truncate: true, ..OpenOptions::default() };
        let file = os.vfs.open(&unfinished, options)?;
        file.write_all_at(&[*bytes, *bytes].concat(), 0)?;
        file.sync_all()?;
        os.vfs.rename(&unfinished, &path)?;
        os.vfs.sync_dir(directory)?;
        let file = os.vfs.open(&path, OpenOptions::default())?;
        Ok(Self { os: os.clone(), file, ring, generation: 1 })
    }

    /// Opens the file of a data directory. A slot that is damaged, or older than the other, is written
    /// again, but not before the master key is known to be the right one.
    ///
    /// # Errors
    /// Another master key, damage beyond repair, and what the disk says.
    pub fn open(os: &Os, directory: &Path, master: &MasterKey) -> Result<Self> {
        let file = os.vfs.open(&path_in(directory), OpenOptions::default())?;
        let found = slot::read(&both_slots(&*file)?)?;
        let ring = found.newest.unwrap(master)?;
        if let Some(which) = found.repair {
            write_slot(&*file, which, &found.newest.bytes)?;
        }
        Ok(Self { os: os.clone(), file, ring, generation: found.newest.generation })
    }

    /// The keys of a data directory, for tools that write nothing.
    ///
    /// # Errors
    /// As [`KeysFile::open`].
    pub fn read(vfs: &dyn Vfs, directory: &Path, master: &MasterKey) -> Result<KeyRing> {
        newest(vfs, directory)?.unwrap(master)
    }

    /// The data keys.
    pub fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// The data keys, where the file is not to be changed any more.
    pub fn into_ring(self) -> KeyRing {
        self.ring
    }

    /// Wraps the data keys with another master key: only that one opens them from here on.
    ///
    /// # Errors
    /// What the disk says.
    pub fn rotate_master(self, new: &MasterKey) -> Result<Self> {
        self.written(new)
    }

    /// Adds a data key, wrapped with the master key that wraps the others.
    ///
    /// # Errors
    /// Another master key, no room for another data key, and what the disk says.
    pub fn add_data_key(self, master: &MasterKey) -> Result<Self> {
        let made_with = slot::read(&both_slots(&*self.file)?)?.newest.fingerprint;
        let given = master.fingerprint();
        if made_with != given {
            return Err(Error::OtherMaster { made_with, given });
        }
        self.ring.add(&*self.os.entropy)?;
        self.written(master)
    }

    fn written(mut self, master: &MasterKey) -> Result<Self> {
        self.generation += 1;
        let bytes = slot::encode(&self.ring, master, self.generation, &*self.os.entropy)?;
        for which in [0, 1] {
            write_slot(&*self.file, which, &bytes)?;
        }
        Ok(self)
    }
}

fn path_in(directory: &Path) -> PathBuf {
    directory.join(FILE_NAME)
}

fn newest(vfs: &dyn Vfs, directory: &Path) -> Result<Slot> {
    let file = vfs.open(&path_in(directory), OpenOptions::read_only())?;
    Ok(slot::read(&both_slots(&*file)?)?.newest)
}

fn write_slot(file: &dyn File, which: usize, bytes: &SlotBytes) -> Result<()> {
    file.write_all_at(bytes, (which * SLOT_BYTES) as u64)?;
    Ok(file.sync_data()?)
}

/// What a shortened file lacks stays zero, and is damage to whoever reads it.
fn both_slots(file: &dyn File) -> Result<[SlotBytes; 2]> {
    let mut slots = [[0; SLOT_BYTES]; 2];
    let flat = slots.as_flattened_mut();
    let mut done = 0;
    while done < flat.len() {
        match file.read_at(&mut flat[done..], done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(slots)
}

#[cfg(test)]
mod tests;
