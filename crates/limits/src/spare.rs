//! Buffers that a thread uses again.

use std::cell::Cell;

/// A buffer that is needed often, for a short time and by one user of the thread at a time: made once, not each time.
///
/// Always true: between two users it has no more than the bytes that it was made for, so it is charged to nobody.
pub struct Spare {
    bytes: Cell<Vec<u8>>,
    most: usize,
}

impl Spare {
    /// Of which so many bytes are kept at most.
    pub const fn new(most: usize) -> Self {
        Self { bytes: Cell::new(Vec::new()), most }
    }

    /// The buffer, empty; a new one where somebody has it.
    #[inline]
    pub fn take(&self) -> Vec<u8> {
        let mut bytes = self.bytes.take();
        bytes.clear();
        bytes
    }

    /// Gives it back, or one that is as good.
    #[inline]
    pub fn keep(&self, bytes: Vec<u8>) {
        if bytes.capacity() <= self.most {
            self.bytes.set(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_unless_it_has_grown_too_large() {
        let spare = Spare::new(100);
        let mut bytes = spare.take();
        bytes.extend([1; 60]);
        let (place, capacity) = (bytes.as_ptr(), bytes.capacity());
        spare.keep(bytes);
        let mut again = spare.take();
        assert_eq!((again.as_ptr(), again.capacity(), again.len()), (place, capacity, 0));
        assert_eq!(spare.take().capacity(), 0, "one user at a time has it");
        again.reserve_exact(101);
        spare.keep(again);
        assert_eq!(spare.take().capacity(), 0, "it would be kept for nobody");
    }
}
