//! Finds by a range of `_id` and nothing else, in its order: the documents are read from there on, without parsing a
//! filter, planning or choosing.
//!
//! Always true: what is found this way is what the general way finds, in the same state, in the same order and with the
//! same figures; whatever is not certain to be such a query goes that way.

use crate::context::OpContext;
use crate::cursor::{InterruptSlot, QueryCursor, Rows};
use crate::examined::{Tally, note_way};
use crate::exec::{ExecContext, one_range};
use crate::point::{is_plain, needs_no_plan};
use crate::request::FindRequest;
use bounds::{Collations, Intervals, of_predicate};
use bson::raw::{RawBson, RawBsonRef, RawDocument};
use bsonval::raw;
use bsonval::types::exact_integer;
use catalog::{Collection, from_engine};
use engine::{Cursor, Direction, KeyRange, Snapshot};
use errors::Result;
use keystring::Direction::Ascending;
use matcher::Predicate;
use std::sync::Arc;

/// A cursor over the documents of a range of `_id`. `None` where the filter must be planned.
pub(crate) fn find(
    ctx: &OpContext<'_>,
    collection: &Arc<Collection>,
    filter: &RawDocument,
    request: &FindRequest<'_>,
) -> Result<Option<QueryCursor>> {
    let Some(bounds) = bounds_of(filter)? else { return Ok(None) };
    let Some(backward) = is_backward(request.sort)? else { return Ok(None) };
    if !ctx.reads_newest() || !is_read_by_id(collection) {
        return Ok(None);
    }
    let state = ctx.read_state();
    if !ctx.fits(collection, &state) {
        return Err(catalog::snapshot_unavailable());
    }
    let Some(range) = one_range(&[bounds], &[Ascending], None)? else { return Ok(None) };
    note_way("IXSCAN", None);
    let interrupt = InterruptSlot::of(&ctx.interrupt);
    let rows = RangeRows {
        collection: Arc::clone(collection),
        state,
        interrupt: Arc::clone(&interrupt),
        place: Place::Begin(range),
        direction: if backward { Direction::Backward } else { Direction::Forward },
        left: if request.limit == 0 { u64::MAX } else { request.limit },
        counters: Tally::default(),
    };
    Ok(Some(QueryCursor::new(Box::new(rows), Some(Arc::clone(collection)), interrupt)))
}

/// The documents of a range, lent as they lie in the tree.
struct RangeRows {
    collection: Arc<Collection>,
    state: Snapshot,
    interrupt: Arc<InterruptSlot>,
    place: Place,
    direction: Direction,
    /// How many more there may be.
    left: u64,
    counters: Tally,
}

enum Place {
    Begin(KeyRange),
    Open(Cursor),
}

impl Rows for RangeRows {
    fn next(&mut self) -> Result<Option<&RawDocument>> {
        if self.left == 0 {
            return Ok(None);
        }
        if let Place::Begin(range) = &mut self.place {
            let range = std::mem::replace(range, KeyRange::all());
            let dictionary = self.collection.primary_at(0);
            let cursor = self.state.cursor(dictionary, range, self.direction);
            self.place = Place::Open(cursor.map_err(from_engine)?);
        }
        let Place::Open(cursor) = &mut self.place else { return Ok(None) };
        self.counters.works += 1;
        ExecContext::new(&self.state, &*self.interrupt).tick(self.counters.works)?;
        let Some((_, document)) = cursor.next().map_err(from_engine)? else {
            self.left = 0;
            return Ok(None);
        };
        self.left -= 1;
        self.counters.keys += 1;
        self.counters.documents += 1;
        Ok(Some(RawDocument::from_bytes(document)?))
    }

    fn park(&mut self) {
        self.counters.tell();
        if let Place::Open(cursor) = &mut self.place {
            cursor.park();
        }
    }

    #[cfg(test)]
    fn is_planned(&self) -> bool {
        false
    }
}

impl Drop for RangeRows {
    fn drop(&mut self) {
        if self.counters.documents > 0 {
            self.collection.note_scanned(self.counters.documents);
        }
    }
}

/// Whether documents are stored by their `_id` alone, compared by its bytes, and no index could be the better choice for
/// a range of it.
fn is_read_by_id(collection: &Collection) -> bool {
    let starts_otherwise = |spec: &indexkeys::IndexSpec| {
        spec.wildcard.is_none()
            && !spec.clustering
            && spec.parts.first().is_some_and(|part| part.path != "_id")
    };
    needs_no_plan(collection)
        && collection.primary_index().is_none()
        && collection.collation().is_none()
        && !collection.is_partitioned()
        && collection.order().is_none()
        && collection.indexes().iter().all(|index| starts_otherwise(index.spec()))
}

/// Where the `_id` must lie for `{_id: {$gt: …, $lt: …}}`, with one of these operators or several.
fn bounds_of(filter: &RawDocument) -> Result<Option<Intervals>> {
    let Some(only) = raw::only_plain(filter).filter(|only| only.name_bytes() == b"_id") else {
        return Ok(None);
    };
    let RawBsonRef::Document(operators) = only.value()? else { return Ok(None) };
    let mut bounds: Option<Intervals> = None;
    for operator in raw::elements(operators) {
        let operator = operator?;
        let compare: fn(RawBson) -> Predicate = match operator.name_bytes() {
            b"$gt" => Predicate::Gt,
            b"$gte" => Predicate::Gte,
            b"$lt" => Predicate::Lt,
            b"$lte" => Predicate::Lte,
            _ => return Ok(None),
        };
        let value = operator.value()?;
        if !is_plain(value) {
            return Ok(None);
        }
        let by_bytes = Collations { query: None, index: None };
        match of_predicate(&compare(value.into()), by_bytes) {
            Some(one) if one.exact => {
                let both = |bounds: Intervals| bounds.intersect(&one.intervals);
                bounds = Some(bounds.map_or_else(|| one.intervals.clone(), both));
            }
            _ => return Ok(None),
        }
    }
    Ok(bounds.filter(|bounds| !bounds.is_empty() && !bounds.is_point()))
}

/// Whether documents of a range can come in the order asked for.
pub(crate) fn gives(sort: Option<&RawDocument>) -> Result<bool> {
    Ok(is_backward(sort)?.is_some())
}

/// Whether the order asked for is the descending one of `_id`. `None` where it is another.
fn is_backward(sort: Option<&RawDocument>) -> Result<Option<bool>> {
    let Some(sort) = sort.filter(|sort| !sort.is_empty()) else { return Ok(Some(false)) };
    let only = raw::only_plain(sort).filter(|only| only.name_bytes() == b"_id");
    let direction = only.map(|only| only.value()).transpose()?.and_then(exact_integer);
    Ok(match direction {
        Some(1) => Some(false),
        Some(-1) => Some(true),
        _ => None,
    })
}
