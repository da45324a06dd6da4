//! The engine of one thread: a `QuickJS` runtime with limits, and a JavaScript context for each
//! script it met.
//!
//! From → to: a script's context is made at its first call on a thread [`ScriptEngine::context_of`]; it
//! goes when the operation is done and its script is gone, or was not called for half a minute
//! [`drop_stale_contexts`]; of many contexts the one that was not used for longest goes. With the
//! last context the engine goes, which is what gives all memory back; so it does after code that
//! ran out of memory or was stopped in the middle.
//!
//! Always true:
//! 1. Contexts share nothing a client's code can reach; none has files, sockets or timers.
//! 2. A call that has ended in time is one whose operation may go on: code that slept until its
//!    operation's time was over has not answered.

use crate::convert::Helpers;
use crate::heap::{self, Heap};
use crate::{Script, host};
use bson::raw::RawDocument;
use errors::{Code, Error, Result};
use rquickjs::context::EvalOptions;
use rquickjs::function::Function;
use rquickjs::{CaughtError, Context, Ctx, Object, Persistent, Runtime};
use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Bytes that the contexts of a thread may hold together.
const MAX_HEAP_BYTES: usize = 128 << 20;
/// Bytes of a thread's stack that a client's code may use.
const MAX_STACK_BYTES: usize = 512 << 10;
/// JavaScript contexts that a thread keeps.
const MAX_CONTEXTS: usize = 8;

/// A context that was not called for so long goes.
const MAX_IDLE: Duration = Duration::from_secs(30);

/// `sleep` checks for an interrupt at least this often.
const SLEEP_SLICE: Duration = Duration::from_millis(10);

const PRELUDE: &str = include_str!("prelude.js");

thread_local! {
    static ENGINE: RefCell<Option<ScriptEngine>> = const { RefCell::new(None) };
}

/// Whether code may go on.
fn check() -> Result<()> {
    host::current().map_or(Ok(()), |host| host.check())
}

/// `sleep(milliseconds)`, in slices: an operation that is to end is stopped between two of them.
fn sleep(milliseconds: f64) {
    let Some(host) = host::current() else { return };
    let mut left = Duration::try_from_secs_f64(milliseconds / 1000.0).unwrap_or_default();
    while !left.is_zero() && host.check().is_ok() {
        let slice = left.min(SLEEP_SLICE);
        host.sleep(slice);
        left -= slice;
    }
}

/// The server's time, where somebody knows it.
fn now() -> Duration {
    host::current().map_or(Duration::ZERO, |host| host.now())
}

/// Drops the contexts of scripts that are gone, or were not called for a while.
/// Most threads have none: only the others look at the clock.
pub(crate) fn drop_stale_contexts(now: impl FnOnce() -> Duration) {
    ENGINE.with(|engine| {
        if let Ok(mut slot) = engine.try_borrow_mut()
            && let Some(engine) = &mut *slot
        {
            let now = now();
            engine.contexts.retain(|state| {
                state.script.strong_count() > 0 && now.saturating_sub(state.called) < MAX_IDLE
            });
            if engine.contexts.is_empty() {
                *slot = None;
            }
        }
    });
}

/// One thread's. Fields are dropped in their order: what lives in the runtime first.
struct ScriptEngine {
    contexts: Vec<ContextState>,
    runtime: Runtime,
}

struct ContextState {
    script: Weak<()>,
    /// `Some` until the context is dropped.
    function: Option<Persistent<Function<'static>>>,
    prelude: Option<Persistent<Object<'static>>>,
    context: Context,
    /// Server time of the last call.
    called: Duration,
}

/// What a context offers while it is entered.
pub(crate) struct Entered<'js> {
    pub(crate) helpers: Helpers<'js>,
    pub(crate) function: Function<'js>,
    pub(crate) taken: Function<'js>,
}

/// Runs `step` in the script's context on this thread.
pub(crate) fn enter<T>(
    script: &Script,
    step: impl for<'js> FnOnce(&Entered<'js>) -> rquickjs::Result<T>,
) -> Result<T> {
    ENGINE.with(|engine| {
        let mut engine = engine
            .try_borrow_mut()
            .map_err(|_| failed("code that runs cannot be entered again"))?;
        let running = match &mut *engine {
            Some(running) => running,
            none => none.insert(ScriptEngine::new()?),
        };
        let result = running.run(script, step);
        if result.as_ref().is_err_and(|failure| failure.is_fatal) {
            *engine = None;
        }
        result.map_err(|failure| failure.error)
    })
}

