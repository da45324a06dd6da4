//! What readers keep beside a collection: plans, and whatever else they learn about it.
//!
//! Always true: it is made when it is first asked for, lives as long as the collection (every
//! version of its metadata has the same), and is never written to disk.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// An extension record: room for one value of a type that only its owner knows.
#[derive(Default)]
pub(crate) struct Extension(OnceLock<Arc<dyn Any + Send + Sync>>);

impl fmt::Debug for Extension {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Extension").field(&self.0.get().is_some()).finish()
    }
}

impl Extension {
    /// What is kept; there is place for one type.
    pub(crate) fn get<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        let kept = self.0.get_or_init(|| Arc::new(T::default()));
        // Another type has no place here: it gets a value that is not kept.
        Arc::clone(kept).downcast().unwrap_or_default()
    }
}
