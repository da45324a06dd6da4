//! Stages that are written shorter than they run: `$count`, `$sortByCount`, `$bucket`.

use crate::parse::PipelineContext;
use crate::stage::group::{Group, parse_field};
use crate::stage::sort::Sort;
use crate::stage::transform::TransformStage;
use crate::stage::{PipelineStage, object};
use crate::transform::Transform;
use bson::raw::{CString, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bsonval::{Path, SortPattern};
use errors::{Error, Result};
use expr::accumulator::AccumulatorSpec;
use expr::agg::{Expression, parse_fields};
use keystring::{Collation, Direction};
use matcher::ParseContext;
use std::sync::Arc;

/// `{$group: {_id: null, name: {$sum: 1}}}`, `{$project: {_id: 0}}`.
pub(crate) fn count(value: RawBsonRef<'_>, stages: &mut Vec<PipelineStage>) -> Result<()> {
    let RawBsonRef::String(name) = value else {
        return Err(Error::location(40156, "the count field must be a non-empty string"));
    };
    if name.is_empty() {
        return Err(Error::location(40157, "the count field must be a non-empty string"));
    }
    if name.starts_with('$') {
        return Err(Error::location(40158, "the count field cannot be a $-prefixed path"));
    }
    if name.contains('\0') {
        return Err(Error::location(40159, "the count field cannot contain a null byte"));
    }
    if name.contains('.') {
        return Err(Error::location(40160, "the count field cannot contain '.'"));
    }
    if name == "_id" {
        return Err(Error::location(15948, "a group's _id may only be specified once"));
    }
    stages.push(PipelineStage::other(Group {
        id: Expression::constant(RawBson::Null),
        fields: vec![(name.to_owned(), AccumulatorSpec::sum_of_one())],
        spec: group_spec(RawBsonRef::Null, name)?,
    }));
    let mut without_id = RawDocumentBuf::new();
    without_id.append(cstr!("_id"), false);
    stages.push(PipelineStage::Transform(Arc::new(TransformStage {
        name: "$project",
        transform: Transform::unset(["_id"])?,
        spec: RawBson::Document(without_id),
    })));
    Ok(())
}

/// `{_id: id, name: {$sum: {$const: 1}}}`, as explain shows it.
fn group_spec(id: RawBsonRef<'_>, name: &str) -> Result<RawBson> {
    let mut one = RawDocumentBuf::new();
    one.append(cstr!("$const"), 1_i32);
    let mut sum = RawDocumentBuf::new();
    sum.append(cstr!("$sum"), one);
    let mut spec = RawDocumentBuf::new();
    spec.append(cstr!("_id"), id);
    spec.append(CString::try_from(name)?, sum);
    Ok(RawBson::Document(spec))
}

/// `{_id: id, …output}`.
fn with_id(id: &RawDocument, output: RawBsonRef<'_>) -> Result<RawBson> {
    let mut spec = RawDocumentBuf::new();
    spec.append(cstr!("_id"), id);
    if let RawBsonRef::Document(output) = output {
        for element in output.iter_elements() {
            let element = element?;
            spec.append(element.key(), element.value()?);
        }
    }
    Ok(RawBson::Document(spec))
}

/// `{$group: {_id: expression, count: {$sum: 1}}}`, `{$sort: {count: -1}}`.
pub(crate) fn sort_by_count(
    value: RawBsonRef<'_>,
    ctx: &PipelineContext,
    stages: &mut Vec<PipelineStage>,
) -> Result<()> {
    match value {
        RawBsonRef::Document(spec) => {
            if !bsonval::raw::starts_with_dollar(spec) {
                return Err(Error::location(
                    40147,
                    "the sortByCount field must be defined as a $-prefixed path or an expression \
                     inside an object",
                ));
            }
        }
        RawBsonRef::String(path) if path.starts_with('$') => {}
        RawBsonRef::String(_) => {
            return Err(Error::location(
                40148,
                "the sortByCount field must be defined as a $-prefixed path or an expression \
                 inside an object",
            ));
        }
        _ => {
            return Err(Error::location(
                40149,
                "the sortByCount field must be specified as a string or as an object",
            ));
        }
    }
    stages.push(PipelineStage::other(Group {
        id: Expression::parse(value, &ctx.parse.names)?.optimize(),
        fields: vec![("count".to_owned(), AccumulatorSpec::sum_of_one())],
        spec: group_spec(value, "count")?,
    }));
    let pattern = SortPattern::new([(Path::new("count"), Direction::Descending)]);
    stages.push(PipelineStage::Sort(Arc::new(Sort { pattern, limit: None })));
    Ok(())
}

/// A `$group` whose key is a `$switch` over the boundaries, then a `$sort` by the key.
pub(crate) fn bucket(
    value: RawBsonRef<'_>,
    ctx: &PipelineContext,
    stages: &mut Vec<PipelineStage>,
) -> Result<()> {
    let spec = object(value, |kind| {
        Error::location(
            40201,
            format!("Argument to $bucket stage must be an object, but found type: {kind}."),
        )
    })?;
    let [group_by, boundaries, default, output] =
        parse_fields(spec, ["groupBy", "boundaries", "default", "output"], |name| {
            Error::location(40197, format!("Unrecognized option to $bucket: {name}."))
        })?;
    let (Some(group_by), Some(boundaries)) = (group_by, boundaries) else {
        return Err(Error::location(
            40198,
            "$bucket requires 'groupBy' and 'boundaries' to be specified.",
        ));
    };
    check_group_by(group_by, 40202, "$bucket")?;
    let boundaries = read_boundaries(boundaries, &ctx.parse)?;
    let default = default.map(|value| read_default(value, &boundaries, &ctx.parse)).transpose()?;
    let switch = switch_over(group_by, &boundaries, default.as_ref());
    let id = Expression::parse(RawBsonRef::Document(&switch), &ctx.parse.names)?;
    let (fields, shown) = match output {
        None => (
            vec![("count".to_owned(), AccumulatorSpec::sum_of_one())],
            group_spec(RawBsonRef::Document(&switch), "count")?,
        ),
        Some(output) => {
            let fields = read_output(output, ctx, "$bucket", 40196)?;
            (fields, with_id(&switch, output)?)
        }
    };
    stages.push(PipelineStage::other(Group { id, fields, spec: shown }));
    let pattern = SortPattern::new([(Path::new("_id"), Direction::Ascending)]);
    stages.push(PipelineStage::Sort(Arc::new(Sort { pattern, limit: None })));
    Ok(())
}

pub(crate) fn check_group_by(value: RawBsonRef<'_>, code: i32, name: &str) -> Result<()> {
    let fine = match value {
        RawBsonRef::String(path) => path.starts_with('$'),
        RawBsonRef::Document(spec) => bsonval::raw::starts_with_dollar(spec),
        _ => false,
    };
    if fine {
        return Ok(());
    }
    Err(Error::location(
        code,
        format!(
            "The {name} 'groupBy' field must be defined as a $-prefixed path or an expression, \
             but found: {}.",
            expr::agg::value_to_string(value)
        ),
    ))
}

pub(crate) fn read_output(
    value: RawBsonRef<'_>,
    ctx: &PipelineContext,
    name: &str,
    code: i32,
) -> Result<Vec<(String, AccumulatorSpec)>> {
    let spec = object(value, |kind| {
        Error::location(
            code,
            format!("The {name} 'output' field must be an object, but found type: {kind}."),
        )
    })?;
    spec.iter_elements()
        .map(|element| {
            let element = element?;
            parse_field(element.key().as_str(), element.value()?, ctx)
        })
        .collect()
}

/// A constant of the specification.
fn constant(value: RawBsonRef<'_>, ctx: &ParseContext) -> Result<Option<RawBson>> {
    let expression = Expression::parse(value, &ctx.names)?.optimize();
    Ok(expression.as_constant().map(|value| value.cloned().unwrap_or(RawBson::Null)))
}

fn read_boundaries(value: RawBsonRef<'_>, ctx: &ParseContext) -> Result<Vec<RawBson>> {
    let RawBsonRef::Array(array) = value else {
        return Err(Error::location(
            40200,
            format!(
                "The $bucket 'boundaries' field must be an array, but found type: {}.",
                bsonval::types::name_of(value)
            ),
        ));
    };
    let mut boundaries: Vec<RawBson> = Vec::new();
    for element in array {
        let element = element?;
        let bound = constant(element, ctx)?.ok_or_else(|| {
            Error::location(
                40191,
                format!(
                    "The $bucket 'boundaries' field must be an array of constant values, but found \
                     value: {}.",
                    expr::agg::value_to_string(element)
                ),
            )
        })?;
        if let Some(last) = boundaries.last() {
            let under = ctx.variables.collation();
            let (last, bound) = (last.as_raw_bson_ref(), bound.as_raw_bson_ref());
            check_ascending(last, bound, under, boundaries.len())?;
        }
        boundaries.push(bound);
    }
    if boundaries.len() < 2 {
        return Err(Error::location(
            40192,
            format!(
                "The $bucket 'boundaries' field must have at least 2 values, but found {} value(s).",
                boundaries.len()
            ),
        ));
    }
    Ok(boundaries)
}

fn check_ascending(
    lower: RawBsonRef<'_>,
    upper: RawBsonRef<'_>,
    under: Option<&Collation>,
    at: usize,
) -> Result<()> {
    if keystring::canonical_type(&lower) != keystring::canonical_type(&upper) {
        return Err(Error::location(
            40193,
            format!(
                "All values in the the 'boundaries' option to $bucket must have the same type. \
                 Found conflicting types {} and {}.",
                bsonval::types::name_of(lower),
                bsonval::types::name_of(upper)
            ),
        ));
    }
    if keystring::compare_under(lower, upper, under).is_lt() {
        return Ok(());
    }
    Err(Error::location(
        40194,
        format!(
            "The 'boundaries' option to $bucket must be sorted, but elements {} and {at} are not \
             in ascending order ({} is not less than {}).",
            at - 1,
            expr::agg::value_to_string(lower),
            expr::agg::value_to_string(upper)
        ),
    ))
}

fn read_default(
    value: RawBsonRef<'_>,
    boundaries: &[RawBson],
    ctx: &ParseContext,
) -> Result<RawBson> {
    let default = constant(value, ctx)?.ok_or_else(|| {
        Error::location(
            40195,
            format!(
                "The $bucket 'default' field must be a constant expression, but found: {}.",
                expr::agg::value_to_string(value)
            ),
        )
    })?;
    let outside = match (boundaries.first(), boundaries.last()) {
        (Some(low), Some(high)) => {
            let value = default.as_raw_bson_ref();
            let under = ctx.variables.collation();
            let order =
                |bound: &RawBson| keystring::compare_under(value, bound.as_raw_bson_ref(), under);
            keystring::canonical_type(&value) != keystring::canonical_type(&low.as_raw_bson_ref())
                || order(low).is_lt()
                || order(high).is_ge()
        }
        _ => true,
    };
    if outside {
        return Ok(default);
    }
    Err(Error::location(
        40199,
        "The $bucket 'default' field must be less than the lowest boundary or greater than or \
         equal to the highest boundary.",
    ))
}

fn literal(value: &RawBson) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("$literal"), value);
    document
}

