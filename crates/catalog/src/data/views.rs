//! What views read: the graph of views, which has no cycles.
//!
//! Always true: no view of a committed catalog reaches itself, through the collection it is on or
//! through a stage of its pipeline that names another one; for that a new or changed view is checked under
//! the mutex that every change of the catalog holds.

use crate::catalog::Catalog;
use crate::metadata::namespace::Namespace;
use crate::metadata::options::{CollectionOptions, View};
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use errors::{Code, Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// The deepest chain of views.
pub const MAX_VIEW_DEPTH: usize = 20;

/// How deep pipelines nest in pipelines that are looked at; `pipeline` refuses less.
const MAX_NESTING: usize = 100;

impl View {
    /// The collections and views of the same database that it reads.
    pub fn reads(&self) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::from([self.on.clone()]);
        names_in_pipeline(&self.pipeline, 0, &mut names)?;
        Ok(names)
    }
}

/// The names of collections in a pipeline's stages, also in those of its sub-pipelines.
fn names_in_pipeline(stages: &RawArray, depth: usize, names: &mut BTreeSet<String>) -> Result<()> {
    if depth > MAX_NESTING {
        return Err(Error::new(
            Code::MAX_SUB_PIPELINE_VIEW_DEPTH_EXCEEDED,
            format!("Maximum number of nested sub-pipelines exceeded. Limit is {MAX_NESTING}"),
        ));
    }
    for stage in stages {
        let RawBsonRef::Document(stage) = stage? else { continue };
        for element in stage {
            let (name, argument) = element?;
            match (name.as_str(), argument) {
                ("$lookup" | "$graphLookup", RawBsonRef::Document(spec)) => {
                    name_and_pipeline(spec, "from", depth, names)?;
                }
                ("$unionWith", RawBsonRef::String(from)) => {
                    names.insert(from.to_owned());
                }
                ("$unionWith", RawBsonRef::Document(spec)) => {
                    name_and_pipeline(spec, "coll", depth, names)?;
                }
                ("$facet", RawBsonRef::Document(facets)) => {
                    for facet in facets {
                        if let (_, RawBsonRef::Array(stages)) = facet? {
                            names_in_pipeline(stages, depth + 1, names)?;
                        }
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn name_and_pipeline(
    spec: &RawDocument,
    field: &str,
    depth: usize,
    names: &mut BTreeSet<String>,
) -> Result<()> {
    if let Some(RawBsonRef::String(from)) = spec.get(field)? {
        names.insert(from.to_owned());
    }
    if let Some(RawBsonRef::Array(stages)) = spec.get("pipeline")? {
        names_in_pipeline(stages, depth + 1, names)?;
    }
    Ok(())
}

impl Catalog {
    /// Refuses a view that reaches itself, whose chain is too deep or that orders strings in
    /// another way than a view it reads. Nothing else changes the catalog meanwhile.
    pub(crate) fn check_view(
        &self,
        namespace: &Namespace,
        options: &CollectionOptions,
    ) -> Result<()> {
        let Some(view) = &options.view else { return Ok(()) };
        let mut depths = BTreeMap::new();
        let depth = self.depth_below(namespace, options, view, &mut depths, 1)?;
        if depth > MAX_VIEW_DEPTH { Err(too_deep()) } else { Ok(()) }
    }

    /// How many views the longest chain from this one down has, itself included. `depths` are
    /// those of views already visited; `above` counts the views on the way here.
    fn depth_below(
        &self,
        top: &Namespace,
        options: &CollectionOptions,
        view: &View,
        depths: &mut BTreeMap<String, usize>,
        above: usize,
    ) -> Result<usize> {
        if above > MAX_VIEW_DEPTH {
            return Err(too_deep());
        }
        let mut deepest = 0;
        for name in view.reads()? {
            if name == top.collection() {
                return Err(Error::new(
                    Code::GRAPH_CONTAINS_CYCLE,
                    format!("View cycle detected: {top} reaches itself"),
                ));
            }
            let Ok(below) = Namespace::new(top.database(), &name) else { continue };
            let Some(below) = self.newest(&below) else { continue };
            let Some(view_below) = &below.options.view else { continue };
            if below.collation() != options.collation.as_ref() {
                return Err(Error::new(
                    Code::OPTION_NOT_SUPPORTED_ON_VIEW,
                    format!("View {top} has conflicting collation with view {}", below.namespace),
                ));
            }
            let depth = if let Some(depth) = depths.get(&name) {
                *depth
            } else {
                let depth = self.depth_below(top, &below.options, view_below, depths, above + 1)?;
                depths.insert(name, depth);
                depth
            };
            deepest = deepest.max(depth);
        }
        Ok(deepest + 1)
    }
}

fn too_deep() -> Error {
    Error::new(
        Code::VIEW_DEPTH_LIMIT_EXCEEDED,
        format!("View depth limit exceeded; maximum depth is {MAX_VIEW_DEPTH}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Bson, doc};

    fn reads(pipeline: Bson) -> Vec<String> {
        let spec = bson::RawDocumentBuf::try_from(&doc! { "pipeline": pipeline }).expect("valid");
        let pipeline = spec.get_array("pipeline").expect("an array").to_owned();
        let view = View { on: "on".to_owned(), pipeline };
        view.reads().expect("readable").into_iter().collect()
    }

    #[test]
    fn every_stage_that_names_a_collection_is_seen_however_deep() {
        let deep = bson::bson!([
            { "$lookup": { "from": "a", "pipeline": [{ "$unionWith": "b" }], "as": "x" } },
            { "$graphLookup": { "from": "c", "startWith": "$y", "as": "z" } },
            { "$facet": { "one": [{ "$lookup": { "from": "d", "as": "x" } }], "two": [] } },
            { "$unionWith": { "coll": "e", "pipeline": [{ "$unionWith": { "coll": "f" } }] } },
            { "$match": { "$lookup": { "from": "no" } } },
        ]);
        assert_eq!(reads(deep), ["a", "b", "c", "d", "e", "f", "on"]);
        let mut nested = bson::bson!([]);
        for _ in 0..=MAX_NESTING {
            nested = bson::bson!([{ "$unionWith": { "coll": "x", "pipeline": nested } }]);
        }
        let spec = bson::RawDocumentBuf::try_from(&doc! { "p": nested }).expect("valid");
        let pipeline = spec.get_array("p").expect("an array").to_owned();
        assert!(View { on: "on".to_owned(), pipeline }.reads().is_err(), "no endless recursion");
    }
}
