//! From BSON to a tree of [`Node`]s.

use crate::agg::array::sort_by::SortBy;
use crate::agg::function::{self, ANY, Function, Named};
use crate::agg::path::{Base, FieldPath};
use crate::agg::quantile::Quantile;
use crate::agg::reduce::Reduce;
use crate::agg::script::{self, Script};
use crate::agg::string::regex::RegexCall;
use crate::agg::variables::{ParseContext, Scored, VarId};
use crate::agg::{
    GEO_NEAR_DISTANCE, GEO_NEAR_POINT, MAX_DEPTH, OwnedValue, array, convert, date, object,
};
use bson::raw::{CString, RawArray, RawBson, RawBsonRef, RawDocument};
use bsonval::text_score;
use bsonval::types::name_of;
use errors::{Code, Error, Result};
use std::sync::Arc;

/// One node of a parsed expression.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// `None` is missing (`$$REMOVE`).
    Constant(Option<RawBson>),
    /// A constant that folding has made, larger than what it was made of.
    Folded(Arc<OwnedValue>),
    Path(FieldPath),
    Object(Vec<(CString, Node)>),
    Array(Vec<Node>),
    Call(&'static Function, Vec<Node>),
    Named(&'static Named, Vec<Option<Node>>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Cond(Box<[Node; 3]>),
    IfNull(Vec<Node>),
    Switch(Vec<(Node, Node)>, Option<Box<Node>>),
    Let(Vec<(VarId, Node)>, Box<Node>),
    Map {
        input: Box<Node>,
        this: VarId,
        body: Box<Node>,
    },
    Filter {
        input: Box<Node>,
        this: VarId,
        cond: Box<Node>,
        limit: Option<Box<Node>>,
    },
    Reduce(Box<Reduce>),
    SortArray(Box<Node>, SortBy),
    Regex(Box<RegexCall>),
    Quantile(Box<Quantile>),
    Script(Arc<Script>, script::Call),
    Random,
}

/// Parses any expression.
pub(crate) fn expression(value: RawBsonRef<'_>, ctx: &ParseContext, depth: usize) -> Result<Node> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    match value {
        RawBsonRef::Document(whole) => document(whole, ctx, depth),
        RawBsonRef::Array(array) => list(array, ctx, depth + 1).map(Node::Array),
        scalar => scalar_expression(scalar, ctx),
    }
}

fn too_deep() -> Error {
    Error::new(Code::OVERFLOW, format!("Expression nesting exceeds the limit of {MAX_DEPTH}"))
}

fn scalar_expression(value: RawBsonRef<'_>, ctx: &ParseContext) -> Result<Node> {
    match value.as_str().and_then(|text| text.strip_prefix('$')) {
        Some(path) => field_path(path, ctx),
        None => Ok(Node::Constant(Some(value.into()))),
    }
}

/// Parses what follows the first `$` of a path.
fn field_path(path: &str, ctx: &ParseContext) -> Result<Node> {
    let Some(variable) = path.strip_prefix('$') else {
        if path.is_empty() {
            return Err(Error::location(16872, "'$' by itself is not a valid FieldPath"));
        }
        // A user may have bound CURRENT, which moves the base of plain paths.
        let base = ctx.lookup("CURRENT").map_or(Base::Current, Base::User);
        return Ok(Node::Path(FieldPath::of(base, Some(path))?));
    };
    let (name, rest) = match variable.split_once('.') {
        Some((name, rest)) => (name, Some(rest)),
        None => (variable, None),
    };
    if name.is_empty() {
        return Err(Error::failed_to_parse("empty variable names are not allowed"));
    }
    if let Some(id) = ctx.lookup(name) {
        return Ok(Node::Path(FieldPath::of(Base::User(id), rest)?));
    }
    let base = match name {
        "ROOT" => Base::Root,
        "CURRENT" => Base::Current,
        "NOW" => Base::Now,
        "CLUSTER_TIME" => Base::ClusterTime,
        "REMOVE" => return Ok(Node::Constant(None)),
        "USER_ROLES" => Base::UserRoles,
        "DESCEND" | "PRUNE" | "KEEP" => {
            return Ok(Node::Constant(Some(RawBson::String(name.to_ascii_lowercase()))));
        }
        _ => {
            return Err(Error::location(17276, format!("Use of undefined variable: {name}")));
        }
    };
    Ok(Node::Path(FieldPath::of(base, rest)?))
}