fn comparison(name: &bson::raw::CStr, left: RawBsonRef<'_>, right: &RawBson) -> RawDocumentBuf {
    let mut sides = RawArrayBuf::new();
    sides.push(left);
    sides.push(literal(right));
    let mut document = RawDocumentBuf::new();
    document.append(name, sides);
    document
}

/// `{$switch: {branches: [{case: {$and: [{$gte: …}, {$lt: …}]}, then: lower}], default: …}}`.
fn switch_over(
    group_by: RawBsonRef<'_>,
    boundaries: &[RawBson],
    default: Option<&RawBson>,
) -> RawDocumentBuf {
    let mut branches = RawArrayBuf::new();
    for pair in boundaries.windows(2) {
        let mut both = RawArrayBuf::new();
        both.push(comparison(cstr!("$gte"), group_by, &pair[0]));
        both.push(comparison(cstr!("$lt"), group_by, &pair[1]));
        let mut case = RawDocumentBuf::new();
        case.append(cstr!("$and"), both);
        let mut branch = RawDocumentBuf::new();
        branch.append(cstr!("case"), case);
        branch.append(cstr!("then"), literal(&pair[0]));
        branches.push(branch);
    }
    let mut switch = RawDocumentBuf::new();
    switch.append(cstr!("branches"), branches);
    if let Some(default) = default {
        switch.append(cstr!("default"), literal(default));
    }
    let mut whole = RawDocumentBuf::new();
    whole.append(cstr!("$switch"), switch);
    whole
}
