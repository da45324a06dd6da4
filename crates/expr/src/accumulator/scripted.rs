//! `$accumulator`: a state that a client's code makes, feeds, merges and finishes.
//!
//! Always true: `init` is called once per state, before anything else; what spills is the state as
//! BSON, so that `merge` sees what `accumulate` left.

use crate::accumulator::operators::{Feed, Operator};
use crate::accumulator::state::value_bytes;
use crate::accumulator::{AccumulatorSpec, Gather, Own, Slide};
use crate::agg::script::{check_allowed, elements, function_of};
use crate::agg::{Expression, ParseContext, Value, Variables, parse_fields};
use bson::raw::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument};
use bsonval::types::name_of;
use errors::{Error, Result};
use keystring::Collation;
use script::Script;
use std::sync::Arc;

pub(crate) const ACCUMULATOR: Operator = Operator {
    name: "$accumulator",
    in_windows: false,
    feed: Feed::Value,
    parse: |operator, value, ctx| {
        let (scripted, input) = Scripted::parse(value, ctx)?;
        let mut spec = AccumulatorSpec::plain(operator, input);
        spec.own = Some(Arc::new(scripted));
        Ok(spec)
    },
    shared: None,
};

/// A parsed `$accumulator`.
#[derive(Clone, Debug)]
struct Scripted {
    init: Arc<Script>,
    init_args: Expression,
    accumulate: Arc<Script>,
    merge: Arc<Script>,
    finalize: Option<Arc<Script>>,
}

impl Scripted {
    /// Gives the functions, and the expression whose value each document feeds in.
    fn parse(value: RawBsonRef<'_>, ctx: &ParseContext) -> Result<(Self, Expression)> {
        let RawBsonRef::Document(document) = value else {
            return Err(Error::location(
                4544703,
                format!("$accumulator expects an object as an argument; found {}", name_of(value)),
            ));
        };
        let names =
            ["init", "initArgs", "accumulate", "accumulateArgs", "merge", "finalize", "lang"];
        let [init, init_args, accumulate, accumulate_args, merge, finalize, lang] =
            parse_fields(document, names, |other| {
                Error::location(4544706, format!("$accumulator got an unexpected field: {other}"))
            })?;
        let code_of = |value: RawBsonRef<'_>, name: &str| {
            let refusal = |is_constant| {
                let (code, what) = if is_constant {
                    (4544702, "a String or Code")
                } else {
                    (4544701, "a constant expression")
                };
                Error::location(code, format!("$accumulator '{name}' must be {what}"))
            };
            function_of(value, ctx, refusal).map(Arc::new)
        };
        let required = |value: Option<RawBsonRef<'_>>, name: &str, code: i32| match value {
            Some(value) => code_of(value, name),
            None => Err(Error::location(
                code,
                format!("$accumulator missing required argument '{name}'"),
            )),
        };
        check_language(lang)?;
        check_allowed()?;
        let empty = || Expression::constant(RawBson::Array(RawArrayBuf::new()));
        let init_args = init_args.map(|args| Expression::parse(args, ctx)).transpose()?;
        let input = accumulate_args.ok_or_else(|| {
            Error::location(4544710, "$accumulator missing required argument 'accumulateArgs'")
        })?;
        let scripted = Self {
            init: required(init, "init", 4544707)?,
            init_args: init_args.map_or_else(empty, Expression::optimize),
            accumulate: required(accumulate, "accumulate", 4544708)?,
            merge: required(merge, "merge", 4544709)?,
            finalize: finalize.map(|value| code_of(value, "finalize")).transpose()?,
        };
        Ok((scripted, Expression::parse(input, ctx)?))
    }
}

impl Own for Scripted {
    fn start(&self, key: &RawDocument, variables: &Variables) -> Result<Box<dyn Gather>> {
        let args = self.init_args.evaluate(key, variables)?;
        let value = self.init.call(&elements(array_of(&args, "initArgs", 4544711)?)?)?;
        Ok(Box::new(State { scripted: self.clone(), value }))
    }

    fn start_window(&self, _: bool) -> Option<Box<dyn Slide>> {
        None
    }
}

/// JavaScript is the only language, and who names none means it.
fn check_language(lang: Option<RawBsonRef<'_>>) -> Result<()> {
    match lang {
        None | Some(RawBsonRef::String("js")) => Ok(()),
        Some(RawBsonRef::String(_)) => {
            Err(Error::location(4544705, "$accumulator only supports lang: 'js'"))
        }
        Some(other) => Err(Error::location(
            4544704,
            format!("$accumulator lang must be a string; found: {}", name_of(other)),
        )),
    }
}

fn array_of<'v>(value: &'v Value<'_>, name: &str, code: i32) -> Result<&'v RawArray> {
    match value.get() {
        Some(RawBsonRef::Array(list)) => Ok(list),
        _ => Err(Error::location(code, format!("$accumulator {name} must evaluate to an array"))),
    }
}

/// The state of one group.
#[derive(Debug)]
struct State {
    scripted: Scripted,
    value: RawBson,
}

impl Gather for State {
    fn add(&mut self, input: &Value<'_>, _: Option<&Collation>) -> Result<()> {
        let list = array_of(input, "accumulateArgs", 4544712)?;
        let mut args = elements(list)?;
        args.insert(0, self.value.as_raw_bson_ref());
        let value = self.scripted.accumulate.call(&args)?;
        drop(args);
        self.value = value;
        Ok(())
    }

    fn merge(&mut self, partial: RawBsonRef<'_>, _: Option<&Collation>) -> Result<()> {
        self.value = self.scripted.merge.call(&[self.value.as_raw_bson_ref(), partial])?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        value_bytes(self.value.as_raw_bson_ref())
    }

    fn partial(&self) -> RawBson {
        self.value.clone()
    }

    fn finish(self: Box<Self>) -> Result<RawBson> {
        match &self.scripted.finalize {
            Some(finalize) => finalize.call(&[self.value.as_raw_bson_ref()]),
            None => Ok(self.value),
        }
    }
}
