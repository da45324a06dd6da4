//! The candidates, and which of them is taken.
//!
//! A score decides: values beat ranges, more bounded parts beat fewer, an order that need not be
//! sorted and an index that tells everything count extra. Arrays restrict what may be combined:
//! on a part that has met arrays only one predicate bounds the scan, because different elements
//! may satisfy different predicates; and of two such parts under one array only the first, unless
//! an `$elemMatch` ties them to one element.
//!
//! An index in another collation than the query's is a candidate too: it bounds, orders and covers
//! whatever holds no texts.

use super::bounds::Texts;
use super::hint::Hint;
use super::interval::{Interval, Intervals};
use super::predicates::{PathPredicate, conjuncts, path_predicates};
use super::{Access, AccessPath, Decision, IndexScan, NearScan, geo, id_parts, wildcard};
use ::geo::Grid;
use bson::RawBson;
use catalog::index::{KeyPart, PartKind};
use catalog::{Collection, Index, Timestamp};
use errors::{Code, Error, Result};
use expr::filter::{Filter, Leaf, Node, Predicate};
use expr::{Path, SortPattern};
use keystring::{Collation, Direction};
use smallvec::SmallVec;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a plan is made from.
pub(crate) struct PlannerInput<'a> {
    pub(crate) collection: &'a Collection,
    pub(crate) filter: &'a Filter,
    pub(crate) sort: Option<&'a SortPattern>,
    pub(crate) hint: Option<&'a Hint>,
    /// The fields the query needs beside its filter and sort; `None` is all of them.
    pub(crate) fields: Option<&'a BTreeSet<String>>,
    /// The snapshot the plan will run on: younger indexes are not in it.
    pub(crate) snapshot: Timestamp,
    /// A blocking sort would read everything only for these few.
    pub(crate) limited: bool,
    /// What is found by a text search is to carry its score.
    pub(crate) text_score: bool,
}

impl PlannerInput<'_> {
    /// The order of texts that the query asks for.
    fn collation(&self) -> Option<&Collation> {
        self.filter.variables().collation()
    }

    /// The order of texts in an index; `None` is the one on `_id`.
    fn collation_of<'a>(&'a self, index: Option<&'a Arc<Index>>) -> Option<&'a Collation> {
        index.map_or(self.collection.collation(), |index| index.spec().collation.as_ref())
    }
}

struct Candidate {
    access: Access,
    score: u32,
}

/// What the filter says about paths, to indexes of each kind of order of texts.
pub(super) struct Predicates<'f> {
    conjuncts: &'f [Node],
    query: Option<&'f Collation>,
    /// The index orders texts as the query does.
    same: OnceCell<Vec<PathPredicate>>,
    /// The index orders them by their bytes, the query does not.
    bytes: OnceCell<Vec<PathPredicate>>,
    /// The index orders them in a way of its own.
    other: OnceCell<Vec<PathPredicate>>,
}

impl<'f> Predicates<'f> {
    fn new(conjuncts: &'f [Node], query: Option<&'f Collation>) -> Self {
        let [same, bytes, other] = [(); 3].map(|()| OnceCell::new());
        Self { conjuncts, query, same, bytes, other }
    }

    pub(super) fn of(&self, index: Option<&Collation>) -> &[PathPredicate] {
        let cell = match index {
            index if index == self.query => &self.same,
            None => &self.bytes,
            Some(_) => &self.other,
        };
        let texts = Texts { query: self.query, index };
        cell.get_or_init(|| path_predicates(self.conjuncts, texts))
    }
}

