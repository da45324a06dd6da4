//! What a search asks: terms, of which one is enough, phrases that must all be there, and both of
//! them negated.
//!
//! From → to: the search string is cut into words and signs [`split`]; a `-` after white space negates
//! up to the next white space, `"` begins and ends a phrase. The words, also those of phrases, become
//! terms as texts do.
//!
//! Always true: a search without a term that is wanted matches nothing.

use crate::fields::Fields;
use crate::language::{Language, Version};
use crate::score::index_term;
use crate::token::{Sensitivity, tokens};
use bson::raw::RawDocument;
use errors::Result;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A parsed search.
#[derive(Clone, Debug)]
pub struct Query {
    index_terms: BTreeSet<String>,
    terms: BTreeSet<String>,
    negated_terms: BTreeSet<String>,
    phrases: Vec<String>,
    negated_phrases: Vec<String>,
    language: Language,
    version: Version,
    sensitivity: Sensitivity,
}

/// A piece of a search string.
struct Piece<'s> {
    text: &'s str,
    /// Where it begins.
    at: usize,
    /// White space, or the beginning, stands before it.
    after_space: bool,
}

impl Query {
    /// Understands a search string.
    pub fn parse(
        search: &str,
        language: Language,
        version: Version,
        sensitivity: Sensitivity,
    ) -> Self {
        let mut query = Self {
            index_terms: BTreeSet::new(),
            terms: BTreeSet::new(),
            negated_terms: BTreeSet::new(),
            phrases: Vec::new(),
            negated_phrases: Vec::new(),
            language,
            version,
            sensitivity,
        };
        let (mut words, mut negated_words) = (String::new(), String::new());
        let (mut negated, mut phrase) = (false, None);
        for piece in split(search) {
            match piece.text {
                "-" => negated |= phrase.is_none() && piece.after_space,
                "\"" => {
                    if let Some(start) = phrase.take() {
                        let list =
                            if negated { &mut query.negated_phrases } else { &mut query.phrases };
                        list.push(search[start..piece.at].to_owned());
                    } else {
                        negated &= !piece.after_space;
                        phrase = Some(piece.at + 1);
                    }
                }
                // Where a phrase must not be, its words may.
                _ if negated && phrase.is_some() => {}
                word => {
                    negated &= phrase.is_some() || !piece.after_space;
                    let list = if negated { &mut negated_words } else { &mut words };
                    list.push_str(word);
                    list.push(' ');
                }
            }
        }
        tokens(&words, language, version, Sensitivity::default(), |term| {
            query.index_terms.insert(index_term(term).into_owned());
        });
        tokens(&words, language, version, sensitivity, |term| {
            query.terms.insert(term.to_owned());
        });
        tokens(&negated_words, language, version, sensitivity, |term| {
            query.negated_terms.insert(term.to_owned());
        });
        query
    }

    /// The terms to look for in the index.
    pub fn index_terms(&self) -> &BTreeSet<String> {
        &self.index_terms
    }

    /// The terms of which a document must have one.
    pub fn terms(&self) -> &BTreeSet<String> {
        &self.terms
    }

    /// The terms that it must not have.
    pub fn negated_terms(&self) -> &BTreeSet<String> {
        &self.negated_terms
    }

    /// The phrases that it must have.
    pub fn phrases(&self) -> &[String] {
        &self.phrases
    }

    /// The phrases that it must not have.
    pub fn negated_phrases(&self) -> &[String] {
        &self.negated_phrases
    }

    /// The language.
    pub fn language(&self) -> Language {
        self.language
    }
}

/// Words, and the signs `-` and `"` by themselves; other ASCII punctuation only separates words.
fn split(search: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = 0;
    let mut after_space = true;
    std::iter::from_fn(move || {
        loop {
            let at = rest;
            let first = search[at..].chars().next()?;
            let sign = is_separator(first);
            let end = if sign {
                at + first.len_utf8()
            } else {
                search[at..].find(is_separator).map_or(search.len(), |length| at + length)
            };
            rest = end;
            if first.is_ascii_whitespace() || first == '\x0b' {
                after_space = true;
                continue;
            }
            let piece = Piece { text: &search[at..end], at, after_space };
            after_space = false;
            if !sign || matches!(first, '-' | '"') {
                return Some(piece);
            }
        }
    })
}

fn is_separator(letter: char) -> bool {
    letter.is_ascii_whitespace()
        || letter == '\x0b'
        || letter.is_ascii_punctuation() && !matches!(letter, '_' | '\'')
}

/// A search over an index's fields.
#[derive(Clone, Debug)]
pub struct Search {
    query: Query,
    fields: Arc<Fields>,
}

impl Search {
    /// A search over these fields.
    pub fn new(query: Query, fields: Arc<Fields>) -> Self {
        Self { query, fields }
    }

    /// What is asked.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// Whether a document matches.
    pub fn matches(&self, document: &RawDocument) -> Result<bool> {
        Ok(self.has_term(document, &self.query.terms)?
            && self.passes_phrases_and_negations(document)?)
    }

    /// Whether a document matches that was found in the index under one of the terms.
    pub fn matches_indexed(&self, document: &RawDocument) -> Result<bool> {
        let found =
            self.query.sensitivity.is_none() || self.has_term(document, &self.query.terms)?;
        Ok(found && self.passes_phrases_and_negations(document)?)
    }

    fn passes_phrases_and_negations(&self, document: &RawDocument) -> Result<bool> {
        if self.has_term(document, &self.query.negated_terms)? {
            return Ok(false);
        }
        for phrase in &self.query.phrases {
            if !self.has_phrase(document, phrase)? {
                return Ok(false);
            }
        }
        for phrase in &self.query.negated_phrases {
            if self.has_phrase(document, phrase)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a text of the document has one of the terms.
    fn has_term(&self, document: &RawDocument, terms: &BTreeSet<String>) -> Result<bool> {
        let mut found = false;
        if terms.is_empty() {
            return Ok(found);
        }
        let Query { version, sensitivity, .. } = self.query;
        self.fields.each(document, &mut |text, language, _| {
            tokens(text, language, version, sensitivity, |term| found |= terms.contains(term));
            !found
        })?;
        Ok(found)
    }

    /// Whether one text of the document has the phrase, as letters: also inside words.
    fn has_phrase(&self, document: &RawDocument, phrase: &str) -> Result<bool> {
        let mut found = false;
        let Query { version, sensitivity, .. } = self.query;
        self.fields.each(document, &mut |text, language, _| {
            let phrase = sensitivity.fold(phrase, language, version);
            found = sensitivity.fold(text, language, version).contains(&phrase);
            !found
        })?;
        Ok(found)
    }
}
