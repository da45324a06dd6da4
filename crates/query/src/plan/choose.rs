//! Which of the candidates is taken, by what the indexes and the filter tell.

use super::candidates::{
    BOUNDED, Candidate, PlannerInput, Predicates, candidates, index_candidate, of_index, without,
};
use super::hint::Hint;
use super::near::near_scan;
use super::{Access, AccessPath, Decision, MergeScan, rivals};
use bounds::Intervals;
use bounds::conjuncts;
use bson::raw::RawBson;
use bsonval::SortPattern;
use errors::{Code, Error, Result};
use matcher::{Filter, Leaf, Node, Predicate};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Decides how to reach the documents.
pub(crate) fn choose(input: &PlannerInput<'_>) -> Result<Decision> {
    let decision = decide(input)?;
    // Bounds of a geometry whose covering was stopped are no bounds.
    limits::take_stop_error()?;
    Ok(decision)
}

fn decide(input: &PlannerInput<'_>) -> Result<Decision> {
    let root = input.filter.root();
    if matches!(root, Node::AlwaysFalse) {
        return Ok(Decision::only(Access {
            path: AccessPath::Nothing,
            residual: None,
            sorted: true,
        }));
    }
    let conjuncts = conjuncts(root);
    let predicates = Predicates::new(conjuncts, input.collation());
    if input.filter.near().is_some() {
        // Whoever asks has checked that an index can tell distances.
        let nothing = Access { path: AccessPath::Nothing, residual: None, sorted: true };
        return Ok(Decision::only(near_scan(input).unwrap_or(nothing)));
    }
    if let Some(access) = super::text::access(input, conjuncts, &predicates)? {
        return Ok(Decision::only(access));
    }
    match input.hint {
        Some(Hint::Natural { backward }) => {
            return Ok(Decision::only(collection_scan(input, *backward)));
        }
        Some(Hint::Id) => {
            return Ok(Decision::only(
                index_candidate(input, None, None, conjuncts, &predicates).access,
            ));
        }
        Some(Hint::Index(index)) => {
            let mut found = of_index(input, Some(index), conjuncts, &predicates);
            return match best(&found) {
                Some(at) => Ok(Decision::only(found.swap_remove(at).access)),
                None => Err(Error::new(
                    Code::NO_QUERY_EXECUTION_PLANS,
                    "error processing query: planner returned error :: caused by :: No query \
                     solutions: the index of the hint cannot answer this query",
                )),
            };
        }
        None => {}
    }
    if input.allowed.is_none()
        && let Some(access) = id_lookup(input, conjuncts)
    {
        return Ok(Decision::only(access));
    }
    let mut candidates = candidates(input, conjuncts, &predicates);
    if candidates.iter().all(|candidate| candidate.score < BOUNDED)
        && let Some(union) = union(input, conjuncts)?
    {
        candidates.insert(0, Candidate::of_union(union));
    }
    Ok(match best(&candidates).filter(|at| candidates[*at].score >= worth(input)) {
        None => Decision {
            rivals: rivals::skip_scans(input, candidates),
            ..Decision::only(collection_scan(input, false))
        },
        Some(at) => {
            let winner = candidates.swap_remove(at);
            rivals::decision(input, conjuncts, winner, candidates)
        }
    })
}

/// The first of those with the highest score.
fn best(candidates: &[Candidate]) -> Option<usize> {
    (0..candidates.len()).max_by_key(|at| (candidates[*at].score, std::cmp::Reverse(*at)))
}

/// The least score at which an index is taken. A capped collection is read in its own order unless
/// an index narrows the search or gives the order asked for.
fn worth(input: &PlannerInput<'_>) -> u32 {
    if input.collection.order().is_some() && input.sort.is_none() { BOUNDED } else { 1 }
}

/// `{_id: value, …}`.
fn id_lookup(input: &PlannerInput<'_>, conjuncts: &[Node]) -> Option<Access> {
    if !input.collection.has_unique_ids() {
        return None;
    }
    let agree = input.collation() == input.collection.collation();
    let at = conjuncts.iter().position(|node| {
        matches!(node, Node::Leaf(Leaf { path, predicate: Predicate::Eq(value) })
            if path.as_str() == "_id"
                && (agree || !keystring::is_collatable(value.as_raw_bson_ref()))
                && !matches!(value, RawBson::Array(_) | RawBson::Null))
    })?;
    let Node::Leaf(Leaf { predicate: Predicate::Eq(value), .. }) = &conjuncts[at] else {
        return None;
    };
    Some(Access {
        path: AccessPath::Id(value.clone()),
        residual: without(input.filter, conjuncts, &BTreeSet::from([at])),
        sorted: true,
    })
}

fn collection_scan(input: &PlannerInput<'_>, backward: bool) -> Access {
    let residual = (!input.filter.matches_everything()).then(|| input.filter.clone());
    let sorted = input.sort.is_none_or(SortPattern::is_empty);
    Access { path: AccessPath::Collection { backward }, residual, sorted }
}

/// An `$or` whose branches all have a bounded index: each branch by its own, every document once.
pub(super) fn union(input: &PlannerInput<'_>, conjuncts: &[Node]) -> Result<Option<Access>> {
    let branches = conjuncts.iter().find_map(|node| match node {
        Node::Or(branches) => Some(branches),
        _ => None,
    });
    let Some(branches) = branches else { return Ok(None) };
    let ordered = input.sort.filter(|sort| !sort.is_empty());
    let (mut inputs, merged) = match branch_plans(input, branches, ordered)? {
        Some(plans) if ordered.is_some() && plans.iter().all(|plan| plan.sorted) => (plans, true),
        Some(_) if ordered.is_some() => match branch_plans(input, branches, None)? {
            Some(plans) => (plans, false),
            None => return Ok(None),
        },
        Some(plans) => (plans, false),
        None => return Ok(None),
    };
    // Text branches first: a document must be found by the branch that gives its text score, not by
    // another one that gives none.
    inputs.sort_by_key(|access| !matches!(access.path, AccessPath::Text(_)));
    let residual = (conjuncts.len() > 1).then(|| {
        let others = conjuncts
            .iter()
            .filter(|node| !matches!(node, Node::Or(b) if std::ptr::eq(b, branches)));
        Filter::new(Node::And(others.cloned().collect()), Arc::clone(input.filter.variables()))
    });
    let path = match ordered.filter(|_| merged) {
        Some(sort) => AccessPath::Merge(MergeScan {
            branches: inputs,
            order: (sort.clone(), input.collation().cloned()),
            disjoint: false,
        }),
        None => AccessPath::Union(inputs),
    };
    Ok(Some(Access { path, residual, sorted: merged || ordered.is_none() }))
}

/// The best way for each branch; `None` where one of them has no bounded index.
fn branch_plans(
    input: &PlannerInput<'_>,
    branches: &[Node],
    sort: Option<&SortPattern>,
) -> Result<Option<Vec<Access>>> {
    let mut plans = Vec::with_capacity(branches.len());
    for branch in branches {
        let filter = Filter::new(branch.clone(), Arc::clone(input.filter.variables()));
        let winner = choose(&PlannerInput {
            filter: &filter,
            sort,
            hint: None,
            fields: None,
            limited: false,
            ..*input
        })?
        .winner;
        match &winner.path {
            AccessPath::Collection { .. } => return Ok(None),
            AccessPath::Index(scan) if scan.bounds.first().is_some_and(Intervals::is_all) => {
                return Ok(None);
            }
            _ => plans.push(winner),
        }
    }
    Ok(Some(plans))
}
