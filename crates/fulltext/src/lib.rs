//! Texts as terms: words, stems, scores, and what a text search asks of a document.
//!
//! From → to: a document's indexed texts [`Fields::each`] are cut into words, folded and stemmed
//! [`tokens`]; the terms of all of them have a score [`Fields::scores`], which is what a text index
//! holds. A search becomes terms of the same kind and phrases [`Query::parse`]; what the index found
//! by terms is asked for the rest [`Search::matches_indexed`].
//!
//! Always true: the same text gives the same terms for ever, since indexes hold them. A release of
//! the stemmers, the stop words or the Unicode data is a change of format.
#![forbid(unsafe_code)]

mod fields;
mod fold;
mod language;
mod query;
mod score;
mod stop;
mod token;

#[cfg(test)]
mod tests;

pub use fields::Fields;
pub use language::{Language, Version};
pub use query::{Query, Search};
pub use score::index_term;
pub use token::{Sensitivity, tokens};
