//! Collations: the order of strings by a language's rules instead of by their bytes.
//!
//! ICU4X does the work; here its options get the shape MongoDB gives them, and sort keys the place
//! of strings in key bytes. A collation is about strings wherever they stand in a value; names of
//! fields keep the order of their bytes.
//!
//! Always true: memcmp of two sort keys is [`Collation::compare_text`] of the strings. Sort keys
//! are on disk (`docs/formats/keystring.md`); [`SORT_KEY_VERSION`] changes when they may have
//! changed, which every release of the library's data does.

mod locale;
mod provider;

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocumentBuf};
use icu_collator::options::{
    AlternateHandling, CaseLevel, CollatorOptions, MaxVariable as IcuMaxVariable, Strength,
};
use icu_collator::preferences::{CollationCaseFirst, CollationNumericOrdering};
use icu_collator::{Collator, CollatorBorrowed, CollatorPreferences};
use provider::Provider;
use std::cmp::Ordering;
use std::sync::Arc;

/// Names the rules and the layout by which sort keys were made: the library's data and ours.
pub const SORT_KEY_VERSION: i32 = 1;

/// How cases are ordered on the tertiary level, or on the level of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CaseFirst {
    /// As the language has it where it says nothing: lower case comes first, after everything else.
    Off,
    /// Upper case first.
    Upper,
    /// Lower case first.
    Lower,
}

/// Which characters count as variable where `shifted` is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MaxVariable {
    /// White space and punctuation.
    Punctuation,
    /// White space.
    Space,
}

/// What a client asks of a collation; `None` leaves it to the language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollationRequest {
    /// ICU's name of the language: `de`, `fr_CA`, `de@collation=phonebook`.
    pub locale: String,
    /// A level for case between the second and the third.
    pub case_level: Option<bool>,
    /// The order of cases.
    pub case_first: Option<CaseFirst>,
    /// 1 (base letters) to 5 (identical).
    pub strength: u8,
    /// Digits compare as the numbers they make.
    pub numeric_ordering: bool,
    /// Variable characters count only on the fourth level.
    pub shifted: Option<bool>,
    /// Which ones those are.
    pub max_variable: MaxVariable,
    /// Asked for; strings are always normalised.
    pub normalization: bool,
    /// Accents compare from the end of the text.
    pub backwards: Option<bool>,
}

impl CollationRequest {
    /// The language's own rules.
    pub fn of_locale(locale: &str) -> Self {
        Self {
            locale: locale.to_owned(),
            case_level: None,
            case_first: None,
            strength: 3,
            numeric_ordering: false,
            shifted: None,
            max_variable: MaxVariable::Punctuation,
            normalization: false,
            backwards: None,
        }
    }
}

/// A collation's options, with what the language decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "see CollationRequest")]
#[expect(clippy::struct_excessive_bools, reason = "independent options, not states")]
pub struct CollationOptions {
    pub locale: String,
    pub case_level: bool,
    pub case_first: CaseFirst,
    pub strength: u8,
    pub numeric_ordering: bool,
    pub shifted: bool,
    pub max_variable: MaxVariable,
    pub normalization: bool,
    pub backwards: bool,
}

/// Why there is no such collation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CollationError {
    /// No such language; a similar one, where there is any.
    #[error("unknown locale")]
    UnknownLocale(Option<String>),
    /// A kind of order that is known and not built in.
    #[error("the collation type '{0}' is not supported")]
    UnsupportedType(String),
    /// The library failed.
    #[error("{0}")]
    Data(String),
}

/// A language's order of strings. Cheap to clone.
#[derive(Clone)]
pub struct Collation(Arc<Inner>);

struct Inner {
    options: CollationOptions,
    collator: Collator,
}

impl std::fmt::Debug for Collation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.options.fmt(f)
    }
}

impl PartialEq for Collation {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.options == other.0.options
    }
}

impl Eq for Collation {}

