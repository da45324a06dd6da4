//! What a transaction tells readers of the history beside its writes.
//!
//! Always true: notes stand in the order in which they were made; a rollback to a savepoint takes those
//! back that came behind it. They are counted as the writes are, and are bounded.

use super::{EngineTxn, MAX_NOTE_BYTES};
use crate::error::Oversized;
use crate::{Error, Result};
use smallvec::SmallVec;

/// What one note costs beside its bytes.
const NOTE_BYTES: u64 = 16;

/// The notes of one transaction, and how it stands in the history.
#[derive(Default)]
pub(crate) struct Notes {
    bytes: Vec<u8>,
    /// Where each note ends.
    ends: SmallVec<[usize; 1]>,
    longest: usize,
    span: Option<u32>,
    pub(crate) is_client_transaction: bool,
}

impl Notes {
    fn add(&mut self, note: &[u8]) {
        self.bytes.extend_from_slice(note);
        self.ends.push(self.bytes.len());
        self.longest = self.longest.max(note.len());
    }

    /// The first note.
    fn set(&mut self, note: Vec<u8>) {
        debug_assert!(self.ends.is_empty(), "others stand before it");
        self.ends.push(note.len());
        self.longest = self.longest.max(note.len());
        self.bytes = note;
    }

    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn truncate(&mut self, count: usize) {
        self.ends.truncate(count);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
        debug_assert_eq!(self.ends.last().copied().unwrap_or(0), self.bytes.len(), "ends agree");
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.len() as u64 + self.ends.len() as u64 * NOTE_BYTES
    }

    /// Bytes of the longest.
    pub(crate) fn longest(&self) -> u64 {
        self.longest as u64
    }

    /// How many cluster times the commit takes.
    pub(crate) fn span(&self) -> u32 {
        self.span.unwrap_or(1)
    }

    /// In their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let places = starts.zip(self.ends.iter().copied());
        places.filter_map(|(start, end)| self.bytes.get(start..end))
    }
}

impl EngineTxn {
    /// Tells readers of the history something about this transaction, behind what was told before.
    /// Nothing where no history is kept.
    pub fn note(&mut self, note: &[u8]) -> Result<()> {
        if !self.may_note(note.len())? {
            return Ok(());
        }
        self.notes.get_or_insert_default().add(note);
        self.charge();
        Ok(())
    }

    /// Whether notes are kept; fails where one of so many bytes is more than may be.
    fn may_note(&self, len: usize) -> Result<bool> {
        self.check_alive()?;
        if len > MAX_NOTE_BYTES {
            let (size, limit) = (len as u64, MAX_NOTE_BYTES as u64);
            return Err(Error::TooLarge { what: Oversized::Note, size, limit });
        }
        let Some(history) = &self.environment().history else { return Ok(false) };
        let limit = history.most_note_bytes();
        let size = self.notes.as_ref().map_or(0, |notes| notes.bytes()) + len as u64;
        if size > limit {
            return Err(Error::TooLarge { what: Oversized::Transaction, size, limit });
        }
        Ok(true)
    }

    /// As [`EngineTxn::note`], of a note that is given away: it is not copied where it is the only one.
    pub fn note_given(&mut self, note: Vec<u8>) -> Result<()> {
        if self.notes.as_ref().is_some_and(|notes| notes.count() > 0) {
            return self.note(&note);
        }
        if !self.may_note(note.len())? {
            return Ok(());
        }
        self.notes.get_or_insert_default().set(note);
        self.charge();
        Ok(())
    }

    /// The commit takes so many cluster times, one unless it is told; at least one.
    pub fn set_span(&mut self, span: u32) {
        if self.environment().history.is_some() {
            self.notes.get_or_insert_default().span = Some(span.max(1));
        }
    }

    /// The history marks it as a client's transaction.
    pub fn set_client_transaction(&mut self) {
        if self.environment().history.is_some() {
            self.notes.get_or_insert_default().is_client_transaction = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_kept_in_order_and_taken_back() {
        let mut notes = Notes::default();
        for note in [&b"one"[..], b"", b"three"] {
            notes.add(note);
        }
        assert!(notes.iter().eq([&b"one"[..], b"", b"three"]));
        let bytes = notes.bytes();
        let count = notes.count();
        notes.add(b"four");
        notes.truncate(count);
        assert_eq!((notes.bytes(), notes.count(), notes.span()), (bytes, 3, 1));
        notes.truncate(0);
        assert_eq!((notes.bytes(), notes.iter().count()), (0, 0));
    }
}
