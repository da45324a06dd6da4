//! The stored write concern that holds where a client names none.

use super::Replication;
use bson::{Bson, Document, RawBsonRef, RawDocumentBuf, doc};
use catalog::{Catalog, Namespace};
use errors::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn namespace() -> Result<Namespace> {
    Namespace::new("config", "settings")
}

/// Reads the stored default.
pub(super) fn load(replication: &Replication, catalog: &Arc<Catalog>) -> Result<()> {
    if let Some(stored) = catalog.system_document(&namespace()?)?
        && let Ok(concern) = stored.get_document("defaultWriteConcern")
    {
        let majority = matches!(concern.get("w"), Ok(Some(RawBsonRef::String(_))));
        replication.default_is_majority.store(majority, Ordering::Release);
    }
    Ok(())
}

impl Replication {
    /// Stores whether a write waits for a majority where its client names no concern, then lets it
    /// hold.
    pub fn store_default_concern(&self, catalog: &Arc<Catalog>, majority: bool) -> Result<()> {
        let w = if majority { Bson::from("majority") } else { Bson::from(1) };
        let stored: Document = doc! {
            "_id": "ReadWriteConcernDefaults",
            "defaultWriteConcern": { "w": w },
        };
        catalog.put_system_document(&namespace()?, &RawDocumentBuf::try_from(&stored)?)?;
        self.default_is_majority.store(majority, Ordering::Release);
        Ok(())
    }
}
