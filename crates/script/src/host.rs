//! Whoever runs a client's code: says whether it may run, for how long, and what is stored for it.
//!
//! Always true: a thread has at most one host, that of the operation it works on. Without one code
//! may run for as long as it likes, and nothing is stored.

use bson::raw::RawDocumentBuf;
use errors::Result;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// Asked by the code that runs on its thread.
pub trait Host: Send + Sync {
    /// Whether a client's code may run at all (`security.javascriptEnabled`).
    fn is_allowed(&self) -> bool;

    /// Code is called: what it may use of time counts from now.
    fn begin(&self);

    /// Asked now and then while code runs; the error it is ended with.
    fn check(&self) -> Result<()>;

    /// The server's time, from some point on.
    fn now(&self) -> Duration;

    /// Lets the thread sleep, for code that calls `sleep`.
    fn sleep(&self, time: Duration);

    /// What the operation's database stores for code, by name (`system.js`). May read the disk.
    fn stored(&self) -> Result<RawDocumentBuf>;
}

thread_local! {
    static HOST: RefCell<Option<Arc<dyn Host>>> = const { RefCell::new(None) };
}

/// Gives the thread back to its host before, when it is dropped.
pub struct Hosted(Option<Arc<dyn Host>>);

impl Drop for Hosted {
    fn drop(&mut self) {
        let before = self.0.take();
        let ended = HOST.with(|host| host.replace(before));
        if let Some(ended) = ended {
            crate::engine::drop_stale_contexts(|| ended.now());
        }
    }
}

/// Makes `host` the one of this thread.
#[must_use]
pub fn hosted_by(host: Arc<dyn Host>) -> Hosted {
    Hosted(HOST.with(|current| current.borrow_mut().replace(host)))
}

/// Whether code may run on this thread.
pub fn is_allowed() -> bool {
    current().is_none_or(|host| host.is_allowed())
}

/// The thread's host.
pub(crate) fn current() -> Option<Arc<dyn Host>> {
    HOST.with(|host| host.borrow().clone())
}
