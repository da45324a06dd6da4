//! What pipelines ask from the world: other collections, temporary files, interruption, writing.

use super::collection_figures::coll_stats;
use super::merge::MergeWriter;
use super::open;
use super::out::CollectionWriter;
use crate::context::{Interrupt, OpContext};
use crate::cursor::InterruptSlot;
use crate::exec::{prefetch, temporary_file};
use crate::permit::{KeptPermit, Opening, Permit, names_of};
use crate::plan_cache::plan_cache_stats;
use crate::repeat::DdlRetries;
use crate::request::AggregateTarget;
use bson::raw::{RawArrayBuf, RawBson, RawDocumentBuf};
use bson::{DateTime, Document, doc};
use catalog::{Catalog, Collection, Names, Namespace, View};
use engine::Snapshot;
use errors::{Code, Error, Result};
use expr::agg::Variables;
use keystring::Collation;
use matcher::ParseContext;
use pipeline::stage::merge::MergeSpec;
use pipeline::stage::metadata::Metadata;
use pipeline::stage::out::Out;
use pipeline::{
    DocumentSource, Env, ExecOptions, LookupHint, OutWriter, Pipeline, SpillStorage, VecSource,
};
use std::sync::Arc;

/// The world of one command.
#[derive(Clone)]
pub(crate) struct QueryEnv {
    catalog: Arc<Catalog>,
    interrupt: Arc<InterruptSlot>,
    bypass_validation: bool,
    keep_empty_timestamps: bool,
    cluster_time: Option<bson::Timestamp>,
    user_roles: Option<Arc<RawArrayBuf>>,
    options: ExecOptions,
    /// The state to read where it is not that of now, and what stands under names only there.
    state: Option<Snapshot>,
    own: Names,
    /// The collection the pipeline runs on, for the stages that tell about it.
    namespace: Option<Namespace>,
    /// How many pipelines this one runs inside of, those of views included.
    depth: usize,
    /// What the operation may open.
    permit: Option<Arc<dyn KeptPermit>>,
}

impl QueryEnv {
    pub(crate) fn of(
        ctx: &OpContext<'_>,
        target: &AggregateTarget,
        allow_disk_use: Option<bool>,
    ) -> Self {
        let options =
            ExecOptions { allow_disk_use: allow_disk_use != Some(false), ..ExecOptions::default() };
        let namespace = match target {
            AggregateTarget::Collection(ns) => Some(ns.clone()),
            AggregateTarget::Database(_) => None,
        };
        let fixed = ctx.txn.is_some() || ctx.snapshot.is_some();
        Self {
            state: fixed.then(|| ctx.read_state()),
            own: ctx.txn.as_ref().map_or_else(|| ctx.own.clone(), |txn| txn.names().clone()),
            catalog: Arc::clone(ctx.catalog),
            interrupt: InterruptSlot::of(&ctx.interrupt),
            bypass_validation: ctx.bypass_validation,
            keep_empty_timestamps: ctx.keep_empty_timestamps,
            cluster_time: ctx.cluster_time,
            user_roles: ctx.user_roles.clone(),
            options,
            namespace,
            depth: 0,
            permit: ctx.permit.map(Permit::keep),
        }
    }

    pub(crate) fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    pub(crate) fn interrupt(&self) -> &Arc<InterruptSlot> {
        &self.interrupt
    }

    pub(crate) fn interrupt_dyn(&self) -> Arc<dyn Interrupt> {
        Arc::clone(&self.interrupt) as Arc<dyn Interrupt>
    }

    pub(crate) fn shared(&self) -> Arc<dyn Env> {
        Arc::new(self.clone())
    }

    /// The collection or view of this name.
    pub(crate) fn collection(&self, ns: &Namespace) -> Result<Option<Arc<Collection>>> {
        self.reading().collection(ns)
    }

