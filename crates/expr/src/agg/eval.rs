//! Running a tree of [`Node`]s over one document.
//!
//! Two lifetimes: `'a` is the data (document, constants, command variables) that values may
//! borrow; `'s` is the stack, where `$let` and its kin keep their frames.

use crate::agg::function::Function;
use crate::agg::parse::Node;
use crate::agg::value::List;
use crate::agg::variables::{VarId, Variables};
use crate::agg::{Value, check_size};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::number::Number;
use bsonval::raw::size_of_ref;
use errors::{Error, Result};
use limits::{Growth, Part};
use smallvec::SmallVec;

/// What a node sees while it runs.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'s, 'a> {
    pub(crate) root: &'a RawDocument,
    pub(crate) current: &'a RawDocument,
    pub(crate) variables: &'a Variables,
    frame: Option<&'s Frame<'s, 'a>>,
}

/// One bound variable; frames form a list up the stack.
pub(crate) struct Frame<'s, 'a> {
    parent: Option<&'s Frame<'s, 'a>>,
    id: VarId,
    value: Value<'a>,
}

impl<'s, 'a> Frame<'s, 'a> {
    /// Binds a variable above what the scope sees.
    pub(crate) fn new(scope: &Scope<'s, 'a>, id: VarId, value: Value<'a>) -> Self {
        Self { parent: scope.frame, id, value: value.into_shared() }
    }

    /// The value again, for nobody reads the variable any more.
    pub(crate) fn into_value(self) -> Value<'a> {
        self.value
    }
}

impl<'s, 'a> Scope<'s, 'a> {
    pub(crate) fn new(root: &'a RawDocument, variables: &'a Variables) -> Self {
        Self { root, current: root, variables, frame: None }
    }

    /// The same with one more variable.
    pub(crate) fn with_frame<'f>(&self, frame: &'f Frame<'f, 'a>) -> Scope<'f, 'a>
    where
        's: 'f,
    {
        Scope { frame: Some(frame), ..*self }
    }

    pub(crate) fn with_current(self, current: &'a RawDocument) -> Self {
        Self { current, ..self }
    }

    pub(crate) fn user(&self, id: VarId) -> Value<'a> {
        let mut frame = self.frame;
        while let Some(bound) = frame {
            if bound.id == id {
                return bound.value.clone();
            }
            frame = bound.parent;
        }
        self.variables.value(id)
    }
}

impl Node {
    /// The value, charged for where it is large. Counts as a unit of work, unless it is a constant: who
    /// goes over elements polls at each.
    pub(crate) fn evaluate<'a>(&'a self, scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
        if let Self::Constant(Some(value)) = self {
            return Ok(Value::Ref(value.as_raw_bson_ref()));
        }
        limits::poll()?;
        let mut value = self.compute(scope);
        if let Ok(Value::Owned(made)) = &mut value {
            made.charge()?;
        }
        value
    }

    fn compute<'a>(&'a self, scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
        match self {
            Self::Constant(None) => Ok(Value::Missing),
            Self::Constant(Some(value)) => Ok(Value::Ref(value.as_raw_bson_ref())),
            Self::Folded(value) => Ok(Value::Ref(value.as_raw_bson_ref())),
            Self::Path(path) => path.evaluate(scope),
            Self::Call(function, args) => call(function, args, scope),
            Self::Named(named, args) => (named.eval)(args, scope),
            Self::Object(fields) => object(fields, scope),
            Self::Array(items) => array(items, scope),
            Self::And(parts) => all(parts, scope),
            Self::Or(parts) => any(parts, scope),
            Self::Cond(parts) => {
                let [test, then, otherwise] = &**parts;
                if test.evaluate(scope)?.is_truthy() { then } else { otherwise }.evaluate(scope)
            }
            Self::IfNull(parts) => if_null(parts, scope),
            Self::Switch(branches, default) => switch(branches, default.as_deref(), scope),
            Self::Let(bound, body) => let_in(bound, body, scope),
            Self::Map { input, this, body } => map(input, *this, body, scope),
            Self::Filter { input, this, cond, limit } => {
                filter(input, *this, cond, limit.as_deref(), scope)
            }
            Self::Reduce(reduce) => reduce.evaluate(scope),
            Self::SortArray(input, by) => {
                by.sort(&input.evaluate(scope)?, scope.variables.collation())
            }
            Self::Regex(call) => call.evaluate(scope),
            Self::Quantile(call) => call.evaluate(scope),
            Self::Script(code, call) => crate::agg::script::evaluate(code, call, scope),
            Self::Random => Ok(Value::Ref(RawBsonRef::Double(scope.variables.random()))),
        }
    }
}

fn call<'a>(function: &Function, args: &'a [Node], scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
    let mut values: SmallVec<[Value<'a>; 3]> = SmallVec::with_capacity(args.len());
    for arg in args {
        values.push(arg.evaluate(scope)?);
    }
    function.call(&mut values, scope.variables.collation())
}

/// The value of an optional argument, missing where it was not given.
pub(crate) fn optional<'a>(node: Option<&'a Node>, scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
    node.map_or(Ok(Value::Missing), |node| node.evaluate(scope))
}

