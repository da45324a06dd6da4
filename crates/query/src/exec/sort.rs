//! Sorting rows that no index gives in order.
//!
//! With a limit only the best rows are kept. Beyond the memory limit sorted runs go to a temporary
//! file and are merged, if the client allows it.
//!
//! Always true: rows with equal keys stay in the order in which they came.

use super::spill::{SpillFile, SpillReader, TempFiles};
use super::stats::Report;
use super::{Counters, ExecContext, PlanStage, Row};
use bson::{Bson, Document};
use bsonval::SortPattern;
use errors::{Code, Error, Result};
use keystring::Collation;
use limits::{Growth, Part};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a sort may hold in memory.
pub(crate) const MEMORY_LIMIT_BYTES: usize = 100 << 20;
/// What a row costs beside its bytes.
const ROW_BYTES: usize = 96;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: Vec<u8>,
    sequence: u64,
    record_key: Vec<u8>,
    document: Vec<u8>,
}

impl Entry {
    fn size(&self) -> usize {
        self.key.len() + self.record_key.len() + self.document.len() + ROW_BYTES
    }
}

enum State {
    Loading,
    Memory(std::vec::IntoIter<Entry>),
    Merge(BinaryHeap<Reverse<(Entry, usize)>>, Vec<SpillReader>),
}

fn sorted(entries: Vec<Entry>) -> Result<Vec<Entry>> {
    limits::sort_by_key_bytes(entries, |entry| &entry.key, Ord::cmp)
}

/// Less is not worth a run on disk: where there is no room for so much, the sort fails.
const LEAST_RUN_BYTES: usize = 256 << 10;

pub(crate) struct SortStage {
    input: Box<dyn PlanStage>,
    pattern: SortPattern,
    /// The collation.
    under: Option<Collation>,
    limit: Option<usize>,
    memory_limit: usize,
    disk: Option<TempFiles>,
    entries: Vec<Entry>,
    bytes: usize,
    memory: Growth,
    spill: Option<SpillFile>,
    runs: Vec<(u64, u64)>,
    state: State,
    row: Row,
    counters: Counters,
    sorted_bytes: u64,
    handed: u64,
}

impl SortStage {
    /// `disk` is where to spill; `None` forbids it.
    pub(crate) fn new(
        input: Box<dyn PlanStage>,
        (pattern, under): (SortPattern, Option<Collation>),
        limit: Option<usize>,
        memory_limit: usize,
        disk: Option<TempFiles>,
    ) -> Self {
        Self {
            input,
            pattern,
            under,
            limit,
            memory_limit,
            disk,
            entries: Vec::new(),
            bytes: 0,
            memory: Growth::new(Part::Stages),
            spill: None,
            runs: Vec::new(),
            state: State::Loading,
            row: Row::default(),
            counters: Counters::default(),
            sorted_bytes: 0,
            handed: 0,
        }
    }

    fn load(&mut self, exec: &ExecContext<'_>) -> Result<()> {
        while self.input.advance(exec)? {
            self.counters.works += 1;
            let row = self.input.row();
            let entry = Entry {
                key: self.pattern.key(row.document()?, self.under.as_ref())?,
                sequence: self.counters.works,
                record_key: row.record_key.clone(),
                document: row.document.clone(),
            };
            self.sorted_bytes += entry.size() as u64;
            self.bytes += entry.size();
            self.entries.push(entry);
            if self.bytes > self.memory_limit || !self.has_room()? {
                self.shed()?;
                self.memory.shrink(self.bytes);
            } else if let Some(limit) = self.limit
                && self.entries.len() >= limit.saturating_mul(2).max(1024)
            {
                self.keep_best(limit);
            }
        }
        if self.runs.is_empty() {
            let sorted = sorted(std::mem::take(&mut self.entries))?;
            self.state = State::Memory(sorted.into_iter());
            return Ok(());
        }
        self.write_run()?;
        self.memory.shrink(0);
        self.start_merge()
    }

