//! `updateDescription` of a change event, from the diff of its oplog entry.
//!
//! A path is said with dots; one that could mean two things (a name with a dot in it, a name that is
//! a number) is also told as the list of its parts, where that is asked for.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::path::array_index;
use bsonval::raw::{self, Element, Writer};
use errors::Result;

/// Deeper diffs nobody made.
const MAX_DEPTH: usize = 200;

/// A part of a path.
#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Position(i32),
}

#[derive(Default)]
struct Changes<'a> {
    updated: Vec<(String, Element<'a>)>,
    removed: Vec<String>,
    truncated: Vec<(String, i32)>,
    ambiguous: Vec<(String, Vec<Step<'a>>)>,
}

/// The description of what a diff changes; with `expanded` also the paths that could mean two things.
pub fn describe(diff: &RawDocument, expanded: bool) -> Result<RawDocumentBuf> {
    let mut changes = Changes::default();
    changes.document(diff, &mut Vec::new())?;
    let mut out = Writer::with_capacity(diff.as_bytes().len() + 128);
    let open = out.begin();
    let part = out.begin_document("updatedFields");
    for (path, value) in &changes.updated {
        out.element_as(path, value);
    }
    out.end(part);
    let part = out.begin_array("removedFields");
    for (at, path) in changes.removed.iter().enumerate() {
        out.value(&at.to_string(), RawBsonRef::String(path));
    }
    out.end(part);
    let part = out.begin_array("truncatedArrays");
    for (at, (path, length)) in changes.truncated.iter().enumerate() {
        let one = out.begin_document(&at.to_string());
        out.value("field", RawBsonRef::String(path));
        out.value("newSize", RawBsonRef::Int32(*length));
        out.end(one);
    }
    out.end(part);
    if expanded {
        let part = out.begin_document("disambiguatedPaths");
        for (path, steps) in &changes.ambiguous {
            let list = out.begin_array(path);
            for (at, step) in steps.iter().enumerate() {
                let value = match step {
                    Step::Field(name) => RawBsonRef::String(name),
                    Step::Position(at) => RawBsonRef::Int32(*at),
                };
                out.value(&at.to_string(), value);
            }
            out.end(list);
        }
        out.end(part);
    }
    out.end(open);
    out.finish()
}

impl<'a> Changes<'a> {
    /// The path in words; one that is ambiguous is kept with its parts.
    fn path(&mut self, steps: &[Step<'a>]) -> String {
        let words = steps.iter().map(|step| match step {
            Step::Field(name) => (*name).to_owned(),
            Step::Position(at) => at.to_string(),
        });
        let path = words.collect::<Vec<_>>().join(".");
        let is_ambiguous = |(at, step): (usize, &Step<'_>)| match step {
            Step::Field(name) => name.contains('.') || (at > 0 && array_index(name).is_some()),
            Step::Position(_) => false,
        };
        if steps.iter().enumerate().any(is_ambiguous) {
            self.ambiguous.push((path.clone(), steps.to_vec()));
        }
        path
    }

    fn document(&mut self, diff: &'a RawDocument, steps: &mut Vec<Step<'a>>) -> Result<()> {
        limits::poll()?;
        for part in raw::elements(diff) {
            let part = part?;
            let RawBsonRef::Document(inner) = part.value()? else { continue };
            match part.name() {
                "d" => {
                    for field in raw::elements(inner) {
                        steps.push(Step::Field(field?.name()));
                        let path = self.path(steps);
                        self.removed.push(path);
                        steps.pop();
                    }
                }
                "u" | "i" => {
                    for field in raw::elements(inner) {
                        let field = field?;
                        steps.push(Step::Field(field.name()));
                        let path = self.path(steps);
                        self.updated.push((path, field));
                        steps.pop();
                    }
                }
                name => {
                    steps.push(Step::Field(name.get(1..).unwrap_or_default()));
                    self.inner(inner, steps)?;
                    steps.pop();
                }
            }
        }
        Ok(())
    }

    fn inner(&mut self, diff: &'a RawDocument, steps: &mut Vec<Step<'a>>) -> Result<()> {
        if steps.len() > MAX_DEPTH {
            return Err(crate::damaged("a diff nests too deep"));
        }
        match diff.get("a") {
            Ok(Some(RawBsonRef::Boolean(true))) => self.array(diff, steps),
            _ => self.document(diff, steps),
        }
    }

    fn array(&mut self, diff: &'a RawDocument, steps: &mut Vec<Step<'a>>) -> Result<()> {
        limits::poll()?;
        for part in raw::elements(diff) {
            let part = part?;
            match (part.name(), part.value()?) {
                ("l", RawBsonRef::Int32(length)) => {
                    let path = self.path(steps);
                    self.truncated.push((path, length));
                }
                ("a", _) => {}
                (name, value) => {
                    let position = name.get(1..).and_then(array_index);
                    let Some(position) = position else { continue };
                    steps.push(Step::Position(i32::try_from(position).unwrap_or(i32::MAX)));
                    match value {
                        RawBsonRef::Document(inner) if name.starts_with('s') => {
                            self.inner(inner, steps)?;
                        }
                        _ => {
                            let path = self.path(steps);
                            self.updated.push((path, part));
                        }
                    }
                    steps.pop();
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Document, doc};

    #[test]
    fn a_diff_is_described_by_paths() {
        let empty = || doc! {"updatedFields": {}, "removedFields": [], "truncatedArrays": []};
        for (diff, changed, ambiguous) in [
            (doc! {"u": {"a": 1}}, doc! {"updatedFields": {"a": 1}}, doc! {}),
            (doc! {"d": {"a": false}}, doc! {"removedFields": ["a"]}, doc! {}),
            (doc! {"i": {"b": 2}}, doc! {"updatedFields": {"b": 2}}, doc! {}),
            (
                doc! {"sx": {"u": {"y": 1}, "d": {"z": false}}},
                doc! {"updatedFields": {"x.y": 1}, "removedFields": ["x.z"]},
                doc! {},
            ),
            (
                doc! {"sr": {"a": true, "l": 3, "u0": 7, "s1": {"u": {"k": 2}}}},
                doc! {
                    "updatedFields": {"r.0": 7, "r.1.k": 2},
                    "truncatedArrays": [{"field": "r", "newSize": 3}],
                },
                doc! {},
            ),
            (
                doc! {"u": {"a.b": 1}, "sx": {"u": {"0": 2}}},
                doc! {"updatedFields": {"a.b": 1, "x.0": 2}},
                doc! {"a.b": ["a.b"], "x.0": ["x", "0"]},
            ),
        ] {
            let raw = RawDocumentBuf::try_from(&diff).unwrap();
            let mut expected = empty();
            expected.extend(changed);
            let plain = Document::try_from(&describe(&raw, false).unwrap()).unwrap();
            assert_eq!(plain, expected, "{diff}");
            expected.insert("disambiguatedPaths", ambiguous);
            let expanded = Document::try_from(&describe(&raw, true).unwrap()).unwrap();
            assert_eq!(expanded, expected, "{diff}");
        }
    }
}
