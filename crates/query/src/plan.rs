//! Which way to the documents: an index, several, or the collection itself.
//!
//! From → to: the filter's conjuncts become bounds per path [`predicates`]; each index takes the
//! bounds of its parts [`candidates`]; the best by score wins [`choose`]. Where the score cannot
//! tell which of several is better a trial decides, and a cache remembers what it decided
//! (`crate::plan_choice`).
//!
//! Always true: an access plan yields every document that matches, perhaps more; what its bounds
//! do not settle stands in its residual filter.

mod candidates;
mod choose;
mod geo;
pub(crate) mod hint;
mod implied;
mod interval;
mod near;
mod rivals;
mod route;
mod shape;
mod text;
pub(crate) mod wildcard;

pub(crate) use self::geo::ring_bounds;
pub(crate) use candidates::PlannerInput;
pub(crate) use choose::choose;
pub(crate) use interval::record_intervals;
pub(crate) use near::{may_hint, near_scan};
pub(crate) use route::Route;
pub(crate) use shape::Shape;
pub(crate) use text::{TextScan, is_conjunct_text};

use bounds::Intervals;
use bson::raw::RawBson;
use bsonval::{Path, SortPattern};
use catalog::Index;
use indexkeys::{KeyPart, PartKind};
use keystring::Collation;
use matcher::{Filter, GeoNear};
use std::sync::Arc;

/// How the documents are reached, before sort, skip, limit and projection.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) path: AccessPath,
    /// What must still be asked of each document; `None` where nothing.
    pub(crate) residual: Option<Filter>,
    /// The documents come in the order the query asked for.
    pub(crate) sorted: bool,
}

/// One way to reach documents.
#[derive(Clone, Debug)]
pub(crate) enum AccessPath {
    /// The filter matches nothing.
    Nothing,
    /// One document by its `_id`.
    Id(RawBson),
    /// The documents in the order of the primary key, those of a capped collection in the order of
    /// arrival.
    Collection {
        /// From the largest.
        backward: bool,
    },
    /// A part of an index.
    Index(IndexScan),
    /// A search in a text index.
    Text(Box<TextScan>),
    /// By distance from a point, the nearest first.
    Near(Box<NearScan>),
    /// Several ways; a document is taken once.
    Union(Vec<Access>),
    /// Several ways, each in the order asked for.
    Merge(MergeScan),
    /// What two scans both find.
    Intersection(Box<[IndexScan; 2]>),
}

/// Several ways, each in the order asked for.
#[derive(Clone, Debug)]
pub(crate) struct MergeScan {
    pub(crate) branches: Vec<Access>,
    /// That order, and the collation in it.
    pub(crate) order: (SortPattern, Option<Collation>),
    /// No document is found by two of them.
    pub(crate) disjoint: bool,
}

/// Bytes that a key must reach, and stay below.
pub(crate) type KeyLimits = (Option<Vec<u8>>, Option<Vec<u8>>);

/// A search through a geospatial index that goes outward from a point.
#[derive(Clone, Debug)]
pub(crate) struct NearScan {
    /// The index, with the bounds of its other parts.
    pub(crate) scan: IndexScan,
    /// The part whose bounds follow the search.
    pub(crate) part: usize,
    /// Its path.
    pub(crate) path: Path,
    /// What is near.
    pub(crate) near: Arc<GeoNear>,
    /// What is written into the documents.
    pub(crate) output: Option<Arc<NearOutput>>,
}

impl NearScan {
    /// What the index's part holds.
    pub(crate) fn kind(&self) -> PartKind {
        self.scan.parts()[self.part].kind
    }

    /// What `explain` calls it.
    pub(crate) fn stage_name(&self) -> &'static str {
        match self.kind() {
            PartKind::Flat => "GEO_NEAR_2D",
            _ => "GEO_NEAR_2DSPHERE",
        }
    }
}

/// What `$geoNear` writes into each document.
#[derive(Clone, Debug)]
pub(crate) struct NearOutput {
    /// Where the distance goes.
    pub(crate) distance_field: String,
    /// What it is multiplied by.
    pub(crate) multiplier: f64,
    /// Where the location goes that is nearest.
    pub(crate) location_field: Option<String>,
    /// Both are also written where `{$meta: ...}` looks for them.
    pub(crate) asked: bool,
}

/// A part of one index.
#[derive(Clone, Debug)]
pub(crate) struct IndexScan {
    /// The index; `None` is the one on `_id` where that is the collection itself.
    pub(crate) index: Option<Arc<Index>>,
    /// The parts of a wildcard index for the path that is looked for.
    pub(crate) expanded: Option<Arc<[KeyPart]>>,
    /// Where each part must lie.
    pub(crate) bounds: Vec<Intervals>,
    /// Against the index's order.
    pub(crate) backward: bool,
    /// From `min` and `max`: bytes that the key must reach and stay below.
    pub(crate) key_limits: KeyLimits,
    /// The entries tell all the query needs.
    pub(crate) covered: bool,
    /// The parts that had met arrays when the bounds were made.
    pub(crate) planned_multikey: u32,
    /// Where the fields of the primary key of a partitioned collection must lie, that only some partitions
    /// be searched; empty where nothing is known, or where `bounds` tell it.
    pub(crate) record_bounds: Vec<Intervals>,
}

impl IndexScan {
    /// The index's name.
    pub(crate) fn name(&self) -> &str {
        self.index.as_ref().map_or("_id_", |index| &index.spec().name)
    }

    /// The index's parts.
    pub(crate) fn parts(&self) -> &[KeyPart] {
        match (&self.expanded, &self.index) {
            (Some(parts), _) => parts,
            (None, Some(index)) => &index.spec().parts,
            (None, None) => id_parts(),
        }
    }

    /// Whether the entries hold whole documents: nothing needs to be fetched.
    pub(crate) fn holds_documents(&self) -> bool {
        self.index.as_ref().is_some_and(|index| index.spec().clustering)
    }

    /// Which parts have met arrays.
    pub(crate) fn multikey(&self) -> u32 {
        self.index.as_ref().map_or(0, |index| index.multikey_parts())
    }
}

/// The primary key of most collections.
pub(crate) fn id_parts() -> &'static [KeyPart] {
    use std::sync::OnceLock;
    static PARTS: OnceLock<[KeyPart; 1]> = OnceLock::new();
    PARTS.get_or_init(|| {
        [KeyPart { path: "_id".to_owned(), descending: false, kind: PartKind::Value }]
    })
}

/// A decision by what the indexes and the filter tell, without a look at the data.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) winner: Access,
    /// Others that may be better, which only the data can tell; the likeliest first.
    pub(crate) rivals: Vec<Access>,
    /// Others that cannot be better.
    pub(crate) rejected: Vec<Access>,
    /// An operator has said which indexes may serve the query.
    pub(crate) filtered: bool,
}

impl Decision {
    /// A decision where there is no choice.
    pub(crate) fn only(winner: Access) -> Self {
        Self { winner, rivals: Vec::new(), rejected: Vec::new(), filtered: false }
    }

    /// Makes the winner of the first that is wanted; says whether there is one.
    pub(crate) fn prefer(&mut self, wanted: impl Fn(&Access) -> bool) -> bool {
        let found = std::iter::once(&self.winner).chain(&self.rivals).position(wanted);
        found.is_some_and(|at| {
            self.take(at);
            true
        })
    }

    /// Makes the winner of one of them: 0 is the winner so far, 1 the first rival.
    pub(crate) fn take(&mut self, at: usize) {
        if let Some(at) = at.checked_sub(1) {
            std::mem::swap(&mut self.winner, &mut self.rivals[at]);
        }
    }
}