    /// Whether the server's memory for clients has room for what is held; where it has none, that is
    /// written to disk if it is worth a run.
    fn has_room(&mut self) -> Result<bool> {
        match self.memory.reach(self.bytes) {
            Ok(()) => Ok(true),
            Err(error) if self.bytes < LEAST_RUN_BYTES || self.disk.is_none() => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// Forgets what the limit can never reach.
    fn keep_best(&mut self, limit: usize) {
        if self.entries.len() > limit {
            if limit > 0 {
                self.entries.select_nth_unstable(limit - 1);
            }
            self.entries.truncate(limit);
            self.bytes = self.entries.iter().map(Entry::size).sum();
        }
    }

    /// Makes room: by the limit if that is enough, else by a run on disk.
    fn shed(&mut self) -> Result<()> {
        if let Some(limit) = self.limit {
            self.keep_best(limit);
            if self.bytes <= self.memory_limit / 2 {
                return Ok(());
            }
        }
        if self.disk.is_none() {
            return Err(Error::new(
                Code::QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED,
                format!(
                    "Executor error during find command :: caused by :: Sort exceeded memory limit \
                     of {} bytes, but did not opt in to external sorting. Aborting operation. Pass \
                     allowDiskUse:true to opt in.",
                    self.memory_limit
                ),
            ));
        }
        self.write_run()
    }

    fn write_run(&mut self) -> Result<()> {
        let Some(disk) = &self.disk else { return Ok(()) };
        if self.entries.is_empty() {
            return Ok(());
        }
        self.entries = sorted(std::mem::take(&mut self.entries))?;
        let spill = match &mut self.spill {
            Some(spill) => spill,
            None => self.spill.insert(disk.create()?),
        };
        let start = spill.position();
        for entry in self.entries.drain(..) {
            limits::poll_work(1 + entry.size() / limits::BYTES_PER_UNIT)?;
            spill.write(&entry.sequence.to_le_bytes())?;
            spill.write_framed(&entry.key)?;
            spill.write_framed(&entry.record_key)?;
            spill.write_framed(&entry.document)?;
        }
        self.bytes = 0;
        self.runs.push((start, spill.position()));
        Ok(())
    }

    fn start_merge(&mut self) -> Result<()> {
        let Some(spill) = self.spill.take() else { return Ok(()) };
        let file = spill.finish()?;
        let mut heap = BinaryHeap::new();
        let mut readers = Vec::new();
        for (start, end) in &self.runs {
            let mut reader = SpillReader::new(&file, *start, *end);
            if let Some(entry) = read_entry(&mut reader)? {
                heap.push(Reverse((entry, readers.len())));
            }
            readers.push(reader);
        }
        self.state = State::Merge(heap, readers);
        Ok(())
    }

    fn next_entry(&mut self) -> Result<Option<Entry>> {
        match &mut self.state {
            State::Loading => Ok(None),
            State::Memory(entries) => Ok(entries.next()),
            State::Merge(heap, readers) => {
                let Some(Reverse((entry, run))) = heap.pop() else { return Ok(None) };
                if let Some(next) = read_entry(&mut readers[run])? {
                    heap.push(Reverse((next, run)));
                }
                Ok(Some(entry))
            }
        }
    }
}

fn read_entry(reader: &mut SpillReader) -> Result<Option<Entry>> {
    let Some(sequence) = reader.read_u64()? else { return Ok(None) };
    let mut part = || reader.read_framed().map(Option::unwrap_or_default);
    Ok(Some(Entry { sequence, key: part()?, record_key: part()?, document: part()? }))
}

impl PlanStage for SortStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        if matches!(self.state, State::Loading) {
            self.load(exec)?;
        }
        let reached = self.limit.is_some_and(|limit| self.handed >= limit as u64);
        let entry = if reached { None } else { self.next_entry()? };
        let Some(entry) = entry else {
            self.counters.finished = true;
            return Ok(false);
        };
        self.row.record_key = entry.record_key;
        self.row.document = entry.document;
        self.handed += 1;
        self.counters.works += 1;
        self.counters.advanced += 1;
        Ok(true)
    }

    fn row(&self) -> &Row {
        &self.row
    }

    fn release_row(&mut self) {
        self.row.release();
        self.input.release_row();
    }

    fn park(&mut self) {
        self.input.park();
    }

    fn report(&self) -> Report {
        let pattern = Document::try_from(self.pattern.to_document().as_ref()).unwrap_or_default();
        let mut report = Report::new("SORT", self.counters)
            .with("sortPattern", pattern)
            .with("memLimit", self.memory_limit as i32);
        if let Some(limit) = self.limit {
            report = report.with("limitAmount", Bson::Int64(limit as i64));
        }
        let mut report = report
            .with("type", "simple")
            .counting("totalDataSizeSorted", self.sorted_bytes)
            .over(self.input.report());
        report.extra.insert("usedDisk", !self.runs.is_empty());
        report.extra.insert("spills", self.runs.len() as i32);
        report
    }
}
