//! `$densify`: documents made where a number or a date skips steps.
//!
//! Documents are sorted by the field (spilling as any sort; by partition first where every
//! partition has bounds of its own). Each partition remembers its next point on the grid; when a
//! document arrives, the points before it are made.

use crate::memory::StageMemory;
use crate::source::DocumentSource;
use crate::stage::group::key_bytes;
use crate::stage::sort::{Sort, SortSource};
use crate::stage::window::{missing, unknown, wrong_type};
use crate::stage::{Output, Part, PipelineStage, StageInput, StageSpec, object};
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, DateTime, Document};
use bsonval::number::Number;
use bsonval::types::name_of;
use bsonval::{Path, SortPattern, raw};
use errors::{Error, Result};
use expr::agg::{Expression, Unit, add_units, parse_fields};
use keystring::Direction;
use limits::KeyMap;
use std::sync::Arc;

/// MongoDB's limit on what one stage may make.
const MAX_GENERATED: u64 = 500_000;

/// A parsed `$densify`.
#[derive(Clone, Debug)]
pub struct Densify {
    /// The argument as the client wrote it, for explain.
    pub source: RawBson,
    field: String,
    value: Expression,
    partitions: Vec<(String, Expression)>,
    step: Number,
    unit: Option<Unit>,
    bounds: Bounds,
}

#[derive(Clone, Copy, Debug)]
enum Bounds {
    /// From the least value of all to the greatest.
    Full,
    /// From each partition's least value to its greatest.
    Partition,
    /// From the first up to, not including, the second.
    Between(Point, Point),
}

/// A place on the grid.
#[derive(Clone, Copy, Debug)]
enum Point {
    Number(Number),
    Date(i64),
}

impl Point {
    fn to_bson(self) -> RawBson {
        match self {
            Self::Number(number) => number.to_bson(),
            Self::Date(millis) => RawBson::DateTime(DateTime::from_millis(millis)),
        }
    }

    fn cmp(self, other: Self) -> std::cmp::Ordering {
        keystring::compare(self.to_bson().as_raw_bson_ref(), other.to_bson().as_raw_bson_ref())
    }
}

impl Densify {
    /// The field's value as a point; `None` where it is null or missing.
    fn point(&self, value: RawBsonRef<'_>) -> Result<Option<Point>> {
        let point = match value {
            RawBsonRef::Null | RawBsonRef::Undefined => return Ok(None),
            RawBsonRef::DateTime(date) => Point::Date(date.timestamp_millis()),
            value => Point::Number(Number::from_bson(value).ok_or_else(|| {
                Error::location(5733201, "Densify field type must be numeric or a date")
            })?),
        };
        match (point, self.unit) {
            (Point::Number(_), Some(_)) => Err(Error::location(
                6053600,
                "Encountered numeric densify value in collection when step has a date unit.",
            )),
            (Point::Date(_), None) => Err(Error::location(
                6053601,
                "Encountered date densify value in collection when step does not have a date unit.",
            )),
            (point, _) => Ok(Some(point)),
        }
    }

    /// The grid's point after this one, the `steps`th from where the grid begins.
    fn after(&self, base: Point, point: Point, steps: i64) -> Result<Point> {
        match (point, base, self.unit) {
            // From the beginning: the last of a short month would stick otherwise.
            (Point::Date(_), Point::Date(base), Some(unit)) => {
                let step = self.step.to_exact_i64().unwrap_or(1);
                add_units(base, unit, step.saturating_mul(steps)).map(Point::Date)
            }
            (Point::Number(number), ..) => Ok(Point::Number(number.add(self.step))),
            (point, ..) => Ok(point),
        }
    }
}

