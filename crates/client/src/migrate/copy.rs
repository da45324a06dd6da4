//! Copies documents: collections are made, split into ranges, and read by several readers.
//!
//! Always true: a collection is in the state before it is made, so that a migration that was killed knows it for its own;
//! the state's `last` of a range moves only behind what the target has acknowledged.

use super::facts::{Facts, Kind, Part};
use super::job::{Job, about, in_parallel};
use super::names::Name;
use super::plan::{Step, bounds_of};
use super::state::{CollectionState, Packed, Phase, RangeState, ranges_between};
use super::translate::collection_options;
use crate::failures::{RETRY_WAIT, is_passing};
use anyhow::Result;
use bson::{Bson, RawDocumentBuf, Timestamp};
use std::sync::Arc;

/// What is written at once: far below the longest message, and enough that a round trip does not count.
const BATCH_BYTES: usize = 4 << 20;
const BATCH_DOCUMENTS: usize = 2000;
/// Smaller collections are read in one go.
const DOCUMENTS_WORTH_SPLITTING: u64 = 50_000;
/// Documents that are sampled for each range.
const SAMPLES_PER_RANGE: usize = 20;
/// How often reading is taken up again where nothing comes of it.
const FRUITLESS_TRIES: u32 = 120;

/// Makes the collections that are to be made, and copies what is left of all.
pub(crate) fn copy_all(job: &Arc<Job>, planned: &[(Facts, Step)]) -> Result<()> {
    for (facts, step) in planned {
        job.target.expect_validator(facts);
        note_beginning(job, facts, *step)?;
    }
    let planned = || planned.iter().filter(|(facts, _)| facts.kind != Kind::View);
    job.write_state()?;
    for (facts, step) in planned() {
        about(&facts.name, make(job, facts, *step))?;
    }
    let (total, before) = amounts(job, planned().map(|(facts, _)| facts));
    job.progress.begin("copying", total, before);
    let mut items = Vec::new();
    for (facts, _) in planned() {
        let facts = Arc::new(facts.clone());
        let ranges = job.state(|state| state.of(&facts.name).map(|one| one.ranges.clone()));
        for (at, range) in ranges.unwrap_or_default().into_iter().enumerate() {
            if !range.done {
                items.push((facts.clone(), at));
            }
        }
    }
    in_parallel(job, items, |job, (facts, at)| {
        about(&facts.name, copy_range(job, &facts, at, None))
    })?;
    for (facts, _) in planned() {
        job.change_collection(&facts.name, |one| one.phase = one.phase.max(Phase::Copied))?;
    }
    job.progress.end();
    job.write_state()
}

/// Bytes in all and of what earlier runs did.
fn amounts<'a>(job: &Job, all: impl Iterator<Item = &'a Facts>) -> (u64, u64) {
    let (mut total, mut before) = (0, 0);
    for facts in all {
        let done = job.state(|state| {
            let ranges = state.of(&facts.name).map(|one| one.ranges.as_slice());
            ranges.unwrap_or_default().iter().map(|range| range.bytes).sum::<u64>()
        });
        total += facts.bytes.max(done);
        before += done;
    }
    (total, before)
}

/// Writes into the state that a collection is about to be ours, and how it is split.
pub(crate) fn note_beginning(job: &Job, facts: &Facts, step: Step) -> Result<()> {
    let existed = match step {
        Step::Create | Step::StartOver => false,
        Step::Into => true,
        Step::Continue | Step::Copied | Step::Refuse => return Ok(()),
    };
    let mut bounds = Vec::new();
    if facts.kind == Kind::Ordered
        && job.parallel > 1
        && facts.documents >= DOCUMENTS_WORTH_SPLITTING
    {
        let sample = job.source.sample(facts, job.parallel * SAMPLES_PER_RANGE);
        bounds = bounds_of(&sample, job.parallel);
    }
    let ranges = if facts.kind == Kind::View { Vec::new() } else { ranges_between(&bounds) };
    let begun = CollectionState { phase: Phase::Copying, existed, ranges };
    job.change(|state| drop(state.collections.insert(facts.name.to_string(), begun)))
}

/// Makes a collection at the target.
pub(crate) fn make(job: &Job, facts: &Facts, step: Step) -> Result<()> {
    if step == Step::StartOver {
        job.target.drop(&facts.name)?;
    }
    if matches!(step, Step::Create | Step::StartOver) {
        let left_out = job.target.create(facts, collection_options(&facts.options))?;
        let is_partitioned = !left_out.iter().any(|one| one.option == "partitioned");
        job.note_left_out(&facts.name.to_string(), left_out);
        for bound in facts.partitions.iter().filter(|_| is_partitioned) {
            if let Err(error) = job.target.add_partition(&facts.name, bound) {
                job.report()
                    .note(format!("{}, partition up to {bound}", facts.name), error.to_string());
            }
        }
    }
    Ok(())
}

