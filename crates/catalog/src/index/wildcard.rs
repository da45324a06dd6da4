//! Wildcard parts, `"$**"` and `"a.$**"`: every value below a document or a field, under its path.
//!
//! Such a part stands in an entry as two values: the path as binary data, which no collation
//! touches, and the value. Arrays are taken element by element and leave no trace in the path; a
//! document counts as its fields, an empty one and an array within an array as themselves.
//!
//! Always true: what a document takes here is bounded ([`check_bytes`]): many values below long names
//! would multiply to more than any memory. And no value that is not empty is a document, so an index of this kind tells nothing
//! about comparisons with documents or arrays, nor about missing fields.

use super::keys::check_bytes;
use bson::raw::{RawBinaryRef, RawBsonRef, RawDocument};
use bson::spec::BinarySubtype;
use bsonval::Path;
use errors::{Code, Error, Result};

/// The wildcard part of an index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wildcard {
    /// Its place among the parts.
    at: usize,
    /// What it holds: these and what is below them; where empty, everything.
    included: Vec<String>,
    /// What it does not hold, with what is below.
    excluded: Vec<String>,
}

/// One value that a wildcard part holds of a document.
pub(super) struct WildcardValue<'a> {
    path: String,
    pub(super) value: RawBsonRef<'a>,
}

impl WildcardValue<'_> {
    /// The path as it stands in an entry.
    pub(super) fn path(&self) -> RawBsonRef<'_> {
        stored_path(&self.path)
    }
}

/// How an entry holds a path.
fn stored_path(path: &str) -> RawBsonRef<'_> {
    RawBsonRef::Binary(RawBinaryRef { subtype: BinarySubtype::Generic, bytes: path.as_bytes() })
}

/// The values of a document.
#[derive(Default)]
pub(super) struct WildcardValues<'a> {
    pub(super) list: Vec<WildcardValue<'a>>,
    /// There was an array on the way to some.
    pub(super) met_array: bool,
    /// Of all paths together.
    path_bytes: usize,
}

/// Whether a part's path makes it a wildcard.
pub(super) fn is_wildcard(path: &str) -> bool {
    path == "$**" || path.ends_with(".$**")
}

impl Wildcard {
    /// The part at `at`, whose path [`is_wildcard`], with the index's `wildcardProjection`.
    pub(super) fn parse(at: usize, path: &str, projection: Option<RawBsonRef<'_>>) -> Result<Self> {
        if let Some(root) = path.strip_suffix(".$**") {
            if projection.is_some() {
                return Err(Error::failed_to_parse(
                    "The field 'wildcardProjection' is only allowed when 'key' is {\"$**\": ±1}",
                ));
            }
            return Ok(Self { at, included: vec![root.to_owned()], excluded: Vec::new() });
        }
        let Some(projection) = projection else {
            return Ok(Self { at, included: Vec::new(), excluded: vec!["_id".to_owned()] });
        };
        let Some(document) = projection.as_document().filter(|document| !document.is_empty())
        else {
            return Err(Error::type_mismatch(
                "The field 'wildcardProjection' must be a non-empty object",
            ));
        };
        let mut fields = Vec::new();
        read_projection(document, &mut String::new(), &mut fields)?;
        Self::of_fields(at, fields)
    }

    /// `_id` is out unless it is asked for, and alone may differ from the other fields.
    fn of_fields(at: usize, mut fields: Vec<(String, bool)>) -> Result<Self> {
        let id = fields.iter().position(|(path, _)| path == "_id");
        let id = id.map(|place| fields.remove(place).1);
        let including = match fields.first() {
            Some((_, first)) => *first,
            None => id == Some(true),
        };
        if let Some((path, _)) = fields.iter().find(|(_, included)| *included != including) {
            let (code, kind, other) = if including {
                (31254, "exclusion", "inclusion")
            } else {
                (31253, "inclusion", "exclusion")
            };
            return Err(Error::location(
                code,
                format!("Cannot do {kind} on field {path} in {other} projection"),
            ));
        }
        let mut paths: Vec<String> = fields.into_iter().map(|(path, _)| path).collect();
        // Named or not, it is one of those left out unless it was asked for.
        if (id == Some(true)) == including {
            paths.push("_id".to_owned());
        }
        Ok(if including {
            Self { at, included: paths, excluded: Vec::new() }
        } else {
            Self { at, included: Vec::new(), excluded: paths }
        })
    }

