//! Every ratio and period of scheduling: its unit, and where the number comes from.
//!
//! What depends on the machine or on a setting is not here: `settings::Sizes` has it.

use std::time::Duration;

/// The numbers that the policy decides by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    /// Urgency (1000 is a tree at its budget) from which on a second flusher helps. One that works
    /// on evenly disturbs others less than two that come and go: ADR 21.
    pub(crate) second_flusher_urgency: u64,
    /// Background work backs off for foreground reads when they waited for the disk for more than
    /// this part (one in so many) of the time that a unit took: ADR 21.
    pub(crate) read_wait_share: u64,
    /// The back-off, as a multiple of the time that the unit took: ADR 21.
    pub(crate) read_backoff_factor: u64,
    /// The longest back-off, in microseconds: ADR 21.
    pub(crate) max_read_backoff_us: u64,
    /// Time after a back-off, in microseconds, in which no second flusher helps: ADR 21, chosen
    /// with the back-off, not measured by itself.
    pub(crate) single_flusher_us: u64,
    /// Time between two looks for trees whose reads have paid for a flush, in microseconds: five a
    /// second, as often as a flusher tries again after a failure.
    pub(crate) wanted_period_us: u64,

    /// How long a flusher that is not needed waits before it looks again: an eighth of the shortest
    /// units there are (ADR 23).
    pub(crate) spare_wait: Duration,
    /// How long a flusher waits for what no unit of the queue will tell it of: an insert into a
    /// sealed memtable ends within microseconds.
    pub(crate) busy_wait: Duration,
    /// How long a flusher waits after a failure before it tries again, and without work before it
    /// looks for what idle time is for.
    pub(crate) retry: Duration,
    /// The log says once in so long that background work finds the disk full: every flusher finds it at
    /// every try.
    pub(crate) full_logged: Duration,
    /// Up to so many trees are all compared before a unit is begun in one of them.
    pub(crate) compared: usize,
    /// Where there are more, so many in turn: with tens of thousands in the queue, most of them small, comparing
    /// more would take longer than the unit, and keep whoever has news for the queue waiting.
    pub(crate) compared_in_turn: usize,

    /// The time between two rounds of the maintenance thread. Ten times as often it fits the
    /// budget and makes the next log file.
    pub(crate) round: Duration,
    /// Rounds of the maintenance thread (of a second each) without commits, and with no more
    /// snapshots than `few_snapshots`, after which the engine is idle: ADR 23.
    pub(crate) idle_rounds: u64,
    /// Snapshots in a round that are nobody's work, but those of who watches the server: ADR 23.
    pub(crate) few_snapshots: u64,
    /// Commits in a round that are nobody's load, but the server's own: ADR 29.
    pub(crate) few_commits: u64,
    /// Rounds with no more commits than `few_commits` after which memtables are drained, whoever
    /// reads: ADR 29.
    pub(crate) unwritten_rounds: u64,
    /// Bytes from which on a memtable is drained then. Less would make runs so short that reads pay
    /// for them: ADR 23.
    pub(crate) idle_seal_bytes: u64,
    /// Bytes freed by the cleaner of an idle engine after which a checkpoint gives them back. It
    /// frees more than a period's work does, and the file must not grow by that: ADR 23.
    pub(crate) cleaned_bytes: u64,
    /// The least time between two checkpoints that are written for the space they give back, in
    /// microseconds: ADR 28.
    pub(crate) between_space_checkpoints_us: u64,

    /// Of what nothing else in the cache takes, memtables get so many of eight parts: ADR 17.
    pub(crate) budget_eighths: u64,
    /// A budget too large for what the cache has left shrinks by one part in so many of the
    /// difference each time it is fitted: writers are not held up at once because somebody reads.
    /// ADR 17.
    pub(crate) budget_gives_way: u64,
    /// A memtable that may grow with the budget is sealed at so much of it, as a fraction: its
    /// drain is done before another one fills the rest. ADR 18.
    pub(crate) grown_share: (u64, u64),
    /// As a fraction, where the budget has not grown: the other half is for what comes while it is
    /// drained. From before ADR 17, chosen.
    pub(crate) least_share: (u64, u64),
    /// A memtable is sealed at so many bytes at the latest: a drain frees all of its memory at its
    /// end. ADR 17.
    pub(crate) largest_memtable: u64,
    /// The largest memtables are sealed until the active ones hold so many quarters of what
    /// they may: chosen, so that one look is not followed by the next at once.
    pub(crate) sealed_to_quarters: u64,
    /// Writers are slowed above so many eighths of a budget that has grown (ADR 18)…
    pub(crate) grown_slows_at_eighths: u64,
    /// …and of one that has not: chosen, so that a drain has a quarter of the budget's time.
    pub(crate) least_slows_at_eighths: u64,
    /// Writers wait until there is room above so many quarters of the budget: the bound of memory
    /// that the design's gate G6 allows for.
    pub(crate) hard_quarters: u64,
    /// A transaction that brings so many bytes is large: it waits for the cache's bound, which the
    /// documents of usual writers do not move (ADR 27).
    pub(crate) large_bytes: u64,
    /// Who has no flushers beside it works itself above so many quarters of the budget: where
    /// writers are slowed otherwise.
    pub(crate) alone_quarters: u64,
    /// The longest delay of a writer, in nanoseconds for each piece: the design's millisecond.
    pub(crate) longest_delay_ns: u64,
    /// A piece, in bytes: writes wait piece by piece, so that the commit of a large transaction
    /// finds that it has waited already.
    pub(crate) piece_bytes: u64,
    /// The most pieces that one wait is for: 50 ms, chosen.
    pub(crate) most_pieces: u64,
    /// A delay shorter than this, in nanoseconds, is owed until it is as long: a sleep of 10 µs
    /// takes 70. ADR 18.
    pub(crate) shortest_delay_ns: u64,
    /// How often a writer at the hard bound asks for more than room: whether its operation goes on,
    /// and whether the disk is full. Each time it also says that memory fills
    /// ([`filling_us`](Self::filling_us)).
    pub(crate) room_check: Duration,
    /// A writer at the hard bound gives up after this long without room: background work is
    /// stalled.
    pub(crate) stuck: Duration,
    /// A wait for memory above this is an event of its own (`longWaitEvents.cachePressure`).
    pub(crate) long_stall: Duration,
    /// The rate of draining counts from so much busy time on, in microseconds…
    pub(crate) rate_least_us: u64,
    /// …and is the mean of about so much: a drain is a second's work and frees all its memory at
    /// its end, and merges between drains free none.
    pub(crate) rate_window_us: u64,
    /// Taken for the rate of draining before it was measured, in bytes per second.
    pub(crate) first_rate: u64,
    /// The least rate of draining that is believed, in bytes per second.
    pub(crate) least_rate: u64,
    /// What a writer has found of memory counts for so many microseconds: ADR 21.
    pub(crate) filling_us: u64,
    /// Between two looks for the largest memtables memory grows by one part in so many of the
    /// budget. A look costs as much as there are dictionaries that were written to.
    pub(crate) seal_looks: u64,

    /// How often the checkpoint thread looks whether a checkpoint is due: chosen, well below the
    /// shortest period that somebody sets.
    pub(crate) checkpoint_look: Duration,
    /// How often the disk's free space is measured: a fast disk writes 100 MB meanwhile (ADR 28).
    pub(crate) measured: Duration,
    /// A commit without disk space waits so long for a checkpoint to give some back: ADR 28.
    pub(crate) space_wait: Duration,
    /// How often it looks meanwhile.
    pub(crate) space_look: Duration,
    /// How long who drains a tree, or rewrites it, waits for others that are at work there.
    pub(crate) beside_others: Duration,
    /// While clients use the engine a unit of a rewrite is followed by a pause as long as it took,
    /// at most this: the rewrite then takes half of one core and leaves the disk to others half of
    /// the time.
    pub(crate) rewrite_pause: Duration,
    /// Commits and reads in a second that are nobody's work: of who watches the server, and of the
    /// rewrite's own reports.
    pub(crate) rewrite_few_uses: u64,

    /// Free space of the data file beyond one part in so many of what is in use is given back to
    /// the filesystem also while somebody works.
    pub(crate) much_free_share: u64,
    /// Holes of the data file that one round gives back, at most.
    pub(crate) punches: usize,
    /// Bytes that one idle round moves towards the file's start, at most.
    pub(crate) move_bytes: u64,
    /// So many bytes of log in memory wake the log's thread before its time, so that a commit finds
    /// room in the buffer.
    pub(crate) write_early_bytes: u64,
}