/// Copies what is left of a range, as it is now or was at a time. Where the source or its cursor is lost it goes on behind
/// the last document.
fn copy_range(job: &Job, facts: &Facts, at: usize, time: Option<Timestamp>) -> Result<()> {
    let mut fruitless = 0;
    let mut reached = range(job, facts, at).documents;
    loop {
        match read_range(job, facts, at, time) {
            Ok(()) => break,
            Err(error) if is_passing(&error) && facts.kind == Kind::Ordered => {
                let now = range(job, facts, at).documents;
                fruitless = if now > reached { 0 } else { fruitless + 1 };
                reached = now;
                if fruitless >= FRUITLESS_TRIES {
                    return Err(error);
                }
                job.os.clock.sleep(RETRY_WAIT);
            }
            Err(error) => return Err(error),
        }
    }
    job.change_collection(&facts.name, |one| {
        if let Some(range) = one.ranges.get_mut(at) {
            range.done = true;
        }
        if one.ranges.iter().all(|range| range.done) {
            one.phase = one.phase.max(Phase::Copied);
        }
    })
}

fn range(job: &Job, facts: &Facts, at: usize) -> RangeState {
    let read = |one: &CollectionState| one.ranges.get(at).cloned();
    job.state(|state| state.of(&facts.name).and_then(read)).unwrap_or_default()
}

fn read_range(job: &Job, facts: &Facts, at: usize, time: Option<Timestamp>) -> Result<()> {
    let mut batch = Batch::default();
    let rest = Part { at: time, ..range(job, facts, at).rest() };
    for document in job.source.read(facts, &rest)? {
        batch.push(document?);
        if batch.is_full() {
            write(job, facts, at, &mut batch)?;
        }
    }
    write(job, facts, at, &mut batch)
}

/// Writes a batch, and then the state.
fn write(job: &Job, facts: &Facts, at: usize, batch: &mut Batch) -> Result<()> {
    let Some(last) = batch.documents.last() else { return Ok(()) };
    let last = last.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok());
    job.throttle.wait_for(batch.bytes as u64);
    insert(job, facts, &batch.documents)?;
    let (documents, bytes) = (batch.documents.len() as u64, batch.bytes as u64);
    job.progress.add(bytes, &facts.name.to_string());
    *batch = Batch::default();
    job.change_collection(&facts.name, |one| {
        if let Some(range) = one.ranges.get_mut(at) {
            range.last = last.map(Packed);
            range.documents += documents;
            range.bytes += bytes;
        }
    })
}

/// Inserts documents, and tells of those that are refused.
fn insert(job: &Job, facts: &Facts, batch: &[RawDocumentBuf]) -> Result<()> {
    let is_ordered = facts.kind == Kind::Natural;
    let (there, refused) = job.target.insert(&facts.name, batch, is_ordered)?;
    let mut report = job.report();
    report.documents += (batch.len() - refused.len()) as u64;
    report.replaced += there;
    for error in refused {
        let id = batch.get(error.at).map(shown_id).unwrap_or_default();
        report.refused_document(
            &facts.name,
            &id,
            &format!("{} (code {})", error.error, error.code),
        );
    }
    Ok(())
}

pub(crate) fn shown_id(document: &RawDocumentBuf) -> String {
    let id = document.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok());
    id.map_or_else(|| "without _id".to_owned(), |id| id.to_string().chars().take(80).collect())
}

/// Copies a whole collection at once, beside changes that are followed, as it is now or was at a time: one that got
/// another's name.
pub(crate) fn copy_at(job: &Job, facts: &Facts, time: Option<Timestamp>) -> Result<()> {
    note_beginning(job, &Facts { documents: 0, ..facts.clone() }, Step::Create)?;
    job.write_state()?;
    make(job, facts, Step::Create)?;
    about(&facts.name, copy_range(job, facts, 0, time))
}

/// A collection that is new at the source: all its documents are still to come as changes.
pub(crate) fn begin_empty(job: &Job, facts: &Facts) -> Result<()> {
    job.target.expect_validator(facts);
    let begun = CollectionState { phase: Phase::Copied, existed: false, ranges: Vec::new() };
    job.change(|state| drop(state.collections.insert(facts.name.to_string(), begun)))?;
    job.write_state()?;
    make(job, facts, Step::Create)
}

/// Whether a collection belongs to this migration, and whether it was at the target before.
pub(crate) fn ours(job: &Job, name: &Name) -> Option<bool> {
    job.state(|state| state.of(name).map(|one| one.existed))
}

/// Documents that are written at once.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) documents: Vec<RawDocumentBuf>,
    pub(crate) bytes: usize,
}

impl Batch {
    pub(crate) fn push(&mut self, document: RawDocumentBuf) {
        self.bytes += document.as_bytes().len();
        self.documents.push(document);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.documents.len() >= BATCH_DOCUMENTS
    }
}
