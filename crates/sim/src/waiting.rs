//! What is loaded past the log and waits for the commit that adopts it.

use crate::model::Contents;
use engine::Loaded;

/// What is loaded and not adopted yet.
pub(crate) struct Waiting {
    pub(crate) loaded: Loaded,
    pub(crate) rows: Contents,
}
