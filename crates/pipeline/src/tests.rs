//! Whole pipelines over documents in memory.

mod depth;
mod interrupts;
mod memory;
mod spilling;
mod stages;
mod windows;

use crate::{DocumentSource, PipelineContext};
use bson::raw::{RawArrayBuf, RawDocumentBuf};
use bson::{Bson, DateTime, Document};
use errors::Result;
use expr::agg::{ParseContext, Variables};
use memory::World;
use std::sync::Arc;

fn raw(documents: &[Document]) -> Vec<RawDocumentBuf> {
    documents.iter().map(|d| RawDocumentBuf::try_from(d).unwrap()).collect()
}

fn array(stages: &[Document]) -> RawArrayBuf {
    raw(stages).iter().collect()
}

fn context() -> PipelineContext {
    let parse = matcher::ParseContext {
        names: ParseContext::new(),
        variables: Arc::new(Variables::new(DateTime::from_millis(0), 1)),
        text: true,
    };
    PipelineContext::new(&crate::CollectionName::new("db", "c"), parse)
}

fn collect(mut source: Box<dyn DocumentSource>) -> Result<Vec<Document>> {
    let mut found = Vec::new();
    while let Some(document) = source.next()? {
        found.push(Document::try_from(&*document).unwrap());
    }
    Ok(found)
}

/// Runs stages over collection `c` of a world, as written and optimised; both must agree.
fn run(world: &Arc<World>, stages: &[Document]) -> Result<Vec<Document>> {
    let ctx = context();
    let pipeline = crate::Pipeline::parse(&array(stages), &ctx)?;
    let plain = collect(world.run(&pipeline, &ctx)?)?;
    let optimised = pipeline.optimize();
    if optimised.writes() {
        return Ok(plain);
    }
    let again = collect(world.run(&optimised, &ctx)?)?;
    // By text, where a NaN equals itself.
    let (plain, text) = (format!("{plain:?}"), format!("{again:?}"));
    assert_eq!(plain, text, "optimising changed the result of {stages:?}");
    Ok(again)
}

fn check(documents: &[Document], stages: &[Document], expected: &[Document]) {
    let world = World::with(&[("c", documents)]);
    let found = run(&world, stages).unwrap();
    assert_eq!(found, expected, "{stages:?}");
}

fn fails(stages: &[Document], code: i32, message: &str) {
    let world = World::with(&[("c", &[bson::doc! {"_id": 1, "a": 1}])]);
    let error = run(&world, stages).unwrap_err();
    assert_eq!((error.code().0, error.message()), (code, message), "{stages:?}");
}

fn fails_with(stages: &[Document], code: i32) {
    let world = World::with(&[("c", &[bson::doc! {"_id": 1, "a": 1}])]);
    let error = run(&world, stages).unwrap_err();
    assert_eq!(error.code().0, code, "{stages:?}: {error}");
}

/// Order does not matter where a stage promises none.
fn sorted(mut documents: Vec<Document>) -> Vec<Document> {
    documents.sort_by(|a, b| {
        keystring::compare_bson(&Bson::Document(a.clone()), &Bson::Document(b.clone()))
    });
    documents
}
