//! A world of collections in memory for the stages to run in.

use crate::stage::merge::{MergeAction, MergeSpec};
use crate::stage::metadata::Metadata;
use crate::stage::out::Out;
use crate::{
    CollectionName, DocumentSource, Env, ExecOptions, LookupHint, OutWriter, Pipeline,
    PipelineContext, SpillStorage, VecSource,
};
use bson::Document;
use bson::raw::RawDocumentBuf;
use errors::Result;
use expr::agg::Variables;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

pub(super) struct World {
    collections: Mutex<BTreeMap<String, Vec<RawDocumentBuf>>>,
    pub(super) options: ExecOptions,
    pub(super) hint: LookupHint,
    /// How often something was read or spilled.
    pub(super) aggregations: AtomicUsize,
    pub(super) spills: AtomicUsize,
    me: Weak<World>,
}

impl World {
    pub(super) fn with(collections: &[(&str, &[Document])]) -> Arc<Self> {
        Self::with_options(collections, ExecOptions::default(), LookupHint::Hash)
    }

    pub(super) fn with_options(
        collections: &[(&str, &[Document])],
        options: ExecOptions,
        hint: LookupHint,
    ) -> Arc<Self> {
        let collections = collections
            .iter()
            .map(|(name, documents)| ((*name).to_owned(), super::raw(documents)))
            .collect();
        Arc::new_cyclic(|me| Self {
            collections: Mutex::new(collections),
            options,
            hint,
            aggregations: AtomicUsize::new(0),
            spills: AtomicUsize::new(0),
            me: me.clone(),
        })
    }

    fn env(&self) -> Arc<dyn Env> {
        self.me.upgrade().unwrap()
    }

    pub(super) fn run(
        &self,
        pipeline: &Pipeline,
        ctx: &PipelineContext,
    ) -> Result<Box<dyn DocumentSource>> {
        let input = Box::new(VecSource::new(self.documents("c")));
        pipeline.execute(input, &self.env(), &ctx.parse.variables)
    }

    pub(super) fn documents(&self, name: &str) -> Vec<RawDocumentBuf> {
        self.collections.lock().unwrap().get(name).cloned().unwrap_or_default()
    }

    pub(super) fn content(&self, name: &str) -> Vec<Document> {
        self.documents(name).iter().map(|d| Document::try_from(&**d).unwrap()).collect()
    }
}

impl Env for World {
    fn check_interrupt(&self) -> Result<()> {
        Ok(())
    }

    fn options(&self) -> ExecOptions {
        self.options
    }

    fn aggregate(
        &self,
        from: &CollectionName,
        pipeline: &Pipeline,
        variables: &Arc<Variables>,
    ) -> Result<Box<dyn DocumentSource>> {
        self.aggregations.fetch_add(1, Ordering::Relaxed);
        let input = Box::new(VecSource::new(self.documents(&from.collection)));
        pipeline.execute(input, &self.env(), variables)
    }

    fn lookup_hint(
        &self,
        _: &CollectionName,
        _: &str,
        _: Option<&keystring::Collation>,
    ) -> LookupHint {
        self.hint
    }

    fn create_spill(&self) -> Result<Box<dyn SpillStorage>> {
        self.spills.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(MemorySpill::default()))
    }

    fn out(&self, out: &Out) -> Result<Box<dyn OutWriter>> {
        let target = &out.target;
        Ok(Box::new(Replacing {
            world: self.me.upgrade().unwrap(),
            target: target.collection.clone(),
            documents: Vec::new(),
        }))
    }

    fn merge(&self, spec: &MergeSpec, variables: &Arc<Variables>) -> Result<Box<dyn OutWriter>> {
        Ok(Box::new(Merging {
            world: self.me.upgrade().unwrap(),
            spec: spec.clone(),
            variables: Arc::clone(variables),
        }))
    }

    fn metadata(&self, _: &Metadata) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(crate::EmptySource))
    }
}

#[derive(Default)]
struct MemorySpill(Vec<u8>);

impl SpillStorage for MemorySpill {
    fn append(&mut self, bytes: &[u8]) -> Result<u64> {
        let at = self.0.len() as u64;
        self.0.extend_from_slice(bytes);
        Ok(at)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let rest = &self.0[offset as usize..];
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

struct Replacing {
    world: Arc<World>,
    target: String,
    documents: Vec<RawDocumentBuf>,
}

impl OutWriter for Replacing {
    fn write(&mut self, document: RawDocumentBuf) -> Result<()> {
        self.documents.push(document);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.world.collections.lock().unwrap().insert(self.target, self.documents);
        Ok(())
    }
}

struct Merging {
    world: Arc<World>,
    spec: MergeSpec,
    variables: Arc<Variables>,
}

impl OutWriter for Merging {
    fn write(&mut self, document: RawDocumentBuf) -> Result<()> {
        let wanted = self.spec.on_values(&document)?;
        let mut collections = self.world.collections.lock().unwrap();
        let target = collections.entry(self.spec.into.collection.clone()).or_default();
        let found = target.iter().position(|candidate| {
            self.spec.on_values(candidate).is_ok_and(|values| values == wanted)
        });
        let existing = found.map(|at| &*target[at]);
        match (self.spec.resolve(existing, &document, &self.variables)?, found) {
            (MergeAction::Insert(new), _) => target.push(new),
            (MergeAction::Replace(new), Some(at)) => target[at] = new,
            _ => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