pub(crate) fn parse(value: RawBsonRef<'_>) -> Result<PipelineStage> {
    let spec = object(value, |kind| {
        Error::location(
            5733200,
            format!("The $densify stage specification must be an object, found {kind}"),
        )
    })?;
    let [field, partitions, range] =
        parse_fields(spec, ["field", "partitionByFields", "range"], |other| {
            unknown("$densify", other)
        })?;
    let field = field.ok_or_else(|| missing("$densify", "field"))?;
    let RawBsonRef::String(field) = field else {
        return Err(wrong_type("$densify.field", field, "string"));
    };
    check_path(field)?;
    let partitions = match partitions {
        None => Vec::new(),
        Some(list) => read_partitions(list)?,
    };
    let RawBsonRef::Document(range) = range.ok_or_else(|| missing("$densify", "range"))? else {
        return Err(Error::type_mismatch("BSON field '$densify.range' must be an object"));
    };
    let [step, bounds, unit] =
        parse_fields(range, ["step", "bounds", "unit"], |other| unknown("$densify.range", other))?;
    let step = step.ok_or_else(|| missing("$densify.range", "step"))?;
    let bounds = bounds.ok_or_else(|| missing("$densify.range", "bounds"))?;
    let unit =
        match unit {
            None => None,
            Some(RawBsonRef::String(name)) => Some(Unit::parse(name).ok_or_else(|| {
                Error::failed_to_parse(format!("unknown time unit value: {name}"))
            })?),
            Some(other) => return Err(wrong_type("$densify.range.unit", other, "string")),
        };
    let step = read_step(step, unit)?;
    let bounds = read_bounds(bounds, unit, !partitions.is_empty())?;
    Ok(PipelineStage::other(Densify {
        source: value.into(),
        field: field.to_owned(),
        value: Expression::field(field)?,
        partitions,
        step,
        unit,
        bounds,
    }))
}

impl StageSpec for Densify {
    fn name(&self) -> &'static str {
        "$densify"
    }

    fn argument(&self) -> RawBson {
        self.source.clone()
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let partitions = self.partitions.iter().map(|(path, _)| path.clone());
        partitions.chain([self.field.clone()]).map(Part::Field).collect()
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(DensifySource::new(run, self)))
    }

    fn output(&self) -> Output {
        Output::Passing
    }
}

fn check_path(path: &str) -> Result<()> {
    SortPattern::parse(&raw::document_of(path, RawBsonRef::Int32(1))).map(drop)
}

fn read_partitions(list: RawBsonRef<'_>) -> Result<Vec<(String, Expression)>> {
    let RawBsonRef::Array(list) = list else {
        return Err(wrong_type("$densify.partitionByFields", list, "array"));
    };
    let mut partitions = Vec::new();
    for path in raw::values(list) {
        let path = path?;
        let RawBsonRef::String(path) = path else {
            return Err(Error::type_mismatch(format!(
                "BSON field '$densify.partitionByFields.{}' is the wrong type '{}', expected type \
                 'string'",
                partitions.len(),
                name_of(path)
            )));
        };
        check_path(path)?;
        partitions.push((path.to_owned(), Expression::field(path)?));
    }
    Ok(partitions)
}

fn read_step(step: RawBsonRef<'_>, unit: Option<Unit>) -> Result<Number> {
    let number = Number::from_bson(step).filter(|step| step.to_f64() > 0.0).ok_or_else(|| {
        Error::location(
            5733401,
            "The step parameter in a range statement must be a strictly positive numeric value",
        )
    })?;
    match (unit, number.to_exact_i64()) {
        (Some(_), None) => Err(Error::location(
            6586400,
            "The step parameter in a range statement must be a whole number when densifying a \
             date range",
        )),
        (Some(_), Some(whole)) => Ok(Number::Long(whole)),
        (None, _) => Ok(number),
    }
}

fn read_bounds(bounds: RawBsonRef<'_>, unit: Option<Unit>, partitioned: bool) -> Result<Bounds> {
    match bounds {
        RawBsonRef::String("full") => Ok(Bounds::Full),
        RawBsonRef::String("partition") if partitioned => Ok(Bounds::Partition),
        RawBsonRef::String("partition") => Err(Error::location(
            5733408,
            "One may not specify the bounds as 'partition' without specifying a non-empty array \
             of partitionByFields. You may have meant to specify 'full' bounds.",
        )),
        RawBsonRef::String(_) => {
            Err(Error::location(5946802, "Bounds string must either be 'full' or 'partition'"))
        }
        RawBsonRef::Array(array) => {
            let values = raw::values(array).take(3).collect::<Result<Vec<_>>>()?;
            let [low, high] = values[..] else {
                return Err(Error::location(
                    5733403,
                    "A bounding array in a range statement must have exactly two elements",
                ));
            };
            if keystring::compare(low, high).is_gt() {
                return Err(Error::location(
                    5733402,
                    "A bounding array must be an ascending array of either two dates or two \
                     numbers",
                ));
            }
            between(low, high, unit)
        }
        _ => Err(Error::location(
            5733404,
            "Bounds must be specified as either 'full', 'partition', or an ascending array of two \
             elements",
        )),
    }
}

