//! Documents that two scans of indexes both find.
//!
//! The first scan is read to its end and its record keys are kept; the second is read as rows are asked
//! for.
//!
//! Always true: every row that both scans find is handed up. Where the first scan finds more than
//! fits into memory all rows of the second are: whoever takes them asks the whole filter of them.

use super::id_set::{IdSet, KEY_BYTES};
use super::stats::Report;
use super::{Counters, ExecContext, PlanStage, Row};
use errors::Result;

/// What the record keys of the first scan may take in memory.
const MEMORY_BYTES: usize = 64 << 20;

pub(super) struct IntersectStage {
    first: Box<dyn PlanStage>,
    second: Box<dyn PlanStage>,
    /// What the first scan found; `None` before it was read, and where it was too much.
    found: Option<IdSet>,
    read: bool,
    bytes: usize,
    counters: Counters,
}

impl IntersectStage {
    pub(super) fn new(first: Box<dyn PlanStage>, second: Box<dyn PlanStage>) -> Self {
        Self { first, second, found: None, read: false, bytes: 0, counters: Counters::default() }
    }

    fn read_first(&mut self, exec: &ExecContext<'_>) -> Result<()> {
        let mut found = IdSet::default();
        while self.first.advance(exec)? {
            self.counters.works += 1;
            let key = &self.first.row().record_key;
            self.bytes += key.len() + KEY_BYTES;
            if self.bytes > MEMORY_BYTES {
                return Ok(());
            }
            found.insert(key)?;
        }
        self.found = Some(found);
        Ok(())
    }
}

impl PlanStage for IntersectStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        if !std::mem::replace(&mut self.read, true) {
            self.read_first(exec)?;
        }
        if self.found.as_ref().is_some_and(IdSet::is_empty) {
            self.counters.finished = true;
            return Ok(false);
        }
        while self.second.advance(exec)? {
            self.counters.works += 1;
            if self.found.as_ref().is_none_or(|found| found.contains(&self.second.row().record_key))
            {
                self.counters.advanced += 1;
                return Ok(true);
            }
        }
        self.counters.finished = true;
        Ok(false)
    }

    fn row(&self) -> &Row {
        self.second.row()
    }

    fn release_row(&mut self) {
        self.second.release_row();
    }

    fn park(&mut self) {
        self.first.park();
        self.second.park();
    }

    fn report(&self) -> Report {
        let mut report =
            Report::new("AND_HASH", self.counters).counting("memUsage", self.bytes as u64);
        report.inputs = vec![self.first.report(), self.second.report()];
        report
    }
}
