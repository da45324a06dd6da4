//! Candidates that may be better than the one with the best score, which only the data can tell.
//!
//! An index whose bounds are the beginning of another's cannot be better than the other: most
//! queries have no rival, and cost no trial.

use super::candidates::{BOUNDED, Candidate, PlannerInput, without};
use super::interval::Intervals;
use super::{Access, AccessPath, Decision, IndexScan};
use bsonval::SortPattern;
use matcher::Node;

/// As many rivals are tried at most.
const MAX_RIVALS: usize = 15;
/// A skip scan is thought of in collections of more documents than this.
const SKIP_SCAN_DOCUMENTS: u64 = 10_000;

/// The decision for a candidate among others.
pub(super) fn decision(
    input: &PlannerInput<'_>,
    conjuncts: &[Node],
    winner: Candidate,
    mut others: Vec<Candidate>,
) -> Decision {
    let nothing = |scan: &IndexScan| scan.bounds.iter().any(Intervals::is_empty);
    let settled = winner.single || scan_of(&winner.access).is_some_and(nothing);
    let ordered = input.sort.is_some_and(|sort| !sort.is_empty());
    let has_order = |candidate: &Candidate| candidate.score >= BOUNDED && candidate.access.sorted;
    let orders = ordered && !has_order(&winner) && !others.iter().any(has_order);
    others.sort_by_key(|candidate| std::cmp::Reverse(candidate.score));
    let mut rivals: Vec<Candidate> = Vec::new();
    let mut rejected = Vec::new();
    for other in others {
        let bounded = other.score >= BOUNDED;
        let orders_alone = orders && other.access.sorted && other.score > 0;
        if !(bounded || orders_alone) {
            continue;
        }
        let mut better = std::iter::once(&winner).chain(&rivals);
        let hopeless = settled
            || rivals.len() >= MAX_RIVALS
            || better.any(|better| dominates(&better.access, &other.access));
        if !hopeless {
            rivals.push(other);
        } else if bounded {
            rejected.push(other.access);
        }
    }
    let both = rivals.first().and_then(|rival| intersection(input, conjuncts, &winner, rival));
    let rivals = rivals.into_iter().map(|rival| rival.access).chain(both).collect();
    Decision { rivals, rejected, ..Decision::only(winner.access) }
}

fn scan_of(access: &Access) -> Option<&IndexScan> {
    match &access.path {
        AccessPath::Index(scan) => Some(scan),
        _ => None,
    }
}

/// Whether the second access cannot be better than the first: the same bounds begin it, and it
/// offers nothing that the first does not.
fn dominates(better: &Access, other: &Access) -> bool {
    let (Some(better_scan), Some(other_scan)) = (scan_of(better), scan_of(other)) else {
        return false;
    };
    if other_scan.expanded.is_some() || better_scan.expanded.is_some() {
        return false;
    }
    let prefix = other_scan.bounds.iter().take_while(|part| !part.is_all()).count();
    let same = |at: usize| {
        better_scan.parts().get(at).is_some_and(|part| {
            part.path == other_scan.parts()[at].path
                && part.kind == other_scan.parts()[at].kind
                && better_scan.bounds[at] == other_scan.bounds[at]
        })
    };
    let tells_all = |scan: &IndexScan| scan.covered || scan.holds_documents();
    prefix > 0
        && (0..prefix).all(same)
        && other_scan.bounds[prefix..].iter().all(Intervals::is_all)
        && (better.sorted || !other.sorted)
        && (tells_all(better_scan) || !tells_all(other_scan))
}

/// What two scans both find. The whole filter but for what the second scan settles is asked of it,
/// so that the first need not hold.
fn intersection(
    input: &PlannerInput<'_>,
    conjuncts: &[Node],
    first: &Candidate,
    second: &Candidate,
) -> Option<Access> {
    let (a, b) = (scan_of(&first.access)?, scan_of(&second.access)?);
    let bounded = |candidate: &Candidate| candidate.score >= BOUNDED;
    let plain = |scan: &IndexScan| {
        scan.index.as_ref().is_some_and(|index| !index.spec().is_geo())
            && !scan.covered
            && !scan.holds_documents()
    };
    if !(bounded(first) && bounded(second) && plain(a) && plain(b)) {
        return None;
    }
    let narrows = |scan: &IndexScan, other: &IndexScan| {
        scan.parts().iter().zip(&scan.bounds).any(|(part, bounds)| {
            !bounds.is_all() && other.parts().iter().all(|other| other.path != part.path)
        })
    };
    if !(narrows(a, b) && narrows(b, a)) {
        return None;
    }
    Some(Access {
        path: AccessPath::Intersection(Box::new([a.clone(), b.clone()])),
        residual: without(input.filter, conjuncts, &second.settled),
        sorted: input.sort.is_none_or(SortPattern::is_empty),
    })
}

/// Scans that go from one value of an index's first part to the next, and look at the part below
/// each that the filter asks for. They pay where the first part has few values.
pub(super) fn skip_scans(input: &PlannerInput<'_>, candidates: Vec<Candidate>) -> Vec<Access> {
    if input.collection.count() <= SKIP_SCAN_DOCUMENTS {
        return Vec::new();
    }
    candidates
        .into_iter()
        .map(|candidate| candidate.access)
        .filter(|access| scan_of(access).is_some_and(skips))
        .take(MAX_RIVALS)
        .collect()
}

fn skips(scan: &IndexScan) -> bool {
    scan.index.is_some()
        && scan.expanded.is_none()
        && scan.bounds.first().is_some_and(Intervals::is_all)
        && scan.bounds.iter().any(|part| !part.is_all())
}
