//! The client's update to a tree of operations, with MongoDB's errors.

use super::array::{Pull, Push};
use super::array_filter::ArrayFilters;
use super::check;
use super::number::BitOperator;
use super::operation::{CurrentDateType, Operation};
use super::shape::{self, Operations, Shape};
use super::tree::{Step, is_one_name};
use super::{Kind, Operators, PipelineParser};
use bson::raw::{RawArray, RawBson, RawBsonRef, RawDocument};
use bsonval::path::{Path, is_reserved_name};
use bsonval::raw::{self, Element};
use bsonval::sort::ElementSort;
use bsonval::{show, types};
use errors::{Code, Error, Result};
use matcher::{Filter, InSet, ParseContext, Pattern, is_operator_document};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) fn update(
    update: RawBsonRef<'_>,
    array_filters: Option<&RawArray>,
    ctx: &ParseContext,
    pipeline: &PipelineParser<'_>,
) -> Result<Kind> {
    match update {
        RawBsonRef::Array(stages) => {
            if array_filters.is_some_and(|filters| !filters.is_empty()) {
                return Err(Error::failed_to_parse(
                    "arrayFilters may not be specified for pipeline-syle updates",
                ));
            }
            pipeline(stages).map(Kind::Pipeline)
        }
        RawBsonRef::Document(document) => {
            let filters = ArrayFilters::parse(array_filters, ctx)?;
            if raw::starts_with_dollar(document) {
                Parser { ctx, filters, used: BTreeSet::new() }
                    .operators(document)
                    .map(Kind::Operators)
            } else {
                if let Some(identifier) = filters.identifiers().next() {
                    return Err(unused_filter(identifier, document));
                }
                check::replacement(document)?;
                if let Some(id) = raw::field(document, "_id")? {
                    check::check_stored_id(id)?;
                }
                Ok(Kind::Replacement(document.to_owned()))
            }
        }
        other => Err(Error::failed_to_parse(format!(
            "Update argument must be either an object or an array, found {}",
            types::name_of(other)
        ))),
    }
}

fn unused_filter(identifier: &str, update: &RawDocument) -> Error {
    Error::failed_to_parse(format!(
        "The array filter for identifier '{identifier}' was not used in the update {}",
        show::document(update)
    ))
}

pub(super) struct Parser<'p> {
    ctx: &'p ParseContext,
    filters: ArrayFilters,
    /// Identifiers that occur in paths.
    used: BTreeSet<Box<str>>,
}