/// Decides how to reach the documents.
pub(crate) fn choose(input: &PlannerInput<'_>) -> Result<Decision> {
    let root = input.filter.root();
    if matches!(root, Node::AlwaysFalse) {
        return only(Access { path: AccessPath::Nothing, residual: None, sorted: true });
    }
    let conjuncts = conjuncts(root);
    let predicates = Predicates::new(conjuncts, input.collation());
    if input.filter.near().is_some() {
        // Whoever asks has checked that an index can tell distances.
        let nothing = Access { path: AccessPath::Nothing, residual: None, sorted: true };
        return only(near_scan(input).unwrap_or(nothing));
    }
    if let Some(access) = super::text::access(input, conjuncts, &predicates)? {
        return only(access);
    }
    match input.hint {
        Some(Hint::Natural { backward }) => {
            return only(collection_scan(input, *backward));
        }
        Some(Hint::Id) => {
            return only(index_candidate(input, None, None, conjuncts, &predicates).access);
        }
        Some(Hint::Index(index)) => {
            let mut found = of_index(input, Some(index), conjuncts, &predicates);
            return match best(&found) {
                Some(at) => only(found.swap_remove(at).access),
                None => Err(Error::new(
                    Code::NO_QUERY_EXECUTION_PLANS,
                    "error processing query: planner returned error :: caused by :: No query \
                     solutions: the index of the hint cannot answer this query",
                )),
            };
        }
        None => {}
    }
    if let Some(access) = id_lookup(input, conjuncts) {
        return only(access);
    }
    let mut candidates = candidates(input, conjuncts, &predicates);
    if candidates.iter().all(|candidate| candidate.score < BOUNDED)
        && let Some(union) = union(input, conjuncts)?
    {
        candidates.insert(0, Candidate { access: union, score: BOUNDED });
    }
    match best(&candidates).filter(|at| candidates[*at].score >= worth(input)) {
        None => only(collection_scan(input, false)),
        Some(at) => {
            let winner = candidates.swap_remove(at).access;
            let rejected = candidates
                .into_iter()
                .filter(|candidate| candidate.score >= BOUNDED)
                .map(|candidate| candidate.access)
                .collect();
            Ok(Decision { winner, rejected })
        }
    }
}

/// The first of those with the highest score.
fn best(candidates: &[Candidate]) -> Option<usize> {
    (0..candidates.len()).max_by_key(|at| (candidates[*at].score, std::cmp::Reverse(*at)))
}

/// What an index must offer to be taken. A capped collection is read in its own order unless an
/// index narrows the search or gives the order asked for.
fn worth(input: &PlannerInput<'_>) -> u32 {
    if input.collection.order().is_some() && input.sort.is_none() { BOUNDED } else { 1 }
}

#[expect(clippy::unnecessary_wraps, reason = "what `choose` answers")]
fn only(winner: Access) -> Result<Decision> {
    Ok(Decision { winner, rejected: Vec::new() })
}

/// The score of a candidate whose first part is bounded is at least this.
const BOUNDED: u32 = 100;

