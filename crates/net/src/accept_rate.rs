//! How fast connections are taken in: a bucket of tokens that fills at a rate, from which each connection takes one.
//!
//! Always true: what is decided depends on the times that are handed in alone.

use std::time::Duration;

/// Parts of a token: a fill of a nanosecond is a whole number of them.
const PARTS: u128 = 1_000_000_000;

/// The bucket. It begins full.
#[derive(Default, Debug)]
pub(crate) struct TokenBucket {
    /// What was taken out and has not come again, in parts.
    missing: u128,
    /// When that was last counted.
    counted: Duration,
}

impl TokenBucket {
    /// Takes one token where there is one. `rate`: tokens that come a second, and that fit.
    pub(crate) fn take(&mut self, now: Duration, (per_second, most): (u64, u64)) -> bool {
        self.fill(now, per_second);
        if self.missing + PARTS > u128::from(most) * PARTS {
            return false;
        }
        self.missing += PARTS;
        true
    }

    /// How long from `now` on until the next token is there, if nobody takes any.
    pub(crate) fn next(&self, now: Duration, (per_second, most): (u64, u64)) -> Duration {
        let over = (self.missing + PARTS).saturating_sub(u128::from(most) * PARTS);
        let nanos = over.div_ceil(u128::from(per_second.max(1)));
        let at = self.counted + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        at.saturating_sub(now)
    }

    fn fill(&mut self, now: Duration, per_second: u64) {
        let passed = now.saturating_sub(self.counted).as_nanos();
        self.missing = self.missing.saturating_sub(passed.saturating_mul(u128::from(per_second)));
        self.counted = now.max(self.counted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_come_at_once_and_then_so_many_a_second() {
        let mut bucket = TokenBucket::default();
        let rate = (20, 40);
        let at = Duration::from_millis;
        let taken =
            |bucket: &mut TokenBucket, now| (0..100).filter(|_| bucket.take(now, rate)).count();
        assert_eq!(taken(&mut bucket, at(0)), 40);
        assert_eq!(bucket.next(at(0), rate), at(50));
        assert_eq!(bucket.next(at(30), rate), at(20));
        for (now, expected) in [(49, 0), (50, 1), (99, 0), (100, 1), (1100, 20), (60_000, 40)] {
            assert_eq!(taken(&mut bucket, at(now)), expected, "at {now} ms");
        }
        // A clock that stands still fills nothing, and a rate that was lowered holds at once.
        assert!(!bucket.take(at(60_000), rate) && !bucket.take(at(60_050), (1, 1)));
    }
}
