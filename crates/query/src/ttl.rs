//! Expiry: documents whose date is older than the `expireAfterSeconds` of their index, or of their
//! collection where it is clustered or holds measurements, are deleted. Partitions that are too old are
//! dropped, and those ended that are full.
//!
//! Always true: outside of partitions a document goes only where the indexed value is a date (or an array with one) that
//! is old enough, and for a partial index only where its filter matches.

use crate::context::{Atomicity, Interrupt, OpContext};
use crate::request::{DeleteRequest, DeleteStatement};
use crate::write::delete;
use bson::raw::RawDocumentBuf;
use bson::{DateTime, Document, doc};
use catalog::{Catalog, Index, Namespace};
use errors::{Code, Error, Result};
use keystring::Collation;
use os::JoinHandle;
use os::sync::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Deletes what has expired by now, in every collection; says how many documents went. A
/// collection that fails does not keep the others from their turn; the first error is returned.
pub fn expire_documents(catalog: &Arc<Catalog>, interrupt: &Arc<dyn Interrupt>) -> Result<u64> {
    let mut deleted = 0;
    let mut failed = None;
    for database in catalog.databases() {
        for collection in catalog.collections(&database) {
            let ns = collection.namespace();
            let by_collection = collection.options().expiry().map(|(field, seconds)| {
                interrupt.check()?;
                expire(catalog, interrupt, ns, &older(catalog, field, seconds), None)
            });
            let by_index = collection.indexes().iter().map(|index| {
                interrupt.check()?;
                expire_index(catalog, interrupt, ns, index)
            });
            let by_partition = collection
                .is_partitioned()
                .then(|| catalog.tend_partitions(&collection, &|| interrupt.check()));
            for done in by_collection.into_iter().chain(by_partition).chain(by_index) {
                match done {
                    Ok(n) => deleted += n,
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
        }
    }
    failed.map_or(Ok(deleted), Err)
}

fn expire_index(
    catalog: &Arc<Catalog>,
    interrupt: &Arc<dyn Interrupt>,
    ns: &Namespace,
    index: &Index,
) -> Result<u64> {
    let spec = index.spec();
    let Some(seconds) = spec.expire_after_seconds else { return Ok(0) };
    // Hashes tell nothing about dates.
    if spec.is_hashed() || spec.is_geo() {
        return Ok(0);
    }
    let mut filter = older(catalog, &spec.parts[0].path, seconds);
    if let Some(partial) = &spec.partial {
        let partial = Document::try_from(&*partial.document)?;
        filter = doc! { "$and": [filter, partial] };
    }
    // The partial filter means what it means to the index.
    expire(catalog, interrupt, ns, &filter, spec.collation.as_ref())
}

/// What has a date further back than so many seconds.
fn older(catalog: &Catalog, field: &str, seconds: i64) -> Document {
    let now_ms = catalog.os().clock.wall_ms();
    let limit = DateTime::from_millis(now_ms.saturating_sub(seconds.saturating_mul(1000)));
    doc! { field: { "$lt": limit } }
}

/// Deletes what matches; says how many documents went.
fn expire(
    catalog: &Arc<Catalog>,
    interrupt: &Arc<dyn Interrupt>,
    ns: &Namespace,
    filter: &Document,
    collation: Option<&Collation>,
) -> Result<u64> {
    let filter = RawDocumentBuf::try_from(filter)?;
    let collation = match collation {
        Some(collation) => bsonval::collation::to_document(collation),
        None => RawDocumentBuf::try_from(&doc! { "locale": "simple" })?,
    };
    let statement = DeleteStatement {
        filter: &filter,
        only_one: false,
        hint: None,
        collation: Some(&collation),
    };
    let request = DeleteRequest { deletes: &[statement], ordered: true, let_variables: None };
    let mut ctx = OpContext::new(catalog, Arc::clone(interrupt));
    ctx.atomicity = Atomicity::Part;
    let result = delete(&mut ctx, ns, &request)?;
    match result.errors.into_iter().next() {
        Some(failed) => Err(failed.error),
        None => Ok(result.n),
    }
}

/// Whether documents expire, and how many have.
#[derive(Debug)]
pub struct Expiry {
    /// `ttlMonitorEnabled`: without it no pass begins, and one that runs ends.
    pub is_enabled: AtomicBool,
    /// Passes that have ended.
    pub passes: AtomicU64,
    /// Documents that have expired.
    pub documents_deleted: AtomicU64,
}

impl Default for Expiry {
    fn default() -> Self {
        let (passes, documents_deleted) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { is_enabled: AtomicBool::new(true), passes, documents_deleted }
    }
}

/// Expires documents again and again on a thread of its own. Dropping it ends the thread.
pub struct TtlMonitor {
    stop: Arc<Stop>,
    thread: Option<JoinHandle>,
}

struct Stop {
    state: Mutex<State>,
    wake: Condvar,
    expiry: Arc<Expiry>,
}

struct State {
    asked: bool,
    period: Duration,
}

impl Stop {
    /// Waits for the next pass; false where the end was asked for.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while !state.asked {
            let period = state.period;
            // Woken early: the end, or another period.
            if self.wake.wait_for(&mut state, period).timed_out() {
                break;
            }
        }
        !state.asked
    }
}

impl Interrupt for Stop {
    fn check(&self) -> Result<()> {
        if self.state.lock().asked || !self.expiry.is_enabled.load(Ordering::Relaxed) {
            return Err(Error::new(Code::INTERRUPTED_AT_SHUTDOWN, "interrupted at shutdown"));
        }
        Ok(())
    }
}

impl limits::Interrupt for Stop {
    fn check(&self) -> Result<()> {
        Interrupt::check(self)
    }
}

impl TtlMonitor {
    /// Starts the thread; `report` is told of every pass.
    pub fn start(
        catalog: &Arc<Catalog>,
        expiry: &Arc<Expiry>,
        period: Duration,
        report: impl Fn(Result<u64>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let state = Mutex::new(State { asked: false, period });
        let stop = Arc::new(Stop { state, wake: Condvar::new(), expiry: Arc::clone(expiry) });
        let (catalog_of_thread, stop_of_thread) = (Arc::clone(catalog), Arc::clone(&stop));
        let job = Box::new(move || {
            let interrupt: Arc<dyn Interrupt> = Arc::<Stop>::clone(&stop_of_thread);
            // Nobody's memory: an expiry holds no more than a batch of keys.
            let _scope =
                limits::enter(Arc::<Stop>::clone(&stop_of_thread), limits::Account::new(u64::MAX));
            let expiry = &stop_of_thread.expiry;
            while stop_of_thread.wait() {
                if !expiry.is_enabled.load(Ordering::Relaxed) {
                    continue;
                }
                let pass = expire_documents(&catalog_of_thread, &interrupt);
                if let Ok(deleted) = pass {
                    expiry.documents_deleted.fetch_add(deleted, Ordering::Relaxed);
                }
                expiry.passes.fetch_add(1, Ordering::Relaxed);
                report(pass);
            }
        });
        let thread = catalog.os().spawner.spawn("ttl-monitor", job)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Changes how long it waits between two passes; the wait begins again.
    pub fn set_period(&self, period: Duration) {
        self.stop.state.lock().period = period;
        self.stop.wake.notify_all();
    }
}

impl Drop for TtlMonitor {
    fn drop(&mut self) {
        self.stop.state.lock().asked = true;
        self.stop.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            // A pass that panicked has told its story on standard error.
            drop(thread.join());
        }
    }
}
