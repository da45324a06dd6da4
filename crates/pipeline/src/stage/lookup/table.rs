//! A hash table over the foreign collection of a `$lookup`.
//!
//! Always true: a document that the join's equality accepts is among those found; what follows in
//! the pipeline may still turn it away.

use super::{Lookup, equality_filter, local_values};
use crate::env::{CollectionName, Env};
use crate::memory::StageMemory;
use crate::stage::group::key_bytes;
use crate::{DocumentSource, Pipeline};
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::Path;
use bsonval::multikey;
use errors::{Code, Result};
use expr::agg::Variables;
use keystring::Collation;
use limits::KeyMap;
use matcher::Filter;
use std::sync::Arc;

pub(super) struct Table {
    documents: Vec<RawDocumentBuf>,
    places: KeyMap<Vec<u8>, Vec<u32>>,
    held: StageMemory,
}

/// The documents found, a copy of each at a time.
pub(super) struct FoundSource {
    table: Arc<Table>,
    found: std::vec::IntoIter<u32>,
    /// What a document must match besides its key.
    checked: Option<Filter>,
}

impl DocumentSource for FoundSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        for at in self.found.by_ref() {
            limits::poll()?;
            let document = &self.table.documents[at as usize];
            let wanted = match &self.checked {
                Some(filter) => filter.matches(document)?,
                None => true,
            };
            if wanted {
                return Ok(Some(document.clone()));
            }
        }
        Ok(None)
    }
}

impl Table {
    /// Reads the collection; `None` where it does not fit.
    pub(super) fn build(
        lookup: &Lookup,
        from: &CollectionName,
        env: &Arc<dyn Env>,
        variables: &Arc<Variables>,
    ) -> Result<Option<Self>> {
        let held = StageMemory::within(env.options().memory_limit_bytes);
        let mut source = env.aggregate(from, &Pipeline::default(), variables)?;
        let mut table = Self { documents: Vec::new(), places: KeyMap::default(), held };
        let path = lookup.equality.as_ref().map(|(_, foreign)| [Path::new(foreign)]);
        let mut bytes = 0;
        while let Some(document) = source.next()? {
            env.check_interrupt()?;
            let at = u32::try_from(table.documents.len()).unwrap_or(u32::MAX);
            let keys = match &path {
                Some(path) => foreign_keys(&document, path, variables.collation())?,
                None => Some(correlated_key(lookup, &document, variables)?),
            };
            let Some(keys) = keys else { return Ok(None) };
            bytes += document.as_bytes().len() + 64;
            for key in keys {
                bytes += key.len() + 64;
                let list = table.places.entry(key).or_default();
                if list.last() != Some(&at) {
                    list.push(at);
                }
            }
            if !table.held.fits(bytes, 0).unwrap_or(false) || at == u32::MAX {
                return Ok(None);
            }
            table.documents.push(document);
        }
        Ok(Some(table))
    }

    /// The documents an outer document may be joined with, in the collection's order.
    pub(super) fn find(
        self: &Arc<Self>,
        lookup: &Lookup,
        document: &RawDocument,
        variables: &Variables,
    ) -> Result<FoundSource> {
        let mut found: Vec<u32> = Vec::new();
        let under = variables.collation();
        let mut add = |value: RawBsonRef<'_>| -> Result<()> {
            if let Some(list) = self.places.get(&key_bytes(value, under, Vec::new())?) {
                found.extend_from_slice(list);
            }
            Ok(())
        };
        // An index key of null stands for more than a filter's null does.
        let mut checked = None;
        match (&lookup.equality, &lookup.correlation) {
            (Some((local, foreign)), _) => {
                let values = local_values(document, local)?;
                for value in &values {
                    add(value.as_raw_bson_ref())?;
                }
                checked = values
                    .iter()
                    .any(|value| matches!(value, RawBson::Null))
                    .then(|| equality_filter(foreign, values, &Arc::new(variables.clone())))
                    .transpose()?;
            }
            (None, Some((_, outer))) => add(outer.evaluate(document, variables)?.bson())?,
            (None, None) => {}
        }
        found.sort_unstable();
        found.dedup();
        Ok(FoundSource { table: Arc::clone(self), found: found.into_iter(), checked })
    }
}

/// One key per value the foreign path stands for, and one for a whole array. `None` where the
/// path runs through arrays that cannot be told apart.
pub(crate) fn foreign_keys(
    document: &RawDocument,
    path: &[Path; 1],
    under: Option<&Collation>,
) -> Result<Option<Vec<Vec<u8>>>> {
    let mut keys = Vec::new();
    let expanded = multikey::expand(document, path, &mut |tuple| {
        let value = tuple.first().copied().flatten().unwrap_or(RawBsonRef::Null);
        keys.push(key_bytes(value, under, Vec::new())?);
        Ok(())
    });
    match expanded {
        Ok(_) => {}
        Err(error) if error.code() == Code::CANNOT_INDEX_PARALLEL_ARRAYS => return Ok(None),
        Err(error) => return Err(error),
    }
    if let Some(whole) = path[0].get(document)? {
        keys.push(key_bytes(whole, under, Vec::new())?);
    }
    Ok(Some(keys))
}

fn correlated_key(
    lookup: &Lookup,
    document: &RawDocument,
    variables: &Variables,
) -> Result<Vec<Vec<u8>>> {
    let Some((foreign, _)) = &lookup.correlation else { return Ok(Vec::new()) };
    let value = foreign.evaluate(document, variables)?.into_owned().unwrap_or(RawBson::Undefined);
    Ok(vec![key_bytes(value.as_raw_bson_ref(), variables.collation(), Vec::new())?])
}
