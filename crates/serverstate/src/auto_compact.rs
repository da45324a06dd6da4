//! Compaction in the background, of all collections in turn (`autoCompact`).
//!
//! What is always true: at most one thread compacts, it goes on where reads and writes go on, and it
//! ends when it is told to, between two units of its work. Nothing here must be compacted to stay fast
//! or small; who asks for it gets what `compact` does, a collection after the other.

use catalog::{Catalog, IndexSelector};
use engine::Rewrite;
use errors::{Code, Error, Result};
use os::sync::{Condvar, Mutex};
use os::{JoinHandle, Os};
use std::sync::Arc;
use std::time::Duration;

/// From the end of a round to the next.
const BETWEEN_ROUNDS: Duration = Duration::from_mins(5);

/// How it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompactionRequest {
    /// What a collection could give back at least before it is compacted, in MiB.
    pub free_space_mb: i64,
    /// One round, and no more.
    pub once: bool,
}

/// The compaction in the background.
#[derive(Default)]
pub struct AutoCompact {
    state: Arc<Shared>,
    /// Guards starting and stopping.
    thread: Mutex<Option<JoinHandle>>,
}

#[derive(Default)]
struct Shared {
    /// `None`: it is off, or to end.
    wanted: Mutex<Option<CompactionRequest>>,
    changed: Condvar,
}

impl AutoCompact {
    /// Begins it. Asked again in the same way it goes on; in another way that is an error.
    pub fn enable(&self, os: &Os, catalog: &Arc<Catalog>, wanted: CompactionRequest) -> Result<()> {
        let mut thread = self.thread.lock();
        if let Some(running) = *self.state.wanted.lock() {
            if running == wanted {
                return Ok(());
            }
            return Err(Error::new(
                Code::CONFLICTING_OPERATION_IN_PROGRESS,
                "Cannot change the options of auto compaction while it runs; disable it first",
            ));
        }
        // One that has ended by itself, or was told to.
        if let Some(ended) = thread.take() {
            let _logged_where_it_happened = ended.join();
        }
        *self.state.wanted.lock() = Some(wanted);
        let (shared, catalog) = (Arc::clone(&self.state), Arc::clone(catalog));
        let job = move || {
            shared.compact(&catalog, wanted);
            *shared.wanted.lock() = None;
        };
        match os.spawner.spawn("auto-compact", Box::new(job)) {
            Ok(started) => {
                *thread = Some(started);
                Ok(())
            }
            Err(error) => {
                *self.state.wanted.lock() = None;
                Err(Error::new(Code::INTERNAL_ERROR, format!("no thread to compact in: {error}")))
            }
        }
    }

    /// Ends it, and waits for the unit of work that it is at.
    pub fn disable(&self) {
        let mut thread = self.thread.lock();
        *self.state.wanted.lock() = None;
        self.state.changed.notify_all();
        if let Some(running) = thread.take() {
            let _logged_where_it_happened = running.join();
        }
    }

    /// Whether it is on.
    pub fn is_on(&self) -> bool {
        self.state.wanted.lock().is_some()
    }
}

impl Shared {
    fn compact(&self, catalog: &Catalog, wanted: CompactionRequest) {
        while self.round(catalog, wanted).is_ok() && !wanted.once {
            let mut until = self.wanted.lock();
            if until.is_some() {
                self.changed.wait_for(&mut until, BETWEEN_ROUNDS);
            }
            if until.is_none() {
                return;
            }
        }
    }

    /// Compacts every collection that is worth it. An error is that it was told to end, or one of the
    /// disk, which whoever writes is told.
    fn round(&self, catalog: &Catalog, wanted: CompactionRequest) -> Result<()> {
        for database in catalog.databases() {
            for collection in catalog.collections(&database) {
                if collection.is_view() || collection.is_dropped() {
                    continue;
                }
                let indexes = catalog.stats(&collection).indexes;
                let stored: u64 = indexes.iter().map(|index| index.storage_bytes).sum();
                // No more than all of it can be given back.
                if stored < (wanted.free_space_mb as u64).saturating_mul(1 << 20) {
                    continue;
                }
                let go_on = |_: catalog::ReindexProgress<'_>| match *self.wanted.lock() {
                    Some(_) => Ok(()),
                    None => Err(Error::new(Code::INTERRUPTED, "auto compaction was disabled")),
                };
                let namespace = collection.namespace();
                let done =
                    catalog.rewrite_indexes(namespace, IndexSelector::All, Rewrite::Untidy, &go_on);
                match done.map_err(|error| error.code()) {
                    // Dropped meanwhile.
                    Ok(()) | Err(Code::NAMESPACE_NOT_FOUND) => {}
                    Err(_) => return Err(Error::new(Code::INTERRUPTED, "the round ended early")),
                }
            }
        }
        Ok(())
    }
}
