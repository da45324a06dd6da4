//! When the program's code is moved to huge pages ([`os::move_code_to_huge_pages`], ADR 89).

use crate::startup::{ExitCode, StartError};
use std::io;

/// The code takes up to so much more memory then, a part of it that a file's pages would not: a server with a cache that
/// is not much larger goes without.
const LEAST_CACHE: u64 = 512 << 20;

/// Moves the code where that is worth it; what came of it is for [`log`]. Called before there are threads, which would
/// wait for it. `wanted` is the parameter `codeInHugePages`, where it is given.
///
/// # Errors
/// It is asked for, and cannot be.
pub(crate) fn move_code(
    wanted: Option<bool>,
    cache_size: u64,
) -> Result<Option<io::Result<usize>>, StartError> {
    if !wanted.unwrap_or(cache_size >= LEAST_CACHE) {
        return Ok(None);
    }
    match os::move_code_to_huge_pages() {
        Err(error) if wanted.is_some() => {
            let line = format!("parameter codeInHugePages: the code cannot be moved: {error}");
            Err(StartError::new(ExitCode::BadOptions, line))
        }
        moved => Ok(Some(moved)),
    }
}

/// Logs what came of it; says whether the code was moved.
pub(crate) fn log(moved: Option<io::Result<usize>>) -> bool {
    match moved {
        Some(Ok(bytes)) => {
            tracing::info!(target: "CONTROL", id = 9_016_890, bytes, "The program's code was moved to huge pages");
            true
        }
        Some(Err(error)) => {
            tracing::info!(target: "CONTROL", id = 9_016_891, %error,
                "The program's code stays where it is: requests take some more of the processor's time");
            false
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_server_leaves_its_code_where_it_is() {
        for (wanted, cache_size) in [(None, LEAST_CACHE - 1), (Some(false), 1 << 40)] {
            assert!(move_code(wanted, cache_size).unwrap().is_none());
        }
    }
}
