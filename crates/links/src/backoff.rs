//! How long a member that cannot be reached is left alone.
//!
//! Always true: the pause is within its bounds, and grows until a connection has lived for a while.

use std::time::Duration;

/// The pauses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    least: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(least: Duration, most: Duration) -> Self {
        Self { least, most, next: least }
    }

    /// The pause after a connection that could not be opened, or that lived for so long.
    pub(crate) fn after(&mut self, lived: Option<Duration>) -> Duration {
        if lived.is_some_and(|lived| lived >= self.most) {
            self.next = self.least;
        }
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.most);
        pause
    }

    /// There is news of the member: the next pause is the shortest.
    pub(crate) fn reset(&mut self) {
        self.next = self.least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_connection_has_lived() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(50), ms(1000));
        let mut after = |lived: Option<u64>| backoff.after(lived.map(ms)).as_millis();
        let pauses: Vec<u128> = (0..7).map(|_| after(None)).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1000, 1000]);
        assert_eq!(after(Some(10)), 1000, "one that is opened and closed at once is no news");
        assert_eq!((after(Some(1000)), after(None)), (50, 100));
        backoff.reset();
        assert_eq!(backoff.after(None), ms(50));
    }
}
