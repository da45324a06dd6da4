//! The data keys of a data directory: made with a new directory, opened with an encrypted one, and changed while it is open.
//!
//! Always true: a directory is encrypted from its beginning, or never. `fern.keys` is on disk before the first
//! byte that is encrypted; a start that does not have the right key, or has one that is not wanted, changes
//! nothing.

use crate::error::Cause;
use crate::settings::Options;
use crate::{Error, Result};
use crypt::{Fingerprint, KeyRing, KeysFile, MasterKey};
use os::{OpenOptions, Os};
use parking_lot::{Mutex, MutexGuard};
use std::path::Path;
use std::sync::Arc;

/// What an encrypted engine says of its keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encryption {
    /// Of the master key.
    pub master: Fingerprint,
    /// The number of the data key for what is written now.
    pub newest_key: u16,
    /// How many data keys there are.
    pub keys: usize,
}

/// The keys of an encrypted directory that is open, and who changes them.
///
/// While somebody copies the directory's files, in a backup or for another member, they stay as they are: the copy goes with
/// the keys that there were when it began.
pub(crate) struct DirectoryKeys {
    ring: Arc<KeyRing>,
    held: Mutex<Held>,
}

/// What is looked at and changed by one at a time.
struct Held {
    master: Arc<MasterKey>,
    copies: usize,
}

impl DirectoryKeys {
    pub(crate) fn new(ring: &Arc<KeyRing>, master: &Arc<MasterKey>) -> Self {
        let held = Held { master: Arc::clone(master), copies: 0 };
        Self { ring: Arc::clone(ring), held: Mutex::new(held) }
    }

    /// The data keys.
    pub(crate) fn ring(&self) -> Arc<KeyRing> {
        Arc::clone(&self.ring)
    }

    pub(crate) fn status(&self) -> Encryption {
        let (newest_key, keys) = (self.ring.newest().0, self.ring.len());
        Encryption { master: self.held.lock().master.fingerprint(), newest_key, keys }
    }

    /// A copy of the directory's files begins.
    pub(crate) fn begin_copy(&self) {
        self.held.lock().copies += 1;
    }

    /// It has ended.
    pub(crate) fn end_copy(&self) {
        let mut held = self.held.lock();
        assert!(held.copies > 0, "a copy ends once");
        held.copies -= 1;
    }

    /// Wraps the data keys with another master key, on disk.
    pub(crate) fn rotate_master(&self, os: &Os, dir: &Path, new: MasterKey) -> Result<()> {
        let mut held = self.hold()?;
        let file = open_file(os, dir, &held.master)?;
        file.rotate_master(&new).map_err(|error| of_crypt(dir, error))?;
        held.master = Arc::new(new);
        debug_assert_eq!(held.copies, 0, "nothing was copied meanwhile");
        Ok(())
    }

    /// Adds a data key, for what is written from here on.
    pub(crate) fn rotate_data_key(&self, os: &Os, dir: &Path) -> Result<()> {
        let held = self.hold()?;
        let file = open_file(os, dir, &held.master)?;
        let file = file.add_data_key(&held.master).map_err(|error| of_crypt(dir, error))?;
        self.ring.take_newer(file.ring());
        assert_eq!(self.ring.newest(), file.ring().newest(), "what is on disk is used");
        Ok(())
    }

    fn hold(&self) -> Result<MutexGuard<'_, Held>> {
        let held = self.held.lock();
        if held.copies > 0 {
            return Err(Error::Keys(
                "the keys stay as they are while a backup or a copy for another member is made"
                    .to_owned(),
            ));
        }
        Ok(held)
    }
}

/// The data keys of the directory; none where it is not encrypted.
pub(crate) fn open_keys(os: &Os, options: &Options) -> Result<Option<Arc<KeyRing>>> {
    let dir = &options.dir;
    let path = dir.join(crypt::FILE_NAME);
    let has_keys = os.vfs.exists(&path).map_err(|source| {
        Error::Io(Cause::File { operation: "look for", file: path.clone(), source })
    })?;
    let ring = match (&options.master, has_keys) {
        (None, false) => {
            return if is_encrypted(os, dir)? == Some(true) { Err(lost(dir)) } else { Ok(None) };
        }
        (None, true) => {
            return Err(Error::Keys(format!(
                "the data directory {} is encrypted, and no key was given: start with --enableEncryption and \
                 --encryptionKeyFile",
                dir.display()
            )));
        }
        (Some(master), true) => open_file(os, dir, master)?.into_ring(),
        (Some(master), false) => match is_encrypted(os, dir)? {
            Some(true) => return Err(lost(dir)),
            Some(false) => return Err(plain(dir)),
            None => make_keys(os, dir, master)?,
        },
    };
    Ok(Some(Arc::new(match &options.nonces {
        Some(log) => ring.watched_by(log),
        None => ring,
    })))
}

fn open_file(os: &Os, dir: &Path, master: &MasterKey) -> Result<KeysFile> {
    KeysFile::open(os, dir, master).map_err(|error| of_crypt(dir, error))
}

fn make_keys(os: &Os, dir: &Path, master: &MasterKey) -> Result<KeyRing> {
    let made = KeysFile::create(os, dir, master).map_err(|error| of_crypt(dir, error))?;
    Ok(made.into_ring())
}

/// Whether the data file is encrypted; `None` where there is none yet.
fn is_encrypted(os: &Os, dir: &Path) -> Result<Option<bool>> {
    Ok(blockfile::is_encrypted(os, &dir.join(blockfile::Options::default().name))?)
}

fn lost(dir: &Path) -> Error {
    Error::Keys(format!(
        "the data directory {} is encrypted, and its {} is missing: bring it back from a backup; nothing can be read \
         without it",
        dir.display(),
        crypt::FILE_NAME
    ))
}

fn plain(dir: &Path) -> Error {
    Error::InvalidOption(format!(
        "the data directory {} is not encrypted, and a key was given: encryption begins with an empty directory, into \
         which the data is restored, or copied by another member that is encrypted with the same key",
        dir.display()
    ))
}

fn of_crypt(dir: &Path, error: crypt::Error) -> Error {
    match error {
        crypt::Error::Io(source) => {
            let file = dir.join(crypt::FILE_NAME);
            let is_full = source.kind() == std::io::ErrorKind::StorageFull;
            let cause = Cause::File { operation: "use", file, source };
            if is_full { Error::NoSpace(cause) } else { Error::Io(cause) }
        }
        error => Error::Keys(format!("the data directory {}: {error}", dir.display())),
    }
}

/// The bytes of `fern.keys`, which go with every copy of the directory's files; none where it is not
/// encrypted. They are of no use without the master key.
pub(crate) fn keys_file(os: &Os, dir: &Path) -> Result<Option<Vec<u8>>> {
    let path = dir.join(crypt::FILE_NAME);
    let failed = |source| Error::Io(Cause::File { operation: "read", file: path.clone(), source });
    if !os.vfs.exists(&path).map_err(failed)? {
        return Ok(None);
    }
    let file = os.vfs.open(&path, OpenOptions::read_only()).map_err(failed)?;
    let mut bytes = vec![0; file.len().map_err(failed)?.min(crypt::FILE_BYTES as u64) as usize];
    file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    Ok(Some(bytes))
}
