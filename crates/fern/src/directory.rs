//! The data directory: its lock, its version file, where its files are.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use crypt::{KeyRing, KeysFile, MasterKey};
use engine::format::{INCREMENTAL_TEXT, LOCK_FILE, LOG_DIR, VERSION_FILE, VERSION_TEXT};
use os::{LockGuard, OpenOptions, Os};

use crate::findings::{Damage, Findings};

/// The data file's name.
const DATA_FILE: &str = "fern.data";

/// A data directory nobody else uses while this lives.
#[derive(Debug)]
pub struct DataDirectory {
    pub(crate) os: Os,
    pub(crate) path: PathBuf,
    pub(crate) log: PathBuf,
    /// Of an encrypted directory, where its master key was given.
    pub(crate) keys: Option<Arc<KeyRing>>,
    _lock: Option<LockGuard>,
    /// The lock could not be taken, though nobody holds it.
    unlocked: Option<String>,
}

impl DataDirectory {
    /// Takes the lock of a data directory. Refuses where a server holds it and where this is no
    /// data directory. `log` is where the log is, if not in the directory.
    pub fn open(os: &Os, path: &Path, log: Option<&Path>) -> Result<Self> {
        let directory = Self::open_any(os, path, log)?;
        if directory.is_incremental()? {
            bail!(
                "{} is an incremental backup, of which only a part is here: `fern restore` puts it together",
                path.display()
            );
        }
        Ok(directory)
    }

    /// The same of one that may be an incremental backup.
    pub(crate) fn open_any(os: &Os, path: &Path, log: Option<&Path>) -> Result<Self> {
        let there = |name: &str| os.vfs.exists(&path.join(name)).unwrap_or(false);
        if !there(VERSION_FILE) && !there(DATA_FILE) && !there(LOCK_FILE) {
            bail!("{} is no data directory of FernDB", path.display());
        }
        let (mut lock, mut unlocked) = (None, None);
        // a missing lock file is not made: nobody holds it, and nothing is to be changed here
        if there(LOCK_FILE) {
            match os.vfs.lock(&path.join(LOCK_FILE)) {
                Ok(guard) => lock = Some(guard),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    bail!("{} is in use: a server is running on it; stop it first", path.display())
                }
                Err(e) => unlocked = Some(format!("{LOCK_FILE} cannot be locked: {e}")),
            }
        }
        let log = log.map_or_else(|| path.join(LOG_DIR), Path::to_path_buf);
        Ok(Self {
            os: os.clone(),
            path: path.to_path_buf(),
            log,
            keys: None,
            _lock: lock,
            unlocked,
        })
    }

    /// Reads what is encrypted with the data keys that this master key opens.
    ///
    /// # Errors
    /// It is another key, or the directory is not encrypted.
    pub fn with_key(self, master: &MasterKey) -> Result<Self> {
        let own = self.path.clone();
        self.with_keys_of(&own, master)
    }

    /// The same with the data keys that are wrapped in another directory.
    pub(crate) fn with_keys_of(mut self, directory: &Path, master: &MasterKey) -> Result<Self> {
        let path = directory.display().to_string();
        if !self.os.vfs.exists(&directory.join(crypt::FILE_NAME))? {
            bail!("{path} has no {}: it is not encrypted, or has lost it", crypt::FILE_NAME);
        }
        let keys = KeysFile::read(&*self.os.vfs, directory, master).context(path)?;
        self.keys = Some(Arc::new(keys));
        Ok(self)
    }

    /// Whether it is an incremental backup.
    pub(crate) fn is_incremental(&self) -> Result<bool> {
        let path = self.path.join(VERSION_FILE);
        if !self.os.vfs.exists(&path)? {
            return Ok(false);
        }
        let mut text = [0; 64];
        let file = self.os.vfs.open(&path, OpenOptions::read_only())?;
        let length = file.read_at(&mut text, 0).with_context(|| path.display().to_string())?;
        Ok(&text[..length] == INCREMENTAL_TEXT.as_bytes())
    }

    pub(crate) fn data_file(&self) -> PathBuf {
        self.path.join(DATA_FILE)
    }

    /// The file that names the format says what it should.
    pub(crate) fn check_version(&self, findings: &mut Findings) {
        if let Some(why) = &self.unlocked {
            findings.note(why);
        }
        let path = self.path.join(VERSION_FILE);
        let mut text = [0; 64];
        let read = self.os.vfs.open(&path, OpenOptions::read_only());
        match read.and_then(|file| file.read_at(&mut text, 0)) {
            Ok(len) if &text[..len] == VERSION_TEXT.as_bytes() => {}
            Ok(len) => {
                let found = String::from_utf8_lossy(&text[..len]).into_owned();
                let what = format!("names a format not known here: {:?}", found.trim_end());
                findings.damage(Damage::of(&path, what).at(0));
            }
            Err(e) => findings.damage(Damage::of(&path, format!("cannot be read: {e}"))),
        }
    }
}
