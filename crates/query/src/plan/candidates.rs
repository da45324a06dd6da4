//! What each index offers, with a score.
//!
//! Of scores: values beat ranges, more bounded parts beat fewer, an order that need not be
//! sorted and an index that tells everything count extra. Arrays restrict what may be combined:
//! on a part that has met arrays only one predicate bounds the scan, because different elements
//! may satisfy different predicates; and of two such parts under one array only the first, unless
//! an `$elemMatch` ties them to one element.
//!
//! An index in another collation than the query's is a candidate too: it bounds, orders and covers
//! whatever holds no strings.

use super::hint::Hint;
use super::implied::{excludes_missing, holds_all};
use super::{Access, AccessPath, IndexScan, MergeScan, geo, id_parts, wildcard};
use crate::index_filter::IndexFilter;
use ::geo::Grid;
use bounds::exploded;
use bounds::{Bounds, Collations};
use bounds::{Interval, Intervals};
use bounds::{PathPredicate, path_predicates};
use bson::RawBson;
use bsonval::{Path, SortPattern};
use catalog::{Collection, Index};
use engine::Timestamp;
use indexkeys::{KeyPart, PartKind};
use keystring::{Collation, Direction};
use matcher::{Filter, Node};
use smallvec::SmallVec;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The score of a candidate whose first part is bounded is at least this.
pub(super) const BOUNDED: u32 = 100;

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
    /// The client's `min` and `max` are about one scan: it may not become several.
    pub(crate) one_scan: bool,
    /// The indexes that an operator allows for queries of this shape.
    pub(crate) allowed: Option<&'a IndexFilter>,
}

impl PlannerInput<'_> {
    /// The collation that the query asks for.
    pub(super) fn collation(&self) -> Option<&Collation> {
        self.filter.variables().collation()
    }

    /// The collation in an index; `None` is the collection itself.
    pub(super) fn collation_of<'a>(
        &'a self,
        index: Option<&'a Arc<Index>>,
    ) -> Option<&'a Collation> {
        index.map_or(self.collection.collation(), |index| index.spec().collation.as_ref())
    }
}

/// What an index offers.
pub(super) struct Candidate {
    pub(super) access: Access,
    pub(super) score: u32,
    /// The conjuncts that its bounds settle.
    pub(super) settled: BTreeSet<usize>,
    /// It finds one document at most.
    pub(super) single: bool,
}

impl Candidate {
    /// Of an `$or` each of whose branches is bounded.
    pub(super) fn of_union(access: Access) -> Self {
        Self { access, score: BOUNDED, settled: BTreeSet::new(), single: false }
    }
}

/// What the filter says about paths, to indexes of each kind of collation.
pub(super) struct Predicates<'f> {
    conjuncts: &'f [Node],
    query: Option<&'f Collation>,
    /// The index orders strings as the query does.
    same: OnceCell<Vec<PathPredicate>>,
    /// The index orders them by their bytes, the query does not.
    bytes: OnceCell<Vec<PathPredicate>>,
    /// The index orders them in a way of its own.
    other: OnceCell<Vec<PathPredicate>>,
}

impl<'f> Predicates<'f> {
    pub(super) fn new(conjuncts: &'f [Node], query: Option<&'f Collation>) -> Self {
        let [same, bytes, other] = [(); 3].map(|()| OnceCell::new());
        Self { conjuncts, query, same, bytes, other }
    }

    pub(super) fn of(&self, index: Option<&Collation>) -> &[PathPredicate] {
        let cell = match index {
            index if index == self.query => &self.same,
            None => &self.bytes,
            Some(_) => &self.other,
        };
        let collations = Collations { query: self.query, index };
        cell.get_or_init(|| path_predicates(self.conjuncts, collations))
    }
}

/// What the indexes offer that may be asked.
pub(super) fn candidates(
    input: &PlannerInput<'_>,
    conjuncts: &[Node],
    predicates: &Predicates<'_>,
) -> Vec<Candidate> {
    let usable = |index: &&Arc<Index>| {
        !index.spec().hidden
            && input.allowed.is_none_or(|allowed| allowed.holds(index))
            && !index.spec().is_text()
            && index.created() <= input.snapshot
            && (!index.spec().sparse || excludes_missing(index, predicates))
            && (!index.spec().is_geo()
                || geo::serves(index, predicates.of(index.spec().collation.as_ref())))
            && holds_all(index, predicates)
    };
    let primary = match input.collection.primary_index() {
        None => input.allowed.is_none_or(IndexFilter::holds_id).then_some(None),
        Some(index) => usable(&index).then_some(Some(index)),
    };
    primary
        .into_iter()
        .chain(input.collection.indexes().iter().filter(usable).map(Some))
        .filter(|index| may_offer(input, *index, conjuncts, predicates))
        .flat_map(|index| of_index(input, index, conjuncts, predicates))
        .collect()
}

/// Whether an index can have a score at all: the filter bounds one of its parts, or there is an order
/// that it may give, or it may tell everything.
fn may_offer(
    input: &PlannerInput<'_>,
    index: Option<&Arc<Index>>,
    conjuncts: &[Node],
    predicates: &Predicates<'_>,
) -> bool {
    if input.sort.is_some_and(|sort| !sort.is_empty()) {
        return true;
    }
    let parts = index.map_or(id_parts(), |index| &index.spec().parts[..]);
    let bounded = predicates.of(input.collation_of(index)).iter();
    let mut bounded = bounded.filter(|one| parts.iter().any(|part| part.path == one.path));
    if bounded.next().is_some() {
        return true;
    }
    index.is_some_and(|index| {
        if index.is_primary() {
            return false;
        }
        let residual = (!conjuncts.is_empty()).then_some(input.filter);
        let spec = index.spec();
        spec.wildcard.is_some() || spec.clustering || covers(input, parts, residual, true)
    })
}

