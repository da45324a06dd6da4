//! `$out`: a new collection is filled beside the old one, then takes its name.
//!
//! It is filled past the log in one transaction where that can be and is worth a checkpoint; else documents are
//! inserted in batches.
//!
//! Always true: until `finish` the target is what it was. Dropped before, the new collection goes;
//! a crash before leaves nothing, or leaves it under a name that the next start sweeps.

use super::QueryEnv;
use crate::request::InsertRequest;
use crate::write::{fit, insert};
use bson::raw::{RawDocument, RawDocumentBuf, cstr};
use catalog::{
    Collection, CollectionOptions, Namespace, TEMPORARY_PREFIX, TimeSeries, Txn, TxnKind,
};
use errors::{Code, Error, Result};
use indexkeys::IndexSpec;
use pipeline::{Env, OutWriter};
use std::sync::Arc;

/// Documents gathered before they are inserted.
const BATCH_DOCUMENTS: usize = 1000;
/// What a gathered document takes beside its bytes, about.
const DOCUMENT_OVERHEAD: usize = 64;
/// What an error says before what went wrong.
const FAILED: &str = "insert for $out failed";
/// Bytes gathered before they are inserted, or a load is begun.
const BATCH_BYTES: usize = 4 << 20;

pub(super) struct CollectionWriter {
    env: QueryEnv,
    target: Namespace,
    /// `None` once it has the target's name.
    temporary: Option<Namespace>,
    filling: Filling,
    batch: Vec<RawDocumentBuf>,
    bytes: usize,
}

/// How documents come into the new collection.
enum Filling {
    /// Nothing is made yet: there are few documents so far.
    Undecided(Box<CollectionOptions>, Vec<IndexSpec>),
    /// Past the log, in a transaction that makes it.
    Load(Box<Txn>, Arc<Collection>),
    Inserts,
}

impl CollectionWriter {
    /// Makes the collection to fill: with `time_series` one of measurements, else with what there is
    /// of options and indexes where the target exists.
    pub(super) fn create(
        env: QueryEnv,
        target: Namespace,
        time_series: Option<&RawDocument>,
    ) -> Result<Self> {
        let catalog = env.catalog();
        let existing = catalog.newest(&target);
        if existing.as_ref().is_some_and(|c| c.is_view()) {
            return Err(Error::new(
                Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
                format!("Namespace {target} is a view, not a collection"),
            ));
        }
        if existing.as_ref().is_some_and(|c| c.cap().is_some()) {
            return Err(Error::location(
                17152,
                format!("namespace '{target}' is capped so it can't be used for $out"),
            ));
        }
        let name = format!("{TEMPORARY_PREFIX}{:016x}", catalog.os().entropy.next_u64());
        let temporary = Namespace::new(target.database(), &name)?;
        let options = options_of(&target, existing.as_deref(), time_series)?;
        let specs: Vec<IndexSpec> = match (&existing, &options.time_series) {
            (Some(existing), _) => {
                existing.indexes().iter().map(|index| index.spec().clone()).collect()
            }
            (None, Some(series)) => {
                let first = series.first_indexes();
                first.iter().map(|spec| IndexSpec::parse(spec)).collect::<Result<_>>()?
            }
            (None, None) => Vec::new(),
        };
        let filling = Filling::Undecided(Box::new(options), specs);
        let temporary = Some(temporary);
        Ok(Self { env, target, temporary, filling, batch: Vec::new(), bytes: 0 })
    }

    /// Makes the collection, and hands over what was gathered. A load costs a checkpoint.
    fn begin(&mut self, may_load: bool) -> Result<()> {
        let (Filling::Undecided(options, specs), Some(temporary)) =
            (&self.filling, &self.temporary)
        else {
            return Ok(());
        };
        let (options, specs) = (options.clone(), specs.clone());
        self.filling = Filling::Inserts;
        let load =
            if may_load { begin_load(&self.env, temporary, &options, &specs)? } else { None };
        if let Some((txn, collection)) = load {
            self.filling = Filling::Load(Box::new(txn), collection);
            for document in std::mem::take(&mut self.batch) {
                self.load(&document)?;
            }
            return Ok(());
        }
        let (catalog, check) = (self.env.catalog(), || self.env.check_interrupt());
        catalog.create_collection(temporary, &options, &check)?;
        if !specs.is_empty() {
            catalog.create_indexes(temporary, &specs, &check)?;
        }
        self.flush()
    }

