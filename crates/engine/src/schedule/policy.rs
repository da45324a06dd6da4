//! What is to be done: pure functions of a load and the tuning.
//!
//! | Question | Function |
//! |---|---|
//! | what a flusher does next | [`decide`] |
//! | how long work backs off for reads | [`read_backoff`] |
//! | which trees the cleaner visits | [`cleaner_pass`], [`cleaner_effort`] |
//! | whether a checkpoint is due | [`checkpoint`] |
//! | whether anybody uses the engine | [`after_round`], [`is_idle`], [`seals_unwritten`] |
//! | what memory writes may take | [`fit_budget`] |
//! | which memtables are sealed | [`memtable_limit`], [`seals_at`], [`to_seal`] |
//! | how long a writer waits | [`admit`], [`pays_now`] |
//! | what the data file gives back | [`give_space_back`] |
//! | how long a rewrite pauses | [`rewrite_pause`] |
//!
//! What is always true: the same arguments give the same answer, on every thread and at any time.

#[cfg(test)]
mod tests;

use super::load::{
    Activity, BudgetLoad, CacheLoad, CheckpointLoad, CleanerLoad, IdleWork, Load, ReadBackoff,
    Rounds, SpaceLoad, TreeLoad, Usage, WriterLoad,
};
use crate::tuning::Tuning;
use ftree::Effort;
use std::cmp::Reverse;
use std::time::Duration;

/// What a flusher does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// A unit of work in this tree.
    Unit {
        /// The dictionary.
        tree: u64,
        /// How much the unit may be.
        effort: Effort,
    },
    /// There is work, and others are enough for it: it waits a little and asks again.
    Spare,
    /// The flushes that reads have paid for.
    ServeReads,
    /// A pass of the cleaner.
    Clean,
    /// It waits for work.
    Wait,
}

/// What a flusher does next: a unit in the tree with the largest debt, or nothing while others are
/// enough, or what idle time is for.
///
/// Where writers will not soon be slowed, nothing is begun during a back-off for reads, and nothing
/// beside others at work unless a tree is far over its budget or nobody uses the engine: otherwise
/// one flusher is enough, and the other cores are the clients' (ADR 21, 23).
pub(crate) fn decide(load: &Load, tuning: &Tuning) -> Decision {
    let ReadBackoff { left_us, since_us } = load.reads;
    debug_assert!(left_us == 0 || since_us == 0, "a back-off lasts or is over");
    let idle = is_idle(&load.activity, tuning);
    let Some(heaviest) = heaviest(&load.trees) else {
        return when_nothing_is_needed(load, idle, tuning);
    };
    let is_backing_off = left_us > 0;
    let is_single = is_backing_off || since_us < tuning.single_flusher_us;
    let is_enough = (heaviest.urgency < tuning.second_flusher_urgency && !idle) || is_single;
    let is_spare = is_backing_off || (load.working > 0 && is_enough);
    let is_filling = load.since_filling_us < tuning.filling_us;
    if is_spare && !is_filling {
        return Decision::Spare;
    }
    // While half of the flushers merge the others do not, unless nobody uses the engine: a second's
    // writes wait for drains meanwhile (ADR 23).
    let effort = if idle { Effort::Needed } else { Effort::Paced };
    Decision::Unit { tree: heaviest.tree, effort }
}

/// What frees memory comes first, then what is most over its budget; of equals the first.
fn heaviest(trees: &[TreeLoad]) -> Option<&TreeLoad> {
    let debt = |tree: &TreeLoad| (tree.sealed_bytes, tree.urgency);
    trees.iter().reduce(|most, tree| if debt(tree) > debt(most) { tree } else { most })
}

fn when_nothing_is_needed(load: &Load, idle: bool, tuning: &Tuning) -> Decision {
    if is_due(load.since_wanted_us, tuning.wanted_period_us) {
        Decision::ServeReads
    } else if is_clean_due(&load.cleaner, idle) {
        Decision::Clean
    } else {
        Decision::Wait
    }
}

/// Whether a period (0 is never) is over.
pub(crate) fn is_due(since_us: u64, period_us: u64) -> bool {
    period_us > 0 && since_us >= period_us
}