fn list(array: &RawArray, ctx: &ParseContext, depth: usize) -> Result<Vec<Node>> {
    array.into_iter().map(|element| expression(element?, ctx, depth)).collect()
}

fn document(document: &RawDocument, ctx: &ParseContext, depth: usize) -> Result<Node> {
    match single_operator(document)? {
        Some((name, value)) => operator(name, value, ctx, depth + 1),
        None => literal_object(document, ctx, depth),
    }
}

/// The operator, where the object is one. A function of its own, as others here: what it needs of
/// the stack is free again before the recursion goes on.
fn single_operator(document: &RawDocument) -> Result<Option<(&str, RawBsonRef<'_>)>> {
    let mut elements = document.iter_elements();
    let Some(first) = elements.next() else { return Ok(None) };
    let first = first?;
    if !first.key().as_str().starts_with('$') {
        return Ok(None);
    }
    if elements.next().is_some() {
        return Err(Error::location(
            15983,
            format!(
                "An object representing an expression must have exactly one field: {}",
                convert::display_document(document)
            ),
        ));
    }
    Ok(Some((first.key().as_str(), first.value()?)))
}

fn literal_object(document: &RawDocument, ctx: &ParseContext, depth: usize) -> Result<Node> {
    let mut fields: Vec<(CString, Node)> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for element in document.iter_elements() {
        let element = element?;
        let key = element.key();
        check_field_name(key.as_str())?;
        if !seen.insert(key.as_str()) {
            return Err(Error::location(
                16406,
                format!("duplicate field name specified in object literal: {}", key.as_str()),
            ));
        }
        fields.push((key.to_owned(), expression(element.value()?, ctx, depth + 1)?));
    }
    Ok(Node::Object(fields))
}

fn check_field_name(name: &str) -> Result<()> {
    bsonval::path::check_field_name(name)?;
    if name.contains('.') {
        return Err(Error::location(
            16412,
            "FieldPath field names may not contain '.'. Consider using $getField or $setField.",
        ));
    }
    Ok(())
}

/// Parses `{name: argument}`.
fn operator(name: &str, value: RawBsonRef<'_>, ctx: &ParseContext, depth: usize) -> Result<Node> {
    // An object of named arguments is a level of its own; an operator in it counts itself.
    let depth = depth + usize::from(is_plain_document(value));
    if let Some(parse) = special_form(name) {
        return parse(name, value, ctx, depth);
    }
    if let Some(named) = date::part_named(name) {
        return date_part(named, value, ctx, depth);
    }
    if let Some(function) = function::find(name) {
        return function_call(function, value, ctx, depth);
    }
    if let Some(named) = function::find_named(name) {
        return named_call(named, value, ctx, depth);
    }
    Err(unrecognized(name))
}

/// Operators of Queryable Encryption, which is not built. They are refused as what is known and not there.
const ON_ENCRYPTED: [&str; 4] =
    ["$encStrContains", "$encStrEndsWith", "$encStrNormalizedEq", "$encStrStartsWith"];

fn unrecognized(name: &str) -> Error {
    if ON_ENCRYPTED.contains(&name) {
        return Error::new(
            Code::NOT_IMPLEMENTED,
            format!("{name} is not supported by this version of FernDB"),
        );
    }
    Error::new(Code::INVALID_PIPELINE_OPERATOR, format!("Unrecognized expression '{name}'"))
}

fn function_call(
    function: &'static Function,
    value: RawBsonRef<'_>,
    ctx: &ParseContext,
    depth: usize,
) -> Result<Node> {
    let args = operands(value, ctx, depth)?;
    check_arity(function, args.len())?;
    Ok(Node::Call(function, args))
}

