//! A scan of a part of an index.
//!
//! A secondary index yields record keys, or where it covers the query documents put together from its
//! entries; a clustering one yields the documents that its entries hold, which those of the primary key
//! are. Where that is `_id` alone it has no index of its own: the collection itself is read.
//!
//! Always true: a document with several keys in the range is yielded once, at the first of them.

use super::budget::{COST_BYTES, SEEK_COST};
use super::id_set::IdSet;
use super::ranges::{Check, Ranges, damaged};
use super::stats::Report;
use super::{Counters, ExecContext, PlanStage, Row, partitions, passes};
use crate::examined::{Tally, note_way};
use crate::plan::IndexScan;
use bounds::Intervals;
use bson::raw::RawBson;
use bson::{Bson, Document, RawDocumentBuf};
use catalog::{Collection, IndexCursor};
use engine::{DictionaryId, Direction, KeyRange};
use errors::Result;
use indexkeys::PartKind;
use matcher::Filter;
use pipeline::{MOST_BYTES_AHEAD, ReadAheadWindow};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

pub(super) struct IndexStage {
    scan: IndexScan,
    collection: Arc<Collection>,
    ranges: Ranges,
    /// The range that is open or to be opened, in so many stores yet.
    range: KeyRange,
    left: Range<usize>,
    /// The places of the stores whose parts of a secondary index are merged.
    merged: SmallVec<[usize; 1]>,
    cursor: Option<IndexCursor>,
    ahead: RangesAhead,
    seen: Option<IdSet>,
    /// Asked of documents that the entries or the collection give.
    filter: Option<Filter>,
    row: Row,
    /// The entry behind the row, for `returnKey`.
    counters: Tally,
    seeks: u64,
    /// The part of an entry that is a text score, where that is wanted.
    score_at: Option<usize>,
    score: f64,
    /// Nobody asks for the rows, only how many there are.
    counts_only: bool,
}

impl IndexStage {
    pub(super) fn new(
        collection: &Arc<Collection>,
        scan: IndexScan,
        filter: Option<Filter>,
    ) -> Result<Self> {
        let ranges = ranges(collection, &scan)?;
        let merged = partitions::merged(collection, &scan)?;
        let seen = (scan.multikey() != 0).then(IdSet::default);
        Ok(Self {
            scan,
            collection: Arc::clone(collection),
            ranges,
            range: KeyRange::all(),
            left: 0..0,
            merged,
            cursor: None,
            ahead: RangesAhead::default(),
            seen,
            filter,
            row: Row::default(),
            counters: Tally::default(),
            seeks: 0,
            score_at: None,
            score: 0.0,
            counts_only: false,
        })
    }

    /// Reads the score that stands in this part of the entries.
    pub(super) fn read_score(&mut self, part: usize) {
        self.score_at = Some(part);
    }

    /// The score in the entry of the row.
    pub(super) fn score(&self) -> f64 {
        self.score
    }

    /// Goes on in other bounds of one part; what was seen and counted stays.
    pub(super) fn rescan(&mut self, part: usize, bounds: Intervals) -> Result<()> {
        self.scan.bounds[part] = bounds;
        self.ranges = ranges(&self.collection, &self.scan)?;
        self.left = 0..0;
        self.cursor = None;
        Ok(())
    }

    /// Opens the next range, or the one that is open in the next store; false where there is none.
    fn open(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        while self.left.is_empty() {
            self.look_ahead(exec)?;
            let Some(range) = self.ranges.next() else { return Ok(false) };
            self.left = partitions::stores_of(&self.collection, &self.scan, &range);
            self.range = range;
        }
        if let (Some(index), 0) = (&self.scan.index, self.seeks) {
            if !exec.is_trial() {
                index.note_use();
            }
            exec.hold_shape(index, self.scan.planned_multikey)?;
        }
        exec.spend(SEEK_COST)?;
        let direction = if self.scan.backward { Direction::Backward } else { Direction::Forward };
        let place = if self.scan.backward { self.left.next_back() } else { self.left.next() };
        let dictionaries: SmallVec<[DictionaryId; 1]> = match &self.scan.index {
            Some(index) if !index.is_primary() => {
                let places = self.merged.iter();
                places.map(|place| self.collection.index_at(index, *place)).collect()
            }
            _ => place.map(|place| self.collection.primary_at(place)).into_iter().collect(),
        };
        let range = if self.left.is_empty() {
            std::mem::replace(&mut self.range, KeyRange::all())
        } else {
            self.range.clone()
        };
        let open = |dictionary, range| exec.cursor(dictionary, range, direction);
        self.cursor = Some(IndexCursor::open(&dictionaries, range, direction, open)?);
        self.seeks += dictionaries.len() as u64;
        Ok(true)
    }
}