/// The cleaner's period is over, or nobody uses the engine and there is more to clean (ADR 23).
fn is_clean_due(cleaner: &CleanerLoad, idle: bool) -> bool {
    let more = cleaner.found && is_cleaning(cleaner) && idle;
    is_due(cleaner.since_us, cleaner.period_us) || more
}

/// There is a cleaner.
pub(crate) fn is_cleaning(cleaner: &CleanerLoad) -> bool {
    cleaner.period_us > 0 && cleaner.units > 0
}

/// The trees that a pass of the cleaner visits, one unit each, in this order: what waits in buffers
/// first, then what could be dropped, then what is lightly compressed.
pub(crate) fn cleaner_pass(work: &[IdleWork], units: u32) -> Vec<u64> {
    let size = |work: &IdleWork| {
        (work.buffered_bytes, work.garbage_entries, work.lightly_compressed_bytes)
    };
    let mut with_work: Vec<&IdleWork> =
        work.iter().filter(|work| size(work) != (0, 0, 0)).collect();
    // A stable sort: of equals the first.
    with_work.sort_by_key(|work| Reverse(size(work)));
    let pass: Vec<u64> = with_work.iter().take(units as usize).map(|work| work.tree).collect();
    debug_assert!(pass.len() <= units as usize, "a pass is bounded");
    pass
}

/// How much the cleaner does in a tree to which nobody has written since its last visit, or
/// somebody has: what is lightly compressed is in use as long as it is written to (ADR 18).
pub(crate) fn cleaner_effort(was_quiet: bool) -> Effort {
    if was_quiet { Effort::IdleWithoutWrites } else { Effort::Idle }
}

/// How long no unit is begun after one of `busy_us` in which readers have waited for the disk for
/// `waited_us`, all together. Merging makes reads cheaper later, but now competes with them
/// (ADR 21).
pub(crate) fn read_backoff(busy_us: u64, waited_us: u64, tuning: &Tuning) -> Option<u64> {
    let waited_much = waited_us > busy_us / tuning.read_wait_share;
    let backoff = busy_us.saturating_mul(tuning.read_backoff_factor);
    waited_much.then(|| backoff.min(tuning.max_read_backoff_us))
}

/// Why a checkpoint is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CheckpointReason {
    /// A recovery would read too much log.
    LogGrew,
    /// The cleaner has freed much that only a checkpoint gives back.
    Cleaned,
    /// Writers are out of disk space.
    Space,
    /// The period is over.
    Period,
}

/// Whether a checkpoint is due, and why. A period of zero means never.
pub(crate) fn checkpoint(load: &CheckpointLoad, tuning: &Tuning) -> Option<CheckpointReason> {
    let freed = load.dropped_bytes > load.dropped_before.saturating_add(tuning.cleaned_bytes);
    let may_again = is_due(load.since_space_us, tuning.between_space_checkpoints_us);
    if load.period_us == 0 {
        None
    } else if load.log_bytes > load.log_cap {
        Some(CheckpointReason::LogGrew)
    } else if load.idle && freed {
        Some(CheckpointReason::Cleaned)
    } else if load.short_of_space && may_again {
        Some(CheckpointReason::Space)
    } else if is_due(load.since_us, load.period_us) {
        Some(CheckpointReason::Period)
    } else {
        None
    }
}

/// The rounds after one more, in which so much was done.
pub(crate) fn after_round(before: Rounds, round: Usage, tuning: &Tuning) -> Rounds {
    let is_unused = round.commits == 0 && round.snapshots <= tuning.few_snapshots;
    let is_unwritten = round.commits <= tuning.few_commits;
    debug_assert!(before.idle <= before.unwritten, "who is idle does not write");
    Rounds {
        idle: if is_unused { before.idle + 1 } else { 0 },
        unwritten: if is_unwritten { before.unwritten + 1 } else { 0 },
    }
}

/// Nobody has used the engine for some rounds, nor since the last one: the time is the cleaner's
/// (ADR 23).
pub(crate) fn is_idle(activity: &Activity, tuning: &Tuning) -> bool {
    activity.rounds.idle >= tuning.idle_rounds
        && activity.since.commits == 0
        && activity.since.snapshots <= tuning.few_snapshots
}

