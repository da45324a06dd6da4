//! Sort patterns, and the key bytes by which documents are sorted.
//!
//! Always true: memcmp of two keys is MongoDB's order of the documents under the pattern, whatever
//! the direction of each part, so keys can be spilled and merged as bytes.
//!
//! A score is a part like another, descending: documents carry it in a field of its own, see
//! [`text_score`].

mod elements;

use crate::multikey;
use crate::path::{self, Path};
use crate::raw;
use crate::text_score;
use crate::types;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use errors::{Code, Error, Result};
use keystring::{Collation, Direction, KeyBuilder};

pub use elements::ElementSort;

/// MongoDB's limit on the parts of a sort.
const MAX_PARTS: usize = 32;

/// A parsed `{a: 1, "b.c": -1}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortPattern {
    paths: Vec<Path>,
    directions: Vec<Direction>,
    /// The parts that are scores.
    scores: Vec<Score>,
}

/// A part that is a score.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Score {
    /// Where documents carry it.
    field: &'static str,
    /// What the client calls the part.
    name: String,
    /// What `$meta` calls the score.
    meta: &'static str,
}

impl SortPattern {
    /// Parses a sort specification. An empty one gives a pattern without parts.
    pub fn parse(specification: &RawDocument) -> Result<Self> {
        Self::parse_scored(specification, None)
    }

    /// As [`Self::parse`] where documents carry what `{$meta: "score"}` means in this field.
    pub fn parse_scored(specification: &RawDocument, score: Option<&'static str>) -> Result<Self> {
        let (mut paths, mut directions, mut scores) = (Vec::new(), Vec::new(), Vec::new());
        for element in raw::elements(specification) {
            let element = element?;
            let mut path = check_path(element.name())?;
            let value = element.value()?;
            if let Some((field, meta)) = score_field(value, score) {
                scores.push(Score { field, name: element.name().to_owned(), meta });
                path = Path::new(field);
                directions.push(Direction::Descending);
            } else {
                directions.push(direction(element.name(), value)?);
            }
            if paths.contains(&path) {
                return Err(Error::location(
                    7472500,
                    format!("$sort key must not contain duplicate keys (duplicate: '{path}')"),
                ));
            }
            paths.push(path);
            if paths.len() > MAX_PARTS {
                return Err(Error::location(13103, "too many compound keys"));
            }
        }
        Ok(Self { paths, directions, scores })
    }

    /// Builds a pattern from paths and directions.
    pub fn new(parts: impl IntoIterator<Item = (Path, Direction)>) -> Self {
        let (paths, directions) = parts.into_iter().unzip();
        Self { paths, directions, scores: Vec::new() }
    }

    /// The paths in order.
    pub fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// The directions in order.
    pub fn directions(&self) -> &[Direction] {
        &self.directions
    }

    /// The parts in order.
    pub fn parts(&self) -> impl Iterator<Item = (&Path, Direction)> {
        self.paths.iter().zip(self.directions.iter().copied())
    }

    /// Whether there is nothing to sort by.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Whether the text score is a part of it.
    pub fn uses_text_score(&self) -> bool {
        self.scores.iter().any(|score| score.field == text_score::FIELD)
    }

    /// Whether any score is a part of it.
    pub fn uses_score(&self) -> bool {
        !self.scores.is_empty()
    }

    /// The specification again.
    pub fn to_document(&self) -> RawDocumentBuf {
        let mut writer = raw::Writer::default();
        let open = writer.begin();
        for (path, direction) in self.parts() {
            if let Some(score) = self.scores.iter().find(|score| score.field == path.as_str()) {
                let meta = writer.begin_document(&score.name);
                writer.value("$meta", RawBsonRef::String(score.meta));
                writer.end(meta);
                continue;
            }
            let number = if direction == Direction::Ascending { 1 } else { -1 };
            writer.value(path.as_str(), RawBsonRef::Int32(number));
        }
        writer.end(open);
        writer.finish().expect("names of a parsed specification hold no NUL")
    }

