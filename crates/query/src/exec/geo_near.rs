//! Documents by their distance from a point: rings of growing radius over a geospatial index.
//!
//! From → to: a ring's cells are scanned [`NearStage::gather`], what is met for the first time is
//! fetched and measured; once a ring is done, everything up to its outer edge is known and handed up
//! in order [`NearStage::nearest`]. Rings grow where little is found and shrink where much is.
//!
//! Always true: a document is handed up once, at the distance of the nearest of its geometries, and
//! never before all that are nearer.

use super::fetch::document_of;
use super::id_set::IdSet;
use super::ixscan::IndexStage;
use super::sort::MEMORY_LIMIT_BYTES;
use super::stats::{Report, number};
use super::{ExecContext, PlanStage, Row, passes};
use crate::examined::Tally;
use crate::plan::{NearOutput, NearScan, ring_bounds};
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use bsonval::raw::{self, Writer};
use catalog::Collection;
use errors::{Code, Error, Result};
use expr::agg::{GEO_NEAR_DISTANCE, GEO_NEAR_POINT};
use geo::{EARTH_RADIUS_METRES, Grid};
use matcher::Filter;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::f64::consts::PI;
use std::sync::Arc;

/// How wide the first ring is on the sphere.
const FIRST_WIDTH_METRES: f64 = 100.0;
/// How wide it is on the plane, as a share of the grid.
const FIRST_WIDTH_SHARE: f64 = 1e-4;
/// A ring that finds fewer makes the next one wider.
const FEW: u64 = 64;
/// A ring that finds more makes the next one narrower.
const MANY: u64 = 512;
/// How many rings `explain` tells of.
const SHOWN_RINGS: usize = 100;

/// A document that was met, not yet handed up.
struct Found {
    distance: f64,
    /// Equal distances keep the order in which they were met.
    sequence: u64,
    record_key: Vec<u8>,
    /// Empty where it is to be fetched again: too much was held.
    document: Vec<u8>,
}

impl PartialEq for Found {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Found {}

impl PartialOrd for Found {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Found {
    fn cmp(&self, other: &Self) -> Ordering {
        self.distance.total_cmp(&other.distance).then(self.sequence.cmp(&other.sequence))
    }
}

/// Where the search stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The next ring is to be opened.
    Between,
    /// A ring is being scanned.
    Scanning,
    /// All rings are done.
    Done,
}

pub(super) struct NearStage {
    collection: Arc<Collection>,
    target: NearScan,
    filter: Option<Filter>,
    entries: IndexStage,
    seen: IdSet,
    found: BinaryHeap<Reverse<Found>>,
    found_bytes: usize,
    state: State,
    /// The ring at hand, in the query's unit of distance.
    ring: (f64, f64),
    width: f64,
    /// Nothing lies farther, or nothing farther is wanted.
    farthest: f64,
    met_in_ring: u64,
    rings: Vec<Document>,
    row: Row,
    counters: Tally,
}

impl NearStage {
    pub(super) fn new(
        collection: &Arc<Collection>,
        target: NearScan,
        filter: Option<Filter>,
    ) -> Result<Self> {
        let entries = IndexStage::new(collection, target.scan.clone(), None)?;
        let grid = grid_of(&target);
        let near = &target.near;
        let (least, most) = near.limits();
        let (reach, width) = if near.sphere().is_some() {
            (PI * near.unit(), FIRST_WIDTH_METRES / EARTH_RADIUS_METRES * near.unit())
        } else {
            let (x, y) = near.centre().place;
            let far = |at: f64| (at - grid.min).abs().max((at - grid.max).abs());
            (far(x).hypot(far(y)), (grid.max - grid.min) * FIRST_WIDTH_SHARE)
        };
        // A little more than the farthest, for what rounding makes of it.
        let farthest = most.min(reach * (1.0 + 1e-9));
        let state = if least > farthest { State::Done } else { State::Between };
        Ok(Self {
            collection: Arc::clone(collection),
            target,
            filter,
            entries,
            seen: IdSet::default(),
            found: BinaryHeap::new(),
            found_bytes: 0,
            state,
            ring: (least, least),
            width,
            farthest,
            met_in_ring: 0,
            rings: Vec::new(),
            row: Row::default(),
            counters: Tally::default(),
        })
    }

