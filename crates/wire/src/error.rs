//! What can be wrong with received bytes, split by what the server does next.
//!
//! A frame whose boundaries or integrity cannot be trusted ends the connection; a well framed
//! message with wrong contents is answered with MongoDB's code and the connection goes on.

/// What a decoding step returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a frame could not become a message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream can no longer be trusted; the connection must be closed without a reply.
    #[error("{0}")]
    Close(String),
    /// The frame was whole but its contents are refused; the client gets this error.
    #[error("{0}")]
    Answer(errors::Error),
}

impl Error {
    /// An error after which the stream cannot be read any further.
    pub(crate) fn close(reason: impl Into<String>) -> Self {
        Self::Close(reason.into())
    }
}

impl From<errors::Error> for Error {
    fn from(error: errors::Error) -> Self {
        Self::Answer(error)
    }
}
