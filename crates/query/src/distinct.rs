//! `distinct`: the values of a path, each once, in the order in which they are met.

use crate::canonical::{Canonical, Purpose, check_given_collation, parse_filter};
use crate::context::OpContext;
use crate::exec::At;
use crate::request::DistinctRequest;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument};
use catalog::Namespace;
use errors::{Error, Result};
use expr::Path;
use expr::path::LeafArrays;
use keystring::{Direction, KeyBuilder};
use std::collections::{BTreeSet, HashSet};
use xxhash_rust::xxh3::Xxh3Builder;

/// The reply must fit into one document.
const MAX_REPLY_BYTES: usize = 16 << 20;

/// The distinct values of a path.
pub fn distinct(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &DistinctRequest<'_>,
) -> Result<RawArrayBuf> {
    let query = prepare(ctx, ns, request)?;
    if let Some(view) = query.collection.as_ref().filter(|c| c.is_view()) {
        let mut values = Values::new(request.key);
        crate::view::each(ctx, view, request.filter, |document| values.take(document))?;
        return Ok(values.found);
    }
    let access = query.decide(Some(&BTreeSet::from([request.key.to_owned()]))).winner;
    let mut stage = query.stages(ctx.catalog, &access)?;
    let at = At { snapshot: &query.snapshot, txn: None, interrupt: &*ctx.interrupt };
    let mut values = Values::new(request.key);
    while stage.advance(&at)? {
        values.take(stage.row().document()?)?;
    }
    Ok(values.found)
}

pub(crate) fn prepare(
    ctx: &OpContext<'_>,
    ns: &Namespace,
    request: &DistinctRequest<'_>,
) -> Result<Canonical> {
    check_given_collation(request.collation)?;
    let filter = parse_filter(request.filter, None, ctx.catalog)?;
    Canonical::of_filter(ctx, ctx.collection(ns)?, filter, request.hint, Purpose::Read)
}

struct Values {
    path: Path,
    seen: HashSet<Vec<u8>, Xxh3Builder>,
    found: RawArrayBuf,
    bytes: usize,
}

impl Values {
    fn new(key: &str) -> Self {
        Self { path: Path::new(key), seen: HashSet::default(), found: RawArrayBuf::new(), bytes: 0 }
    }

    fn take(&mut self, document: &RawDocument) -> Result<()> {
        let mut values = Vec::new();
        self.path.any(document, LeafArrays::Whole, &mut |value, _| {
            match value {
                Some(RawBsonRef::Array(array)) => {
                    for element in array {
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
        let mut key = KeyBuilder::new();
        key.append(value, Direction::Ascending)
            .map_err(|error| Error::bad_value(error.to_string()))?;
        let key = key.into_bytes();
        if self.seen.contains(&key) {
            return Ok(());
        }
        self.bytes += key.len();
        if self.bytes > MAX_REPLY_BYTES {
            return Err(Error::location(17217, "distinct too big, 16mb cap"));
        }
        self.seen.insert(key);
        self.found.push(value);
        Ok(())
    }
}
