//! How many bytes a second something may move that goes beside the clients' work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes a second; 0 for as fast as it goes.
#[derive(Debug, Default)]
pub struct Rate(AtomicU64);

impl Rate {
    /// So many from now on; what it was.
    pub fn set(&self, bytes_per_second: u64) -> u64 {
        self.0.swap(bytes_per_second, Ordering::Relaxed)
    }

    /// Where it is kept.
    pub fn bytes_per_second(&self) -> &AtomicU64 {
        &self.0
    }

    /// How long to wait after so many bytes were moved in this time.
    pub fn pause_after(&self, bytes: u64, time: Duration) -> Duration {
        pause(bytes, time, self.0.load(Ordering::Relaxed))
    }
}

fn pause(bytes: u64, time: Duration, bytes_per_second: u64) -> Duration {
    match (u128::from(bytes) * 1_000_000_000).checked_div(u128::from(bytes_per_second)) {
        None => Duration::ZERO,
        Some(nanos) => {
            let due = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            due.saturating_sub(time)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_ahead_of_the_rate_waits_for_as_long() {
        let (second, none) = (Duration::from_secs(1), Duration::ZERO);
        for (bytes, time, rate, expected) in [
            (10, none, 0, none),
            (10, none, 10, second),
            (10, second / 4, 10, second * 3 / 4),
            (10, second * 2, 10, none),
            (u64::MAX, none, 1, Duration::from_nanos(u64::MAX)),
        ] {
            assert_eq!(pause(bytes, time, rate), expected, "{bytes} {time:?} {rate}");
        }
    }

    #[test]
    fn a_rate_is_what_was_set_last() {
        let rate = Rate::default();
        assert_eq!((rate.set(7), rate.set(10)), (0, 7));
        assert_eq!(rate.pause_after(20, Duration::ZERO), Duration::from_secs(2));
    }
}
