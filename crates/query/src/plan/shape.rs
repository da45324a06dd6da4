//! The shape of a query: what it asks, without the values it asks for. Queries of one shape share
//! a cached plan and an operator's index filters.
//!
//! Always true: what decides which indexes may serve a predicate is part of the shape: null,
//! strings and arrays are told from other values.

use bson::raw::RawBsonRef;
use bsonval::SortPattern;
use keystring::{Collation, Direction};
use matcher::{Filter, Leaf, Node, Predicate};
use std::collections::BTreeSet;
use xxhash_rust::xxh3::xxh3_64;

/// How long a shape may be to be remembered.
const MAX_BYTES: usize = 8 << 10;

/// See the top of the file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape(Vec<u8>);

impl Shape {
    /// `fields` are those needed beside the filter and the sort, `None` all of them.
    pub(crate) fn of(
        filter: &Filter,
        sort: Option<&SortPattern>,
        fields: Option<&BTreeSet<String>>,
    ) -> Self {
        let mut out = Vec::with_capacity(96);
        node(filter.root(), &mut out);
        for (path, direction) in sort.iter().flat_map(|sort| sort.parts()) {
            out.push(if direction == Direction::Ascending { b'<' } else { b'>' });
            text(path.as_str(), &mut out);
        }
        for field in fields.into_iter().flatten() {
            out.push(b'.');
            text(field, &mut out);
        }
        out.push(if fields.is_some() { b'f' } else { b'F' });
        if let Some(collation) = filter.variables().collation() {
            collated(collation, &mut out);
        }
        Self(out)
    }

    /// The same for queries that want few documents, for which other plans are good.
    pub(crate) fn limited(mut self, limited: bool) -> Self {
        self.0.push(u8::from(limited));
        self
    }

    /// Whether it is worth to remember.
    pub(crate) fn is_short(&self) -> bool {
        self.0.len() <= MAX_BYTES
    }

    /// Bytes that it takes in memory.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Its hash, as MongoDB shows a `queryHash`.
    pub(crate) fn hash_text(&self) -> String {
        format!("{:08X}", xxh3_64(&self.0) as u32)
    }
}

fn collated(collation: &Collation, out: &mut Vec<u8>) {
    out.push(b'c');
    out.extend_from_slice(bsonval::collation::to_document(collation).as_bytes());
}

fn text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

fn nodes(tag: u8, parts: &[Node], out: &mut Vec<u8>) {
    out.push(tag);
    for part in parts {
        node(part, out);
    }
    out.push(b')');
}

fn node(given: &Node, out: &mut Vec<u8>) {
    match given {
        Node::AlwaysTrue => out.push(b't'),
        Node::AlwaysFalse => out.push(b'f'),
        Node::And(parts) => nodes(b'&', parts, out),
        Node::Or(parts) => nodes(b'|', parts, out),
        Node::Nor(parts) => nodes(b'^', parts, out),
        Node::Not(part) => nodes(b'!', std::slice::from_ref(part), out),
        Node::Leaf(Leaf { path, predicate: asked }) => {
            out.push(b'l');
            text(path.as_str(), out);
            predicate(asked, out);
        }
        Node::Expr(expression) => {
            out.push(b'e');
            text(expression.name, out);
            source(expression.source.as_raw_bson_ref(), out);
        }
        Node::Schema(_) => out.push(b's'),
        Node::SampleRate(_) => out.push(b'r'),
        Node::Text(_) => out.push(b'x'),
    }
}

fn predicate(asked: &Predicate, out: &mut Vec<u8>) {
    if let Some((comparison, value)) = asked.as_comparison() {
        out.push(comparison as u8);
        out.push(kind(value.as_raw_bson_ref()));
        return;
    }
    match asked {
        Predicate::In(set) => {
            out.push(b'i');
            let mut kinds: Vec<u8> =
                set.values().iter().map(|value| kind(value.as_raw_bson_ref())).collect();
            kinds.sort_unstable();
            kinds.dedup();
            out.extend(kinds);
            out.push(if set.patterns().is_empty() { b'.' } else { b'/' });
        }
        Predicate::Exists => out.push(b'?'),
        Predicate::Type(_) => out.push(b't'),
        Predicate::Regex(_) => out.push(b'/'),
        Predicate::Mod { .. } => out.push(b'%'),
        Predicate::Size(_) => out.push(b'#'),
        Predicate::ElemMatchObject(inner) => nodes(b'o', std::slice::from_ref(inner), out),
        Predicate::ElemMatchValue(inner) => nodes(b'v', std::slice::from_ref(inner), out),
        Predicate::Bits(..) => out.push(b'b'),
        Predicate::Geo(_) => out.push(b'g'),
        Predicate::Near(_) => out.push(b'n'),
        Predicate::Eq(_)
        | Predicate::Lt(_)
        | Predicate::Lte(_)
        | Predicate::Gt(_)
        | Predicate::Gte(_) => {}
    }
}

/// What of a value decides which indexes may serve it.
fn kind(value: RawBsonRef<'_>) -> u8 {
    match value {
        RawBsonRef::Null | RawBsonRef::Undefined => b'0',
        RawBsonRef::Array(_) => b'[',
        RawBsonRef::Document(_) => b'{',
        RawBsonRef::String(_) | RawBsonRef::Symbol(_) => b'"',
        RawBsonRef::MinKey | RawBsonRef::MaxKey => b'k',
        _ => b'1',
    }
}

/// An expression's source without its constants.
fn source(value: RawBsonRef<'_>, out: &mut Vec<u8>) {
    match value {
        RawBsonRef::Document(document) => {
            out.push(b'{');
            for (name, value) in document.iter().flatten() {
                text(name.as_str(), out);
                source(value, out);
            }
            out.push(b'}');
        }
        RawBsonRef::Array(values) => {
            out.push(b'[');
            for value in values.into_iter().flatten() {
                source(value, out);
            }
            out.push(b']');
        }
        RawBsonRef::String(path) if path.starts_with('$') => text(path, out),
        other => out.push(kind(other)),
    }
}