    /// The document's sort key. An array counts with the element that comes first under the
    /// pattern; a missing field counts as null. Strings have the order they are asked to be under.
    pub fn key(&self, document: &RawDocument, under: Option<&Collation>) -> Result<Vec<u8>> {
        let mut least: Option<Vec<u8>> = None;
        let mut spare = Vec::new();
        multikey::expand(document, &self.paths, &mut |tuple| {
            limits::poll_work(1 + spare.len() / limits::BYTES_PER_UNIT)?;
            let key = self.tuple_key(tuple, under, std::mem::take(&mut spare))?;
            match &mut least {
                Some(least) if key < *least => spare = std::mem::replace(least, key),
                Some(_) => spare = key,
                None => least = Some(key),
            }
            Ok(())
        })
        .map_err(parallel_sort)?;
        Ok(least.unwrap_or_default())
    }

    fn tuple_key(
        &self,
        tuple: &[Option<RawBsonRef<'_>>],
        under: Option<&Collation>,
        buffer: Vec<u8>,
    ) -> Result<Vec<u8>> {
        let mut key = KeyBuilder::reusing(buffer);
        for (value, direction) in tuple.iter().zip(&self.directions) {
            let value = value.unwrap_or(RawBsonRef::Null);
            key.append_under(value, *direction, under).map_err(unsortable)?;
        }
        Ok(key.into_bytes())
    }
}

fn unsortable(error: keystring::Error) -> Error {
    match error {
        keystring::Error::TooDeep => Error::new(Code::OVERFLOW, error.to_string()),
        error => Error::new(Code::INVALID_BSON, error.to_string()),
    }
}

fn parallel_sort(error: Error) -> Error {
    if error.code() == Code::CANNOT_INDEX_PARALLEL_ARRAYS {
        return Error::bad_value("cannot sort with keys that are parallel arrays");
    }
    error
}

fn check_path(name: &str) -> Result<Path> {
    path::check_field_path(name)?;
    Ok(Path::new(name))
}

/// `{$meta: "textScore"}` and, where documents carry one, `{$meta: "score"}`: the field, and what
/// `$meta` calls it.
fn score_field(
    value: RawBsonRef<'_>,
    score: Option<&'static str>,
) -> Option<(&'static str, &'static str)> {
    let RawBsonRef::Document(meta) = value else { return None };
    if meta.iter().count() != 1 {
        return None;
    }
    match meta.get("$meta") {
        Ok(Some(RawBsonRef::String(text_score::META))) => {
            Some((text_score::FIELD, text_score::META))
        }
        Ok(Some(RawBsonRef::String(text_score::SCORE_META))) => {
            score.map(|field| (field, text_score::SCORE_META))
        }
        _ => None,
    }
}

fn direction(name: &str, value: RawBsonRef<'_>) -> Result<Direction> {
    if let RawBsonRef::Document(meta) = value {
        return Err(meta_error(meta));
    }
    if !types::is_number(value) {
        return Err(Error::location(
            15974,
            format!("Illegal key in $sort specification: {}", crate::show::field(name, value)),
        ));
    }
    match types::truncated_integer(value) {
        Some(1) => Ok(Direction::Ascending),
        Some(-1) => Ok(Direction::Descending),
        _ => Err(Error::location(
            15975,
            "$sort key ordering must be 1 (for ascending) or -1 (for descending)",
        )),
    }
}

/// `{$meta: ...}`: known names need what is not there yet, others are wrong.
fn meta_error(meta: &RawDocument) -> Error {
    match meta.get("$meta") {
        Ok(Some(RawBsonRef::String("randVal"))) => {
            Error::bad_value("sorting by {$meta: \"randVal\"} is not supported")
        }
        Ok(Some(_)) => Error::location(31138, "Illegal $meta sort"),
        _ => Error::location(17312, "$meta is the only expression supported by $sort right now"),
    }
}

#[cfg(test)]
mod tests;
