//! What links do and why they fail, told once: members try again every second, and a log is to be read by
//! people.

use std::collections::BTreeMap;
use std::time::Duration;

/// Members that causes are kept of.
const MAX_KEPT: usize = 128;
/// A connection that lived for so long is an event of its own; its end is told whatever was told before.
const LIVED: Duration = Duration::from_secs(10);

/// What was told last of each member.
#[derive(Debug, Default)]
pub(crate) struct Causes(BTreeMap<u64, Notice>);

#[derive(Debug, Default)]
struct Notice {
    cause: Option<String>,
    open: bool,
}

impl Causes {
    fn of(&mut self, member: u64) -> &mut Notice {
        if self.0.len() >= MAX_KEPT && !self.0.contains_key(&member) {
            // Anybody can say that he is somebody else.
            self.0.clear();
        }
        self.0.entry(member).or_default()
    }

    /// A link of that member failed; whether the cause is to be told.
    pub(crate) fn failed(&mut self, of: u64, cause: &str) -> bool {
        let told = self.of(of);
        if told.cause.as_deref() == Some(cause) {
            return false;
        }
        *told = Notice { cause: Some(cause.to_owned()), open: false };
        true
    }

    /// A link of that member was opened; whether that is to be told.
    pub(crate) fn opened(&mut self, of: u64) -> bool {
        !std::mem::replace(&mut self.of(of).open, true)
    }

    /// The link of that member that ends now had lived for so long.
    pub(crate) fn lived(&mut self, of: u64, time: Duration) {
        if time >= LIVED {
            self.0.remove(&of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_told_once_until_there_is_another() {
        let mut causes = Causes::default();
        assert!(causes.failed(1, "a") && !causes.failed(1, "a") && causes.failed(2, "a"));
        assert!(causes.failed(1, "b") && causes.failed(1, "a"));
        for of in 0..10_000 {
            causes.failed(of, "a");
            assert!(causes.0.len() <= MAX_KEPT);
        }
    }

    #[test]
    fn a_link_that_opens_and_fails_all_the_time_is_told_of_once() {
        let mut causes = Causes::default();
        assert!(causes.opened(1) && causes.failed(1, "a"));
        assert!(causes.opened(1), "it is well again");
        for _ in 0..3 {
            causes.lived(1, LIVED / 2);
            assert!(!causes.failed(1, "a") && !causes.opened(1));
        }
        causes.lived(1, LIVED);
        assert!(causes.failed(1, "a") && causes.opened(1), "that was an event of its own");
    }
}