/// `{_id: value, …}`.
fn id_lookup(input: &PlannerInput<'_>, conjuncts: &[Node]) -> Option<Access> {
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

fn candidates(
    input: &PlannerInput<'_>,
    conjuncts: &[Node],
    predicates: &Predicates<'_>,
) -> Vec<Candidate> {
    let usable = |index: &&Arc<Index>| {
        !index.spec().hidden
            && !index.spec().is_text()
            && index.created() <= input.snapshot
            && (!index.spec().sparse || excludes_missing(index, predicates))
            && (!index.spec().is_geo()
                || geo::serves(index, predicates.of(index.spec().collation.as_ref())))
            && holds_all(index, predicates)
    };
    std::iter::once(None)
        .chain(input.collection.indexes().iter().filter(usable).map(Some))
        .flat_map(|index| of_index(input, index, conjuncts, predicates))
        .collect()
}

/// What an index offers: one candidate, of a wildcard one for each path that it could serve.
fn of_index(
    input: &PlannerInput<'_>,
    index: Option<&Arc<Index>>,
    conjuncts: &[Node],
    predicates: &Predicates<'_>,
) -> SmallVec<[Candidate; 1]> {
    let candidate = |path| index_candidate(input, index, path, conjuncts, predicates);
    match index.and_then(|index| index.spec().wildcard.as_ref()) {
        None => SmallVec::from_iter([candidate(None)]),
        Some(wildcard) => {
            let predicates = predicates.of(input.collation_of(index));
            let paths = wildcard::paths(wildcard, predicates).into_iter();
            paths.map(|path| candidate(Some((wildcard.at(), path)))).collect()
        }
    }
}

/// Whether everything that matches satisfies the index's partial filter, where it has one.
fn holds_all(index: &Index, predicates: &Predicates<'_>) -> bool {
    index.spec().partial.as_ref().is_none_or(|partial| {
        let collation = index.spec().collation.as_ref();
        implied(partial.filter.root(), predicates.of(collation), collation)
    })
}

/// Whether a hinted index may be asked: a geospatial one holds only what has geometry.
pub(crate) fn may_hint(input: &PlannerInput<'_>, index: &Index) -> bool {
    let predicates = Predicates::new(conjuncts(input.filter.root()), input.collation());
    !index.spec().is_geo() || geo::serves(index, predicates.of(index.spec().collation.as_ref()))
}

/// The documents by their distance, through the index that narrows the search most; `None` where no
/// index tells distances.
pub(crate) fn near_scan(input: &PlannerInput<'_>) -> Option<Access> {
    let (path, near) = input.filter.near()?;
    let conjuncts = conjuncts(input.filter.root());
    let predicates = Predicates::new(conjuncts, input.collation());
    let candidate = |index: &Arc<Index>| {
        let spec = index.spec();
        let part = geo::near_part(index, path, near)?;
        let hinted = match input.hint {
            None => !spec.hidden,
            Some(Hint::Index(wanted)) => Arc::ptr_eq(wanted, index),
            Some(_) => false,
        };
        if !hinted || index.created() > input.snapshot || !holds_all(index, &predicates) {
            return None;
        }
        let multikey = index.multikey_parts();
        let collation = spec.collation.as_ref();
        let known = predicates.of(collation);
        let (bounds, mut settled) =
            part_bounds(&spec.parts, multikey, known, collation, &spec.grid);
        // What comes before the geometry must narrow the search.
        if part > 0 && bounds[0].is_all() {
            return None;
        }
        settled.extend(conjuncts.iter().position(geo::is_near));
        let ranks = bounds.iter().map(rank).sum::<u32>();
        let scan = IndexScan {
            index: Some(Arc::clone(index)),
            expanded: None,
            bounds,
            backward: false,
            key_limits: (None, None),
            covered: false,
            planned_multikey: multikey,
        };
        let (path, near) = (path.clone(), Arc::clone(near));
        let target = NearScan { scan, part, path, near, output: None };
        let residual = without(input.filter, conjuncts, &settled);
        let sorted = input.sort.is_none_or(SortPattern::is_empty);
        Some((ranks, Access { path: AccessPath::Near(Box::new(target)), residual, sorted }))
    };
    let found = input.collection.indexes().iter().filter_map(candidate);
    // Of equals the first.
    found.reduce(|best, other| if other.0 > best.0 { other } else { best }).map(|(_, scan)| scan)
}

/// A sparse index holds every match only where some part's field must be there.
fn excludes_missing(index: &Index, predicates: &Predicates<'_>) -> bool {
    predicates.of(index.spec().collation.as_ref()).iter().any(|predicate| {
        predicate.needs_field && index.spec().parts.iter().any(|part| part.path == predicate.path)
    })
}

/// Whether everything the predicates allow satisfies the partial index's filter.
pub(super) fn implied(
    node: &Node,
    predicates: &[PathPredicate],
    collation: Option<&Collation>,
) -> bool {
    let texts = Texts { query: collation, index: collation };
    match node {
        Node::AlwaysTrue => true,
        Node::And(parts) => parts.iter().all(|part| implied(part, predicates, collation)),
        Node::Or(parts) => parts.iter().any(|part| implied(part, predicates, collation)),
        Node::Leaf(Leaf { path, predicate: Predicate::Exists }) => {
            predicates.iter().any(|known| known.needs_field && known.path == path.as_str())
        }
        Node::Leaf(Leaf { path, predicate }) => {
            let Some(wanted) = super::bounds::of_predicate(predicate, texts).filter(|b| b.exact)
            else {
                return false;
            };
            let outside = wanted.intervals.complement();
            predicates.iter().any(|known| {
                known.path == path.as_str()
                    && !known.scalar_only
                    && known.bounds.intervals.intersect(&outside).is_empty()
            })
        }
        _ => false,
    }
}

fn index_candidate(
    input: &PlannerInput<'_>,
    index: Option<&Arc<Index>>,
    path: Option<(usize, &str)>,
    conjuncts: &[Node],
    predicates: &Predicates<'_>,
) -> Candidate {
    let collation = input.collation_of(index);
    let predicates = predicates.of(collation);
    let expanded = index.zip(path).map(|(index, (_, path))| wildcard::parts(index.spec(), path));
    let parts = match (&expanded, index) {
        (Some(parts), _) => parts,
        (None, Some(index)) => &index.spec().parts[..],
        (None, None) => id_parts(),
    };
    let multikey = index.map_or(0, |index| index.multikey_parts());
    let grid = index.map_or_else(Grid::default, |index| index.spec().grid);
    let (mut bounds, mut settled) = part_bounds(parts, multikey, predicates, collation, &grid);
    if let Some((at, path)) = path {
        bounds[at] = wildcard::path_bounds(path);
        // A field whose own name has a dot in it has the same path as another.
        settled.clear();
    }
    let residual = without(input.filter, conjuncts, &settled);
    let order = input
        .sort
        .filter(|sort| !sort.is_empty())
        .map(|sort| provided_order(input, index, parts, multikey, &bounds, sort));
    let (sorted, backward) = match order {
        None => (true, false),
        Some(None) => (false, false),
        Some(Some(backward)) => (true, backward),
    };
    let covered = index.is_some_and(|index| {
        multikey == 0
            && index.keys().tells_values()
            && covers(input, parts, residual.as_ref(), sorted)
    });
    let mut score = 0;
    if bounds.iter().any(Intervals::is_empty) {
        score += BOUNDED * 10;
    }
    let ranked = bounds.iter().enumerate().filter(|(at, _)| path.is_none_or(|path| path.0 != *at));
    for (at, (_, part)) in ranked.enumerate() {
        let rank = rank(part);
        score += match (at, rank) {
            (0, 0) => break,
            (0, rank) => BOUNDED + 10 * rank,
            (_, rank) => 10 * rank,
        };
        if rank < 3 {
            break;
        }
    }
    let unique = index.is_none_or(|index| index.spec().unique);
    if unique && bounds.iter().all(Intervals::is_point) {
        score += BOUNDED;
    }
    if order.is_some() && sorted {
        score += if input.limited { 25 } else { 15 };
    }
    if covered || index.is_some_and(|index| index.spec().clustering) {
        score += 12;
    }
    if path.is_some() {
        // An index on the path itself is smaller.
        score = score.saturating_sub(1);
    }
    if index.is_none() && score < BOUNDED && !(order.is_some() && sorted) {
        score = 0;
    }
    let access = Access {
        path: AccessPath::Index(IndexScan {
            index: index.cloned(),
            expanded,
            bounds,
            backward,
            key_limits: (None, None),
            covered,
            planned_multikey: multikey,
        }),
        residual,
        sorted,
    };
    Candidate { access, score }
}

fn rank(intervals: &Intervals) -> u32 {
    super::bounds::Bounds { intervals: intervals.clone(), exact: true }.rank()
}

/// The bounds of each part, and the conjuncts that they settle.
fn part_bounds(
    parts: &[KeyPart],
    multikey: u32,
    predicates: &[PathPredicate],
    collation: Option<&Collation>,
    grid: &Grid,
) -> (Vec<Intervals>, BTreeSet<usize>) {
    let mut settled = BTreeSet::new();
    let mut arrays: Vec<(&str, &PathPredicate)> = Vec::new();
    let mut bounds = Vec::with_capacity(parts.len());
    for (at, part) in parts.iter().enumerate() {
        let of_part = predicates.iter().filter(|p| p.path == part.path);
        if part.kind == PartKind::Hashed {
            bounds.push(hashed_bounds(of_part, collation));
            continue;
        }
        if part.kind.is_geo() {
            bounds.push(geo::part_bounds(part.kind, multikey & 1 << at != 0, grid, of_part));
            continue;
        }
        if multikey & 1 << at == 0 {
            let mut all = Intervals::all();
            for predicate in of_part {
                all = all.intersect(&predicate.bounds.intervals);
                if predicate.bounds.exact {
                    settled.insert(predicate.conjunct);
                }
            }
            bounds.push(all);
            continue;
        }
        let best = of_part
            .filter(|p| !p.scalar_only && p.bounds.rank() > 0)
            .filter(|p| arrays.iter().all(|(path, other)| may_join(path, other, &part.path, p)))
            .max_by_key(|p| p.bounds.rank());
        match best {
            Some(predicate) => {
                if predicate.bounds.exact {
                    settled.insert(predicate.conjunct);
                }
                arrays.push((&part.path, predicate));
                bounds.push(predicate.bounds.intervals.clone());
            }
            None => bounds.push(Intervals::all()),
        }
    }
    (bounds, settled)
}

/// The hashes of the values that a part must equal; everything where it need not equal any. They
/// settle nothing: different values may share a hash.
fn hashed_bounds<'p>(
    predicates: impl Iterator<Item = &'p PathPredicate>,
    collation: Option<&Collation>,
) -> Intervals {
    let mut wanted = Intervals::all();
    for predicate in predicates {
        // Such an index holds no arrays, so that every predicate is about the one value.
        wanted = wanted.intersect(&predicate.bounds.intervals);
    }
    if !wanted.is_points() {
        return Intervals::all();
    }
    let point = |interval: &Interval| {
        let hash = catalog::index::hash(interval.low.as_raw_bson_ref(), collation).ok()?;
        Some(Interval::point(RawBson::Int64(hash)))
    };
    wanted
        .as_slice()
        .iter()
        .map(point)
        .collect::<Option<Vec<_>>>()
        .map_or_else(Intervals::all, |points| Intervals::union(points, None))
}