impl ScriptEngine {
    fn new() -> Result<Self> {
        let runtime = Runtime::new_with_alloc(Heap::new()?).map_err(|error| refused(&error))?;
        runtime.set_memory_limit(MAX_HEAP_BYTES);
        runtime.set_max_stack_size(MAX_STACK_BYTES);
        runtime.set_interrupt_handler(Some(Box::new(|| check().is_err())));
        Ok(Self { contexts: Vec::new(), runtime })
    }

    fn run<T>(
        &mut self,
        script: &Script,
        step: impl for<'js> FnOnce(&Entered<'js>) -> rquickjs::Result<T>,
    ) -> std::result::Result<T, Failure> {
        let _of_a_call_before = heap::take_refusal();
        let state = self.context_of(script).map_err(|error| Failure { error, is_fatal: true })?;
        if let Some(host) = host::current() {
            host.begin();
        }
        state.context.with(|ctx| {
            let entered = state.enter(&ctx).map_err(|error| caught(&ctx, error))?;
            let done = step(&entered).map_err(|error| caught(&ctx, error))?;
            check().map_err(|error| Failure { error, is_fatal: false })?;
            Ok(done)
        })
    }

    /// The script's context, last in the list.
    fn context_of(&mut self, script: &Script) -> Result<&ContextState> {
        let is_its = |state: &ContextState| state.script.as_ptr() == Arc::as_ptr(&script.name);
        if let Some(at) = self.contexts.iter().position(is_its) {
            let mut state = self.contexts.remove(at);
            state.called = now();
            self.contexts.push(state);
        } else {
            if self.contexts.len() >= MAX_CONTEXTS {
                self.contexts.remove(0);
            }
            self.contexts.push(ContextState::new(&self.runtime, script)?);
        }
        self.contexts.last().ok_or_else(|| failed("there is no JavaScript context"))
    }
}

impl ContextState {
    fn new(runtime: &Runtime, script: &Script) -> Result<Self> {
        let context = Context::full(runtime).map_err(|error| refused(&error))?;
        let stored = match host::current().filter(|_| script.knows_stored) {
            Some(host) => Some(host.stored()?),
            None => None,
        };
        let made = context.with(|ctx| {
            let make = || -> rquickjs::Result<_> {
                let prelude: Object<'_> = ctx.eval(PRELUDE)?;
                let helpers = helpers_of(&ctx, &prelude)?;
                ctx.globals().set("sleep", Function::new(ctx.clone(), sleep)?)?;
                for globals in [&stored, &script.scope].into_iter().flatten() {
                    set_globals(&helpers, globals)?;
                }
                let function = function(&ctx, &script.source)?;
                Ok((Persistent::save(&ctx, function), Persistent::save(&ctx, prelude)))
            };
            make().map_err(|error| caught(&ctx, error).error)
        });
        let (function, prelude) = made?;
        let called = now();
        let (function, prelude) = (Some(function), Some(prelude));
        Ok(Self { script: Arc::downgrade(&script.name), function, prelude, context, called })
    }

    fn enter<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<Entered<'js>> {
        let gone = || rquickjs::Error::Unknown;
        let prelude = self.prelude.clone().ok_or_else(gone)?.restore(ctx)?;
        let function = self.function.clone().ok_or_else(gone)?.restore(ctx)?;
        Ok(Entered { taken: prelude.get("taken")?, helpers: helpers_of(ctx, &prelude)?, function })
    }
}

impl Drop for ContextState {
    /// What is persistent is freed only where it is restored; it keeps the whole context alive.
    fn drop(&mut self) {
        let (function, prelude) = (self.function.take(), self.prelude.take());
        self.context.with(|ctx| {
            drop(function.map(|function| function.restore(&ctx)));
            drop(prelude.map(|prelude| prelude.restore(&ctx)));
        });
    }
}

fn helpers_of<'js>(ctx: &Ctx<'js>, prelude: &Object<'js>) -> rquickjs::Result<Helpers<'js>> {
    Ok(Helpers { ctx: ctx.clone(), make: prelude.get("make")?, tag: prelude.get("tag")? })
}