fn between(low: RawBsonRef<'_>, high: RawBsonRef<'_>, unit: Option<Unit>) -> Result<Bounds> {
    match (low, high, unit) {
        (RawBsonRef::DateTime(low), RawBsonRef::DateTime(high), Some(_)) => Ok(Bounds::Between(
            Point::Date(low.timestamp_millis()),
            Point::Date(high.timestamp_millis()),
        )),
        (RawBsonRef::DateTime(_), RawBsonRef::DateTime(_), None) => {
            Err(Error::location(5733501, "Date bounds must specify a unit"))
        }
        _ => match (Number::from_bson(low), Number::from_bson(high), unit) {
            (Some(low), Some(high), None) => {
                Ok(Bounds::Between(Point::Number(low), Point::Number(high)))
            }
            (Some(_), Some(_), Some(_)) => {
                Err(Error::location(5733409, "Numeric bounds may not have unit parameter"))
            }
            _ => Err(Error::location(
                5946800,
                "Bounding array must contain all dates or all numeric types",
            )),
        },
    }
}

/// One partition's way along the grid.
struct Track {
    /// What its made documents carry.
    fields: Vec<(String, RawBson)>,
    base: Point,
    next: Point,
    steps: i64,
}

pub(crate) struct DensifySource {
    run: StageInput,
    stage: Arc<Densify>,
    places: KeyMap<Vec<u8>, usize>,
    tracks: Vec<Track>,
    bytes: usize,
    held: StageMemory,
    /// A document that waits until the points before it are made: its track and its point.
    waiting: Option<(RawDocumentBuf, usize, Point)>,
    /// The least and the greatest value seen.
    extent: Option<(Point, Point)>,
    /// The track being finished, once the input has ended.
    finishing: Option<usize>,
    generated: u64,
    seen: u64,
}

impl DensifySource {
    pub(crate) fn new(run: StageInput, stage: Arc<Densify>) -> Self {
        let by_partition =
            if let Bounds::Partition = stage.bounds { stage.partitions.as_slice() } else { &[] };
        let mut paths: Vec<&str> = by_partition.iter().map(|(path, _)| path.as_str()).collect();
        paths.push(&stage.field);
        let pattern =
            SortPattern::new(paths.into_iter().map(|path| (Path::new(path), Direction::Ascending)));
        let StageInput { input, env, variables } = run;
        let inner = StageInput { input, env: Arc::clone(&env), variables: Arc::clone(&variables) };
        let sorted = SortSource::new(inner, Arc::new(Sort { pattern, limit: None }));
        let held = StageMemory::within(env.options().memory_limit_bytes);
        Self {
            run: StageInput { input: Box::new(sorted), env, variables },
            stage,
            places: KeyMap::default(),
            tracks: Vec::new(),
            bytes: 0,
            held,
            waiting: None,
            extent: None,
            finishing: None,
            generated: 0,
            seen: 0,
        }
    }

    /// The track of a document's partition, begun where the bounds say.
    fn track(&mut self, document: &RawDocument, point: Point) -> Result<usize> {
        let mut key = RawArrayBuf::new();
        let mut fields = Vec::new();
        for (path, expression) in &self.stage.partitions {
            let value = expression.evaluate(document, &self.run.variables)?;
            key.push(value.get().unwrap_or(RawBsonRef::Undefined));
            if let Some(value) = value.into_owned() {
                fields.push((path.clone(), value));
            }
        }
        let key = {
            let under = self.run.variables.collation();
            key_bytes(RawBsonRef::Array(&key), under, Vec::new())?
        };
        if let Some(at) = self.places.get(&key) {
            return Ok(*at);
        }
        if let Bounds::Partition = self.stage.bounds {
            // Sorted by partition: the ones before are complete.
            self.places.clear();
            self.tracks.clear();
            self.bytes = 0;
        }
        let base = match (self.stage.bounds, self.extent) {
            (Bounds::Between(low, _), _) => low,
            (Bounds::Full, Some((least, _))) => least,
            _ => point,
        };
        self.bytes += key.len() * 3 + 256;
        let limit = self.run.env.options().memory_limit_bytes;
        if !self.held.fits(self.bytes, 0)? {
            return Err(Error::location(
                6007200,
                format!(
                    "$densify exceeded memory limit of {limit}: it holds {} bytes of partitions",
                    self.bytes
                ),
            ));
        }
        self.places.insert(key, self.tracks.len());
        self.tracks.push(Track { fields, base, next: base, steps: 0 });
        Ok(self.tracks.len() - 1)
    }

