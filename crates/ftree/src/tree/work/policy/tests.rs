//! The tree's policy as tables: in which situation what is decided, and why.

use super::*;
use std::collections::BTreeSet;
use std::fmt::Debug;

/// One situation: its name, what the tree looks like, what is decided, and the reason.
type Row<S, D> = (&'static str, S, D, &'static str);

fn check<S: Debug, D: Debug + PartialEq>(rows: &[Row<S, D>], decide: impl Fn(&S) -> D) {
    let mut names = BTreeSet::new();
    for (name, situation, decision, reason) in rows {
        assert!(names.insert(name), "{name} stands twice");
        assert_eq!(&decide(situation), decision, "{name}: {reason}\n{situation:?}");
    }
}

#[test]
fn efforts_reach_differently_far() {
    let limits_of = |min_score, limits_merges, garbage, light| WorkLimits {
        min_score,
        limits_merges,
        rewrites_garbage: garbage,
        rewrites_lightly_compressed: light,
    };
    check(
        &[
            (
                "needed",
                Effort::Needed,
                limits_of(NEEDED, false, false, false),
                "what is over its budget; merges side by side at rest (ADR 23)",
            ),
            (
                "paced",
                Effort::Paced,
                limits_of(NEEDED, true, false, false),
                "while half of the flushers merge the others leave merges alone (ADR 23)",
            ),
            (
                "wanted",
                Effort::ReadFlush,
                limits_of(Score(1), false, false, false),
                "whatever is buffered, where reads have paid",
            ),
            (
                "idle",
                Effort::Idle,
                limits_of(Score(1), false, true, false),
                "the cleaner leaves light what is still written to (ADR 18)",
            ),
            (
                "quiet",
                Effort::IdleWithoutWrites,
                limits_of(Score(1), false, true, true),
                "light leaves are compressed well where nobody writes (ADR 18)",
            ),
        ],
        |effort| work_limits(*effort),
    );
}

#[test]
fn drains_come_first_but_for_what_is_overdue() {
    let calm = DrainLoad { urgency: 1000, drained: 32, ..DrainLoad::default() };
    let overdue = |urgency, units| DrainLoad { urgency, units, ..calm };
    let over = |excess, flushed| DrainLoad { buffered: 300 + excess, excess, flushed, ..calm };
    check(
        &[
            ("nothing is overdue", calm, true, "a drain frees memory: writers wait for it"),
            ("just below the first step", overdue(2249, 0), true, "eight runs are as it should be"),
            ("the first step", overdue(2250, 0), false, "one unit between two drains (ADR 23)"),
            ("the first step, a unit was done", overdue(2250, 1), true, "and no more (ADR 23)"),
            ("three steps", overdue(2999, 2), false, "little by little, not at once (ADR 23)"),
            ("three steps, three units", overdue(2999, 3), true, "little by little (ADR 23)"),
            ("far over", overdue(90_000, 15), false, "sixteen units at most (ADR 23)"),
            ("far over, sixteen units", overdue(90_000, 16), true, "then writers' turn (ADR 23)"),
            (
                "buffers four times their budgets",
                over(900, 31),
                false,
                "as many bytes go into leaves as a drain brings (ADR 23)",
            ),
            ("the same, flushed", over(900, 32), true, "what waits in buffers is bounded (ADR 23)"),
            ("buffers twice their budgets", over(300, 9), false, "in proportion less (ADR 23)"),
            ("buffers twice, flushed", over(300, 10), true, "a third of a drain (ADR 23)"),
            ("buffers within their budgets", over(0, 0), true, "nothing is due (ADR 23)"),
            ("buffers hundred times over", over(30_000, 63), false, "twice a drain at most"),
            ("buffers hundred times over, flushed", over(30_000, 64), true, "writers' turn"),
        ],
        drain_comes_first,
    );
}

#[test]
fn layers_that_may_be_overwritten_stay_in_memory() {
    check(
        &[
            ("nothing may be overwritten", (90, None), true, "what is complete is visible"),
            ("all of it is visible", (90, Some(90)), true, "nobody takes it back any more"),
            ("some of it is not", (91, Some(90)), false, "on disk nothing is undone (ADR 38)"),
            ("a layer of nobody's commits", (0, Some(0)), true, "a spill's own tree"),
        ],
        |(newest, drains_to)| may_be_drained(*newest, *drains_to),
    );
}