/// After these rounds, how large a memtable is sealed whoever reads: reads look into each of them
/// first, and flushers take only what others leave of the processors (ADR 29). Not where there is
/// no cleaner.
pub(crate) fn seals_unwritten(rounds: Rounds, is_cleaning: bool, tuning: &Tuning) -> Option<u64> {
    let seals = is_cleaning && rounds.unwritten >= tuning.unwritten_rounds;
    seals.then_some(tuning.idle_seal_bytes)
}

/// The budget, fitted to what the cache has left: it grows at once, and shrinks little by little
/// (ADR 17), or at once where the cache is over its bound (ADR 27). Also whether what memtables hold is so near to it that the largest are sealed: a
/// budget can shrink below what nobody may add to any more (ADR 18).
pub(crate) fn fit_budget(budget: u64, cache: &CacheLoad, tuning: &Tuning) -> (u64, bool) {
    let room = cache.capacity.saturating_sub(cache.others);
    let fit = (room / 8 * tuning.budget_eighths).min(cache.most);
    // Where no page is left that could go, memtables are what is too much.
    let is_over = cache.others.saturating_add(cache.memtables) > cache.capacity;
    let next = match budget.checked_sub(fit) {
        Some(over) if !is_over => budget - over.div_ceil(tuning.budget_gives_way),
        _ => fit,
    };
    debug_assert!(next <= budget.max(cache.most), "the budget has a bound");
    (next, cache.memtables > next / 8 * tuning.grown_slows_at_eighths)
}

fn has_grown(budget: &BudgetLoad) -> bool {
    budget.budget > budget.least
}

/// Bytes of active memtables above which the largest are sealed.
pub(crate) fn seals_at(budget: &BudgetLoad, tuning: &Tuning) -> u64 {
    let (share, of) = if has_grown(budget) { tuning.grown_share } else { tuning.least_share };
    budget.budget / of * share
}

/// Bytes at which one memtable is sealed.
pub(crate) fn memtable_limit(budget: &BudgetLoad, tuning: &Tuning) -> u64 {
    if has_grown(budget) {
        seals_at(budget, tuning).min(tuning.largest_memtable).max(budget.memtable_bytes)
    } else {
        budget.memtable_bytes
    }
}

/// Which of the active memtables, given as (dictionary, bytes), are sealed: the largest, where all
/// together hold more than `seals_at`, until the rest hold clearly less.
pub(crate) fn to_seal(active: &[(u64, u64)], seals_at: u64, tuning: &Tuning) -> Vec<u64> {
    let mut left: u64 = active.iter().map(|(_, bytes)| bytes).sum();
    if left <= seals_at {
        return Vec::new();
    }
    let mut largest: Vec<(u64, u64)> =
        active.iter().copied().filter(|(_, bytes)| *bytes > 0).collect();
    largest.sort_by_key(|(tree, bytes)| (Reverse(*bytes), *tree));
    let mut sealed = Vec::new();
    for (tree, bytes) in largest {
        if left <= seals_at / 4 * tuning.sealed_to_quarters {
            break;
        }
        debug_assert!(left >= bytes, "what is left is what was not sealed");
        left -= bytes;
        sealed.push(tree);
    }
    sealed
}

/// Bytes of all memtables above which writers are slowed.
pub(crate) fn slows_at(budget: &BudgetLoad, tuning: &Tuning) -> u64 {
    let grown = has_grown(budget);
    let eighths = if grown { tuning.grown_slows_at_eighths } else { tuning.least_slows_at_eighths };
    let at = budget.budget / 8 * eighths;
    debug_assert!(at <= budget.budget, "writers are slowed before the budget is full");
    at
}

/// Bytes of all memtables above which writers wait until there is room.
pub(crate) fn hard_bound(budget: u64, tuning: &Tuning) -> u64 {
    budget / 4 * tuning.hard_quarters
}

/// The same for one writer: for a large one no more than what everything that no eviction frees has
/// left of the cache, at least half of the least budget (ADR 27).
pub(crate) fn hard_bound_of(writer: &WriterLoad, budget: &BudgetLoad, tuning: &Tuning) -> u64 {
    let most = hard_bound(budget.budget, tuning);
    if writer.bytes < tuning.large_bytes {
        return most;
    }
    let bound = most.min(writer.left.max(budget.least / 2));
    assert!(bound > 0 || budget.least < 2, "a transaction waits for something that can come");
    bound
}

