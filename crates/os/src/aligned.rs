//! A byte buffer whose memory starts on a 4 KiB boundary, as `O_DIRECT` asks.
//!
//! What is always true: `ptr` is aligned to [`DIRECT_ALIGN`], `capacity` is 0 or a multiple of it,
//! the first `len` bytes are initialised, and `len <= capacity`.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The unit of offsets, lengths and memory addresses of direct I/O.
pub const DIRECT_ALIGN: usize = 4096;

/// A growable byte buffer aligned to [`DIRECT_ALIGN`].
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    len: usize,
    capacity: usize,
}

impl AlignedBuf {
    /// An empty buffer; allocates nothing.
    pub const fn new() -> Self {
        Self { ptr: NonNull::dangling(), len: 0, capacity: 0 }
    }

    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        let mut buf = Self::new();
        buf.resize(len, 0);
        buf
    }

    /// An empty buffer with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        let mut buf = Self::new();
        buf.reserve(capacity);
        buf
    }

    /// Bytes held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no bytes are held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that fit without a new allocation.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Forgets the content, keeps the memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Cuts to `len` bytes; longer is left as it is.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Makes the length `len`, filling new bytes with `value`.
    pub fn resize(&mut self, len: usize, value: u8) {
        let more = len.saturating_sub(self.len);
        self.reserve(more);
        // SAFETY: there is room for `more` bytes behind the `len` that are held.
        unsafe { self.ptr.as_ptr().add(self.len).write_bytes(value, more) };
        self.len = len;
    }

    /// Appends bytes.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        // SAFETY: there is room for them behind the `len` bytes that are held, in memory of our own.
        unsafe {
            let end = self.ptr.as_ptr().add(self.len);
            end.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        self.len += bytes.len();
    }

    /// Fills with zeros up to the next multiple of [`DIRECT_ALIGN`].
    pub fn pad_to_unit(&mut self) {
        self.resize(self.len.next_multiple_of(DIRECT_ALIGN), 0);
    }

    fn reserve(&mut self, more: usize) {
        let needed = self.len.checked_add(more).expect("a buffer length fits in usize");
        if needed <= self.capacity {
            return;
        }
        let capacity = needed.max(self.capacity * 2).next_multiple_of(DIRECT_ALIGN);
        let layout = Self::layout(capacity);
        // SAFETY: the layout has a non-zero size, since capacity > 0 here.
        let raw = unsafe { alloc(layout) };
        let Some(ptr) = NonNull::new(raw) else { handle_alloc_error(layout) };
        // SAFETY: both regions hold at least `len` bytes and are different allocations.
        unsafe { self.ptr.as_ptr().copy_to_nonoverlapping(ptr.as_ptr(), self.len) };
        self.release();
        self.ptr = ptr;
        self.capacity = capacity;
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, DIRECT_ALIGN).expect("a buffer is below isize::MAX")
    }

    fn release(&mut self) {
        if self.capacity != 0 {
            // SAFETY: `ptr` came from `alloc` with exactly this layout.
            unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.capacity)) };
        }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        self.release();
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len <= capacity` initialised bytes live at `ptr` (or len is 0).
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

// SAFETY: the buffer owns its memory alone, like a Vec<u8>.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuf {}

impl Default for AlignedBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} of {} bytes)", self.len, self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_content_survives_growth() {
        let mut buf = AlignedBuf::new();
        let mut model = Vec::new();
        for i in 0..5000_u32 {
            buf.extend_from_slice(&i.to_le_bytes());
            model.extend_from_slice(&i.to_le_bytes());
            assert_eq!(buf.as_ptr() as usize % DIRECT_ALIGN, 0);
        }
        assert_eq!(&buf[..], &model[..]);
        buf.pad_to_unit();
        assert_eq!(buf.len(), 20480);
        assert!(buf[20000..].iter().all(|b| *b == 0));
    }

    #[test]
    fn reused_memory_is_refilled() {
        let mut buf = AlignedBuf::new();
        buf.resize(100, 7);
        buf.clear();
        buf.resize(200, 0);
        assert!(buf.iter().all(|b| *b == 0));
    }
}