/// Code among them becomes functions.
fn set_globals(helpers: &Helpers<'_>, globals: &RawDocument) -> rquickjs::Result<()> {
    for element in globals {
        let (name, value) = element.map_err(|error| helpers.failure(&error))?;
        let value = match code_of(value) {
            Some(code) => function(&helpers.ctx, code)?.into_value(),
            None => helpers.value(value)?,
        };
        helpers.ctx.globals().set(name.as_str(), value)?;
    }
    Ok(())
}

fn code_of(value: bson::raw::RawBsonRef<'_>) -> Option<&str> {
    match value {
        bson::raw::RawBsonRef::JavaScriptCode(code) => Some(code),
        bson::raw::RawBsonRef::JavaScriptCodeWithScope(code) => Some(code.code),
        _ => None,
    }
}

/// A client's code as a function: it is one, or an expression, or the body of one.
fn function<'js>(ctx: &Ctx<'js>, source: &str) -> rquickjs::Result<Function<'js>> {
    let eval = |text: String| -> rquickjs::Result<Function<'js>> {
        let mut options = EvalOptions::default();
        options.strict = false;
        ctx.eval_with_options(text, options)
    };
    let source = source.trim().trim_end_matches(';');
    if is_function(source) {
        return eval(format!("({source}\n)"));
    }
    let body = format!("(function() {{ {source}\n}})");
    if has_word(source, "return") || source.contains(';') {
        return eval(body);
    }
    eval(format!("(function() {{ return {source}\n}})")).or_else(|_| {
        // A body that returns nothing; its mistakes are the ones to tell.
        let _first = ctx.catch();
        eval(body)
    })
}

/// Whether a source is a function, with the word or with an arrow.
fn is_function(source: &str) -> bool {
    if let Some(rest) = source.strip_prefix("function") {
        return !rest.starts_with(is_of_name);
    }
    let rest = if source.starts_with('(') {
        let mut depth = 0_usize;
        let end = source.find(|c| {
            depth = match c {
                '(' => depth + 1,
                ')' => depth.saturating_sub(1),
                _ => depth,
            };
            depth == 0
        });
        source.get(end.map_or(source.len(), |end| end + 1)..).unwrap_or_default()
    } else {
        source.trim_start_matches(is_of_name)
    };
    rest.len() < source.len() && rest.trim_start().starts_with("=>")
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Whether a word stands in a source, not as a part of a longer one.
fn has_word(source: &str, word: &str) -> bool {
    source.match_indices(word).any(|(at, _)| {
        let before = source[..at].chars().next_back();
        let after = source[at + word.len()..].chars().next();
        ![before, after].into_iter().flatten().any(is_of_name)
    })
}

/// Why code failed, and whether its engine is of no more use.
struct Failure {
    error: Error,
    is_fatal: bool,
}

fn caught(ctx: &Ctx<'_>, error: rquickjs::Error) -> Failure {
    if let Err(error) = check() {
        // Stopped in the middle: the exception has no more to say.
        let _uncatchable = ctx.catch();
        return Failure { error, is_fatal: true };
    }
    if let Some(error) = heap::take_refusal() {
        let _out_of_memory = ctx.catch();
        return Failure { error, is_fatal: true };
    }
    match CaughtError::from_error(ctx, error) {
        CaughtError::Exception(exception) => {
            let name: String = exception.as_object().get("name").unwrap_or_default();
            let message = exception.message().unwrap_or_default();
            let stack = exception.stack().unwrap_or_default();
            let text = format!("{name}: {message} :\n{}", stack.trim_start());
            Failure { error: failed(text.trim_end()), is_fatal: name == "InternalError" }
        }
        CaughtError::Value(value) => {
            let text = value.get::<rquickjs::Coerced<String>>();
            let text = text.map_or_else(|_| "a value was thrown".to_owned(), |text| text.0);
            Failure { error: failed(&format!("uncaught exception: {text}")), is_fatal: false }
        }
        CaughtError::Error(error) => Failure { error: failed(&error.to_string()), is_fatal: true },
    }
}

/// Why the engine could not be made ready.
fn refused(error: &rquickjs::Error) -> Error {
    heap::take_refusal().unwrap_or_else(|| failed(&error.to_string()))
}

fn failed(text: &str) -> Error {
    Error::new(Code::JS_INTERPRETER_FAILURE, text)
}
