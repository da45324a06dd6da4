//! `$sample`: documents by chance.
//!
//! Each document draws a number; the `size` smallest draws are held in a heap and come out in the
//! order of their draws, so any subset in any order is equally likely. What exceeds the memory
//! limit is an ordinary sort that spills.

use crate::memory::StageMemory;
use crate::source::DocumentSource;
use crate::spill::{Merged, Runs, document_from};
use crate::stage::{Output, Part, PipelineStage, StageInput, StageSpec, object};
use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};
use bsonval::number::Number;
use errors::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A parsed `$sample`: how many documents.
#[derive(Clone, Copy, Debug)]
struct Sample(u64);

pub(crate) fn parse(value: RawBsonRef<'_>) -> Result<PipelineStage> {
    let spec = object(value, |_| {
        Error::location(28745, "the $sample stage specification must be an object")
    })?;
    let mut size = None;
    for element in spec.iter_elements() {
        let element = element?;
        if element.key().as_str() != "size" {
            return Err(Error::location(
                28748,
                format!("unrecognized option to $sample: {}", element.key().as_str()),
            ));
        }
        let number = Number::from_bson(element.value()?)
            .ok_or_else(|| Error::location(28746, "size argument to $sample must be a number"))?;
        let whole = number.to_f64();
        if whole.is_nan() || whole < 1.0 {
            return Err(Error::location(
                28747,
                "size argument to $sample must be a positive integer",
            ));
        }
        size = Some(whole as u64);
    }
    let size = size.ok_or_else(|| Error::location(28749, "$sample stage must specify a size"))?;
    Ok(PipelineStage::other(Sample(size)))
}

impl StageSpec for Sample {
    fn name(&self) -> &'static str {
        "$sample"
    }

    fn argument(&self) -> RawBson {
        let size = RawBsonRef::Int64(i64::try_from(self.0).unwrap_or(i64::MAX));
        RawBson::Document(bsonval::raw::document_of("size", size))
    }

    fn parts(&self) -> Vec<Part<'_>> {
        vec![Part::Chance]
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(SampleSource::new(run, self.0)))
    }

    fn output(&self) -> Output {
        Output::Passing
    }
}

pub(crate) struct SampleSource {
    run: StageInput,
    size: u64,
    state: State,
    held: StageMemory,
    emitted: u64,
}

enum State {
    Waiting,
    Memory(std::collections::btree_map::IntoValues<(u64, u64), RawDocumentBuf>),
    Merging(Merged),
}

impl SampleSource {
    pub(crate) fn new(run: StageInput, size: u64) -> Self {
        let held = StageMemory::within(run.env.options().memory_limit_bytes);
        Self { run, size, state: State::Waiting, held, emitted: 0 }
    }

    fn gather(&mut self) -> Result<State> {
        let options = self.run.env.options();
        let mut held: BTreeMap<(u64, u64), RawDocumentBuf> = BTreeMap::new();
        let (mut bytes, mut arrival) = (0, 0_u64);
        let mut runs: Option<Runs> = None;
        while let Some(document) = self.run.input.next()? {
            if arrival.is_multiple_of(128) {
                self.run.env.check_interrupt()?;
            }
            let draw = (self.run.variables.random() * (1_u64 << 53) as f64) as u64;
            bytes += document.as_bytes().len() + 96;
            held.insert((draw, arrival), document);
            arrival += 1;
            if held.len() as u64 > self.size
                && let Some((_, dropped)) = held.pop_last()
            {
                bytes -= dropped.as_bytes().len() + 96;
            }
            if !self.held.fits(bytes, 0)? {
                if !options.allow_disk_use {
                    return Err(crate::env::no_disk_use("Sort", options.memory_limit_bytes));
                }
                if runs.is_none() {
                    runs = Some(Runs::create(&*self.run.env)?);
                }
                if let Some(runs) = &mut runs {
                    write_run(runs, std::mem::take(&mut held))?;
                }
                bytes = 0;
                self.held.release();
            }
        }
        Ok(match runs {
            None => State::Memory(held.into_values()),
            Some(mut runs) => {
                write_run(&mut runs, held)?;
                self.held.release();
                State::Merging(runs.merge(&*self.run.env)?)
            }
        })
    }
}

fn write_run(runs: &mut Runs, held: BTreeMap<(u64, u64), RawDocumentBuf>) -> Result<()> {
    let records = held
        .into_iter()
        .map(|((draw, _), document)| Ok((draw.to_be_bytes(), document.into_bytes())));
    runs.write(records)
}

impl DocumentSource for SampleSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        if self.emitted >= self.size {
            return Ok(None);
        }
        if matches!(self.state, State::Waiting) {
            self.state = self.gather()?;
        }
        self.emitted += 1;
        match &mut self.state {
            State::Waiting => Ok(None),
            State::Memory(documents) => Ok(documents.next()),
            State::Merging(merged) => {
                merged.next()?.map(|(_, bytes)| document_from(bytes)).transpose()
            }
        }
    }

    fn park(&mut self) {
        self.run.input.park();
    }
}
