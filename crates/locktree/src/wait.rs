//! The queues of waiting requests, and the place one request sleeps in.
//!
//! Everything here is guarded by the table's `waits` mutex, except the inside of [`Waiter`].

use crate::shard::{LockId, split};
use crate::{Mode, Range};
use os::Call;
use os::sync::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Bound, Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

/// What a request asks for.
#[derive(Clone)]
pub(crate) enum Target {
    Key(LockId),
    Range(u64, Range),
}

/// A request that waits.
pub(crate) struct Request {
    pub(crate) txn: u64,
    pub(crate) target: Target,
    pub(crate) mode: Mode,
    /// A holder of the shared lock asks for the exclusive one.
    pub(crate) upgrade: bool,
    pub(crate) since: Duration,
    pub(crate) waiter: Arc<Waiter>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitOutcome {
    Waiting,
    Granted,
    Interrupted,
}

/// Where one request sleeps, or who is called for it.
pub(crate) struct Waiter {
    state: Mutex<WaiterState>,
    wake: Condvar,
}

struct WaiterState {
    outcome: WaitOutcome,
    call: Option<Call>,
}

impl Waiter {
    pub(crate) fn new() -> Arc<Self> {
        let state = WaiterState { outcome: WaitOutcome::Waiting, call: None };
        Arc::new(Self { state: Mutex::new(state), wake: Condvar::new() })
    }

    /// The request has come to its end; gives what is to be called, with no lock held.
    #[must_use]
    pub(crate) fn finish(&self, outcome: WaitOutcome) -> Option<Call> {
        debug_assert_ne!(outcome, WaitOutcome::Waiting, "it is an end");
        let mut state = self.state.lock();
        if state.outcome != WaitOutcome::Waiting {
            return None;
        }
        state.outcome = outcome;
        self.wake.notify_one();
        state.call.take()
    }

    /// Has `call` made when the request comes to its end; gives it back where it has.
    #[must_use]
    pub(crate) fn call_when_finished(&self, call: Call) -> Option<Call> {
        let mut state = self.state.lock();
        if state.outcome != WaitOutcome::Waiting {
            return Some(call);
        }
        let before = state.call.replace(call);
        drop(state);
        drop(before);
        None
    }

    pub(crate) fn outcome(&self) -> WaitOutcome {
        self.state.lock().outcome
    }

    /// Sleeps until finished or for `time`.
    pub(crate) fn sleep(&self, time: Duration) -> WaitOutcome {
        let mut state = self.state.lock();
        if state.outcome == WaitOutcome::Waiting {
            let _ = self.wake.wait_for(&mut state, time);
        }
        state.outcome
    }
}

/// The place of a request for which nobody sleeps.
pub(crate) struct Queued {
    pub(crate) number: u64,
    pub(crate) id: LockId,
    pub(crate) mode: Mode,
    pub(crate) since: Duration,
    pub(crate) timeout: Duration,
    pub(crate) waiter: Arc<Waiter>,
}

impl Queued {
    /// When its time is over.
    pub(crate) fn until(&self) -> Duration {
        self.since.saturating_add(self.timeout)
    }
}

/// The queues, locked. Who is to be called for a request that came to its end is, when this is dropped and nothing is
/// locked.
pub(crate) struct LockedWaits<'a>(Option<MutexGuard<'a, Waits>>);

impl<'a> LockedWaits<'a> {
    pub(crate) fn new(waits: &'a Mutex<Waits>) -> Self {
        Self(Some(waits.lock()))
    }
}

impl Deref for LockedWaits<'_> {
    type Target = Waits;
    fn deref(&self) -> &Waits {
        self.0.as_ref().expect("locked until it is dropped")
    }
}

impl DerefMut for LockedWaits<'_> {
    fn deref_mut(&mut self) -> &mut Waits {
        self.0.as_mut().expect("locked until it is dropped")
    }
}

impl Drop for LockedWaits<'_> {
    fn drop(&mut self) {
        let calls = std::mem::take(&mut self.calls);
        self.0 = None;
        for call in calls {
            call();
        }
    }
}

/// A range that is held.
pub(crate) struct HeldRange {
    pub(crate) txn: u64,
    pub(crate) range: Range,
    pub(crate) mode: Mode,
}

/// Every waiting request, in order of arrival, and every held range.
#[derive(Default)]
pub(crate) struct Waits {
    pub(crate) requests: BTreeMap<u64, Request>,
    /// Requests per key, in the order they will be granted.
    pub(crate) queues: BTreeMap<LockId, VecDeque<u64>>,
    /// The one request a transaction waits in.
    pub(crate) by_txn: BTreeMap<u64, u64>,
    pub(crate) ranges: BTreeMap<u64, Vec<HeldRange>>,
    /// Waiting range requests, by dictionary, in order of arrival.
    range_requests: BTreeMap<u64, BTreeSet<u64>>,
    next: u64,
    /// For requests that came to their end.
    calls: Vec<Call>,
}

