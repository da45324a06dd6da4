//! Projections of `find`: which fields a client wants to see, and computed ones.
//!
//! Always true:
//! 1. A projection includes or excludes, never both; `_id` alone may differ.
//! 2. Included fields keep the document's order; computed ones follow in the order asked for.
//! 3. `$slice` and the positional `.$` cut arrays in what the rest yielded.

mod apply;
mod cut;
mod flat;
mod parse;

pub use flat::Flat;

use bson::raw::{RawBson, RawDocument, RawDocumentBuf};
use bsonval::path::Path;
use bsonval::text_score;
use errors::Result;
use expr::agg::{Expression, Variables};
use matcher::{Filter, MatchDetails, ParseContext};
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A parsed projection.
#[derive(Clone, Debug)]
pub struct Projection {
    mode: Mode,
    root: Level,
    cuts: Cuts,
    variables: Arc<Variables>,
}

/// What happens to a field nobody named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Include,
    Exclude,
}

/// The fields named at one level of nesting, in the order they were named.
#[derive(Clone, Debug, Default)]
struct Level {
    fields: Vec<(Box<str>, Field)>,
    by_name: BTreeMap<Box<str>, usize>,
}

impl Level {
    fn get(&self, name: &str) -> Option<&Field> {
        // Few fields are compared faster than looked up.
        if self.fields.len() <= 8 {
            return self.fields.iter().find(|(known, _)| **known == *name).map(|(_, field)| field);
        }
        self.by_name.get(name).map(|at| &self.fields[*at].1)
    }

    /// Whether a computed field, here or below, is one of those asked for.
    fn computes_any(&self, wanted: &dyn Fn(&Computed) -> bool) -> bool {
        self.fields.iter().any(|(_, field)| match field {
            Field::Computed(computed) => wanted(computed),
            Field::Below(inner) => inner.computes_any(wanted),
            Field::Included | Field::Excluded => false,
        })
    }

    fn computes(&self) -> bool {
        self.fields.iter().any(|(_, field)| match field {
            Field::Computed(_) => true,
            Field::Below(level) => level.computes(),
            Field::Included | Field::Excluded => false,
        })
    }
}

#[derive(Clone, Debug)]
enum Field {
    Included,
    Excluded,
    Below(Level),
    Computed(Box<Computed>),
}

#[derive(Clone, Debug)]
enum Computed {
    Expression(Expression),
    /// The first element of the field's array that matches, in an array of its own.
    ElemMatch(Path, Filter),
    Meta(Meta),
}

/// What `{$meta: ...}` can name here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meta {
    RecordId,
    SortKey,
    IndexKey,
    TextScore,
    GeoDistance,
    GeoPoint,
}

/// The arrays to cut, by path: every one is found in one walk.
#[derive(Clone, Debug, Default)]
struct Cuts {
    how: Option<How>,
    below: BTreeMap<Box<str>, Cuts>,
}

impl Cuts {
    fn is_empty(&self) -> bool {
        self.how.is_none() && self.below.is_empty()
    }

    /// The matched element is asked for here or below.
    fn is_positional(&self) -> bool {
        matches!(self.how, Some(How::Positional)) || self.below.values().any(Self::is_positional)
    }

