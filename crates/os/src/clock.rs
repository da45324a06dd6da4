//! Time, as the system sees it.

use std::time::Duration;

/// A clock. Intervals use [`Clock::monotonic`], dates use [`Clock::wall_ms`].
pub trait Clock: Send + Sync {
    /// Time since the clock was made; never goes back.
    fn monotonic(&self) -> Duration;

    /// Milliseconds since 1970-01-01 UTC; may jump.
    fn wall_ms(&self) -> i64;

    /// Waits. The simulated clock does not wait: it moves itself forward.
    fn sleep(&self, time: Duration);
}