    fn load(&mut self, document: &RawDocument) -> Result<()> {
        let Filling::Load(txn, collection) = &mut self.filling else { return Ok(()) };
        let keep = self.env.context().keep_empty_timestamps;
        let inserted = fit(self.env.catalog().os(), document, keep)
            .and_then(|document| txn.insert_document(collection, &document));
        inserted.map_err(|error| error.context(FAILED))
    }

    fn flush(&mut self) -> Result<()> {
        let Some(temporary) = &self.temporary else { return Ok(()) };
        if self.batch.is_empty() {
            return Ok(());
        }
        let documents: Vec<&RawDocument> = self.batch.iter().map(AsRef::as_ref).collect();
        let request = InsertRequest { documents: &documents, ordered: true };
        let result = insert(&mut self.env.context(), temporary, &request)?;
        self.batch.clear();
        self.bytes = 0;
        match result.errors.into_iter().next() {
            Some(failed) => Err(failed.error.context(FAILED)),
            None => Ok(()),
        }
    }
}

/// A transaction that fills the collection past the log, where that can be.
fn begin_load(
    env: &QueryEnv,
    temporary: &Namespace,
    options: &CollectionOptions,
    specs: &[IndexSpec],
) -> Result<Option<(Txn, Arc<Collection>)>> {
    let catalog = env.catalog();
    if !catalog.engine().may_load() {
        return Ok(None);
    }
    let mut txn = catalog.begin(TxnKind::Transaction);
    txn.bypass_validation(env.context().bypass_validation);
    txn.begin_load(temporary, options, specs, &|| env.check_interrupt())?;
    if !txn.loads_past_the_log() {
        return Ok(None);
    }
    Ok(txn.open_for_write(temporary)?.map(|collection| (txn, collection)))
}

/// The options of the collection that takes the target's place.
fn options_of(
    target: &Namespace,
    existing: Option<&Collection>,
    time_series: Option<&RawDocument>,
) -> Result<CollectionOptions> {
    let Some(series) = time_series else {
        return Ok(existing.map(|c| c.options().clone()).unwrap_or_default());
    };
    let mut create = RawDocumentBuf::new();
    create.append(cstr!("timeseries"), series.to_owned());
    let wanted = CollectionOptions::parse(&create)?;
    let Some(existing) = existing else { return Ok(wanted) };
    let Some(current) = &existing.options().time_series else {
        return Err(Error::location(
            7268700,
            format!(
                "Cannot create a time-series collection from a non time-series collection: {target}"
            ),
        ));
    };
    let fields = |series: &TimeSeries| (series.time_field.clone(), series.meta_field.clone());
    if wanted.time_series.as_ref().map(fields) != Some(fields(current)) {
        return Err(Error::location(
            7406103,
            format!(
                "The time and meta fields of $out do not match those of the existing time-series \
                 collection {target}"
            ),
        ));
    }
    Ok(existing.options().clone())
}

impl OutWriter for CollectionWriter {
    fn write(&mut self, document: RawDocumentBuf) -> Result<()> {
        let document = bsonval::text_score::strip(document);
        if matches!(self.filling, Filling::Load(..)) {
            return self.load(&document);
        }
        self.bytes += document.as_bytes().len() + DOCUMENT_OVERHEAD;
        self.batch.push(document);
        match &self.filling {
            Filling::Undecided(..) if self.bytes >= BATCH_BYTES => self.begin(true),
            Filling::Inserts
                if self.batch.len() >= BATCH_DOCUMENTS || self.bytes >= BATCH_BYTES =>
            {
                self.flush()
            }
            _ => Ok(()),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.begin(false)?;
        match std::mem::replace(&mut self.filling, Filling::Inserts) {
            Filling::Load(mut txn, _) => {
                let loaded = txn.commit_load(&|| self.env.check_interrupt());
                loaded.map_err(|error| error.context(FAILED))?;
                txn.commit()?;
            }
            Filling::Undecided(..) | Filling::Inserts => self.flush()?,
        }
        if let Some(temporary) = &self.temporary {
            let check = || self.env.check_interrupt();
            self.env.catalog().rename_collection(temporary, &self.target, true, &check)?;
        }
        self.temporary = None;
        Ok(())
    }
}

impl Drop for CollectionWriter {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Nobody is left to tell; the next start sweeps what stays.
            drop(self.env.catalog().drop_collection(temporary, &|| Ok(())));
        }
    }
}