/// Whether two parts that have met arrays may both be bounded: their arrays differ, or one
/// `$elemMatch` over all that they share speaks of both.
fn may_join(a: &str, first: &PathPredicate, b: &str, second: &PathPredicate) -> bool {
    let shared = Path::new(a)
        .components()
        .iter()
        .zip(Path::new(b).components())
        .take_while(|(a, b)| a.name() == b.name())
        .count();
    if shared == 0 {
        return true;
    }
    let prefix = first.element_path.as_str();
    first.element.is_some()
        && first.element == second.element
        && prefix == second.element_path
        && prefix.split('.').count() >= shared
}

/// Whether a scan of these bounds yields the sort's order, and if so whether backward.
fn provided_order(
    input: &PlannerInput<'_>,
    index: Option<&Arc<Index>>,
    parts: &[KeyPart],
    multikey: u32,
    bounds: &[Intervals],
    sort: &SortPattern,
) -> Option<bool> {
    let agree = input.collation_of(index) == input.collation();
    let mut wanted = sort.parts().peekable();
    let mut backward = None;
    for (at, part) in parts.iter().enumerate() {
        let Some((path, direction)) = wanted.peek() else { break };
        if path.as_str() != part.path {
            if bounds[at].is_point() {
                continue;
            }
            return None;
        }
        // Hashes come in no order; of one value there is nothing to order. Cells tell no values.
        if part.kind == PartKind::Hashed && !bounds[at].is_point() || part.kind.is_geo() {
            return None;
        }
        if multikey & 1 << at != 0 && !bounds[at].is_all() {
            return None;
        }
        if !agree && bounds[at].holds_collatable() {
            return None;
        }
        let against = part.descending != (*direction == Direction::Descending);
        if !bounds[at].is_point() && *backward.get_or_insert(against) != against {
            return None;
        }
        wanted.next();
    }
    // Entries with equal parts stand in the order of `_id`.
    if let (Some((path, direction)), Some(index)) = (wanted.peek(), index)
        && !index.spec().unique
        && path.as_str() == "_id"
        && input.collection.collation() == input.collation()
    {
        let against = *direction == Direction::Descending;
        if *backward.get_or_insert(against) == against {
            wanted.next();
        }
    }
    wanted.peek().is_none().then(|| backward.unwrap_or(false))
}