/// Values of `_id` whose documents are read before their turn.
#[derive(Default)]
struct RangesAhead {
    window: ReadAheadWindow,
    /// Of the next so many it was done.
    done: usize,
    /// Pages this thread had read when the last range was opened.
    reads: u64,
}

impl IndexStage {
    /// Before a range is opened: has the documents of the next ones read together, where they are single values of
    /// the key under which documents are stored, and those before had to be read.
    fn look_ahead(&mut self, exec: &ExecContext<'_>) -> Result<()> {
        if self.scan.index.is_some() || !self.ranges.are_points() {
            return Ok(());
        }
        let reads = engine::thread_page_reads();
        // None were read before the first one.
        if reads > std::mem::replace(&mut self.ahead.reads, reads) && self.seeks > 0 {
            self.ahead.window.missed();
        }
        let window = if exec.may_look_ahead() { self.ahead.window.size() } else { 0 };
        if self.ahead.done > 0 || window == 0 {
            self.ahead.done = self.ahead.done.saturating_sub(1);
            return Ok(());
        }
        let keys = self.ranges.points_ahead(window, MOST_BYTES_AHEAD);
        let waited = exec.prefetch(&self.collection, keys.iter().map(|key| &key[..]))?;
        self.ahead.window.read(waited);
        self.ahead.done = keys.len().saturating_sub(1);
        Ok(())
    }
}

/// The bounds of a scan as ranges of key bytes.
pub(super) fn ranges(collection: &Collection, scan: &IndexScan) -> Result<Ranges> {
    let ascending = [keystring::Direction::Ascending];
    let directions = scan.index.as_ref().map_or(&ascending[..], |index| index.keys().directions());
    let collation =
        scan.index.as_ref().map_or(collection.collation(), |index| index.spec().collation.as_ref());
    let limits = scan.key_limits.clone();
    Ranges::new(&scan.bounds, directions, scan.backward, limits, collation)
}

impl Drop for IndexStage {
    fn drop(&mut self) {
        let Counters { keys, documents, advanced, .. } = *self.counters;
        match &self.scan.index {
            _ if keys == 0 => {}
            Some(index) if self.scan.covered || index.spec().clustering => {
                index.note_scanned(keys, documents);
            }
            Some(index) => index.note_scanned(keys, advanced),
            None => self.collection.note_scanned(documents),
        }
    }
}

/// What became of one entry.
enum Step {
    RangeEnd,
    Skipped,
    Entry,
}

impl IndexStage {
    /// Looks at the next entry of the open range.
    fn step(&mut self, exec: &ExecContext<'_>) -> Result<Step> {
        let Some(cursor) = &mut self.cursor else { return Ok(Step::RangeEnd) };
        let Some((key, value)) = cursor.next()? else {
            return Ok(Step::RangeEnd);
        };
        if let Check::SeekTo(target) = self.ranges.check(key)? {
            cursor.seek(&target)?;
            self.seeks += 1;
            exec.spend(SEEK_COST)?;
            return Ok(Step::Skipped);
        }
        let Some(index) = &self.scan.index else {
            self.counters.documents += 1;
            exec.spend(value.len() as u64 / COST_BYTES)?;
            if !passes(self.filter.as_ref(), value)? {
                return Ok(Step::Skipped);
            }
            self.row.set(key, value);
            return Ok(Step::Entry);
        };
        // Where no document has two entries, each is another document, whichever.
        if self.counts_only && self.seen.is_none() {
            return Ok(Step::Entry);
        }
        let record_key = index.keys().record_key_of(key, value)?;
        if let Some(seen) = &mut self.seen
            && !seen.insert(record_key)?
        {
            return Ok(Step::Skipped);
        }
        if let Some(document) = index.keys().document_of(value)? {
            self.row.set(record_key, document);
            if !passes(self.filter.as_ref(), document)? {
                return Ok(Step::Skipped);
            }
            return Ok(Step::Entry);
        }
        if let Some(at) = self.score_at {
            let values = index.keys().values(key, value)?;
            self.score = values.get(at).and_then(Bson::as_f64).unwrap_or_default();
        }
        if !self.scan.covered {
            self.row.set(record_key, &[]);
            return Ok(Step::Entry);
        }
        let record_key = record_key.to_vec();
        let values = index.keys().values(key, value)?;
        // A null in the entry may be a missing field: only the document knows.
        if values.iter().any(|value| matches!(value, Bson::Null | Bson::Undefined)) {
            let Some(document) = exec.get_record(&self.collection, &record_key)? else {
                return Ok(Step::Skipped);
            };
            self.counters.documents += 1;
            self.row.set(&record_key, &document);
        } else {
            let document = put_together(&self.scan, values)?;
            self.row.set(&record_key, document.as_bytes());
        }
        if !passes(self.filter.as_ref(), &self.row.document)? {
            return Ok(Step::Skipped);
        }
        Ok(Step::Entry)
    }
}

