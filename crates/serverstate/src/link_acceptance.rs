//! Who lets links of other members in.
//!
//! Always true: a server that is in no set of several members has nobody who does, and refuses each link.

use dispatch::LinkAcceptor;
use os::sync::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where a server keeps its acceptor.
#[derive(Default)]
pub struct LinkAcceptance {
    acceptor: RwLock<Option<Arc<dyn LinkAcceptor>>>,
    told: AtomicBool,
}

impl LinkAcceptance {
    /// From now on this one lets links in, or nobody.
    pub fn set(&self, acceptor: Option<Arc<dyn LinkAcceptor>>) {
        *self.acceptor.write() = acceptor;
        self.told.store(false, Ordering::Relaxed);
    }

    /// Who lets links in, if anybody.
    pub fn acceptor(&self) -> Option<Arc<dyn LinkAcceptor>> {
        self.acceptor.read().clone()
    }

    /// Whether the caller is to log that a link was refused because nobody lets any in: members try again
    /// and again, and are told each time.
    pub fn is_first_refusal(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }
}
