//! Text indexes: their specification and the keys of a document.
//!
//! A key is the values before the texts, a term, the document's score for it, the values after; one
//! per distinct term. The client names texts in the key pattern and weights; what is shown is
//! MongoDB's form, `{…, _fts: "text", _ftsx: 1, …}` with all weights, which is taken back too.
//!
//! Always true: the values beside the term are no arrays, so one entry tells one document.

use super::spec::{IndexSpec, KeyPart, PartKind, check_path, direction};
use crate::text::document_text;
use crate::values::whole_number;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use errors::{Code, Error, Result};
use fulltext::{Fields, Language, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The name of the part that holds the term.
const TERM: &str = "_fts";
/// The name of the part that holds the score.
const SCORE: &str = "_ftsx";
/// Every text of a document.
const EVERYTHING: &str = "$**";
/// Weights stay below this.
const MAX_WEIGHT: i64 = 100_000;
/// The language of documents that say nothing, unless the index says another.
const DEFAULT_LANGUAGE: &str = "english";
/// The field that names a document's language, unless the index says another.
const LANGUAGE_OVERRIDE: &str = "language";

/// The options that only text indexes have.
pub(super) const OPTIONS: [&str; 4] =
    ["weights", "default_language", "language_override", "textIndexVersion"];

/// What a text index has beside what every index has.
#[derive(Clone, PartialEq, Debug)]
pub struct TextIndex {
    fields: Arc<Fields>,
    /// The parts before the term.
    prefix: usize,
}

impl TextIndex {
    /// The texts it is over.
    pub fn fields(&self) -> &Arc<Fields> {
        &self.fields
    }

    /// How many parts stand before the term; the score stands after it.
    pub fn prefix(&self) -> usize {
        self.prefix
    }
}

/// A text index's specification, read.
pub(super) struct TextSpec {
    pub(super) index: TextIndex,
    pub(super) parts: Vec<KeyPart>,
    /// The key pattern in MongoDB's form.
    pub(super) key: RawDocumentBuf,
    /// The options in MongoDB's form.
    pub(super) options: RawDocumentBuf,
}

/// Reads the specification of a text index; `None` where it is of another kind.
pub(super) fn parse(key: &RawDocument, spec: &RawDocument) -> Result<Option<TextSpec>> {
    if !key.iter().flatten().any(|(_, value)| is_text(value)) {
        return Ok(None);
    }
    let pattern = Pattern::read(key)?;
    let weights = weights(&pattern, spec)?;
    let version = version(spec)?;
    let (language, language_name) = default_language(spec, version)?;
    let override_field = language_override(spec)?;

    let mut options = RawDocumentBuf::new();
    let mut shown = RawDocumentBuf::new();
    for (path, weight) in &weights {
        shown.append(<&bson::raw::CStr>::try_from(path.as_str())?, *weight);
    }
    options.append(cstr!("weights"), shown);
    options.append(cstr!("default_language"), language_name);
    options.append(cstr!("language_override"), override_field);
    options.append(cstr!("textIndexVersion"), version.number());

    let weights = weights.into_iter().map(|(path, weight)| (path, f64::from(weight))).collect();
    let fields = Fields::new(weights, language, override_field.to_owned(), version);
    let index = TextIndex { fields: Arc::new(fields), prefix: pattern.prefix };
    Ok(Some(TextSpec { index, parts: pattern.parts, key: pattern.key, options }))
}

/// Refuses what a text index cannot have.
pub(super) fn check(index: &IndexSpec) -> Result<()> {
    if let Some(collation) = &index.collation {
        return Err(cannot(format!(
            "Index type 'text' does not support collation: {}",
            document_text(&bsonval::collation::to_document(collation))
        )));
    }
    if index.unique || index.prepare_unique {
        return Err(cannot("Index type 'text' does not support the unique option"));
    }
    if index.clustering {
        return Err(cannot("Index type 'text' does not support the clustering option"));
    }
    Ok(())
}

fn is_text(value: RawBsonRef<'_>) -> bool {
    value == RawBsonRef::String("text")
}

/// A key pattern with its texts gathered in two parts.
struct Pattern {
    parts: Vec<KeyPart>,
    key: RawDocumentBuf,
    texts: Vec<String>,
    prefix: usize,
}

impl Pattern {
    fn read(key: &RawDocument) -> Result<Self> {
        let mut pattern =
            Self { parts: Vec::new(), key: RawDocumentBuf::new(), texts: Vec::new(), prefix: 0 };
        let mut in_texts = false;
        let mut elements = key.iter();
        while let Some(element) = elements.next() {
            let (name, value) = element?;
            let path = name.as_str();
            if is_text(value) && path == TERM {
                let next = elements.next().transpose()?;
                match next {
                    Some((name, value)) if name.as_str() == SCORE => {
                        if whole_number(value) != Some(1) {
                            return Err(cannot("expecting _ftsx:1"));
                        }
                    }
                    _ => return Err(cannot("expecting _ftsx after _fts")),
                }
                pattern.begin_texts(false)?;
                continue;
            }
            if matches!(path, TERM | SCORE) {
                return Err(cannot(format!(
                    "text index key pattern cannot contain the reserved field name '{path}'"
                )));
            }
            if is_text(value) {
                pattern.begin_texts(in_texts)?;
                in_texts = true;
                pattern.texts.push(path.to_owned());
                continue;
            }
            in_texts = false;
            pattern.plain(path, value)?;
            pattern.key.append(name, value);
        }
        Ok(pattern)
    }

    /// A text is met; `goes_on` where the part before it was one too.
    fn begin_texts(&mut self, goes_on: bool) -> Result<()> {
        if goes_on {
            return Ok(());
        }
        if self.parts.iter().any(|part| part.kind == PartKind::Text) {
            return Err(cannot("'text' fields in index must all be adjacent"));
        }
        self.prefix = self.parts.len();
        let part =
            |path: &str| KeyPart { path: path.to_owned(), descending: false, kind: PartKind::Text };
        self.parts.extend([part(TERM), part(SCORE)]);
        self.key.append(cstr!("_fts"), "text");
        self.key.append(cstr!("_ftsx"), 1);
        Ok(())
    }

    /// A part that is the value itself.
    fn plain(&mut self, path: &str, value: RawBsonRef<'_>) -> Result<()> {
        if let RawBsonRef::String(other) = value {
            return Err(cannot(format!(
                "Can't use more than one index plugin for a single index: '{other}'"
            )));
        }
        let descending = direction(value)?;
        if !matches!(whole_number(value), Some(1 | -1)) {
            return Err(cannot("expected value 1 or -1 for non-text key in compound index"));
        }
        check_path(path)?;
        if self.parts.iter().any(|part| part.path == path) {
            return Err(Error::bad_value(format!(
                "The field '{path}' appears multiple times in the index key pattern"
            )));
        }
        self.parts.push(KeyPart { path: path.to_owned(), descending, kind: PartKind::Value });
        Ok(())
    }
}

/// The weight of each text: those of the option, and 1 for what only the key pattern names.
fn weights(pattern: &Pattern, spec: &RawDocument) -> Result<BTreeMap<String, i32>> {
    let mut weights: BTreeMap<String, i64> =
        pattern.texts.iter().map(|path| (path.clone(), 1)).collect();
    match spec.get("weights")? {
        None => {}
        Some(RawBsonRef::String(EVERYTHING)) => {
            weights.insert(EVERYTHING.to_owned(), 1);
        }
        Some(RawBsonRef::Document(given)) => {
            for element in given {
                let (path, value) = element?;
                let weight = match value {
                    RawBsonRef::Double(v) => v as i64,
                    value => whole_number(value)
                        .ok_or_else(|| cannot("weight for text index needs numeric type"))?,
                };
                weights.insert(path.as_str().to_owned(), weight);
            }
        }
        Some(_) => return Err(cannot("text index option 'weights' must be an object")),
    }
    if weights.is_empty() {
        return Err(cannot("text index option 'weights' must name a field"));
    }
    let mut checked = BTreeMap::new();
    for (path, weight) in weights {
        let small = i32::try_from(weight).ok().filter(|_| (1..MAX_WEIGHT).contains(&weight));
        let Some(small) = small else {
            return Err(cannot(format!(
                "text index weight must be in the exclusive interval (0,{MAX_WEIGHT}) but found: \
                 {weight}"
            )));
        };
        if path != EVERYTHING {
            if path.is_empty() {
                return Err(cannot("weight cannot be on an empty field"));
            }
            if path.split('.').any(str::is_empty) {
                return Err(cannot("weight cannot have empty path component"));
            }
            if path.split('.').any(|name| name.starts_with('$')) {
                return Err(cannot("weight cannot have path component with $ prefix"));
            }
        }
        checked.insert(path, small);
    }
    Ok(checked)
}

fn version(spec: &RawDocument) -> Result<Version> {
    let Some(given) = spec.get("textIndexVersion")? else { return Ok(Version::Three) };
    let number = match given {
        RawBsonRef::Double(v) => v as i64,
        given => whole_number(given)
            .ok_or_else(|| cannot("text index option 'textIndexVersion' must be a number"))?,
    };
    Version::of(number).ok_or_else(|| cannot(format!("bad textIndexVersion: {number}")))
}

fn default_language(spec: &RawDocument, version: Version) -> Result<(Language, &str)> {
    let name = match spec.get("default_language")? {
        None => DEFAULT_LANGUAGE,
        Some(RawBsonRef::String(name)) => name,
        Some(_) => return Err(cannot("default_language needs a string type")),
    };
    let language =
        Language::parse(name, version).map_err(|_| cannot("default_language is not valid"))?;
    Ok((language, name))
}

fn language_override(spec: &RawDocument) -> Result<&str> {
    match spec.get("language_override")? {
        None => Ok(LANGUAGE_OVERRIDE),
        Some(RawBsonRef::String(name))
            if !name.is_empty() && !name.starts_with('$') && !name.contains(['.', '\0']) =>
        {
            Ok(name)
        }
        Some(_) => Err(cannot("language_override is not valid")),
    }
}

fn cannot(message: impl Into<String>) -> Error {
    Error::new(Code::CANNOT_CREATE_INDEX, message)
}

/// What a [`KeyMaker`](super::KeyMaker) needs to make keys of texts.
#[derive(Clone, Debug)]
pub(super) struct TextKeys {
    pub(super) index: TextIndex,
    /// The paths that decide which terms there are; `None` where all of them do.
    pub(super) paths: Option<Vec<Vec<String>>>,
}

impl TextKeys {
    pub(super) fn new(index: &TextIndex) -> Self {
        let split = |path: String| path.split('.').map(str::to_owned).collect();
        let paths = index.fields.paths().map(|paths| paths.into_iter().map(split).collect());
        Self { index: index.clone(), paths }
    }
}

/// The value of a part beside the term. An array on its path is an error.
pub(super) fn plain_value<'a>(
    document: &'a RawDocument,
    path: &[String],
) -> Result<Option<RawBsonRef<'a>>> {
    let mut value = Some(RawBsonRef::Document(document));
    for name in path {
        let Some(RawBsonRef::Document(inner)) = value else { return Ok(None) };
        value = inner.get(name)?;
        if matches!(value, Some(RawBsonRef::Array(_))) {
            return Err(Error::new(
                Code::CANNOT_BUILD_INDEX_KEYS,
                format!(
                    "Field '{}' of text index contains an array in document: {}",
                    path.join("."),
                    document_text(document)
                ),
            ));
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests;
