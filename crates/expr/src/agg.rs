//! Aggregation expressions: what `{$add: ["$a", 1]}` means.
//!
//! Parse once with [`Expression::parse`], fold constants with [`Expression::optimize`], then
//! [`Expression::evaluate`] per document. Values borrow from the raw document where they can, see
//! [`Value`]; nothing is deserialised that no operator asked for.
//!
//! Always true:
//! 1. Variables are resolved to numbers when parsing, so an expression never meets an unknown one
//!    while it runs.
//! 2. Recursion is bounded by [`MAX_DEPTH`], whatever a client sends.
//! 3. No step allocates more than [`MAX_VALUE_BYTES`] for one value, and what is large is charged to
//!    the operation's memory.
//! 4. Each node, and each element that an operator goes over, is a unit of work: `limits::poll`.

mod arith;
mod array;
mod bits;
mod compare;
mod convert;
mod date;
mod eval;
mod function;
mod object;
mod optimize;
mod parse;
mod path;
pub(crate) mod quantile;
mod reduce;
pub(crate) mod script;
mod set;
mod string;
mod value;
mod variables;

#[cfg(test)]
mod tests;

pub use convert::{double_to_string, value_to_string};
pub use date::civil::{Civil, Unit, add_units};
pub use optimize::Dependencies;
pub use parse::fields as parse_fields;
pub use path::{FieldPath, split as split_path};
pub use value::{OwnedValue, Value};
pub use variables::{ParseContext, Scored, VarId, Variables};

pub(crate) use arith::{Spread, average};
pub(crate) use array::read_n;
pub(crate) use object::{Merger, merge_input};
pub(crate) use variables::empty_document;

use bson::raw::{RawBson, RawBsonRef, RawDocument};
use errors::{Error, Result};
use eval::Scope;
use parse::Node;

/// How deep expressions may nest; MongoDB's BSON depth limit.
pub const MAX_DEPTH: usize = 200;

/// The largest value an expression may build: MongoDB's buffer limit of 64 MiB.
pub const MAX_VALUE_BYTES: usize = 64 << 20;

/// Where a document in a pipeline carries the distance that `$geoNear` measured: a name that no
/// client's document should have. It never leaves the pipeline.
pub const GEO_NEAR_DISTANCE: &str = "\u{1}geoNearDistance";

/// Where it carries the location that was measured.
pub const GEO_NEAR_POINT: &str = "\u{1}geoNearPoint";

/// What `$geoNear` has measured: it goes with a document whatever a stage makes of its fields.
pub const MEASURED: [&str; 2] = [GEO_NEAR_DISTANCE, GEO_NEAR_POINT];

/// A parsed aggregation expression.
#[derive(Clone, Debug)]
pub struct Expression(Node);

impl Expression {
    /// Parses one expression: a literal, a `"$field.path"`, a `"$$variable"`, an object, an array
    /// or an operator.
    pub fn parse(value: RawBsonRef<'_>, ctx: &ParseContext) -> Result<Self> {
        parse::expression(value, ctx, 0).map(Self)
    }

    /// Parses an operator's argument list as it stands in an accumulator: as [`Self::parse`].
    pub fn parse_operand(value: RawBsonRef<'_>, ctx: &ParseContext) -> Result<Self> {
        Self::parse(value, ctx)
    }

    /// A constant.
    pub fn constant(value: RawBson) -> Self {
        Self(Node::Constant(Some(value)))
    }

    /// What a client's code says of the document, which it finds as `this`: true or false.
    pub fn holds(code: script::Script) -> Self {
        Self(Node::Script(std::sync::Arc::new(code), script::Call::OnDocument))
    }

    /// The field path `a.b` of the current document (no leading `$`).
    pub fn field(path: &str) -> Result<Self> {
        Ok(Self(Node::Path(FieldPath::of_current(path)?)))
    }

    /// The value for one document. [`Value::Missing`] where MongoDB would leave the field out.
    pub fn evaluate<'a>(
        &'a self,
        root: &'a RawDocument,
        variables: &'a Variables,
    ) -> Result<Value<'a>> {
        self.0.evaluate(&Scope::new(root, variables))
    }

    /// The value with `$$CURRENT` (the base of plain field paths) being `current`, inside `root`.
    pub fn evaluate_in<'a>(
        &'a self,
        root: &'a RawDocument,
        current: &'a RawDocument,
        variables: &'a Variables,
    ) -> Result<Value<'a>> {
        self.0.evaluate(&Scope::new(root, variables).with_current(current))
    }

    /// Whether the value is true as a condition (`$expr`, `$match`).
    pub fn matches(&self, root: &RawDocument, variables: &Variables) -> Result<bool> {
        Ok(self.evaluate(root, variables)?.is_truthy())
    }

    /// Folds what does not depend on the document. A part that fails keeps failing when it is
    /// reached, not before.
    #[must_use]
    pub fn optimize(self) -> Self {
        Self(self.0.optimize())
    }

    /// The fields and variables the expression reads.
    pub fn dependencies(&self) -> Dependencies {
        let mut found = Dependencies::default();
        self.0.collect(&mut found);
        found
    }

    /// The constant, where the expression is one.
    pub fn as_constant(&self) -> Option<Option<&RawBson>> {
        match &self.0 {
            Node::Constant(value) => Some(value.as_ref()),
            _ => None,
        }
    }

    /// The path, where the expression is a plain field path of the document.
    pub fn as_field_path(&self) -> Option<String> {
        match &self.0 {
            Node::Path(path) => path.document_path(),
            _ => None,
        }
    }

    /// Operator name and both sides, where the expression is one of `$eq $ne $lt $lte $gt $gte`.
    /// A planner turns these into bounds.
    pub fn as_comparison(&self) -> Option<(&'static str, Self, Self)> {
        match &self.0 {
            Node::Call(function, args) if args.len() == 2 && compare::is_relational(function) => {
                Some((function.name, Self(args[0].clone()), Self(args[1].clone())))
            }
            _ => None,
        }
    }

    /// The conjuncts, where the expression is an `$and`.
    pub fn as_and(&self) -> Option<Vec<Self>> {
        match &self.0 {
            Node::And(parts) => Some(parts.iter().cloned().map(Self).collect()),
            _ => None,
        }
    }
}

/// The names of all operators.
pub fn operator_names() -> Vec<&'static str> {
    parse::names()
}

/// Refuses a value that has grown past [`MAX_VALUE_BYTES`].
pub(crate) fn check_size(bytes: usize) -> Result<()> {
    if bytes <= MAX_VALUE_BYTES {
        return Ok(());
    }
    Err(Error::location(
        13548,
        format!("BufBuilder attempted to grow() to {bytes} bytes, past the 64MB limit."),
    ))
}
