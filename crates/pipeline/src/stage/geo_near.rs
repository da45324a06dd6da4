//! `$geoNear`: the collection's documents by their distance from a point.
//!
//! The stage is parsed here and answered by whoever has the collection's indexes.

use crate::parse::{Pipeline, PipelineContext};
use crate::source::DocumentSource;
use crate::stage::{Part, PipelineStage, Place, StageInput, StageSpec, object};
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::number::Number;
use errors::{Code, Error, Result};
use expr::agg::{Expression, MEASURED, Variables};
use matcher::Filter;
use std::sync::Arc;

/// A parsed `$geoNear`.
#[derive(Clone, Debug)]
pub struct GeoNear {
    /// The point; it may read variables, but no document.
    near: Expression,
    /// Where each document's distance goes.
    pub distance_field: String,
    /// Whether a legacy point is one of the sphere.
    pub spherical: bool,
    least: Option<Expression>,
    most: Option<Expression>,
    /// What else must hold of the documents.
    pub query: Filter,
    /// The indexed path, where several have an index.
    pub key: Option<String>,
    /// Where the location goes that was measured.
    pub include_locs: Option<String>,
    /// What distances are multiplied by.
    pub distance_multiplier: f64,
    pub(crate) source: RawBson,
}

fn bad<T>(message: String) -> Result<T> {
    Err(Error::bad_value(message))
}

fn text(name: &str, value: RawBsonRef<'_>, code: i32) -> Result<String> {
    match value {
        RawBsonRef::String(text) if !text.is_empty() && !text.starts_with('$') => {
            Ok(text.to_owned())
        }
        RawBsonRef::String(_) => bad(format!("$geoNear requires that '{name}' is a field path")),
        _ => Err(Error::location(
            code,
            format!("$geoNear requires that '{name}' option is a String"),
        )),
    }
}

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    let spec = object(value, |kind| {
        Error::location(
            10065,
            format!("invalid parameter: expected an object ($geoNear), but got {kind}"),
        )
    })?;
    let expression = |value| Ok::<_, Error>(Expression::parse(value, &ctx.parse.names)?.optimize());
    let (mut near, mut distance_field) = (None, None);
    let mut stage = GeoNear {
        near: Expression::parse(RawBsonRef::Null, &ctx.parse.names)?,
        distance_field: String::new(),
        spherical: false,
        least: None,
        most: None,
        query: Filter::parse(&RawDocumentBuf::new(), &ctx.parse)?,
        key: None,
        include_locs: None,
        distance_multiplier: 1.0,
        source: value.into(),
    };
    for element in spec {
        let (name, value) = element?;
        match name.as_str() {
            "near" => near = Some(expression(value)?),
            "distanceField" => distance_field = Some(value),
            "spherical" => stage.spherical = bsonval::types::is_true(value),
            "minDistance" => stage.least = Some(expression(value)?),
            "maxDistance" => stage.most = Some(expression(value)?),
            "query" => match value {
                RawBsonRef::Document(query) => stage.query = Filter::parse(query, &ctx.parse)?,
                other => {
                    return Err(Error::type_mismatch(format!(
                        "$geoNear parameter 'query' must be an object but found type: {}",
                        bsonval::types::name_of(other)
                    )));
                }
            },
            "key" => match value {
                RawBsonRef::String("") => {
                    return bad("$geoNear parameter 'key' cannot be the empty string".to_owned());
                }
                RawBsonRef::String(key) => stage.key = Some(key.to_owned()),
                other => {
                    return Err(Error::type_mismatch(format!(
                        "$geoNear parameter 'key' must be of type string but found type: {}",
                        bsonval::types::name_of(other)
                    )));
                }
            },
            "includeLocs" => stage.include_locs = Some(text("includeLocs", value, 16607)?),
            "distanceMultiplier" => {
                let number = Number::from_bson(value).map(Number::to_f64);
                let Some(multiplier) = number.filter(|number| *number >= 0.0) else {
                    return bad(
                        "$geoNear parameter 'distanceMultiplier' must be a non-negative number"
                            .to_owned(),
                    );
                };
                stage.distance_multiplier = multiplier;
            }
            "uniqueDocs" => {}
            "limit" | "num" | "start" => {
                let (code, instead) = match name.as_str() {
                    "limit" => (50858, " Use a $limit stage instead."),
                    "num" => (50857, " Use a $limit stage instead."),
                    _ => (50856, ""),
                };
                return Err(Error::location(
                    code,
                    format!("$geoNear no longer supports the '{name}' parameter.{instead}"),
                ));
            }
            "collation" => {
                return Err(Error::location(
                    40227,
                    "$geoNear does not accept the 'collation' parameter. Instead, specify a \
                     collation for the entire aggregation command.",
                ));
            }
            name => return bad(format!("Unknown argument to $geoNear: {name}")),
        }
    }
    let Some(near) = near else {
        return Err(Error::location(5_860_400, "$geoNear requires a 'near' argument"));
    };
    stage.near = near;
    let Some(distance_field) = distance_field else {
        return Err(Error::location(
            16606,
            "$geoNear requires a 'distanceField' option as a String",
        ));
    };
    stage.distance_field = text("distanceField", distance_field, 16606)?;
    if stage.expressions().any(|expression| {
        let reads = expression.dependencies();
        reads.whole || !reads.fields.is_empty()
    }) {
        return Err(Error::location(
            5_860_402,
            "$geoNear requires constant expressions for near, minDistance and maxDistance",
        ));
    }
    Ok(PipelineStage::GeoNear(Arc::new(stage)))
}

