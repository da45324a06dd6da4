//! Letters without their case, and without their accents.
//!
//! Always true: folding twice is folding once. Only what differs in case or accents becomes equal.

use crate::language::{Language, Version};
use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use icu_properties::CodePointSetData;
use icu_properties::props::Diacritic;
use std::borrow::Cow;

/// A text in lower case. Before the third version only ASCII letters have a case.
pub(crate) fn fold_case(text: &str, language: Language, version: Version) -> Cow<'_, str> {
    if text.is_ascii() && !(language == Language::Turkish && version == Version::Three) {
        if !text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Cow::Borrowed(text);
        }
        return Cow::Owned(text.to_ascii_lowercase());
    }
    if version < Version::Three {
        return Cow::Owned(text.to_ascii_lowercase());
    }
    Cow::Owned(text.chars().map(|letter| fold_letter(letter, language)).collect())
}

/// Unicode's simple case folding, a letter for a letter.
fn fold_letter(letter: char, language: Language) -> char {
    match (letter, language) {
        ('I', Language::Turkish) => return 'ı',
        ('İ', Language::Turkish) => return 'i',
        // Letters of their own: the plain ones are folded from `I` alone.
        ('ı' | 'İ', _) => return letter,
        _ => {}
    }
    // By way of the upper case what has two small forms becomes one: `ς` and `σ`, `ſ` and `s`.
    let upper = single(letter, letter.to_uppercase());
    single(upper, upper.to_lowercase())
}

/// The letter that another becomes; itself where it becomes several.
fn single(letter: char, mut becomes: impl ExactSizeIterator<Item = char>) -> char {
    match (becomes.len(), becomes.next()) {
        (1, Some(other)) => other,
        _ => letter,
    }
}

/// A text without accents: decomposed, without the marks, composed again.
pub(crate) fn strip_accents(text: &str, version: Version) -> Cow<'_, str> {
    if text.is_ascii() || version < Version::Three {
        return Cow::Borrowed(text);
    }
    let marks = CodePointSetData::new::<Diacritic>();
    let plain: String = DecomposingNormalizerBorrowed::new_nfd()
        .normalize_iter(text.chars())
        .filter(|letter| !marks.contains(*letter))
        .collect();
    Cow::Owned(ComposingNormalizerBorrowed::new_nfc().normalize(&plain).into_owned())
}