type Form = fn(&str, RawBsonRef<'_>, &ParseContext, usize) -> Result<Node>;

/// Operators that are nodes of their own.
const FORMS: &[(&str, Form)] = &[
    ("$literal", |_, value, _, _| Ok(Node::Constant(Some(value.into())))),
    ("$const", |_, value, _, _| Ok(Node::Constant(Some(value.into())))),
    ("$expr", |_, value, ctx, depth| expression(value, ctx, depth)),
    ("$and", |_, value, ctx, depth| operands(value, ctx, depth).map(Node::And)),
    ("$or", |_, value, ctx, depth| operands(value, ctx, depth).map(Node::Or)),
    ("$ifNull", |_, value, ctx, depth| if_null(value, ctx, depth)),
    ("$cond", |_, value, ctx, depth| cond(value, ctx, depth)),
    ("$switch", |_, value, ctx, depth| switch(value, ctx, depth)),
    ("$let", |_, value, ctx, depth| let_in(value, ctx, depth)),
    ("$map", |_, value, ctx, depth| map(value, ctx, depth)),
    ("$filter", |_, value, ctx, depth| filter(value, ctx, depth)),
    ("$reduce", |_, value, ctx, depth| reduce(value, ctx, depth)),
    ("$sortArray", |_, value, ctx, depth| sort_array(value, ctx, depth)),
    ("$rand", |_, value, _, _| rand(value)),
    ("$function", |_, value, ctx, depth| script::parse(value, ctx, depth)),
    ("$meta", |_, value, ctx, depth| meta(value, ctx, depth)),
    ("$median", quantile),
    ("$percentile", quantile),
    ("$sigmoid", |_, value, ctx, depth| sigmoid(value, ctx, depth)),
    ("$regexMatch", regex),
    ("$regexFind", regex),
    ("$regexFindAll", regex),
];

fn special_form(name: &str) -> Option<Form> {
    FORMS.iter().find(|(known, _)| *known == name).map(|(_, form)| *form)
}

/// Every operator's name.
pub(crate) fn names() -> Vec<&'static str> {
    let forms = FORMS.iter().map(|(name, _)| *name);
    let mut all: Vec<_> = forms.chain(date::part_names()).chain(function::names()).collect();
    all.sort_unstable();
    all
}

fn quantile(name: &str, value: RawBsonRef<'_>, ctx: &ParseContext, depth: usize) -> Result<Node> {
    Quantile::parse(name, value, ctx, depth).map(|call| Node::Quantile(Box::new(call)))
}

/// `1 / (1 + e^-x)`, of the operators that do this.
fn sigmoid(value: RawBsonRef<'_>, ctx: &ParseContext, depth: usize) -> Result<Node> {
    let call = |name: &str, args: Vec<Node>| {
        function::find(name)
            .map(|function| Node::Call(function, args))
            .ok_or_else(|| unrecognized(name))
    };
    let constant = |n: i32| Node::Constant(Some(RawBson::Int32(n)));
    let [x] = <[Node; 1]>::try_from(operands(value, ctx, depth)?).map_err(|given: Vec<Node>| {
        Error::location(
            16020,
            format!(
                "Expression $sigmoid takes exactly 1 arguments. {} were passed in.",
                given.len()
            ),
        )
    })?;
    let power = call("$exp", vec![call("$multiply", vec![constant(-1), x])?])?;
    call("$divide", vec![constant(1), call("$add", vec![constant(1), power])?])
}

fn regex(name: &str, value: RawBsonRef<'_>, ctx: &ParseContext, depth: usize) -> Result<Node> {
    RegexCall::parse(name, value, ctx, depth).map(|call| Node::Regex(Box::new(call)))
}

/// An operator's arguments: an array's elements, or the one value.
pub(crate) fn operands(
    value: RawBsonRef<'_>,
    ctx: &ParseContext,
    depth: usize,
) -> Result<Vec<Node>> {
    match value {
        RawBsonRef::Array(array) => list(array, ctx, depth + 1),
        other => Ok(vec![expression(other, ctx, depth)?]),
    }
}

