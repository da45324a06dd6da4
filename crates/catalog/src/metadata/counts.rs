//! Exact document counts without a hot spot.
//!
//! Each collection has *stripes* in `ROOT`: records of (documents, bytes). A committing
//! transaction borrows a free stripe, writes its new value as part of the commit, and gives it
//! back; the collection's count is the sum. Two commits never wait for each other, a crash keeps
//! exactly the committed changes, and opening reads a handful of records.
//!
//! Always true:
//! 1. A stripe is owned by at most one committing transaction; the free ones equal `ROOT`.
//! 2. `documents` and `bytes` are the sums over all stripes, as of the last published commit.
//! 3. A stripe that was lent before all were forgotten does not come back: it was read anew.
//!
//! Where documents were made without being read (fast upserts), how many there are is not known: a *mark* says
//! so, the record of a stripe that there is not, written with the first of them. Whoever wants to know counts them
//! then; `validate` does, corrects the stripes and takes the mark away, unless documents were made that way
//! meanwhile.

use engine::{DictionaryId, KeyRange};
use parking_lot::Mutex;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Key prefix of the stripes in `ROOT`.
pub(crate) const PREFIX: u8 = b'c';
/// The bytes of a stripe's key.
const KEY_BYTES: usize = 1 + 8 + 4;
/// The number of the mark, which no stripe gets.
const MARK: u32 = u32::MAX;

/// One stripe's committed value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stripe {
    pub(crate) number: u32,
    pub(crate) documents: i64,
    pub(crate) bytes: i64,
}

/// The counts of one collection.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    free: Mutex<Free>,
    documents: AtomicI64,
    bytes: AtomicI64,
    /// Documents may have been made without being counted.
    is_unknown: AtomicBool,
    /// `ROOT` says so.
    is_marked: AtomicBool,
    /// How often one may have been, since the start.
    uncounted: AtomicU64,
}

#[derive(Debug, Default)]
struct Free {
    stripes: Vec<Stripe>,
    /// Those in the hands of commits, as they were lent: the sums contain them.
    lent: Vec<Stripe>,
    next_number: u32,
    /// How often all were forgotten.
    forgotten: u32,
}

/// A stripe in the hands of a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lent {
    pub(crate) stripe: Stripe,
    forgotten: u32,
}

impl Counts {
    pub(crate) fn documents(&self) -> u64 {
        u64::try_from(self.documents.load(Ordering::Acquire)).unwrap_or(0)
    }

    pub(crate) fn bytes(&self) -> u64 {
        u64::try_from(self.bytes.load(Ordering::Acquire)).unwrap_or(0)
    }

    /// Takes in a stripe read from `ROOT` when the catalog opens.
    pub(crate) fn load(&self, stripe: Stripe) {
        if stripe.is_mark() {
            return self.mark();
        }
        self.documents.fetch_add(stripe.documents, Ordering::AcqRel);
        self.bytes.fetch_add(stripe.bytes, Ordering::AcqRel);
        let mut free = self.free.lock();
        free.next_number = free.next_number.max(stripe.number.saturating_add(1));
        free.stripes.push(stripe);
    }

    /// Takes in a stripe as another member's commit left it.
    pub(crate) fn replace(&self, stripe: Stripe) {
        if stripe.is_mark() {
            return self.mark();
        }
        let mut free = self.free.lock();
        let known = free.stripes.iter_mut().find(|known| known.number == stripe.number);
        let before = if let Some(known) = known {
            std::mem::replace(known, stripe)
        } else {
            free.next_number = free.next_number.max(stripe.number.saturating_add(1));
            free.stripes.push(stripe);
            // A commit that has it will be refused.
            free.take_lent(stripe.number).unwrap_or_default()
        };
        drop(free);
        let documents = stripe.documents.wrapping_sub(before.documents);
        self.documents.fetch_add(documents, Ordering::AcqRel);
        self.bytes.fetch_add(stripe.bytes.wrapping_sub(before.bytes), Ordering::AcqRel);
    }