impl Waits {
    pub(crate) fn add(&mut self, request: Request) -> u64 {
        self.next += 1;
        let number = self.next;
        let waited_in = self.by_txn.insert(request.txn, number);
        debug_assert_eq!(waited_in, None, "a transaction waits in one request");
        match &request.target {
            Target::Key(id) => {
                let queue = self.queues.entry(id.clone()).or_default();
                let upgrades = queue
                    .iter()
                    .take_while(|n| self.requests.get(n).is_some_and(|r| r.upgrade))
                    .count();
                let place = if request.upgrade { upgrades } else { queue.len() };
                queue.insert(place, number);
            }
            Target::Range(dictionary, _) => {
                self.range_requests.entry(*dictionary).or_default().insert(number);
            }
        }
        self.requests.insert(number, request);
        number
    }

    /// A request has come to its end: who goes on with it is woken, or called when the queues are open.
    pub(crate) fn finish(&mut self, waiter: &Waiter, outcome: WaitOutcome) {
        self.calls.extend(waiter.finish(outcome));
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<Request> {
        let request = self.requests.remove(&number)?;
        let waited_in = self.by_txn.remove(&request.txn);
        debug_assert_eq!(waited_in, Some(number), "a transaction waits in one request");
        match &request.target {
            Target::Key(id) => {
                if let Some(queue) = self.queues.get_mut(id) {
                    queue.retain(|n| *n != number);
                    if queue.is_empty() {
                        self.queues.remove(id);
                    }
                }
            }
            Target::Range(dictionary, _) => {
                if let Some(requests) = self.range_requests.get_mut(dictionary) {
                    requests.remove(&number);
                    if requests.is_empty() {
                        self.range_requests.remove(dictionary);
                    }
                }
            }
        }
        Some(request)
    }

    /// The requests for ranges of a dictionary that came before `number`, oldest first.
    pub(crate) fn ranges_before(
        &self,
        number: u64,
        dictionary: u64,
    ) -> impl Iterator<Item = (&Request, &Range)> {
        let earlier = self.range_requests.get(&dictionary).into_iter();
        earlier.flat_map(move |numbers| numbers.range(..number)).filter_map(|number| {
            let request = self.requests.get(number)?;
            match &request.target {
                Target::Range(_, range) => Some((request, range)),
                Target::Key(_) => None,
            }
        })
    }

    /// The queues of a dictionary's keys within a range.
    pub(crate) fn queues_within(
        &self,
        dictionary: u64,
        range: &Range,
    ) -> impl Iterator<Item = (&LockId, &VecDeque<u64>)> {
        let lower = match &range.lower {
            Bound::Included(key) | Bound::Excluded(key) => key.as_slice(),
            Bound::Unbounded => &[],
        };
        // Queues are in the order of dictionaries as they are written, then of keys; whatever the hash.
        let first = LockId::from(&crate::shard::lock_id(0, dictionary, lower).borrow());
        self.queues.range(first..).skip_while(|(id, _)| !range.starts_by(split(id).1)).take_while(
            move |(id, _)| {
                let (other, key) = split(id);
                other == dictionary && range.contains(key)
            },
        )
    }

    /// Every request of a dictionary, oldest first.
    pub(crate) fn of_dictionary(&self, dictionary: u64) -> BTreeSet<u64> {
        let all = Range::all();
        let of_keys = self.queues_within(dictionary, &all).flat_map(|(_, queue)| queue);
        let of_ranges = self.range_requests.get(&dictionary).into_iter().flatten();
        of_keys.chain(of_ranges).copied().collect()
    }

    /// The requests ahead of `number` in its key's queue that it must wait for. Stops at the
    /// first exclusive one: that one waits for all before it.
    pub(crate) fn ahead(&self, number: u64, id: &LockId, mode: Mode) -> (Vec<u64>, bool) {
        let mut blockers = Vec::new();
        let Some(queue) = self.queues.get(id) else { return (blockers, false) };
        let place = queue.iter().position(|n| *n == number).unwrap_or(queue.len());
        for n in queue.iter().take(place).rev() {
            let Some(request) = self.requests.get(n) else { continue };
            if !request.mode.compatible(mode) {
                blockers.push(request.txn);
            }
            if request.mode == Mode::Exclusive {
                return (blockers, true);
            }
        }
        (blockers, false)
    }
}
