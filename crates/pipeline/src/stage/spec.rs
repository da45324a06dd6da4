//! What a stage says of itself: [`StageSpec`], which every stage's parsed form implements.
//!
//! Whoever asks about stages in general asks this trait, so a stage is known by its own file alone.
//!
//! Always true: what a stage does not say is answered so that nothing goes wrong, at the most
//! slower: it reads whole documents, and no other stage moves over it. What it is made of, which
//! could not be guessed without danger, it must say.

use super::StageInput;
use crate::Pipeline;
use crate::env::CollectionName;
use crate::source::DocumentSource;
use bson::raw::RawBson;
use errors::Result;
use expr::agg::{Expression, Scored};
use matcher::Filter;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

/// A parsed stage. It holds no state of a run.
pub trait StageSpec: Debug + Send + Sync {
    /// The name as the client writes it.
    fn name(&self) -> &'static str;

    /// The argument, for explain.
    fn argument(&self) -> RawBson;

    /// Everything in it that is evaluated, read or run.
    fn parts(&self) -> Vec<Part<'_>>;

    /// Lays the stage over a run's source.
    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>>;

    /// Where in a pipeline it may stand.
    fn place(&self) -> Place {
        Place::Anywhere
    }

    /// What its output is made of.
    fn output(&self) -> Output {
        Output::Whole
    }

    /// Whether it makes exactly one document of each, in their order: `$limit` and `$skip` then move
    /// before it.
    fn is_one_to_one(&self) -> bool {
        false
    }

    /// What score documents carry behind it; none where they keep what they had.
    fn gives_score(&self) -> Option<Scored> {
        None
    }

    /// Whether a `$match` that reads only these paths lets the same documents through when it stands
    /// before the stage instead of behind it.
    fn lets_match_pass(&self, paths: &BTreeSet<String>) -> bool {
        let _ = paths;
        false
    }
}

/// Something a stage is made of.
#[derive(Clone, Debug)]
pub enum Part<'s> {
    /// An expression over the documents that come in.
    Expression(&'s Expression),
    /// The dotted path of a field that is read of them.
    Field(String),
    /// A filter of them.
    Filter(&'s Filter),
    /// A pipeline over them.
    Pipeline(&'s Pipeline),
    /// A filter of documents from elsewhere.
    OtherFilter(&'s Filter),
    /// A pipeline over documents from elsewhere.
    OtherPipeline(&'s Pipeline),
    /// Another collection that is read.
    Collection(&'s CollectionName),
    /// Chance decides what comes out.
    Chance,
}

/// Where a stage may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Everywhere.
    Anywhere,
    /// Not in a `$facet`.
    OutsideFacet,
    /// First: it makes its documents itself, and the collection is not read.
    Source,
    /// First: it reads the collection in its own way.
    First,
    /// Last, and not in a pipeline within another: it writes.
    Last,
}

/// What the documents that come out are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Whole documents are read.
    Whole,
    /// The stage reads its parts, and every other field goes on.
    Passing,
    /// Each document is made of one that came in; only what the parts read of it goes on.
    Reshaped,
    /// Each document is made of several, or of none; only what the parts read of them goes on.
    Gathered,
}

/// Whether none of the paths lies on the other, nor under it, nor over it.
pub(crate) fn all_apart(paths: &BTreeSet<String>, other: &str) -> bool {
    let under = |long: &str, short: &str| {
        long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    paths.iter().all(|path| !under(path, other) && !under(other, path))
}
