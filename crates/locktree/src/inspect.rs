//! What is locked and who waits, for `showLiveTransactions`, `currentOp` and statistics.

use crate::shard;
use crate::table::LockTable;
use crate::wait::{Request, Target, Waits};
use crate::{Error, Mode, Range};
use os::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// See [`LockTable::on_refusal`].
pub(crate) type RefusalHook = Box<dyn Fn(&Refusal) + Send + Sync>;

/// One lock that is held or waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// The transaction.
    pub txn: u64,
    /// The dictionary.
    pub dictionary: u64,
    /// The key, where it is a key lock.
    pub key: Option<Vec<u8>>,
    /// The range, where it is a range lock.
    pub range: Option<Range>,
    /// The mode held or asked for.
    pub mode: Mode,
    /// `None` where it is held; else how long the request has waited, in milliseconds.
    pub waiting_ms: Option<u64>,
    /// The transactions in its way.
    pub blockers: Vec<u64>,
}

/// A request that was not granted, as the table was when it gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What it asked for, how long it waited, and who was in its way.
    pub request: LockInfo,
    /// Waiting would have closed a cycle; else its time was up.
    pub is_deadlock: bool,
}

/// Counters since the table was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests that had to wait.
    pub waits: u64,
    /// Requests that ran out of time.
    pub timeouts: u64,
    /// Requests refused because they would close a cycle.
    pub deadlocks: u64,
    /// Times a transaction's key locks became a dictionary lock.
    pub escalations: u64,
    /// Milliseconds spent waiting, by all.
    pub waited_ms: u64,
    /// Requests that waited for more than a second.
    pub long_waits: u64,
    /// Milliseconds these waited.
    pub long_waited_ms: u64,
    /// Bytes of lock memory now.
    pub bytes: u64,
    /// The limit on them.
    pub max_bytes: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) waits: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) deadlocks: AtomicU64,
    pub(crate) escalations: AtomicU64,
    pub(crate) waited_ms: AtomicU64,
    pub(crate) long_waits: AtomicU64,
    pub(crate) long_waited_ms: AtomicU64,
}

impl LockTable {
    /// Counters and sizes.
    pub fn stats(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            waits: get(&self.counters.waits),
            timeouts: get(&self.counters.timeouts),
            deadlocks: get(&self.counters.deadlocks),
            escalations: get(&self.counters.escalations),
            waited_ms: get(&self.counters.waited_ms),
            long_waits: get(&self.counters.long_waits),
            long_waited_ms: get(&self.counters.long_waited_ms),
            bytes: self.bytes(),
            max_bytes: self.options.max_bytes,
        }
    }

    /// Every request that waits, oldest first, with who is in its way.
    pub fn waiting(&self) -> Vec<LockInfo> {
        let waits = self.waits.lock();
        let now = self.clock.monotonic();
        let describe =
            |(number, request): (&u64, &Request)| self.describe(&waits, *number, request, now);
        waits.requests.iter().map(describe).collect()
    }

    fn describe(&self, waits: &Waits, number: u64, request: &Request, now: Duration) -> LockInfo {
        let (dictionary, key, range) = match &request.target {
            Target::Key(id) => {
                let (dictionary, key) = shard::split(id);
                (dictionary, Some(key.to_vec()), None)
            }
            Target::Range(dictionary, range) => (*dictionary, None, Some(range.clone())),
        };
        LockInfo {
            txn: request.txn,
            dictionary,
            key,
            range,
            mode: request.mode,
            waiting_ms: Some(now.saturating_sub(request.since).as_millis() as u64),
            blockers: self.blockers(waits, number),
        }
    }

    /// From now on `tell` hears of every request that is refused, on the thread that asked; it
    /// may look at the table. Only the first call counts.
    pub fn on_refusal(&self, tell: impl Fn(&Refusal) + Send + Sync + 'static) {
        // Whoever comes second is told nothing, as documented.
        let _first = self.on_refusal.set(Box::new(tell));
    }

    /// What [`LockTable::on_refusal`] is to hear of a request that is about to leave its queue.
    pub(crate) fn refusal(&self, waits: &Waits, number: u64, error: &Error) -> Option<Refusal> {
        self.on_refusal.get()?;
        let is_deadlock = match error {
            Error::Deadlock { .. } => true,
            Error::Timeout { .. } => false,
            _ => return None,
        };
        let request = waits.requests.get(&number)?;
        let request = self.describe(waits, number, request, self.clock.monotonic());
        Some(Refusal { request, is_deadlock })
    }

    /// Called where no lock of the table is held.
    pub(crate) fn tell(&self, refusal: Option<Refusal>) {
        if let (Some(tell), Some(refusal)) = (self.on_refusal.get(), refusal) {
            tell(&refusal);
        }
    }

    /// Up to `limit` locks that are held: ranges first, then keys in no order.
    pub fn held(&self, limit: usize) -> Vec<LockInfo> {
        let mut found: Vec<LockInfo> = Vec::new();
        for (dictionary, ranges) in &self.waits.lock().ranges {
            for held in ranges.iter().take(limit.saturating_sub(found.len())) {
                found.push(info(held.txn, *dictionary, None, Some(held.range.clone()), held.mode));
            }
        }
        for shard in &self.shards {
            let shard = shard.lock();
            for (id, entry) in &shard.entries {
                for holder in &entry.holders {
                    if found.len() >= limit {
                        return found;
                    }
                    let (dictionary, key) = shard::split(id);
                    found.push(info(holder.txn, dictionary, Some(key.to_vec()), None, holder.mode));
                }
            }
        }
        found.truncate(limit);
        found
    }
}

fn info(
    txn: u64,
    dictionary: u64,
    key: Option<Vec<u8>>,
    range: Option<Range>,
    mode: Mode,
) -> LockInfo {
    LockInfo { txn, dictionary, key, range, mode, waiting_ms: None, blockers: Vec::new() }
}
