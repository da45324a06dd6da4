//! The table of operators: name, how many arguments, and what it does.
//!
//! A [`Function`] takes evaluated arguments by position; a [`Named`] takes an object of named
//! arguments and evaluates them itself, because some are only wanted on the way (`onError`).
//! What decides whether to evaluate an argument at all (`$and`, `$cond`) or binds variables
//! (`$map`) is a node of its own, see `parse`.

use crate::agg::eval::Scope;
use crate::agg::parse::Node;
use crate::agg::{Value, arith, array, bits, compare, convert, date, object, set, string};
use errors::{Error, Result};
use keystring::Collation;
use std::sync::LazyLock;

/// An operator over evaluated arguments.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) min: usize,
    pub(crate) max: usize,
    eval: Eval,
}

/// What an operator needs beside its arguments.
#[derive(Debug)]
enum Eval {
    Plain(for<'a, 'b> fn(&'b mut [Value<'a>]) -> Result<Value<'a>>),
    /// Compares values, so that it depends on the collation.
    Ordered(for<'a, 'b> fn(&'b mut [Value<'a>], Option<&Collation>) -> Result<Value<'a>>),
}

impl Function {
    pub(crate) fn call<'a>(
        &self,
        args: &mut [Value<'a>],
        under: Option<&Collation>,
    ) -> Result<Value<'a>> {
        match self.eval {
            Eval::Plain(eval) => eval(args),
            Eval::Ordered(eval) => eval(args, under),
        }
    }

    /// Whether the collation makes a difference.
    pub(crate) fn is_ordered(&self) -> bool {
        matches!(self.eval, Eval::Ordered(_))
    }
}

/// An operator over named arguments.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: &'static str,
    /// Argument names; the first `required` must be there.
    pub(crate) args: &'static [&'static str],
    pub(crate) required: usize,
    /// Codes for: not an object, unknown argument, missing argument.
    pub(crate) codes: (i32, i32, i32),
    pub(crate) eval: for<'s, 'a> fn(&'a [Option<Node>], &Scope<'s, 'a>) -> Result<Value<'a>>,
}

impl Named {
    pub(crate) fn missing(&self, argument: &str) -> Error {
        let code = match (self.name, argument) {
            ("$firstN" | "$lastN" | "$maxN" | "$minN", "input") => 5787907,
            ("$replaceOne" | "$replaceAll", "find") => 51748,
            ("$replaceOne" | "$replaceAll", "replacement") => 51747,
            ("$setField" | "$unsetField", "input") => 4161109,
            ("$setField", "value") => 4161103,
            _ => self.codes.2,
        };
        Error::location(code, format!("Missing '{argument}' parameter to {}", self.name))
    }
}

/// Any number of arguments.
pub(crate) const ANY: usize = usize::MAX;

/// One row: name, fewest and most arguments, what it does.
pub(crate) const fn function(
    name: &'static str,
    min: usize,
    max: usize,
    eval: for<'a, 'b> fn(&'b mut [Value<'a>]) -> Result<Value<'a>>,
) -> Function {
    Function { name, min, max, eval: Eval::Plain(eval) }
}

/// One row whose operator compares values.
pub(crate) const fn ordered(
    name: &'static str,
    min: usize,
    max: usize,
    eval: for<'a, 'b> fn(&'b mut [Value<'a>], Option<&Collation>) -> Result<Value<'a>>,
) -> Function {
    Function { name, min, max, eval: Eval::Ordered(eval) }
}

static FUNCTIONS: LazyLock<Vec<&'static Function>> = LazyLock::new(|| {
    let tables: [&'static [Function]; 8] = [
        arith::TABLE,
        array::TABLE,
        bits::TABLE,
        compare::TABLE,
        convert::TABLE,
        object::TABLE,
        set::TABLE,
        string::TABLE,
    ];
    let mut all: Vec<_> = tables.into_iter().flatten().collect();
    all.sort_by_key(|f| f.name);
    all
});

static NAMED: LazyLock<Vec<&'static Named>> = LazyLock::new(|| {
    let tables: [&'static [Named]; 5] =
        [array::NAMED, convert::NAMED, date::NAMED, object::NAMED, string::NAMED];
    let mut all: Vec<_> = tables.into_iter().flatten().collect();
    all.sort_by_key(|f| f.name);
    all
});

/// The positional operator of that name.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    let at = FUNCTIONS.binary_search_by_key(&name, |f| f.name).ok()?;
    Some(FUNCTIONS[at])
}

/// The operator with named arguments of that name.
pub(crate) fn find_named(name: &str) -> Option<&'static Named> {
    let at = NAMED.binary_search_by_key(&name, |f| f.name).ok()?;
    Some(NAMED[at])
}

/// Takes an argument out of its slot.
pub(crate) fn take<'a>(args: &mut [Value<'a>], at: usize) -> Value<'a> {
    args.get_mut(at).map_or(Value::Missing, |slot| std::mem::replace(slot, Value::Missing))
}

/// Whether any argument is null, undefined or missing.
pub(crate) fn any_nullish(args: &[Value<'_>]) -> bool {
    args.iter().any(Value::is_nullish)
}

/// The names in both tables.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().map(|f| f.name).chain(NAMED.iter().map(|f| f.name))
}

/// Every operator of both tables with its named arguments (none: positional).
#[cfg(test)]
pub(crate) fn all_names() -> Vec<(&'static str, &'static [&'static str])> {
    let positional = FUNCTIONS.iter().map(|f| (f.name, &[][..]));
    positional.chain(NAMED.iter().map(|f| (f.name, f.args))).collect()
}
