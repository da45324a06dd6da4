//! `$sort`: in memory, as the top k where a limit follows, or by merging spilled runs.
//!
//! Documents are ordered by key bytes, then by arrival. With a limit only the best `limit`
//! documents are held, in a heap.

use crate::env::no_disk_use;
use crate::memory::StageMemory;
use crate::parse::PipelineContext;
use crate::source::DocumentSource;
use crate::spill::{Merged, Runs, document_from};
use crate::stage::{Output, Part, PipelineStage, StageInput, StageSpec, object};
use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};
use bsonval::raw::Writer;
use bsonval::{SortPattern, text_score};
use errors::{Error, Result};
use expr::agg::Scored;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;

/// A parsed sort.
#[derive(Clone, Debug)]
pub struct Sort {
    /// By what.
    pub pattern: SortPattern,
    /// Only so many of the first are wanted.
    pub limit: Option<u64>,
}

impl Sort {
    /// `{sortKey: pattern, limit: n}`, as explain shows it.
    pub(crate) fn to_document(&self) -> RawDocumentBuf {
        let mut out = Writer::default();
        let open = out.begin();
        out.value("sortKey", RawBsonRef::Document(&self.pattern.to_document()));
        if let Some(limit) = self.limit {
            out.value("limit", RawBsonRef::Int64(i64::try_from(limit).unwrap_or(i64::MAX)));
        }
        out.end(open);
        out.finish().expect("a document just written is well formed")
    }
}

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    let spec =
        object(value, |_| Error::location(15973, "the $sort key specification must be an object"))?;
    if spec.is_empty() {
        return Err(Error::location(15976, "$sort stage must have at least one sort key"));
    }
    let scored = ctx.parse.names.scored;
    let score = scored.field().unwrap_or(text_score::SCORE_FIELD);
    let pattern = SortPattern::parse_scored(spec, Some(score))?;
    if scored == Scored::No && pattern.uses_score() && !pattern.uses_text_score() {
        return Err(text_score::missing(text_score::SCORE_META));
    }
    Ok(PipelineStage::Sort(Arc::new(Sort { pattern, limit: None })))
}

impl StageSpec for Sort {
    fn name(&self) -> &'static str {
        "$sort"
    }

    fn argument(&self) -> RawBson {
        RawBson::Document(self.to_document())
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let paths = self.pattern.paths().iter();
        paths.map(|path| Part::Field(path.as_str().to_owned())).collect()
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(SortSource::new(run, self)))
    }

    fn output(&self) -> Output {
        Output::Passing
    }

    fn lets_match_pass(&self, _: &BTreeSet<String>) -> bool {
        self.limit.is_none()
    }
}

/// Key, arrival, document: the derived order is the order of the output.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: Vec<u8>,
    arrival: u64,
    document: DocumentBytes,
}

/// Arrival numbers differ, so documents are never really compared.
struct DocumentBytes(RawDocumentBuf);

impl PartialEq for DocumentBytes {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for DocumentBytes {}

impl PartialOrd for DocumentBytes {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DocumentBytes {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.as_bytes().cmp(other.0.as_bytes())
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        self.key.len() + self.document.0.as_bytes().len() + 96
    }
}

pub(crate) struct SortSource {
    run: StageInput,
    sort: Arc<Sort>,
    state: State,
    held: StageMemory,
    emitted: u64,
}

enum State {
    Waiting,
    Memory(std::vec::IntoIter<Entry>),
    Merging(Merged),
    Done,
}

impl SortSource {
    pub(crate) fn new(run: StageInput, sort: Arc<Sort>) -> Self {
        let held = StageMemory::within(run.env.options().memory_limit_bytes);
        Self { run, sort, state: State::Waiting, held, emitted: 0 }
    }

    fn gather(&mut self) -> Result<State> {
        let options = self.run.env.options();
        let limit =
            self.sort.limit.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
        // A heap for the top k, a list for everything: the heap's greatest is the worst kept.
        let mut heap: BinaryHeap<Entry> = BinaryHeap::new();
        let mut list: Vec<Entry> = Vec::new();
        let (mut bytes, mut arrival) = (0, 0_u64);
        let mut runs: Option<Runs> = None;
        while let Some(document) = self.run.input.next()? {
            if arrival.is_multiple_of(128) {
                self.run.env.check_interrupt()?;
            }
            let key = self.sort.pattern.key(&document, self.run.variables.collation())?;
            let entry = Entry { key, arrival, document: DocumentBytes(document) };
            arrival += 1;
            if limit == usize::MAX {
                bytes += entry.bytes();
                list.push(entry);
            } else {
                if heap.len() == limit && heap.peek().is_some_and(|worst| entry >= *worst) {
                    continue;
                }
                bytes += entry.bytes();
                heap.push(entry);
                if heap.len() > limit
                    && let Some(dropped) = heap.pop()
                {
                    bytes -= dropped.bytes();
                }
            }
            if !self.held.fits(bytes, 0)? {
                if !options.allow_disk_use {
                    return Err(no_disk_use("Sort", options.memory_limit_bytes));
                }
                list.extend(std::mem::take(&mut heap));
                if runs.is_none() {
                    runs = Some(Runs::create(&*self.run.env)?);
                }
                if let Some(runs) = &mut runs {
                    spill(runs, &mut list)?;
                }
                bytes = 0;
                self.held.release();
            }
        }
        list.extend(heap);
        match runs {
            None => {
                let list = sorted(list)?;
                Ok(State::Memory(list.into_iter()))
            }
            Some(mut runs) => {
                spill(&mut runs, &mut list)?;
                self.held.release();
                Ok(State::Merging(runs.merge(&*self.run.env)?))
            }
        }
    }

    fn end(&mut self) {
        self.state = State::Done;
        self.held.release();
    }

    fn pull(&mut self) -> Result<Option<RawDocumentBuf>> {
        if matches!(self.state, State::Waiting) {
            self.state = self.gather()?;
        }
        match &mut self.state {
            State::Memory(entries) => Ok(entries.next().map(|entry| entry.document.0)),
            State::Merging(merged) => {
                merged.next()?.map(|(_, bytes)| document_from(bytes)).transpose()
            }
            State::Waiting | State::Done => Ok(None),
        }
    }
}

fn sorted(list: Vec<Entry>) -> Result<Vec<Entry>> {
    limits::sort_by_key_bytes(list, |entry| &entry.key, Entry::cmp)
}

fn spill(runs: &mut Runs, list: &mut Vec<Entry>) -> Result<()> {
    let sorted = sorted(std::mem::take(list))?;
    runs.write(sorted.iter().map(|e| Ok((e.key.as_slice(), e.document.0.as_bytes()))))
}

impl DocumentSource for SortSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        if self.sort.limit.is_some_and(|limit| self.emitted >= limit) {
            self.end();
            return Ok(None);
        }
        let document = self.pull()?;
        match document {
            Some(_) => self.emitted += 1,
            None => self.end(),
        }
        Ok(document)
    }

    fn park(&mut self) {
        self.run.input.park();
    }
}
