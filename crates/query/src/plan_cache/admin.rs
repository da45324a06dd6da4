//! What an operator sees and says of plans: `$planCacheStats`, the planCache commands.

use super::{Entry, PlanCache};
use crate::canonical::{Canonical, Purpose};
use crate::context::OpContext;
use crate::index_filter::IndexFilter;
use crate::plan::Shape;
use crate::request::FindRequest;
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document, doc};
use catalog::{Catalog, Collection, Namespace};
use errors::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Forgets every choice of a collection.
pub fn clear_plan_cache(collection: &Collection) {
    PlanCache::of(collection).entries.lock().of.clear();
}

/// Forgets the choices for queries of one shape.
pub fn clear_plan_of(ctx: &OpContext<'_>, ns: &Namespace, query: &FindRequest<'_>) -> Result<()> {
    let Some((collection, shape)) = shape_of(ctx, ns, query)? else { return Ok(()) };
    let cache = PlanCache::of(&collection);
    let mut entries = cache.entries.lock();
    for limited in [false, true] {
        entries.of.remove(&shape.clone().limited(limited));
    }
    Ok(())
}

/// One document for each choice that a collection remembers, as `$planCacheStats` shows it.
pub fn plan_cache_stats(catalog: &Catalog, ns: &Namespace) -> Vec<Document> {
    let Some(collection) = catalog.collection(ns) else { return Vec::new() };
    let cache = PlanCache::of(&collection);
    let entries = cache.entries.lock();
    let mut shown: Vec<(u64, Document)> =
        entries.of.iter().map(|(shape, entry)| (entry.used, of_entry(shape, entry))).collect();
    shown.sort_by_key(|(used, _)| *used);
    shown.into_iter().map(|(_, document)| document).collect()
}

fn of_entry(shape: &Shape, entry: &Entry) -> Document {
    let hash = shape.hash_text();
    let shown = &entry.shown;
    let trial: Vec<Bson> =
        shown.trial.iter().map(|(statistics, _)| Bson::Document(statistics.clone())).collect();
    let scores: Vec<Bson> = shown.trial.iter().map(|(_, score)| Bson::Double(*score)).collect();
    doc! {
        "version": "1",
        "queryHash": &hash,
        "planCacheShapeHash": &hash,
        "planCacheKey": hash,
        "isActive": entry.active,
        "works": entry.works as i64,
        "worksType": "works",
        "timeOfCreation": entry.made,
        "createdFromQuery": {
            "query": shown.query.clone(),
            "sort": shown.sort.clone(),
            "projection": {},
        },
        "cachedPlan": shown.plan.clone(),
        "creationExecStats": trial,
        "candidatePlanScores": scores,
        "indexFilterSet": shown.filtered,
        "estimatedSizeBytes": entry.bytes as i64,
    }
}

/// Says which indexes queries of one shape may use: names or key patterns.
pub fn set_filter(
    ctx: &OpContext<'_>,
    ns: &Namespace,
    query: &FindRequest<'_>,
    indexes: &[RawBsonRef<'_>],
) -> Result<()> {
    let Some((collection, shape)) = shape_of(ctx, ns, query)? else {
        return Err(Error::bad_value("no such collection"));
    };
    let document = |given: Option<&RawDocument>| -> Result<Document> {
        Ok(given.map(Document::try_from).transpose()?.unwrap_or_default())
    };
    let mut filter = IndexFilter {
        query: document(query.filter)?,
        sort: document(query.sort)?,
        projection: document(query.projection)?,
        collation: query.collation.map(Document::try_from).transpose()?,
        names: Vec::new(),
        keys: Vec::new(),
    };
    for index in indexes {
        match index {
            RawBsonRef::String(name) => filter.names.push((*name).to_owned()),
            RawBsonRef::Document(key) if !key.is_empty() => {
                filter.keys.push(Document::try_from(*key)?);
            }
            RawBsonRef::Document(_) => {
                return Err(Error::bad_value("index specification cannot be empty"));
            }
            _ => {
                return Err(Error::bad_value(
                    "each item in indexes must be an object (index specification) or a string \
                     (index name)",
                ));
            }
        }
    }
    let cache = PlanCache::of(&collection);
    cache.filters.lock().insert(shape.clone(), Arc::new(filter));
    cache.has_filters.store(true, Ordering::Release);
    drop(cache);
    clear_plan_of(ctx, ns, query)
}

/// Every filter of a collection, as `planCacheListFilters` shows it.
pub fn list_filters(collection: &Collection) -> Vec<Document> {
    let cache = PlanCache::of(collection);
    let filters = cache.filters.lock();
    filters.values().map(|filter| of_filter(filter)).collect()
}

fn of_filter(filter: &IndexFilter) -> Document {
    let names = filter.names.iter().cloned().map(Bson::String);
    let keys = filter.keys.iter().cloned().map(Bson::Document);
    let mut shown = doc! {
        "query": filter.query.clone(),
        "sort": filter.sort.clone(),
        "projection": filter.projection.clone(),
    };
    if let Some(collation) = &filter.collation {
        shown.insert("collation", collation.clone());
    }
    shown.insert("indexes", keys.chain(names).collect::<Vec<Bson>>());
    shown
}

/// Removes the filter of one shape; without a query those of all.
pub fn clear_filters(
    ctx: &OpContext<'_>,
    ns: &Namespace,
    query: Option<&FindRequest<'_>>,
) -> Result<()> {
    let Some(query) = query else {
        if let Some(collection) = ctx.catalog.collection(ns) {
            let cache = PlanCache::of(&collection);
            cache.filters.lock().clear();
            cache.has_filters.store(false, Ordering::Release);
            cache.entries.lock().of.clear();
        }
        return Ok(());
    };
    let Some((collection, shape)) = shape_of(ctx, ns, query)? else { return Ok(()) };
    let cache = PlanCache::of(&collection);
    let mut filters = cache.filters.lock();
    filters.remove(&shape);
    cache.has_filters.store(!filters.is_empty(), Ordering::Release);
    drop(filters);
    clear_plan_of(ctx, ns, query)
}

/// The shape of a query; `None` where there is no such collection.
fn shape_of(
    ctx: &OpContext<'_>,
    ns: &Namespace,
    query: &FindRequest<'_>,
) -> Result<Option<(Arc<Collection>, Shape)>> {
    let query = Canonical::of_find(ctx, ns, query, Purpose::Plan)?;
    let fields = query.fields();
    let shape = query.query_shape(fields.as_ref());
    Ok(query.collection.map(|collection| (collection, shape)))
}
