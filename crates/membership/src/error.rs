//! What a membership cannot do, and why.

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What a membership cannot do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What the set's document says cannot be.
    #[error("the set's document: {0}")]
    Document(String),
    /// A file of the data directory cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The directory holds what another set, or no set, has written.
    #[error("{0}")]
    Directory(String),
    /// The replica refuses.
    #[error(transparent)]
    Replica(#[from] replica::Error),
    /// What the catalog says.
    #[error("the catalog: {0}")]
    Catalog(String),
    /// The engine refuses.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// The machine gives no thread or no descriptor.
    #[error("a thread of the member: {0}")]
    Thread(#[from] std::io::Error),
}