/// The writer has to wait, and there is something to wait for: a transaction larger than the budget
/// waits for others, not for itself.
pub(crate) fn is_full_for(writer: &WriterLoad, budget: &BudgetLoad, tuning: &Tuning) -> bool {
    let hard = hard_bound_of(writer, budget, tuning);
    writer.memtables.saturating_add(writer.bytes) > hard && writer.memtables > hard / 2
}

/// Bytes of all memtables above which who has no flushers beside it works itself.
pub(crate) fn works_alone_at(budget: u64, tuning: &Tuning) -> u64 {
    budget / 4 * tuning.alone_quarters
}

/// Memory fills faster than what is at work empties it: a writer has found it above the middle
/// between where memtables are sealed and where writers are slowed (ADR 21).
pub(crate) fn is_filling(memtables: u64, budget: &BudgetLoad, tuning: &Tuning) -> bool {
    let (seals_at, slows_at) = (seals_at(budget, tuning), slows_at(budget, tuning));
    debug_assert!(budget.budget < 8 || seals_at <= slows_at, "sealing comes before slowing");
    memtables > u64::midpoint(seals_at, slows_at)
}

/// How a writer may go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// At once.
    Now,
    /// After a delay of so many nanoseconds.
    After(u64),
    /// Once there is room.
    WhenRoom,
    /// After it has done background work itself: nobody else does.
    Works,
}

/// How a writer may go on. Past the point where writers are slowed it waits, an eighth of the
/// budget further up as long as draining what it brings takes.
pub(crate) fn admit(writer: &WriterLoad, budget: &BudgetLoad, tuning: &Tuning) -> Admission {
    let total = writer.memtables.saturating_add(writer.bytes);
    if !writer.has_flushers {
        let works = total > works_alone_at(budget.budget, tuning);
        return if works { Admission::Works } else { Admission::Now };
    }
    let soft = slows_at(budget, tuning);
    let may_wait = total > soft || writer.bytes >= tuning.large_bytes;
    if may_wait && is_full_for(writer, budget, tuning) {
        return Admission::WhenRoom;
    }
    if total <= soft {
        return Admission::Now;
    }
    debug_assert!(total > soft, "who waits is above the soft bound");
    let over = u128::from(total - soft);
    let drains = writer.bytes.saturating_mul(1_000_000_000) / writer.drain_rate.max(1);
    let delay = u128::from(drains) * over / u128::from((budget.budget / 8).max(1));
    let pieces = (writer.bytes / tuning.piece_bytes).clamp(1, tuning.most_pieces);
    let longest = tuning.longest_delay_ns * pieces;
    Admission::After(u64::try_from(delay).map_or(longest, |delay| delay.min(longest)))
}

/// Whether what is owed of delays, in nanoseconds, is worth a sleep (ADR 18).
pub(crate) fn pays_now(owed_ns: u64, tuning: &Tuning) -> bool {
    owed_ns >= tuning.shortest_delay_ns
}

/// What the data file gives back to the filesystem.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct GiveBack {
    /// Free space at its end and in holes.
    pub(crate) shrink: bool,
    /// Segments at its end move into holes, so that its end becomes free.
    pub(crate) compact: bool,
}

/// What the data file gives back: all that is free where nobody works or the disk is short,
/// otherwise only what is much more than the next work will take again.
pub(crate) fn give_space_back(space: &SpaceLoad, tuning: &Tuning) -> GiveBack {
    let idle = space.rounds_without_work >= tuning.idle_rounds;
    let share = space.used_end_bytes / tuning.much_free_share;
    let much = space.unused_bytes > share;
    GiveBack {
        shrink: space.unused_bytes > 0 && (idle || much || space.full),
        compact: idle && space.free_bytes > share && !space.compacted,
    }
}

/// How long nothing is rewritten after a unit of a rewrite that took so long, in which clients used
/// the engine so often.
pub(crate) fn rewrite_pause(took: Duration, uses: u64, tuning: &Tuning) -> Duration {
    let few = took.as_millis() * u128::from(tuning.rewrite_few_uses) / 1000 + 1;
    if u128::from(uses) > few { took.min(tuning.rewrite_pause) } else { Duration::ZERO }
}
