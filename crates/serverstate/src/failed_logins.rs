//! Logins that failed, by the address that they came from: who guesses passwords waits for each answer.
//!
//! Always true: the table has at most [`MOST_NETWORKS`] rows; what is older than [`WINDOW`] counts for nothing.

use limits::network_of;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// Failures are counted for so long.
const WINDOW: Duration = Duration::from_mins(1);
/// So many of them cost nothing: people mistype, and programs try again.
const FREE: u32 = 10;
/// What the first one costs that does.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// Each further so many double it.
const DOUBLES_EACH: u32 = 10;
/// And never more than this.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// Addresses that are known at a time; the oldest goes.
const MOST_NETWORKS: usize = 65_536;

/// The failures.
#[derive(Default)]
pub struct FailedLogins(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// By network.
    counts: BTreeMap<u128, Row>,
    /// The rows in the order of their beginnings.
    order: VecDeque<(Duration, u128)>,
}

/// The failures from one network.
#[derive(Clone, Copy)]
struct Row {
    count: u32,
    /// When the last one was.
    last: Duration,
}

impl FailedLogins {
    /// Counts one.
    pub fn count(&self, from: IpAddr, now: Duration) {
        let mut table = self.0.lock();
        table.forget(now);
        let network = network_of(from);
        if let Some(row) = table.counts.get_mut(&network) {
            *row = Row { count: row.count.saturating_add(1), last: now };
            return;
        }
        if table.counts.len() == MOST_NETWORKS
            && let Some((_, oldest)) = table.order.pop_front()
        {
            table.counts.remove(&oldest);
        }
        table.counts.insert(network, Row { count: 1, last: now });
        table.order.push_back((now, network));
    }

    /// How long the next login from there waits for its answer.
    pub fn wait(&self, from: IpAddr, now: Duration) -> Duration {
        let mut table = self.0.lock();
        table.forget(now);
        table.counts.get(&network_of(from)).map_or(Duration::ZERO, |row| wait_after(row.count))
    }

    /// Whether a login from there is too early, for who cannot let it wait: it is refused without a look at it.
    pub fn is_too_early(&self, from: IpAddr, now: Duration) -> bool {
        let mut table = self.0.lock();
        table.forget(now);
        table
            .counts
            .get(&network_of(from))
            .is_some_and(|row| now.saturating_sub(row.last) < wait_after(row.count))
    }
}

impl Table {
    fn forget(&mut self, now: Duration) {
        while let Some((since, network)) = self.order.front().copied() {
            if now.saturating_sub(since) < WINDOW {
                break;
            }
            self.order.pop_front();
            self.counts.remove(&network);
        }
        debug_assert_eq!(
            self.counts.len(),
            self.order.len(),
            "each row has one place in the order"
        );
    }
}

/// How long a login waits after so many that failed.
fn wait_after(count: u32) -> Duration {
    match count.checked_sub(FREE) {
        None => Duration::ZERO,
        Some(more) => {
            let doubled = FIRST_WAIT.saturating_mul(1 << (more / DOUBLES_EACH).min(10));
            doubled.min(LONGEST_WAIT)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_guesses_waits_longer_and_longer() {
        for (count, ms) in [
            (0, 0),
            (9, 0),
            (10, 100),
            (19, 100),
            (20, 200),
            (40, 800),
            (60, 2000),
            (u32::MAX, 2000),
        ] {
            assert_eq!(wait_after(count), Duration::from_millis(ms), "{count}");
        }
    }

    #[test]
    fn failures_of_one_address_are_no_others_and_are_forgotten() {
        let failed = FailedLogins::default();
        let at = |text: &str| text.parse::<IpAddr>().expect("an address");
        let second = Duration::from_secs;
        for _ in 0..10 {
            failed.count(at("10.0.0.1"), second(1));
        }
        assert_eq!(failed.wait(at("10.0.0.1"), second(2)), FIRST_WAIT);
        assert_eq!(failed.wait(at("10.0.0.2"), second(2)), Duration::ZERO);
        assert_eq!(failed.wait(at("10.0.0.1"), second(61)), Duration::ZERO);
        failed.count(at("10.0.0.1"), second(62));
        assert_eq!(failed.wait(at("10.0.0.1"), second(62)), Duration::ZERO);
    }

    #[test]
    fn who_cannot_wait_is_refused_until_he_would_have_been_answered() {
        let failed = FailedLogins::default();
        let (from, ms) = ("10.0.0.1".parse().expect("an address"), Duration::from_millis);
        for at in 0..FREE {
            assert!(!failed.is_too_early(from, ms(u64::from(at))), "{at}");
            failed.count(from, ms(u64::from(at)));
        }
        for (at, expected) in [(9, true), (108, true), (109, false), (60_001, false)] {
            assert_eq!(failed.is_too_early(from, ms(at)), expected, "at {at} ms");
        }
        assert!(!failed.is_too_early("10.0.0.2".parse().expect("an address"), ms(9)));
    }

    #[test]
    fn the_table_is_bounded() {
        let failed = FailedLogins::default();
        for network in 0..MOST_NETWORKS as u64 + 100 {
            let address =
                IpAddr::from(std::net::Ipv6Addr::from_bits(u128::from(network) << 64 | 1 << 127));
            failed.count(address, Duration::from_millis(network / 10_000));
        }
        let table = failed.0.lock();
        assert_eq!((table.counts.len(), table.order.len()), (MOST_NETWORKS, MOST_NETWORKS));
    }
}
