//! The memory of a thread's JavaScript: charged to the server's clients.
//!
//! Always true: what the engine holds beyond some KiB is charged to `Part::Scripts` before it is
//! allocated. Where there is no room the code gets JavaScript's "out of memory", and its operation the
//! account's error.

use errors::{Error, Result};
use limits::{Growth, Part};
use rquickjs::allocator::{Allocator, RustAllocator};
use std::cell::RefCell;
use std::ptr;

/// What an engine holds before its first script, rounded up. It is charged before there is an
/// engine, and as long as there is one: `QuickJS` cannot handle a failed allocation while it starts.
pub(crate) const EMPTY_BYTES: usize = 128 << 10;

thread_local! {
    /// Why memory was refused last, until the operation is told.
    static REFUSED: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// Why memory was refused since it was last asked.
pub(crate) fn take_refusal() -> Option<Error> {
    REFUSED.take()
}

/// The usual allocator, counted.
pub(crate) struct Heap {
    growth: Growth,
    bytes: usize,
    /// What is charged at least.
    charged: usize,
}

impl Heap {
    /// Fails with `ExceededMemoryLimit` (146) where there is no room for an engine.
    pub(crate) fn new() -> Result<Self> {
        let mut growth = Growth::new(Part::Scripts);
        growth.reach(EMPTY_BYTES)?;
        Ok(Self { growth, bytes: 0, charged: EMPTY_BYTES })
    }

    /// Whether there is room for `more` bytes.
    fn has_room(&mut self, more: usize) -> bool {
        let bytes = self.bytes.saturating_add(more);
        #[cfg(test)]
        if bytes > EMPTY_BYTES && planted::refuses() {
            return false;
        }
        match self.growth.reach(bytes) {
            Ok(()) => true,
            Err(error) => {
                REFUSED.set(Some(error));
                false
            }
        }
    }

    fn took(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.charged = self.charged.max(self.bytes);
    }

    fn gave(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        let needed = self.bytes.max(EMPTY_BYTES);
        if needed < self.charged / 2 {
            self.growth.shrink(needed);
            self.charged = needed;
        }
    }

    fn counted(&mut self, made: *mut u8) -> *mut u8 {
        if !made.is_null() {
            // SAFETY: the allocator has just made it.
            self.took(unsafe { RustAllocator::usable_size(made) });
        }
        made
    }
}

// SAFETY: every call is the other allocator's, or a null pointer where there is no room.
unsafe impl Allocator for Heap {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        if !self.has_room(size) {
            return ptr::null_mut();
        }
        let made = RustAllocator.alloc(size);
        self.counted(made)
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        let Some(bytes) = count.checked_mul(size) else { return ptr::null_mut() };
        if !self.has_room(bytes) {
            return ptr::null_mut();
        }
        let made = RustAllocator.calloc(count, size);
        self.counted(made)
    }

    unsafe fn dealloc(&mut self, freed: *mut u8) {
        // SAFETY: whoever calls says that it was made here, which is there.
        let bytes = unsafe { RustAllocator::usable_size(freed) };
        // SAFETY: as above.
        unsafe { RustAllocator.dealloc(freed) };
        self.gave(bytes);
    }

    unsafe fn realloc(&mut self, old: *mut u8, new_size: usize) -> *mut u8 {
        // SAFETY: whoever calls says that it was made here, which is there.
        let before = unsafe { RustAllocator::usable_size(old) };
        if new_size > before && !self.has_room(new_size - before) {
            return ptr::null_mut();
        }
        // SAFETY: as above.
        let made = unsafe { RustAllocator.realloc(old, new_size) };
        if !made.is_null() {
            self.gave(before);
            self.counted(made);
        }
        made
    }

    unsafe fn usable_size(made: *mut u8) -> usize {
        // SAFETY: whoever calls says that it was made here, which is there.
        unsafe { RustAllocator::usable_size(made) }
    }
}

/// Refusals that a test asks for.
#[cfg(test)]
pub(crate) mod planted {
    use std::cell::Cell;

    thread_local! {
        static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// Of what is asked for from here on, `granted` requests have room, and none after them.
    pub(crate) fn refuse_after(granted: u32) {
        LEFT.set(Some(granted));
    }

    /// How many of the granted requests were not made.
    pub(crate) fn end() -> Option<u32> {
        LEFT.take()
    }

    pub(super) fn refuses() -> bool {
        let left = LEFT.get();
        LEFT.set(left.map(|left| left.saturating_sub(1)));
        left == Some(0)
    }
}
