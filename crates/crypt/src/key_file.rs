//! The operator's file with the master key.
//!
//! Always true: nobody but its owner can read a file that is taken, and the owner is this process's
//! user or root. Where the operator relaxes that, the group of a file of root's may read it, too.

use crate::error::{Error, Result};
use crate::master::MasterKey;
use os::{OpenOptions, Os};
use std::path::Path;
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

/// Reads the file with the master key.
///
/// # Errors
/// Why it is not taken, in one line that says what to do.
pub fn read_master_key(os: &Os, path: &Path, permissions: Permissions) -> Result<MasterKey> {
    // What is judged is what is read, whoever exchanges the name between.
    let file = os.vfs.open(path, OpenOptions::read_only())?;
    let found = file.permissions()?;
    if !permissions.allow(found.owner, found.mode) {
        return Err(Error::KeyFile(
            "permissions are too open: only its owner may read it; run chmod 600 on it",
        ));
    }
    if !found.is_ours_or_roots() {
        return Err(Error::Owner(found.owner));
    }
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
