//! A transaction as the lock table sees it: an id, the names it holds, a kill switch.

use crate::shard::Name;
use crate::table::LockTable;
use crate::{Mode, Range};
use os::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Kills the waiting of one transaction from another thread.
#[derive(Clone, Debug)]
pub struct Interrupt {
    pub(crate) txn: u64,
    pub(crate) flag: Arc<AtomicBool>,
}

impl Interrupt {
    /// Whether the transaction has been killed.
    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::SeqCst)
    }

    /// The transaction's id.
    pub fn txn(&self) -> u64 {
        self.txn
    }
}

/// The locks of one transaction. Dropping it opens them as an abort does.
pub struct Owner {
    pub(crate) txn: u64,
    pub(crate) held: Vec<Name>,
    /// Ranges held, for coverage checks without asking the table.
    pub(crate) ranges: Vec<(u64, Range, Mode)>,
    /// Dictionaries whose key locks became one dictionary lock.
    pub(crate) escalated: BTreeSet<u64>,
    pub(crate) bytes: u64,
    /// The size at which escalation is tried next.
    pub(crate) escalate_at: u64,
    pub(crate) interrupt: Interrupt,
    pub(crate) table: Arc<LockTable>,
}

impl Owner {
    /// The transaction's id.
    pub fn txn(&self) -> u64 {
        self.txn
    }

    /// A handle that kills this transaction's waiting, now and later.
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// How many key locks it holds.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Bytes of lock memory it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Opens every lock. With `commit`, the timestamp is remembered on each key: pass it only
    /// while a snapshot older than it lives.
    pub fn release(mut self, commit: Option<u64>) {
        self.release_all(commit);
    }

    pub(crate) fn covers(&self, dictionary: u64, key: &[u8], mode: Mode) -> bool {
        self.ranges
            .iter()
            .any(|(d, range, m)| *d == dictionary && *m >= mode && range.contains(key))
    }

    fn release_all(&mut self, commit: Option<u64>) {
        if !self.held.is_empty() || !self.ranges.is_empty() {
            let table = Arc::clone(&self.table);
            table.release(self, commit);
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.release_all(None);
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owner")
            .field("txn", &self.txn)
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}
