//! The languages a text may be in, and the versions of text indexes.
//!
//! Always true: a [`Language`] that exists has its stemmer and its stop words, but for
//! [`Language::None`], which has neither.

use errors::{Error, Result};
use rust_stemmers::Algorithm;

/// The rules of a text index, `textIndexVersion`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Version {
    /// Only ASCII letters have cases, accents matter.
    One,
    /// As the first.
    Two,
    /// Cases and accents as Unicode has them; neither matters unless a search says so.
    Three,
}

impl Version {
    /// The version of this number.
    pub fn of(number: i64) -> Option<Self> {
        Some(match number {
            1 => Self::One,
            2 => Self::Two,
            3 => Self::Three,
            _ => return None,
        })
    }

    /// Its number.
    pub fn number(self) -> i32 {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Three => 3,
        }
    }
}

/// A language.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "the names are the languages")]
pub enum Language {
    None,
    Danish,
    Dutch,
    English,
    Finnish,
    French,
    German,
    Hungarian,
    Italian,
    Norwegian,
    Portuguese,
    Romanian,
    Russian,
    Spanish,
    Swedish,
    Turkish,
}

/// Every language with its name and its ISO code.
pub(crate) const LANGUAGES: [(Language, &str, &str); 16] = [
    (Language::None, "none", "none"),
    (Language::Danish, "danish", "da"),
    (Language::Dutch, "dutch", "nl"),
    (Language::English, "english", "en"),
    (Language::Finnish, "finnish", "fi"),
    (Language::French, "french", "fr"),
    (Language::German, "german", "de"),
    (Language::Hungarian, "hungarian", "hu"),
    (Language::Italian, "italian", "it"),
    (Language::Norwegian, "norwegian", "nb"),
    (Language::Portuguese, "portuguese", "pt"),
    (Language::Romanian, "romanian", "ro"),
    (Language::Russian, "russian", "ru"),
    (Language::Spanish, "spanish", "es"),
    (Language::Swedish, "swedish", "sv"),
    (Language::Turkish, "turkish", "tr"),
];

impl Language {
    /// The language of this name or code, in any case.
    pub fn find(name: &str) -> Option<Self> {
        LANGUAGES
            .iter()
            .find(|(_, long, short)| {
                name.eq_ignore_ascii_case(long) || name.eq_ignore_ascii_case(short)
            })
            .map(|(language, ..)| *language)
    }

    /// [`Self::find`] with MongoDB's error. An index of the first version takes a language that it
    /// does not know as none.
    pub fn parse(name: &str, version: Version) -> Result<Self> {
        match Self::find(name) {
            Some(language) => Ok(language),
            None if version == Version::One => Ok(Self::None),
            None => Err(Error::bad_value(format!(
                "unsupported language: \"{name}\" for text index version {}",
                version.number()
            ))),
        }
    }

    /// Its English name.
    pub fn name(self) -> &'static str {
        LANGUAGES[self as usize].1
    }

    /// Snowball's stemmer for it.
    pub(crate) fn stemmer(self) -> Option<Algorithm> {
        Some(match self {
            Self::None => return None,
            Self::Danish => Algorithm::Danish,
            Self::Dutch => Algorithm::Dutch,
            Self::English => Algorithm::English,
            Self::Finnish => Algorithm::Finnish,
            Self::French => Algorithm::French,
            Self::German => Algorithm::German,
            Self::Hungarian => Algorithm::Hungarian,
            Self::Italian => Algorithm::Italian,
            Self::Norwegian => Algorithm::Norwegian,
            Self::Portuguese => Algorithm::Portuguese,
            Self::Romanian => Algorithm::Romanian,
            Self::Russian => Algorithm::Russian,
            Self::Spanish => Algorithm::Spanish,
            Self::Swedish => Algorithm::Swedish,
            Self::Turkish => Algorithm::Turkish,
        })
    }
}