#[test]
fn nodes_get_what_they_need_most() {
    let needed = NodeBudget { bytes: 800, most_merged: 1600, runs: 8, tier: 4, only_needed: true };
    let idle = NodeBudget { only_needed: false, ..needed };
    let node = NodeLoad { sound_runs: 3, buffered: 500, ..NodeLoad::default() };
    let many = NodeLoad { sound_runs: 9, tier: 9, ..node };
    let much = NodeLoad { buffered: 1601, ..many };
    check(
        &[
            ("within its budget", node, NodeNeed::Nothing, "nothing is due"),
            ("too many runs", many, NodeNeed::Merge(9), "reads look into each of them"),
            (
                "too many runs, some damaged",
                NodeLoad { sound_runs: 9, tier: 12, ..many },
                NodeNeed::Merge(9),
                "a run that cannot be read is merged no more, nor what is older",
            ),
            (
                "many runs, few that can be read",
                NodeLoad { sound_runs: 2, tier: 9, ..many },
                NodeNeed::Nothing,
                "two are no tier",
            ),
            (
                "too many runs, twice its bytes",
                NodeLoad { buffered: 1600, ..many },
                NodeNeed::Merge(9),
                "a merge of twice the budget is the largest (ADR 23)",
            ),
            (
                "too many runs, more than twice its bytes",
                much,
                NodeNeed::Flush,
                "bytes have to move on, which a merge does not do (ADR 23)",
            ),
            (
                "more than twice its bytes, four times as many runs",
                NodeLoad { sound_runs: 32, tier: 32, ..much },
                NodeNeed::Flush,
                "up to 32 runs for longer (ADR 23)",
            ),
            (
                "more than twice its bytes, yet more runs",
                NodeLoad { sound_runs: 33, tier: 5, ..much },
                NodeNeed::Merge(5),
                "more than four times as many runs as it may (ADR 23)",
            ),
            (
                "over its bytes",
                NodeLoad { buffered: 801, tier: 4, ..node },
                NodeNeed::Flush,
                "the heaviest child first: a merge would write the bytes once more",
            ),
            (
                "over its bytes, others move them on",
                NodeLoad { buffered: 900, moved_by_others: 100, ..node },
                NodeNeed::Nothing,
                "what moves is as good as gone",
            ),
            (
                "a tier",
                NodeLoad { sound_runs: 5, tier: 4, ..node },
                NodeNeed::Merge(4),
                "runs of like size become one",
            ),
            ("no tier", NodeLoad { tier: 3, ..node }, NodeNeed::Nothing, "four runs make one"),
            (
                "small leaves",
                NodeLoad { fuses_leaves: true, fuses_nodes: true, ..node },
                NodeNeed::FuseLeaves,
                "leaves that have become small are fused",
            ),
            (
                "small nodes",
                NodeLoad { fuses_nodes: true, is_stale: true, ..node },
                NodeNeed::FuseNodes,
                "so are nodes",
            ),
            (
                "options have changed",
                NodeLoad { is_stale: true, ..node },
                NodeNeed::ApplyOptions,
                "it was urgent under the old ones, and is not under the new",
            ),
        ],
        |node| node_needs(node, &needed),
    );
    check(
        &[
            ("idle time", node, NodeNeed::Flush, "whatever is buffered is flushed down"),
            (
                "idle time, options have changed",
                NodeLoad { is_stale: true, ..node },
                NodeNeed::Flush,
                "the flush takes them on too",
            ),
            (
                "idle time, a tier",
                NodeLoad { sound_runs: 5, tier: 4, ..node },
                NodeNeed::Merge(4),
                "what is due comes first",
            ),
        ],
        |node| node_needs(node, &idle),
    );
}

#[test]
fn call_without_a_unit_says_why() {
    let none = NoUnit::default();
    check(
        &[
            ("nothing", none, Progress::Idle, "there is nothing to do"),
            (
                "a merge beside as many as may be",
                NoUnit {
                    was_deferred: true,
                    has_sealed: true,
                    has_other_workers: true,
                    is_urgent: true,
                },
                Progress::Deferred,
                "looked at again when a merge ends (ADR 23)",
            ),
            (
                "a memtable others drain, or into which an insert ends",
                NoUnit { has_sealed: true, ..none },
                Progress::Busy,
                "looked at again soon",
            ),
            (
                "urgent work that others are at",
                NoUnit { has_other_workers: true, is_urgent: true, ..none },
                Progress::Busy,
                "looked at again when they are done",
            ),
            (
                "urgent work that is damaged",
                NoUnit { is_urgent: true, ..none },
                Progress::Idle,
                "nobody is at it, and nobody can be",
            ),
            (
                "others at what is not urgent",
                NoUnit { has_other_workers: true, ..none },
                Progress::Idle,
                "what they leave is not due",
            ),
        ],
        |why| without_unit(*why),
    );
}

#[test]
fn entries_pass_a_node_where_that_is_cheaper() {
    let page = 1 << 20;
    check(
        &[
            ("nothing", (0, Below::Empty), false, "there is nothing to bring"),
            ("an empty leaf", (1, Below::Empty), true, "it costs what comes"),
            (
                "a quarter of a leaf",
                (page / 4, Below::Leaf(page)),
                true,
                "buffered it would cost four times the share over its way down",
            ),
            ("less than a quarter", (page / 4 - 1, Below::Leaf(page)), false, "it is buffered"),
            ("little, a small leaf", (1, Below::Leaf(page / 16)), true, "rewriting it is cheap"),
            ("half a leaf for a node", (page / 2, Below::Node), true, "a run of use"),
            ("less for a node", (page / 2 - 1, Below::Node), false, "runs would be too short"),
        ],
        |(share, below)| goes_direct(*share, *below, page),
    );
}

#[test]
fn leaves_in_use_are_cheap_to_write() {
    check(
        &[
            (
                "from a memtable, in use",
                (true, true, true),
                true,
                "it is rewritten with the next memtable: lz4 (ADR 18)",
            ),
            ("from a buffer", (false, true, true), false, "it will live longer (ADR 18)"),
            ("not in the cache", (true, false, true), false, "nobody uses it (ADR 18)"),
            (
                "none or lz4 in the options",
                (true, true, false),
                false,
                "there is nothing faster that is wanted (ADR 18)",
            ),
        ],
        |(table, in_use, lighter)| is_written_lightly(*table, *in_use, *lighter),
    );
    check(
        &[
            ("eight leaves", 8 << 20, true, "their pages leave the cache at once (ADR 18)"),
            ("less", (8 << 20) - 1, false, "a root for each leaf would cost more (ADR 18)"),
        ],
        |replaced| publishes_now(*replaced, 1 << 20),
    );
}
