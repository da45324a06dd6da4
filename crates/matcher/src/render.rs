//! A filter as the document explain shows.

use super::{Leaf, Node, Pattern, Predicate};
use bson::{Bson, Document, doc};

pub(super) fn document(node: &Node) -> Document {
    match node {
        Node::AlwaysTrue => doc! {},
        Node::AlwaysFalse => doc! { "$alwaysFalse": 1 },
        Node::And(parts) => doc! { "$and": list(parts) },
        Node::Or(parts) => doc! { "$or": list(parts) },
        Node::Nor(parts) => doc! { "$nor": list(parts) },
        Node::Not(part) => match &**part {
            Node::Leaf(leaf) => {
                doc! { leaf.path.as_str(): { "$not": predicate(&leaf.predicate) } }
            }
            other => doc! { "$nor": [document(other)] },
        },
        Node::Leaf(leaf) => self::leaf(leaf),
        Node::Expr(expr) => doc! { expr.name: owned(&expr.source) },
        Node::Schema(schema) => doc! { "$jsonSchema": owned(&schema.source) },
        Node::Text(text) => text.to_document(),
        Node::SampleRate(rate) => doc! { "$sampleRate": *rate },
    }
}

fn leaf(leaf: &Leaf) -> Document {
    doc! { leaf.path.as_str(): predicate(&leaf.predicate) }
}

fn list(parts: &[Node]) -> Bson {
    Bson::Array(parts.iter().map(|part| Bson::Document(document(part))).collect())
}

fn owned(value: &bson::raw::RawBson) -> Bson {
    Bson::try_from(value.clone()).unwrap_or(Bson::Undefined)
}

fn predicate(predicate: &Predicate) -> Document {
    match predicate {
        Predicate::Eq(value) => doc! { "$eq": owned(value) },
        Predicate::Lt(value) => doc! { "$lt": owned(value) },
        Predicate::Lte(value) => doc! { "$lte": owned(value) },
        Predicate::Gt(value) => doc! { "$gt": owned(value) },
        Predicate::Gte(value) => doc! { "$gte": owned(value) },
        Predicate::In(set) => {
            let values = set.values().iter().map(owned);
            let patterns = set.patterns().iter().map(regex);
            doc! { "$in": values.chain(patterns).collect::<Vec<_>>() }
        }
        Predicate::Exists => doc! { "$exists": true },
        Predicate::Type(set) => doc! { "$type": set.operands() },
        Predicate::Regex(pattern) => {
            let mut out = doc! { "$regex": pattern.source() };
            if !pattern.options().is_empty() {
                out.insert("$options", pattern.options());
            }
            out
        }
        Predicate::Mod { divisor, remainder } => doc! { "$mod": [*divisor, *remainder] },
        Predicate::Size(size) => doc! { "$size": *size },
        Predicate::ElemMatchObject(filter) => doc! { "$elemMatch": document(filter) },
        Predicate::ElemMatchValue(filter) => doc! { "$elemMatch": value_filter(filter) },
        Predicate::Bits(test, mask) => doc! { test.name(): mask.operand() },
        Predicate::Geo(test) => Document::try_from(test.source()).unwrap_or_default(),
        Predicate::Near(near) => Document::try_from(near.source()).unwrap_or_default(),
    }
}

/// Predicates on a bare value, side by side; what cannot stand so is wrapped.
fn value_filter(node: &Node) -> Document {
    match node {
        Node::And(parts) => {
            let mut out = Document::new();
            for part in parts {
                for (name, value) in value_filter(part) {
                    if out.contains_key(&name) {
                        return doc! { "$and": list(parts) };
                    }
                    out.insert(name, value);
                }
            }
            out
        }
        Node::Leaf(leaf) => predicate(&leaf.predicate),
        Node::Not(part) => doc! { "$not": value_filter(part) },
        other => document(other),
    }
}

fn regex(pattern: &Pattern) -> Bson {
    let text = |text: &str| bson::raw::CString::try_from(text.to_owned());
    match (text(pattern.source()), text(pattern.options())) {
        (Ok(pattern), Ok(options)) => Bson::RegularExpression(bson::Regex { pattern, options }),
        _ => Bson::Null,
    }
}