/// The document that an entry's values describe: `_id` first, then the parts.
fn put_together(scan: &IndexScan, mut values: Vec<Bson>) -> Result<RawDocumentBuf> {
    let mut document = Document::new();
    if let Some(id) = values.pop() {
        document.insert("_id", id);
    }
    for (part, value) in scan.parts().iter().zip(values) {
        let mut place = &mut document;
        let mut path = part.path.as_str();
        while let Some((first, rest)) = path.split_once('.') {
            let inner =
                place.entry(first.to_owned()).or_insert_with(|| Bson::Document(Document::new()));
            let Bson::Document(inner) = inner else {
                return Err(damaged(keystring::Error::Bson("overlapping parts".to_owned())));
            };
            place = inner;
            path = rest;
        }
        place.insert(path, value);
    }
    Ok(RawDocumentBuf::try_from(&document)?)
}

impl PlanStage for IndexStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        loop {
            if self.cursor.is_none() && !self.open(exec)? {
                self.counters.finished = true;
                return Ok(false);
            }
            self.counters.works += 1;
            exec.tick(self.counters.works)?;
            match self.step(exec)? {
                Step::RangeEnd => {
                    self.counters.works -= 1;
                    self.cursor = None;
                }
                Step::Skipped => self.counters.keys += 1,
                Step::Entry => {
                    self.counters.keys += 1;
                    self.counters.advanced += 1;
                    return Ok(true);
                }
            }
        }
    }

    fn row(&self) -> &Row {
        &self.row
    }

    fn park(&mut self) {
        self.counters.tell();
        if let Some(cursor) = &mut self.cursor {
            cursor.park();
        }
    }

    fn release_row(&mut self) {
        self.row.release();
    }

    fn report(&self) -> Report {
        let scan = &self.scan;
        let mut bounds = Document::new();
        let mut multikey_paths = Document::new();
        let multikey = scan.multikey();
        // As MongoDB has it, a term's entries have no bounds to show.
        let is_text = scan.index.as_ref().is_some_and(|index| index.spec().is_text());
        for (at, part) in scan.parts().iter().enumerate().filter(|_| !is_text) {
            let shown = match scan.bounds.get(at) {
                Some(_) if part.kind == PartKind::Wildcard => {
                    let path = scan.parts().get(at + 1).map_or("", |next| &next.path);
                    vec![format!("[\"{path}\", \"{path}\"]")]
                }
                Some(intervals) => intervals.shown(part.descending != scan.backward),
                None => Vec::new(),
            };
            bounds.insert(part.path.clone(), shown);
            let paths = if multikey & 1 << at != 0 { vec![part.path.clone()] } else { Vec::new() };
            multikey_paths.insert(part.path.clone(), paths);
        }
        let spec = scan.index.as_ref().map(|index| index.spec());
        let key = match (&scan.expanded, spec) {
            (Some(parts), _) => parts
                .iter()
                .map(|part| (part.path.clone(), Bson::Int32(if part.descending { -1 } else { 1 })))
                .collect(),
            (None, Some(spec)) => Document::try_from(spec.key.as_ref()).unwrap_or_default(),
            (None, None) => bson::doc! { "_id": 1 },
        };
        let mut report = Report::new("IXSCAN", *self.counters);
        let clustering = spec.is_some_and(|spec| spec.clustering);
        if clustering {
            report = report.with("clustering", true);
        }
        let filters = scan.covered || clustering;
        report = report.filtering(self.filter.as_ref().filter(|_| filters));
        report = report.with("keyPattern", key).with("indexName", scan.name());
        let collation = spec.map_or(self.collection.collation(), |spec| spec.collation.as_ref());
        if let Some(collation) = collation
            && let Ok(shown) = Document::try_from(&bsonval::collation::to_document(collation))
        {
            report = report.with("collation", shown);
        }
        let places = partitions::scanned(&self.collection, scan).unwrap_or_default();
        report
            .in_partitions(&self.collection, places)
            .with("isMultiKey", multikey != 0 || is_text)
            .with("multiKeyPaths", multikey_paths)
            .with("isUnique", spec.is_none_or(|spec| spec.unique))
            .with("isSparse", spec.is_some_and(|spec| spec.sparse))
            .with("isPartial", spec.is_some_and(|spec| spec.partial.is_some()))
            .with("indexVersion", 2)
            .with("direction", if scan.backward { "backward" } else { "forward" })
            .with("indexBounds", bounds)
            .counting("keysExamined", self.counters.keys)
            .counting("seeks", self.seeks)
            .counting("dupsTested", self.seen.as_ref().map_or(0, |_| self.counters.keys))
            .counting(
                "dupsDropped",
                self.seen.as_ref().map_or(0, |seen| self.counters.keys - seen.len() as u64),
            )
    }
}