    fn collect_paths(&self, prefix: &str, found: &mut BTreeSet<String>) {
        for (name, cuts) in &self.below {
            let path = format!("{prefix}{name}");
            cuts.collect_paths(&format!("{path}."), found);
            if cuts.how.is_some() {
                found.insert(path);
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum How {
    /// `$slice`: how many to skip (negative: counted from the end) and to keep.
    Slice { skip: Option<i64>, limit: i64 },
    /// `.$`: the element the filter matched.
    Positional,
}

/// What is known about a document besides its fields.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// How it matched; `None` when nobody looked.
    pub details: Option<MatchDetails>,
    /// Its record id.
    pub record_id: Option<RawBson>,
    /// The values it was sorted by.
    pub sort_key: Option<RawBson>,
    /// The index key it was found under.
    pub index_key: Option<RawBson>,
    /// How far it is from where a near query looks, and its location that is nearest.
    pub near: Option<(RawBson, RawBson)>,
}

impl Projection {
    /// Parses a projection. An empty one shows whole documents.
    pub fn parse(specification: &RawDocument, ctx: &ParseContext) -> Result<Self> {
        parse::projection(specification, ctx)
    }

    /// Whether documents pass unchanged.
    pub fn is_identity(&self) -> bool {
        self.mode == Mode::Exclude && self.root.fields.is_empty() && self.cuts.is_empty()
    }

    /// Whether the positional `.$` occurs, so that match details are needed.
    pub fn is_positional(&self) -> bool {
        self.cuts.is_positional()
    }

    /// Whether `{$meta: "sortKey"}` occurs.
    pub fn needs_sort_key(&self) -> bool {
        self.root.computes_any(&|computed| matches!(computed, Computed::Meta(Meta::SortKey)))
    }

    /// Whether `{$meta: "textScore"}` occurs, also inside an expression.
    pub fn needs_text_score(&self) -> bool {
        self.root.computes_any(&|computed| match computed {
            Computed::Meta(meta) => *meta == Meta::TextScore,
            Computed::Expression(expression) => {
                expression.dependencies().fields.contains(text_score::FIELD)
            }
            Computed::ElemMatch(..) => false,
        })
    }

    /// Whether `{$meta: "geoNearDistance"}` or `{$meta: "geoNearPoint"}` occurs.
    pub fn needs_near(&self) -> bool {
        self.root.computes_any(&|computed| {
            matches!(computed, Computed::Meta(Meta::GeoDistance | Meta::GeoPoint))
        })
    }

    /// The paths a projected document is made from, `_id` among them unless left out; `None` when
    /// that is the whole document. An index over all of them covers the projection.
    pub fn required_fields(&self) -> Option<BTreeSet<String>> {
        if self.mode == Mode::Exclude {
            return None;
        }
        let mut found = BTreeSet::new();
        collect(&self.root, "", &mut found).then_some(())?;
        self.cuts.collect_paths("", &mut found);
        Some(found)
    }

    /// Whether the projection only keeps whole fields: nothing computed, nothing cut.
    pub fn is_simple(&self) -> bool {
        self.cuts.is_empty() && !self.root.computes()
    }

    /// The projected document.
    pub fn apply(
        &self,
        document: &RawDocument,
        details: Option<&MatchDetails>,
    ) -> Result<RawDocumentBuf> {
        self.apply_with(document, &Metadata { details: details.copied(), ..Metadata::default() })
    }

    /// The projected document, where more than its match is known.
    pub fn apply_with(&self, document: &RawDocument, meta: &Metadata) -> Result<RawDocumentBuf> {
        let projected = apply::apply(self, document, meta)?;
        if self.cuts.is_empty() {
            return Ok(projected);
        }
        cut::apply(&self.cuts, &projected, meta.details)
    }
}

/// Gathers what a level reads; false if that is everything.
fn collect(level: &Level, prefix: &str, found: &mut BTreeSet<String>) -> bool {
    level.fields.iter().all(|(name, field)| {
        let path = || format!("{prefix}{name}");
        match field {
            Field::Included => {
                found.insert(path());
                true
            }
            Field::Excluded => true,
            Field::Below(inner) => collect(inner, &format!("{}.", path()), found),
            Field::Computed(computed) => match &**computed {
                Computed::Expression(expression) => {
                    let dependencies = expression.dependencies();
                    found.extend(dependencies.fields);
                    // Inside a document the parents decide where the value goes.
                    !dependencies.whole && prefix.is_empty()
                }
                Computed::ElemMatch(path, _) => {
                    found.insert(path.as_str().to_owned());
                    true
                }
                Computed::Meta(_) => true,
            },
        }
    })
}

/// The names of the operators that are no expressions, or others here than as expressions.
pub fn operator_names() -> &'static [&'static str] {
    parse::OPERATORS
}

#[cfg(test)]
mod tests;