fn check_arity(function: &Function, given: usize) -> Result<()> {
    let Function { name, min, max, .. } = *function;
    if (min..=max).contains(&given) {
        return Ok(());
    }
    if min == max {
        return Err(Error::location(
            16020,
            format!("Expression {name} takes exactly {min} arguments. {given} were passed in."),
        ));
    }
    let text = if max == ANY {
        format!("Expression {name} takes at least {min} arguments, and {given} were passed in.")
    } else {
        format!(
            "Expression {name} takes at least {min} arguments, and at most {max}, but {given} \
             were passed in."
        )
    };
    Err(Error::location(28667, text))
}

fn named_call(
    named: &'static Named,
    value: RawBsonRef<'_>,
    ctx: &ParseContext,
    depth: usize,
) -> Result<Node> {
    if named.name == "$getField" && !is_plain_document(value) {
        // `{$getField: "name"}` is short for `{$getField: {field: "name", input: "$$CURRENT"}}`.
        return Ok(Node::Named(
            named,
            vec![Some(expression(value, ctx, depth)?), Some(current(ctx))],
        ));
    }
    let RawBsonRef::Document(document) = value else {
        return Err(Error::location(
            named.codes.0,
            format!("{} requires an object as an argument, found: {}", named.name, name_of(value)),
        ));
    };
    if named.name == "$zip" {
        array::check_zip(document)?;
    }
    let mut args: Vec<Option<Node>> = named.args.iter().map(|_| None).collect();
    for element in document.iter_elements() {
        let element = element?;
        let key = element.key().as_str();
        let at = named.args.iter().position(|name| *name == key).ok_or_else(|| {
            Error::location(
                named.codes.1,
                format!("Unrecognized argument to {}: {key}", named.name),
            )
        })?;
        args[at] = Some(expression(element.value()?, ctx, depth)?);
    }
    if named.name == "$getField" && args[1].is_none() {
        args[1] = Some(current(ctx));
    }
    if let Some(at) = (0..named.required).find(|at| args[*at].is_none()) {
        return Err(named.missing(named.args[at]));
    }
    if matches!(named.name, "$setField" | "$unsetField") {
        object::check_constant_field(named.name, document.get("field")?, &mut args[0])?;
    }
    Ok(Node::Named(named, args))
}

/// `$$CURRENT`.
fn current(ctx: &ParseContext) -> Node {
    let base = ctx.lookup("CURRENT").map_or(Base::Current, Base::User);
    Node::Path(FieldPath { base, names: Vec::new() })
}

/// A document that is no operator.
fn is_plain_document(value: RawBsonRef<'_>) -> bool {
    value.as_document().is_some_and(|document| {
        let first = document.iter_elements().next();
        !first.is_some_and(|e| e.is_ok_and(|e| e.key().as_str().starts_with('$')))
    })
}

/// `{$year: date}`, `{$year: [date]}` or `{$year: {date, timezone}}`.
fn date_part(
    named: &'static Named,
    value: RawBsonRef<'_>,
    ctx: &ParseContext,
    depth: usize,
) -> Result<Node> {
    if let RawBsonRef::Document(document) = value {
        let operator = document.iter_elements().next().transpose()?;
        if !operator.is_some_and(|e| e.key().as_str().starts_with('$')) {
            return date_part_options(named, document, ctx, depth);
        }
    }
    if let RawBsonRef::Array(array) = value {
        let given = array.into_iter().count();
        if given != 1 {
            return Err(Error::location(
                40536,
                format!(
                    "{} accepts exactly one argument if given an array, but was given {given}",
                    named.name
                ),
            ));
        }
    }
    let date = operands(value, ctx, depth)?.pop();
    Ok(Node::Named(named, vec![date, None]))
}

