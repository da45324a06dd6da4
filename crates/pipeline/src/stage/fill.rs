//! `$fill`: gaps filled by value or by method; a shorthand for `$setWindowFields` and
//! `$addFields`.

use crate::parse::PipelineContext;
use crate::stage::window::{missing, unknown, window_stage, wrong_type};
use crate::stage::{PipelineStage, object, transform};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bsonval::raw::{self, Writer};
use errors::{Error, Result};
use expr::agg::parse_fields;

pub(crate) fn parse(
    value: RawBsonRef<'_>,
    ctx: &PipelineContext,
    stages: &mut Vec<PipelineStage>,
) -> Result<()> {
    let spec = object(value, |kind| {
        Error::failed_to_parse(format!(
            "The $fill stage specification must be an object, found {kind}"
        ))
    })?;
    let [partition_by, fields, sort_by, output] =
        parse_fields(spec, ["partitionBy", "partitionByFields", "sortBy", "output"], |other| {
            unknown("$fill", other)
        })?;
    let RawBsonRef::Document(output) = output.ok_or_else(|| missing("$fill", "output"))? else {
        return Err(Error::type_mismatch("BSON field '$fill.output' must be an object"));
    };
    let sort_by = match sort_by {
        None => None,
        Some(RawBsonRef::Document(pattern)) => Some(pattern),
        Some(other) => return Err(wrong_type("$fill.sortBy", other, "object")),
    };
    let by_fields;
    let partition_by = match (partition_by, fields) {
        (Some(_), Some(_)) => {
            return Err(Error::location(
                6050204,
                "Maximum one of 'partitionBy' and 'partitionByFields can be specified in '$fill'",
            ));
        }
        (None, Some(fields)) => {
            by_fields = partition_of(fields)?;
            Some(RawBsonRef::Document(&by_fields))
        }
        (partition_by, None) => partition_by,
    };
    let (windows, values) = outputs(output)?;
    if !windows.is_empty() {
        let mut source = RawDocumentBuf::new();
        if let Some(partition_by) = partition_by {
            source.append(cstr!("partitionBy"), partition_by);
        }
        if let Some(sort_by) = sort_by {
            source.append(cstr!("sortBy"), sort_by);
        }
        source.append(cstr!("output"), &*windows);
        stages.push(window_stage(source.into(), partition_by, sort_by, &windows, ctx)?);
    }
    if !values.is_empty() {
        stages.push(transform::parse("$addFields", RawBsonRef::Document(&values), ctx)?);
    }
    Ok(())
}

/// The partition by several paths: a document of their values.
fn partition_of(fields: RawBsonRef<'_>) -> Result<RawDocumentBuf> {
    let RawBsonRef::Array(fields) = fields else {
        return Err(wrong_type("$fill.partitionByFields", fields, "array"));
    };
    let mut out = Writer::default();
    let open = out.begin();
    for (at, field) in raw::values(fields).enumerate() {
        let RawBsonRef::String(path) = field? else {
            return Err(Error::type_mismatch("'$fill.partitionByFields' must hold strings"));
        };
        if path.starts_with('$') {
            return Err(Error::location(
                6050201,
                "The partition fields of $fill may not start with '$'",
            ));
        }
        out.value(&at.to_string(), RawBsonRef::String(&format!("${path}")));
    }
    out.end(open);
    out.finish()
}

/// What windows fill, and what values fill.
fn outputs(output: &RawDocument) -> Result<(RawDocumentBuf, RawDocumentBuf)> {
    let (mut windows, mut values) = (Writer::default(), Writer::default());
    let (open_windows, open_values) = (windows.begin(), values.begin());
    for field in output {
        let (path, spec) = field?;
        let refuse = || {
            Error::location(
                6050200,
                format!(
                    "The $fill output for '{path}' must be an object with exactly one of 'method' \
                     and 'value'"
                ),
            )
        };
        let RawBsonRef::Document(spec) = spec else { return Err(refuse()) };
        let [method, value] = parse_fields(spec, ["method", "value"], |_| refuse())?;
        let reference = format!("${path}");
        let reference = RawBsonRef::String(&reference);
        match (method, value) {
            (Some(method), None) => {
                let function = match method {
                    RawBsonRef::String("locf") => "$locf",
                    RawBsonRef::String("linear") => "$linearFill",
                    _ => {
                        return Err(Error::location(
                            6050202,
                            "Method must be either locf or linear",
                        ));
                    }
                };
                let open = windows.begin_document(path.as_str());
                windows.value(function, reference);
                windows.end(open);
            }
            (None, Some(value)) => {
                let open = values.begin_document(path.as_str());
                let list = values.begin_array("$ifNull");
                values.value("0", reference);
                values.value("1", value);
                values.end(list);
                values.end(open);
            }
            _ => return Err(refuse()),
        }
    }
    windows.end(open_windows);
    values.end(open_values);
    Ok((windows.finish()?, values.finish()?))
}
