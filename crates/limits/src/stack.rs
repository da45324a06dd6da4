//! The rest of a thread's stack, asked where recursion follows what a client sent.
//!
//! Every recursion over client input has a limit of its own on its depth. Limits that are harmless
//! apart may meet, though: a pipeline in a pipeline over a view, with a deep expression in each. Here what
//! is left becomes an error instead of the end of the process.

use errors::{Code, Error, Result};

/// What must be left of the stack: more than the deepest single recursion takes in an optimised build.
const SPARE_BYTES: usize = 512 << 10;

/// Fails where little of this thread's stack is left. A few nanoseconds.
pub fn check_stack() -> Result<()> {
    match stacker::remaining_stack() {
        Some(left) if left < SPARE_BYTES => {
            Err(Error::new(Code::OVERFLOW, "the operation is nested too deeply"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recurse(depth: usize) -> Result<usize> {
        check_stack()?;
        let frame = std::hint::black_box([depth; 16]);
        recurse(frame[3] + 1)
    }

    #[test]
    fn endless_recursion_ends_in_an_error() {
        let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(|| recurse(0));
        let error = thread.expect("it starts").join().expect("no overflow").expect_err("endless");
        assert_eq!(error.code(), Code::OVERFLOW);
        assert!(check_stack().is_ok(), "a test's thread has enough");
    }
}