fn date_part_options(
    named: &'static Named,
    document: &RawDocument,
    ctx: &ParseContext,
    depth: usize,
) -> Result<Node> {
    let mut args = vec![None, None];
    for element in document.iter_elements() {
        let element = element?;
        let at = match element.key().as_str() {
            "date" => 0,
            "timezone" => 1,
            other => {
                return Err(Error::location(
                    40535,
                    format!("unrecognized option to {}: \"{other}\"", named.name),
                ));
            }
        };
        args[at] = Some(expression(element.value()?, ctx, depth)?);
    }
    if args[0].is_none() {
        return Err(Error::location(
            40539,
            format!(
                "missing 'date' argument to {}, provided: {}: {}",
                named.name,
                named.name.trim_start_matches('$'),
                convert::display_document(document)
            ),
        ));
    }
    Ok(Node::Named(named, args))
}

fn if_null(value: RawBsonRef<'_>, ctx: &ParseContext, depth: usize) -> Result<Node> {
    let args = operands(value, ctx, depth)?;
    if args.len() < 2 {
        return Err(Error::location(
            1257300,
            format!("$ifNull needs at least two arguments, had: {}", args.len()),
        ));
    }
    Ok(Node::IfNull(args))
}

fn cond(value: RawBsonRef<'_>, ctx: &ParseContext, depth: usize) -> Result<Node> {
    let parts: [Node; 3] = if let RawBsonRef::Document(document) = value {
        let [test, then, otherwise] = fields(document, ["if", "then", "else"], |name| {
            Error::location(17083, format!("Unrecognized parameter to $cond: {name}"))
        })?;
        let part = |value: Option<RawBsonRef<'_>>, code, name| match value {
            Some(value) => expression(value, ctx, depth),
            None => Err(Error::location(code, format!("Missing '{name}' parameter to $cond"))),
        };
        [part(test, 17080, "if")?, part(then, 17081, "then")?, part(otherwise, 17082, "else")?]
    } else {
        operands(value, ctx, depth)?.try_into().map_err(|given: Vec<Node>| {
            Error::location(
                16020,
                format!(
                    "Expression $cond takes exactly 3 arguments. {} were passed in.",
                    given.len()
                ),
            )
        })?
    };
    Ok(Node::Cond(Box::new(parts)))
}

fn switch(value: RawBsonRef<'_>, ctx: &ParseContext, depth: usize) -> Result<Node> {
    let RawBsonRef::Document(document) = value else {
        return Err(Error::location(
            40060,
            format!("$switch requires an object as an argument, found: {}", name_of(value)),
        ));
    };
    let [branches, default] = fields(document, ["branches", "default"], |name| {
        Error::location(40067, format!("$switch found an unknown argument: {name}"))
    })?;
    let mut parsed = Vec::new();
    match branches {
        Some(RawBsonRef::Array(array)) => {
            for branch in array {
                parsed.push(switch_branch(branch?, ctx, depth)?);
            }
        }
        Some(other) => {
            return Err(Error::location(
                40061,
                format!("$switch expected an array for 'branches', found: {}", name_of(other)),
            ));
        }
        None => {}
    }
    if parsed.is_empty() {
        return Err(Error::location(40068, "$switch requires at least one branch."));
    }
    let default = default.map(|value| expression(value, ctx, depth).map(Box::new)).transpose()?;
    Ok(Node::Switch(parsed, default))
}

fn switch_branch(value: RawBsonRef<'_>, ctx: &ParseContext, depth: usize) -> Result<(Node, Node)> {
    let RawBsonRef::Document(branch) = value else {
        return Err(Error::location(
            40062,
            format!("$switch expected each branch to be an object, found: {}", name_of(value)),
        ));
    };
    let [case, then] = fields(branch, ["case", "then"], |name| {
        Error::location(40063, format!("$switch found an unknown argument to a branch: {name}"))
    })?;
    let case = case.ok_or_else(|| {
        Error::location(40064, "$switch requires each branch have a 'case' expression")
    })?;
    let then = then.ok_or_else(|| {
        Error::location(40065, "$switch requires each branch have a 'then' expression.")
    })?;
    // The list of branches and the branch are two levels more.
    Ok((expression(case, ctx, depth + 2)?, expression(then, ctx, depth + 2)?))
}

