//! The transactions that are open now: for operators, and to kill one.

use locktree::Interrupt;
use os::{Padded, STRIPES};
use parking_lot::Mutex;
use smallvec::SmallVec;
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
    pub(crate) writes_unlocked: AtomicBool,
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

/// Ids are handed out in pieces of this many, so that stripes seldom meet over them.
const IDS: u64 = 256;

/// Every open transaction, registered in the stripe it began in.
pub(crate) struct LiveTxns {
    clock: Arc<dyn os::Clock>,
    stripes: Box<[Padded<Mutex<Stripe>>; STRIPES]>,
    /// Ids below this were handed to stripes.
    next: AtomicU64,
    /// Ids below this are not given any more, also by stripes that have some.
    taken: AtomicU64,
}

/// One stripe's transactions, ids ascending.
#[derive(Default)]
struct Stripe {
    open: VecDeque<Arc<LiveTxn>>,
    /// Transactions that have begun here since the start, and those that have ended without a commit.
    begun: u64,
    aborted: u64,
    /// Ids it may still give.
    ids: Range<u64>,
    /// Of transactions that have ended, to be used again once nobody else knows them.
    ended: SmallVec<[Arc<LiveTxn>; MOST_ENDED]>,
}

/// So many a stripe keeps: a thread has mostly one open.
const MOST_ENDED: usize = 2;

impl Stripe {
    /// What is shared of a transaction that begins. One that has ended is used again where nobody knows it any more.
    fn new_live(&mut self, id: u64, started: Duration, snapshot: u64) -> Arc<LiveTxn> {
        let used_again = self.ended.pop().and_then(|mut ended| {
            let live = Arc::get_mut(&mut ended)?;
            live.interrupt.renew(id);
            live.id = id;
            live.started = started;
            *live.snapshot.get_mut() = snapshot;
            *live.written_bytes.get_mut() = 0;
            *live.writes_unlocked.get_mut() = false;
            Some(ended)
        });
        used_again.unwrap_or_else(|| {
            Arc::new(LiveTxn {
                id,
                started,
                snapshot: AtomicU64::new(snapshot),
                written_bytes: AtomicU64::new(0),
                writes_unlocked: AtomicBool::new(false),
                interrupt: Interrupt::new(id),
            })
        })
    }
}

impl LiveTxns {
    pub(crate) fn new(clock: Arc<dyn os::Clock>) -> Self {
        let stripes = Box::new(std::array::from_fn(|_| Padded::default()));
        Self { clock, stripes, next: AtomicU64::new(1), taken: AtomicU64::new(0) }
    }

    /// Registers a transaction under a new id.
    pub(crate) fn begin(&self, stripe: usize, snapshot: u64) -> Arc<LiveTxn> {
        let started = self.clock.monotonic();
        let mut stripe = self.stripes[stripe].lock();
        // A member that follows has begun transactions, and its leader has used the ids that come next.
        stripe.ids.start = stripe.ids.start.max(self.taken.load(Ordering::SeqCst));
        let id = stripe.ids.next().unwrap_or_else(|| {
            let first = self.next.fetch_add(IDS, Ordering::SeqCst);
            stripe.ids = first + 1..first + IDS;
            first
        });
        assert!(id > 0, "transaction 0 is none");
        let last = stripe.open.back().map_or(0, |last| last.id);
        debug_assert!(last < id, "the numbers of a stripe's transactions ascend");
        let live = stripe.new_live(id, started, snapshot);
        stripe.open.push_back(Arc::clone(&live));
        stripe.begun += 1;
        live
    }

    /// An id for something that is no transaction.
    pub(crate) fn new_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn end(&self, stripe: usize, id: u64, is_committed: bool) {
        let mut stripe = self.stripes[stripe].lock();
        stripe.aborted += u64::from(!is_committed);
        let place = stripe.open.binary_search_by_key(&id, |live| live.id);
        debug_assert!(place.is_ok(), "a transaction ends once, in the stripe it began in");
        if let Ok(at) = place
            && let Some(ended) = stripe.open.remove(at)
            && stripe.ended.len() < MOST_ENDED
        {
            stripe.ended.push(ended);
        }
    }

