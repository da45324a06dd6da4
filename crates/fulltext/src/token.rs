//! From a text to its terms.
//!
//! A word is what stands between delimiters: white space, dashes, quotation marks, punctuation and
//! Unicode's pattern syntax. An apostrophe is part of an English word, and a delimiter elsewhere.
//!
//! Always true: a term is a word in lower case that is no stop word, stemmed, then without accents;
//! in this order, because stop words and stemmers know accents.

use crate::fold::{fold_case, strip_accents};
use crate::language::{Language, Version};
use crate::stop::is_stop_word;
use icu_properties::CodePointSetData;
use icu_properties::props::{
    Dash, Hyphen, PatternSyntax, QuotationMark, TerminalPunctuation, WhiteSpace,
};
use rust_stemmers::Stemmer;
use std::borrow::Cow;

/// What makes a difference between words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sensitivity {
    /// Upper and lower case do.
    pub case: bool,
    /// Accents do.
    pub diacritics: bool,
}

impl Sensitivity {
    /// Whether nothing makes a difference, as in the index.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    /// The text with everything taken out that makes no difference.
    pub(crate) fn fold(self, text: &str, language: Language, version: Version) -> String {
        let text = if self.case { Cow::Borrowed(text) } else { fold_case(text, language, version) };
        if self.diacritics { text.into_owned() } else { strip_accents(&text, version).into_owned() }
    }
}

/// Hands the terms of a text to `take`, in the order of the text.
pub fn tokens(
    text: &str,
    language: Language,
    version: Version,
    sensitivity: Sensitivity,
    mut take: impl FnMut(&str),
) {
    let stemmer = language.stemmer().map(Stemmer::create);
    let delimits = |letter: char| is_delimiter(letter, language, version);
    for word in text.split(delimits).filter(|word| !word.is_empty()) {
        let lower = fold_case(word, language, version);
        if is_stop_word(&lower, language) {
            continue;
        }
        let word = if sensitivity.case { word } else { &lower };
        let stem = match &stemmer {
            Some(stemmer) => stemmer.stem(word),
            None => Cow::Borrowed(word),
        };
        if sensitivity.diacritics {
            take(&stem);
            continue;
        }
        let term = strip_accents(&stem, version);
        // A word of nothing but marks is none.
        if !term.is_empty() {
            take(&term);
        }
    }
}

fn is_delimiter(letter: char, language: Language, version: Version) -> bool {
    match letter {
        '\'' => language != Language::English,
        '_' => false,
        letter if letter.is_ascii() => {
            letter.is_ascii_punctuation() || letter.is_ascii_whitespace() || letter == '\x0b'
        }
        _ if version < Version::Three => false,
        letter => {
            CodePointSetData::new::<WhiteSpace>().contains(letter)
                || CodePointSetData::new::<PatternSyntax>().contains(letter)
                || CodePointSetData::new::<Dash>().contains(letter)
                || CodePointSetData::new::<Hyphen>().contains(letter)
                || CodePointSetData::new::<QuotationMark>().contains(letter)
                || CodePointSetData::new::<TerminalPunctuation>().contains(letter)
        }
    }
}
