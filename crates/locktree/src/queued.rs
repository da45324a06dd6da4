//! Requests that stay in their queues while nobody sleeps: whoever asked does something else, and is called when the
//! request was granted or is to be looked at.
//!
//! Always true: an owner has at most one, and held nothing else when it asked; what was granted to it is held from its
//! next call on, and opens with it; who asks for another key gives the place up.

use crate::owner::{KeyLock, Locks};
use crate::shard::{self, Fast, LockId};
use crate::table::LockTable;
use crate::wait::{Queued, Target, WaitOutcome, Waiter};
use crate::{Error, Granted, Mode};
use os::Call;
use std::time::Duration;

impl LockTable {
    /// As [`LockTable::acquire`], of an owner that holds nothing yet. Where somebody has to be waited for, the request
    /// stays in its queue and it is `None`: asked again, it goes on with that.
    ///
    /// # Errors
    /// As there; [`Error::Timeout`] where it is asked again and `timeout` is over.
    pub fn acquire_or_queue(
        &self,
        owner: &mut Locks,
        dictionary: u64,
        key: &[u8],
        mode: Mode,
        timeout: Duration,
    ) -> Result<Option<Granted>, Error> {
        self.hold_granted(owner);
        if let Some(queued) = owner.queued.take() {
            if queued.mode == mode && queued.id.is_of(dictionary, key) {
                return self.look_at(owner, queued);
            }
            owner.queued = Some(queued);
            self.leave_queue(owner);
        }
        if let Some(granted) = owner.last(dictionary, key, mode) {
            return Ok(Some(self.with_escalated(dictionary, granted)));
        }
        if !owner.holds_nothing() {
            // Another key was granted to it before it asked for this one.
            self.release(owner, None);
        }
        let id = shard::lock_id(self.options.seed, dictionary, key);
        let id = id.borrow();
        if let Fast::Granted(granted, new) = self.grant_at_once(owner, dictionary, id, mode) {
            self.note_granted(owner, new, (mode, granted), timeout)?;
            return Ok(Some(self.with_escalated(dictionary, granted)));
        }
        debug_assert!(owner.holds_nothing(), "who waits for its first lock holds none");
        let known = self.shard(id).lock().entries.get_key_value(&id).map(|(id, _)| id.clone());
        let id = known.unwrap_or_else(|| LockId::from(&id));
        let (since, waiter) = (self.clock.monotonic(), Waiter::new());
        let target = Target::Key(id.clone());
        match self.enqueue(owner, target, mode, false, timeout, (since, &waiter))? {
            None => self.hold(owner, id, mode, timeout).map(Some),
            Some(number) => {
                let queued = Queued { number, id, mode, since, timeout, waiter };
                owner.queued = Some(Box::new(queued));
                Ok(None)
            }
        }
    }

    /// Has `call` made when the request in which an owner waits was granted, or is to be looked at; at once where that
    /// is so by now. It may be made without a reason, and takes the place of the last one.
    pub fn call_when_settled(&self, owner: &Locks, call: Call) {
        let call = match &owner.queued {
            Some(queued) => queued.waiter.call_when_finished(call),
            None => Some(call),
        };
        if let Some(call) = call {
            call();
        }
    }

    /// What was granted while nobody looked is held from now on.
    pub(crate) fn hold_granted(&self, owner: &mut Locks) {
        let is_granted = |queued: &mut Box<Queued>| queued.waiter.outcome() == WaitOutcome::Granted;
        if let Some(queued) = owner.queued.take_if(is_granted) {
            self.count_wait(queued.since);
            self.add_held(owner, queued.id, queued.mode);
        }
    }

    /// Gives up the place in the queue; what was granted meanwhile is held.
    #[cold]
    pub(crate) fn leave_queue(&self, owner: &mut Locks) {
        let Some(queued) = owner.queued.take() else { return };
        self.count_wait(queued.since);
        let mut waits = self.lock_waits();
        if waits.requests.contains_key(&queued.number) {
            self.leave(&mut waits, queued.number);
            return;
        }
        drop(waits);
        self.add_held(owner, queued.id, queued.mode);
    }

    /// A request that waits is asked for again: it waits on, ends, or has just been granted.
    fn look_at(&self, owner: &mut Locks, queued: Box<Queued>) -> Result<Option<Granted>, Error> {
        debug_assert!(owner.queued.is_none(), "an owner waits in one request");
        let waited = self.clock.monotonic().saturating_sub(queued.since);
        let ends = owner.interrupt.is_set() || !self.may_go_on_waiting();
        if ends {
            // Nobody is to be called for that: who asks hears of it.
            drop(queued.waiter.finish(WaitOutcome::Interrupted));
        } else if waited < queued.timeout && queued.waiter.outcome() == WaitOutcome::Waiting {
            owner.queued = Some(queued);
            return Ok(None);
        }
        let waited = self.count_wait(queued.since);
        let Queued { number, id, mode, timeout, waiter, .. } = *queued;
        self.settle(number, &waiter, waiter.outcome(), waited)?;
        self.hold(owner, id, mode, timeout).map(Some)
    }

    /// A key that was granted out of its queue is held, within the memory that there is for locks.
    fn hold(
        &self,
        owner: &mut Locks,
        id: LockId,
        mode: Mode,
        timeout: Duration,
    ) -> Result<Granted, Error> {
        let dictionary = shard::split(&id).0;
        let granted = self.add_held(owner, id, mode);
        self.within_memory(owner, timeout)?;
        Ok(self.with_escalated(dictionary, granted))
    }

    fn add_held(&self, owner: &mut Locks, id: LockId, mode: Mode) -> Granted {
        let size = shard::cost(&id);
        let mut shard = self.shard(id.borrow()).lock();
        let granted = shard.known(id.borrow());
        debug_assert_eq!(
            shard.entries.get(&id.borrow()).and_then(|entry| entry.held_by(owner.txn)),
            Some(mode),
            "what left its queue was granted"
        );
        self.take_bytes(&mut shard, size as i64);
        drop(shard);
        debug_assert!(owner.held.iter().all(|held| held.id != id), "a key is held once");
        owner.bytes += size;
        owner.held.push(KeyLock { id, mode, granted });
        granted
    }
}