    /// Opens the ring after the one that is done.
    fn open_ring(&mut self) -> Result<()> {
        let low = self.ring.1;
        if self.met_in_ring < FEW {
            self.width *= if self.met_in_ring == 0 { 4.0 } else { 2.0 };
        } else if self.met_in_ring > MANY {
            self.width /= 2.0;
        }
        let high = (low + self.width).min(self.farthest);
        // A ring too narrow for its numbers would never end.
        let high = if high > low { high } else { self.farthest };
        self.ring = (low, high);
        self.met_in_ring = 0;
        let scan = &self.target.scan;
        let multikey = scan.planned_multikey & 1 << self.target.part != 0;
        let held = (self.target.kind(), multikey);
        let bounds = ring_bounds(held, &grid_of(&self.target), &self.target.near, self.ring);
        limits::take_stop_error()?;
        self.entries.rescan(self.target.part, bounds)?;
        self.state = State::Scanning;
        Ok(())
    }

    /// Scans the ring at hand to its end.
    fn gather(&mut self, exec: &ExecContext<'_>) -> Result<()> {
        while self.entries.advance(exec)? {
            self.counters.works += 1;
            let entry = self.entries.row();
            if self.seen.contains(&entry.record_key) {
                continue;
            }
            self.seen.insert(&entry.record_key)?;
            let Some(document) = document_of(exec, &self.collection, entry)? else { continue };
            self.counters.documents += 1;
            let NearScan { near, path, .. } = &self.target;
            let Some((distance, _)) = near.nearest(path, RawDocument::from_bytes(&document)?)?
            else {
                continue;
            };
            if !near.accepts(distance) || !passes(self.filter.as_ref(), &document)? {
                continue;
            }
            self.met_in_ring += 1;
            let record_key = entry.record_key.clone();
            let fits = self.found_bytes + document.len() <= MEMORY_LIMIT_BYTES;
            let document = if fits { document } else { Vec::new() };
            self.found_bytes += document.len();
            let sequence = self.counters.works;
            self.found.push(Reverse(Found { distance, sequence, record_key, document }));
        }
        if self.rings.len() < SHOWN_RINGS {
            let (low, high) = self.ring;
            self.rings.push(doc! {
                "minDistance": low,
                "maxDistance": high,
                "maxInclusive": true,
                "nBuffered": number(self.met_in_ring),
            });
        }
        self.state = if self.ring.1 >= self.farthest { State::Done } else { State::Between };
        Ok(())
    }

    /// The nearest that is left, if none nearer can be met any more.
    fn nearest(&mut self) -> Option<Found> {
        let known = |found: &Found| self.state == State::Done || found.distance <= self.ring.1;
        if self.state == State::Scanning || !self.found.peek().is_some_and(|top| known(&top.0)) {
            return None;
        }
        let Reverse(found) = self.found.pop()?;
        self.found_bytes -= found.document.len();
        Some(found)
    }
}

/// The grid of a `2d` index; of others it is not asked.
fn grid_of(target: &NearScan) -> Grid {
    target.scan.index.as_ref().map_or_else(Grid::default, |index| index.spec().grid)
}

impl PlanStage for NearStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        loop {
            if let Some(found) = self.nearest() {
                self.row.record_key = found.record_key;
                self.row.document = found.document;
                if self.row.document.is_empty() {
                    let stored = exec.get_record(&self.collection, &self.row.record_key)?;
                    let Some(stored) = stored else { continue };
                    self.row.document.extend_from_slice(&stored);
                }
                if let Some(output) = &self.target.output {
                    let document = write_output(&self.target, output, self.row.document()?)?;
                    self.row.document = document.into_bytes();
                }
                self.counters.advanced += 1;
                return Ok(true);
            }
            match self.state {
                State::Done => {
                    self.counters.finished = true;
                    return Ok(false);
                }
                State::Between => self.open_ring()?,
                State::Scanning => self.gather(exec)?,
            }
        }
    }

    fn row(&self) -> &Row {
        &self.row
    }

    fn release_row(&mut self) {
        self.row.release();
    }

    fn park(&mut self) {
        self.counters.tell();
        self.entries.park();
    }

    fn report(&self) -> Report {
        let scan = &self.target.scan;
        let key = scan.index.as_ref().and_then(|i| Document::try_from(i.spec().key.as_ref()).ok());
        let mut report = Report::new(self.target.stage_name(), *self.counters)
            .filtering(self.filter.as_ref())
            .with("keyPattern", key.unwrap_or_default())
            .with("indexName", scan.name())
            .with("indexVersion", 2)
            .counting("docsExamined", self.counters.documents)
            .over(self.entries.report());
        let rings: Vec<Bson> = self.rings.iter().cloned().map(Bson::Document).collect();
        report.extra.insert("searchIntervals", rings);
        report
    }
}

