//! Which indexes an operator allows for a shape of query.

use bson::Document;
use catalog::Index;

/// The indexes that an operator allows for a shape of query.
#[derive(Debug)]
pub(crate) struct IndexFilter {
    pub(crate) query: Document,
    pub(crate) sort: Document,
    pub(crate) projection: Document,
    pub(crate) collation: Option<Document>,
    pub(crate) names: Vec<String>,
    pub(crate) keys: Vec<Document>,
}

impl IndexFilter {
    /// Whether an index is one of them.
    pub(crate) fn holds(&self, index: &Index) -> bool {
        let spec = index.spec();
        self.names.contains(&spec.name)
            || Document::try_from(spec.key.as_ref()).is_ok_and(|key| self.keys.contains(&key))
    }

    /// Whether the index on `_id` is one of them.
    pub(crate) fn holds_id(&self) -> bool {
        self.names.iter().any(|name| name == "_id_")
            || self.keys.iter().any(|key| key.len() == 1 && key.contains_key("_id"))
    }
}
