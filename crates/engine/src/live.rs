//! The transactions that are open now: for operators, and to kill one.

use locktree::Interrupt;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One open transaction, as the registry and the transaction share it.
pub(crate) struct LiveTxn {
    pub(crate) id: u64,
    pub(crate) started: Duration,
    pub(crate) snapshot: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) interrupt: Interrupt,
}

/// One open transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TxnInfo {
    /// Its id.
    pub id: u64,
    /// How long it has been open, in milliseconds.
    pub open_ms: u64,
    /// The snapshot it reads.
    pub snapshot: u64,
    /// Bytes it has written, roughly.
    pub written_bytes: u64,
    /// It was killed and will fail at its next step.
    pub killed: bool,
}

pub(crate) struct LiveTxns {
    clock: Arc<dyn os::Clock>,
    map: Mutex<BTreeMap<u64, Arc<LiveTxn>>>,
}

impl LiveTxns {
    pub(crate) fn new(clock: Arc<dyn os::Clock>) -> Self {
        Self { clock, map: Mutex::default() }
    }

    pub(crate) fn begin(&self, id: u64, snapshot: u64, interrupt: Interrupt) -> Arc<LiveTxn> {
        let live = Arc::new(LiveTxn {
            id,
            started: self.clock.monotonic(),
            snapshot: AtomicU64::new(snapshot),
            written_bytes: AtomicU64::new(0),
            interrupt,
        });
        self.map.lock().insert(id, Arc::clone(&live));
        live
    }

    pub(crate) fn end(&self, id: u64) {
        self.map.lock().remove(&id);
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<LiveTxn>> {
        self.map.lock().get(&id).cloned()
    }

    pub(crate) fn count(&self) -> usize {
        self.map.lock().len()
    }

    pub(crate) fn list(&self) -> Vec<TxnInfo> {
        let now = self.clock.monotonic();
        let map = self.map.lock();
        let info = |live: &Arc<LiveTxn>| TxnInfo {
            id: live.id,
            open_ms: now.saturating_sub(live.started).as_millis() as u64,
            snapshot: live.snapshot.load(Ordering::Relaxed),
            written_bytes: live.written_bytes.load(Ordering::Relaxed),
            killed: live.interrupt.is_set(),
        };
        map.values().map(info).collect()
    }
}
