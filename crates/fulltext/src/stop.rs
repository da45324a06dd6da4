//! Words too common to be searched for.
//!
//! English has Snowball's list, the others NLTK's, which are Snowball's with a few words more: short
//! enough that no word with a meaning of its own is lost. They are lower-case and keep their accents.

mod english;

use crate::language::{LANGUAGES, Language};
use std::collections::HashSet;
use std::sync::OnceLock;
use stop_words::Language as List;

type Words = HashSet<&'static str>;

/// Whether a lower-case word says nothing in this language.
pub(crate) fn is_stop_word(word: &str, language: Language) -> bool {
    static LISTS: [OnceLock<Words>; LANGUAGES.len()] = [const { OnceLock::new() }; LANGUAGES.len()];
    LISTS[language as usize].get_or_init(|| list(language)).contains(word)
}

fn list(language: Language) -> Words {
    let list = match language {
        Language::None => return Words::new(),
        Language::English => return english::WORDS.into(),
        Language::Danish => List::Danish,
        Language::Dutch => List::Dutch,
        Language::Finnish => List::Finnish,
        Language::French => List::French,
        Language::German => List::German,
        Language::Hungarian => List::Hungarian,
        Language::Italian => List::Italian,
        Language::Norwegian => List::Norwegian,
        Language::Portuguese => List::Portuguese,
        Language::Romanian => List::Romanian,
        Language::Russian => List::Russian,
        Language::Spanish => List::Spanish,
        Language::Swedish => List::Swedish,
        Language::Turkish => List::Turkish,
    };
    stop_words::lookup(list).unwrap_or_default().iter().copied().collect()
}
