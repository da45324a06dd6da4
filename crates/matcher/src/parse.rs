//! The client's document to a tree, with MongoDB's errors.

use super::geo::{self, GeoNear, GeoTest};
use super::{
    BitMask, BitTest, ExprNode, InSet, Leaf, MAX_DEPTH, Node, ParseContext, Pattern, Predicate,
    SchemaNode, TextNode, text,
};
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bson::spec::ElementType;
use bsonval::path::{Path, is_reserved_name};
use bsonval::raw::{self, Element};
use bsonval::show;
use bsonval::types::{self, TypeSet};
use errors::{Code, Error, Result};
use expr::agg::Expression;
use std::sync::Arc;

/// What may stand in place of a field's name. Nothing else gets as far as the code behind it.
pub(super) const TOP: &[&str] = &[
    "$alwaysFalse",
    "$alwaysTrue",
    "$and",
    "$comment",
    "$expr",
    "$jsonSchema",
    "$nor",
    "$or",
    "$sampleRate",
    "$text",
    "$where",
];

/// What may stand under a field's name.
pub(super) const UNDER_FIELD: &[&str] = &[
    "$all",
    "$bitsAllClear",
    "$bitsAllSet",
    "$bitsAnyClear",
    "$bitsAnySet",
    "$elemMatch",
    "$eq",
    "$exists",
    "$geoIntersects",
    "$geoNear",
    "$geoWithin",
    "$gt",
    "$gte",
    "$in",
    "$lt",
    "$lte",
    "$maxDistance",
    "$minDistance",
    "$mod",
    "$ne",
    "$near",
    "$nearSphere",
    "$nin",
    "$not",
    "$options",
    "$regex",
    "$size",
    "$type",
    "$uniqueDocs",
    "$within",
];

/// What surrounds the part being parsed.
#[derive(Clone, Copy)]
struct Scope<'c> {
    ctx: &'c ParseContext,
    depth: usize,
    /// Outside every `$elemMatch`: only there `$expr`, `$text` and their kin may stand.
    top: bool,
}

