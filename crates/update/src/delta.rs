//! The `diff` of an oplog entry's `{$v: 2, diff: ...}`: what changed in a document, by place.
//!
//! A document's diff has, in this order, `d` (fields that go), `u` (fields that change where they
//! stand), `i` (fields that come, at the end) and `sNAME` (the diff of the value of `NAME`). An
//! array's begins with `a: true`, may cut or stretch it to the length `l`, and names elements by
//! position: `u0` changes one, `s0` is the diff of one.
//!
//! Always true: applying a diff twice gives what applying it once gives; where it does not fit what
//! it meets (no value of the kind that it describes), that value stays.

use super::check;
use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::path::array_index;
use bsonval::raw::{self, Writer};
use errors::{Error, Result};
use limits::{KeyMap, KeySet};

/// The document after the diff.
pub(super) fn apply(document: &RawDocument, diff: &RawDocument) -> Result<RawDocumentBuf> {
    let mut out = Writer::with_capacity(document.as_bytes().len() + diff.as_bytes().len());
    let open = out.begin();
    document_into(&mut out, document, diff, 0)?;
    out.end(open);
    out.finish()
}

/// Checks a diff once, before it meets a document.
pub(super) fn check(diff: &RawDocument) -> Result<()> {
    if is_array_diff(diff) {
        return Err(Error::location(4770503, "the diff of a document is one of an array"));
    }
    check_level(diff, 0)
}

fn check_level(diff: &RawDocument, depth: usize) -> Result<()> {
    if depth > check::MAX_STORED_DEPTH {
        return Err(check::too_deep());
    }
    let of_array = is_array_diff(diff);
    for element in raw::elements(diff) {
        let element = element?;
        let (name, value) = (element.name(), element.value()?);
        let known = match (name, value) {
            ("a", RawBsonRef::Boolean(true)) => true,
            ("l", RawBsonRef::Int32(length)) => of_array && length >= 0,
            ("d" | "u" | "i", RawBsonRef::Document(_)) => !of_array,
            ("", _) => false,
            (name, RawBsonRef::Document(inner)) if name.starts_with('s') => {
                check_level(inner, depth + 1)?;
                !of_array || position(name).is_some()
            }
            (name, _) => of_array && name.starts_with('u') && position(name).is_some(),
        };
        if !known {
            return Err(Error::location(4770505, format!("unrecognized part of a diff: '{name}'")));
        }
    }
    Ok(())
}

fn is_array_diff(diff: &RawDocument) -> bool {
    matches!(diff.get("a"), Ok(Some(RawBsonRef::Boolean(true))))
}

