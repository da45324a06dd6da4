//! `fern rotate-master`: another master key for an encrypted directory that no server has open.
//!
//! Always true: the data keys, and so all that is stored, stay as they are; `fern.keys` is opened by the old
//! master key or by the new one at any moment, and by the new one alone when this returns.

use crate::directory::DataDirectory;
use anyhow::{Context, Result};
use crypt::{Fingerprint, KeysFile, MasterKey};

/// Wraps the data keys with another master key; says which one wraps them now.
///
/// # Errors
/// The old key is not the one that wraps them, and what the disk says.
pub fn rotate_master(
    directory: &DataDirectory,
    old: &MasterKey,
    new: &MasterKey,
) -> Result<Fingerprint> {
    let path = directory.path.display().to_string();
    let file = KeysFile::open(&directory.os, &directory.path, old).context(path.clone())?;
    file.rotate_master(new).context(path)?;
    Ok(new.fingerprint())
}