fn let_in(value: RawBsonRef<'_>, ctx: &ParseContext, depth: usize) -> Result<Node> {
    let RawBsonRef::Document(document) = value else {
        return Err(Error::location(16874, "$let only supports an object as its argument"));
    };
    let [vars, body] = fields(document, ["vars", "in"], |name| {
        Error::location(16875, format!("Unrecognized parameter to $let: {name}"))
    })?;
    let vars = vars.ok_or_else(|| Error::location(16876, "Missing 'vars' parameter to $let"))?;
    let body = body.ok_or_else(|| Error::location(16877, "Missing 'in' parameter to $let"))?;
    let RawBsonRef::Document(vars) = vars else {
        return Err(Error::location(10065, "invalid parameter: expected an object (vars)"));
    };
    let mut inner = ctx.clone();
    let mut bound = Vec::new();
    for element in vars.iter_elements() {
        let element = element?;
        let id = inner.define(element.key().as_str())?;
        bound.push((id, expression(element.value()?, ctx, depth)?));
    }
    Ok(Node::Let(bound, Box::new(expression(body, &inner, depth)?)))
}

fn map(value: RawBsonRef<'_>, ctx: &ParseContext, depth: usize) -> Result<Node> {
    let RawBsonRef::Document(document) = value else {
        return Err(Error::location(16878, "$map only supports an object as its argument"));
    };
    let [input, name, body] = fields(document, ["input", "as", "in"], |name| {
        Error::location(16879, format!("Unrecognized parameter to $map: {name}"))
    })?;
    let input = input.ok_or_else(|| Error::location(16880, "Missing 'input' parameter to $map"))?;
    let body = body.ok_or_else(|| Error::location(16882, "Missing 'in' parameter to $map"))?;
    let mut inner = ctx.clone();
    let this = element_variable(name, &mut inner)?;
    Ok(Node::Map {
        input: Box::new(expression(input, ctx, depth)?),
        this,
        body: Box::new(expression(body, &inner, depth)?),
    })
}

fn filter(value: RawBsonRef<'_>, ctx: &ParseContext, depth: usize) -> Result<Node> {
    let RawBsonRef::Document(document) = value else {
        return Err(Error::location(28646, "$filter only supports an object as its argument"));
    };
    let [input, name, cond, limit] = fields(document, ["input", "as", "cond", "limit"], |name| {
        Error::location(28647, format!("Unrecognized parameter to $filter: {name}"))
    })?;
    let input =
        input.ok_or_else(|| Error::location(28648, "Missing 'input' parameter to $filter"))?;
    let cond = cond.ok_or_else(|| Error::location(28650, "Missing 'cond' parameter to $filter"))?;
    let mut inner = ctx.clone();
    let this = element_variable(name, &mut inner)?;
    Ok(Node::Filter {
        input: Box::new(expression(input, ctx, depth)?),
        this,
        cond: Box::new(expression(cond, &inner, depth)?),
        limit: limit.map(|value| expression(value, ctx, depth).map(Box::new)).transpose()?,
    })
}

fn element_variable(name: Option<RawBsonRef<'_>>, inner: &mut ParseContext) -> Result<VarId> {
    match name {
        None => Ok(inner.bind("this")),
        Some(RawBsonRef::String(name)) => inner.define(name),
        Some(_) => Err(Error::failed_to_parse("'as' must be a string")),
    }
}

fn reduce(value: RawBsonRef<'_>, ctx: &ParseContext, depth: usize) -> Result<Node> {
    let RawBsonRef::Document(document) = value else {
        return Err(Error::location(
            40075,
            format!("$reduce requires an object as an argument, found: {}", name_of(value)),
        ));
    };
    let [input, initial, body] = fields(document, ["input", "initialValue", "in"], |name| {
        Error::location(40076, format!("$reduce found an unknown argument: {name}"))
    })?;
    let need = |value: Option<_>, code, name| {
        value.ok_or_else(|| {
            Error::location(code, format!("$reduce requires '{name}' to be specified"))
        })
    };
    let (input, initial, body) = (
        need(input, 40077, "input")?,
        need(initial, 40078, "initialValue")?,
        need(body, 40079, "in")?,
    );
    let mut inner = ctx.clone();
    let (this, value) = (inner.bind("this"), inner.bind("value"));
    Ok(Node::Reduce(Box::new(Reduce {
        input: expression(input, ctx, depth)?,
        initial: expression(initial, ctx, depth)?,
        value,
        this,
        body: expression(body, &inner, depth)?,
    })))
}

