//! Where readers find the tree's current state, without meeting each other.
//!
//! Slots are swapped one after the other, so for a moment threads see different states. That is
//! right for reads as long as nothing is inserted that only the new state shows: writers wait
//! until the new state is *settled*, in every slot.
//!
//! Each slot holds its own counted handle on the state, so that threads in different slots share
//! no cache line that anybody writes. Swapping the state writes every slot; a reader holds a
//! slot's lock only to copy the handle.

use super::State;
use os::Padded;
use os::sync::RwLock;
use os::sync::atomic::Ordering;
use std::ops::Deref;
use std::sync::Arc;

const SLOTS: usize = 8;

type Slot = Padded<RwLock<Handle>>;

/// Padded as well: the counts of two small allocations can lie on one cache line.
type Handle = Arc<Padded<Arc<State>>>;

/// A pinned state.
pub(crate) struct Pin(Handle);

impl Deref for Pin {
    type Target = State;
    fn deref(&self) -> &State {
        &self.0.0
    }
}

pub(super) struct Pins {
    slots: Box<[Slot; SLOTS]>,
}

impl Pins {
    pub(super) fn new(state: &Arc<State>) -> Self {
        state.settled.store(true, Ordering::Release);
        let slot = |_| Padded(RwLock::new(handle(state)));
        Self { slots: Box::new(std::array::from_fn(slot)) }
    }

    /// The state as of now.
    pub(super) fn pin(&self) -> Pin {
        Pin(Arc::clone(&self.slots[os::lane() % SLOTS].0.read()))
    }

    /// The state itself, to be kept: for cursors and images.
    pub(super) fn pin_state(&self) -> Arc<State> {
        Arc::clone(&self.pin().0.0)
    }

    /// Swaps the state. The caller holds the publish lock.
    pub(super) fn publish(&self, state: &Arc<State>) {
        for slot in self.slots.iter() {
            let old = std::mem::replace(&mut *slot.0.write(), handle(state));
            // What the old state kept alive goes outside the lock.
            drop(old);
        }
        state.settled.store(true, Ordering::Release);
    }
}

fn handle(state: &Arc<State>) -> Handle {
    Arc::new(Padded(Arc::clone(state)))
}