    /// Takes these stripes, as `ROOT` has them now, in the place of all that are known, at once: what is lent
    /// before belongs to a commit that is in `ROOT` or will never be, and what is lent afterwards is one of these.
    pub(crate) fn start_over(&self, stripes: impl IntoIterator<Item = Stripe>) {
        let mut free = self.free.lock();
        *free = Free { forgotten: free.forgotten.wrapping_add(1), ..Free::default() };
        self.unmark();
        let (mut documents, mut bytes) = (0, 0);
        for stripe in stripes {
            if stripe.is_mark() {
                self.mark();
                continue;
            }
            (documents, bytes) = (documents + stripe.documents, bytes + stripe.bytes);
            free.next_number = free.next_number.max(stripe.number.saturating_add(1));
            free.stripes.push(stripe);
        }
        self.documents.store(documents, Ordering::Release);
        self.bytes.store(bytes, Ordering::Release);
    }

    /// Whether documents may be there that were not counted.
    pub(crate) fn is_unknown(&self) -> bool {
        self.is_unknown.load(Ordering::Acquire)
    }

    /// A transaction may be about to make a document that is not counted. Says whether it has to write the mark.
    pub(crate) fn note_uncounted(&self) -> bool {
        self.uncounted.fetch_add(1, Ordering::AcqRel);
        self.is_unknown.store(true, Ordering::Release);
        !self.is_marked.load(Ordering::Acquire)
    }

    /// How often that was said.
    pub(crate) fn uncounted(&self) -> u64 {
        self.uncounted.load(Ordering::Acquire)
    }

    /// The mark is in `ROOT`.
    pub(crate) fn mark(&self) {
        self.is_unknown.store(true, Ordering::Release);
        self.is_marked.store(true, Ordering::Release);
    }

    /// The mark is gone from `ROOT`.
    pub(crate) fn unmark(&self) {
        self.is_marked.store(false, Ordering::Release);
        self.is_unknown.store(false, Ordering::Release);
    }

    /// Lends a stripe to a commit; a new one where all are lent.
    pub(crate) fn borrow(&self) -> Lent {
        let mut free = self.free.lock();
        let stripe = free.stripes.pop().unwrap_or_else(|| {
            let number = free.next_number;
            free.next_number += 1;
            Stripe { number, ..Stripe::default() }
        });
        free.lent.push(stripe);
        Lent { stripe, forgotten: free.forgotten }
    }

    /// Takes a stripe back unchanged: the commit failed. Not where another member's commit has left it otherwise
    /// meanwhile.
    pub(crate) fn give_back(&self, lent: Lent) {
        let mut free = self.free.lock();
        if free.forgotten == lent.forgotten
            && let Some(stripe) = free.take_lent(lent.stripe.number)
        {
            free.stripes.push(stripe);
        }
    }

    /// Takes a stripe back with the committed change in it.
    pub(crate) fn publish(&self, lent: Lent, documents: i64, bytes: i64) {
        let Lent { mut stripe, forgotten } = lent;
        stripe.documents += documents;
        stripe.bytes += bytes;
        let mut free = self.free.lock();
        if free.forgotten == forgotten {
            self.documents.fetch_add(documents, Ordering::AcqRel);
            self.bytes.fetch_add(bytes, Ordering::AcqRel);
            let _as_it_was = free.take_lent(stripe.number);
            free.stripes.push(stripe);
        }
    }

    /// The numbers of all stripes ever made, so that a drop can delete their records.
    pub(crate) fn stripe_numbers(&self) -> std::ops::Range<u32> {
        0..self.free.lock().next_number
    }
}

impl Free {
    /// Takes a stripe back from a commit that has it.
    fn take_lent(&mut self, number: u32) -> Option<Stripe> {
        let at = self.lent.iter().position(|lent| lent.number == number)?;
        Some(self.lent.swap_remove(at))
    }
}

impl Stripe {
    pub(crate) fn is_mark(&self) -> bool {
        self.number == MARK
    }

    /// The key of the mark.
    pub(crate) fn mark_key(collection: u64) -> [u8; KEY_BYTES] {
        Self::key(collection, MARK)
    }

    /// `'c'`, collection number, stripe number; big-endian so that a collection's stripes adjoin.
    pub(crate) fn key(collection: u64, number: u32) -> [u8; KEY_BYTES] {
        let mut key = [PREFIX; KEY_BYTES];
        key[1..9].copy_from_slice(&collection.to_be_bytes());
        key[9..].copy_from_slice(&number.to_be_bytes());
        key
    }

