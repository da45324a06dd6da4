//! `distinct`: the values of a path, each once, in the order of BSON values. Of values that compare
//! equal, also by the collation, the one met first is kept.

use crate::canonical::{Canonical, Purpose, collation_of, parse_filter};
use crate::context::OpContext;
use crate::exec::ExecContext;
use crate::request::DistinctRequest;
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument};
use bsonval::Path;
use bsonval::path::LeafArrays;
use bsonval::raw;
use catalog::Namespace;
use errors::{Error, Result};
use keystring::{Collation, Direction, KeyBuilder};
use limits::{Growth, KeyMap, Part};
use std::collections::BTreeSet;
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
        return values.finish();
    }
    let fields = BTreeSet::from([request.key.to_owned()]);
    let chosen = query.choose_plan(ctx, Some(&fields), Canonical::stages)?;
    let mut stage = chosen.stages(&query, ctx.catalog, Canonical::stages)?;
    let exec = ExecContext::new(&query.snapshot, &*ctx.interrupt);
    let mut values = Values::new(request.key, &query);
    while stage.advance(&exec)? {
        values.take(stage.row().document()?)?;
    }
    values.finish()
}

pub(crate) fn prepare(
    ctx: &OpContext<'_>,
    ns: &Namespace,
    request: &DistinctRequest<'_>,
) -> Result<Canonical> {
    let collection = ctx.collection(ns)?;
    let collation = collation_of(request.collation, collection.as_deref())?;
    let filter = parse_filter(request.filter, None, collation, ctx)?;
    Canonical::of_filter(ctx, collection, filter, request.hint, Purpose::Read)
}

/// What a value takes beside its bytes and its key's.
const VALUE_BYTES: usize = 160;

struct Values {
    path: Path,
    /// Which strings are one.
    under: Option<Collation>,
    found: Found,
}

impl Values {
    fn new(key: &str, query: &Canonical) -> Self {
        let found = Found {
            values: KeyMap::default(),
            bytes: 0,
            memory: Growth::new(Part::Stages),
            spare: Vec::new(),
        };
        let under = query.filter.variables().collation().cloned();
        Self { path: Path::new(key), under, found }
    }

    fn take(&mut self, document: &RawDocument) -> Result<()> {
        let Self { path, under, found } = self;
        path.any(document, LeafArrays::Whole, &mut |value, _| {
            match value {
                Some(RawBsonRef::Array(array)) => {
                    for element in raw::values(array) {
                        found.add(element?, under.as_ref())?;
                    }
                }
                Some(value) => found.add(value, under.as_ref())?,
                None => {}
            }
            Ok(false)
        })?;
        Ok(())
    }

    fn finish(self) -> Result<RawArrayBuf> {
        self.found.in_order()
    }
}

/// Values by their keys.
struct Found {
    values: KeyMap<Vec<u8>, RawBson>,
    /// Of the keys, which are about as long as the values.
    bytes: usize,
    memory: Growth,
    /// Where the next key is made.
    spare: Vec<u8>,
}

impl Found {
    fn add(&mut self, value: RawBsonRef<'_>, under: Option<&Collation>) -> Result<()> {
        limits::poll()?;
        let mut key = KeyBuilder::reusing(std::mem::take(&mut self.spare));
        key.append_under(value, Direction::Ascending, under)
            .map_err(|error| Error::bad_value(error.to_string()))?;
        let key = key.into_bytes();
        if self.values.contains_key(&key) {
            self.spare = key;
            return Ok(());
        }
        self.bytes += key.len();
        if self.bytes > MAX_REPLY_BYTES {
            return Err(Error::location(17217, "distinct too big, 16mb cap"));
        }
        self.memory.reach(2 * self.bytes + (self.values.len() + 1) * VALUE_BYTES)?;
        self.values.insert(key, value.into());
        Ok(())
    }

    fn in_order(self) -> Result<RawArrayBuf> {
        let values: Vec<(Vec<u8>, RawBson)> = self.values.into_iter().collect();
        let sorted = limits::sort_by_key_bytes(values, |(key, _)| key, |a, b| a.0.cmp(&b.0))?;
        Ok(sorted.into_iter().map(|(_, value)| value).collect())
    }
}
