//! A walk over the entries of one index: of a partitioned collection it merges those of the partitions.
//!
//! Always true: entries come in the order of their keys, as if one dictionary held them all; only the
//! partition whose entry was read last has memory pinned.

use crate::failure::from_engine;
use engine::{Cursor, DictionaryId, Direction, KeyRange};
use errors::Result;
use limits::{Growth, Part};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What an open cursor is taken to hold: its places in the nodes of a tree, and keys.
const CURSOR_BYTES: usize = 4 << 10;

/// Walks the entries of an index, in one dictionary or several.
#[derive(Debug)]
pub struct IndexCursor(Walk);

#[derive(Debug)]
enum Walk {
    One(Cursor),
    Merged(Box<Merged>),
}

impl IndexCursor {
    /// Over a range of these dictionaries; `open` opens a cursor over one of them in this direction.
    pub fn open(
        dictionaries: &[DictionaryId],
        range: KeyRange,
        direction: Direction,
        mut open: impl FnMut(DictionaryId, KeyRange) -> Result<Cursor>,
    ) -> Result<Self> {
        Ok(Self(match dictionaries {
            [one] => Walk::One(open(*one, range)?),
            several => {
                let mut memory = Growth::new(Part::Values);
                let bytes = several.len() * CURSOR_BYTES;
                memory.reach(bytes)?;
                let inputs = several.iter().map(|one| open(*one, range.clone()));
                let inputs = inputs.collect::<Result<_>>()?;
                Walk::Merged(Box::new(Merged::new(inputs, direction, (bytes, memory))))
            }
        }))
    }

    /// The next entry; the slices live until the next call. May read the disk.
    #[expect(clippy::should_implement_trait, reason = "lends from itself, so not an Iterator")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        match &mut self.0 {
            Walk::One(cursor) => cursor.next().map_err(from_engine),
            Walk::Merged(merged) => merged.next(),
        }
    }

    /// Skips ahead, in the cursor's direction, to the first entry at or past `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        match &mut self.0 {
            Walk::One(cursor) => cursor.seek(key).map_err(from_engine),
            Walk::Merged(merged) => merged.seek(key),
        }
    }

    /// Gives back pinned memory until the next call; the place is kept.
    pub fn park(&mut self) {
        match &mut self.0 {
            Walk::One(cursor) => cursor.park(),
            Walk::Merged(merged) => merged.inputs.iter_mut().for_each(Cursor::park),
        }
    }
}

#[derive(Debug)]
struct Merged {
    inputs: Vec<Cursor>,
    direction: Direction,
    /// The next entry of each input that has one, but of that of `current`.
    heads: BinaryHeap<Head>,
    /// The entry that was handed out.
    current: Option<Head>,
    is_begun: bool,
    /// The memory of the cursors and entries.
    bytes: usize,
    memory: Growth,
}

/// An entry, copied out to be compared.
#[derive(Debug)]
struct Head {
    key: Vec<u8>,
    value: Vec<u8>,
    input: usize,
    is_backward: bool,
}

impl Merged {
    fn new(inputs: Vec<Cursor>, direction: Direction, (bytes, memory): (usize, Growth)) -> Self {
        Self {
            heads: BinaryHeap::with_capacity(inputs.len()),
            inputs,
            direction,
            current: None,
            is_begun: false,
            bytes,
            memory,
        }
    }

    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let before = self.current.take();
        let read = before.as_ref().map(|head| head.input);
        match before {
            Some(head) => self.refill(head)?,
            None if !self.is_begun => self.begin(None)?,
            None => {}
        }
        self.current = self.heads.pop();
        let Some(head) = &self.current else { return Ok(None) };
        if let Some(read) = read
            && read != head.input
        {
            self.inputs[read].park();
        }
        Ok(Some((&head.key, &head.value)))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        if !self.is_begun {
            return self.begin(Some(key));
        }
        let is_backward = self.direction == Direction::Backward;
        let is_before = |head: &Head| {
            let order = head.key[..].cmp(key);
            order == if is_backward { Ordering::Greater } else { Ordering::Less }
        };
        let handed_out = self.current.take();
        let heads = std::mem::take(&mut self.heads);
        for head in heads {
            if is_before(&head) {
                self.inputs[head.input].seek(key).map_err(from_engine)?;
                let input = head.input;
                self.refill(head)?;
                self.inputs[input].park();
            } else {
                self.heads.push(head);
            }
        }
        if let Some(head) = handed_out {
            if is_before(&head) {
                self.inputs[head.input].seek(key).map_err(from_engine)?;
            }
            self.refill(head)?;
        }
        Ok(())
    }

    /// Reads the first entry of every input.
    fn begin(&mut self, from: Option<&[u8]>) -> Result<()> {
        self.is_begun = true;
        let is_backward = self.direction == Direction::Backward;
        for input in 0..self.inputs.len() {
            if let Some(key) = from {
                self.inputs[input].seek(key).map_err(from_engine)?;
            }
            self.refill(Head { key: Vec::new(), value: Vec::new(), input, is_backward })?;
            self.inputs[input].park();
        }
        Ok(())
    }

    /// Puts the next entry of an input among the others, where it has one.
    fn refill(&mut self, mut head: Head) -> Result<()> {
        self.bytes -= head.bytes();
        let Some((key, value)) = self.inputs[head.input].next().map_err(from_engine)? else {
            return Ok(());
        };
        self.memory.reach(self.bytes + key.len() + value.len())?;
        head.key.clear();
        head.key.extend_from_slice(key);
        head.value.clear();
        head.value.extend_from_slice(value);
        self.bytes += head.bytes();
        self.heads.push(head);
        Ok(())
    }
}

impl Head {
    fn bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }
}

impl Ord for Head {
    /// The greatest is what comes first; of equal keys that of the first input.
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.key.cmp(&other.key);
        let order = if self.is_backward { order } else { order.reverse() };
        order.then(other.input.cmp(&self.input))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}
