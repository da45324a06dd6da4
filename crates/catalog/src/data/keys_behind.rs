//! Why the entries of a document could not be made, where the engine has a thread make them ([`engine::Derive`]).
//!
//! The engine knows no errors but its own. That of the document waits here until the thread's owner hears that
//! the thread has failed.

use crate::failure::from_engine;
use errors::Error;
use os::sync::Mutex;
use std::sync::Arc;

/// The first reason, if any.
#[derive(Clone, Default)]
pub(crate) struct KeyFailure(Arc<Mutex<Option<Error>>>);

impl KeyFailure {
    /// Keeps the reason; returns what the engine is told.
    pub(crate) fn keep(&self, error: Error) -> engine::Error {
        let text = format!("the entries of a document cannot be made: {error}");
        *self.0.lock() = Some(error);
        engine::Error::Stopped(text)
    }

    /// What an error of the engine comes from.
    pub(crate) fn cause(&self, error: engine::Error) -> Error {
        self.0.lock().take().unwrap_or_else(|| from_engine(error))
    }
}
