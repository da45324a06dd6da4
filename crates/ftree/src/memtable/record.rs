//! One entry in the arena: a fixed header, then the key's and the value's bytes.
//!
//! Always true: a record is complete before its address is published, and only its `older` link
//! changes afterwards.

use super::arena::Arena;
use crate::message::{Entry, Kind, Message, Place, head};
use os::sync::atomic::{AtomicPtr, Ordering};
use std::cmp::Ordering as Order;

const KIND_SHIFT: u32 = 60;

#[repr(C)]
pub(super) struct Record {
    /// The next older version of the same key, or null.
    pub(super) older: AtomicPtr<Record>,
    ts: u64,
    /// The value's length, and the kind in the upper four bits.
    value_len: u64,
    key_len: usize,
}

impl Record {
    /// Copies an entry into the arena.
    pub(super) fn new(arena: &Arena, key: &[u8], ts: u64, message: Message<'_>) -> *mut Self {
        let payload = message.payload();
        let size = size_of::<Self>() + key.len() + payload.len();
        let record: *mut Self = arena.allocate(size).cast();
        // SAFETY: the arena gave `size` bytes, aligned well enough, that nobody else has.
        unsafe {
            record.write(Self {
                older: AtomicPtr::new(std::ptr::null_mut()),
                ts,
                value_len: payload.len() as u64 | u64::from(message.kind() as u8) << KIND_SHIFT,
                key_len: key.len(),
            });
            let bytes: *mut u8 = record.add(1).cast();
            bytes.copy_from_nonoverlapping(key.as_ptr(), key.len());
            bytes.add(key.len()).copy_from_nonoverlapping(payload.as_ptr(), payload.len());
        }
        record
    }

    pub(super) fn ts(&self) -> u64 {
        self.ts
    }

    pub(super) fn key(&self) -> &[u8] {
        // SAFETY: `new` wrote `key_len` bytes right behind the header.
        unsafe {
            let bytes: *const u8 = std::ptr::from_ref(self).add(1).cast();
            std::slice::from_raw_parts(bytes, self.key_len)
        }
    }

    pub(super) fn message(&self) -> Message<'_> {
        let length = (self.value_len & ((1 << KIND_SHIFT) - 1)) as usize;
        // SAFETY: `new` wrote the payload right behind the key.
        let payload = unsafe {
            let bytes: *const u8 = std::ptr::from_ref(self).add(1).cast();
            std::slice::from_raw_parts(bytes.add(self.key_len), length)
        };
        let kind = Kind::from_number((self.value_len >> KIND_SHIFT) as u8);
        Message::of(kind.expect("written from a Kind"), payload)
    }

    pub(super) fn entry(&self) -> Entry<'_> {
        Entry { key: self.key(), ts: self.ts, message: self.message() }
    }

    pub(super) fn older(&self) -> Option<&Self> {
        // SAFETY: links are null or point to records of the same arena.
        unsafe { self.older.load(Ordering::Acquire).as_ref() }
    }

    /// The newest version from here on that a reader at `ts` sees.
    pub(super) fn visible(&self, ts: u64) -> Option<&Self> {
        let mut version = Some(self);
        while let Some(record) = version {
            if record.ts <= ts {
                return Some(record);
            }
            version = record.older();
        }
        None
    }
}

/// A place to compare records with, its head worked out once.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) head: u64,
    pub(super) place: Option<Place<'a>>,
}

impl<'a> Target<'a> {
    /// `None` lies behind every record.
    pub(super) fn new(place: Option<Place<'a>>) -> Self {
        Self { head: place.map_or(u64::MAX, |place| head(place.key)), place }
    }

    pub(super) fn compare(&self, their_head: u64, record: &Record) -> Order {
        let Some(place) = self.place else { return Order::Greater };
        self.head.cmp(&their_head).then_with(|| place.cmp(&record.entry_place()))
    }
}

impl Record {
    pub(super) fn entry_place(&self) -> Place<'_> {
        Place { key: self.key(), ts: self.ts }
    }
}
