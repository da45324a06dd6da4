//! How much a text is about its terms.
//!
//! For each term of a text: its weight × the sum of 1/2ⁿ over its occurrences × (half its share of
//! the text's terms + ½) × 1.1 where the term is the whole text. A document's score for a term is
//! the sum over its texts, a search's the sum over its terms.

use crate::language::{Language, Version};
use crate::token::{Sensitivity, tokens};
use std::borrow::Cow;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_128;

/// Terms up to this long stand whole in the index; of longer ones the beginning and a hash.
const MAX_TERM_BYTES: usize = 256;
/// What stays of a longer one, before the 32 digits of its hash.
const KEPT_BYTES: usize = 224;

#[derive(Default)]
struct Occurrences {
    count: u32,
    /// 1/2ⁿ for the next one.
    next: f64,
    sum: f64,
}

/// Adds the scores of one text's terms.
pub(crate) fn add(
    text: &str,
    language: Language,
    version: Version,
    weight: f64,
    scores: &mut BTreeMap<String, f64>,
) {
    let mut terms: BTreeMap<String, Occurrences> = BTreeMap::new();
    let mut all = 0_u32;
    tokens(text, language, version, Sensitivity::default(), |term| {
        all += 1;
        let found = match terms.get_mut(term) {
            Some(found) => found,
            None => terms
                .entry(term.to_owned())
                .or_insert(Occurrences { next: 1.0, ..Occurrences::default() }),
        };
        found.count += 1;
        found.sum += found.next;
        found.next /= 2.0;
    });
    for (term, found) in terms {
        let share = 0.5 * f64::from(found.count) / f64::from(all) + 0.5;
        let whole = if text.eq_ignore_ascii_case(&term) { 1.1 } else { 1.0 };
        *scores.entry(term).or_default() += weight * found.sum * share * whole;
    }
}

/// A term as an index holds it: of bounded length.
pub fn index_term(term: &str) -> Cow<'_, str> {
    if term.len() <= MAX_TERM_BYTES {
        return Cow::Borrowed(term);
    }
    let kept = &term[..term.floor_char_boundary(KEPT_BYTES)];
    Cow::Owned(format!("{kept}{:032x}", xxh3_128(term.as_bytes())))
}
