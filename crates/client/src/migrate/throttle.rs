//! Holds a migration to so many bytes a second.
//!
//! Always true: what was let through never exceeds the rate times the time since the start by more than one batch.

use os::Os;
use std::sync::Mutex;
use std::time::Duration;

/// The bytes so far; shared by all readers.
pub(crate) struct Throttle {
    os: Os,
    /// Bytes a second; 0 for no bound.
    rate: u64,
    began: Duration,
    bytes: Mutex<u64>,
}

impl Throttle {
    pub(crate) fn new(os: &Os, rate: u64) -> Self {
        Self { os: os.clone(), rate, began: os.clock.monotonic(), bytes: Mutex::new(0) }
    }

    /// Waits until these bytes may go.
    pub(crate) fn wait_for(&self, bytes: u64) {
        if self.rate == 0 {
            return;
        }
        let before = {
            let mut all = self.bytes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let before = *all;
            *all += bytes;
            before
        };
        let elapsed = self.os.clock.monotonic().saturating_sub(self.began);
        self.os.clock.sleep(pause(before, self.rate, elapsed));
    }
}

/// How long to wait where so many bytes were let through before.
fn pause(before: u64, rate: u64, elapsed: Duration) -> Duration {
    Duration::from_secs_f64(before as f64 / rate as f64).saturating_sub(elapsed)
}

/// Bytes by a text as `10MB`, `512k` or `1g`; units are powers of 1024.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match lower[digits.len()..].trim_end_matches('b').trim_end_matches('i') {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return Err(format!("{text}: no number of bytes, as 10MB")),
    };
    let number: u64 =
        digits.trim().parse().map_err(|_| format!("{text}: no number of bytes, as 10MB"))?;
    number.checked_mul(factor).ok_or_else(|| format!("{text}: too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_what_the_rate_asks_for() {
        for (before, elapsed, expected) in [(0, 0, 0), (1000, 0, 10), (1000, 4, 6), (1000, 20, 0)] {
            let found = pause(before, 100, Duration::from_secs(elapsed));
            assert_eq!(found, Duration::from_secs(expected));
        }
    }

    #[test]
    fn bytes_have_units() {
        for (text, expected) in [
            ("0", Some(0)),
            ("10MB", Some(10 << 20)),
            ("10 MiB", Some(10 << 20)),
            ("512k", Some(512 << 10)),
            ("1g", Some(1 << 30)),
            ("7b", Some(7)),
            ("x", None),
            ("10 parsecs", None),
            ("99999999999g", None),
        ] {
            assert_eq!(parse_bytes(text).ok(), expected, "{text}");
        }
    }
}
