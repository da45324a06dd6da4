//! What can go wrong in a tree, with the place.

/// Results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong in a tree. Memory-only calls (`insert`, `seal`) cannot fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The data file could not do it: full, damaged, stopped.
    #[error(transparent)]
    Blocks(#[from] blockfile::Error),
    /// Bytes on disk are not what the tree wrote.
    #[error("corruption in tree {tree}, segment {segment}, page {page}: {what}")]
    Corruption {
        /// The dictionary.
        tree: u64,
        /// The segment; 0 for the tree's image.
        segment: u64,
        /// The page in the segment.
        page: u32,
        /// What is wrong.
        what: &'static str,
    },
}

impl Error {
    /// The segment whose bytes are damaged, if that is what is wrong; 0 where it is not known.
    pub(crate) fn damaged_segment(&self) -> Option<u64> {
        match self {
            Error::Corruption { segment, .. }
            | Error::Blocks(blockfile::Error::Corruption { segment, .. }) => Some(*segment),
            Error::Blocks(_) => None,
        }
    }
}
