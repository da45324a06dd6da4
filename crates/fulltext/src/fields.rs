//! Which texts of a document are indexed, in which language, with which weight.
//!
//! A field is named by its dotted path; arrays on the way, of texts or of documents, are gone
//! through. `$**` names every text. A document's own field `language` (or as `language_override`
//! calls it) says in which language its texts are, and those of documents in it.
//!
//! Always true: weights are above 0, and below 100000.

use crate::language::{Language, Version};
use crate::score;
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use errors::{Error, Result};
use std::collections::BTreeMap;

/// The name that means every text.
const EVERYTHING: &str = "$**";
/// How deep documents are gone into; deeper ones are not stored.
const MAX_DEPTH: usize = 220;

/// What a text index is over.
#[derive(Clone, PartialEq, Debug)]
pub struct Fields {
    weights: BTreeMap<String, f64>,
    /// The weight of texts that are not named, where every text is indexed.
    everything: Option<f64>,
    /// No path that is longer is named.
    longest: usize,
    default_language: Language,
    language_override: String,
    version: Version,
}

/// Takes a text, its language and its weight; says whether to go on.
type Take<'t> = dyn FnMut(&str, Language, f64) -> bool + 't;

impl Fields {
    /// Fields and their weights, `$**` among them for every text.
    pub fn new(
        weights: BTreeMap<String, f64>,
        default_language: Language,
        language_override: String,
        version: Version,
    ) -> Self {
        let everything = weights.get(EVERYTHING).copied();
        let longest = weights.keys().map(String::len).max().unwrap_or(0);
        Self { weights, everything, longest, default_language, language_override, version }
    }

    /// The language of documents that say nothing.
    pub fn default_language(&self) -> Language {
        self.default_language
    }

    /// The index's rules.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The score of each term of a document.
    pub fn scores(&self, document: &RawDocument) -> Result<BTreeMap<String, f64>> {
        let mut scores = BTreeMap::new();
        self.each(document, &mut |text, language, weight| {
            score::add(text, language, self.version, weight, &mut scores);
            true
        })?;
        Ok(scores)
    }

    /// Hands every indexed text to `take` until that has enough.
    pub fn each(&self, document: &RawDocument, take: &mut Take<'_>) -> Result<()> {
        self.document(document, "", self.default_language, 0, take).map(drop)
    }

    /// The paths that decide which terms a document has; `None` where all of them do.
    pub fn paths(&self) -> Option<Vec<String>> {
        if self.everything.is_some() {
            return None;
        }
        let mut paths: Vec<String> = self.weights.keys().cloned().collect();
        paths.push(self.language_override.clone());
        for path in self.weights.keys() {
            let inner = path.match_indices('.').map(|(at, _)| &path[..at]);
            paths.extend(inner.map(|prefix| format!("{prefix}.{}", self.language_override)));
        }
        paths.sort_unstable();
        paths.dedup();
        Some(paths)
    }

    fn document(
        &self,
        document: &RawDocument,
        prefix: &str,
        language: Language,
        depth: usize,
        take: &mut Take<'_>,
    ) -> Result<bool> {
        if depth > MAX_DEPTH {
            return Ok(true);
        }
        let language = self.language_of(document, language)?;
        for element in document {
            let (name, value) = element?;
            let name = name.as_str();
            if !matches!(
                value,
                RawBsonRef::String(_) | RawBsonRef::Document(_) | RawBsonRef::Array(_)
            ) {
                continue;
            }
            if self.everything.is_some() && name == self.language_override {
                continue;
            }
            let joined;
            let path = if prefix.is_empty() {
                name
            } else if prefix.len() > self.longest {
                // Whatever follows is as good; joined for each of many fields it would cost.
                prefix
            } else {
                joined = format!("{prefix}.{name}");
                &joined
            };
            if !self.value(value, path, language, depth, take)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn value(
        &self,
        value: RawBsonRef<'_>,
        path: &str,
        language: Language,
        depth: usize,
        take: &mut Take<'_>,
    ) -> Result<bool> {
        match value {
            RawBsonRef::String(text) => Ok(match self.weight(path) {
                Some(weight) => take(text, language, weight),
                None => true,
            }),
            RawBsonRef::Document(inner) if self.leads_on(path) => {
                self.document(inner, path, language, depth + 1, take)
            }
            RawBsonRef::Array(array) if self.leads_on(path) || self.weight(path).is_some() => {
                self.array(array, path, language, depth + 1, take)
            }
            _ => Ok(true),
        }
    }

    /// The elements as the field itself would be; arrays in arrays only where every text counts.
    fn array(
        &self,
        array: &RawArray,
        path: &str,
        language: Language,
        depth: usize,
        take: &mut Take<'_>,
    ) -> Result<bool> {
        if depth > MAX_DEPTH {
            return Ok(true);
        }
        for element in array {
            let element = element?;
            if matches!(element, RawBsonRef::Array(_)) && self.everything.is_none() {
                continue;
            }
            if !self.value(element, path, language, depth, take)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn weight(&self, path: &str) -> Option<f64> {
        self.weights.get(path).copied().or(self.everything)
    }

    /// Whether something below the path is indexed.
    fn leads_on(&self, path: &str) -> bool {
        self.everything.is_some()
            || self
                .weights
                .keys()
                .any(|field| field.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
    }

    fn language_of(&self, document: &RawDocument, outer: Language) -> Result<Language> {
        match document.get(&self.language_override)? {
            None => Ok(outer),
            Some(RawBsonRef::String(name)) => match Language::find(name) {
                Some(language) => Ok(language),
                None if self.version == Version::One => Ok(Language::None),
                None => {
                    Err(Error::location(17262, format!("language override unsupported: {name}")))
                }
            },
            Some(_) => Err(Error::location(
                17261,
                "found language override field in document with non-string type",
            )),
        }
    }
}
