//! When the program's code is moved to huge pages ([`os::move_code_to_huge_pages`], ADR 89).

use std::io;

/// The code takes up to so much more memory then, a part of it that a file's pages would not: a server with a cache that
/// is not much larger goes without.
const LEAST_CACHE: u64 = 512 << 20;

/// Whether a server with such a cache moves its code; `wanted` is the parameter `codeInHugePages`.
fn is_worth_it(wanted: bool, cache_size: u64) -> bool {
    wanted && cache_size >= LEAST_CACHE
}

/// Moves the code, where that is worth it; what came of it is for [`tell`]. Called before there are threads, which would
/// wait for it.
pub(crate) fn prepare(wanted: bool, cache_size: u64) -> Option<io::Result<usize>> {
    is_worth_it(wanted, cache_size).then(os::move_code_to_huge_pages)
}

/// Logs what came of it.
pub(crate) fn tell(moved: Option<io::Result<usize>>) {
    match moved {
        Some(Ok(bytes)) => {
            tracing::info!(target: "CONTROL", id = 9_016_890, bytes, "The program's code was moved to huge pages");
        }
        Some(Err(error)) => {
            tracing::info!(target: "CONTROL", id = 9_016_891, %error,
                "The program's code stays where it is: requests take some more of the processor's time");
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_server_leaves_its_code_where_it_is() {
        for (wanted, cache_size, is) in
            [(true, LEAST_CACHE, true), (true, LEAST_CACHE - 1, false), (false, 1 << 40, false)]
        {
            assert_eq!(is_worth_it(wanted, cache_size), is);
        }
        assert!(prepare(false, LEAST_CACHE).is_none());
    }
}