    /// The context of what a stage reads.
    pub(crate) fn reading(&self) -> OpContext<'_> {
        let mut ctx = OpContext::new(&self.catalog, self.interrupt_dyn());
        ctx.snapshot.clone_from(&self.state);
        ctx.own.clone_from(&self.own);
        ctx.cluster_time = self.cluster_time;
        ctx.user_roles.clone_from(&self.user_roles);
        ctx.permit = self.permit.as_deref().map(|permit| permit as &dyn Permit);
        ctx
    }

    /// Refuses a namespace that was not judged.
    pub(crate) fn check_permit(&self, ns: &Namespace, opening: Opening) -> Result<()> {
        self.permit.as_ref().map_or(Ok(()), |permit| permit.check(ns, opening))
    }

    /// What a view is made of was judged when it was made.
    pub(crate) fn opens_view(&self, database: &str, view: &View) {
        if let Some(permit) = &self.permit {
            permit.add_reads(names_of(database, view));
        }
    }

    /// Whether empty timestamps are stored as they come.
    pub(crate) fn keeps_empty_timestamps(&self) -> bool {
        self.keep_empty_timestamps
    }

    /// The context of a write made by a stage, whose target was checked when the writer was made.
    pub(crate) fn context(&self) -> OpContext<'_> {
        let mut ctx = OpContext::new(&self.catalog, self.interrupt_dyn());
        ctx.bypass_validation = self.bypass_validation;
        ctx.keep_empty_timestamps = self.keep_empty_timestamps;
        ctx.cluster_time = self.cluster_time;
        ctx.user_roles.clone_from(&self.user_roles);
        ctx
    }
}

impl Env for QueryEnv {
    fn check_interrupt(&self) -> Result<()> {
        self.interrupt.check()
    }

    fn options(&self) -> ExecOptions {
        self.options
    }

    fn aggregate(
        &self,
        from: &pipeline::CollectionName,
        pipeline: &Pipeline,
        variables: &Arc<Variables>,
    ) -> Result<Box<dyn DocumentSource>> {
        let ns = Namespace::new(&from.database, &from.collection)?;
        if self.depth == pipeline::MAX_NESTING {
            return Err(Error::new(
                Code::MAX_SUB_PIPELINE_VIEW_DEPTH_EXCEEDED,
                format!(
                    "Maximum number of nested sub-pipelines exceeded. Limit is {}",
                    pipeline::MAX_NESTING
                ),
            ));
        }
        limits::check_stack()?;
        let env = Self { namespace: Some(ns.clone()), depth: self.depth + 1, ..self.clone() };
        let parse = ParseContext {
            variables: Arc::clone(variables),
            text: true,
            ..ParseContext::default()
        };
        let mut retries = DdlRetries::default();
        loop {
            match open(&env, &ns, pipeline.clone(), &parse, None) {
                Err(error)
                    if self.state.is_none()
                        && retries.again(&error, &self.catalog, &*self.interrupt)? => {}
                other => return other,
            }
        }
    }

    fn lookup_hint(
        &self,
        from: &pipeline::CollectionName,
        field: &str,
        under: Option<&Collation>,
    ) -> LookupHint {
        let collection = Namespace::new(&from.database, &from.collection)
            .ok()
            .and_then(|ns| self.collection(&ns).ok().flatten());
        let leads = |collection: &Collection| {
            field == "_id" && collection.collation() == under
                || collection.primary_index().into_iter().chain(collection.indexes()).any(|index| {
                    let spec = index.spec();
                    spec.parts[0].path == field
                        && spec.collation.as_ref() == under
                        && !spec.hidden
                        && !spec.is_text()
                        && !spec.sparse
                        && !spec.is_geo()
                        && spec.partial.is_none()
                })
        };
        match collection {
            Some(collection) if leads(&collection) => LookupHint::Index,
            _ => LookupHint::Hash,
        }
    }

