//! Counted handles on the environment that threads do not share.
//!
//! Every snapshot keeps the environment alive. One common count would have every read write to
//! one cache line twice; each stripe of threads has a handle instead, with a count of its own.

use crate::environment::Environment;
use locktree::LockTable;
use os::{Padded, STRIPES};
use std::ops::Deref;
use std::sync::Arc;

/// One stripe's handle on the environment.
pub(crate) struct EngineHandle(Padded<Fields>);

struct Fields {
    environment: Arc<Environment>,
    stripe: usize,
}

impl EngineHandle {
    /// The stripe whose share of what is split it uses, whichever thread holds it.
    pub(crate) fn stripe(&self) -> usize {
        self.0.stripe
    }
}

impl Deref for EngineHandle {
    type Target = Environment;
    fn deref(&self) -> &Environment {
        &self.0.environment
    }
}

/// A reference to the lock table that keeps its environment alive.
pub(crate) struct LockTableRef(pub(crate) Arc<EngineHandle>);

impl Deref for LockTableRef {
    type Target = LockTable;
    fn deref(&self) -> &LockTable {
        &self.0.locks
    }
}

/// A handle for each stripe of threads.
pub(crate) struct PerThreadHandles([Arc<EngineHandle>; STRIPES]);

impl PerThreadHandles {
    pub(crate) fn new(environment: &Arc<Environment>) -> Self {
        let handle = |stripe| {
            let environment = Arc::clone(environment);
            Arc::new(EngineHandle(Padded(Fields { environment, stripe })))
        };
        Self(std::array::from_fn(handle))
    }

    /// The calling thread's.
    pub(crate) fn mine(&self) -> &Arc<EngineHandle> {
        &self.0[os::stripe()]
    }
}