impl Scope<'_> {
    fn deeper(self, around: &RawDocument) -> Result<Self> {
        if self.depth >= MAX_DEPTH {
            let mut text = show::document(around);
            text.truncate(text.floor_char_boundary(200));
            return Err(Error::bad_value(format!(
                "exceeded maximum query tree depth of {MAX_DEPTH} at {text}"
            )));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

/// Levels of documents and arrays in a filter. What is below an operator is compared and shown level by
/// level, also where it is not parsed. More than a message may have, and than a tree of [`MAX_DEPTH`]
/// takes: those limits are met first.
const MAX_LEVELS: usize = 256;

fn check_levels(value: RawBsonRef<'_>, left: usize) -> Result<()> {
    let elements = match value {
        RawBsonRef::Document(document) => raw::elements(document),
        RawBsonRef::Array(array) => raw::array_elements(array),
        RawBsonRef::JavaScriptCodeWithScope(code) => raw::elements(code.scope),
        _ => return Ok(()),
    };
    let Some(left) = left.checked_sub(1) else {
        return Err(Error::new(
            Code::OVERFLOW,
            format!("Filter nesting exceeds the limit of {MAX_LEVELS}"),
        ));
    };
    for element in elements {
        let element = element?;
        if let ElementType::EmbeddedDocument
        | ElementType::Array
        | ElementType::JavaScriptCodeWithScope = element.element_type()
        {
            check_levels(element.value()?, left)?;
        }
    }
    Ok(())
}

pub(super) fn filter(filter: &RawDocument, ctx: &ParseContext) -> Result<Node> {
    check_levels(RawBsonRef::Document(filter), MAX_LEVELS)?;
    let root = document(filter, Scope { ctx, depth: 0, top: true })?;
    if ctx.text {
        text::check_places(&root)?;
    }
    Ok(root)
}

/// Parses `{$gt: 5, ...}` into a tree over a bare value.
pub(super) fn value_filter(operators: &RawDocument, ctx: &ParseContext) -> Result<Node> {
    check_levels(RawBsonRef::Document(operators), MAX_LEVELS)?;
    let scope = Scope { ctx, depth: 0, top: false };
    field_operators(&Path::root(), operators, scope).map(and)
}

/// Parses what `$elemMatch` asks of an element, into a tree over that element.
pub(super) fn element_filter(condition: &RawDocument, ctx: &ParseContext) -> Result<Node> {
    if is_about_values(condition) {
        return value_filter(condition, ctx);
    }
    check_levels(RawBsonRef::Document(condition), MAX_LEVELS)?;
    document(condition, Scope { ctx, depth: 0, top: false })
}

/// Whether a value under a field name holds operators: its first field has a `$` name that is not
/// part of a reference (`$ref`, `$id`, `$db`).
pub fn is_operator_document(document: &RawDocument) -> bool {
    raw::first_name(document).is_some_and(is_reserved_name)
}

fn and(mut parts: Vec<Node>) -> Node {
    if parts.len() == 1 { parts.remove(0) } else { Node::And(parts) }
}

fn document(document: &RawDocument, scope: Scope<'_>) -> Result<Node> {
    let scope = scope.deeper(document)?;
    let mut parts = Vec::new();
    for element in raw::elements(document) {
        let element = element?;
        match element.name().strip_prefix('$') {
            Some("ref" | "id" | "db") | None => field(&element, scope, &mut parts)?,
            Some(_) => top_operator(&element, scope, &mut parts)?,
        }
    }
    Ok(and(parts))
}

fn top_operator(element: &Element<'_>, scope: Scope<'_>, parts: &mut Vec<Node>) -> Result<()> {
    let value = element.value()?;
    let name = element.name();
    match name {
        name if !TOP.contains(&name) => return Err(unknown_top(name)),
        "$and" => parts.push(Node::And(connective(name, value, scope)?)),
        "$or" => parts.push(Node::Or(connective(name, value, scope)?)),
        "$nor" => parts.push(Node::Nor(connective(name, value, scope)?)),
        "$comment" => {}
        "$alwaysTrue" => parts.push(always(name, value, Node::AlwaysTrue)?),
        "$alwaysFalse" => parts.push(always(name, value, Node::AlwaysFalse)?),
        "$sampleRate" => parts.push(sample_rate(value)?),
        "$where" | "$text" | "$jsonSchema" | "$expr" if !scope.top => {
            return Err(Error::bad_value(format!(
                "{name} can only be applied to the top-level document"
            )));
        }
        "$expr" => {
            let expression = Expression::parse(value, &scope.ctx.names)?.optimize();
            parts.push(Node::Expr(Box::new(ExprNode {
                name: "$expr",
                expression,
                source: value.into(),
            })));
        }
        "$where" => parts.push(where_code(value)?),
        "$text" if !scope.ctx.text => {
            return Err(Error::bad_value("$text is not allowed in this context"));
        }
        "$text" => parts.push(Node::Text(Arc::new(TextNode::parse(value)?))),
        "$jsonSchema" => parts.push(Node::Schema(Arc::new(SchemaNode::parse(value)?))),
        _ => return Err(unknown_top(name)),
    }
    Ok(())
}

fn unknown_top(name: &str) -> Error {
    Error::bad_value(format!(
        "unknown top level operator: {name}. If you have a field name that starts with a '$' \
         symbol, consider using $getField or $setField."
    ))
}

fn where_code(value: RawBsonRef<'_>) -> Result<Node> {
    if !script::is_allowed() {
        return Err(Error::location(6108304, "no globalScriptEngine in $where parsing"));
    }
    if let RawBsonRef::JavaScriptCodeWithScope(_) = value {
        return Err(Error::location(
            4649201,
            "$where no longer supports deprecated BSON type CodeWScope",
        ));
    }
    let code = script::Script::of(value).ok_or_else(|| Error::bad_value("$where got bad type"))?;
    let expression = Expression::holds(code.knowing_stored());
    Ok(Node::Expr(Box::new(ExprNode { name: "$where", expression, source: value.into() })))
}

fn always(name: &str, value: RawBsonRef<'_>, node: Node) -> Result<Node> {
    match types::exact_integer(value) {
        Some(1) => Ok(node),
        _ => Err(Error::failed_to_parse(format!("{name} must be an integer value of 1"))),
    }
}

fn sample_rate(value: RawBsonRef<'_>) -> Result<Node> {
    let rate = match value {
        RawBsonRef::Int32(v) => f64::from(v),
        RawBsonRef::Int64(v) => v as f64,
        RawBsonRef::Double(v) => v,
        RawBsonRef::Decimal128(v) => v.to_string().parse().unwrap_or(f64::NAN),
        _ => return Err(Error::bad_value("argument to $sampleRate must be a numeric type")),
    };
    if (0.0..=1.0).contains(&rate) {
        Ok(Node::SampleRate(rate))
    } else {
        Err(Error::bad_value(format!(
            "numeric argument to $sampleRate must be in [0, 1], given {rate}"
        )))
    }
}

fn connective(name: &str, value: RawBsonRef<'_>, scope: Scope<'_>) -> Result<Vec<Node>> {
    let RawBsonRef::Array(array) = value else {
        return Err(Error::bad_value(format!("{name} must be an array")));
    };
    let mut parts = Vec::new();
    for part in raw::values(array) {
        let RawBsonRef::Document(part) = part? else {
            return Err(Error::bad_value("$or/$and/$nor entries need to be full objects"));
        };
        parts.push(document(part, scope)?);
    }
    if parts.is_empty() {
        return Err(Error::bad_value("$and/$or/$nor must be a nonempty array"));
    }
    Ok(parts)
}

fn field(element: &Element<'_>, scope: Scope<'_>, parts: &mut Vec<Node>) -> Result<()> {
    let path = Path::new(element.name());
    match element.value()? {
        RawBsonRef::Document(operators) if is_operator_document(operators) => {
            parts.extend(field_operators(&path, operators, scope)?);
        }
        RawBsonRef::RegularExpression(regex) => {
            parts.push(leaf(&path, Predicate::Regex(Pattern::from_bson(regex)?)));
        }
        value => parts.push(leaf(&path, Predicate::Eq(operand(value)?))),
    }
    Ok(())
}

fn leaf(path: &Path, predicate: Predicate) -> Node {
    Node::Leaf(Leaf { path: path.clone(), predicate })
}

fn not(node: Node) -> Node {
    Node::Not(Box::new(node))
}

fn operand(value: RawBsonRef<'_>) -> Result<bson::raw::RawBson> {
    match value {
        RawBsonRef::Undefined => Err(Error::bad_value("cannot compare to undefined")),
        value => Ok(value.into()),
    }
}

fn field_operators(path: &Path, operators: &RawDocument, scope: Scope<'_>) -> Result<Vec<Node>> {
    let scope = scope.deeper(operators)?;
    let mut parts = Vec::new();
    for element in raw::elements(operators) {
        let element = element?;
        if let Some(part) = operator(path, &element, operators, scope)? {
            parts.push(part);
        }
    }
    Ok(parts)
}

fn operator(
    path: &Path,
    element: &Element<'_>,
    siblings: &RawDocument,
    scope: Scope<'_>,
) -> Result<Option<Node>> {
    let value = element.value()?;
    let name = element.name();
    let comparison = |make: fn(bson::raw::RawBson) -> Predicate| -> Result<Node> {
        if let RawBsonRef::RegularExpression(_) = value {
            return Err(Error::bad_value(format!(
                "Can't have RegEx as arg to predicate over field '{path}'."
            )));
        }
        Ok(leaf(path, make(operand(value)?)))
    };
    let unknown = || Error::bad_value(format!("unknown operator: {name}"));
    Ok(Some(match name {
        name if !UNDER_FIELD.contains(&name) => return Err(unknown()),
        "$eq" => leaf(path, Predicate::Eq(operand(value)?)),
        "$ne" => {
            if let RawBsonRef::RegularExpression(_) = value {
                return Err(Error::bad_value("Can't have regex as arg to $ne."));
            }
            not(leaf(path, Predicate::Eq(operand(value)?)))
        }
        "$lt" => comparison(Predicate::Lt)?,
        "$lte" => comparison(Predicate::Lte)?,
        "$gt" => comparison(Predicate::Gt)?,
        "$gte" => comparison(Predicate::Gte)?,
        "$in" => leaf(path, Predicate::In(members(name, value, scope)?)),
        "$nin" => not(leaf(path, Predicate::In(members(name, value, scope)?))),
        "$exists" => {
            let exists = leaf(path, Predicate::Exists);
            if types::is_true(value) { exists } else { not(exists) }
        }
        "$type" => leaf(path, Predicate::Type(type_set(value)?)),
        "$regex" => leaf(path, Predicate::Regex(regex(value, siblings)?)),
        "$options" => {
            if siblings.get("$regex")?.is_none() {
                return Err(Error::bad_value("$options needs a $regex"));
            }
            return Ok(None);
        }
        "$mod" => leaf(path, modulo(value)?),
        "$size" => leaf(path, Predicate::Size(size(value)?)),
        "$not" => negation(path, value, scope)?,
        "$all" => all(path, value, scope)?,
        "$elemMatch" => elem_match(path, value, scope)?,
        "$near" | "$nearSphere" | "$geoNear" => {
            leaf(path, Predicate::Near(Arc::new(GeoNear::parse(siblings)?)))
        }
        _ if geo::belongs_to_near(name, siblings) => return Ok(None),
        "$geoWithin" | "$geoIntersects" | "$within" => {
            leaf(path, Predicate::Geo(Arc::new(GeoTest::parse(name, value, siblings)?)))
        }
        _ => match BitTest::of_name(name) {
            Some(test) => {
                leaf(path, Predicate::Bits(test, BitMask::parse(path.as_str(), name, value)?))
            }
            None => return Err(unknown()),
        },
    }))
}

fn members(name: &str, value: RawBsonRef<'_>, scope: Scope<'_>) -> Result<InSet> {
    let RawBsonRef::Array(array) = value else {
        return Err(Error::bad_value(format!("{name} needs an array")));
    };
    let (mut values, mut patterns) = (Vec::new(), Vec::new());
    for member in raw::values(array) {
        match member? {
            RawBsonRef::RegularExpression(regex) => patterns.push(Pattern::from_bson(regex)?),
            RawBsonRef::Document(document) if is_operator_document(document) => {
                return Err(Error::bad_value(format!("cannot nest $ under {name}")));
            }
            RawBsonRef::Undefined => {
                return Err(Error::bad_value("InMatchExpression equality cannot be undefined"));
            }
            member => values.push(member.into()),
        }
    }
    InSet::new(values, patterns, scope.ctx.variables.collation())
}

fn type_set(value: RawBsonRef<'_>) -> Result<TypeSet> {
    let mut set = TypeSet::default();
    if let RawBsonRef::Array(array) = value {
        for operand in raw::values(array) {
            set.add(operand?)?;
        }
    } else {
        set.add(value)?;
    }
    if set.is_empty() {
        return Err(Error::failed_to_parse("$type must match at least one type"));
    }
    Ok(set)
}

fn regex(value: RawBsonRef<'_>, siblings: &RawDocument) -> Result<Pattern> {
    let options = match siblings.get("$options")? {
        None => None,
        Some(RawBsonRef::String(options)) => Some(options),
        Some(_) => return Err(Error::bad_value("$options has to be a string")),
    };
    match value {
        RawBsonRef::String(source) => Pattern::new(source, options.unwrap_or("")),
        RawBsonRef::RegularExpression(regex) => {
            if options.is_some_and(|o| !o.is_empty()) && !regex.options.is_empty() {
                return Err(Error::location(51075, "options set in both $regex and $options"));
            }
            match options {
                Some(options) if regex.options.is_empty() => {
                    Pattern::new(regex.pattern.as_str(), options)
                }
                _ => Pattern::from_bson(regex),
            }
        }
        _ => Err(Error::bad_value("$regex has to be a string")),
    }
}

fn modulo(value: RawBsonRef<'_>) -> Result<Predicate> {
    let malformed = |what: &str| Error::bad_value(format!("malformed mod, {what}"));
    let RawBsonRef::Array(array) = value else {
        return Err(malformed("needs to be an array"));
    };
    let parts = raw::values(array).take(3).collect::<Result<Vec<_>>>()?;
    let &[divisor, remainder] = parts.as_slice() else {
        let short = parts.len() < 2;
        return Err(malformed(if short { "not enough elements" } else { "too many elements" }));
    };
    let number = |value, what: &str| {
        if !types::is_number(value) {
            return Err(malformed(&format!("{what} not a number")));
        }
        types::truncated_integer(value).ok_or_else(|| {
            malformed(&format!(
                "{what} value is invalid :: caused by :: Unable to coerce NaN/Inf to integral type"
            ))
        })
    };
    let divisor = number(divisor, "divisor")?;
    let remainder = number(remainder, "remainder")?;
    if divisor == 0 {
        return Err(Error::bad_value("divisor cannot be 0"));
    }
    Ok(Predicate::Mod { divisor, remainder })
}

fn size(value: RawBsonRef<'_>) -> Result<i64> {
    let shown = || show::field("$size", value);
    if !types::is_number(value) {
        return Err(Error::bad_value(format!(
            "Failed to parse $size. Expected a number in: {}",
            shown()
        )));
    }
    let Some(size) = types::exact_integer(value) else {
        return Err(Error::bad_value(format!(
            "Failed to parse $size. Expected an integer: {}",
            shown()
        )));
    };
    if size < 0 {
        return Err(Error::bad_value(format!(
            "Failed to parse $size. Expected a non-negative number in: {}",
            shown()
        )));
    }
    Ok(size)
}

fn negation(path: &Path, value: RawBsonRef<'_>, scope: Scope<'_>) -> Result<Node> {
    match value {
        RawBsonRef::RegularExpression(regex) => {
            Ok(not(leaf(path, Predicate::Regex(Pattern::from_bson(regex)?))))
        }
        RawBsonRef::Document(operators) if operators.is_empty() => {
            Err(Error::bad_value("$not cannot be empty"))
        }
        RawBsonRef::Document(operators) => {
            field_operators(path, operators, scope).map(and).map(not)
        }
        _ => Err(Error::bad_value("$not needs a regex or a document")),
    }
}

fn all(path: &Path, value: RawBsonRef<'_>, scope: Scope<'_>) -> Result<Node> {
    let RawBsonRef::Array(array) = value else {
        return Err(Error::bad_value("$all needs an array"));
    };
    let is_elem_match = |value: &RawBsonRef<'_>| match value {
        RawBsonRef::Document(document) => raw::first_name(document) == Some("$elemMatch"),
        _ => false,
    };
    let first = raw::values(array).next().transpose()?;
    if first.as_ref().is_some_and(is_elem_match) {
        return all_elem_match(path, array, scope);
    }
    let mut parts = Vec::new();
    for value in raw::values(array) {
        parts.push(match value? {
            RawBsonRef::RegularExpression(regex) => {
                leaf(path, Predicate::Regex(Pattern::from_bson(regex)?))
            }
            RawBsonRef::Document(document) if is_operator_document(document) => {
                return Err(Error::bad_value("no $ expressions in $all"));
            }
            value => leaf(path, Predicate::Eq(operand(value)?)),
        });
    }
    Ok(if parts.is_empty() { Node::AlwaysFalse } else { and(parts) })
}

fn all_elem_match(path: &Path, array: &RawArray, scope: Scope<'_>) -> Result<Node> {
    let mut parts = Vec::new();
    for value in raw::values(array) {
        let RawBsonRef::Document(document) = value? else {
            return Err(Error::bad_value("$all/$elemMatch has to be consistent"));
        };
        let mut fields = raw::elements(document);
        match fields.next().transpose()? {
            Some(element) if element.name() == "$elemMatch" => {
                parts.push(elem_match(path, element.value()?, scope)?);
            }
            _ => return Err(Error::bad_value("$all/$elemMatch has to be consistent")),
        }
    }
    Ok(and(parts))
}

fn elem_match(path: &Path, value: RawBsonRef<'_>, scope: Scope<'_>) -> Result<Node> {
    let RawBsonRef::Document(inner) = value else {
        return Err(Error::bad_value("$elemMatch needs an Object"));
    };
    let scope = Scope { top: false, ..scope };
    let predicate = if is_about_values(inner) {
        let inner = field_operators(&Path::root(), inner, scope)?;
        Predicate::ElemMatchValue(Box::new(and(inner)))
    } else {
        Predicate::ElemMatchObject(Box::new(document(inner, scope)?))
    };
    Ok(leaf(path, predicate))
}

/// Whether what `$elemMatch` asks of an element are operators on it as a value.
fn is_about_values(condition: &RawDocument) -> bool {
    is_operator_document(condition)
        && !matches!(
            raw::first_name(condition),
            Some(
                "$and" | "$or" | "$nor" | "$where" | "$expr" | "$text" | "$jsonSchema" | "$comment"
            )
        )
}
