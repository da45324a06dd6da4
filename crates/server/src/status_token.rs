//! The file of the token by which `/metrics` is read without a user (`statusTokenFile`).
//!
//! Always true: nobody but its owner can read a file that is taken, and the owner is this server's user or root; a token
//! is long enough not to be guessed, and is compared in a time that says nothing of it.

use crate::startup::{ExitCode, StartError};
use auth::Secret;
use os::{OpenOptions, Os};
use std::fmt::Display;
use std::io;
use std::path::Path;
use zeroize::Zeroizing;

/// The shortest token: sixteen random bytes in base64 are longer.
const SHORTEST: usize = 20;
/// The longest: it has to stand in a header.
const LONGEST: usize = 1024;
/// Who else than its owner may do something with a file.
const GROUP_AND_OTHERS: u32 = 0o077;

/// Reads a token.
///
/// # Errors
/// Why it is not taken, in one line that says what to do.
pub(crate) fn read(os: &Os, path: &Path) -> Result<Secret, StartError> {
    let refuse = |why: &dyn Display| {
        StartError::new(ExitCode::BadOptions, format!("statusTokenFile {}: {why}", path.display()))
    };
    let failed = |error: io::Error| refuse(&error);
    // What is judged is what is read, whoever exchanges the name between.
    let file = os.vfs.open(path, OpenOptions::read_only()).map_err(failed)?;
    let permissions = file.permissions().map_err(failed)?;
    if permissions.mode & GROUP_AND_OTHERS != 0 {
        return Err(refuse(
            &"permissions are too open: only its owner may read it; run chmod 600 on it",
        ));
    }
    if !permissions.is_ours_or_roots() {
        return Err(refuse(&"it must belong to the server's own user or to root"));
    }
    let length = file.len().map_err(failed)?;
    // A line's end stands behind it.
    if length > LONGEST as u64 + 2 {
        return Err(refuse(&format_args!("a token has at most {LONGEST} characters")));
    }
    let mut bytes = Zeroizing::new(vec![0; length as usize]);
    file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    let token = bytes.trim_ascii();
    let is_known = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
    if token.len() < SHORTEST || !token.iter().all(is_known) {
        return Err(refuse(&format_args!(
            "it holds one token of at least {SHORTEST} characters of base64; make one with openssl rand -base64 32"
        )));
    }
    Ok(Secret::new(token.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::read;
    use os::Os;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn tokens_are_taken_or_refused_in_one_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let outcome = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            read(&Os::real(), &path).map(|token| token.bytes().to_vec()).map_err(|error| error.line)
        };
        let token = "0123456789abcdefABCDEF+/=";
        assert_eq!(outcome(&format!("{token}\n"), 0o600), Ok(token.as_bytes().to_vec()));
        for (text, mode, word) in [
            (token, 0o640, "chmod 600"),
            ("short", 0o600, "at least 20"),
            ("", 0o600, "at least 20"),
            ("two words of enough length", 0o600, "one token"),
            (&*"a".repeat(2000), 0o600, "at most"),
        ] {
            let line = outcome(text, mode).unwrap_err();
            assert!(line.contains(word) && !line.contains('\n'), "{line}");
        }
        assert!(read(&Os::real(), &directory.path().join("none")).is_err());
    }
}
