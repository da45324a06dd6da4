//! A transaction as the lock table sees it: an id, the ids of the locks it holds, a kill switch.

use crate::shard::LockId;
use crate::table::LockTable;
use crate::wait::Queued;
use crate::{Granted, Mode, Range};
use os::sync::atomic::{AtomicBool, Ordering};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

/// Kills the waiting of one transaction from another thread.
#[derive(Clone, Debug)]
pub struct Interrupt {
    txn: u64,
    pub(crate) flag: Arc<AtomicBool>,
}

impl Interrupt {
    /// For a transaction that has not been killed. Ids must be unique among those alive.
    pub fn new(txn: u64) -> Self {
        Self { txn, flag: Arc::new(AtomicBool::new(false)) }
    }

    /// For another transaction, in the place of one that is over. Whoever still kills that one does not kill this.
    pub fn renew(&mut self, txn: u64) {
        match Arc::get_mut(&mut self.flag) {
            Some(flag) => *flag = AtomicBool::new(false),
            None => self.flag = Arc::new(AtomicBool::new(false)),
        }
        self.txn = txn;
    }

    /// Whether the transaction has been killed.
    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::SeqCst)
    }

    /// The transaction's id.
    pub fn txn(&self) -> u64 {
        self.txn
    }
}

/// The locks of one transaction.
pub struct Locks {
    pub(crate) txn: u64,
    /// Most transactions hold one.
    pub(crate) held: SmallVec<[KeyLock; 1]>,
    /// Ranges held, by dictionary, for coverage checks without asking the table.
    pub(crate) ranges: BTreeMap<u64, Vec<(Range, Mode)>>,
    /// Dictionaries whose key locks became one dictionary lock.
    pub(crate) escalated: BTreeSet<u64>,
    pub(crate) bytes: u64,
    /// The size at which escalation is tried next.
    pub(crate) escalate_at: u64,
    pub(crate) interrupt: Interrupt,
    /// The request that it has in a queue while nobody sleeps.
    pub(crate) queued: Option<Box<Queued>>,
}

/// One key lock.
pub(crate) struct KeyLock {
    pub(crate) id: LockId,
    /// The mode it was first granted in.
    pub(crate) mode: Mode,
    /// What was known of the key then. While the lock is held nobody commits on the key, so it
    /// stays all there is to know.
    pub(crate) granted: Granted,
}

impl Locks {
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

    /// Whether it holds no key and no range.
    pub fn holds_nothing(&self) -> bool {
        self.held.is_empty() && self.ranges.is_empty()
    }

    /// Until when the request waits that it has in a queue.
    pub fn waits_until(&self) -> Option<Duration> {
        self.queued.as_ref().map(|queued| queued.until())
    }

    /// Whether it has a request in a queue ([`LockTable::acquire_or_queue`]).
    pub fn is_queued(&self) -> bool {
        self.queued.is_some()
    }

    /// Statements lock a key and then use it: what the last key lock says of this id.
    #[inline]
    pub(crate) fn last(&self, dictionary: u64, key: &[u8], mode: Mode) -> Option<Granted> {
        let last = self.held.last()?;
        (last.mode >= mode && last.id.is_of(dictionary, key)).then_some(last.granted)
    }

    /// Whether this id was the last key that it locked. It may hold keys of which this says no.
    pub fn has_just_locked(&self, dictionary: u64, key: &[u8], mode: Mode) -> bool {
        self.last(dictionary, key, mode).is_some()
    }

    pub(crate) fn covers(&self, dictionary: u64, key: &[u8], mode: Mode) -> bool {
        let mut held = self.ranges.get(&dictionary).into_iter().flatten();
        held.any(|(range, m)| *m >= mode && range.contains(key))
    }

    pub(crate) fn covers_range(&self, dictionary: u64, wanted: &Range, mode: Mode) -> bool {
        let mut held = self.ranges.get(&dictionary).into_iter().flatten();
        held.any(|(range, m)| *m >= mode && range.covers(wanted))
    }
}

/// A transaction's locks and its way to the table. Dropping it opens them as an abort does.
///
/// `T` is how it reaches the table: an `Arc` of it, or of something that has it.
pub struct Owner<T: Deref<Target = LockTable> = Arc<LockTable>> {
    locks: Locks,
    table: T,
}

impl<T: Deref<Target = LockTable>> Owner<T> {
    /// A transaction without locks.
    pub fn new(table: T, interrupt: Interrupt) -> Self {
        let locks = Locks {
            txn: interrupt.txn,
            held: SmallVec::new(),
            ranges: BTreeMap::new(),
            escalated: BTreeSet::new(),
            bytes: 0,
            escalate_at: 0,
            interrupt,
            queued: None,
        };
        Self { locks, table }
    }

    /// Opens every lock. With `commit`, the timestamp is remembered on each key: pass it only
    /// while a snapshot older than it lives.
    pub fn release(mut self, commit: Option<u64>) {
        self.release_in_place(commit);
    }

    /// As [`Owner::release`], of one that stays where it is, as it is large. It holds nothing any more.
    pub fn release_in_place(&mut self, commit: Option<u64>) {
        self.table.release(&mut self.locks, commit);
    }
}

impl<T: Deref<Target = LockTable>> Deref for Owner<T> {
    type Target = Locks;
    fn deref(&self) -> &Locks {
        &self.locks
    }
}

impl<T: Deref<Target = LockTable>> DerefMut for Owner<T> {
    fn deref_mut(&mut self) -> &mut Locks {
        &mut self.locks
    }
}

impl<T: Deref<Target = LockTable>> Drop for Owner<T> {
    fn drop(&mut self) {
        self.table.release(&mut self.locks, None);
    }
}

impl std::fmt::Debug for Locks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Locks")
            .field("txn", &self.txn)
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}
