//! What is to be done with each collection; decided from plain data, before anything is written.
//!
//! Always true: a collection that was at the target before is touched only with `--intoExisting`, and only what this
//! migration made itself is ever dropped.

use super::facts::{Facts, Kind};
use super::names::{Filter, Name};
use super::state::{Phase, State};
use std::collections::BTreeSet;

/// How a collection begins, or goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Make it, and copy all.
    Create,
    /// It is there and not ours: copy all into it.
    Into,
    /// Go on with the ranges that the state names.
    Continue,
    /// Drop what was copied, for reading it goes only from the beginning.
    StartOver,
    /// All documents are there.
    Copied,
    /// It is there, not ours, and that was not asked for.
    Refuse,
}

/// A table of what was, to what is to be done:
///
/// | state of an earlier run | at the target | read in the order of `_id` | |
/// |---|---|---|---|
/// | none | no | | `Create` |
/// | none | yes | | `Refuse`, or `Into` with `--intoExisting` |
/// | copying | yes | yes | `Continue` |
/// | copying | yes | no | `StartOver`, or `Into` where it existed before |
/// | copying or copied | no | | `Create`: somebody has dropped it |
/// | copied | yes | | `Copied` |
pub(crate) fn step(
    kind: Kind,
    before: Option<(Phase, bool)>,
    at_target: bool,
    into_existing: bool,
) -> Step {
    match before {
        _ if !at_target => Step::Create,
        None if into_existing => Step::Into,
        None => Step::Refuse,
        Some((Phase::Copying, _)) if kind == Kind::Ordered => Step::Continue,
        Some((Phase::Copying, true)) => Step::Into,
        Some((Phase::Copying, false)) => Step::StartOver,
        Some((Phase::Copied | Phase::Indexed, _)) => Step::Copied,
    }
}

/// The collections that are taken, each with how it begins; views come last. `Err` names those that are refused.
pub(crate) fn plan(
    found: Vec<Facts>,
    filter: &Filter,
    at_target: &BTreeSet<Name>,
    state: &State,
    into_existing: bool,
) -> Result<Vec<(Facts, Step)>, Vec<Name>> {
    let decide = |facts: Facts| {
        let before = state.of(&facts.name).map(|before| (before.phase, before.existed));
        let step = step(facts.kind, before, at_target.contains(&facts.name), into_existing);
        (facts, step)
    };
    let taken = found.into_iter().filter(|facts| filter.takes(&facts.name));
    let mut planned: Vec<_> = taken.map(decide).collect();
    let refused = planned.iter().filter(|(_, step)| *step == Step::Refuse);
    let refused: Vec<Name> = refused.map(|(facts, _)| facts.name.clone()).collect();
    if !refused.is_empty() {
        return Err(refused);
    }
    // The largest first, so that the readers end together.
    planned.sort_by_key(|(facts, _)| (facts.kind == Kind::View, std::cmp::Reverse(facts.bytes)));
    Ok(planned)
}

/// The `_id`s between so many ranges, of a sample that is in order.
pub(crate) fn bounds_of<T: Clone + PartialEq>(sample: &[T], ranges: usize) -> Vec<T> {
    let mut bounds: Vec<T> = Vec::new();
    for range in 1..ranges {
        let Some(bound) = sample.get(sample.len() * range / ranges) else { break };
        if sample.first() != Some(bound) && bounds.last() != Some(bound) {
            bounds.push(bound.clone());
        }
    }
    bounds
}

#[cfg(test)]
mod tests {
    use super::super::state::CollectionState;
    use super::*;
    use bson::doc;

    #[test]
    fn every_state_has_its_step() {
        use Kind::{Natural, Ordered, View};
        use Phase::{Copied, Copying, Indexed};
        for (kind, before, at_target, into_existing, expected) in [
            (Ordered, None, false, false, Step::Create),
            (Ordered, None, true, false, Step::Refuse),
            (Ordered, None, true, true, Step::Into),
            (View, None, true, false, Step::Refuse),
            (Ordered, Some((Copying, false)), true, false, Step::Continue),
            (Ordered, Some((Copying, true)), true, true, Step::Continue),
            (Ordered, Some((Copying, false)), false, false, Step::Create),
            (Natural, Some((Copying, false)), true, false, Step::StartOver),
            (Natural, Some((Copying, true)), true, true, Step::Into),
            (Natural, Some((Copied, false)), true, false, Step::Copied),
            (Ordered, Some((Indexed, false)), true, false, Step::Copied),
            (Ordered, Some((Indexed, false)), false, false, Step::Create),
        ] {
            let found = step(kind, before, at_target, into_existing);
            assert_eq!(found, expected, "{kind:?} {before:?} {at_target} {into_existing}");
        }
    }

    #[test]
    fn the_largest_come_first_and_views_last() {
        let facts = |name: &str, bytes, options| {
            let mut facts = Facts::new(Name::parse(name).unwrap(), "", options);
            facts.bytes = bytes;
            facts
        };
        let found = || {
            vec![
                facts("a.view", 0, doc! { "viewOn": "small" }),
                facts("a.small", 1, doc! {}),
                facts("admin.own", 9, doc! {}),
                facts("a.large", 5, doc! {}),
            ]
        };
        let mut state = State::new("", "");
        let copying = CollectionState { phase: Phase::Copying, existed: false, ranges: vec![] };
        state.collections.insert("a.small".into(), copying);
        let there: BTreeSet<Name> = ["a.small", "a.large"].map(|n| Name::parse(n).unwrap()).into();
        let names = Name::parse("a.large").unwrap();
        let refused = plan(found(), &Filter::default(), &there, &state, false);
        assert_eq!(refused.err(), Some(vec![names]));
        let planned = plan(found(), &Filter::default(), &there, &state, true).unwrap();
        let shown: Vec<_> =
            planned.iter().map(|(facts, step)| (facts.name.collection.as_str(), *step)).collect();
        let expected = [("large", Step::Into), ("small", Step::Continue), ("view", Step::Create)];
        assert_eq!(shown, expected);
    }

    #[test]
    fn bounds_split_a_sample_evenly_and_never_twice() {
        for (sample, ranges, expected) in [
            (&[1, 2, 3, 4, 5, 6, 7, 8][..], 4, &[3, 5, 7][..]),
            (&[1, 1, 1, 1], 4, &[]),
            (&[1, 1, 2, 2], 4, &[2]),
            (&[], 4, &[]),
            (&[1, 2, 3], 1, &[]),
        ] {
            assert_eq!(bounds_of(sample, ranges), expected, "{sample:?}");
        }
    }
}
