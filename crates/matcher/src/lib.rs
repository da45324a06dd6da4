//! Filters: which documents a query means.
//!
//! [`Filter::parse`] reads the client's document once; [`Filter::matches`] then walks raw documents.
//! The tree ([`Node`], [`Predicate`]) is public: the planner reads it.
//!
//! Always true:
//! 1. `$ne`, `$nin` and `$exists: false` are [`Node::Not`] over their positive form, so they also
//!    match documents without the field.
//! 2. A comparison only matches values of its operand's kind (see [`keystring::canonical_type`]);
//!    null also stands for a missing field.
//! 3. Trees are at most [`MAX_DEPTH`] deep and their values nest within bounds, so matching recurses
//!    within bounds.
#![forbid(unsafe_code)]

mod bits;
mod geo;
mod matches;
mod normalize;
mod parse;
mod pattern;
mod render;
pub mod schema;
mod text;
mod upsert;
pub mod validator;

pub use self::geo::{GeoNear, GeoTest};
pub use bits::{BitMask, BitTest};
pub use matches::MatchDetails;
pub use pattern::Pattern;
pub use schema::{Schema, SchemaNode};
pub use text::{TextNode, no_index};
pub use validator::Validator;

use bson::DateTime;
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::path::Path;
use bsonval::types::TypeSet;
use errors::Result;
use expr::agg::{self, Expression, Variables};
use keystring::Collation;
use std::cmp::Ordering;
use std::sync::Arc;

/// How deep a filter may nest.
pub const MAX_DEPTH: usize = 100;

/// What parsing a filter, a projection or an update needs to know besides itself.
#[derive(Clone, Debug)]
pub struct ParseContext {
    /// The variables in scope of `$expr` and other expressions.
    pub names: agg::ParseContext,
    /// Their values, and the clock, while it runs.
    pub variables: Arc<Variables>,
    /// It is about documents of a collection, so `$text` and the text score have a meaning.
    pub text: bool,
}

impl Default for ParseContext {
    /// No variables, and the clock at its beginning: for what holds no expressions.
    fn default() -> Self {
        Self {
            names: agg::ParseContext::new(),
            variables: Arc::new(Variables::new(DateTime::from_millis(0), 0)),
            text: false,
        }
    }
}

impl ParseContext {
    /// [`Self::default`] under a collation.
    pub fn under(collation: Option<Collation>) -> Self {
        let mut ctx = Self::default();
        if collation.is_some() {
            let variables = Variables::clone(&ctx.variables).with_collation(collation);
            ctx.variables = Arc::new(variables);
        }
        ctx
    }
}

/// A parsed filter.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Node,
    variables: Arc<Variables>,
}

/// An aggregation expression as a condition.
#[derive(Clone, Debug)]
pub struct ExprNode {
    /// `$expr` or `$where`.
    pub name: &'static str,
    /// What is evaluated.
    pub expression: Expression,
    /// What the client wrote.
    pub source: RawBson,
}

/// One part of a filter.
#[derive(Clone, Debug)]
pub enum Node {
    /// Matches everything.
    AlwaysTrue,
    /// Matches nothing.
    AlwaysFalse,
    /// All parts match.
    And(Vec<Node>),
    /// Some part matches.
    Or(Vec<Node>),
    /// No part matches.
    Nor(Vec<Node>),
    /// The part does not match.
    Not(Box<Node>),
    /// Something the path stands for satisfies the predicate.
    Leaf(Leaf),
    /// The expression is true of the document.
    Expr(Box<ExprNode>),
    /// The document obeys the schema.
    Schema(Arc<SchemaNode>),
    /// Matches this share of documents, by chance.
    SampleRate(f64),
    /// The document's texts match a search.
    Text(Arc<TextNode>),
}

/// A predicate and the path to what it is asked about.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Where to look; the root path inside a value `$elemMatch`.
    pub path: Path,
    /// What must hold there.
    pub predicate: Predicate,
}

/// What can be asked about one value.
#[derive(Clone, Debug)]
pub enum Predicate {
    /// Equal in MongoDB's order; null also means missing.
    Eq(RawBson),
    /// Less, among values of the same kind.
    Lt(RawBson),
    /// Less or equal.
    Lte(RawBson),
    /// Greater.
    Gt(RawBson),
    /// Greater or equal.
    Gte(RawBson),
    /// Equal to a member of the set, or matched by one of its patterns.
    In(InSet),
    /// The field is there.
    Exists,
    /// The type is in the set.
    Type(TypeSet),
    /// The text matches.
    Regex(Pattern),
    /// The whole part of the number leaves this remainder.
    Mod {
        /// Not zero.
        divisor: i64,
        /// Compared with C's `%`: it has the sign of the dividend.
        remainder: i64,
    },
    /// An array of exactly so many elements.
    Size(i64),
    /// An array with a document (or array) element which the filter matches.
    ElemMatchObject(Box<Node>),
    /// An array with an element which satisfies all of it. The leaves inside have the root path.
    ElemMatchValue(Box<Node>),
    /// Bits of a number or of binary data.
    Bits(BitTest, BitMask),
    /// A geometry in a region, or one that meets it.
    Geo(Arc<GeoTest>),
    /// The nearest geometry within distances; asks for an order too.
    Near(Arc<GeoNear>),
}

