//! Geometry to intervals of cells.
//!
//! Always true: the intervals hold a cell of every geometry that satisfies the predicate; they never
//! settle it. A geospatial index lacks documents without geometry, so it is used only for what such
//! documents cannot satisfy.

use super::interval::{Interval, Intervals};
use super::predicates::PathPredicate;
use ::geo::{Cap, Grid, Region, cell, grid};
use bson::raw::RawBson;
use bsonval::Path;
use catalog::Index;
use catalog::index::PartKind;
use matcher::{GeoNear, Leaf, Node, Predicate};

/// Whether some predicate asks of a geometric part what it can tell.
pub(super) fn serves(index: &Index, predicates: &[PathPredicate]) -> bool {
    index.spec().parts.iter().any(|part| {
        predicates.iter().any(|predicate| {
            predicate.path == part.path
                && predicate.geo.as_ref().is_some_and(|test| tells(part.kind, test.region()))
        })
    })
}

/// Whether cells of this kind tell where a region is.
fn tells(kind: PartKind, region: &Region) -> bool {
    match kind {
        PartKind::Sphere => !matches!(region, Region::Flat(_)),
        PartKind::Flat => !matches!(region, Region::Shape(_)),
        _ => false,
    }
}

/// The bounds of a geometric part.
pub(super) fn part_bounds<'p>(
    kind: PartKind,
    multikey: bool,
    grid: &Grid,
    predicates: impl Iterator<Item = &'p PathPredicate>,
) -> Intervals {
    let mut regions = predicates
        .filter_map(|predicate| predicate.geo.as_ref())
        .map(|test| test.region())
        .filter(|region| tells(kind, region))
        .map(|region| region_bounds(kind, multikey, grid, region));
    let Some(first) = regions.next() else { return Intervals::all() };
    if multikey {
        // Another predicate may be satisfied by another geometry of the document.
        return first;
    }
    regions.fold(first, |so_far, bounds| so_far.intersect(&bounds))
}

fn region_bounds(kind: PartKind, multikey: bool, grid: &Grid, region: &Region) -> Intervals {
    let ranges = match (kind, region) {
        (PartKind::Sphere, Region::Shape(shape)) => {
            cell::search(cell::Area::Shape(shape), !multikey)
        }
        (PartKind::Sphere, Region::Cap(Cap { centre, radius })) => {
            let area = cell::Area::Around { centre: *centre, low: 0.0, high: *radius };
            cell::search(area, !multikey)
        }
        (PartKind::Flat, Region::Flat(shape)) => grid.search(grid::Area::Shape(shape)),
        (PartKind::Flat, Region::Cap(cap)) => grid.search(grid::Area::Cap(*cap)),
        _ => return Intervals::all(),
    };
    intervals(ranges)
}

fn intervals(ranges: Vec<(i64, i64)>) -> Intervals {
    let parts = ranges
        .into_iter()
        .map(|(low, high)| Interval::new(RawBson::Int64(low), true, RawBson::Int64(high), true));
    Intervals::union(parts.collect(), None)
}

/// The part of an index that tells distances along a path.
pub(super) fn near_part(index: &Index, path: &Path, near: &GeoNear) -> Option<usize> {
    index.spec().parts.iter().position(|part| {
        part.path == path.as_str()
            && match part.kind {
                PartKind::Sphere => near.sphere().is_some(),
                PartKind::Flat => !near.centre().geojson,
                _ => false,
            }
    })
}

/// Whether a conjunct is the near query.
pub(super) fn is_near(node: &Node) -> bool {
    matches!(node, Node::Leaf(Leaf { predicate: Predicate::Near(_), .. }))
}

/// Where a geometric part holds what lies within distances of a near query's point.
pub(crate) fn ring_bounds(
    (kind, multikey): (PartKind, bool),
    grid: &Grid,
    near: &GeoNear,
    (low, high): (f64, f64),
) -> Intervals {
    let (least, most) = (low / near.unit(), high / near.unit());
    let ranges = match (kind, near.sphere()) {
        (PartKind::Sphere, Some(centre)) => {
            cell::search(cell::Area::Around { centre, low: least, high: most }, !multikey)
        }
        (_, Some(centre)) => grid.search(grid::Area::Cap(Cap { centre, radius: most })),
        (_, None) => {
            let centre = near.centre().place;
            grid.search(grid::Area::Around { centre, low, high })
        }
    };
    intervals(ranges)
}
