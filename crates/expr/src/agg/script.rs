//! `$function`, and what `$where` is made of: a client's code as an expression.

use crate::agg::eval::Scope;
use crate::agg::parse::{Node, expression};
use crate::agg::{ParseContext, Value, parse_fields, type_name};
pub(crate) use ::script::Script;
use bson::raw::{RawArray, RawBsonRef};
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
            4660800,
            format!("$function requires an object as an argument, found: {}", type_name(value)),
        ));
    };
    let [body, args, lang] = parse_fields(document, ["body", "args", "lang"], |other| {
        Error::location(4660805, format!("Unrecognized argument to $function: {other}"))
    })?;
    let body =
        body.ok_or_else(|| Error::location(4660801, "The body function must be specified."))?;
    let args = args.ok_or_else(|| Error::location(4660802, "The args field must be specified."))?;
    check_language(lang, 4660803)?;
    let script = function_of(body, ctx, "body")?;
    let args = expression(args, ctx, depth)?;
    Ok(Node::Script(Arc::new(script), Call::With(Box::new(args))))
}

/// JavaScript is the only language, and must be named.
pub(crate) fn check_language(lang: Option<RawBsonRef<'_>>, code: i32) -> Result<()> {
    match lang {
        None => Err(Error::location(code, "The lang field must be specified.")),
        Some(RawBsonRef::String("js")) => Ok(()),
        Some(_) => {
            Err(Error::location(code, "Currently the only supported language specifier is 'js'."))
        }
    }
}

/// A constant that holds code.
pub(crate) fn function_of(
    value: RawBsonRef<'_>,
    ctx: &ParseContext,
    field: &str,
) -> Result<Script> {
    if !::script::is_enabled() {
        return Err(Error::location(31264, "JavaScript is disabled on this server"));
    }
    let node = expression(value, ctx, 0)?.optimize();
    let Node::Constant(Some(constant)) = &node else {
        return Err(Error::location(
            4660804,
            format!("The {field} function must be a constant expression"),
        ));
    };
    Script::of(constant.as_raw_bson_ref()).ok_or_else(|| {
        Error::location(
            4660804,
            format!("The {field} function must evaluate to type string or code"),
        )
    })
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
            let list = array_of(&args, "$function", 4660804)?;
            Ok(Value::Owned(script.call(&elements(list)?)?))
        }
    }
}

/// The elements of an array.
pub(crate) fn elements(list: &RawArray) -> Result<SmallVec<[RawBsonRef<'_>; 4]>> {
    list.into_iter().map(|element| Ok(element?)).collect()
}

/// An array that arguments must be in.
pub(crate) fn array_of<'v>(value: &'v Value<'_>, of: &str, code: i32) -> Result<&'v RawArray> {
    match value.get() {
        Some(RawBsonRef::Array(list)) => Ok(list),
        _ => Err(Error::location(code, format!("The args of {of} must evaluate to an array"))),
    }
}
