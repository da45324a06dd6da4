//! The operator's file with the master key.
//!
//! Always true: nobody but its owner can read a file that is taken, and the owner is this process's
//! user or root. Where the operator relaxes that, the group of a file of root's may read it, too.

use crate::error::{Error, Result};
use crate::master::MasterKey;
use os::{OpenOptions, Os};
use std::io;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The base64 of a key with white space around it is shorter.
const MOST_BYTES: u64 = 1 << 10;
/// Who else than its owner may do something with a file.
const GROUP_AND_OTHERS: u32 = 0o077;
const GROUP_READS: u32 = 0o040;

/// Who has a file, and who may do what with it, as far as the key's file has to be closed to others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Permissions {
    /// Its owner alone may read it.
    #[default]
    OwnerAlone,
    /// The group of a file of root's may read it, too.
    GroupOfRoot,
}

impl Permissions {
    /// Whether a file with this owner and these permissions is open to nobody else.
    fn allow(self, owner: u32, mode: u32) -> bool {
        let readable = match self {
            Self::GroupOfRoot if owner == 0 => GROUP_READS,
            _ => 0,
        };
        mode & GROUP_AND_OTHERS & !readable == 0
    }
}

/// Where the operator keeps the master key. It may be another one each time: it is asked at the start, and when the
/// server is told to wrap its data keys with another one.
pub trait MasterKeys: std::fmt::Debug + Send + Sync {
    /// The master key, as it is now.
    ///
    /// # Errors
    /// In one line, why there is none and what to do.
    fn read(&self) -> Result<MasterKey>;
}

/// A file with the master key.
#[derive(Debug)]
pub struct KeyFile {
    /// Where it is.
    pub path: PathBuf,
    /// Who may read it.
    pub permissions: Permissions,
    /// The system.
    pub os: Os,
}

impl MasterKeys for KeyFile {
    fn read(&self) -> Result<MasterKey> {
        read_master_key(&self.os, &self.path, self.permissions).map_err(|error| {
            Error::Source(format!("encryptionKeyFile {}: {error}", self.path.display()))
        })
    }
}

/// Reads the file with the master key.
///
/// # Errors
/// Why it is not taken, in one line that says what to do.
pub fn read_master_key(os: &Os, path: &Path, permissions: Permissions) -> Result<MasterKey> {
    let status = rustix::fs::stat(path).map_err(io::Error::from)?;
    if !permissions.allow(status.st_uid, status.st_mode) {
        return Err(Error::KeyFile(
            "permissions are too open: only its owner may read it; run chmod 600 on it",
        ));
    }
    let own = rustix::process::geteuid().as_raw();
    if status.st_uid != own && status.st_uid != 0 {
        return Err(Error::Owner(status.st_uid));
    }
    let file = os.vfs.open(path, OpenOptions::read_only())?;
    let length = file.len()?;
    if length > MOST_BYTES {
        return Err(Error::KeyFile("it is too long for a master key"));
    }
    let mut text = Zeroizing::new(vec![0; length as usize]);
    file.read_exact_at(&mut text, 0)?;
    MasterKey::parse(&text)
}

#[cfg(test)]
mod tests {
    use super::{Permissions, read_master_key};
    use os::Os;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_group_reads_only_what_is_roots_and_only_where_that_is_relaxed() {
        use Permissions::{GroupOfRoot, OwnerAlone};
        for (permissions, owner, mode, expected) in [
            (OwnerAlone, 0, 0o600, true),
            (OwnerAlone, 0, 0o640, false),
            (GroupOfRoot, 0, 0o640, true),
            (GroupOfRoot, 0, 0o660, false),
            (GroupOfRoot, 0, 0o644, false),
            (GroupOfRoot, 1000, 0o640, false),
            (GroupOfRoot, 1000, 0o400, true),
        ] {
            let allowed = permissions.allow(owner, 0o100_000 | mode);
            assert_eq!(allowed, expected, "{permissions:?} {owner} {mode:o}");
        }
    }

    #[test]
    fn key_files_are_taken_or_refused_in_one_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("master");
        let outcome = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            read_master_key(&Os::real(), &path, Permissions::OwnerAlone)
                .map(drop)
                .map_err(|error| error.to_string())
        };
        let good = format!("{}=\n", "A".repeat(43));
        assert_eq!(outcome(&good, 0o600), Ok(()));
        assert_eq!(outcome(&good, 0o400), Ok(()));
        for (text, mode, word) in [
            (good.as_str(), 0o640, "chmod 600"),
            (&good, 0o604, "chmod 600"),
            ("", 0o600, "base64 of 32 bytes"),
            ("AAAA", 0o600, "base64 of 32 bytes"),
            (&" ".repeat(2000), 0o600, "too long"),
        ] {
            let line = outcome(text, mode).unwrap_err();
            assert!(line.contains(word) && !line.contains('\n'), "{line}");
        }
        fs::remove_file(&path).unwrap();
        assert!(read_master_key(&Os::real(), &path, Permissions::OwnerAlone).is_err());
    }
}