    /// Moves a track to its next point and makes the document of the one it stood at.
    fn make(&mut self, at: usize) -> Result<RawDocumentBuf> {
        self.generated += 1;
        if self.generated > MAX_GENERATED {
            return Err(Error::location(
                5897900,
                format!(
                    "Generated {MAX_GENERATED} documents in $densify, which is over the limit of \
                     {MAX_GENERATED}. Increase the 'internalQueryMaxAllowedDensifyDocs' parameter \
                     to allow more generated documents"
                ),
            ));
        }
        if self.generated.is_multiple_of(128) {
            self.run.env.check_interrupt()?;
        }
        let mut made = Document::new();
        for (path, value) in &self.tracks[at].fields {
            put(&mut made, path, value.clone())?;
        }
        put(&mut made, &self.stage.field, self.tracks[at].next.to_bson())?;
        self.step(at)?;
        Ok(RawDocumentBuf::try_from(&made)?)
    }

    fn step(&mut self, at: usize) -> Result<()> {
        let track = &mut self.tracks[at];
        track.steps += 1;
        let next = self.stage.after(track.base, track.next, track.steps)?;
        if next.cmp(track.next).is_le() {
            return Err(Error::location(
                5733401,
                "The step parameter in a range statement is too small for the values",
            ));
        }
        track.next = next;
        Ok(())
    }

    /// Whether the grid has a point left for a track before `limit` and inside the bounds.
    fn is_before(&self, at: usize, limit: Point) -> bool {
        let next = self.tracks[at].next;
        let inside = match self.stage.bounds {
            Bounds::Between(_, high) => next.cmp(high).is_lt(),
            _ => true,
        };
        inside && next.cmp(limit).is_lt()
    }

    /// Takes in a document: out at once, or waiting for the points before it.
    fn accept(&mut self, document: RawDocumentBuf) -> Result<Option<RawDocumentBuf>> {
        let stage = Arc::clone(&self.stage);
        let value = stage.value.evaluate(&document, &self.run.variables)?;
        let Some(point) = stage.point(value.bson())? else {
            drop(value);
            return Ok(Some(document));
        };
        drop(value);
        self.extent = Some(match self.extent {
            None => (point, point),
            Some((least, most)) => (least, if point.cmp(most).is_gt() { point } else { most }),
        });
        let track = self.track(&document, point)?;
        self.waiting = Some((document, track, point));
        Ok(None)
    }

    /// The points after the last document of each partition.
    fn finish(&mut self, mut at: usize) -> Result<Option<RawDocumentBuf>> {
        while at < self.tracks.len() {
            let next = self.tracks[at].next;
            let more = match (self.stage.bounds, self.extent) {
                (Bounds::Between(_, high), _) => next.cmp(high).is_lt(),
                (Bounds::Full, Some((_, most))) => next.cmp(most).is_le(),
                _ => false,
            };
            if more {
                self.finishing = Some(at);
                return self.make(at).map(Some);
            }
            at += 1;
        }
        self.finishing = Some(at);
        Ok(None)
    }
}

impl DocumentSource for DensifySource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        loop {
            if let Some(at) = self.finishing {
                return self.finish(at);
            }
            if let Some((document, track, point)) = self.waiting.take() {
                if self.is_before(track, point) {
                    self.waiting = Some((document, track, point));
                    return self.make(track).map(Some);
                }
                if self.tracks[track].next.cmp(point).is_eq() {
                    self.step(track)?;
                }
                return Ok(Some(document));
            }
            self.seen += 1;
            if self.seen.is_multiple_of(128) {
                self.run.env.check_interrupt()?;
            }
            if let Some(document) = self.run.input.next()? {
                if let Some(document) = self.accept(document)? {
                    return Ok(Some(document));
                }
            } else {
                // Fixed bounds are filled even where there is no document.
                if let (Bounds::Between(low, _), true) = (self.stage.bounds, self.tracks.is_empty())
                    && self.stage.partitions.is_empty()
                {
                    self.track(&RawDocumentBuf::new(), low)?;
                }
                self.finishing = Some(0);
            }
        }
    }

    fn park(&mut self) {
        self.run.input.park();
    }
}

/// Puts a value at a dotted path.
fn put(document: &mut Document, path: &str, value: RawBson) -> Result<()> {
    let mut current = document;
    let mut rest = path;
    while let Some((name, below)) = rest.split_once('.') {
        let inner = current.entry(name.to_owned()).or_insert(Bson::Document(Document::new()));
        if !matches!(inner, Bson::Document(_)) {
            *inner = Bson::Document(Document::new());
        }
        let Bson::Document(inner) = inner else { return Ok(()) };
        current = inner;
        rest = below;
    }
    current.insert(rest, Bson::try_from(value)?);
    Ok(())
}