    /// Its place among the parts of the key pattern, and of the path among the values of an entry.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Whether the index holds what stands at this path.
    pub fn holds(&self, path: &str) -> bool {
        (self.included.is_empty() || self.included.iter().any(|root| is_below(path, root)))
            && !self.excluded.iter().any(|root| is_below(path, root))
    }

    /// What bounds the path's place in an entry.
    pub fn path_value(path: &str) -> bson::RawBson {
        stored_path(path).into()
    }

    /// Whether it holds this path, or something below it.
    pub(super) fn reaches(&self, path: &str) -> bool {
        self.holds(path) || self.included.iter().any(|root| is_below(root, path))
    }

    /// The paths that decide what a document's values are; `None` is every path.
    pub(super) fn roots(&self) -> Option<&[String]> {
        (!self.included.is_empty()).then_some(&self.included)
    }

    /// Everything the index holds of a document.
    pub(super) fn values<'a>(&self, document: &'a RawDocument) -> Result<WildcardValues<'a>> {
        let mut values = WildcardValues::default();
        self.walk(document, &mut String::new(), &mut values)?;
        Ok(values)
    }

    /// As deep as the document is, which the server bounds when it takes documents in.
    fn walk<'a>(
        &self,
        document: &'a RawDocument,
        path: &mut String,
        values: &mut WildcardValues<'a>,
    ) -> Result<()> {
        for element in document {
            let (name, value) = element?;
            let above = path.len();
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(name.as_str());
            if self.reaches(path) {
                match value {
                    RawBsonRef::Array(array) => {
                        let mut empty = true;
                        for element in array {
                            empty = false;
                            self.take(element?, path, values)?;
                        }
                        if empty {
                            self.push(RawBsonRef::Undefined, path, values)?;
                        }
                        values.met_array = true;
                    }
                    value => self.take(value, path, values)?,
                }
            }
            path.truncate(above);
        }
        Ok(())
    }

    fn take<'a>(
        &self,
        value: RawBsonRef<'a>,
        path: &mut String,
        values: &mut WildcardValues<'a>,
    ) -> Result<()> {
        match value {
            RawBsonRef::Document(inner) if !inner.is_empty() => self.walk(inner, path, values),
            value => self.push(value, path, values),
        }
    }

    fn push<'a>(
        &self,
        value: RawBsonRef<'a>,
        path: &str,
        values: &mut WildcardValues<'a>,
    ) -> Result<()> {
        if self.holds(path) {
            values.path_bytes += path.len();
            check_bytes(values.path_bytes)?;
            values.list.push(WildcardValue { path: path.to_owned(), value });
        }
        Ok(())
    }

    /// Refuses fields that the index would hold twice.
    pub(super) fn check_beside<'p>(&self, others: impl Iterator<Item = &'p str>) -> Result<()> {
        for path in others {
            if self.reaches(path) {
                return Err(Error::new(
                    Code::CANNOT_CREATE_INDEX,
                    format!(
                        "The wildcard projection or path of a compound wildcard index must not \
                         hold the field '{path}', which the index holds by itself"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Whether a change there may change what the index holds.
    pub(super) fn depends_on(
        &self,
        touched: &[Path],
        overlap: impl Fn(&[String], &Path) -> bool,
    ) -> bool {
        let Some(roots) = self.roots() else { return true };
        roots.iter().any(|root| {
            let names: Vec<String> = root.split('.').map(str::to_owned).collect();
            touched.iter().any(|path| overlap(&names, path))
        })
    }
}

/// Whether `path` is `root` or below it.
fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The paths of a projection, with whether they are in; `{a: {b: 1}}` is `{"a.b": 1}`.
fn read_projection(
    document: &RawDocument,
    path: &mut String,
    fields: &mut Vec<(String, bool)>,
) -> Result<()> {
    for element in document {
        let (name, value) = element?;
        let name = name.as_str();
        if name.is_empty() || name.starts_with('$') || name.split('.').any(str::is_empty) {
            return Err(Error::failed_to_parse(format!(
                "the field '{name}' of a wildcardProjection is not a path"
            )));
        }
        let above = path.len();
        if above > 0 {
            path.push('.');
        }
        path.push_str(name);
        match value {
            RawBsonRef::Document(inner) if !inner.is_empty() => {
                read_projection(inner, path, fields)?;
            }
            RawBsonRef::Boolean(_)
            | RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_)
            | RawBsonRef::Double(_) => fields.push((path.clone(), crate::values::truth(value))),
            _ => {
                return Err(Error::new(
                    Code::location(51271),
                    format!("a wildcardProjection takes no expressions: see the field '{path}'"),
                ));
            }
        }
        path.truncate(above);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Bson, RawDocumentBuf, bson, doc};

    fn raw(document: &bson::Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(document).unwrap()
    }

    fn wildcard(path: &str, projection: Option<&bson::Document>) -> Result<Wildcard> {
        let projection = projection.map(raw);
        let projection = projection.as_ref().map(|p| RawBsonRef::Document(p));
        Wildcard::parse(0, path, projection)
    }

    #[track_caller]
    fn check(wildcard: &Wildcard, document: &bson::Document, expected: &Bson) {
        let document = raw(document);
        let values = wildcard.values(&document).unwrap();
        let list = values.list.iter().map(|found| {
            let value = Bson::try_from(bson::RawBson::from(found.value)).unwrap();
            bson!([found.path.clone(), value])
        });
        assert_eq!(Bson::Array(list.collect()), *expected, "{document:?}");
    }

    #[test]
    fn every_value_stands_under_its_path() {
        let all = wildcard("$**", None).unwrap();
        check(
            &all,
            &doc! { "_id": 1, "a": 5, "b": { "c": "x" } },
            &bson!([["a", 5], ["b.c", "x"]]),
        );
        check(&all, &doc! { "a": [1, { "b": 2 }] }, &bson!([["a", 1], ["a.b", 2]]));
        check(&all, &doc! { "a": [], "b": {} }, &bson!([["a", (Bson::Undefined)], ["b", {}]]));
        check(&all, &doc! { "a": [[1, { "b": 1 }]] }, &bson!([["a", [1, { "b": 1 }]]]));
        check(&all, &doc! { "a": null }, &bson!([["a", null]]));
        let below = wildcard("a.b.$**", None).unwrap();
        check(&below, &doc! { "a": { "b": { "c": 1 }, "bc": 2 } }, &bson!([["a.b.c", 1]]));
        check(
            &below,
            &doc! { "a": [{ "b": 1 }, { "b": [2, 3] }, 4] },
            &bson!([["a.b", 1], ["a.b", 2], ["a.b", 3]]),
        );
        assert!(
            below.holds("a.b") && below.holds("a.b.x") && !below.holds("a.bc") && !below.holds("a")
        );
    }

    #[test]
    fn a_projection_takes_fields_in_or_leaves_them_out() {
        let document = doc! { "_id": 1, "a": { "x": 1, "y": 2 }, "b": 3 };
        for (projection, expected) in [
            (doc! { "a": 1 }, bson!([["a.x", 1], ["a.y", 2]])),
            (doc! { "a.x": 1, "_id": 1 }, bson!([["_id", 1], ["a.x", 1]])),
            (doc! { "a": { "x": true } }, bson!([["a.x", 1]])),
            (doc! { "a": 0 }, bson!([["b", 3]])),
            (doc! { "a.x": 0, "_id": 1 }, bson!([["_id", 1], ["a.y", 2], ["b", 3]])),
            (doc! { "_id": 1 }, bson!([["_id", 1]])),
            (doc! { "_id": 0 }, bson!([["a.x", 1], ["a.y", 2], ["b", 3]])),
            (doc! { "_id": 0, "b": 1 }, bson!([["b", 3]])),
        ] {
            check(&wildcard("$**", Some(&projection)).unwrap(), &document, &expected);
        }
    }

    #[test]
    fn long_names_above_many_values_are_refused_before_they_fill_the_memory() {
        let leaves: bson::Document = (0..200).map(|i| (i.to_string(), Bson::Int32(i))).collect();
        let document = raw(&doc! { "x".repeat(1 << 20): leaves });
        let error = wildcard("$**", None).unwrap().values(&document).err().unwrap();
        assert_eq!(error.code(), Code::CANNOT_BUILD_INDEX_KEYS);
    }

    #[test]
    fn bad_projections_are_refused() {
        for (path, projection, code) in [
            ("a.$**", doc! { "a": 1 }, 9),
            ("$**", doc! {}, 14),
            ("$**", doc! { "a": 1, "b": 0 }, 31254),
            ("$**", doc! { "a": 0, "b": 1 }, 31253),
            ("$**", doc! { "a": { "$add": [1] } }, 9),
            ("$**", doc! { "a": "x" }, 51271),
            ("$**", doc! { "a..b": 1 }, 9),
        ] {
            let error = wildcard(path, Some(&projection)).unwrap_err();
            assert_eq!(error.code().0, code, "{projection}");
        }
    }
}
