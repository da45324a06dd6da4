//! The policy as tables: in which situation what is decided, and why.

use super::super::load::ReadBackoff;
use super::*;
use std::collections::BTreeSet;
use std::fmt::Debug;

const TUNING: Tuning = Tuning::STANDARD;
const MIB: u64 = 1 << 20;
const LONG_AGO: u64 = u64::MAX / 2;

/// One situation: its name, what the engine looks like, what is decided, and the reason.
type Row<S, D> = (&'static str, S, D, &'static str);

fn check<S: Debug, D: Debug + PartialEq>(rows: &[Row<S, D>], decide: impl Fn(&S) -> D) {
    let mut names = BTreeSet::new();
    for (name, situation, decision, reason) in rows {
        assert!(names.insert(name), "{name} stands twice");
        assert!(!reason.is_empty(), "{name} has a reason");
        assert_eq!(&decide(situation), decision, "{name}: {reason}\n{situation:?}");
    }
}

/// A table's rows as (name, reason).
fn named<S, D>(rows: &[Row<S, D>]) -> Vec<(&'static str, &'static str)> {
    rows.iter().map(|(name, _, _, reason)| (*name, *reason)).collect()
}

#[test]
fn tables_have_a_row_for_every_rule_of_the_decision_records() {
    let all = [
        named(&flusher_rows()),
        named(&backoff_rows()),
        named(&cleaner_rows()),
        named(&effort_rows()),
        named(&checkpoint_rows()),
        named(&round_rows()),
        named(&idle_rows()),
        named(&unwritten_rows()),
        named(&budget_rows()),
        named(&limit_rows()),
        named(&seal_rows()),
        named(&filling_rows()),
        named(&writer_rows()),
        named(&space_rows()),
        named(&rewrite_rows()),
    ]
    .concat();
    assert!(all.len() >= 40, "{} situations", all.len());
    for record in ["ADR 17", "ADR 18", "ADR 21", "ADR 23", "ADR 28", "ADR 29"] {
        assert!(all.iter().any(|(_, reason)| reason.contains(record)), "{record} has no row");
    }
}

fn tree(tree: u64, sealed_bytes: u64, urgency: u64) -> TreeLoad {
    TreeLoad { tree, sealed_bytes, urgency }
}

/// Nothing presses: nobody has found memory filling, no back-off, clients are at work, no period
/// is over.
fn calm(trees: Vec<TreeLoad>) -> Load {
    Load {
        trees,
        working: 0,
        since_filling_us: LONG_AGO,
        reads: ReadBackoff { left_us: 0, since_us: LONG_AGO },
        activity: used(),
        since_wanted_us: 0,
        cleaner: CleanerLoad { period_us: 2_000_000, units: 5, since_us: 0, found: false },
    }
}

fn used() -> Activity {
    Activity { since: Usage { commits: 10, snapshots: 1000 }, ..Activity::default() }
}

fn unused() -> Activity {
    Activity { rounds: Rounds { idle: 3, unwritten: 3 }, since: Usage::default() }
}

