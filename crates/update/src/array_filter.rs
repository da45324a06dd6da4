//! Array filters: which elements `$[identifier]` means.

use bson::raw::{RawArray, RawBsonRef};
use bsonval::raw;
use errors::{Error, Result};
use matcher::{Filter, ParseContext};
use std::collections::BTreeMap;

/// Filters by identifier.
#[derive(Debug, Default)]
pub(super) struct ArrayFilters {
    /// `None` where none were given, as mostly.
    filters: Option<BTreeMap<Box<str>, Filter>>,
}

impl ArrayFilters {
    pub(super) fn parse(filters: Option<&RawArray>, ctx: &ParseContext) -> Result<Self> {
        let Some(array) = filters else { return Ok(Self::default()) };
        let mut parsed = BTreeMap::new();
        for filter in raw::values(array) {
            let RawBsonRef::Document(document) = filter? else {
                return Err(Error::type_mismatch(
                    "BSON field 'update.updates.arrayFilters' is the wrong type, expected type \
                     'object'",
                ));
            };
            let filter = Filter::parse(document, ctx)
                .map_err(|error| error.context("Error parsing array filter"))?;
            let identifier = identifier(&filter)?;
            if parsed.contains_key(&identifier) {
                return Err(Error::failed_to_parse(format!(
                    "Found multiple array filters with the same top-level field name {identifier}"
                )));
            }
            parsed.insert(identifier, filter);
        }
        Ok(Self { filters: Some(parsed) })
    }

    pub(super) fn contains(&self, identifier: &str) -> bool {
        self.filters.as_ref().is_some_and(|filters| filters.contains_key(identifier))
    }

    pub(super) fn identifiers(&self) -> impl Iterator<Item = &str> {
        self.filters.iter().flat_map(|filters| filters.keys()).map(|key| &**key)
    }

    /// Whether an element is meant. The empty identifier means every element.
    pub(super) fn matches(&self, identifier: &str, element: RawBsonRef<'_>) -> Result<bool> {
        if identifier.is_empty() {
            return Ok(true);
        }
        match self.filters.as_ref().and_then(|filters| filters.get(identifier)) {
            Some(filter) => filter.matches(&raw::document_of(identifier, element)),
            None => Ok(false),
        }
    }
}

/// The one top-level field name the filter speaks of.
fn identifier(filter: &Filter) -> Result<Box<str>> {
    let mut found: Option<&str> = None;
    for path in filter.paths() {
        match found {
            Some(name) if name != path.first() => {
                return Err(Error::failed_to_parse(format!(
                    "Error parsing array filter :: caused by :: Expected a single top-level field \
                     name, found '{name}' and '{}'",
                    path.first()
                )));
            }
            _ => found = Some(path.first()),
        }
    }
    let Some(name) = found else {
        return Err(Error::failed_to_parse(
            "Cannot use an expression without a top-level field name in arrayFilters",
        ));
    };
    let valid = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_alphanumeric());
    if !valid {
        return Err(Error::bad_value(format!(
            "Error parsing array filter :: caused by :: The top-level field name must be an \
             alphanumeric string beginning with a lowercase letter, found '{name}'"
        )));
    }
    Ok(name.into())
}
