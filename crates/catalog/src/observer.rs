//! The interface for what must see every change: replication, change streams, triggers.

use crate::data::txn::Txn;
use crate::metadata::collection::Collection;
use bson::raw::RawDocument;
use errors::Result;

/// Told of every change to a document inside the transaction that makes it. It may write through
/// the transaction; an error fails the change.
pub trait OpObserver: Send + Sync {
    /// A document was inserted.
    fn inserted(
        &self,
        txn: &mut Txn,
        collection: &Collection,
        document: &RawDocument,
    ) -> Result<()>;

    /// A document was replaced by a newer version.
    fn updated(
        &self,
        txn: &mut Txn,
        collection: &Collection,
        old: &RawDocument,
        new: &RawDocument,
    ) -> Result<()>;

    /// A document was deleted.
    fn deleted(&self, txn: &mut Txn, collection: &Collection, document: &RawDocument)
    -> Result<()>;
}
