//! What a leader does next with what is open, and what it forgets: pure functions.

/// Bytes of records in one entry; a larger record is an entry of its own.
pub const MAX_ENTRY_BYTES: u64 = 4 << 20;

/// Entries of a leader whose sync it waits for, beside the one that is being gathered.
const UNSYNCED: usize = 2;

/// Whether a leader makes an entry of what is open: at once where the disk has nothing to do, else when
/// the entries before it are synced or what is open fills an entry. So one sync covers what came during
/// the one before.
pub(crate) fn closes(open_bytes: u64, unsynced: usize) -> bool {
    open_bytes > 0 && (unsynced < UNSYNCED || open_bytes >= MAX_ENTRY_BYTES)
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
    fn an_entry_is_made_when_the_disk_is_free_or_it_is_full() {
        assert!(!closes(0, 0));
        assert!(closes(1, 0));
        assert!(closes(1, 1));
        assert!(!closes(MAX_ENTRY_BYTES - 1, 2));
        assert!(closes(MAX_ENTRY_BYTES, 2));
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
