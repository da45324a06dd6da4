//! `$function`, and what `$where` is made of: a client's code as an expression.

use crate::agg::eval::Scope;
use crate::agg::parse::{Node, expression};
use crate::agg::{ParseContext, Value};
pub(crate) use ::script::Script;
use bson::raw::{RawArray, RawBsonRef};
use bsonval::raw;
use bsonval::types::name_of;
use errors::{Error, Result};
use smallvec::SmallVec;
use std::sync::Arc;

/// What the code is given.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    /// The elements of this array, as its arguments.
    With(Box<Node>),
    /// The document, as `this`; what comes back is true or false.
    OnDocument,
}

/// `{$function: {body, args, lang}}`.
pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &ParseContext, depth: usize) -> Result<Node> {
    let RawBsonRef::Document(document) = value else {
        return Err(Error::location(
            31260,
            format!("$function requires an object as an argument, found: {}", name_of(value)),
        ));
    };
    let field = |name: &str, code: i32, what: &str| {
        let refusal = || Error::location(code, format!("The {what} must be specified."));
        document.get(name)?.ok_or_else(refusal)
    };
    let body = function_of(field("body", 31261, "body function")?, ctx, |is_constant| {
        if is_constant {
            return Error::location(
                31262,
                "The body function must evaluate to type string or code",
            );
        }
        Error::location(31432, "The body function must be a constant expression")
    })?;
    let args = expression(field("args", 31263, "args field")?, ctx, depth)?;
    if field("lang", 31418, "lang field")?.as_str() != Some("js") {
        return Err(Error::location(
            31419,
            "Currently the only supported language specifier is 'js'.",
        ));
    }
    check_allowed()?;
    Ok(Node::Script(Arc::new(body), Call::With(Box::new(args))))
}

/// The refusal where a client's code may not run.
pub(crate) fn check_allowed() -> Result<()> {
    if ::script::is_allowed() {
        return Ok(());
    }
    Err(Error::location(
        31264,
        "Cannot run server-side javascript without the javascript engine enabled",
    ))
}

/// A constant that holds code. `refusal` is told whether it is a constant, at least.
pub(crate) fn function_of(
    value: RawBsonRef<'_>,
    ctx: &ParseContext,
    refusal: impl Fn(bool) -> Error,
) -> Result<Script> {
    let node = expression(value, ctx, 0)?.optimize();
    let Node::Constant(Some(constant)) = &node else { return Err(refusal(false)) };
    Script::of(constant.as_raw_bson_ref()).ok_or_else(|| refusal(true))
}

/// What the code says of one document.
pub(crate) fn evaluate<'a>(
    script: &Script,
    call: &'a Call,
    scope: &Scope<'_, 'a>,
) -> Result<Value<'a>> {
    match call {
        Call::OnDocument => Ok(Value::bool(script.holds(scope.current)?)),
        Call::With(args) => {
            let args = args.evaluate(scope)?;
            let Some(RawBsonRef::Array(list)) = args.get() else {
                return Err(Error::location(31266, "The args field must be of type array"));
            };
            Ok(script.call(&elements(list)?)?.into())
        }
    }
}

/// The elements of an array.
pub(crate) fn elements(list: &RawArray) -> Result<SmallVec<[RawBsonRef<'_>; 4]>> {
    raw::values(list).collect()
}
