//! From an access plan to stages.

use super::PlanStage;
use super::arrival::ArrivalStage;
use super::fetch::FetchStage;
use super::geo_near::NearStage;
use super::intersect::IntersectStage;
use super::ixscan::{ClusteredStage, IndexStage};
use super::merge::MergeStage;
use super::scan::{CollectionStage, EmptyStage, IdStage};
use super::union::UnionStage;
use crate::examined::note_way;
use crate::plan::{Access, AccessPath, IndexScan, MergeScan};
use catalog::Collection;
use errors::Result;
use std::sync::Arc;

/// The stages of an access plan. Unless the plan is covered, its rows have their documents.
pub(crate) fn build_access(
    collection: &Arc<Collection>,
    access: &Access,
) -> Result<Box<dyn PlanStage>> {
    let residual = access.residual.clone();
    note_access(&access.path);
    Ok(match &access.path {
        AccessPath::Nothing => Box::new(EmptyStage::default()),
        AccessPath::Id(id) => Box::new(IdStage::new(collection, id.clone(), residual)),
        AccessPath::Collection { backward } => match collection.order() {
            Some(order) => Box::new(ArrivalStage::new(collection, order, *backward, residual)),
            None => Box::new(CollectionStage::new(collection, *backward, residual)),
        },
        AccessPath::Index(scan) if scan.index.is_none() => {
            Box::new(ClusteredStage(IndexStage::new(collection, scan.clone(), residual)?))
        }
        AccessPath::Index(scan) if scan.covered || scan.holds_documents() => {
            Box::new(IndexStage::new(collection, scan.clone(), residual)?)
        }
        AccessPath::Index(scan) => {
            let input = Box::new(IndexStage::new(collection, scan.clone(), None)?);
            Box::new(FetchStage::new(collection, input, residual))
        }
        AccessPath::Text(scan) => super::text::build(collection, scan, residual)?,
        AccessPath::Near(target) => {
            Box::new(NearStage::new(collection, (**target).clone(), residual)?)
        }
        AccessPath::Merge(MergeScan { branches, order, disjoint }) => {
            let inputs = build_all(collection, branches)?;
            let merge = Box::new(MergeStage::new(inputs, order.clone(), *disjoint));
            match residual {
                None => merge,
                Some(_) => Box::new(FetchStage::new(collection, merge, residual)),
            }
        }
        AccessPath::Intersection(scans) => {
            let [first, second] = &**scans;
            let input = |scan: &IndexScan| -> Result<Box<dyn PlanStage>> {
                note_way("IXSCAN", scan.index.as_ref());
                Ok(Box::new(IndexStage::new(collection, scan.clone(), None)?))
            };
            let both = IntersectStage::new(input(first)?, input(second)?);
            Box::new(FetchStage::new(collection, Box::new(both), residual))
        }
        AccessPath::Union(branches) => {
            let union = Box::new(UnionStage::new(build_all(collection, branches)?));
            match residual {
                None => union,
                Some(_) => Box::new(FetchStage::new(collection, union, residual)),
            }
        }
    })
}

fn build_all(collection: &Arc<Collection>, branches: &[Access]) -> Result<Vec<Box<dyn PlanStage>>> {
    branches.iter().map(|branch| build_access(collection, branch)).collect()
}

/// Tells the request which way is taken; the branches of a union are ways of their own.
fn note_access(path: &AccessPath) {
    match path {
        AccessPath::Nothing => note_way("EOF", None),
        AccessPath::Id(_) => note_way("IDHACK", None),
        AccessPath::Collection { .. } => note_way("COLLSCAN", None),
        AccessPath::Index(scan) => note_way("IXSCAN", scan.index.as_ref()),
        // The search tells its own.
        AccessPath::Text(_)
        | AccessPath::Union(_)
        | AccessPath::Merge(_)
        | AccessPath::Intersection(_) => {}
        AccessPath::Near(target) => note_way(target.stage_name(), target.scan.index.as_ref()),
    }
}