    /// The keys of a collection's stripes.
    pub(crate) fn keys(collection: u64) -> KeyRange {
        KeyRange {
            lower: Bound::Included(Self::key(collection, 0).to_vec()),
            upper: Bound::Included(Self::key(collection, u32::MAX).to_vec()),
        }
    }

    /// Documents, bytes; little-endian.
    pub(crate) fn value(documents: i64, bytes: i64) -> [u8; 16] {
        let mut value = [0; 16];
        value[..8].copy_from_slice(&documents.to_le_bytes());
        value[8..].copy_from_slice(&bytes.to_le_bytes());
        value
    }

    /// Reads a record of `ROOT`: the collection's number and the stripe.
    pub(crate) fn read(key: &[u8], value: &[u8]) -> Option<(u64, Self)> {
        let collection = u64::from_be_bytes(key.get(1..9)?.try_into().ok()?);
        let number = u32::from_be_bytes(key.get(9..)?.try_into().ok()?);
        let documents = i64::from_le_bytes(value.get(..8)?.try_into().ok()?);
        let bytes = i64::from_le_bytes(value.get(8..)?.try_into().ok()?);
        Some((collection, Self { number, documents, bytes }))
    }
}

/// Where the stripes live.
pub(crate) const DICTIONARY: DictionaryId = DictionaryId::ROOT;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borrowed_stripes_are_never_shared() {
        let counts = Counts::default();
        let (a, b) = (counts.borrow(), counts.borrow());
        assert_ne!(a.stripe.number, b.stripe.number);
        counts.publish(a, 5, 50);
        counts.give_back(b);
        assert_eq!((counts.documents(), counts.bytes()), (5, 50));
        assert_eq!(counts.stripe_numbers(), 0..2);
    }

    #[test]
    fn stripes_that_were_forgotten_do_not_come_back() {
        let counts = Counts::default();
        let (published, failed) = (counts.borrow(), counts.borrow());
        counts.start_over([Stripe { number: 0, documents: 7, bytes: 70 }]);
        counts.publish(published, 5, 50);
        counts.give_back(failed);
        assert_eq!((counts.documents(), counts.bytes()), (7, 70));
        assert_eq!((counts.borrow().stripe.documents, counts.borrow().stripe.number), (7, 1));
    }

    #[test]
    fn a_commit_that_is_refused_gives_no_stripe_back_that_another_member_has_written() {
        let counts = Counts::default();
        counts.start_over([Stripe { number: 0, documents: 7, bytes: 70 }]);
        let (known, new) = (counts.borrow(), counts.borrow());
        assert_eq!((known.stripe.number, new.stripe.number), (0, 1));
        for number in [0, 1] {
            counts.replace(Stripe { number, documents: 9, bytes: 90 });
            counts.replace(Stripe { number, documents: 10, bytes: 100 });
        }
        counts.give_back(known);
        counts.give_back(new);
        assert_eq!((counts.documents(), counts.bytes()), (20, 200));
        let all: Vec<_> = (0..3).map(|_| counts.borrow().stripe).collect();
        let of = |stripe: &Stripe| (stripe.number, stripe.documents);
        assert_eq!(all.iter().map(of).collect::<Vec<_>>(), [(1, 10), (0, 10), (2, 0)]);
    }

    #[test]
    fn mark_makes_the_count_unknown_until_it_is_taken_away() {
        let counts = Counts::default();
        assert!(!counts.is_unknown());
        assert!(counts.note_uncounted(), "it has to be written");
        counts.mark();
        assert!(!counts.note_uncounted());
        assert!(counts.is_unknown());
        counts.unmark();
        assert_eq!((counts.is_unknown(), counts.uncounted()), (false, 2));
        let (_, mark) = Stripe::read(&Stripe::mark_key(7), &Stripe::value(0, 0)).unwrap();
        counts.load(mark);
        assert!(counts.is_unknown() && counts.stripe_numbers().is_empty());
    }

    #[test]
    fn records_read_back() {
        let key = Stripe::key(7, 3);
        let stripe = Stripe { number: 3, documents: -2, bytes: 90 };
        assert_eq!(Stripe::read(&key, &Stripe::value(-2, 90)), Some((7, stripe)));
        assert_eq!(Stripe::read(&key[..5], &[]), None);
    }
}