    fn prefetch_by_id(
        &self,
        from: &pipeline::CollectionName,
        ids: &[RawBson],
        under: Option<&Collation>,
    ) -> usize {
        let reading = self.reading();
        let ns = Namespace::new(&from.database, &from.collection);
        let Ok(Some(collection)) = ns.and_then(|ns| reading.collection(&ns)) else { return 0 };
        let state = reading.read_state();
        // A record key is found by another index where documents do not stand under their `_id`; and nobody is kept from
        // changing what is looked at early.
        let stands_by_id = !collection.is_view() && collection.primary_index().is_none();
        if !stands_by_id || collection.collation() != under || state.locks() {
            return 0;
        }
        // What is no `_id` finds nothing.
        let keys: Vec<_> =
            ids.iter().flat_map(|id| collection.id_key(id.as_raw_bson_ref())).collect();
        prefetch(&state, &collection, keys.iter().map(|key| &key[..])).unwrap_or(0)
    }

    fn page_reads(&self) -> u64 {
        engine::thread_page_reads()
    }

    fn create_spill(&self) -> Result<Box<dyn SpillStorage>> {
        temporary_file(&self.catalog)
    }

    fn out(&self, out: &Out) -> Result<Box<dyn OutWriter>> {
        let target = Namespace::new(&out.target.database, &out.target.collection)?;
        self.check_permit(&target, Opening::Write)?;
        let series = out.time_series.as_deref();
        Ok(Box::new(CollectionWriter::create(self.clone(), target, series)?))
    }

    fn merge(&self, spec: &MergeSpec, variables: &Arc<Variables>) -> Result<Box<dyn OutWriter>> {
        let target = Namespace::new(&spec.into.database, &spec.into.collection)?;
        self.check_permit(&target, Opening::Write)?;
        Ok(Box::new(MergeWriter::create(self.clone(), spec.clone(), Arc::clone(variables))?))
    }

    fn metadata(&self, request: &Metadata) -> Result<Box<dyn DocumentSource>> {
        let ns = self.namespace.as_ref();
        if let Some(ns) = ns {
            self.check_permit(ns, Opening::Metadata)?;
        }
        let documents = match (request.name(), ns) {
            ("$collStats", Some(ns)) => vec![coll_stats(&self.catalog, ns, request.spec())?],
            ("$indexStats", Some(ns)) => index_stats(&self.catalog, ns),
            ("$planCacheStats", Some(ns)) => plan_cache_stats(&self.catalog, ns),
            (name, _) => {
                return Err(Error::new(
                    Code::NOT_IMPLEMENTED,
                    format!("the stage {name} is not supported yet"),
                ));
            }
        };
        let documents = documents
            .iter()
            .map(RawDocumentBuf::try_from)
            .collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(Box::new(VecSource::new(documents)))
    }
}

fn index_stats(catalog: &Catalog, ns: &Namespace) -> Vec<Document> {
    let Some(collection) = catalog.collection(ns) else { return Vec::new() };
    let since = DateTime::from_millis(catalog.os().clock.wall_ms());
    let entry = |name: &str, spec: Document, uses: u64| {
        let key = spec.get_document("key").cloned().unwrap_or_default();
        doc! {
            "name": name,
            "key": key,
            "accesses": { "ops": uses as i64, "since": since },
            "spec": spec,
        }
    };
    let shown = |index: &catalog::Index| {
        let spec = Document::try_from(index.spec().shown.as_ref()).unwrap_or_default();
        entry(&index.spec().name, spec, index.used().queries)
    };
    if let Some(primary) = collection.primary_index() {
        return std::iter::once(primary)
            .chain(collection.shown_indexes())
            .map(|index| shown(index))
            .collect();
    }
    let id_name = collection.options().id_index_name();
    let mut id = doc! { "v": 2, "key": { "_id": 1 }, "name": id_name };
    if collection.options().clustered.is_some() {
        id.extend(doc! { "unique": true, "clustered": true });
    }
    if let Some(collation) = collection.collation()
        && let Ok(shown) = Document::try_from(&bsonval::collation::to_document(collation))
    {
        id.insert("collation", shown);
    }
    let mut out = vec![entry(id_name, id, 0)];
    out.extend(collection.shown_indexes().map(|index| shown(index)));
    out
}
