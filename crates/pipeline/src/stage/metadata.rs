//! Stages whose documents the server makes: the environment answers them.

use crate::parse::PipelineContext;
use crate::stage::{Stage, object};
use bson::raw::{RawBsonRef, RawDocumentBuf};
use errors::{Code, Error, Result};
use std::sync::Arc;

const NAMES: &[&str] = &[
    "$collStats",
    "$indexStats",
    "$planCacheStats",
    "$currentOp",
    "$listSessions",
    "$listLocalSessions",
    "$listCatalog",
    "$changeStream",
    "$listSearchIndexes",
    "$search",
    "$searchMeta",
    "$vectorSearch",
];

/// A request for such documents.
#[derive(Clone, Debug)]
pub struct Metadata {
    name: &'static str,
    spec: RawDocumentBuf,
}

impl Metadata {
    /// The stage's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The stage's argument.
    pub fn spec(&self) -> &RawDocumentBuf {
        &self.spec
    }
}

pub(crate) fn is_known(name: &str) -> bool {
    NAMES.contains(&name)
}

pub(crate) fn parse(name: &str, value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<Stage> {
    let name = NAMES.iter().find(|known| **known == name).copied().unwrap_or("$collStats");
    match name {
        "$changeStream" => {
            return Err(Error::location(
                40573,
                "The $changeStream stage is only supported on replica sets",
            ));
        }
        "$listSearchIndexes" | "$search" | "$searchMeta" | "$vectorSearch" => {
            return Err(Error::location(
                31082,
                format!("{name} stage is only allowed on MongoDB Atlas"),
            ));
        }
        _ => {}
    }
    let spec = object(value, |kind| {
        Error::failed_to_parse(format!(
            "{name} must take an object argument but found: {name}: a value of type {kind}"
        ))
    })?;
    if ctx.collection.is_none() && matches!(name, "$collStats" | "$indexStats" | "$planCacheStats")
    {
        return Err(Error::new(
            Code::INVALID_NAMESPACE,
            format!("{{aggregate: 1}} is not valid for '{name}'; a collection is required."),
        ));
    }
    Ok(Stage::Metadata(Arc::new(Metadata { name, spec: spec.to_owned() })))
}
