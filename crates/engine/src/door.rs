//! Doors: counted handles on the environment that threads do not share.
//!
//! Every snapshot keeps the environment alive. One common count would have every read write to
//! one cache line twice; each stripe has a door instead, with a count of its own.

use crate::environment::Environment;
use locktree::LockTable;
use os::{Padded, STRIPES};
use std::ops::Deref;
use std::sync::Arc;

/// One stripe's handle on the environment.
pub(crate) struct Door(Padded<Inside>);

struct Inside {
    environment: Arc<Environment>,
    stripe: usize,
}

impl Door {
    /// The stripe whose share of what is split it uses, whichever thread holds it.
    pub(crate) fn stripe(&self) -> usize {
        self.0.stripe
    }
}

impl Deref for Door {
    type Target = Environment;
    fn deref(&self) -> &Environment {
        &self.0.environment
    }
}

/// The way of a transaction's locks to their table.
pub(crate) struct ToLocks(pub(crate) Arc<Door>);

impl Deref for ToLocks {
    type Target = LockTable;
    fn deref(&self) -> &LockTable {
        &self.0.locks
    }
}

/// A door for each stripe.
pub(crate) struct Doors([Arc<Door>; STRIPES]);

impl Doors {
    pub(crate) fn new(environment: &Arc<Environment>) -> Self {
        let door = |stripe| {
            let environment = Arc::clone(environment);
            Arc::new(Door(Padded(Inside { environment, stripe })))
        };
        Self(std::array::from_fn(door))
    }

    /// The calling thread's.
    pub(crate) fn mine(&self) -> &Arc<Door> {
        &self.0[os::stripe()]
    }
}