/// What an index offers: one candidate, of a wildcard one for each path that it could serve.
pub(super) fn of_index(
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

/// What one index offers, a wildcard one for this part and path.
pub(super) fn index_candidate(
    input: &PlannerInput<'_>,
    index: Option<&Arc<Index>>,
    path: Option<(usize, &str)>,
    conjuncts: &[Node],
    predicates: &Predicates<'_>,
) -> Candidate {
    let collation = input.collation_of(index);
    let record_bounds = record_bounds(input, index, predicates);
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
    let merged = input.sort.filter(|_| matches!(order, Some(None)) && !input.one_scan);
    let merged = merged.and_then(|sort| {
        let provides =
            |bounds: &[Intervals]| provided_order(input, index, parts, multikey, bounds, sort);
        exploded(&bounds, provides)
    });
    let (sorted, backward) = match (order, &merged) {
        (None, _) => (true, false),
        (Some(None), Some(merged)) => (true, merged.backward),
        (Some(None), None) => (false, false),
        (Some(Some(backward)), _) => (true, backward),
    };
    let covered = index.is_some_and(|index| {
        multikey == 0
            && index.keys().can_return_values()
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
    let has_unique_ids = input.collection.has_unique_ids();
    let unique = index.map_or(has_unique_ids, |index| {
        index.spec().unique && (has_unique_ids || !index.spec().is_id())
    });
    let single = unique && bounds.iter().all(Intervals::is_point);
    if single {
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
    // A walk over all documents, which needs no index.
    let is_primary = index.is_none_or(|index| index.is_primary());
    if is_primary && score < BOUNDED && !(order.is_some() && sorted) {
        score = 0;
    }
    let several_keys = merged.as_ref().is_some_and(|merged| multikey & merged.parts() != 0);
    let scan = |bounds| {
        AccessPath::Index(IndexScan {
            index: index.cloned(),
            expanded: expanded.clone(),
            bounds,
            backward,
            key_limits: (None, None),
            covered,
            planned_multikey: multikey,
            record_bounds: record_bounds.clone(),
        })
    };
    let access = match merged.zip(input.sort) {
        None => Access { path: scan(bounds), residual, sorted },
        Some((merged, sort)) => {
            let branch =
                |bounds| Access { path: scan(bounds), residual: residual.clone(), sorted: true };
            let merge = MergeScan {
                branches: merged.bounds.into_iter().map(branch).collect(),
                order: (sort.clone(), input.collation().cloned()),
                disjoint: !several_keys,
            };
            Access { path: AccessPath::Merge(merge), residual: None, sorted }
        }
    };
    Candidate { access, score, settled, single }
}

/// Where the fields of the primary key must lie, that an index of a partitioned collection need not be
/// searched in every partition. They never hold arrays.
pub(super) fn record_bounds(
    input: &PlannerInput<'_>,
    index: Option<&Arc<Index>>,
    predicates: &Predicates<'_>,
) -> Vec<Intervals> {
    let collection = input.collection;
    if !collection.is_partitioned() || index.is_none_or(|index| index.is_primary()) {
        return Vec::new();
    }
    let collation = collection.collation();
    let parts = primary_parts(collection);
    // An `_id` may be a document, never an array.
    let (bounds, _) = part_bounds(parts, 0, predicates.of(collation), collation, &Grid::default());
    bounds
}

pub(super) fn rank(intervals: &Intervals) -> u32 {
    Bounds { intervals: intervals.clone(), exact: true }.rank()
}

/// The bounds of each part, and the conjuncts that they settle.
pub(super) fn part_bounds(
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
        let hash = indexkeys::hash(interval.low.as_raw_bson_ref(), collation).ok()?;
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
        if multikey & 1 << at != 0 && !orders_arrays(parts, multikey, bounds, at) {
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
    if let Some(index) = index.filter(|index| !index.spec().unique) {
        let given = |path: &str| {
            multikey == 0
                && index.spec().collation.as_ref() == input.collection.collation()
                && parts.iter().any(|part| part.path == path && part.kind == PartKind::Value)
        };
        // Entries with equal parts stand in the order of the primary key. What a part has tells them
        // apart no more.
        for part in primary_parts(input.collection).iter().filter(|part| !given(&part.path)) {
            let Some((path, direction)) = wanted.peek() else { break };
            let against = part.descending != (*direction == Direction::Descending);
            if path.as_str() != part.path
                || input.collection.collation() != input.collation()
                || *backward.get_or_insert(against) != against
            {
                break;
            }
            wanted.next();
        }
    }
    wanted.peek().is_none().then(|| backward.unwrap_or(false))
}

/// The fields of record keys.
fn primary_parts(collection: &Collection) -> &[KeyPart] {
    collection.primary_index().map_or(id_parts(), |index| &index.spec().parts)
}

/// Whether the entries of a part that has met arrays come in the order of their documents: by the
/// least (or greatest) element of each. A bound leaves elements out, also one on another part of
/// the same array.
fn orders_arrays(parts: &[KeyPart], multikey: u32, bounds: &[Intervals], at: usize) -> bool {
    let array = |path: &str| path.split('.').next().map(str::to_owned);
    let shares = |other: usize| {
        multikey & 1 << other != 0 && array(&parts[other].path) == array(&parts[at].path)
    };
    (0..parts.len()).filter(|other| !bounds[*other].is_all()).all(|other| !shares(other))
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