/// What becomes of a field or an element.
enum Change<'d> {
    Gone,
    Value(raw::Element<'d>),
    Inner(&'d RawDocument),
}

fn document_into(
    out: &mut Writer,
    document: &RawDocument,
    diff: &RawDocument,
    depth: usize,
) -> Result<()> {
    if depth > check::MAX_STORED_DEPTH {
        return Err(check::too_deep());
    }
    let mut changes: KeyMap<&str, Change<'_>> = KeyMap::default();
    let mut added = Vec::new();
    for part in raw::elements(diff) {
        let part = part?;
        let RawBsonRef::Document(inner) = part.value()? else { continue };
        match part.name() {
            "d" => {
                for field in raw::elements(inner) {
                    changes.insert(field?.name(), Change::Gone);
                }
            }
            "u" => {
                for field in raw::elements(inner) {
                    let field = field?;
                    added.push(field.clone());
                    changes.insert(field.name(), Change::Value(field));
                }
            }
            "i" => {
                for field in raw::elements(inner) {
                    let field = field?;
                    changes.insert(field.name(), Change::Gone);
                    added.push(field);
                }
            }
            name => {
                changes.insert(&name[1..], Change::Inner(inner));
            }
        }
    }
    let mut written: KeySet<&str> = KeySet::default();
    for field in raw::elements(document) {
        let field = field?;
        match changes.get(field.name()) {
            None => out.element(&field),
            Some(Change::Gone) => {}
            Some(Change::Value(value)) => {
                out.element(value);
                written.insert(value.name());
            }
            Some(Change::Inner(inner)) => {
                inner_into(out, field.name(), field.value()?, inner, depth)?;
            }
        }
    }
    for field in added.iter().filter(|field| !written.contains(field.name())) {
        out.element(field);
    }
    Ok(())
}

/// A value with a diff of its own; what it does not describe stays.
fn inner_into(
    out: &mut Writer,
    name: &str,
    value: RawBsonRef<'_>,
    diff: &RawDocument,
    depth: usize,
) -> Result<()> {
    match (value, is_array_diff(diff)) {
        (RawBsonRef::Document(document), false) => {
            let open = out.begin_document(name);
            document_into(out, document, diff, depth + 1)?;
            out.end(open);
        }
        (RawBsonRef::Array(array), true) => {
            let open = out.begin_array(name);
            array_into(out, array, diff, depth + 1)?;
            out.end(open);
        }
        (other, _) => out.value(name, other),
    }
    Ok(())
}

fn array_into(out: &mut Writer, array: &RawArray, diff: &RawDocument, depth: usize) -> Result<()> {
    if depth > check::MAX_STORED_DEPTH {
        return Err(check::too_deep());
    }
    let mut changes: KeyMap<usize, Change<'_>> = KeyMap::default();
    let (mut length, mut past_last) = (None, 0);
    for part in raw::elements(diff) {
        let part = part?;
        let value = part.value()?;
        match (part.name(), value) {
            ("l", RawBsonRef::Int32(given)) => length = usize::try_from(given).ok(),
            ("a", _) => {}
            (name, value) => {
                let Some(at) = position(name) else { continue };
                past_last = past_last.max(at + 1);
                let change = match value {
                    RawBsonRef::Document(inner) if name.starts_with('s') => Change::Inner(inner),
                    _ => Change::Value(part.clone()),
                };
                changes.insert(at, change);
            }
        }
    }
    let mut elements = raw::array_elements(array);
    let mut at = 0;
    loop {
        if length.is_some_and(|length| at >= length) {
            return Ok(());
        }
        let element = elements.next().transpose()?;
        if element.is_none() && at >= past_last.max(length.unwrap_or(0)) {
            return Ok(());
        }
        // A diff may name a position far behind the end.
        check::length(out.len())?;
        let name = at.to_string();
        match (changes.get(&at), element) {
            (Some(Change::Value(value)), _) => out.element_as(&name, value),
            (Some(Change::Inner(inner)), Some(element)) => {
                inner_into(out, &name, element.value()?, inner, depth)?;
            }
            (_, Some(element)) => out.element_as(&name, &element),
            (_, None) => out.value(&name, RawBsonRef::Null),
        }
        at += 1;
    }
}

/// The position in `u0` and `s0`.
fn position(name: &str) -> Option<usize> {
    array_index(name.get(1..)?).map(|at| at as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Document, doc};

    fn run(document: &Document, diff: &Document) -> Result<Document> {
        let raw = |document: &Document| RawDocumentBuf::try_from(document).unwrap();
        let diff = raw(diff);
        check(&diff)?;
        let once = apply(&raw(document), &diff)?;
        assert_eq!(apply(&once, &diff)?, once, "twice is once");
        Ok(Document::try_from(&once).unwrap())
    }

    #[test]
    fn a_diff_changes_a_document_by_place() {
        for (document, diff, expected) in [
            (doc! {"a": 1, "b": 2}, doc! {"d": {"a": false}}, doc! {"b": 2}),
            (doc! {"a": 1, "b": 2}, doc! {"u": {"a": "x"}}, doc! {"a": "x", "b": 2}),
            (doc! {"a": 1}, doc! {"u": {"z": 1}}, doc! {"a": 1, "z": 1}),
            (doc! {"a": 1, "b": 2}, doc! {"i": {"a": 5}}, doc! {"b": 2, "a": 5}),
            (
                doc! {"a": 1, "b": 2, "c": 3},
                doc! {"d": {"b": false}, "u": {"a": 7}, "i": {"n": 1, "m": 2}},
                doc! {"a": 7, "c": 3, "n": 1, "m": 2},
            ),
            (
                doc! {"x": {"y": {"z": 1, "w": 2}}},
                doc! {"sx": {"sy": {"u": {"z": 3}}}},
                doc! {"x": {"y": {"z": 3, "w": 2}}},
            ),
            (
                doc! {"r": [1, {"k": 1}, 3]},
                doc! {"sr": {"a": true, "u0": 9, "s1": {"u": {"k": 2}}}},
                doc! {"r": [9, {"k": 2}, 3]},
            ),
            (doc! {"r": [1, 2, 3]}, doc! {"sr": {"a": true, "l": 1}}, doc! {"r": [1]}),
            (
                doc! {"r": [1]},
                doc! {"sr": {"a": true, "l": 2, "u3": 5}},
                doc! {"r": [1, bson::Bson::Null]},
            ),
            (
                doc! {"r": [1]},
                doc! {"sr": {"a": true, "u3": 5}},
                doc! {"r": [1, bson::Bson::Null, bson::Bson::Null, 5]},
            ),
            // What the diff does not fit stays.
            (
                doc! {"x": 5, "r": {}},
                doc! {"sx": {"u": {"a": 1}}, "sr": {"a": true, "u0": 1}},
                doc! {"x": 5, "r": {}},
            ),
            (doc! {"a": 1}, doc! {"sgone": {"u": {"a": 1}}}, doc! {"a": 1}),
        ] {
            assert_eq!(run(&document, &diff).unwrap(), expected, "{document} {diff}");
        }
    }

    #[test]
    fn malformed_diffs_are_refused() {
        for diff in [
            doc! {"a": true, "l": 1},
            doc! {"x": 1},
            doc! {"d": 1},
            doc! {"sr": 1},
            doc! {"sr": {"a": true, "u": 1}},
            doc! {"sr": {"a": true, "ux": 1}},
            doc! {"sr": {"a": true, "l": -1}},
            doc! {"u0": 1},
            doc! {"": 1},
        ] {
            assert!(run(&doc! {}, &diff).is_err(), "{diff}");
        }
        let deep = (0..400).fold(doc! {"u": {"a": 1}}, |inner, _| doc! {"sa": inner});
        assert!(run(&doc! {}, &deep).is_err());
        // Neither time nor memory for a position that no document reaches.
        let far = run(&doc! {"r": []}, &doc! {"sr": {"a": true, "u4000000000": 1}});
        assert_eq!(far.unwrap_err().code().0, 17419);
    }
}
