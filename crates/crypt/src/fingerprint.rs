//! Tells master keys apart without showing any of them.

use std::fmt;

/// Tells which master key it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint(pub(crate) [u8; 16]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Enough to tell an operator's keys apart.
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