/// The collection in the order of `_id`, shown as MongoDB shows it: an index scan and a fetch.
pub(super) struct ClusteredStage(pub(super) IndexStage);

impl PlanStage for ClusteredStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        self.0.advance(exec)
    }

    fn row(&self) -> &Row {
        self.0.row()
    }

    fn release_row(&mut self) {
        self.0.release_row();
    }

    fn park(&mut self) {
        self.0.park();
    }

    fn report(&self) -> Report {
        let counters = *self.0.counters;
        if self.0.collection.options().clustered.is_some() {
            let list = self.0.scan.bounds.first().map_or(&[][..], Intervals::as_slice);
            let low = list.first().map_or(&RawBson::MinKey, |interval| &interval.low);
            let high = list.last().map_or(&RawBson::MaxKey, |interval| &interval.high);
            let counters = Counters { keys: 0, documents: counters.keys, ..counters };
            let (filter, backward) = (self.0.filter.as_ref(), self.0.scan.backward);
            return Report::clustered_scan(counters, filter, backward, (low, high));
        }
        let mut scan = self.0.report();
        scan.counters = Counters { documents: 0, advanced: counters.keys, ..counters };
        Report::new("FETCH", Counters { keys: 0, documents: counters.keys, ..counters })
            .filtering(self.0.filter.as_ref())
            .counting("docsExamined", counters.keys)
            .counting("alreadyHasObj", 0)
            .over(scan)
    }
}

/// Counts the entries of an index: nothing is fetched or put together, and its rows are empty.
pub(crate) struct CountScan(IndexStage);

impl CountScan {
    /// The stage, where the bounds alone decide which documents match.
    pub(crate) fn of(
        collection: &Arc<Collection>,
        access: &crate::plan::Access,
    ) -> Result<Option<Box<dyn PlanStage>>> {
        let crate::plan::AccessPath::Index(scan) = &access.path else { return Ok(None) };
        if access.residual.is_some() || scan.index.is_none() {
            return Ok(None);
        }
        note_way("COUNT_SCAN", scan.index.as_ref());
        let scan = IndexScan { covered: false, ..scan.clone() };
        let mut stage = IndexStage::new(collection, scan, None)?;
        stage.counts_only = true;
        Ok(Some(Box::new(Self(stage))))
    }
}

impl PlanStage for CountScan {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        self.0.advance(exec)
    }

    fn row(&self) -> &Row {
        self.0.row()
    }

    fn release_row(&mut self) {
        self.0.release_row();
    }

    fn park(&mut self) {
        self.0.park();
    }

    fn report(&self) -> Report {
        Report { stage: "COUNT_SCAN", ..self.0.report() }
    }
}
