//! `$text` by the text index: a scan for each term of the search.
//!
//! Always true: the parts before the term have one value each, from the filter's equalities, so the
//! entries of a term stand together; and a document has at most one entry in each scan. What else the
//! filter asks stays to be asked of the documents.

use super::candidates::{PlannerInput, Predicates, without};
use super::choose::union;
use super::implied::implied;
use super::{Access, AccessPath, IndexScan};
use crate::text::text_index;
use bounds::{Interval, Intervals};
use bson::raw::RawBson;
use bson::{Bson, Document};
use bsonval::SortPattern;
use catalog::{Collection, Index};
use errors::Result;
use matcher::{Filter, Leaf, Node, Predicate, TextNode};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A search in a text index.
#[derive(Clone, Debug)]
pub(crate) struct TextScan {
    pub(crate) index: Arc<Index>,
    /// One for each term, in the order of the terms.
    pub(crate) scans: Vec<IndexScan>,
    /// What is searched for.
    pub(crate) search: Arc<TextNode>,
    /// The values of the parts before the term.
    pub(crate) prefix: Document,
    /// The documents are to carry their score.
    pub(crate) scores: bool,
}

/// Whether the filter's `$text` is a conjunct by itself.
pub(crate) fn is_conjunct_text(filter: &Filter) -> bool {
    bounds::conjuncts(filter.root()).iter().any(|node| matches!(node, Node::Text(_)))
}

/// How to answer a filter with a `$text`; `None` where there is none, or no index can.
pub(super) fn access(
    input: &PlannerInput<'_>,
    conjuncts: &[Node],
    predicates: &Predicates<'_>,
) -> Result<Option<Access>> {
    if input.filter.text().is_none() {
        return Ok(None);
    }
    let found = conjuncts.iter().enumerate().find_map(|(at, node)| match node {
        Node::Text(search) => Some((at, search)),
        _ => None,
    });
    let Some((at, search)) = found else { return union(input, conjuncts) };
    Ok(by_index(input, conjuncts, predicates, at, search))
}

/// The search that is the conjunct `at`, by the collection's text index.
fn by_index(
    input: &PlannerInput<'_>,
    conjuncts: &[Node],
    predicates: &Predicates<'_>,
    at: usize,
    search: &Arc<TextNode>,
) -> Option<Access> {
    let index = usable(input.collection, input, predicates)?;
    let prefix = prefix(input, index, conjuncts)?;
    let residual = without(input.filter, conjuncts, &BTreeSet::from([at]));
    let terms = search.search()?.query().index_terms();
    let scans = terms.iter().map(|term| scan(index, &prefix, term)).collect();
    let parts = &index.spec().parts;
    let shown = parts.iter().zip(&prefix).map(|(part, value)| {
        (part.path.clone(), Bson::try_from(value.clone()).unwrap_or(Bson::Null))
    });
    Some(Access {
        path: AccessPath::Text(Box::new(TextScan {
            index: Arc::clone(index),
            scans,
            search: Arc::clone(search),
            prefix: shown.collect(),
            scores: input.text_score,
        })),
        residual,
        sorted: input.sort.is_none_or(SortPattern::is_empty),
    })
}

/// The collection's text index, where it holds all that the filter asks for.
fn usable<'c>(
    collection: &'c Collection,
    input: &PlannerInput<'_>,
    predicates: &Predicates<'_>,
) -> Option<&'c Arc<Index>> {
    text_index(collection, input.snapshot).filter(|index| {
        index
            .spec()
            .partial
            .as_ref()
            .is_none_or(|partial| implied(partial.filter.root(), predicates.of(None), None))
    })
}

/// The value of each part before the term.
fn prefix(input: &PlannerInput<'_>, index: &Index, conjuncts: &[Node]) -> Option<Vec<RawBson>> {
    let count = index.spec().text.as_ref()?.prefix();
    let bytes = input.filter.variables().collation().is_none();
    let equal = |wanted: &str| {
        conjuncts.iter().find_map(|node| match node {
            Node::Leaf(Leaf { path, predicate: Predicate::Eq(value) })
                if path.as_str() == wanted
                    && (bytes || !keystring::is_collatable(value.as_raw_bson_ref())) =>
            {
                Some(value.clone())
            }
            _ => None,
        })
    };
    index.spec().parts[..count].iter().map(|part| equal(&part.path)).collect()
}

fn scan(index: &Arc<Index>, prefix: &[RawBson], term: &str) -> IndexScan {
    let point = |value: RawBson| Intervals::union(vec![Interval::point(value)], None);
    let mut bounds: Vec<Intervals> = prefix.iter().cloned().map(point).collect();
    bounds.push(point(RawBson::String(term.to_owned())));
    bounds.resize(index.spec().parts.len(), Intervals::all());
    IndexScan {
        index: Some(Arc::clone(index)),
        expanded: None,
        bounds,
        // The best of a term come first.
        backward: true,
        key_limits: (None, None),
        covered: false,
        planned_multikey: index.multikey_parts(),
        record_bounds: Vec::new(),
    }
}
