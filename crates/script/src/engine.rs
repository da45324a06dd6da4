//! The engine of one thread: a QuickJS runtime with limits, and a world for each script it met.
//!
//! From → to: a script's world is made at its first call on a thread [`Engine::world`]; of many
//! worlds the one that was not used for longest goes; a world that ran out of memory, or was
//! stopped in the middle, is not used again.
//!
//! Always true: worlds share nothing a client's code can reach; none has files, sockets or timers.

use crate::Script;
use crate::convert::Kit;
use errors::{Code, Error, Result};
use rquickjs::context::EvalOptions;
use rquickjs::function::Function;
use rquickjs::{CaughtError, Context, Ctx, Object, Persistent, Runtime};
use std::cell::RefCell;
use std::sync::Arc;

/// Bytes that the worlds of a thread may hold together.
const MAX_HEAP_BYTES: usize = 128 << 20;
/// Bytes of a thread's stack that a client's code may use.
const MAX_STACK_BYTES: usize = 512 << 10;
/// Worlds a thread keeps.
const MAX_WORLDS: usize = 8;

const PRELUDE: &str = include_str!("prelude.js");

/// Asked now and then, while code runs, whether it may go on.
pub type Watch = Arc<dyn Fn() -> Result<()> + Send + Sync>;

thread_local! {
    static ENGINE: RefCell<Option<Engine>> = const { RefCell::new(None) };
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Ends the watch when it is dropped.
pub struct Watched(Option<Watch>);

impl Drop for Watched {
    fn drop(&mut self) {
        let before = self.0.take();
        WATCH.with(|watch| *watch.borrow_mut() = before);
    }
}

/// Has `watch` decide how long code may run on this thread.
#[must_use]
pub fn watched_by(watch: Watch) -> Watched {
    Watched(WATCH.with(|current| current.borrow_mut().replace(watch)))
}

fn check() -> Result<()> {
    let watch = WATCH.with(|watch| watch.borrow().clone());
    watch.map_or(Ok(()), |watch| watch())
}

/// One thread's. Fields are dropped in their order: what lives in the runtime first.
struct Engine {
    worlds: Vec<World>,
    runtime: Runtime,
}

struct World {
    script: u64,
    function: Persistent<Function<'static>>,
    kit: Persistent<Object<'static>>,
    context: Context,
}

/// What a world offers while it is entered.
pub(crate) struct Inside<'js> {
    pub(crate) kit: Kit<'js>,
    pub(crate) function: Function<'js>,
    pub(crate) taken: Function<'js>,
}

/// Runs `step` in the script's world on this thread.
pub(crate) fn enter<T>(
    script: &Script,
    step: impl for<'js> FnOnce(&Inside<'js>) -> rquickjs::Result<T>,
) -> Result<T> {
    ENGINE.with(|engine| {
        let mut engine = engine
            .try_borrow_mut()
            .map_err(|_| failed("code that runs cannot be entered again"))?;
        let engine = match &mut *engine {
            Some(engine) => engine,
            none => none.insert(Engine::new()?),
        };
        engine.run(script, step)
    })
}

impl Engine {
    fn new() -> Result<Self> {
        let runtime = Runtime::new().map_err(|error| failed(&error.to_string()))?;
        runtime.set_memory_limit(MAX_HEAP_BYTES);
        runtime.set_max_stack_size(MAX_STACK_BYTES);
        runtime.set_interrupt_handler(Some(Box::new(|| check().is_err())));
        Ok(Self { worlds: Vec::new(), runtime })
    }

    fn run<T>(
        &mut self,
        script: &Script,
        step: impl for<'js> FnOnce(&Inside<'js>) -> rquickjs::Result<T>,
    ) -> Result<T> {
        let world = self.world(script)?;
        let result = world.context.with(|ctx| {
            let inside = world.inside(&ctx).map_err(|error| caught(&ctx, error))?;
            step(&inside).map_err(|error| caught(&ctx, error))
        });
        if let Err(failure) = &result
            && failure.is_fatal
        {
            self.worlds.pop();
        }
        result.map_err(|failure| failure.error)
    }

    /// The script's world, last in the list.
    fn world(&mut self, script: &Script) -> Result<&World> {
        match self.worlds.iter().position(|world| world.script == script.id) {
            Some(at) => {
                let world = self.worlds.remove(at);
                self.worlds.push(world);
            }
            None => {
                if self.worlds.len() >= MAX_WORLDS {
                    self.worlds.remove(0);
                }
                self.worlds.push(World::new(&self.runtime, script)?);
            }
        }
        self.worlds.last().ok_or_else(|| failed("there is no world"))
    }
}

impl World {
    fn new(runtime: &Runtime, script: &Script) -> Result<Self> {
        let context = Context::full(runtime).map_err(|error| failed(&error.to_string()))?;
        let made = context.with(|ctx| {
            let make = || -> rquickjs::Result<_> {
                let kit: Object<'_> = ctx.eval(PRELUDE)?;
                if let Some(scope) = &script.scope {
                    let inside = of_kit(&ctx, &kit)?;
                    for element in &**scope {
                        let (name, value) = element.map_err(|error| inside.failure(&error))?;
                        let value = match code_of(value) {
                            Some(code) => function(&ctx, code)?.into_value(),
                            None => inside.value(value)?,
                        };
                        ctx.globals().set(name.as_str(), value)?;
                    }
                }
                let function = function(&ctx, &script.source)?;
                Ok((Persistent::save(&ctx, function), Persistent::save(&ctx, kit)))
            };
            make().map_err(|error| caught(&ctx, error).error)
        });
        let (function, kit) = made?;
        Ok(Self { script: script.id, function, kit, context })
    }

    fn inside<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<Inside<'js>> {
        let kit = self.kit.clone().restore(ctx)?;
        let function = self.function.clone().restore(ctx)?;
        Ok(Inside { taken: kit.get("taken")?, kit: of_kit(ctx, &kit)?, function })
    }
}

fn of_kit<'js>(ctx: &Ctx<'js>, kit: &Object<'js>) -> rquickjs::Result<Kit<'js>> {
    Ok(Kit { ctx: ctx.clone(), make: kit.get("make")?, tag: kit.get("tag")? })
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
    let source = source.trim().trim_end_matches(';');
    let whole = source.starts_with("function") || source.contains("=>");
    let text = if whole {
        format!("({source}\n)")
    } else if source.contains("return") {
        format!("(function() {{ {source}\n}})")
    } else {
        format!("(function() {{ return {source}\n}})")
    };
    let mut options = EvalOptions::default();
    options.strict = false;
    ctx.eval_with_options(text, options)
}

/// Why code failed, and whether its world is of no more use.
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

fn failed(text: &str) -> Error {
    Error::new(Code::JS_INTERPRETER_FAILURE, text)
}