/// How an operator reads its operand for one field.
#[derive(Clone, Copy)]
pub(super) enum Reader {
    /// By the field alone, as one operation.
    Alone(fn(&Element<'_>) -> Result<Operation>),
    /// By what else is known of the update.
    Within(for<'p, 'e> fn(&Parser<'p>, &Element<'e>) -> Result<Operation>),
}

impl Parser<'_> {
    fn operators(mut self, document: &RawDocument) -> Result<Operators> {
        let mut shape = Shape::default();
        let (mut operations, mut depth) = (Operations::new(), 0);
        for element in raw::elements(document) {
            let element = element?;
            let name = element.name();
            let reader = reader(name)?;
            let RawBsonRef::Document(fields) = element.value()? else {
                return Err(Error::failed_to_parse(format!(
                    "Modifiers operate on fields but we found type {} instead. For example: \
                     {{$mod: {{<field>: ...}}}} not {{{}}}",
                    types::type_name(element.element_type()),
                    show::field(name, element.value()?)
                )));
            };
            for field in raw::elements(fields) {
                let field = field?;
                let path = field.name();
                self.check_path(path)?;
                if name == "$rename" {
                    let (source, destination) = self.rename(&field)?;
                    shape.touched.extend([source.clone(), destination.clone()]);
                    shape.tree.insert(source.as_str(), operations.len())?;
                    operations.push(Operation::RenameFrom);
                    shape.tree.insert(destination.as_str(), operations.len())?;
                    operations.push(Operation::RenameTo(source.clone()));
                    shape.renames.push((source, destination));
                    continue;
                }
                let operation = match reader {
                    Reader::Alone(read) => read(&field)?,
                    Reader::Within(read) => read(&self, &field)?,
                };
                depth = depth.max(depth_at(dots(path), &field)?);
                shape.tree.insert(path, operations.len())?;
                operations.push(operation);
                shape.touched.push(fixed_part(path));
            }
        }
        let unused = self.filters.identifiers().find(|id| !self.used.contains(*id));
        if let Some(identifier) = unused {
            return Err(unused_filter(identifier, document));
        }
        let shape = Arc::new(shape.settled());
        if self.filters.identifiers().next().is_none() {
            shape::remember(document, &shape);
        }
        let collation = self.ctx.variables.collation().cloned();
        Ok(Operators { shape, operations, filters: self.filters, depth, collation })
    }

    /// The rules for the path of an update, and which array filters it uses.
    fn check_path(&mut self, path: &str) -> Result<()> {
        if path.is_empty() {
            return Err(empty_name("An empty update path is not valid."));
        }
        if is_one_name(path) {
            return Ok(());
        }
        let mut positional = 0;
        let mut count = 0;
        for (at, component) in path.split('.').enumerate() {
            count += 1;
            if component.is_empty() {
                return Err(empty_name(&format!(
                    "The update path '{path}' contains an empty field name, which is not allowed."
                )));
            }
            match Step::of(component) {
                Step::Positional if at == 0 => {
                    return Err(Error::bad_value(format!(
                        "Cannot have positional (i.e. '$') element in the first position in path \
                         '{path}'"
                    )));
                }
                Step::Positional => positional += 1,
                Step::Elements(_) if at == 0 => {
                    return Err(Error::bad_value(format!(
                        "Cannot have array filter identifier (i.e. '$[<id>]') element in the first \
                         position in path '{path}'"
                    )));
                }
                Step::Elements("") => {}
                Step::Elements(identifier) => {
                    if !self.filters.contains(identifier) {
                        return Err(Error::bad_value(format!(
                            "No array filter found for identifier '{identifier}' in path '{path}'"
                        )));
                    }
                    self.used.insert(identifier.into());
                }
                Step::Field(name) if name.starts_with('$') => {
                    if at == 0 || is_reserved_name(name) {
                        return Err(check::dollar_prefixed(name, path));
                    }
                }
                Step::Field(_) => {}
            }
        }
        if positional > 1 {
            return Err(Error::bad_value(format!(
                "Too many positional (i.e. '$') elements found in path '{path}'"
            )));
        }
        if count > check::MAX_STORED_DEPTH {
            return Err(check::too_deep());
        }
        Ok(())
    }

    fn rename(&mut self, field: &Element<'_>) -> Result<(Path, Path)> {
        let value = field.value()?;
        let shown = || show::field(field.name(), value);
        let RawBsonRef::String(to) = value else {
            return Err(Error::bad_value(format!(
                "The 'to' field for $rename must be a string: {}",
                shown()
            )));
        };
        let dynamic = |path: &str| path.split('.').any(|c| !matches!(Step::of(c), Step::Field(_)));
        if dynamic(field.name()) {
            return Err(Error::bad_value(format!(
                "The source field for $rename may not be dynamic: {}",
                field.name()
            )));
        }
        if dynamic(to) {
            return Err(Error::bad_value(format!(
                "The destination field for $rename may not be dynamic: {to}"
            )));
        }
        if to.contains('\0') {
            return Err(Error::bad_value(
                "The 'to' field for $rename cannot contain an embedded null byte",
            ));
        }
        self.check_path(to)?;
        let (source, destination) = (Path::new(field.name()), Path::new(to));
        if source == destination {
            return Err(Error::bad_value(format!(
                "The source and target field for $rename must differ: {}",
                shown()
            )));
        }
        if source.overlaps(&destination) {
            return Err(Error::bad_value(format!(
                "The source and target field for $rename must not be on the same path: {}",
                shown()
            )));
        }
        Ok((source, destination))
    }
}

/// How many dots a path has.
pub(super) fn dots(path: &str) -> usize {
    path.bytes().filter(|byte| *byte == b'.').count()
}

/// How deep a document is below which an operand stands at a path of so many dots.
pub(super) fn depth_at(dots: usize, operand: &Element<'_>) -> Result<usize> {
    let below = if operand.is_nested() { check::depth_of(operand.value()?, 0)? } else { 0 };
    Ok(dots + 1 + below + 1)
}

fn empty_name(message: &str) -> Error {
    Error::new(Code::EMPTY_FIELD_NAME, message)
}

/// The path up to its first positional component.
fn fixed_part(path: &str) -> Path {
    if is_one_name(path) {
        return Path::new(path);
    }
    let end = path
        .split('.')
        .take_while(|component| matches!(Step::of(component), Step::Field(_)))
        .map(|component| component.len() + 1)
        .sum::<usize>();
    Path::new(&path[..end.saturating_sub(1)])
}

pub(super) const OPERATORS: &[(&str, Reader)] = &[
    ("$addToSet", Reader::Alone(add_to_set)),
    ("$bit", Reader::Alone(bit)),
    ("$currentDate", Reader::Alone(current_date)),
    ("$inc", Reader::Alone(|field| number(field, "increment").map(Operation::Inc))),
    ("$max", Reader::Alone(|field| Ok(Operation::Max(field.value()?.into())))),
    ("$min", Reader::Alone(|field| Ok(Operation::Min(field.value()?.into())))),
    ("$mul", Reader::Alone(|field| number(field, "multiply").map(Operation::Mul))),
    ("$pop", Reader::Alone(pop)),
    ("$pull", Reader::Within(pull)),
    ("$pullAll", Reader::Within(|parser, field| pull_all(field, parser.ctx))),
    ("$push", Reader::Alone(push)),
    // Read by `Parser::rename`.
    ("$rename", Reader::Within(|_, _| Ok(Operation::RenameFrom))),
    ("$set", Reader::Alone(|field| Ok(Operation::Set(field.value()?.into())))),
    ("$setOnInsert", Reader::Alone(|field| Ok(Operation::SetOnInsert(field.value()?.into())))),
    ("$unset", Reader::Alone(|_| Ok(Operation::Unset))),
];

fn reader(name: &str) -> Result<Reader> {
    let found = OPERATORS.iter().find(|(known, _)| *known == name);
    found.map(|(_, reader)| *reader).ok_or_else(|| {
        Error::failed_to_parse(format!(
            "Unknown modifier: {name}. Expected a valid update modifier or pipeline-style update \
             specified as an array"
        ))
    })
}

fn number(field: &Element<'_>, verb: &str) -> Result<RawBson> {
    let value = field.value()?;
    if !types::is_number(value) {
        return Err(Error::type_mismatch(format!(
            "Cannot {verb} with non-numeric argument: {{{}}}",
            show::field(field.name(), value)
        )));
    }
    Ok(value.into())
}

fn current_date(field: &Element<'_>) -> Result<Operation> {
    let bad = || {
        Error::bad_value(
            "The '$type' string field is required to be 'date' or 'timestamp': \
             {$currentDate: {field : {$type: 'date'}}}",
        )
    };
    match field.value()? {
        RawBsonRef::Boolean(_) => Ok(Operation::CurrentDate(CurrentDateType::Date)),
        RawBsonRef::Document(options) => {
            let mut clock = None;
            for option in raw::elements(options) {
                let option = option?;
                if option.name() != "$type" {
                    return Err(Error::bad_value(format!(
                        "Unrecognized $currentDate option: {}",
                        option.name()
                    )));
                }
                clock = match option.value()? {
                    RawBsonRef::String("date") => Some(CurrentDateType::Date),
                    RawBsonRef::String("timestamp") => Some(CurrentDateType::Timestamp),
                    _ => return Err(bad()),
                };
            }
            clock.map(Operation::CurrentDate).ok_or_else(bad)
        }
        other => Err(Error::bad_value(format!(
            "{} is not valid type for $currentDate. Please use a boolean ('true') or a $type \
             expression ({{$type: 'timestamp/date'}}).",
            types::name_of(other)
        ))),
    }
}

fn bit(field: &Element<'_>) -> Result<Operation> {
    let RawBsonRef::Document(operands) = field.value()? else {
        return Err(Error::bad_value(format!(
            "The $bit modifier is not compatible with a {}. You must pass in an embedded document: \
             {{$bit: {{field: {{and/or/xor: #}}}}",
            types::type_name(field.element_type())
        )));
    };
    let mut parsed = Vec::new();
    for operand in raw::elements(operands) {
        let operand = operand?;
        let value = operand.value()?;
        let operator = match operand.name() {
            "and" => BitOperator::And,
            "or" => BitOperator::Or,
            "xor" => BitOperator::Xor,
            other => {
                return Err(Error::bad_value(format!(
                    "The $bit modifier only supports 'and', 'or', and 'xor', not '{other}' which \
                     is an unknown operator: {{{}}}",
                    show::field(other, value)
                )));
            }
        };
        if !matches!(value, RawBsonRef::Int32(_) | RawBsonRef::Int64(_)) {
            return Err(Error::bad_value(format!(
                "The $bit modifier field must be an Integer(32/64 bit); a '{}' is not supported \
                 here: {{{}}}",
                types::name_of(value),
                show::field(operand.name(), value)
            )));
        }
        parsed.push((operator, value.into()));
    }
    if parsed.is_empty() {
        return Err(Error::bad_value(
            "You must pass in at least one bitwise operation. The format is: \
             {$bit: {field: {and/or/xor: #}}",
        ));
    }
    Ok(Operation::Bit(parsed))
}

fn push(field: &Element<'_>) -> Result<Operation> {
    let value = field.value()?;
    let clauses = match value {
        RawBsonRef::Document(clauses) if raw::first_name(clauses).is_some_and(is_clause) => clauses,
        RawBsonRef::Document(clauses) if clauses.get("$each")?.is_some() => clauses,
        value => {
            return Ok(Operation::Push(Push { each: vec![value.into()], ..Push::default() }));
        }
    };
    let mut push = Push::default();
    let mut has_each = false;
    for clause in raw::elements(clauses) {
        let clause = clause?;
        let value = clause.value()?;
        match clause.name() {
            "$each" => {
                let RawBsonRef::Array(each) = value else {
                    return Err(Error::bad_value(format!(
                        "The argument to $each in $push must be an array but it was of type: {}",
                        types::name_of(value)
                    )));
                };
                push.each = raw::values(each).map(|v| v.map(Into::into)).collect::<Result<_>>()?;
                has_each = true;
            }
            "$slice" => {
                push.slice = Some(integer(value).ok_or_else(|| {
                    Error::bad_value(format!(
                        "The value for $slice must be an integer value but was given type: {}",
                        types::name_of(value)
                    ))
                })?);
            }
            "$position" => {
                push.position = Some(integer(value).ok_or_else(|| {
                    Error::bad_value(format!(
                        "The value for $position must be an integer value, not of type: {}",
                        types::name_of(value)
                    ))
                })?);
            }
            "$sort" => push.sort = Some(push_sort(value)?),
            other => {
                return Err(Error::bad_value(format!("Unrecognized clause in $push: {other}")));
            }
        }
    }
    if !has_each {
        // Without `$each` the clauses are a value like any other, whose names may not be stored.
        let first = raw::first_name(clauses).unwrap_or_default();
        let path = format!("{}.{first}", field.name());
        return Err(check::dollar_prefixed(first, &path));
    }
    Ok(Operation::Push(push))
}

fn is_clause(name: &str) -> bool {
    matches!(name, "$each" | "$slice" | "$sort" | "$position")
}

fn integer(value: RawBsonRef<'_>) -> Option<i64> {
    types::exact_integer(value)
}

fn push_sort(value: RawBsonRef<'_>) -> Result<ElementSort> {
    if let RawBsonRef::Document(pattern) = value {
        return ElementSort::parse_paths(pattern);
    }
    let invalid = "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to \
                   sort embedded fields";
    ElementSort::direction(value).map(ElementSort::Whole).ok_or_else(|| Error::bad_value(invalid))
}

fn add_to_set(field: &Element<'_>) -> Result<Operation> {
    let value = field.value()?;
    let RawBsonRef::Document(document) = value else {
        return Ok(Operation::AddToSet(vec![value.into()]));
    };
    if raw::first_name(document) != Some("$each") {
        return Ok(Operation::AddToSet(vec![value.into()]));
    }
    let mut values = Vec::new();
    for clause in raw::elements(document) {
        let clause = clause?;
        if clause.name() != "$each" {
            return Err(Error::bad_value(format!(
                "Found unexpected fields after $each in $addToSet: {}",
                show::document(document)
            )));
        }
        let RawBsonRef::Array(each) = clause.value()? else {
            return Err(Error::type_mismatch(format!(
                "The argument to $each in $addToSet must be an array but it was of type {}",
                types::type_name(clause.element_type())
            )));
        };
        for value in raw::values(each) {
            values.push(value?.into());
        }
    }
    Ok(Operation::AddToSet(values))
}

fn pop(field: &Element<'_>) -> Result<Operation> {
    let value = field.value()?;
    let shown = || show::field(field.name(), value);
    if !types::is_number(value) {
        return Err(Error::failed_to_parse(format!("Expected a number in: {}", shown())));
    }
    match types::exact_integer(value) {
        Some(1) => Ok(Operation::Pop { from_front: false }),
        Some(-1) => Ok(Operation::Pop { from_front: true }),
        Some(other) => Err(Error::failed_to_parse(format!("$pop expects 1 or -1, found: {other}"))),
        None => Err(Error::failed_to_parse(format!("Expected an integer: {}", shown()))),
    }
}

fn pull(parser: &Parser<'_>, field: &Element<'_>) -> Result<Operation> {
    let pull = match field.value()? {
        RawBsonRef::RegularExpression(regex) => Pull::Pattern(Pattern::from_bson(regex)?),
        RawBsonRef::Document(document) if is_operator_document(document) => {
            // `$and`, `$or` and `$nor` speak about documents, other operators about values.
            match raw::first_name(document) {
                Some("$and" | "$or" | "$nor") => {
                    Pull::Document(Filter::parse(document, parser.ctx)?)
                }
                _ => Pull::Value(Filter::parse_value(document, parser.ctx)?),
            }
        }
        RawBsonRef::Document(document) => Pull::Document(Filter::parse(document, parser.ctx)?),
        value => Pull::Equal(value.into()),
    };
    Ok(Operation::Pull(Box::new(pull)))
}

fn pull_all(field: &Element<'_>, ctx: &ParseContext) -> Result<Operation> {
    let RawBsonRef::Array(values) = field.value()? else {
        return Err(Error::bad_value(format!(
            "$pullAll requires an array argument but was given a {}",
            types::type_name(field.element_type())
        )));
    };
    let values = raw::values(values).map(|value| value.map(Into::into)).collect::<Result<_>>()?;
    InSet::new(values, Vec::new(), ctx.variables.collation()).map(Operation::PullAll)
}
