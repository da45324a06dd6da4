//! Queries and writes against an engine in memory.

use crate::*;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf};
use bson::{Bson, Document, doc};
use catalog::{Catalog, CatalogOptions, CollectionOptions, Namespace};
use engine::Engine;
use errors::{Code, Result};
use indexkeys::IndexSpec;
use proptest::prelude::*;
use std::sync::Arc;

#[expect(clippy::needless_pass_by_value, reason = "calls read as tables")]
mod pipelines;
#[expect(clippy::needless_pass_by_value, reason = "calls read as tables")]
mod plans;
#[expect(clippy::needless_pass_by_value, reason = "calls read as tables")]
mod writes;

mod collation;
mod fast_updates;
#[expect(clippy::float_cmp, clippy::needless_pass_by_value, reason = "calls read as tables")]
mod geo;
mod id_range;
mod index_key;
mod look_ahead;
mod model;
mod partitions;
mod point_writes;
mod primary_key;
#[expect(clippy::needless_pass_by_value, reason = "calls read as tables")]
mod range_deletes;
mod replacements;
mod text;
mod trials;
mod unique_key;

pub(crate) struct Room {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) ns: Namespace,
}

/// What a find gives, as a cursor.
pub(crate) fn find(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &FindRequest<'_>,
) -> Result<QueryCursor> {
    crate::find(ctx, ns, request).map(Found::into_cursor)
}

/// Reads on under an operation that was told to stop: how many documents come before it does.
pub(crate) fn read_when_stopped(room: &Room, request: &FindRequest<'_>) -> usize {
    struct Stopped;
    impl Interrupt for Stopped {
        fn check(&self) -> Result<()> {
            Err(errors::Error::new(Code::INTERRUPTED, "stopped"))
        }
    }
    let mut ctx = OpContext::new(&room.catalog, Arc::new(Stopped));
    let mut cursor = find(&mut ctx, &room.ns, request).unwrap();
    let mut read = 0;
    loop {
        match cursor.next() {
            Ok(Some(_)) => read += 1,
            Ok(None) => panic!("it was not asked whether to go on"),
            Err(error) => {
                assert_eq!(error.code(), Code::INTERRUPTED);
                return read;
            }
        }
    }
}

pub(crate) fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

#[expect(clippy::needless_pass_by_value, reason = "calls read as tables")]
impl Room {
    pub(crate) fn new() -> Self {
        Self::over(Engine::temporary())
    }

    /// As a server has it: ranges of record keys can be deleted from indexes.
    pub(crate) fn with_ranges() -> Self {
        Self::over(Engine::temporary_with(|options| {
            options.record_part = Some(catalog::record_part);
            options.cleaner_period = std::time::Duration::from_millis(1);
        }))
    }

    fn over(engine: Engine) -> Self {
        let options = CatalogOptions::new(os::Os::real(), std::env::temp_dir());
        Self {
            catalog: Catalog::open(engine, options).unwrap(),
            ns: Namespace::parse("db.c").unwrap(),
        }
    }

    /// With an empty collection of these options.
    pub(crate) fn of(options: &Document) -> Self {
        let room = Self::new();
        let options = CollectionOptions::parse(&raw(options)).unwrap();
        room.catalog.create_collection(&room.ns, &options, &|| Ok(())).unwrap();
        room
    }

    pub(crate) fn with(documents: &[Document]) -> Self {
        let room = Self::new();
        let result = room.insert(documents);
        assert!(result.errors.is_empty(), "{:?}", result.errors);
        room
    }

    pub(crate) fn ctx(&self) -> OpContext<'_> {
        OpContext::new(&self.catalog, Arc::new(Uninterrupted))
    }

    pub(crate) fn index(&self, spec: Document) {
        let mut spec = spec;
        let key = raw(spec.get_document("key").unwrap());
        if !spec.contains_key("name") {
            spec.insert("name", indexkeys::default_index_name(&key));
        }
        let spec = IndexSpec::parse(&raw(&spec)).unwrap();
        self.catalog.create_indexes(&self.ns, &[spec], &|| Ok(())).unwrap();
    }

    pub(crate) fn insert(&self, documents: &[Document]) -> InsertResult {
        let documents: Vec<RawDocumentBuf> = documents.iter().map(raw).collect();
        let documents: Vec<&bson::RawDocument> = documents.iter().map(AsRef::as_ref).collect();
        let request = InsertRequest { documents: &documents, ordered: true };
        insert(&mut self.ctx(), &self.ns, &request).unwrap()
    }

    pub(crate) fn find_with(&self, request: &FindRequest<'_>) -> Result<Vec<Document>> {
        let mut cursor = find(&mut self.ctx(), &self.ns, request)?;
        let mut out = Vec::new();
        while let Some(document) = cursor.next()? {
            out.push(Document::try_from(document).unwrap());
        }
        Ok(out)
    }

    pub(crate) fn find(&self, filter: Document) -> Vec<Document> {
        let filter = raw(&filter);
        self.find_with(&FindRequest { filter: Some(&filter), ..FindRequest::default() }).unwrap()
    }

    pub(crate) fn explain(&self, filter: Document, sort: Document) -> Document {
        let (filter, sort) = (raw(&filter), raw(&sort));
        let request =
            FindRequest { filter: Some(&filter), sort: Some(&sort), ..FindRequest::default() };
        let explained =
            explain_find(&mut self.ctx(), &self.ns, &request, Verbosity::ExecutionStats).unwrap();
        Document::try_from(&*explained).unwrap()
    }

    pub(crate) fn open(&self, stages: &[Document]) -> Result<QueryCursor> {
        let pipeline: RawArrayBuf =
            stages.iter().map(|stage| bson::RawBson::Document(raw(stage))).collect();
        let target = AggregateTarget::Collection(self.ns.clone());
        let request = AggregateRequest {
            pipeline: &pipeline,
            let_variables: None,
            hint: None,
            collation: None,
            allow_disk_use: None,
        };
        aggregate(&mut self.ctx(), &target, &request)
    }

    pub(crate) fn aggregate(&self, stages: Vec<Document>) -> Result<Vec<Document>> {
        let mut cursor = self.open(&stages)?;
        let mut out = Vec::new();
        while let Some(document) = cursor.next()? {
            out.push(Document::try_from(document).unwrap());
        }
        Ok(out)
    }

    pub(crate) fn check_valid(&self) {
        let report = self.catalog.validate(&self.ns, &|| Ok(())).unwrap();
        assert!(report.valid(), "{:?}", report.errors);
    }
}

/// The names of a plan's stages, from the top.
pub(crate) fn stages(explained: &Document) -> Vec<String> {
    let mut plan =
        explained.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap();
    let mut names = Vec::new();
    loop {
        names.push(plan.get_str("stage").unwrap().to_owned());
        match plan.get_document("inputStage") {
            Ok(input) => plan = input,
            Err(_) => return names,
        }
    }
}