impl Predicate {
    /// Whether an array at the end of the path also stands for its elements.
    pub fn expands_arrays(&self) -> bool {
        !matches!(
            self,
            Self::Exists | Self::Size(_) | Self::ElemMatchObject(_) | Self::ElemMatchValue(_)
        )
    }

    /// The operand and how it compares, where the predicate is a comparison.
    pub fn as_comparison(&self) -> Option<(Comparison, &RawBson)> {
        Some(match self {
            Self::Eq(value) => (Comparison::Eq, value),
            Self::Lt(value) => (Comparison::Lt, value),
            Self::Lte(value) => (Comparison::Lte, value),
            Self::Gt(value) => (Comparison::Gt, value),
            Self::Gte(value) => (Comparison::Gte, value),
            _ => return None,
        })
    }
}

/// The five comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the operators")]
pub enum Comparison {
    Eq,
    Lt,
    Lte,
    Gt,
    Gte,
}

/// The members of an `$in`: values sorted and distinct, patterns beside them.
#[derive(Clone, Debug, Default)]
pub struct InSet {
    values: Vec<RawBson>,
    patterns: Vec<Pattern>,
    has_null: bool,
}

impl InSet {
    /// Sorts and deduplicates the values in the collation that the filter runs under.
    pub fn new(
        values: Vec<RawBson>,
        patterns: Vec<Pattern>,
        under: Option<&Collation>,
    ) -> Result<Self> {
        let order = |a: &RawBson, b: &RawBson| -> Ordering {
            bsonval::order::compare_under(a.as_raw_bson_ref(), b.as_raw_bson_ref(), under)
        };
        Ok(Self::gathered(limits::sort_by(values, order)?, patterns, under))
    }

    /// [`Self::new`] of values that are in order for the most part.
    fn gathered(
        mut values: Vec<RawBson>,
        patterns: Vec<Pattern>,
        under: Option<&Collation>,
    ) -> Self {
        let order = |a: &RawBson, b: &RawBson| -> Ordering {
            bsonval::order::compare_under(a.as_raw_bson_ref(), b.as_raw_bson_ref(), under)
        };
        values.sort_by(order);
        values.dedup_by(|a, b| order(a, b).is_eq());
        let has_null = values.iter().any(|value| matches!(value, RawBson::Null));
        Self { values, patterns, has_null }
    }

    /// The values, ascending.
    pub fn values(&self) -> &[RawBson] {
        &self.values
    }

    /// The regular expressions.
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// Whether null, and with it a missing field, is a member.
    pub fn has_null(&self) -> bool {
        self.has_null
    }

    /// Whether a value is equal to a member; patterns are not asked.
    pub fn contains(&self, value: RawBsonRef<'_>, under: Option<&Collation>) -> bool {
        self.values
            .binary_search_by(|member| {
                bsonval::order::compare_under(member.as_raw_bson_ref(), value, under)
            })
            .is_ok()
    }
}

impl Filter {
    /// Parses a client's filter and normalises it. It may ask for no order, as `$near` does.
    pub fn parse(filter: &RawDocument, ctx: &ParseContext) -> Result<Self> {
        let root = parse::filter(filter, ctx)?;
        geo::refuse_near(&root)?;
        Ok(Self::new(root, Arc::clone(&ctx.variables)))
    }

    /// [`Self::parse`] where the planner will see the filter, so that `$near` may stand in it.
    pub fn parse_query(filter: &RawDocument, ctx: &ParseContext) -> Result<Self> {
        let parsed = Self::new(parse::filter(filter, ctx)?, Arc::clone(&ctx.variables));
        geo::check_near(&parsed.root)?;
        Ok(parsed)
    }

    /// Parses operators on a bare value, `{$gt: 5, ...}`: see [`Self::matches_value`].
    pub fn parse_value(operators: &RawDocument, ctx: &ParseContext) -> Result<Self> {
        let root = parse::value_filter(operators, ctx)?;
        geo::refuse_near(&root)?;
        Ok(Self::new(root, Arc::clone(&ctx.variables)))
    }

    /// Parses what `$elemMatch` asks of an array's elements: see [`Self::matches_value`].
    pub fn parse_element(condition: &RawDocument, ctx: &ParseContext) -> Result<Self> {
        let root = parse::element_filter(condition, ctx)?;
        geo::refuse_near(&root)?;
        Ok(Self::new(root, Arc::clone(&ctx.variables)))
    }

    /// The filter that matches everything.
    pub fn all() -> Self {
        Self { root: Node::AlwaysTrue, variables: ParseContext::default().variables }
    }

    /// A filter over this tree, normalised, whose expressions see these variables.
    pub fn new(root: Node, variables: Arc<Variables>) -> Self {
        Self { root: normalize::normalize(root, variables.collation()), variables }
    }

    /// The variables its expressions see.
    pub fn variables(&self) -> &Arc<Variables> {
        &self.variables
    }

