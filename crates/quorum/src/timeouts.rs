//! When a member campaigns: pure functions of its settings and a random number.
//!
//! A member's rank makes its timeout longer and its vote no different, so that a member of higher
//! priority comes first where it can, and no set is ever without leader because of priorities.

/// No member ever waits so long: for members that never campaign.
pub(crate) const NEVER: usize = usize::MAX - 1;

/// How often a member that was told that the leader's port is closed campaigns in haste before it
/// takes its usual time again.
pub(crate) const HASTY_ATTEMPTS: u32 = 8;

/// Ticks of silence after which a member campaigns: uniform in [1, 1.5) of `election`, and a tenth of
/// `election` more for each rank.
pub(crate) fn usual(election: usize, rank: u32, random: u64) -> usize {
    let spread = (election / 2).max(1) as u64;
    let rank = (rank as usize).min(50);
    election + (random % spread) as usize + rank * election / 10
}

/// Ticks until a member whose leader is known to be gone asks for votes: 0 to 3 ticks and its rank,
/// behind the `election` ticks that raft counts at least. Those who have not heard of it yet do not
/// answer, so each attempt that follows waits a little longer.
pub(crate) fn hasty(election: usize, rank: u32, attempt: u32, random: u64) -> usize {
    let spread = 4 + 2 * u64::from(attempt.min(HASTY_ATTEMPTS));
    election + (random % spread) as usize + (rank as usize).min(50)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_stay_in_their_range_and_ranks_come_later() {
        for random in [0, 1, 7, 19, 20, u64::MAX] {
            let first = usual(40, 0, random);
            assert!((40..60).contains(&first), "{first}");
            assert_eq!(usual(40, 3, random), first + 12);
            assert!(usual(2, 0, random) == 2);
            assert!(usual(40, u32::MAX, random) < NEVER);
        }
    }

    #[test]
    fn who_knows_that_the_leader_is_gone_asks_at_once() {
        for random in [0, 1, 3, 4, u64::MAX] {
            assert!((40..44).contains(&hasty(40, 0, 0, random)));
            assert!((40..60).contains(&hasty(40, 0, HASTY_ATTEMPTS, random)));
            assert!((42..46).contains(&hasty(40, 2, 0, random)), "a rank is a tick");
        }
    }
}
