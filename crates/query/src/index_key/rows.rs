//! The entries and documents of one key of an index, in the order of their record keys.
//!
//! Always true: an entry begins with the bytes of the values, which end by themselves, and its record key is the rest;
//! so no document has two entries under one key, and none of other values is between them.

use crate::context::Interrupt;
use crate::cursor::{InterruptSlot, Rows};
use crate::examined::Tally;
use crate::exec::ExecContext;
use bson::raw::{RawDocument, RawDocumentBuf};
use catalog::{Collection, Index, from_engine};
use engine::{Cursor, Direction, KeyRange, Snapshot, Value};
use errors::Result;
use keystring::{Discriminator, KeyBuilder};
use std::ops::Bound;
use std::sync::Arc;
use update::projection::Flat;

/// The entries of one key, in one state.
pub(super) struct Entries {
    pub(super) collection: Arc<Collection>,
    pub(super) index: Arc<Index>,
    /// The bytes of the values that the entries begin with.
    pub(super) values: Vec<u8>,
    pub(super) state: Snapshot,
}

impl Entries {
    /// Opens them; may read the disk.
    fn open(&self) -> Result<Cursor> {
        let mut behind = KeyBuilder::new();
        behind.append_bytes(&self.values);
        behind.append_discriminator(Discriminator::After);
        let range = KeyRange {
            lower: Bound::Included(self.values.clone()),
            upper: Bound::Excluded(behind.into_bytes()),
        };
        let dictionary = self.collection.index_at(&self.index, 0);
        self.index.note_use();
        self.state.cursor(dictionary, range, Direction::Forward).map_err(from_engine)
    }

    /// How many there are, up to `most`.
    pub(super) fn count(&self, most: u64, interrupt: &dyn Interrupt) -> Result<u64> {
        let mut counters = Tally::default();
        if most > 0 {
            let mut cursor = self.open()?;
            let exec = ExecContext::new(&self.state, interrupt);
            while counters.keys < most && cursor.next().map_err(from_engine)?.is_some() {
                counters.works += 1;
                exec.tick(counters.works)?;
                counters.keys += 1;
            }
        }
        self.note_scanned(counters.keys);
        Ok(counters.keys)
    }

    /// Counts what was looked at as used by its index.
    fn note_scanned(&self, entries: u64) {
        if entries > 0 {
            self.index.note_scanned(entries, entries);
        }
    }
}

/// The documents of the entries.
pub(super) struct EntryRows {
    entries: Entries,
    interrupt: Arc<InterruptSlot>,
    /// What of the documents is shown, where that is not all.
    shown: Option<Flat>,
    /// How many more there may be.
    left: u64,
    place: Place,
    document: Option<Value>,
    projected: Option<RawDocumentBuf>,
    counters: Tally,
}

enum Place {
    Begin,
    Open(Cursor),
    End,
}

impl EntryRows {
    pub(super) fn new(
        entries: Entries,
        shown: Option<Flat>,
        limit: u64,
        interrupt: Arc<InterruptSlot>,
    ) -> Self {
        Self {
            entries,
            interrupt,
            shown,
            left: if limit == 0 { u64::MAX } else { limit },
            place: Place::Begin,
            document: None,
            projected: None,
            counters: Tally::default(),
        }
    }

    /// Goes to the next document; false at the end. May read the disk.
    fn advance(&mut self) -> Result<bool> {
        self.document = None;
        if self.left == 0 {
            return Ok(false);
        }
        let Entries { collection, values, state, .. } = &self.entries;
        if let Place::Begin = self.place {
            self.place = Place::Open(self.entries.open()?);
        }
        let Place::Open(cursor) = &mut self.place else { return Ok(false) };
        let exec = ExecContext::new(state, &*self.interrupt);
        while let Some((key, _)) = cursor.next().map_err(from_engine)? {
            self.counters.works += 1;
            exec.tick(self.counters.works)?;
            self.counters.keys += 1;
            self.document = exec.get_to_copy(collection, &key[values.len()..])?;
            if self.document.is_some() {
                self.counters.documents += 1;
                self.left -= 1;
                return Ok(true);
            }
        }
        self.place = Place::End;
        Ok(false)
    }
}

impl Rows for EntryRows {
    fn next(&mut self) -> Result<Option<&RawDocument>> {
        if !self.advance()? {
            return Ok(None);
        }
        if let (Some(shown), Some(value)) = (&self.shown, &self.document) {
            let projected = shown.apply(RawDocument::from_bytes(&value[..])?)?;
            self.document = None;
            return Ok(Some(&**self.projected.insert(projected)));
        }
        let document = self.document.as_ref().map(|value| RawDocument::from_bytes(&value[..]));
        Ok(document.transpose()?)
    }

    fn park(&mut self) {
        (self.document, self.projected) = (None, None);
        self.counters.tell();
        if let Place::Open(cursor) = &mut self.place {
            cursor.park();
        }
    }

    #[cfg(test)]
    fn is_planned(&self) -> bool {
        false
    }
}

impl Drop for EntryRows {
    fn drop(&mut self) {
        self.entries.note_scanned(self.counters.keys);
    }
}
