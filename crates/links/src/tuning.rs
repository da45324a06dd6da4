//! Sizes and times of links.

use std::time::Duration;

/// Sizes and times. The defaults are for a server; tests have shorter ones.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// Bytes that wait to be sent to one member at most, or one frame.
    pub queue_bytes: usize,
    /// Bytes that have come from one member at most, or one frame.
    pub share_bytes: usize,
    /// Bytes that have come from all members at most, or one frame.
    pub inbox_bytes: usize,
    /// For a connection to one address.
    pub connect: Duration,
    /// For the hello and its answer.
    pub hello: Duration,
    /// A member that takes nothing for so long is given up.
    pub stalled: Duration,
    /// Between two tries at least.
    pub least_pause: Duration,
    /// And at most.
    pub most_pause: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            queue_bytes: 32 << 20,
            share_bytes: 16 << 20,
            inbox_bytes: 32 << 20,
            connect: Duration::from_secs(2),
            hello: Duration::from_secs(3),
            stalled: Duration::from_secs(5),
            least_pause: Duration::from_millis(50),
            most_pause: Duration::from_secs(1),
        }
    }
}
