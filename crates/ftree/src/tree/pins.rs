//! Where readers find the tree's current state, without meeting each other.
//!
//! A tree that is little used has one place for all threads, because idle trees are many. Used often it
//! gets slots, one for each stripe: each holds its own counted handle on the state, so that
//! threads in different slots share no cache line that anybody writes. Swapping the state writes every
//! slot; a reader holds a slot's lock only to copy the handle.
//!
//! Slots are swapped one after the other, so for a moment threads see different states. That is
//! right for reads as long as nothing is inserted that only the new state shows: writers wait
//! until the new state is *installed*, in every slot.
//!
//! Always true: `one` is locked while slots are made or swapped, and holds the newest state that any
//! slot shows.

use super::State;
use cachetable::{CacheTable, MemoryKind, Reservation};
use os::Padded;
use os::sync::RwLock;
use os::sync::atomic::{AtomicU32, Ordering};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

const SLOTS: usize = 8;

/// Uses after which a tree gets slots. What is used less pays nothing for them: a use costs about as much
/// as one thread waiting for another's cache line a few times.
const MANY_USES: u32 = 1024;

/// What the slots of a tree take, with the allocator's rounding.
const SLOTS_BYTES: u64 = (SLOTS * (size_of::<Slot>() + 2 * size_of::<Padded<Arc<State>>>())) as u64;

/// The slots of all trees together take at most one part in so many of the cache's bound.
const SLOTS_SHARE: u64 = 64;

type Slot = Padded<RwLock<Handle>>;

/// Padded as well: the counts of two small allocations can lie on one cache line.
type Handle = Arc<Padded<Arc<State>>>;

/// A pinned state.
pub(crate) enum Pin {
    One(Arc<State>),
    Slot(Handle),
}

impl Deref for Pin {
    type Target = State;
    fn deref(&self) -> &State {
        match self {
            Self::One(state) => state,
            Self::Slot(handle) => &handle.0,
        }
    }
}

pub(super) struct Pins {
    one: RwLock<Arc<State>>,
    uses: AtomicU32,
    slots: OnceLock<(Box<[Slot; SLOTS]>, Reservation)>,
    cache: Arc<CacheTable>,
}

impl Pins {
    pub(super) fn new(state: &Arc<State>, cache: &Arc<CacheTable>) -> Self {
        state.installed.store(true, Ordering::Release);
        Self {
            one: RwLock::new(Arc::clone(state)),
            uses: AtomicU32::new(0),
            slots: OnceLock::new(),
            cache: Arc::clone(cache),
        }
    }

    /// The state as of now, for a read or an insert.
    pub(super) fn pin(&self) -> Pin {
        let Some((slots, _)) = self.slots.get() else { return self.pin_one() };
        Pin::Slot(Arc::clone(&slots[os::stripe() % SLOTS].0.read()))
    }

    fn pin_one(&self) -> Pin {
        if self.uses.fetch_add(1, Ordering::Relaxed) >= MANY_USES {
            self.make_slots();
        }
        Pin::One(self.pin_state())
    }

    /// The state itself, to be kept: for cursors and images. Does not count as a use.
    pub(super) fn pin_state(&self) -> Arc<State> {
        match self.slots.get() {
            Some((slots, _)) => Arc::clone(&slots[os::stripe() % SLOTS].0.read().0),
            None => Arc::clone(&self.one.read()),
        }
    }

    #[cold]
    fn make_slots(&self) {
        self.uses.store(0, Ordering::Relaxed);
        let taken = self.cache.held(MemoryKind::Slots);
        if taken + SLOTS_BYTES > self.cache.capacity() / SLOTS_SHARE {
            return;
        }
        let state = self.one.write();
        let slot = |_| Padded(RwLock::new(handle(&state)));
        self.slots.get_or_init(|| {
            (
                Box::new(std::array::from_fn(slot)),
                self.cache.reserve(MemoryKind::Slots, SLOTS_BYTES),
            )
        });
    }

    /// Swaps the state. The caller holds the publish lock.
    pub(super) fn publish(&self, state: &Arc<State>) {
        let mut one = self.one.write();
        let old = std::mem::replace(&mut *one, Arc::clone(state));
        for slot in self.slots.get().iter().flat_map(|(slots, _)| slots.iter()) {
            // What the old state kept alive goes below, outside of every lock.
            *slot.0.write() = handle(state);
        }
        state.installed.store(true, Ordering::Release);
        drop(one);
        drop(old);
    }
}

fn handle(state: &Arc<State>) -> Handle {
    Arc::new(Padded(Arc::clone(state)))
}
