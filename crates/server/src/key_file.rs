//! The file that holds the key which the members of a set share.
//!
//! Always true: nobody but its owner can read a file that is taken, and the owner is this server's user or root.

use crate::startup::{ExitCode, StartError};
use auth::ClusterKey;
use auth::key_file::{Flaw, LONGEST, SHORTEST, parse};
use os::{OpenOptions, Os};
use std::fmt::Display;
use std::io;
use std::path::Path;
use zeroize::Zeroizing;

/// A file of two keys of any length with their spaces is shorter.
const MOST_BYTES: u64 = 16 << 10;
/// Who else than its owner may do something with a file.
const GROUP_AND_OTHERS: u32 = 0o077;

/// Reads a key file.
///
/// # Errors
/// Why it is not taken, in one line that says what to do.
pub(crate) fn read(os: &Os, path: &Path) -> Result<ClusterKey, StartError> {
    let refuse = |why: &dyn Display| {
        StartError::new(ExitCode::BadOptions, format!("keyFile {}: {why}", path.display()))
    };
    let failed = |error: io::Error| refuse(&error);
    // What is judged is what is read, whoever exchanges the name between. A symbolic link is followed, for secrets
    // are often mounted behind one; what it leads to has to be closed to others.
    let file = os.vfs.open(path, OpenOptions::read_only()).map_err(failed)?;
    let permissions = file.permissions().map_err(failed)?;
    if permissions.mode & GROUP_AND_OTHERS != 0 {
        return Err(refuse(
            &"permissions are too open: only its owner may read it; run chmod 600 on it",
        ));
    }
    if !permissions.is_ours_or_roots() {
        return Err(refuse(&format_args!(
            "it belongs to the user {}, and must be the server's own or root's",
            permissions.owner
        )));
    }
    let length = file.len().map_err(failed)?;
    if length > MOST_BYTES {
        return Err(refuse(&"it is too long for a key file"));
    }
    let mut bytes = Zeroizing::new(vec![0; length as usize]);
    file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| refuse(&said(Flaw::Character)))?;
    let keys = parse(text).map_err(|flaw| refuse(&said(flaw)))?;
    let mut salt = vec![0; ClusterKey::MECHANISM.salt_bytes()];
    os.entropy.fill(&mut salt);
    Ok(ClusterKey::new(keys, &salt))
}

fn said(flaw: Flaw) -> String {
    match flaw {
        Flaw::TooShort => format!("a key has at least {SHORTEST} characters"),
        Flaw::TooLong => format!("a key has at most {LONGEST} characters"),
        Flaw::Character => {
            "a key has characters of base64 alone; make one with openssl rand -base64 756"
                .to_owned()
        }
        Flaw::Number => "it holds one key, or a list of two".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use os::Os;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn key_files_are_taken_or_refused_in_one_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let outcome = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            read(&Os::real(), &path).map(drop).map_err(|error| error.line)
        };
        assert_eq!(outcome("abc def\nghi\n", 0o600), Ok(()));
        assert_eq!(outcome("- abcdef\n- ghijkl\n", 0o400), Ok(()));
        for (text, mode, word) in [
            ("abcdef", 0o640, "chmod 600"),
            ("abcdef", 0o604, "chmod 600"),
            ("abcde", 0o600, "at least 6"),
            ("abc!ef", 0o600, "base64"),
            ("", 0o600, "one key"),
            (&"a".repeat(2000), 0o600, "at most 1024"),
            (&" ".repeat(20_000), 0o600, "too long"),
        ] {
            let line = outcome(text, mode).unwrap_err();
            assert!(line.contains(word) && line.contains("keyFile"), "{line}");
        }
        fs::remove_file(&path).unwrap();
        assert!(read(&Os::real(), &path).is_err());
    }
}