fn sort_array(value: RawBsonRef<'_>, ctx: &ParseContext, depth: usize) -> Result<Node> {
    let RawBsonRef::Document(document) = value else {
        return Err(Error::location(
            2942500,
            format!("$sortArray requires an object as an argument, found: {}", name_of(value)),
        ));
    };
    let [input, by] = fields(document, ["input", "sortBy"], |name| {
        Error::location(2942501, format!("$sortArray found an unknown argument: {name}"))
    })?;
    let input = input
        .ok_or_else(|| Error::location(2942502, "$sortArray requires 'input' to be specified"))?;
    let by =
        by.ok_or_else(|| Error::location(2942503, "$sortArray requires 'sortBy' to be specified"))?;
    Ok(Node::SortArray(Box::new(expression(input, ctx, depth)?), SortBy::parse(by)?))
}

fn rand(value: RawBsonRef<'_>) -> Result<Node> {
    match value {
        RawBsonRef::Document(document) if document.is_empty() => Ok(Node::Random),
        RawBsonRef::Array(array) if array.is_empty() => Ok(Node::Random),
        _ => Err(Error::location(3040501, "$rand does not currently accept arguments")),
    }
}

/// Metadata that no stage here produces reads as missing, as it does in MongoDB for documents
/// without it. What `$geoNear` knows stands in fields that no client can see.
fn meta(value: RawBsonRef<'_>, ctx: &ParseContext, depth: usize) -> Result<Node> {
    const KNOWN: &[&str] = &[
        "randVal",
        "searchScore",
        "searchHighlights",
        "recordId",
        "indexKey",
        "sortKey",
        "searchScoreDetails",
        "searchSequenceToken",
        "timeseriesBucketMinTime",
        "timeseriesBucketMaxTime",
        "vectorSearchScore",
    ];
    let field = |name: &str| expression(RawBsonRef::String(&format!("${name}")), ctx, depth);
    let carried =
        |field: &str| Ok(Node::Path(FieldPath { base: Base::Root, names: vec![field.to_owned()] }));
    match value {
        RawBsonRef::String(text_score::META) => carried(text_score::FIELD),
        RawBsonRef::String("geoNearDistance") => field(GEO_NEAR_DISTANCE),
        RawBsonRef::String("geoNearPoint") => field(GEO_NEAR_POINT),
        RawBsonRef::String(name @ text_score::SCORE_META) => match ctx.scored.field() {
            Some(field) => carried(field),
            None => Err(text_score::missing(name)),
        },
        RawBsonRef::String(name @ "scoreDetails") => match ctx.scored {
            Scored::Details => carried(text_score::DETAILS_FIELD),
            _ => Err(text_score::missing(name)),
        },
        RawBsonRef::String(name) if KNOWN.contains(&name) => Ok(Node::Constant(None)),
        RawBsonRef::String(name) => {
            Err(Error::location(17308, format!("Unsupported argument to $meta: {name}")))
        }
        _ => Err(Error::location(17307, "$meta only supports string arguments")),
    }
}

/// The values of the named fields, `unknown` for any other.
pub fn fields<'a, const N: usize>(
    document: &'a RawDocument,
    names: [&str; N],
    unknown: impl Fn(&str) -> Error,
) -> Result<[Option<RawBsonRef<'a>>; N]> {
    let mut found = [None; N];
    for element in document.iter_elements() {
        let element = element?;
        let key = element.key().as_str();
        let at = names.iter().position(|name| *name == key).ok_or_else(|| unknown(key))?;
        found[at] = Some(element.value()?);
    }
    Ok(found)
}
