//! Where a page is decoded to before its bytes become a frame: for most pages memory that the thread keeps, so that a page costs one
//! allocation, the frame's own.

use crate::account::Reservation;
use crate::frame::Frame;
use std::cell::Cell;
use std::ops::{Deref, DerefMut};

/// Larger pages are decoded into memory of their own: each thread keeps as much as this at most.
const KEPT_BYTES: usize = 64 << 10;

thread_local! {
    static KEPT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A page's decoded bytes; before it is decoded, bytes of an earlier page.
pub(crate) struct Decoded(Vec<u8>);

impl Decoded {
    pub(crate) fn for_page(raw_len: usize) -> Self {
        Self(if raw_len <= KEPT_BYTES { KEPT.take() } else { Vec::new() })
    }

    /// The frame of these bytes.
    pub(crate) fn frame(mut self, room: Reservation) -> Frame {
        if self.0.capacity() <= KEPT_BYTES {
            Frame::copied(&self.0, room)
        } else {
            Frame::new(std::mem::take(&mut self.0), room)
        }
    }

    /// The bytes alone.
    pub(crate) fn take(mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Decoded {
    fn drop(&mut self) {
        if self.0.capacity() <= KEPT_BYTES {
            KEPT.set(std::mem::take(&mut self.0));
        }
    }
}

impl Deref for Decoded {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Decoded {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}
