//! What the calling thread works for: the `ctx` of its lines in the log.
//!
//! Always true: setting it neither allocates nor formats; that is done when a line is written.

use std::cell::Cell;
use std::fmt;

/// What a thread works for, such as `listener` or `conn17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Context {
    name: &'static str,
    number: Option<u64>,
}

thread_local! {
    static CONTEXT: Cell<Context> = const { Cell::new(Context { name: "", number: None }) };
}

impl Context {
    /// A name alone.
    pub const fn named(name: &'static str) -> Self {
        Self { name, number: None }
    }

    /// One of many: `conn17`.
    pub const fn numbered(name: &'static str, number: u64) -> Self {
        Self { name, number: Some(number) }
    }

    /// The calling thread's.
    pub fn current() -> Self {
        CONTEXT.get()
    }

    /// Makes this the calling thread's.
    pub fn enter(self) {
        CONTEXT.set(self);
    }

    /// Whether nobody said what the thread works for.
    pub fn is_empty(self) -> bool {
        self.name.is_empty()
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        self.number.map_or(Ok(()), |number| write!(f, "{number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_a_context_of_its_own() {
        Context::numbered("conn", 17).enter();
        assert_eq!(Context::current().to_string(), "conn17");
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(Context::current().is_empty()));
        });
        Context::named("listener").enter();
        assert_eq!(Context::current().to_string(), "listener");
    }
}