    /// Ids from here on were never given.
    pub(crate) fn next_id(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// Ids below this are taken: who begins from now on gets none of them.
    pub(crate) fn taken_below(&self, next: u64) {
        self.next.fetch_max(next, Ordering::SeqCst);
        self.taken.fetch_max(next, Ordering::SeqCst);
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<LiveTxn>> {
        self.stripes.iter().find_map(|stripe| {
            let stripe = stripe.lock();
            let at = stripe.open.binary_search_by_key(&id, |live| live.id).ok()?;
            stripe.open.get(at).cloned()
        })
    }

    pub(crate) fn has_unlocked_writer(&self) -> bool {
        let is_unlocked = |live: &Arc<LiveTxn>| live.writes_unlocked.load(Ordering::SeqCst);
        self.stripes.iter().any(|stripe| stripe.lock().open.iter().any(is_unlocked))
    }

    pub(crate) fn count(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.lock().open.len()).sum()
    }

    /// How many have begun since the start, and how many of them have ended without a commit.
    pub(crate) fn begun_and_aborted(&self) -> (u64, u64) {
        self.stripes.iter().fold((0, 0), |(begun, aborted), stripe| {
            let stripe = stripe.lock();
            (begun + stripe.begun, aborted + stripe.aborted)
        })
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
        for stripe in self.stripes.iter() {
            all.extend(stripe.lock().open.iter().map(info));
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
    fn every_stripe_is_found_listed_and_ended() {
        let live = LiveTxns::new(os::Os::real().clock);
        live.taken_below(100);
        let open: Vec<_> = [0, 1, 0, 2].map(|stripe| (stripe, live.begin(stripe, 7).id)).to_vec();
        let mut ids: Vec<u64> = open.iter().map(|(_, id)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), ids[0]), (4, 100));
        assert_eq!(live.list().iter().map(|info| info.id).collect::<Vec<_>>(), ids);
        assert!(ids.iter().all(|id| live.find(*id).is_some() && *id < live.next_id()));
        let (stripe, first) = open[0];
        live.end(stripe, first, true);
        assert!(live.find(first).is_none());
        assert_eq!(live.count(), 3);
    }

    #[test]
    fn what_is_used_again_is_as_new_and_who_kept_it_kills_nobody_else() {
        let live = LiveTxns::new(os::Os::real().clock);
        let first = live.begin(0, 7);
        let (kept, killed) = (first.interrupt.clone(), Arc::as_ptr(&first));
        first.written_bytes.store(5, Ordering::Relaxed);
        first.writes_unlocked.store(true, Ordering::Relaxed);
        live.end(0, first.id, true);
        let known = live.begin(0, 8);
        assert_ne!(Arc::as_ptr(&known), killed, "its transaction still has it");
        live.end(0, known.id, true);
        drop((first, known));
        let second = live.begin(0, 9);
        assert!(second.id > kept.txn() && second.interrupt.txn() == second.id);
        assert_eq!(second.snapshot.load(Ordering::Relaxed), 9);
        assert_eq!(second.written_bytes.load(Ordering::Relaxed), 0);
        assert!(!second.writes_unlocked.load(Ordering::Relaxed));
        let locks = locktree::LockTable::new(os::Os::real().clock, locktree::Options::default());
        locks.interrupt(&kept);
        assert!(kept.is_set() && !second.interrupt.is_set());
        locks.interrupt(&second.interrupt);
        let killed = Arc::as_ptr(&second);
        live.end(0, second.id, false);
        drop(second);
        let third = live.begin(0, 9);
        assert_eq!(Arc::as_ptr(&third), killed, "nobody knows it any more");
        assert!(!third.interrupt.is_set());
        assert_eq!(live.count(), 1);
    }

    #[test]
    fn ids_that_are_taken_are_not_given_though_a_stripe_has_them() {
        let live = LiveTxns::new(os::Os::real().clock);
        let first = live.begin(0, 7).id;
        live.taken_below(first + 5);
        assert_eq!(live.begin(0, 7).id, first + 5);
        live.taken_below(first + 3);
        assert_eq!(live.begin(0, 7).id, first + 6, "as many were taken before");
        live.taken_below(first + 2 * IDS);
        assert_eq!(live.begin(0, 7).id, first + 2 * IDS, "it has none left");
        assert!(live.begin(1, 7).id > first + 2 * IDS);
    }
}
