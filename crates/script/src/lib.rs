//! A client's JavaScript: `$where`, `$function`, `$accumulator`, `mapReduce`.
//!
//! A [`Script`] is parsed with the operation it came in, and called from whatever thread runs that
//! operation; QuickJS runs it, in a world of its own, with a limit of memory, of stack, and, where
//! somebody watches, of time ([`watched_by`]).
//!
//! Always true: nothing here opens a file, asks the time for the server, or knows of collections;
//! a script that fails is an error (`JSInterpreterFailure`), never a panic.
#![forbid(unsafe_code)]

mod convert;
mod engine;

pub use engine::{Watch, Watched, watched_by};

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use errors::{Error, Result};
use rquickjs::function::Args;
use rquickjs::{Coerced, Value};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static ENABLED: AtomicBool = AtomicBool::new(true);

/// Allows JavaScript, or refuses it from now on (`security.javascriptEnabled`).
pub fn enable(enabled: bool) {
    ENABLED.store(enabled, Ordering::Relaxed);
}

/// Whether JavaScript is allowed.
pub fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// A function of a client's.
#[derive(Debug)]
pub struct Script {
    /// Names it in the engines' lists.
    id: u64,
    source: String,
    scope: Option<RawDocumentBuf>,
}

impl Script {
    /// Takes a function, an expression or the body of a function, with its global variables.
    /// What is no JavaScript is an error of the first call.
    pub fn new(source: &str, scope: Option<&RawDocument>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            source: source.to_owned(),
            scope: scope.map(ToOwned::to_owned),
        }
    }

    /// Takes a BSON value that holds code: a string, code, or code with scope.
    pub fn of(value: RawBsonRef<'_>) -> Option<Self> {
        match value {
            RawBsonRef::String(source) | RawBsonRef::JavaScriptCode(source) => {
                Some(Self::new(source, None))
            }
            RawBsonRef::JavaScriptCodeWithScope(code) => {
                Some(Self::new(code.code, Some(code.scope)))
            }
            _ => None,
        }
    }

    /// What it was made of.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Its value for these arguments.
    pub fn call(&self, arguments: &[RawBsonRef<'_>]) -> Result<RawBson> {
        engine::enter(self, |inside| {
            let mut args = Args::new(inside.kit.ctx.clone(), arguments.len());
            for argument in arguments {
                args.push_arg(inside.kit.value(*argument)?)?;
            }
            let value: Value<'_> = inside.function.call_arg(args)?;
            inside.kit.bson(&value)
        })
    }

    /// Whether it holds for a document, which it finds as `this` and as `obj`.
    pub fn holds(&self, document: &RawDocument) -> Result<bool> {
        engine::enter(self, |inside| {
            let object = inside.kit.object(document)?;
            inside.kit.ctx.globals().set("obj", object.clone())?;
            let mut args = Args::new(inside.kit.ctx.clone(), 0);
            args.this(object)?;
            let value: Value<'_> = inside.function.call_arg(args)?;
            Ok(value.get::<Coerced<bool>>()?.0)
        })
    }

    /// Calls it with a document as `this`, and hands over what it gave to `emit`.
    pub fn map(&self, document: &RawDocument) -> Result<Vec<(RawBson, RawBson)>> {
        engine::enter(self, |inside| {
            let mut args = Args::new(inside.kit.ctx.clone(), 0);
            args.this(inside.kit.object(document)?)?;
            let _unused: Value<'_> = inside.function.call_arg(args)?;
            let taken: Vec<Vec<Value<'_>>> = inside.taken.call(())?;
            let mut pairs = Vec::with_capacity(taken.len());
            for pair in &taken {
                let [key, value] = &pair[..] else { continue };
                pairs.push((inside.kit.bson(key)?, inside.kit.bson(value)?));
            }
            Ok(pairs)
        })
    }
}

/// The refusal where JavaScript is not allowed.
pub fn check_enabled(what: &str) -> Result<()> {
    if is_enabled() {
        return Ok(());
    }
    Err(Error::bad_value(format!("no globalScriptEngine in {what} parsing")))
}

#[cfg(test)]
mod tests;