/// The document with its distance, and where asked for the location that is nearest.
fn write_output(
    target: &NearScan,
    output: &NearOutput,
    document: &RawDocument,
) -> Result<RawDocumentBuf> {
    let Some((distance, location)) = target.near.nearest(&target.path, document)? else {
        return Err(Error::new(Code::INTERNAL_ERROR, "a document that was near has no location"));
    };
    let distance = RawBsonRef::Double(distance * output.multiplier);
    // Taken out before the distance is written, which may replace what it lies in.
    let location: RawBson = location.into();
    let location = location.as_raw_bson_ref();
    let mut measured = with_field(document, &output.distance_field, distance)?;
    if let Some(field) = &output.location_field {
        measured = with_field(&measured, field, location)?;
    }
    if output.asked {
        measured = with_field(&measured, GEO_NEAR_DISTANCE, distance)?;
        measured = with_field(&measured, GEO_NEAR_POINT, location)?;
    }
    Ok(measured)
}

/// A document with a value at a dotted path; what is no document on the way is replaced.
fn with_field(document: &RawDocument, path: &str, value: RawBsonRef<'_>) -> Result<RawDocumentBuf> {
    let mut out = Writer::default();
    let open = out.begin();
    set(&mut out, Some(document), path, value)?;
    out.end(open);
    out.finish()
}

/// Writes the fields of a document, one of them set. Recursion is bounded by the path's length.
fn set(
    out: &mut Writer,
    document: Option<&RawDocument>,
    path: &str,
    value: RawBsonRef<'_>,
) -> Result<()> {
    let (first, rest) = match path.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    let write = |out: &mut Writer, inside: Option<&RawDocument>| -> Result<()> {
        let Some(rest) = rest else {
            out.value(first, value);
            return Ok(());
        };
        let open = out.begin_document(first);
        set(out, inside, rest, value)?;
        out.end(open);
        Ok(())
    };
    let mut written = false;
    for element in document.into_iter().flat_map(raw::elements) {
        let element = element?;
        if element.name() == first {
            write(out, element.value()?.as_document())?;
            written = true;
        } else {
            out.element(&element);
        }
    }
    if !written {
        write(out, None)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(document: &Document, path: &str, expected: &Document) {
        let raw = RawDocumentBuf::try_from(document).unwrap();
        let written = with_field(&raw, path, RawBsonRef::Int32(7)).unwrap();
        assert_eq!(Document::try_from(&*written).unwrap(), *expected, "{path} in {document}");
    }

    #[test]
    fn fields_are_written_where_the_path_leads() {
        check(&doc! {"a": 1}, "d", &doc! {"a": 1, "d": 7});
        check(&doc! {"d": 1, "a": 1}, "d", &doc! {"d": 7, "a": 1});
        check(&doc! {"a": {"x": 1}}, "a.d", &doc! {"a": {"x": 1, "d": 7}});
        check(&doc! {"a": 1}, "a.b.c", &doc! {"a": {"b": {"c": 7}}});
    }
}
