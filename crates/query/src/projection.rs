//! Shaping documents for the client: projections, `returnKey`, `showRecordId`.

use crate::exec::{At, Counters, Report, Row, Stage};
use crate::plan::IndexScan;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::spec::BinarySubtype;
use bson::{Binary, Document};
use errors::{Code, Error, Result};
use expr::{Filter, Path};
use std::collections::BTreeSet;

/// A parsed projection, with what the client gave.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    given: RawDocumentBuf,
}

impl Shape {
    /// Reads a projection; an empty one shapes nothing.
    pub(crate) fn parse(projection: Option<&RawDocument>) -> Result<Option<Self>> {
        match projection {
            Some(given) if !given.is_empty() => {
                Err(Error::new(Code::NOT_IMPLEMENTED, "projections are not built yet"))
            }
            _ => Ok(None),
        }
    }

    /// The fields it needs; `None` is all.
    pub(crate) fn fields(&self) -> Option<BTreeSet<String>> {
        None
    }

    fn apply(&self, document: &RawDocument, _filter: &Filter) -> Result<RawDocumentBuf> {
        Ok(document.to_owned())
    }
}

/// Projects every row's document.
pub(crate) struct ProjectStage {
    input: Box<dyn Stage>,
    shape: Shape,
    filter: Filter,
    covered: bool,
    row: Row,
    counters: Counters,
}

impl ProjectStage {
    pub(crate) fn new(input: Box<dyn Stage>, shape: Shape, filter: Filter, covered: bool) -> Self {
        Self { input, shape, filter, covered, row: Row::default(), counters: Counters::default() }
    }
}

impl Stage for ProjectStage {
    fn advance(&mut self, at: &At<'_>) -> Result<bool> {
        if !self.input.advance(at)? {
            self.counters.finished = true;
            return Ok(false);
        }
        self.counters.works += 1;
        self.counters.advanced += 1;
        let input = self.input.row();
        let projected = self.shape.apply(input.document()?, &self.filter)?;
        self.row.set(&input.id_key, projected.as_bytes());
        Ok(true)
    }

    fn row(&self) -> &Row {
        &self.row
    }

    fn park(&mut self) {
        self.input.park();
    }

    fn report(&self) -> Report {
        let name = if self.covered { "PROJECTION_COVERED" } else { "PROJECTION_SIMPLE" };
        let given = Document::try_from(self.shape.given.as_ref()).unwrap_or_default();
        Report::new(name, self.counters).with("transformBy", given).over(self.input.report())
    }
}

/// `returnKey`: the index key instead of the document; nothing where no index was used.
pub(crate) struct ReturnKeyStage {
    input: Box<dyn Stage>,
    paths: Vec<Path>,
    row: Row,
    counters: Counters,
}

impl ReturnKeyStage {
    pub(crate) fn new(input: Box<dyn Stage>, scan: Option<&IndexScan>) -> Self {
        let parts = scan.map_or(&[][..], IndexScan::parts);
        let paths = parts.iter().map(|part| Path::new(&part.path)).collect();
        Self { input, paths, row: Row::default(), counters: Counters::default() }
    }
}

impl Stage for ReturnKeyStage {
    fn advance(&mut self, at: &At<'_>) -> Result<bool> {
        if !self.input.advance(at)? {
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
        self.row.set(&input.id_key, key.as_bytes());
        Ok(true)
    }

    fn row(&self) -> &Row {
        &self.row
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
    input: Box<dyn Stage>,
    row: Row,
    counters: Counters,
}

impl RecordIdStage {
    pub(crate) fn new(input: Box<dyn Stage>) -> Self {
        Self { input, row: Row::default(), counters: Counters::default() }
    }
}

impl Stage for RecordIdStage {
    fn advance(&mut self, at: &At<'_>) -> Result<bool> {
        if !self.input.advance(at)? {
            self.counters.finished = true;
            return Ok(false);
        }
        self.counters.works += 1;
        self.counters.advanced += 1;
        let input = self.input.row();
        let mut document = input.document()?.to_owned();
        let id = Binary { subtype: BinarySubtype::Generic, bytes: input.id_key.clone() };
        document.append(cstr!("$recordId"), &id);
        self.row.set(&input.id_key, document.as_bytes());
        Ok(true)
    }

    fn row(&self) -> &Row {
        &self.row
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
