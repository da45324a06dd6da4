//! Repeating what met a change of the metadata in the middle: a collection was looked up, and the
//! state that was taken next is the one after its drop.
//!
//! Always true: only what has left nothing behind is repeated, and not for ever. A collection that
//! stays without its documents is damage, and is told.

use crate::context::Interrupt;
use catalog::Catalog;
use errors::{Code, Error, Result};
use std::time::Duration;

/// So often, with pauses that double up to a millisecond: a second in all.
const ATTEMPTS: u32 = 1000;
/// Doublings of the pause, which starts at a microsecond.
const DOUBLINGS: u32 = 10;

/// Whether the newest state and the newest metadata did not fit together.
fn met_ddl(error: &Error) -> bool {
    error.code() == Code::SNAPSHOT_UNAVAILABLE
}

/// The repetitions of one operation.
#[derive(Debug, Default)]
pub struct DdlRetries {
    attempts: u32,
}

impl DdlRetries {
    /// After an attempt that failed so and left nothing behind: waits a little, and says whether
    /// to try again.
    ///
    /// # Errors
    /// The operation was interrupted.
    pub fn again(
        &mut self,
        error: &Error,
        catalog: &Catalog,
        interrupt: &dyn Interrupt,
    ) -> Result<bool> {
        if !met_ddl(error) || self.attempts == ATTEMPTS {
            return Ok(false);
        }
        interrupt.check()?;
        let pause = Duration::from_micros(1 << self.attempts.min(DOUBLINGS));
        self.attempts += 1;
        catalog.os().clock.sleep(pause);
        Ok(true)
    }
}
