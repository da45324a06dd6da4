//! The stored version that data is to stay compatible with, in MongoDB's words.

use crate::versions::FEATURE_VERSION;
use bson::{RawDocumentBuf, doc};
use catalog::{Catalog, Namespace};
use errors::Result;
use std::sync::Arc;

/// The versions that MongoDB's release of this version knows, the oldest first.
pub const FEATURE_VERSIONS: [&str; 3] = ["7.0", "7.3", FEATURE_VERSION];

fn namespace() -> Result<Namespace> {
    Namespace::new("admin", "system.version")
}

/// The stored version; this release's where none is.
pub(crate) fn load(catalog: &Catalog) -> Result<&'static str> {
    for stored in catalog.system_documents(&namespace()?)? {
        if matches!(stored.get_str("_id"), Ok("featureCompatibilityVersion"))
            && let Ok(version) = stored.get_str("version")
            && let Some(known) = FEATURE_VERSIONS.iter().find(|known| **known == version)
        {
            return Ok(known);
        }
    }
    Ok(FEATURE_VERSION)
}

/// Stores a version.
pub(crate) fn store(catalog: &Arc<Catalog>, version: &str) -> Result<()> {
    let document = doc! { "_id": "featureCompatibilityVersion", "version": version };
    let document = RawDocumentBuf::try_from(&document)?;
    catalog.put_system_document(&namespace()?, &document)
}
