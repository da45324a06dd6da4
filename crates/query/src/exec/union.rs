//! Several ways to documents, each document once.

use super::id_set::IdSet;
use super::stats::Report;
use super::{Counters, ExecContext, PlanStage, Row};
use errors::Result;

pub(super) struct UnionStage {
    inputs: Vec<Box<dyn PlanStage>>,
    current: usize,
    seen: IdSet,
    counters: Counters,
}

impl UnionStage {
    pub(super) fn new(inputs: Vec<Box<dyn PlanStage>>) -> Self {
        Self { inputs, current: 0, seen: IdSet::default(), counters: Counters::default() }
    }
}

impl PlanStage for UnionStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        while let Some(input) = self.inputs.get_mut(self.current) {
            if !input.advance(exec)? {
                self.current += 1;
                continue;
            }
            self.counters.works += 1;
            let record_key = &input.row().record_key;
            if self.seen.insert(record_key)? {
                self.counters.advanced += 1;
                return Ok(true);
            }
        }
        self.counters.finished = true;
        Ok(false)
    }

    fn row(&self) -> &Row {
        self.inputs[self.current].row()
    }

    fn release_row(&mut self) {
        if let Some(input) = self.inputs.get_mut(self.current) {
            input.release_row();
        }
    }

    fn park(&mut self) {
        for input in &mut self.inputs {
            input.park();
        }
    }

    fn report(&self) -> Report {
        let dropped = self.counters.works - self.counters.advanced;
        let mut report = Report::new("OR", self.counters)
            .counting("dupsTested", self.counters.works)
            .counting("dupsDropped", dropped);
        report.inputs = self.inputs.iter().map(|input| input.report()).collect();
        report
    }
}