fn unit(tree: u64, effort: Effort) -> Decision {
    Decision::Unit { tree, effort }
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn flusher_rows() -> Vec<Row<Load, Decision>> {
    let backing_off = ReadBackoff { left_us: 50_000, since_us: 0 };
    let just_over = ReadBackoff { left_us: 0, since_us: 199_999 };
    let work = || vec![tree(7, 0, 1200)];
    vec![
        (
            "one tree over its budget",
            calm(work()),
            unit(7, Effort::Paced),
            "a flusher that is free takes what is due, and no merge beside another (ADR 23)",
        ),
        (
            "the tree that is most over its budget",
            calm(vec![tree(1, 0, 1200), tree(2, 0, 2500), tree(3, 0, 1900)]),
            unit(2, Effort::Paced),
            "the largest debt comes first",
        ),
        (
            "a sealed memtable beside an urgent tree",
            calm(vec![tree(1, 0, 9000), tree(2, 1, 0)]),
            unit(2, Effort::Paced),
            "what frees memory comes before everything else: writers wait for it",
        ),
        (
            "two sealed memtables",
            calm(vec![tree(1, MIB, 5000), tree(2, 2 * MIB, 0)]),
            unit(2, Effort::Paced),
            "the larger one frees more",
        ),
        (
            "equal debts",
            calm(vec![tree(4, MIB, 1000), tree(5, MIB, 1000)]),
            unit(4, Effort::Paced),
            "the first of the queue, so that one thread alone decides the same each time",
        ),
        (
            "a tree that may have work and has no debt",
            calm(vec![tree(3, 0, 0)]),
            unit(3, Effort::Paced),
            "it is asked: only the tree knows, and then it leaves the queue",
        ),
        (
            "somebody is at work, a little over the budget",
            Load { working: 1, ..calm(vec![tree(7, 0, 2999)]) },
            Decision::Spare,
            "one flusher that works on evenly is enough (ADR 21)",
        ),
        (
            "somebody is at work, three times over the budget",
            Load { working: 1, ..calm(vec![tree(7, 0, 3000)]) },
            unit(7, Effort::Paced),
            "a second flusher helps a tree three times over its budget (ADR 21)",
        ),
        (
            "somebody is at work, a memtable waits to be drained",
            Load { working: 1, ..calm(vec![tree(7, 32 * MIB, 0)]) },
            Decision::Spare,
            "while memory does not fill, the one at work will drain it (ADR 21)",
        ),
        (
            "somebody is at work, a writer has found memory filling",
            Load { working: 1, since_filling_us: 99_999, ..calm(work()) },
            unit(7, Effort::Paced),
            "a second flusher helps where memory for writes fills (ADR 21)",
        ),
        (
            "somebody is at work, memory was filling a tenth of a second ago",
            Load { working: 1, since_filling_us: 100_000, ..calm(work()) },
            Decision::Spare,
            "what a writer has found counts for a tenth of a second (ADR 21)",
        ),
        (
            "somebody is at work, nobody uses the engine",
            Load { working: 1, activity: unused(), ..calm(work()) },
            unit(7, Effort::Needed),
            "at rest both flushers work, and merge side by side (ADR 23)",
        ),
        (
            "nobody uses the engine",
            Load { activity: unused(), ..calm(work()) },
            unit(7, Effort::Needed),
            "at rest merges are not limited: no writer waits for a drain (ADR 23)",
        ),
        (
            "readers wait for the disk",
            Load { reads: backing_off, ..calm(work()) },
            Decision::Spare,
            "no unit is begun during a back-off for reads (ADR 21)",
        ),
        (
            "readers wait for the disk, three times over the budget",
            Load { reads: backing_off, ..calm(vec![tree(7, 0, 9000)]) },
            Decision::Spare,
            "debt that reads hold up is paid later (ADR 21)",
        ),
        (
            "readers wait for the disk, memory fills",
            Load { reads: backing_off, since_filling_us: 0, ..calm(work()) },
            unit(7, Effort::Paced),
            "a back-off counts for nothing where memory fills (ADR 21)",
        ),
        (
            "readers wait for the disk, memory fills, somebody is at work",
            Load { reads: backing_off, since_filling_us: 0, working: 1, ..calm(work()) },
            unit(7, Effort::Paced),
            "nor does it keep the second flusher away then (ADR 21)",
        ),
        (
            "readers waited for the disk, nobody uses the engine now",
            Load { reads: backing_off, activity: unused(), ..calm(work()) },
            Decision::Spare,
            "the back-off runs to its end also at rest (ADR 21)",
        ),
        (
            "just after a back-off, nobody is at work",
            Load { reads: just_over, ..calm(work()) },
            unit(7, Effort::Paced),
            "one flusher goes on when the back-off is over (ADR 21)",
        ),
        (
            "just after a back-off, somebody is at work, far over the budget",
            Load { reads: just_over, working: 1, ..calm(vec![tree(7, 0, 9000)]) },
            Decision::Spare,
            "no second flusher helps for a while after a back-off (ADR 21)",
        ),
        (
            "just after a back-off, somebody is at work, nobody uses the engine",
            Load { reads: just_over, working: 1, activity: unused(), ..calm(work()) },
            Decision::Spare,
            "no second flusher helps for a while after a back-off, also at rest (ADR 21)",
        ),
        (
            "some time after a back-off, somebody is at work, far over the budget",
            Load {
                reads: ReadBackoff { left_us: 0, since_us: 200_000 },
                working: 1,
                ..calm(vec![tree(7, 0, 9000)])
            },
            unit(7, Effort::Paced),
            "then it does (ADR 21)",
        ),
        ("nothing to do", calm(Vec::new()), Decision::Wait, "it is told when there is work"),
        (
            "nothing to do, reads may have paid",
            Load { since_wanted_us: 200_000, ..calm(Vec::new()) },
            Decision::ServeReads,
            "what reads have paid for is flushed when nothing else is due, five looks a second",
        ),
        (
            "nothing to do, the cleaner's period is over",
            Load {
                cleaner: CleanerLoad { since_us: 2_000_000, ..calm(Vec::new()).cleaner },
                ..calm(Vec::new())
            },
            Decision::Clean,
            "the cleaner works by its period while somebody uses the engine (ADR 23)",
        ),
        (
            "nothing to do, reads may have paid and the cleaner's period is over",
            Load {
                since_wanted_us: 200_000,
                cleaner: CleanerLoad { since_us: 9_000_000, ..calm(Vec::new()).cleaner },
                ..calm(Vec::new())
            },
            Decision::ServeReads,
            "what somebody has asked for comes before what might be of use",
        ),
        (
            "work, and the cleaner's period is over",
            Load {
                cleaner: CleanerLoad { since_us: 9_000_000, ..calm(Vec::new()).cleaner },
                ..calm(work())
            },
            unit(7, Effort::Paced),
            "the cleaner has idle time only",
        ),
        (
            "nobody uses the engine, the cleaner has found something",
            Load {
                activity: unused(),
                cleaner: CleanerLoad { found: true, ..calm(Vec::new()).cleaner },
                ..calm(Vec::new())
            },
            Decision::Clean,
            "at rest it goes on without a pause until it finds nothing (ADR 23)",
        ),
        (
            "nobody uses the engine, the cleaner has found nothing",
            Load { activity: unused(), ..calm(Vec::new()) },
            Decision::Wait,
            "then it looks again by its period (ADR 23)",
        ),
        (
            "somebody came, the cleaner has found something",
            Load {
                cleaner: CleanerLoad { found: true, ..calm(Vec::new()).cleaner },
                ..calm(Vec::new())
            },
            Decision::Wait,
            "it stops at the end of a pass after somebody came (ADR 23)",
        ),
        (
            "nobody uses the engine, cleanerPeriod is 0",
            Load {
                activity: unused(),
                cleaner: CleanerLoad { period_us: 0, units: 5, since_us: LONG_AGO, found: true },
                ..calm(Vec::new())
            },
            Decision::Wait,
            "cleanerPeriod 0 turns this off too (ADR 23)",
        ),
        (
            "nobody uses the engine, cleanerIterations is 0",
            Load {
                activity: unused(),
                cleaner: CleanerLoad { period_us: 1, units: 0, since_us: 0, found: true },
                ..calm(Vec::new())
            },
            Decision::Wait,
            "a cleaner without units is none (ADR 23)",
        ),
    ]
}

#[test]
fn flushers_do_what_is_due_and_no_more() {
    check(&flusher_rows(), |load| decide(load, &TUNING));
}

fn backoff_rows() -> Vec<Row<(u64, u64), Option<u64>>> {
    vec![
        ("a quarter of the time", (40_000, 10_000), None, "readers wait now and then (ADR 21)"),
        (
            "more than a quarter",
            (40_000, 10_001),
            Some(120_000),
            "three times as long as the unit took (ADR 21)",
        ),
        (
            "a merge of nine seconds",
            (9_000_000, 80_000_000),
            Some(1_000_000),
            "a second at most (ADR 21)",
        ),
        ("a unit of no time", (0, 0), None, "nobody waited (ADR 21)"),
    ]
}

#[test]
fn units_back_off_only_for_readers_who_wait_much() {
    check(&backoff_rows(), |(busy, waited)| read_backoff(*busy, *waited, &TUNING));
}

fn idle_work(tree: u64, buffered: u64, garbage: u64, light: u64) -> IdleWork {
    IdleWork {
        tree,
        buffered_bytes: buffered,
        garbage_entries: garbage,
        lightly_compressed_bytes: light,
    }
}

/// What trees have, and the units of a pass.
type Pass = (Vec<IdleWork>, u32);

fn cleaner_rows() -> Vec<Row<Pass, Vec<u64>>> {
    let trees = vec![
        idle_work(1, 0, 0, 900),
        idle_work(2, 0, 0, 0),
        idle_work(3, 10, 0, 0),
        idle_work(4, 0, 5, 0),
        idle_work(5, 20, 0, 0),
        idle_work(6, 10, 0, 0),
    ];
    vec![
        (
            "trees with different work",
            (trees.clone(), 5),
            vec![5, 3, 6, 4, 1],
            "buffers first, because reads look into them; light leaves last (ADR 18)",
        ),
        ("two units a pass", (trees, 2), vec![5, 3], "cleanerIterations is the bound of a pass"),
        (
            "nothing to clean",
            (vec![idle_work(1, 0, 0, 0)], 5),
            vec![],
            "a tree without idle work is not asked",
        ),
    ]
}

#[test]
fn cleaner_visits_trees_with_idle_work() {
    check(&cleaner_rows(), |(work, units)| cleaner_pass(work, *units));
}

fn effort_rows() -> Vec<Row<bool, Effort>> {
    vec![
        (
            "nobody has written since the pass before",
            true,
            Effort::IdleWithoutWrites,
            "light leaves are compressed well where nobody writes any more (ADR 18)",
        ),
        ("somebody has", false, Effort::Idle, "what is in use stays light (ADR 18)"),
    ]
}

#[test]
fn cleaner_leaves_light_what_is_written_to() {
    check(&effort_rows(), |was_quiet| cleaner_effort(*was_quiet));
}

fn checkpoint_rows() -> Vec<Row<CheckpointLoad, Option<CheckpointReason>>> {
    let nothing = CheckpointLoad {
        period_us: 60_000_000,
        log_cap: 256 * MIB,
        since_space_us: LONG_AGO,
        ..CheckpointLoad::default()
    };
    let freed = CheckpointLoad { dropped_bytes: 257 * MIB, dropped_before: MIB - 1, ..nothing };
    let short = CheckpointLoad { short_of_space: true, ..nothing };
    vec![
        ("nothing presses", nothing, None, "the last one is young"),
        (
            "the period is over",
            CheckpointLoad { since_us: 60_000_000, ..nothing },
            Some(CheckpointReason::Period),
            "checkpointPeriod",
        ),
        (
            "much log",
            CheckpointLoad { log_bytes: 256 * MIB + 1, ..nothing },
            Some(CheckpointReason::LogGrew),
            "a recovery reads no more log than the cap (ADR 17)",
        ),
        (
            "the cleaner has freed much at rest",
            CheckpointLoad { idle: true, ..freed },
            Some(CheckpointReason::Cleaned),
            "so that the file does not grow meanwhile (ADR 23)",
        ),
        ("much was freed, somebody works", freed, None, "the next period gives it back (ADR 23)"),
        (
            "the cleaner has freed little at rest",
            CheckpointLoad { idle: true, dropped_before: MIB, ..freed },
            None,
            "256 MB, beyond what the last one left (ADR 23)",
        ),
        (
            "writers are out of disk space",
            short,
            Some(CheckpointReason::Space),
            "what a checkpoint gives back is asked for before a write is refused (ADR 28)",
        ),
        (
            "writers are out of disk space again",
            CheckpointLoad { since_space_us: 999_999, ..short },
            None,
            "one a second for that reason (ADR 28)",
        ),
        (
            "checkpointPeriod is 0",
            CheckpointLoad {
                period_us: 0,
                since_us: LONG_AGO,
                log_bytes: LONG_AGO,
                idle: true,
                ..CheckpointLoad { short_of_space: true, ..freed }
            },
            None,
            "zero is never",
        ),
    ]
}

#[test]
fn checkpoints_are_due_for_a_reason() {
    check(&checkpoint_rows(), |load| checkpoint(load, &TUNING));
}

fn round_rows() -> Vec<Row<(Rounds, Usage), Rounds>> {
    let before = Rounds { idle: 2, unwritten: 5 };
    let usage = |commits, snapshots| Usage { commits, snapshots };
    vec![
        (
            "nobody was there",
            (before, usage(0, 0)),
            Rounds { idle: 3, unwritten: 6 },
            "one round more (ADR 23)",
        ),
        (
            "who watches the server reads a little",
            (before, usage(0, 100)),
            Rounds { idle: 3, unwritten: 6 },
            "a hundred snapshots are nobody's work (ADR 23)",
        ),
        (
            "somebody reads",
            (before, usage(0, 101)),
            Rounds { idle: 0, unwritten: 6 },
            "reads end the rest, not the time in which nobody writes (ADR 29)",
        ),
        (
            "the server writes a little itself",
            (before, usage(10, 0)),
            Rounds { idle: 0, unwritten: 6 },
            "ten commits are the cluster time's lease and sessions' records (ADR 29)",
        ),
        (
            "somebody writes",
            (before, usage(11, 0)),
            Rounds { idle: 0, unwritten: 0 },
            "more than ten commits are somebody's (ADR 29)",
        ),
    ]
}

#[test]
fn rounds_count_how_long_nobody_was_there() {
    check(&round_rows(), |(before, round)| after_round(*before, *round, &TUNING));
}

fn idle_rows() -> Vec<Row<Activity, bool>> {
    vec![
        ("three rounds of nothing", unused(), true, "the engine is at rest (ADR 23)"),
        (
            "two rounds of nothing",
            Activity { rounds: Rounds { idle: 2, unwritten: 2 }, ..unused() },
            false,
            "three are needed (ADR 23)",
        ),
        (
            "a commit since the last round",
            Activity { since: Usage { commits: 1, snapshots: 0 }, ..unused() },
            false,
            "whoever comes has the engine at once, not at the next round (ADR 23)",
        ),
        (
            "a watcher's reads since the last round",
            Activity { since: Usage { commits: 0, snapshots: 100 }, ..unused() },
            true,
            "who watches does not end the rest (ADR 23)",
        ),
        (
            "reads since the last round",
            Activity { since: Usage { commits: 0, snapshots: 101 }, ..unused() },
            false,
            "who reads does (ADR 23)",
        ),
    ]
}

#[test]
fn engine_is_idle_when_nobody_used_it_for_three_rounds() {
    check(&idle_rows(), |activity| is_idle(activity, &TUNING));
}

fn unwritten_rows() -> Vec<Row<(Rounds, bool), Option<u64>>> {
    vec![
        (
            "one round without writers, readers at work",
            (Rounds { idle: 0, unwritten: 1 }, true),
            Some(MIB),
            "memtables of a megabyte and more are drained, whoever reads (ADR 29)",
        ),
        (
            "somebody wrote in the last round",
            (Rounds { idle: 0, unwritten: 0 }, true),
            None,
            "a memtable that grows is drained when it is full (ADR 29)",
        ),
        (
            "there is no cleaner",
            (Rounds { idle: 9, unwritten: 9 }, false),
            None,
            "cleanerPeriod 0 turns this off too (ADR 23)",
        ),
    ]
}

#[test]
fn memtables_are_drained_when_nobody_writes() {
    check(&unwritten_rows(), |(rounds, cleans)| seals_unwritten(*rounds, *cleans, &TUNING));
}

fn budget_rows() -> Vec<Row<(u64, CacheLoad), (u64, bool)>> {
    let cache = CacheLoad { capacity: 256 * MIB, others: 0, most: 128 * MIB, memtables: 0 };
    let read = CacheLoad { others: 240 * MIB, ..cache };
    vec![
        (
            "an empty cache",
            (64 * MIB, cache),
            (128 * MIB, false),
            "it grows at once, to half of cacheSize at most (ADR 17, ADR 18)",
        ),
        (
            "a cache with some room",
            (64 * MIB, CacheLoad { others: 160 * MIB, ..cache }),
            (84 * MIB, false),
            "an eighth less than what nothing else has taken (ADR 17)",
        ),
        (
            "a scan has filled the cache",
            (126 * MIB, read),
            (119 * MIB, false),
            "it shrinks by a sixteenth of the difference: a scan does not stop writers (ADR 17)",
        ),
        (
            "a scan has filled the cache, memtables are full",
            (126 * MIB, CacheLoad { others: 136 * MIB, memtables: 120 * MIB, ..cache }),
            (130_744_320, true),
            "what shrinks the budget seals memtables too, or writers wait for nobody (ADR 18)",
        ),
        (
            "as it should be",
            (84 * MIB, CacheLoad { others: 160 * MIB, ..cache }),
            (84 * MIB, false),
            "nothing changes",
        ),
        (
            "the cache is over its bound",
            (126 * MIB, CacheLoad { memtables: 120 * MIB, ..read }),
            (14 * MIB, true),
            "no page is left that could go, so memtables are what is too much (ADR 27)",
        ),
        (
            "more is lent than there is",
            (10, CacheLoad { others: 300 * MIB, ..cache }),
            (0, false),
            "the least budget counts then",
        ),
    ]
}

#[test]
fn budget_takes_what_the_cache_has_left() {
    check(&budget_rows(), |(budget, cache)| fit_budget(*budget, cache, &TUNING));
}

fn least() -> BudgetLoad {
    BudgetLoad { budget: 64 * MIB, least: 64 * MIB, memtable_bytes: 32 * MIB }
}

fn grown() -> BudgetLoad {
    BudgetLoad { budget: 96 * MIB, ..least() }
}

fn limit_rows() -> Vec<Row<BudgetLoad, (u64, u64, u64)>> {
    let large = BudgetLoad { budget: 1 << 30, ..least() };
    vec![
        (
            "the least budget",
            least(),
            (32 * MIB, 32 * MIB, 48 * MIB),
            "sealed at half, writers slowed at three quarters",
        ),
        (
            "a grown budget",
            grown(),
            (64 * MIB, 64 * MIB, 84 * MIB),
            "sealed at two thirds, writers slowed at seven eighths (ADR 18)",
        ),
        (
            "a large budget",
            large,
            (256 * MIB, (1 << 30) / 3 * 2, 896 * MIB),
            "one memtable is sealed at 256 MB at the latest: a drain frees it at its end (ADR 17)",
        ),
        (
            "a budget that has hardly grown, large memtables",
            BudgetLoad { budget: 66 * MIB, memtable_bytes: 60 * MIB, ..least() },
            (60 * MIB, 44 * MIB, 66 * MIB / 8 * 7),
            "a memtable is not sealed earlier than where the budget has not grown",
        ),
    ]
}

#[test]
fn grown_budget_is_used_further() {
    check(&limit_rows(), |budget| {
        (memtable_limit(budget, &TUNING), seals_at(budget, &TUNING), slows_at(budget, &TUNING))
    });
}

type Active = Vec<(u64, u64)>;

fn seal_rows() -> Vec<Row<(Active, BudgetLoad), Vec<u64>>> {
    let many = || vec![(1, 8 * MIB), (2, 20 * MIB), (3, 8 * MIB), (4, 0)];
    vec![
        (
            "half of the budget",
            (vec![(1, 16 * MIB), (2, 16 * MIB)], least()),
            vec![],
            "at the bound nothing is sealed",
        ),
        (
            "more than half of the budget",
            (many(), least()),
            vec![2],
            "the largest, until the active ones hold three quarters of what they may",
        ),
        (
            "equal memtables",
            (vec![(3, 12 * MIB), (1, 12 * MIB), (2, 12 * MIB)], least()),
            vec![1],
            "of equals the lower number, so that one thread alone decides the same each time",
        ),
        (
            "much more than half of the budget",
            (vec![(1, 20 * MIB), (2, 20 * MIB), (3, 20 * MIB), (4, 4 * MIB)], least()),
            vec![1, 2],
            "as many as it takes",
        ),
        ("a grown budget", (many(), grown()), vec![], "the rest may grow further (ADR 17)"),
        (
            "tiny memtables",
            (vec![(1, 1), (2, 0)], BudgetLoad { budget: 1, least: 1, memtable_bytes: 1 }),
            vec![1],
            "what holds nothing is never sealed",
        ),
    ]
}

#[test]
fn largest_memtables_are_sealed() {
    check(&seal_rows(), |(active, budget)| to_seal(active, seals_at(budget, &TUNING), &TUNING));
}

fn filling_rows() -> Vec<Row<(u64, BudgetLoad), bool>> {
    vec![
        (
            "in the middle",
            (40 * MIB, least()),
            false,
            "between where memtables are sealed and where writers are slowed (ADR 21)",
        ),
        ("above the middle", (40 * MIB + 1, least()), true, "memory fills (ADR 21)"),
        ("above the middle of a grown budget", (75 * MIB, grown()), true, "memory fills (ADR 21)"),
        (
            "as much in a grown budget",
            (41 * MIB, grown()),
            false,
            "there is room yet (ADR 17, ADR 21)",
        ),
    ]
}

#[test]
fn memory_fills_above_the_middle() {
    check(&filling_rows(), |(memtables, budget)| is_filling(*memtables, budget, &TUNING));
}

/// A writer of 16 KiB, where 16 MiB are drained in a second: a millisecond's worth.
fn writer(memtables: u64) -> WriterLoad {
    let (drain_rate, left) = (16 * MIB, 1024 * MIB);
    WriterLoad { bytes: 16 << 10, memtables, left, drain_rate, has_flushers: true }
}

fn writer_rows() -> Vec<Row<(WriterLoad, BudgetLoad), Admission>> {
    let piece = 16 << 10;
    vec![
        (
            "three quarters",
            (writer(48 * MIB - piece), least()),
            Admission::Now,
            "up to there nobody waits",
        ),
        (
            "a sixteenth above",
            (writer(52 * MIB - piece), least()),
            Admission::After(488_281),
            "half of the time that draining what it brings takes",
        ),
        (
            "an eighth above",
            (writer(56 * MIB - piece), least()),
            Admission::After(976_562),
            "as long as draining what it brings takes: as much comes as goes",
        ),
        (
            "a quarter above",
            (writer(64 * MIB - piece), least()),
            Admission::After(1_000_000),
            "a millisecond a piece at most",
        ),
        (
            "seven eighths of a grown budget",
            (writer(84 * MIB - piece), grown()),
            Admission::Now,
            "a budget that has grown lets writers wait from there on (ADR 18)",
        ),
        (
            "a large transaction",
            (WriterLoad { bytes: MIB, ..writer(79 * MIB) }, least()),
            Admission::After(50_000_000),
            "fifty pieces at most: it has waited as it wrote",
        ),
        (
            "a piece and a half",
            (WriterLoad { bytes: 24 << 10, ..writer(79 * MIB) }, least()),
            Admission::After(1_000_000),
            "a millisecond for each whole piece",
        ),
        (
            "five quarters",
            (writer(80 * MIB), least()),
            Admission::WhenRoom,
            "the hard bound: nobody goes beyond",
        ),
        (
            "a transaction larger than the budget, alone",
            (WriterLoad { bytes: 100 * MIB, ..writer(32 * MIB) }, least()),
            Admission::After(50_000_000),
            "it waits for others, not for itself",
        ),
        (
            "a large transaction, where the rest of the cache is taken",
            (WriterLoad { bytes: MIB, left: 40 * MIB, ..writer(40 * MIB) }, least()),
            Admission::WhenRoom,
            "what no eviction frees has left no more (ADR 27)",
        ),
        (
            "a small transaction there",
            (WriterLoad { left: 40 * MIB, ..writer(40 * MIB) }, least()),
            Admission::Now,
            "it does not wait for the large ones' bound (ADR 27)",
        ),
        (
            "a large transaction, where others have taken everything",
            (WriterLoad { bytes: MIB, left: 0, ..writer(15 * MIB) }, least()),
            Admission::Now,
            "half of the least budget is writers' in any case (ADR 27)",
        ),
        (
            "nothing was drained yet",
            (WriterLoad { drain_rate: 0, ..writer(60 * MIB) }, least()),
            Admission::After(1_000_000),
            "a rate of nothing is the slowest there is",
        ),
        (
            "no flushers, three quarters",
            (WriterLoad { has_flushers: false, ..writer(48 * MIB - piece) }, least()),
            Admission::Now,
            "there is room",
        ),
        (
            "no flushers, above three quarters",
            (WriterLoad { has_flushers: false, ..writer(48 * MIB) }, least()),
            Admission::Works,
            "the simulator's writers do the background's work: nobody else does",
        ),
    ]
}

#[test]
fn writers_are_slowed_little_by_little() {
    check(&writer_rows(), |(writer, budget)| admit(writer, budget, &TUNING));
    assert!(!pays_now(199_999, &TUNING), "a sleep of 10 µs takes 70 (ADR 18)");
    assert!(pays_now(200_000, &TUNING), "owed until it is worth a sleep (ADR 18)");
}

fn space_rows() -> Vec<Row<SpaceLoad, GiveBack>> {
    let used = SpaceLoad { used_end_bytes: 400, ..SpaceLoad::default() };
    let rest = SpaceLoad { rounds_without_work: 3, ..used };
    let (shrink, both) =
        (GiveBack { shrink: true, compact: false }, GiveBack { shrink: true, compact: true });
    vec![
        (
            "a little free, work goes on",
            SpaceLoad { unused_bytes: 100, free_bytes: 300, ..used },
            GiveBack::default(),
            "the next work takes it again",
        ),
        (
            "much free, work goes on",
            SpaceLoad { unused_bytes: 101, free_bytes: 300, ..used },
            shrink,
            "more than the next work will take",
        ),
        (
            "a little free, the disk is full",
            SpaceLoad { unused_bytes: 1, full: true, ..used },
            shrink,
            "everything that is free (ADR 28)",
        ),
        (
            "a little free, nobody works",
            SpaceLoad { unused_bytes: 1, free_bytes: 100, ..rest },
            shrink,
            "everything that is free",
        ),
        (
            "holes, nobody works",
            SpaceLoad { unused_bytes: 1, free_bytes: 101, ..rest },
            both,
            "a quarter of the file is holes: segments at its end move into them",
        ),
        (
            "holes, nobody works, moving was of no use",
            SpaceLoad { unused_bytes: 1, free_bytes: 101, compacted: true, ..rest },
            shrink,
            "until something changes",
        ),
    ]
}

#[test]
fn data_file_gives_back_what_is_not_taken_again() {
    check(&space_rows(), |space| give_space_back(space, &TUNING));
}

fn rewrite_rows() -> Vec<Row<(u64, u64), u64>> {
    vec![
        ("nobody uses the engine", (40, 0), 0, "the rewrite goes on"),
        ("its own reports", (40, 3), 0, "fifty uses a second are nobody's work"),
        ("somebody uses the engine", (40, 4), 40, "half of the time is theirs"),
        ("fifty uses in a second", (1000, 50), 0, "fifty uses a second are nobody's work"),
        ("a unit of a second", (1000, 1000), 500, "half a second at most"),
        ("a unit of no time", (0, 9), 0, "nobody was held up"),
    ]
}

#[test]
fn rewrite_pauses_for_clients_and_for_nobody_else() {
    check(&rewrite_rows(), |(took_ms, uses)| {
        rewrite_pause(Duration::from_millis(*took_ms), *uses, &TUNING).as_millis() as u64
    });
}