impl Collation {
    /// Loads a language's rules and bends them as asked.
    pub fn new(request: &CollationRequest) -> Result<Self, CollationError> {
        let (locale, kind) = locale::parse(&request.locale)?;
        let mut preferences = CollatorPreferences::from(&locale);
        preferences.case_first = request.case_first.map(|case_first| match case_first {
            CaseFirst::Off => CollationCaseFirst::False,
            CaseFirst::Upper => CollationCaseFirst::Upper,
            CaseFirst::Lower => CollationCaseFirst::Lower,
        });
        preferences.numeric_ordering = Some(if request.numeric_ordering {
            CollationNumericOrdering::True
        } else {
            CollationNumericOrdering::False
        });
        let mut options = CollatorOptions::default();
        options.strength = Some(match request.strength {
            1 => Strength::Primary,
            2 => Strength::Secondary,
            3 => Strength::Tertiary,
            4 => Strength::Quaternary,
            _ => Strength::Identical,
        });
        options.case_level =
            request.case_level.map(|on| if on { CaseLevel::On } else { CaseLevel::Off });
        options.alternate_handling = request.shifted.map(|shifted| {
            if shifted { AlternateHandling::Shifted } else { AlternateHandling::NonIgnorable }
        });
        options.max_variable = Some(match request.max_variable {
            MaxVariable::Punctuation => IcuMaxVariable::Punctuation,
            MaxVariable::Space => IcuMaxVariable::Space,
        });
        let provider = Provider::new(request.backwards);
        let failed = |error: icu_provider::DataError| CollationError::Data(error.to_string());
        let collator =
            Collator::try_new_unstable(&provider, preferences, options).map_err(failed)?;
        if let (Some(kind), true) = (kind, provider.lacks_type()) {
            return Err(CollationError::UnsupportedType(kind));
        }
        let resolved = collator.as_borrowed().resolved_options();
        let options = CollationOptions {
            locale: request.locale.clone(),
            case_level: resolved.case_level == CaseLevel::On,
            case_first: match resolved.case_first {
                CollationCaseFirst::Upper => CaseFirst::Upper,
                CollationCaseFirst::Lower => CaseFirst::Lower,
                _ => CaseFirst::Off,
            },
            strength: request.strength,
            numeric_ordering: request.numeric_ordering,
            shifted: resolved.alternate_handling == AlternateHandling::Shifted,
            max_variable: request.max_variable,
            normalization: request.normalization,
            backwards: provider.is_backwards(),
        };
        Ok(Self(Arc::new(Inner { options, collator })))
    }

    /// What it was made of.
    pub fn options(&self) -> &CollationOptions {
        &self.0.options
    }

    fn collator(&self) -> CollatorBorrowed<'_> {
        self.0.collator.as_borrowed()
    }

    /// The order of two strings.
    pub fn compare_text(&self, a: &str, b: &str) -> Ordering {
        self.collator().compare(a, b)
    }

    /// A text's sort key.
    pub fn sort_key(&self, text: &str) -> Vec<u8> {
        let mut key = Vec::with_capacity(2 * text.len() + 4);
        let Ok(()) = self.collator().write_sort_key_to(text, &mut key);
        key
    }

    /// The value with every text in it replaced by its sort key, a character for a byte: simple
    /// comparison of two such values is collated comparison of what they were made of.
    pub fn transform(&self, value: RawBsonRef<'_>) -> crate::Result<RawBson> {
        self.transform_at(value, 0)
    }

    fn transform_at(&self, value: RawBsonRef<'_>, depth: usize) -> crate::Result<RawBson> {
        if depth > crate::MAX_DEPTH {
            return Err(crate::Error::TooDeep);
        }
        Ok(match value {
            RawBsonRef::String(text) | RawBsonRef::Symbol(text) => {
                RawBson::String(self.sort_key(text).into_iter().map(char::from).collect())
            }
            RawBsonRef::Document(document) => {
                let mut out = RawDocumentBuf::new();
                for field in document {
                    let (name, value) = field?;
                    out.append(name, self.transform_at(value, depth + 1)?);
                }
                RawBson::Document(out)
            }
            RawBsonRef::Array(array) => {
                let mut out = RawArrayBuf::new();
                for element in array {
                    out.push(self.transform_at(element?, depth + 1)?);
                }
                RawBson::Array(out)
            }
            other => other.into(),
        })
    }
}

/// Whether collations differ on values of this kind: strings, and what may hold some.
pub fn is_collatable(value: RawBsonRef<'_>) -> bool {
    matches!(
        value,
        RawBsonRef::String(_)
            | RawBsonRef::Symbol(_)
            | RawBsonRef::Document(_)
            | RawBsonRef::Array(_)
    )
}

#[cfg(test)]
mod tests;
