//! What a leader does next with what is open, and what it forgets: pure functions.

/// Bytes of records in one entry; a larger record is an entry of its own.
pub const MAX_ENTRY_BYTES: u64 = 4 << 20;

/// Records for which nobody waits are open for so long at least, to be in one entry with what follows.
pub(crate) const GATHERS_MS: u64 = 2;

/// What is open in a leader's journal, and what of its entries is on the way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpenLoad {
    /// Bytes of records that no entry has.
    pub(crate) bytes: u64,
    /// Somebody waits for them, or they have been open for a while.
    pub(crate) is_due: bool,
    /// Entries of this member that are not decided.
    pub(crate) undecided: u64,
    /// Milliseconds since the last of them was made.
    pub(crate) since_last_ms: u64,
}

/// Between two entries of which the first is not decided.
const APART_MS: u64 = 2;
/// Entries that are not decided, at most, unless one is full.
const MOST_UNDECIDED: u64 = 8;

/// Whether a leader makes an entry of what is open. At once where none is on its way: else what comes meanwhile goes into
/// the next one, which is made when that one is decided, or a moment later where that takes long. An entry costs each
/// member the same whatever it holds.
pub(crate) fn closes(open: &OpenLoad) -> bool {
    let OpenLoad { bytes, is_due, undecided, since_last_ms } = *open;
    let has_way = undecided == 0 || since_last_ms >= APART_MS && undecided < MOST_UNDECIDED;
    bytes >= MAX_ENTRY_BYTES || bytes > 0 && is_due && has_way
}

/// Entries that stay in memory behind the slowest member, for those that come back after a moment.
const KEPT: u64 = 4096;

/// Up to where entries in memory may go, given how far the others are.
pub(crate) fn forgets(applied: u64, matched: impl Iterator<Item = u64>) -> u64 {
    matched.chain([applied]).min().unwrap_or(0).saturating_sub(KEPT)
}

/// Ticks that are due. After a pause (of the process, of the machine) the past is not made up for:
/// a member that slept must hear its leader before it looks for another one.
pub(crate) fn ticks(elapsed_ms: u64, tick_ms: u64) -> u64 {
    (elapsed_ms / tick_ms).min(3)
}

/// How long a tick is, for an election to begin after that time without a word from the leader: what raft counts
/// in ticks is fixed while a member runs. No time is shorter than the ticks that `least` counts at their usual length.
pub(crate) fn tick_ms(election_ms: u64, election_ticks: u64, least: u64) -> u64 {
    (election_ms.max(least) / election_ticks.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_as_long_as_the_election_timeout_asks() {
        assert_eq!(tick_ms(2_000, 40, 500), 50);
        assert_eq!(tick_ms(10_000, 40, 500), 250);
        assert_eq!(tick_ms(2_000, 200, 500), 10);
        assert_eq!(tick_ms(1, 40, 500), 12, "what is too short is as long as it may be");
        assert_eq!(tick_ms(0, 1_000, 0), 1);
    }

    #[test]
    fn an_entry_is_made_of_what_is_due_when_none_is_on_its_way_or_it_is_full() {
        let closes = |bytes, is_due, undecided, since_last_ms| {
            closes(&OpenLoad { bytes, is_due, undecided, since_last_ms })
        };
        assert!(!closes(0, true, 0, 9));
        assert!(closes(1, true, 0, 0));
        assert!(!closes(1, false, 0, 9), "nobody waits for it");
        assert!(!closes(MAX_ENTRY_BYTES - 1, true, 1, APART_MS - 1));
        assert!(closes(1, true, 1, APART_MS), "the way is long");
        assert!(closes(1, true, MOST_UNDECIDED - 1, APART_MS));
        assert!(!closes(1, true, MOST_UNDECIDED, 1000));
        assert!(closes(MAX_ENTRY_BYTES, false, MOST_UNDECIDED, 0));
    }

    #[test]
    fn what_no_member_needs_soon_is_forgotten() {
        assert_eq!(forgets(10_000, [20_000, 9_000].into_iter()), 9_000 - KEPT);
        assert_eq!(forgets(5_000, [20_000].into_iter()), 5_000 - KEPT);
        assert_eq!(forgets(5_000, [0].into_iter()), 0);
        assert_eq!(forgets(9_000, std::iter::empty()), 9_000 - KEPT);
    }

    #[test]
    fn a_pause_is_three_ticks_long() {
        assert_eq!(ticks(49, 50), 0);
        assert_eq!(ticks(149, 50), 2);
        assert_eq!(ticks(10_000_000, 50), 3);
    }
}
