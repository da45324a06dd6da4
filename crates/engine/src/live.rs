//! The transactions that are open now: for operators, and to kill one.

use locktree::Interrupt;
use os::{LANES, Padded};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// One open transaction, as the registry and the transaction share it.
pub(crate) struct LiveTxn {
    pub(crate) id: u64,
    pub(crate) started: Duration,
    pub(crate) snapshot: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    /// It has written without a lock that a range would meet.
    pub(crate) bare: AtomicBool,
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

/// Ids are handed out in pieces of this many, so that lanes seldom meet over them.
const IDS: u64 = 256;

/// Every open transaction, registered in the lane it began in.
pub(crate) struct LiveTxns {
    clock: Arc<dyn os::Clock>,
    lanes: Box<[Padded<Mutex<Lane>>; LANES]>,
    /// Ids below this were handed to lanes.
    next: AtomicU64,
}

/// One lane's transactions, ids ascending.
#[derive(Default)]
struct Lane {
    open: VecDeque<Arc<LiveTxn>>,
    /// Ids it may still give.
    ids: Range<u64>,
}

impl LiveTxns {
    pub(crate) fn new(clock: Arc<dyn os::Clock>) -> Self {
        let lanes = Box::new(std::array::from_fn(|_| Padded::default()));
        Self { clock, lanes, next: AtomicU64::new(1) }
    }

    /// Registers a transaction under a new id.
    pub(crate) fn begin(&self, lane: usize, snapshot: u64) -> Arc<LiveTxn> {
        let started = self.clock.monotonic();
        let mut lane = self.lanes[lane].lock();
        let id = lane.ids.next().unwrap_or_else(|| {
            let first = self.next.fetch_add(IDS, Ordering::SeqCst);
            lane.ids = first + 1..first + IDS;
            first
        });
        assert!(id > 0, "transaction 0 is none");
        let last = lane.open.back().map_or(0, |last| last.id);
        debug_assert!(last < id, "the numbers of a lane's transactions ascend");
        let live = Arc::new(LiveTxn {
            id,
            started,
            snapshot: AtomicU64::new(snapshot),
            written_bytes: AtomicU64::new(0),
            bare: AtomicBool::new(false),
            interrupt: Interrupt::new(id),
        });
        lane.open.push_back(Arc::clone(&live));
        live
    }

    /// An id for something that is no transaction.
    pub(crate) fn new_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn end(&self, lane: usize, id: u64) {
        let mut lane = self.lanes[lane].lock();
        let place = lane.open.binary_search_by_key(&id, |live| live.id);
        debug_assert!(place.is_ok(), "a transaction ends once, in the lane it began in");
        if let Ok(at) = place {
            lane.open.remove(at);
        }
    }

    /// Ids from here on were never given.
    pub(crate) fn next_id(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// Ids below this are taken. Before the first transaction begins.
    pub(crate) fn taken_below(&self, next: u64) {
        self.next.fetch_max(next, Ordering::SeqCst);
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<LiveTxn>> {
        self.lanes.iter().find_map(|lane| {
            let lane = lane.lock();
            let at = lane.open.binary_search_by_key(&id, |live| live.id).ok()?;
            lane.open.get(at).cloned()
        })
    }

    pub(crate) fn has_bare_writer(&self) -> bool {
        let is_bare = |live: &Arc<LiveTxn>| live.bare.load(Ordering::SeqCst);
        self.lanes.iter().any(|lane| lane.lock().open.iter().any(is_bare))
    }

    pub(crate) fn count(&self) -> usize {
        self.lanes.iter().map(|lane| lane.lock().open.len()).sum()
    }

    /// Ids ascending.
    pub(crate) fn list(&self) -> Vec<TxnInfo> {
        let now = self.clock.monotonic();
        let info = |live: &Arc<LiveTxn>| TxnInfo {
            id: live.id,
            open_ms: now.saturating_sub(live.started).as_millis() as u64,
            snapshot: live.snapshot.load(Ordering::Relaxed),
            written_bytes: live.written_bytes.load(Ordering::Relaxed),
            killed: live.interrupt.is_set(),
        };
        let mut all = Vec::new();
        for lane in self.lanes.iter() {
            all.extend(lane.lock().open.iter().map(info));
        }
        all.sort_unstable_by_key(|info| info.id);
        all
    }
}

/// The serializable transactions that live.
#[derive(Default)]
pub(crate) struct Serializable(AtomicUsize);

impl Serializable {
    /// Whether covered writes must lock, too.
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn enter(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        let before = self.0.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "a serializable transaction ends once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_is_found_listed_and_ended() {
        let live = LiveTxns::new(os::Os::real().clock);
        live.taken_below(100);
        let open: Vec<_> = [0, 1, 0, 2].map(|lane| (lane, live.begin(lane, 7).id)).to_vec();
        let mut ids: Vec<u64> = open.iter().map(|(_, id)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), ids[0]), (4, 100));
        assert_eq!(live.list().iter().map(|info| info.id).collect::<Vec<_>>(), ids);
        assert!(ids.iter().all(|id| live.find(*id).is_some() && *id < live.next_id()));
        let (lane, first) = open[0];
        live.end(lane, first);
        assert!(live.find(first).is_none());
        assert_eq!(live.count(), 3);
    }
}
