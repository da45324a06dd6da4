//! `distinct`: the values of a path, each once, in the order of BSON values. Of values that compare
//! equal, also by the collation, the one met first is kept.

use crate::canonical::{Canonical, Purpose, collation_of, parse_filter};
use crate::context::OpContext;
use crate::exec::At;
use crate::request::DistinctRequest;
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument};
use catalog::Namespace;
use errors::{Error, Result};
use expr::Path;
use expr::path::LeafArrays;
use expr::raw;
use keystring::{Collation, Direction, KeyBuilder};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The reply must fit into one document.
const MAX_REPLY_BYTES: usize = 16 << 20;

/// The distinct values of a path.
pub fn distinct(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &DistinctRequest<'_>,
) -> Result<RawArrayBuf> {
    let query = Arc::new(prepare(ctx, ns, request)?);
    if let Some(view) = query.collection.as_ref().filter(|c| c.is_view()) {
        let mut values = Values::new(request.key, &query);
        crate::view::each(ctx, view, request, |document| values.take(document))?;
        return Ok(values.finish());
    }
    let fields = BTreeSet::from([request.key.to_owned()]);
    let settled = query.settle(ctx, Some(&fields), Canonical::stages)?;
    let mut stage = settled.stages(&query, ctx.catalog, Canonical::stages)?;
    let at = At::new(&query.snapshot, &*ctx.interrupt);
    let mut values = Values::new(request.key, &query);
    while stage.advance(&at)? {
        values.take(stage.row().document()?)?;
    }
    Ok(values.finish())
}

pub(crate) fn prepare(
    ctx: &OpContext<'_>,
    ns: &Namespace,
    request: &DistinctRequest<'_>,
) -> Result<Canonical> {
    let collection = ctx.collection(ns)?;
    let collation = collation_of(request.collation, collection.as_deref())?;
    let filter = parse_filter(request.filter, None, collation, ctx.catalog)?;
    Canonical::of_filter(ctx, collection, filter, request.hint, Purpose::Read)
}

struct Values {
    path: Path,
    /// Which texts are one.
    under: Option<Collation>,
    /// The values by their keys.
    found: BTreeMap<Vec<u8>, RawBson>,
    bytes: usize,
}

impl Values {
    fn new(key: &str, query: &Canonical) -> Self {
        Self {
            path: Path::new(key),
            under: query.filter.variables().collation().cloned(),
            found: BTreeMap::new(),
            bytes: 0,
        }
    }

    fn take(&mut self, document: &RawDocument) -> Result<()> {
        let mut values = Vec::new();
        self.path.any(document, LeafArrays::Whole, &mut |value, _| {
            match value {
                Some(RawBsonRef::Array(array)) => {
                    for element in raw::values(array) {
                        values.push(element?);
                    }
                }
                Some(value) => values.push(value),
                None => {}
            }
            Ok(false)
        })?;
        values.into_iter().try_for_each(|value| self.add(value))
    }

    fn add(&mut self, value: RawBsonRef<'_>) -> Result<()> {
        limits::poll()?;
        let mut key = KeyBuilder::new();
        key.append_under(value, Direction::Ascending, self.under.as_ref())
            .map_err(|error| Error::bad_value(error.to_string()))?;
        if let Entry::Vacant(place) = self.found.entry(key.into_bytes()) {
            self.bytes += place.key().len();
            if self.bytes > MAX_REPLY_BYTES {
                return Err(Error::location(17217, "distinct too big, 16mb cap"));
            }
            place.insert(value.into());
        }
        Ok(())
    }

    fn finish(self) -> RawArrayBuf {
        self.found.into_values().collect()
    }
}
