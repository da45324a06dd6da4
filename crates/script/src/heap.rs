//! The memory of a thread's JavaScript: charged to the server's clients.
//!
//! Always true: what the engine holds beyond some KiB is charged to `Part::Scripts` before it is
//! allocated. Where there is no room the code gets JavaScript's "out of memory", and its operation the
//! account's error.

use errors::Error;
use limits::{Growth, Part};
use rquickjs::allocator::{Allocator, RustAllocator};
use std::cell::RefCell;
use std::ptr;

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
    pub(crate) fn new() -> Self {
        Self { growth: Growth::new(Part::Scripts), bytes: 0, charged: 0 }
    }

    /// Whether there is room for `more` bytes.
    fn has_room(&mut self, more: usize) -> bool {
        match self.growth.reach(self.bytes.saturating_add(more)) {
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
        if self.bytes < self.charged / 2 {
            self.growth.shrink(self.bytes);
            self.charged = self.bytes;
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
