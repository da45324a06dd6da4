//! Skip and limit.

use super::stats::Report;
use super::{Counters, ExecContext, PlanStage, Row};
use bson::Bson;
use errors::Result;

/// Leaves out the first rows.
pub(crate) struct SkipStage {
    input: Box<dyn PlanStage>,
    skip: u64,
    left: u64,
    counters: Counters,
}

impl SkipStage {
    pub(crate) fn new(input: Box<dyn PlanStage>, skip: u64) -> Self {
        Self { input, skip, left: skip, counters: Counters::default() }
    }
}

impl PlanStage for SkipStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        loop {
            self.counters.works += 1;
            if !self.input.advance(exec)? {
                self.counters.works -= 1;
                self.counters.finished = true;
                return Ok(false);
            }
            if self.left == 0 {
                self.counters.advanced += 1;
                return Ok(true);
            }
            self.left -= 1;
        }
    }

    fn row(&self) -> &Row {
        self.input.row()
    }

    fn release_row(&mut self) {
        self.input.release_row();
    }

    fn park(&mut self) {
        self.input.park();
    }

    fn report(&self) -> Report {
        Report::new("SKIP", self.counters)
            .with("skipAmount", Bson::Int64(self.skip as i64))
            .over(self.input.report())
    }
}

/// Ends after so many rows.
pub(crate) struct LimitStage {
    input: Box<dyn PlanStage>,
    limit: u64,
    counters: Counters,
}

impl LimitStage {
    pub(crate) fn new(input: Box<dyn PlanStage>, limit: u64) -> Self {
        Self { input, limit, counters: Counters::default() }
    }
}

impl PlanStage for LimitStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        if self.counters.advanced >= self.limit || !self.input.advance(exec)? {
            self.counters.finished = true;
            return Ok(false);
        }
        self.counters.works += 1;
        self.counters.advanced += 1;
        Ok(true)
    }

    fn row(&self) -> &Row {
        self.input.row()
    }

    fn release_row(&mut self) {
        self.input.release_row();
    }

    fn park(&mut self) {
        self.input.park();
    }

    fn report(&self) -> Report {
        Report::new("LIMIT", self.counters)
            .with("limitAmount", Bson::Int64(self.limit as i64))
            .over(self.input.report())
    }
}
