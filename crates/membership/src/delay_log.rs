//! Where a delayed member keeps what it does not show yet, and what becomes of that when a copy of another member's data
//! takes the place of its own.
//!
//! Always true: what the log of entries has follows what the engine has. So with a copy it is void, and the copy says so
//! by a file of its own, which comes into the directory with the others: `delayed.void`.

use crate::error::{Error, Result};
use engine::Engine;
use os::Os;
use replica::DelayLog;
use std::path::{Path, PathBuf};

/// Its directory, in the data directory.
const NAME: &str = "delayed";
/// Of a directory that has it the log is void.
pub(crate) const VOID: &str = "delayed.void";
/// Bytes that are held back at most where the length of the oplog is a time.
const BY_AGE_BYTES: u64 = 50 << 30;

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
    |source| Error::File { path: path.to_path_buf(), source }
}

/// Whether a member was ever delayed.
pub(crate) fn exists(os: &Os, directory: &Path) -> Result<bool> {
    let path = directory.join(NAME);
    os.vfs.exists(&path).map_err(failed(&path))
}

/// Where it is, without what a copy has made void.
pub(crate) fn find(os: &Os, directory: &Path, engine: &Engine) -> Result<DelayLog> {
    remove_where_void(os, directory)?;
    let bytes = engine.options().history.map_or(0, |history| history.bytes);
    let most_bytes = if bytes == 0 { BY_AGE_BYTES } else { bytes };
    Ok(DelayLog { name: NAME, exists: exists(os, directory)?, most_bytes })
}

fn remove_where_void(os: &Os, directory: &Path) -> Result<()> {
    let (void, log) = (directory.join(VOID), directory.join(NAME));
    if !os.vfs.exists(&void).map_err(failed(&void))? {
        return Ok(());
    }
    if os.vfs.exists(&log).map_err(failed(&log))? {
        let files: Vec<PathBuf> = os.vfs.list_dir(&log).map_err(failed(&log))?;
        for file in files {
            os.vfs.remove_file(&file).map_err(failed(&file))?;
        }
        os.vfs.sync_dir(&log).map_err(failed(&log))?;
    }
    // Last: a crash before it has this begin again.
    os.vfs.remove_file(&void).map_err(failed(&void))?;
    os.vfs.sync_dir(directory).map_err(failed(directory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use os::OpenOptions;
    use os::sim::SimOs;

    #[test]
    fn a_copy_makes_it_void_and_nothing_else_does() {
        let sim = SimOs::new(7);
        let (os, dir) = (sim.os(), Path::new("/data"));
        let log = dir.join(NAME);
        os.vfs.create_dir_all(&log).unwrap();
        let make = |path: &Path| drop(os.vfs.open(path, OpenOptions::create()).unwrap());
        make(&log.join("1"));
        remove_where_void(&os, dir).unwrap();
        assert!(os.vfs.exists(&log.join("1")).unwrap());
        make(&dir.join(VOID));
        remove_where_void(&os, dir).unwrap();
        assert!(!os.vfs.exists(&log.join("1")).unwrap());
        assert!(!os.vfs.exists(&dir.join(VOID)).unwrap(), "what comes later counts");
    }
}
