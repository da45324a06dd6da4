//! What a leader does next with what is open, and what it forgets: pure functions.

use std::time::Duration;

/// Bytes of records in one entry; a larger record is an entry of its own.
pub const MAX_ENTRY_BYTES: u64 = 4 << 20;

/// Records for which nobody waits are open for so long at least, to be in one entry with what follows. Longer than an ordered
/// bulk of a thousand takes: of one that is cut the client waits for two entries, one after the other.
const GATHERS: Duration = Duration::from_millis(20);
/// Between two entries of which the first is not decided.
const APART: Duration = Duration::from_millis(2);
/// Entries that are not decided, at most, unless one is full.
const MOST_UNDECIDED: u64 = 8;
/// Those whose writes were decided are waited for with the next entry for so long at most.
const MOST_REGATHERS: Duration = Duration::from_millis(1);

/// What is open in a leader's journal, and what of its entries is on the way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpenLoad {
    /// Bytes of records that no entry has.
    pub(crate) bytes: u64,
    /// How long they have been open with nobody waiting for them; `None` where somebody does.
    pub(crate) unawaited: Option<Duration>,
    /// How many wait for them.
    pub(crate) waiting: u64,
    /// How many waited when the last entry was decided: those who were answered by it, and those who came meanwhile.
    pub(crate) writers: u64,
    /// Entries of this member that are not decided.
    pub(crate) undecided: u64,
    /// Since the last of them was made.
    pub(crate) since_made: Duration,
    /// Since it was decided, and how long that had taken; where it is.
    pub(crate) since_decided: Duration,
    pub(crate) took: Duration,
}

/// What a leader does about what is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closing {
    /// An entry is made of it.
    Now,
    /// So many are waited for, for so long: they are likely to be writing. What is decided is told with their entry.
    Regather(Duration, u64),
    /// It is looked at again after a while, or when so many wait for it.
    Later(Duration, u64),
}

/// Whether a leader makes an entry of what is open: an entry costs each member the same whatever it holds. Where none is on
/// its way, it waits for all who were writing when the last one was decided; but not for long: half of what that entry took.
/// So clients write together, and not half of them while the others wait. Where one is on its way, what comes meanwhile goes
/// into the next one, which is made when that one is decided, or a moment later where that takes long.
pub(crate) fn closing(open: &OpenLoad) -> Closing {
    if open.bytes >= MAX_ENTRY_BYTES {
        return Closing::Now;
    }
    let until_unawaited =
        open.unawaited.map_or(Duration::ZERO, |open| GATHERS.saturating_sub(open));
    let when_awaited = || match until_unawaited {
        Duration::ZERO => Closing::Now,
        left => Closing::Later(left, 0),
    };
    if open.undecided > 0 {
        let left = APART.saturating_sub(open.since_made);
        return if !left.is_zero() {
            // What decides one wakes who makes the next; whoever waits need not.
            Closing::Later(left, u64::MAX)
        } else if open.bytes > 0 && open.undecided < MOST_UNDECIDED {
            when_awaited()
        } else {
            Closing::Later(LATER, 0)
        };
    }
    let left = (open.took / 2).min(MOST_REGATHERS).saturating_sub(open.since_decided);
    if open.waiting < open.writers && !left.is_zero() {
        Closing::Regather(left, open.writers)
    } else if open.bytes == 0 {
        Closing::Later(LATER, 0)
    } else {
        when_awaited()
    }
}

/// There is nothing to be looked at.
const LATER: Duration = Duration::from_hours(1);

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

/// A member that is handed over to, and does nothing for so long, is waited for no more: nobody takes writes meanwhile.
const HANDS_OVER_MS: u64 = 1_000;

/// That time in ticks; never more than an election timeout.
pub(crate) fn hand_over_ticks(tick_ms: u64, election_ticks: u64) -> usize {
    let ticks = (HANDS_OVER_MS / tick_ms.max(1)).clamp(2, election_ticks.max(2));
    usize::try_from(ticks).unwrap_or(usize::MAX)
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
    fn a_hand_over_waits_a_second_or_an_election_timeout() {
        assert_eq!(hand_over_ticks(50, 40), 20);
        assert_eq!(hand_over_ticks(250, 40), 4);
        assert_eq!(hand_over_ticks(10, 40), 40);
        assert_eq!(hand_over_ticks(10_000, 40), 2);
        assert_eq!(hand_over_ticks(0, 0), 2);
    }

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn an_entry_is_made_when_none_is_on_its_way_or_it_is_full() {
        let closing = |bytes, unawaited, undecided, since_made| {
            closing(&OpenLoad { bytes, unawaited, undecided, since_made, ..OpenLoad::default() })
        };
        assert_eq!(closing(0, None, 0, us(9)), Closing::Later(LATER, 0));
        assert_eq!(closing(1, None, 0, us(0)), Closing::Now);
        // Nobody waits for it.
        assert_eq!(GATHERS, us(20_000));
        assert_eq!(closing(1, Some(us(500)), 0, us(9)), Closing::Later(us(19_500), 0));
        assert_eq!(closing(1, Some(GATHERS), 0, us(9)), Closing::Now);
        // One is on its way, whoever waits.
        assert_eq!(APART, us(2000));
        let on_its_way = Closing::Later(us(1), u64::MAX);
        assert_eq!(closing(0, None, 1, us(1999)), on_its_way);
        assert_eq!(closing(MAX_ENTRY_BYTES - 1, None, 1, us(1999)), on_its_way);
        // The way is long.
        assert_eq!(closing(1, None, 1, APART), Closing::Now);
        assert_eq!(closing(1, Some(us(0)), 1, APART), Closing::Later(GATHERS, 0));
        assert_eq!(closing(0, None, 1, APART), Closing::Later(LATER, 0));
        assert_eq!(closing(1, None, MOST_UNDECIDED - 1, APART), Closing::Now);
        assert_eq!(closing(1, None, MOST_UNDECIDED, us(1_000_000)), Closing::Later(LATER, 0));
        assert_eq!(closing(MAX_ENTRY_BYTES, Some(us(0)), MOST_UNDECIDED, us(0)), Closing::Now);
    }

    #[test]
    fn those_who_wrote_are_waited_for_a_moment() {
        let closing = |bytes, waiting, writers, since_decided, took| {
            let (since_decided, took) = (us(since_decided), us(took));
            closing(&OpenLoad {
                bytes,
                waiting,
                writers,
                since_decided,
                took,
                ..OpenLoad::default()
            })
        };
        assert_eq!(closing(1, 1, 1, 0, 800), Closing::Now, "a client alone waits for nobody");
        assert_eq!(closing(0, 0, 1, 0, 800), Closing::Regather(us(400), 1));
        assert_eq!(closing(0, 0, 1, 400, 800), Closing::Later(LATER, 0));
        assert_eq!(closing(0, 0, 0, 0, 800), Closing::Later(LATER, 0), "nobody waited");
        assert_eq!(closing(1, 1, 8, 0, 800), Closing::Regather(us(400), 8));
        assert_eq!(closing(1, 7, 8, 150, 800), Closing::Regather(us(250), 8));
        assert_eq!(closing(1, 8, 8, 0, 800), Closing::Now);
        assert_eq!(closing(1, 1, 8, 400, 800), Closing::Now, "the others do not come");
        assert_eq!(closing(1, 1, 8, 999, 90_000), Closing::Regather(us(1), 8));
        assert_eq!(closing(1, 1, 8, 1000, 90_000), Closing::Now, "what took long says little");
        assert_eq!(closing(MAX_ENTRY_BYTES, 1, 8, 0, 800), Closing::Now);
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
