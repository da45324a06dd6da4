//! The entries of the oplog, the newest first.
//!
//! The history is read forward alone, so a stretch of it is read at a time, from one time to another, and
//! given in the other direction. Stretches grow as long as they hold little, and are halved where they
//! hold too much: whoever wants the last entry alone reads little.

use super::Bounds;
use super::source::{Entries, is_lost};
use crate::context::Interrupt;
use crate::cursor::InterruptSlot;
use crate::past::{PastReader, Step};
use bson::raw::RawDocumentBuf;
use engine::History;
use errors::Result;
use limits::{Growth, Part};
use oplog::Time;
use oplog::entry::time_of;
use pipeline::DocumentSource;
use std::sync::Arc;

/// Bytes of entries above which a stretch is too long, unless it is as short as can be.
const MOST_BYTES: usize = 16 << 20;
/// Below this the next stretch is longer.
const FEW_BYTES: usize = 1 << 20;

/// The entries within bounds, backward.
pub(super) struct Backward {
    history: Arc<History>,
    interrupt: Arc<InterruptSlot>,
    bounds: Bounds,
    /// Entries up to here are still to be given.
    until: Time,
    /// How long the next stretch is, in times.
    length: u64,
    /// The newest last.
    entries: Vec<RawDocumentBuf>,
    memory: Growth,
}

impl Backward {
    pub(super) fn new(
        history: Arc<History>,
        interrupt: Arc<InterruptSlot>,
        mut bounds: Bounds,
    ) -> Result<Self> {
        let oldest = Time(history.oldest_time().map_err(catalog::from_engine)?);
        bounds.after = bounds.after.max(oldest);
        let until = bounds.until.min(Time(history.durable_time()));
        let memory = Growth::new(Part::Stages);
        Ok(Self { history, interrupt, bounds, until, length: 1, entries: Vec::new(), memory })
    }

    /// The log was cut: what went is no longer wanted. Whether it begins later than was known.
    fn begins_later(&mut self) -> Result<bool> {
        let oldest = Time(self.history.oldest_time().map_err(catalog::from_engine)?);
        let is_later = oldest > self.bounds.after;
        self.bounds.after = self.bounds.after.max(oldest);
        Ok(is_later)
    }

    /// Reads the stretch before `until`; false where it holds too much.
    fn read(&mut self, from: Time) -> Result<bool> {
        let mut reader = PastReader::after(&self.history, from)?;
        let mut bytes = 0;
        loop {
            let step = reader.next(&*self.interrupt, &|_| true)?;
            if let Step::Commit(commit) = step {
                let is_last = commit.head().last() >= self.until;
                let mut entries = Entries::of(commit);
                while let Some(entry) = entries.next()? {
                    limits::poll()?;
                    let Some(time) = time_of(&entry) else { continue };
                    if time <= from || time > self.until {
                        continue;
                    }
                    bytes += entry.as_bytes().len();
                    if bytes > MOST_BYTES && self.length > 1 {
                        return Ok(false);
                    }
                    self.memory.reach(bytes)?;
                    self.entries.push(entry);
                }
                if is_last {
                    break;
                }
            } else if matches!(step, Step::End) || reader.position() >= self.until {
                break;
            }
        }
        self.until = from;
        if bytes < FEW_BYTES {
            self.length = self.length.saturating_mul(4);
        }
        Ok(true)
    }
}

impl DocumentSource for Backward {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        loop {
            self.interrupt.check()?;
            if let Some(entry) = self.entries.pop() {
                return Ok(Some(entry));
            }
            if self.until <= self.bounds.after {
                return Ok(None);
            }
            let from = Time(self.until.0.saturating_sub(self.length)).max(self.bounds.after);
            match self.read(from) {
                Ok(true) => {}
                Ok(false) => {
                    self.entries.clear();
                    self.length = (self.length / 4).max(1);
                }
                Err(error) if is_lost(&error) && self.begins_later()? => self.entries.clear(),
                Err(error) => return Err(error),
            }
        }
    }

    fn park(&mut self) {
        // What was read is given up, and read again from the entry on that was given last.
        if let Some(time) = self.entries.last().and_then(|entry| time_of(entry)) {
            self.until = time;
        }
        self.entries = Vec::new();
        self.memory.shrink(0);
    }
}