impl StageSpec for GeoNear {
    fn name(&self) -> &'static str {
        "$geoNear"
    }

    fn argument(&self) -> RawBson {
        self.source.clone()
    }

    fn parts(&self) -> Vec<Part<'_>> {
        self.expressions().map(Part::Expression).chain([Part::Filter(&self.query)]).collect()
    }

    fn execute(self: Arc<Self>, _: StageInput) -> Result<Box<dyn DocumentSource>> {
        Err(Error::new(Code::INTERNAL_ERROR, "$geoNear was not answered by an index"))
    }

    fn place(&self) -> Place {
        Place::First
    }
}

impl GeoNear {
    /// Whether the stages after this one ask for what it has measured. If so they leave it out of
    /// what they yield, at the end of them or before they write.
    pub fn is_asked(rest: &mut Vec<PipelineStage>, ctx: &PipelineContext) -> Result<bool> {
        if !crate::optimize::read_one_of(rest, &MEASURED) {
            return Ok(false);
        }
        let names = bsonval::raw::array(MEASURED.map(RawBsonRef::String));
        let unset = bsonval::raw::document_of("$unset", names.as_raw_bson_ref());
        let unset = Pipeline::parse_documents(&[&unset], ctx)?.into_stages();
        let writes = matches!(rest.last(), Some(PipelineStage::Out(_) | PipelineStage::Merge(_)));
        let end = rest.len() - usize::from(writes);
        rest.splice(end..end, unset);
        Ok(true)
    }

    /// The expressions that tell where and how far.
    fn expressions(&self) -> impl Iterator<Item = &Expression> {
        [&self.near].into_iter().chain(&self.least).chain(&self.most)
    }

    /// The operators that say the same of a path in a filter.
    pub fn operators(&self, variables: &Variables) -> Result<RawDocumentBuf> {
        let nothing = RawDocumentBuf::new();
        let value = |expression: &Expression| -> Result<RawBson> {
            let value = expression.evaluate(&nothing, variables)?;
            Ok(value.into_owned().unwrap_or(RawBson::Undefined))
        };
        let near = value(&self.near)?;
        let operator = if self.spherical { "$nearSphere" } else { "$near" };
        if !matches!(near, RawBson::Document(_) | RawBson::Array(_)) {
            return Err(Error::location(
                5_860_403,
                format!(
                    "$geoNear requires the near argument to be an object or array, but found {}",
                    bsonval::types::name_of(near.as_raw_bson_ref())
                ),
            ));
        }
        let mut out = bsonval::raw::document_of(operator, near.as_raw_bson_ref());
        for (name, bound) in [("minDistance", &self.least), ("maxDistance", &self.most)] {
            let Some(bound) = bound else { continue };
            let bound = value(bound)?;
            if Number::from_bson(bound.as_raw_bson_ref()).is_none() {
                return Err(Error::new(
                    Code::TYPE_MISMATCH,
                    format!("$geoNear parameter '{name}' must be a number"),
                ));
            }
            let name = if name == "minDistance" { "$minDistance" } else { "$maxDistance" };
            out.append(<&bson::raw::CStr>::try_from(name)?, bound);
        }
        Ok(out)
    }

    /// The argument as the client wrote it.
    pub fn source(&self) -> Option<&RawDocument> {
        self.source.as_document().map(AsRef::as_ref)
    }
}
