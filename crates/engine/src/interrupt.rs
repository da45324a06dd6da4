//! Whether the operation that a thread runs may go on waiting: who uses the engine knows.

use crate::{Error, Result};
use std::sync::{Arc, OnceLock};

/// What is asked while a thread waits; without it everybody waits.
#[derive(Default)]
pub(crate) struct MayWait(OnceLock<Arc<dyn Fn() -> bool + Send + Sync>>);

impl MayWait {
    /// From now on `may_wait` is asked. Only the first call counts.
    pub(crate) fn ask(&self, may_wait: Arc<dyn Fn() -> bool + Send + Sync>) {
        let _first = self.0.set(may_wait);
    }

    /// Fails where the operation on this thread may not go on waiting.
    pub(crate) fn check(&self) -> Result<()> {
        let may_wait = self.0.get().is_none_or(|may_wait| may_wait());
        if may_wait { Ok(()) } else { Err(Error::Interrupted) }
    }
}