fn covers(
    input: &PlannerInput<'_>,
    parts: &[KeyPart],
    residual: Option<&Filter>,
    sorted: bool,
) -> bool {
    let Some(fields) = input.fields else { return false };
    let held = |path: &str| path == "_id" || parts.iter().any(|part| part.path == path);
    // `a` and `a.b` in one key cannot be put together again.
    let nested = parts.iter().any(|a| {
        parts.iter().any(|b| a.path != b.path && Path::new(&b.path).overlaps(&Path::new(&a.path)))
            || a.path.split('.').any(|name| name.parse::<u32>().is_ok())
            || a.path.starts_with("_id.")
    });
    !nested
        && parts.iter().all(|part| part.kind == PartKind::Value)
        && fields.iter().all(|field| held(field))
        && residual.is_none_or(|filter| {
            filter.expressions().is_empty() && filter.paths().iter().all(|p| held(p.as_str()))
        })
        && (sorted || input.sort.is_none_or(|sort| sort.paths().iter().all(|p| held(p.as_str()))))
}

/// The conjuncts that are not settled, as a filter.
pub(super) fn without(
    filter: &Filter,
    conjuncts: &[Node],
    settled: &BTreeSet<usize>,
) -> Option<Filter> {
    let left: Vec<Node> = conjuncts
        .iter()
        .enumerate()
        .filter(|(at, _)| !settled.contains(at))
        .map(|(_, node)| node.clone())
        .collect();
    (!left.is_empty()).then(|| Filter::new(Node::And(left), Arc::clone(filter.variables())))
}

