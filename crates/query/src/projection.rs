//! Shaping documents for the client: projections, `returnKey`, `showRecordId`.

use crate::exec::{Counters, ExecContext, PlanStage, Report, Row};
use crate::plan::IndexScan;
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document};
use bsonval::{Path, SortPattern};
use errors::{Error, Result};
use keystring::Collation;
use matcher::{Filter, ParseContext};
use std::collections::BTreeSet;
use update::projection::{Metadata, Projection};

/// A parsed projection, with what the client gave.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    given: RawDocumentBuf,
    projection: Projection,
}

impl Shape {
    /// Reads a projection; an empty one shapes nothing.
    pub(crate) fn parse(
        projection: Option<&RawDocument>,
        ctx: &ParseContext,
    ) -> Result<Option<Self>> {
        let Some(given) = projection else { return Ok(None) };
        let projection = Projection::parse(given, ctx)?;
        Ok((!projection.is_identity()).then(|| Self { given: given.to_owned(), projection }))
    }

    /// Refuses to show distances that nobody measures.
    pub(crate) fn check(&self, filter: &Filter) -> Result<()> {
        if self.projection.needs_near() && filter.near().is_none() {
            return Err(Error::location(
                40218,
                "query requires geoNear distance metadata, but it is not available",
            ));
        }
        Ok(())
    }

    /// The fields it needs; `None` is all.
    pub(crate) fn fields(&self) -> Option<BTreeSet<String>> {
        self.projection.required_fields()
    }

    /// Whether it shows the text score.
    pub(crate) fn needs_text_score(&self) -> bool {
        self.projection.needs_text_score()
    }

    /// The shaped document. The filter tells which array element matched, the sort what the
    /// document was sorted by.
    pub(crate) fn apply(
        &self,
        document: &RawDocument,
        filter: &Filter,
        sort: Option<&SortPattern>,
        record_key: &[u8],
    ) -> Result<RawDocumentBuf> {
        if self.projection.is_simple() {
            return self.projection.apply(document, None);
        }
        let mut known = Metadata { record_id: Some(record_id(record_key)), ..Metadata::default() };
        if self.projection.is_positional() {
            known.details = filter.matches_with_details(document)?;
        }
        if let (true, Some(sort)) = (self.projection.needs_sort_key(), sort) {
            let under = filter.variables().collation();
            known.sort_key = Some(sort_values(sort, document, under)?);
        }
        if let (true, Some((path, near))) = (self.projection.needs_near(), filter.near()) {
            let nearest = near.nearest(path, document)?;
            known.near =
                nearest.map(|(distance, point)| (RawBson::Double(distance), RawBson::from(point)));
        }
        self.projection.apply_with(document, &known)
    }
}

/// Projects every row's document.
pub(crate) struct ProjectStage {
    input: Box<dyn PlanStage>,
    shape: Shape,
    filter: Filter,
    sort: Option<SortPattern>,
    covered: bool,
    row: Row,
    counters: Counters,
}

impl ProjectStage {
    pub(crate) fn new(
        input: Box<dyn PlanStage>,
        shape: Shape,
        filter: Filter,
        sort: Option<SortPattern>,
        covered: bool,
    ) -> Self {
        let (row, counters) = (Row::default(), Counters::default());
        Self { input, shape, filter, sort, covered, row, counters }
    }
}

impl PlanStage for ProjectStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        if !self.input.advance(exec)? {
            self.counters.finished = true;
            return Ok(false);
        }
        self.counters.works += 1;
        self.counters.advanced += 1;
        let input = self.input.row();
        let sort = self.sort.as_ref();
        let projected =
            self.shape.apply(input.document()?, &self.filter, sort, &input.record_key)?;
        self.row.take(&input.record_key, projected.into_bytes());
        self.input.release_row();
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
        let name = match (self.covered, self.shape.projection.is_simple()) {
            (true, _) => "PROJECTION_COVERED",
            (false, true) => "PROJECTION_SIMPLE",
            (false, false) => "PROJECTION_DEFAULT",
        };
        let given = Document::try_from(self.shape.given.as_ref()).unwrap_or_default();
        Report::new(name, self.counters).with("transformBy", given).over(self.input.report())
    }
}

/// `returnKey`: the index key instead of the document; nothing where no index was used.
pub(crate) struct ReturnKeyStage {
    input: Box<dyn PlanStage>,
    paths: Vec<Path>,
    row: Row,
    counters: Counters,
}

impl ReturnKeyStage {
    pub(crate) fn new(input: Box<dyn PlanStage>, scan: Option<&IndexScan>) -> Self {
        let parts = scan.map_or(&[][..], IndexScan::parts);
        let paths = parts.iter().map(|part| Path::new(&part.path)).collect();
        Self { input, paths, row: Row::default(), counters: Counters::default() }
    }
}

impl PlanStage for ReturnKeyStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        if !self.input.advance(exec)? {
            self.counters.finished = true;
            return Ok(false);
        }
        self.counters.works += 1;
        self.counters.advanced += 1;
        let input = self.input.row();
        let document = input.document()?;
        let mut key = RawDocumentBuf::new();
        for path in &self.paths {
            let value = path.get(document)?.unwrap_or(RawBsonRef::Null);
            key.append(<&bson::raw::CStr>::try_from(path.as_str())?, value);
        }
        self.row.set(&input.record_key, key.as_bytes());
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
        Report::new("RETURN_KEY", self.counters).over(self.input.report())
    }
}

/// `showRecordId`: adds the document's place, which here is its key.
pub(crate) struct RecordIdStage {
    input: Box<dyn PlanStage>,
    row: Row,
    counters: Counters,
}

impl RecordIdStage {
    pub(crate) fn new(input: Box<dyn PlanStage>) -> Self {
        Self { input, row: Row::default(), counters: Counters::default() }
    }
}

impl PlanStage for RecordIdStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        if !self.input.advance(exec)? {
            self.counters.finished = true;
            return Ok(false);
        }
        self.counters.works += 1;
        self.counters.advanced += 1;
        let input = self.input.row();
        let mut document = input.document()?.to_owned();
        document.append(cstr!("$recordId"), record_id(&input.record_key));
        self.row.take(&input.record_key, document.into_bytes());
        self.input.release_row();
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
        Report::new("PROJECTION_DEFAULT", self.counters)
            .with("transformBy", bson::doc! { "$recordId": { "$meta": "recordId" } })
            .over(self.input.report())
    }
}

/// A document's place, as clients see it: its key.
fn record_id(record_key: &[u8]) -> RawBson {
    RawBson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: record_key.to_vec() })
}

/// What a document was sorted by, as an array; strings under a collation as their sort keys.
fn sort_values(
    sort: &SortPattern,
    document: &RawDocument,
    under: Option<&Collation>,
) -> Result<RawBson> {
    let key = sort.key(document, under)?;
    let decode = if under.is_some() { keystring::decode_collated } else { keystring::decode };
    let values = decode(&key, &[], sort.directions())
        .map_err(|error| Error::bad_value(error.to_string()))?;
    Ok(RawBson::try_from(Bson::Array(values))?)
}
