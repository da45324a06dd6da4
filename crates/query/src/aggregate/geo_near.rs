//! `$geoNear` as a query: a filter that asks for the order, and what is written into the documents.

use super::to_pipeline;
use crate::plan::NearOutput;
use bson::raw::RawBsonRef;
use bsonval::raw::document_of;
use catalog::Collection;
use catalog::index::PartKind;
use errors::{Code, Error, Result};
use expr::agg::Variables;
use matcher::{Filter, Node, ParseContext};
use pipeline::stage::geo_near::GeoNear;
use pipeline::{PipelineContext, PipelineStage};
use std::sync::Arc;

/// What the documents must satisfy.
pub(super) fn condition(
    collection: &Collection,
    stage: &GeoNear,
    variables: &Arc<Variables>,
) -> Result<Node> {
    let path = match &stage.key {
        Some(key) => key.as_str(),
        None => the_path(collection)?,
    };
    let operators = stage.operators(variables)?;
    let near = document_of(path, RawBsonRef::Document(&operators));
    let parse = ParseContext { variables: Arc::clone(variables), ..ParseContext::default() };
    let near = Filter::parse_query(&near, &parse)?;
    Ok(Node::And(vec![near.into_root(), stage.query.root().clone()]))
}

/// What is written into each, for the stages that follow.
pub(super) fn output(
    collection: &Collection,
    stage: &GeoNear,
    rest: &mut Vec<PipelineStage>,
    variables: &Arc<Variables>,
) -> Result<Arc<NearOutput>> {
    let parse = ParseContext { variables: Arc::clone(variables), ..ParseContext::default() };
    let context = PipelineContext::new(&to_pipeline(collection.namespace()), parse);
    Ok(Arc::new(NearOutput {
        distance_field: stage.distance_field.clone(),
        multiplier: stage.distance_multiplier,
        location_field: stage.include_locs.clone(),
        asked: GeoNear::is_asked(rest, &context)?,
    }))
}

/// The path of the one `2d` index, else of the one `2dsphere` index.
fn the_path(collection: &Collection) -> Result<&str> {
    for (kind, name) in [(PartKind::Flat, "2d"), (PartKind::Sphere, "2dsphere")] {
        let parts = collection
            .indexes()
            .iter()
            .filter(|index| !index.spec().hidden)
            .filter_map(|index| index.spec().parts.iter().find(|part| part.kind == kind));
        let paths: Vec<&str> = parts.map(|part| part.path.as_str()).collect();
        match paths[..] {
            [] => {}
            [path] => return Ok(path),
            _ => {
                return Err(Error::new(
                    Code::INDEX_NOT_FOUND,
                    format!(
                        "There is more than one {name} index on {}; unsure which to use for \
                         $geoNear",
                        collection.namespace()
                    ),
                ));
            }
        }
    }
    Err(Error::new(
        Code::INDEX_NOT_FOUND,
        "$geoNear requires a 2d or 2dsphere index, but none were found",
    ))
}