/// An `$or` whose branches all have a bounded index: each branch by its own, every document once.
pub(super) fn union(input: &PlannerInput<'_>, conjuncts: &[Node]) -> Result<Option<Access>> {
    let branches = conjuncts.iter().find_map(|node| match node {
        Node::Or(branches) => Some(branches),
        _ => None,
    });
    let Some(branches) = branches else { return Ok(None) };
    let mut inputs = Vec::with_capacity(branches.len());
    for branch in branches {
        let filter = Filter::new(branch.clone(), Arc::clone(input.filter.variables()));
        let decision = choose(&PlannerInput {
            filter: &filter,
            sort: None,
            hint: None,
            fields: None,
            limited: false,
            ..*input
        })?;
        match &decision.winner.path {
            AccessPath::Collection { .. } => return Ok(None),
            AccessPath::Index(scan) if scan.bounds.first().is_some_and(Intervals::is_all) => {
                return Ok(None);
            }
            _ => inputs.push(decision.winner),
        }
    }
    // What a search finds carries its score: it must not be found before without.
    inputs.sort_by_key(|access| !matches!(access.path, AccessPath::Text(_)));
    let residual = (conjuncts.len() > 1).then(|| {
        let others = conjuncts
            .iter()
            .filter(|node| !matches!(node, Node::Or(b) if std::ptr::eq(b, branches)));
        Filter::new(Node::And(others.cloned().collect()), Arc::clone(input.filter.variables()))
    });
    Ok(Some(Access {
        path: AccessPath::Union(inputs),
        residual,
        sorted: input.sort.is_none_or(SortPattern::is_empty),
    }))
}