fn object<'a>(
    fields: &'a [(bson::raw::CString, Node)],
    scope: &Scope<'_, 'a>,
) -> Result<Value<'a>> {
    let mut built = RawDocumentBuf::new();
    let mut memory = Growth::new(Part::Values);
    for (name, node) in fields {
        limits::poll()?;
        if let Some(value) = node.evaluate(scope)?.get() {
            let bytes = built.as_bytes().len() + size_of_ref(value);
            check_size(bytes)?;
            memory.reach(bytes)?;
            built.append(name, value);
        }
    }
    Ok(built.into())
}

fn array<'a>(items: &'a [Node], scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
    let mut built = List::default();
    for item in items {
        built.push(item.evaluate(scope)?.get().unwrap_or(RawBsonRef::Null))?;
    }
    Ok(built.finish())
}

fn all<'a>(parts: &'a [Node], scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
    for part in parts {
        if !part.evaluate(scope)?.is_truthy() {
            return Ok(Value::bool(false));
        }
    }
    Ok(Value::bool(true))
}

fn any<'a>(parts: &'a [Node], scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
    for part in parts {
        if part.evaluate(scope)?.is_truthy() {
            return Ok(Value::bool(true));
        }
    }
    Ok(Value::bool(false))
}

fn if_null<'a>(parts: &'a [Node], scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
    let mut last = Value::Missing;
    for part in parts {
        last = part.evaluate(scope)?;
        if !last.is_nullish() {
            break;
        }
    }
    Ok(last)
}

fn switch<'a>(
    branches: &'a [(Node, Node)],
    default: Option<&'a Node>,
    scope: &Scope<'_, 'a>,
) -> Result<Value<'a>> {
    for (case, then) in branches {
        if case.evaluate(scope)?.is_truthy() {
            return then.evaluate(scope);
        }
    }
    match default {
        Some(node) => node.evaluate(scope),
        None => Err(Error::location(
            40066,
            "$switch could not find a matching branch for an input, and no default was specified.",
        )),
    }
}

/// Values are computed outside the new scope, then bound one frame per variable.
fn let_in<'a>(
    bound: &'a [(VarId, Node)],
    body: &'a Node,
    scope: &Scope<'_, 'a>,
) -> Result<Value<'a>> {
    let mut values = Vec::with_capacity(bound.len());
    for (id, node) in bound {
        values.push((*id, node.evaluate(scope)?.into_shared()));
    }
    bind_all(&mut values.into_iter(), scope, body)
}

fn bind_all<'a>(
    values: &mut dyn Iterator<Item = (VarId, Value<'a>)>,
    scope: &Scope<'_, 'a>,
    body: &'a Node,
) -> Result<Value<'a>> {
    match values.next() {
        None => body.evaluate(scope),
        Some((id, value)) => {
            let frame = Frame { parent: scope.frame, id, value };
            let inner = Scope { frame: Some(&frame), ..*scope };
            bind_all(values, &inner, body)
        }
    }
}

fn with_one<'a>(
    id: VarId,
    value: Value<'a>,
    scope: &Scope<'_, 'a>,
    body: &'a Node,
) -> Result<Value<'a>> {
    let frame = Frame::new(scope, id, value);
    body.evaluate(&scope.with_frame(&frame))
}

fn map<'a>(
    input: &'a Node,
    this: VarId,
    body: &'a Node,
    scope: &Scope<'_, 'a>,
) -> Result<Value<'a>> {
    let input = input.evaluate(scope)?;
    if input.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(elements) = input.elements() else {
        return Err(Error::location(
            16883,
            format!("input to $map must be an array not {}", input.type_name()),
        ));
    };
    let mut built = List::default();
    for element in elements {
        let value = with_one(this, element?, scope, body)?;
        built.push(value.get().unwrap_or(RawBsonRef::Null))?;
    }
    Ok(built.finish())
}

fn filter<'a>(
    input: &'a Node,
    this: VarId,
    cond: &'a Node,
    limit: Option<&'a Node>,
    scope: &Scope<'_, 'a>,
) -> Result<Value<'a>> {
    let input = input.evaluate(scope)?;
    if input.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(elements) = input.elements() else {
        return Err(Error::location(
            28651,
            format!("input to $filter must be an array not {}", input.type_name()),
        ));
    };
    let limit = filter_limit(&optional(limit, scope)?)?;
    let mut built = List::default();
    let mut kept = 0;
    for element in elements {
        if kept == limit {
            break;
        }
        let element = element?.into_shared();
        if with_one(this, element.clone(), scope, cond)?.is_truthy() {
            built.push(element.bson())?;
            kept += 1;
        }
    }
    Ok(built.finish())
}

fn filter_limit(value: &Value<'_>) -> Result<usize> {
    if value.is_nullish() {
        return Ok(usize::MAX);
    }
    let limit =
        Number::from_bson(value.bson()).and_then(Number::to_exact_i32).ok_or_else(|| {
            Error::location(
                327391,
                format!(
                    "$filter: limit must be represented as a 32-bit integral value: {}",
                    crate::agg::value_to_string(value.bson())
                ),
            )
        })?;
    usize::try_from(limit).ok().filter(|n| *n > 0).ok_or_else(|| {
        Error::location(327392, format!("$filter: limit must be greater than 0: {limit}"))
    })
}
