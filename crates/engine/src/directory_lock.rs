//! What marks a data directory: the lock, which one engine has at a time, or whoever changes its files; and the file
//! that names the format.

use crate::error::Cause;
use crate::{Error, Result};
use os::{LockGuard, Os};
use std::io::ErrorKind;
use std::path::Path;

pub(crate) const LOCK_FILE: &str = "fernd.lock";
/// The file of a directory whose backup is being written, or was not written to its end.
pub(crate) const UNFINISHED_BACKUP: &str = "UNFINISHED-BACKUP";
/// The file that names the format of the directory.
pub(crate) const VERSION_FILE: &str = "FERNDB";
/// What is in it.
pub(crate) const VERSION_TEXT: &str = "FernDB data directory, format 1\n";
/// What is in it where the directory holds an incremental backup, in which no engine opens.
pub(crate) const INCREMENTAL_TEXT: &str = "FernDB incremental backup, format 1\n";

/// Takes the lock.
///
/// # Errors
/// [`Error::Locked`] where somebody else has it.
pub(crate) fn lock_directory(os: &Os, dir: &Path) -> Result<LockGuard> {
    let path = dir.join(LOCK_FILE);
    os.vfs.lock(&path).map_err(|source| match source.kind() {
        ErrorKind::WouldBlock => Error::Locked(path.display().to_string()),
        ErrorKind::StorageFull => {
            Error::NoSpace(Cause::File { operation: "lock", file: path.clone(), source })
        }
        _ => Error::Io(Cause::File { operation: "lock", file: path.clone(), source }),
    })
}
