//! Several ways whose documents come in one order, merged.
//!
//! Always true: each input is in the order of the pattern, so that the least of their heads is the
//! next row; of the inputs no more is read than the rows that were handed up, and the heads.

use super::id_set::IdSet;
use super::stats::Report;
use super::{Counters, ExecContext, PlanStage, Row};
use bson::Document;
use bsonval::SortPattern;
use errors::Result;
use keystring::Collation;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub(crate) struct MergeStage {
    inputs: Vec<Box<dyn PlanStage>>,
    pattern: SortPattern,
    /// The collation.
    under: Option<Collation>,
    /// The key and the input of each head; of equal keys the first input's.
    heads: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    /// The input whose row was handed up last.
    current: Option<usize>,
    /// Kept where several inputs may find the same document.
    seen: Option<IdSet>,
    dropped: u64,
    counters: Counters,
}

impl MergeStage {
    pub(crate) fn new(
        inputs: Vec<Box<dyn PlanStage>>,
        (pattern, under): (SortPattern, Option<Collation>),
        disjoint: bool,
    ) -> Self {
        Self {
            inputs,
            pattern,
            under,
            heads: BinaryHeap::new(),
            current: None,
            seen: (!disjoint).then(IdSet::default),
            dropped: 0,
            counters: Counters::default(),
        }
    }

    /// Takes the next row of an input among the heads.
    fn pull(&mut self, input: usize, exec: &ExecContext<'_>) -> Result<()> {
        if self.inputs[input].advance(exec)? {
            let document = self.inputs[input].row().document()?;
            let key = self.pattern.key(document, self.under.as_ref())?;
            self.heads.push(Reverse((key, input)));
        }
        Ok(())
    }
}

impl PlanStage for MergeStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        if self.counters.works == 0 {
            for input in 0..self.inputs.len() {
                self.pull(input, exec)?;
            }
        }
        loop {
            if let Some(last) = self.current.take() {
                self.pull(last, exec)?;
            }
            self.counters.works += 1;
            let Some(Reverse((_, input))) = self.heads.pop() else {
                self.counters.works -= 1;
                self.counters.finished = true;
                return Ok(false);
            };
            self.current = Some(input);
            if let Some(seen) = &mut self.seen
                && !seen.insert(&self.inputs[input].row().record_key)?
            {
                self.dropped += 1;
                continue;
            }
            self.counters.advanced += 1;
            return Ok(true);
        }
    }

    fn row(&self) -> &Row {
        self.inputs[self.current.unwrap_or_default()].row()
    }

    fn release_row(&mut self) {
        // The others stand on rows that come later.
        if let Some(current) = self.current {
            self.inputs[current].release_row();
        }
    }

    fn park(&mut self) {
        for input in &mut self.inputs {
            input.park();
        }
    }

    fn report(&self) -> Report {
        let tested = self.seen.as_ref().map_or(0, |_| self.counters.works);
        let pattern = Document::try_from(self.pattern.to_document().as_ref()).unwrap_or_default();
        let mut report = Report::new("SORT_MERGE", self.counters)
            .with("sortPattern", pattern)
            .counting("dupsTested", tested)
            .counting("dupsDropped", self.dropped);
        report.inputs = self.inputs.iter().map(|input| input.report()).collect();
        report
    }
}