impl Tuning {
    /// What the engine runs with.
    pub(crate) const STANDARD: Self = Self {
        second_flusher_urgency: 3000,
        read_wait_share: 4,
        read_backoff_factor: 3,
        max_read_backoff_us: 1_000_000,
        single_flusher_us: 200_000,
        wanted_period_us: 200_000,
        spare_wait: Duration::from_millis(10),
        busy_wait: Duration::from_millis(1),
        retry: Duration::from_millis(200),
        full_logged: Duration::from_secs(10),
        compared: 256,
        compared_in_turn: 32,
        round: Duration::from_secs(1),
        idle_rounds: 3,
        few_snapshots: 100,
        few_commits: 10,
        unwritten_rounds: 1,
        idle_seal_bytes: 1 << 20,
        cleaned_bytes: 256 << 20,
        between_space_checkpoints_us: 1_000_000,
        budget_eighths: 7,
        budget_gives_way: 16,
        grown_share: (2, 3),
        least_share: (1, 2),
        largest_memtable: 256 << 20,
        sealed_to_quarters: 3,
        grown_slows_at_eighths: 7,
        least_slows_at_eighths: 6,
        hard_quarters: 5,
        large_bytes: 256 << 10,
        alone_quarters: 3,
        longest_delay_ns: 1_000_000,
        piece_bytes: 16 << 10,
        most_pieces: 50,
        shortest_delay_ns: 200_000,
        room_check: Duration::from_millis(25),
        stuck: Duration::from_mins(2),
        long_stall: Duration::from_secs(1),
        rate_least_us: 200_000,
        rate_window_us: 4_000_000,
        first_rate: 20 << 20,
        least_rate: 1 << 20,
        filling_us: 100_000,
        seal_looks: 64,
        checkpoint_look: Duration::from_millis(200),
        measured: Duration::from_millis(100),
        space_wait: Duration::from_secs(3),
        space_look: Duration::from_millis(10),
        beside_others: Duration::from_millis(1),
        rewrite_pause: Duration::from_millis(500),
        rewrite_few_uses: 50,
        much_free_share: 4,
        punches: 64,
        move_bytes: 16 << 20,
        write_early_bytes: 1 << 20,
    };
}
