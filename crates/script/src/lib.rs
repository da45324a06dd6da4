//! A client's JavaScript: `$where`, `$function`, `$accumulator`, `mapReduce`.
//!
//! A [`Script`] is parsed with the operation it came in, and called from whatever thread runs that
//! operation; `QuickJS` runs it, in a JavaScript context of its own, with a limit of memory, of
//! stack, and of the time that the thread's [`Host`] grants.
//!
//! Always true: nothing here opens a file, asks the time for the server, or knows of collections;
//! a script that fails is an error (`JSInterpreterFailure`), never a panic. All unsafe code is the
//! counting allocator of `heap.rs`.
#![deny(unsafe_code)]

mod convert;
mod engine;
#[expect(unsafe_code, reason = "an allocator is")]
mod heap;
mod host;

pub use host::{Host, Hosted, hosted_by, is_allowed};

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use errors::Result;
use rquickjs::function::Args;
use rquickjs::{Coerced, Value};
use std::sync::Arc;

/// A function of a client's.
#[derive(Debug)]
pub struct Script {
    /// Names it in the engines' lists, which forget it once it is gone.
    name: Arc<()>,
    source: String,
    scope: Option<RawDocumentBuf>,
    /// Whether it finds the functions stored in its database.
    knows_stored: bool,
}

impl Script {
    /// Takes a function, an expression or the body of a function, with its global variables.
    /// What is no JavaScript is an error of the first call.
    pub fn new(source: &str, scope: Option<&RawDocument>) -> Self {
        Self {
            name: Arc::default(),
            source: source.to_owned(),
            scope: scope.map(ToOwned::to_owned),
            knows_stored: false,
        }
    }

    /// Takes a BSON value that holds code: a string, or code.
    pub fn of(value: RawBsonRef<'_>) -> Option<Self> {
        match value {
            RawBsonRef::String(source) | RawBsonRef::JavaScriptCode(source) => {
                Some(Self::new(source, None))
            }
            _ => None,
        }
    }

    /// The same, with the functions stored in `system.js` among its globals.
    #[must_use]
    pub fn knowing_stored(self) -> Self {
        Self { knows_stored: true, ..self }
    }

    /// What it was made of.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Its value for these arguments.
    pub fn call(&self, arguments: &[RawBsonRef<'_>]) -> Result<RawBson> {
        engine::enter(self, |entered| {
            let mut args = Args::new(entered.helpers.ctx.clone(), arguments.len());
            for argument in arguments {
                args.push_arg(entered.helpers.value(*argument)?)?;
            }
            let value: Value<'_> = entered.function.call_arg(args)?;
            entered.helpers.bson(&value)
        })
    }

    /// Whether it holds for a document, which it finds as `this` and as `obj`.
    pub fn holds(&self, document: &RawDocument) -> Result<bool> {
        engine::enter(self, |entered| {
            let object = entered.helpers.object(document)?;
            entered.helpers.ctx.globals().set("obj", object.clone())?;
            let mut args = Args::new(entered.helpers.ctx.clone(), 0);
            args.this(object)?;
            let value: Value<'_> = entered.function.call_arg(args)?;
            Ok(value.get::<Coerced<bool>>()?.0)
        })
    }

    /// Calls it with a document as `this`, and hands over what it gave to `emit`.
    pub fn map(&self, document: &RawDocument) -> Result<Vec<(RawBson, RawBson)>> {
        engine::enter(self, |entered| {
            let mut args = Args::new(entered.helpers.ctx.clone(), 0);
            args.this(entered.helpers.object(document)?)?;
            let _unused: Value<'_> = entered.function.call_arg(args)?;
            let taken: Vec<Vec<Value<'_>>> = entered.taken.call(())?;
            let mut pairs = Vec::with_capacity(taken.len());
            for pair in &taken {
                let [key, value] = &pair[..] else { continue };
                pairs.push((entered.helpers.bson(key)?, entered.helpers.bson(value)?));
            }
            Ok(pairs)
        })
    }
}

#[cfg(test)]
mod tests;