    /// The tree.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// The tree, taken out.
    pub fn into_root(self) -> Node {
        self.root
    }

    /// Whether every document matches.
    pub fn matches_everything(&self) -> bool {
        matches!(self.root, Node::AlwaysTrue)
    }

    /// Whether a document matches.
    pub fn matches(&self, document: &RawDocument) -> Result<bool> {
        self.matches_with(document, &self.variables)
    }

    /// [`Self::matches`] with other values for the variables, as a correlated `$lookup` needs.
    pub fn matches_with(&self, document: &RawDocument, variables: &Variables) -> Result<bool> {
        matches::matches(&self.root, document, variables, None)
    }

    /// Whether a document matches, and at which array element: the positional operator `$` of
    /// updates and projections points there.
    pub fn matches_with_details(&self, document: &RawDocument) -> Result<Option<MatchDetails>> {
        let mut details = MatchDetails::default();
        Ok(matches::matches(&self.root, document, &self.variables, Some(&mut details))?
            .then_some(details))
    }

    /// Whether a bare value (an array element under `$pull` or an array filter) satisfies the
    /// filter's leaves that have the root path.
    pub fn matches_value(&self, value: RawBsonRef<'_>) -> Result<bool> {
        matches::value(&self.root, value, &self.variables)
    }

    /// The values an upsert takes from the filter: every path that must equal one value.
    /// `NotSingleValueField` where two of them collide.
    pub fn equalities_for_upsert(&self) -> Result<Vec<(Path, RawBson)>> {
        upsert::equalities(&self.root)
    }

    /// The `$near` that it asks for an order by, and its path.
    pub fn near(&self) -> Option<(&Path, &Arc<GeoNear>)> {
        geo::near_of(&self.root)
    }

    /// The filter as a document in MongoDB's canonical form (explain's `parsedQuery`).
    pub fn to_document(&self) -> bson::Document {
        render::document(&self.root)
    }

    /// Whether a part of it is a `$where`, which has no place in some filters.
    pub fn uses_where(&self) -> bool {
        uses_where(&self.root)
    }

    /// The filter's `$text`.
    pub fn text(&self) -> Option<&Arc<TextNode>> {
        text::find(&self.root)
    }

    /// The filter with its `$text` over the fields of a text index.
    pub fn bind_text(&self, fields: &Arc<fulltext::Fields>) -> Result<Self> {
        Ok(Self { root: text::bind(&self.root, fields)?, variables: Arc::clone(&self.variables) })
    }

    /// Every `$expr` and `$where` in the filter.
    pub fn expressions(&self) -> Vec<&Expression> {
        let mut found = Vec::new();
        collect_expressions(&self.root, &mut found);
        found
    }

    /// Every path the filter's leaves read; expressions tell their own, see [`Self::expressions`].
    /// A schema reads the root path: everything.
    pub fn paths(&self) -> Vec<&Path> {
        let mut found = Vec::new();
        collect_paths(&self.root, &mut found);
        found
    }
}

impl std::fmt::Display for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match RawDocumentBuf::try_from(&self.to_document()) {
            Ok(document) => f.write_str(&bsonval::show::document(&document)),
            Err(_) => f.write_str("{ ... }"),
        }
    }
}

fn uses_where(node: &Node) -> bool {
    match node {
        Node::And(parts) | Node::Or(parts) | Node::Nor(parts) => parts.iter().any(uses_where),
        Node::Not(part) => uses_where(part),
        Node::Expr(expr) => expr.name == "$where",
        _ => false,
    }
}

/// Every expression in a tree.
fn collect_expressions<'n>(node: &'n Node, found: &mut Vec<&'n Expression>) {
    match node {
        Node::And(parts) | Node::Or(parts) | Node::Nor(parts) => {
            for part in parts {
                collect_expressions(part, found);
            }
        }
        Node::Not(part) => collect_expressions(part, found),
        Node::Expr(expr) => found.push(&expr.expression),
        // `$elemMatch` holds none: `$expr` stands at the top only.
        Node::Leaf(_)
        | Node::AlwaysTrue
        | Node::AlwaysFalse
        | Node::Schema(_)
        | Node::Text(_)
        | Node::SampleRate(_) => {}
    }
}

fn collect_paths<'n>(node: &'n Node, found: &mut Vec<&'n Path>) {
    match node {
        Node::And(parts) | Node::Or(parts) | Node::Nor(parts) => {
            for part in parts {
                collect_paths(part, found);
            }
        }
        Node::Not(part) => collect_paths(part, found),
        Node::Leaf(leaf) => found.push(&leaf.path),
        Node::Schema(schema) => found.push(&schema.whole),
        Node::AlwaysTrue
        | Node::AlwaysFalse
        | Node::SampleRate(_)
        | Node::Text(_)
        | Node::Expr(_) => {}
    }
}

#[cfg(test)]
mod tests;

pub use parse::is_operator_document;

/// The names of all operators: in place of a field's name, and under one.
pub fn operator_names() -> [&'static [&'static str]; 2] {
    [parse::TOP, parse::UNDER_FIELD]
}
