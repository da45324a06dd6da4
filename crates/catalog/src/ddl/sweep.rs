//! What a crash may leave in the catalog: collections that `$out` was filling.

use crate::catalog::Catalog;
use errors::Result;

/// Names of collections that exist only while a command runs.
pub const TEMPORARY_PREFIX: &str = "tmp.agg_out.";

impl Catalog {
    /// Drops the temporary collections of commands that never ended.
    pub(crate) fn sweep_temporary(&self) -> Result<()> {
        let left: Vec<_> = self
            .namespaces
            .read()
            .values()
            .filter(|collection| collection.namespace.collection().starts_with(TEMPORARY_PREFIX))
            .map(|collection| collection.namespace.clone())
            .collect();
        left.iter().try_for_each(|namespace| self.drop_collection(namespace, &|| Ok(())).map(drop))
    }
}
