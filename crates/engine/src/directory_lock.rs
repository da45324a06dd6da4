//! The lock of a data directory: one engine, or whoever changes its files, at a time.

use crate::error::Cause;
use crate::{Error, Result};
use os::{LockGuard, Os};
use std::io::ErrorKind;
use std::path::Path;

pub(crate) const LOCK_FILE: &str = "fernd.lock";

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
