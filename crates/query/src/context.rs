//! What every operation is given beside its arguments.

use bson::raw::RawBson;
use catalog::{Catalog, Durability, Txn};
use errors::Result;
use std::sync::Arc;

/// Asked now and then whether the operation should go on.
pub trait Interrupt: Send + Sync {
    /// `Ok` to go on; the error the client gets where the operation was killed, its time is up
    /// (`MaxTimeMSExpired`) or the server stops.
    fn check(&self) -> Result<()>;
}

/// Never interrupts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uninterrupted;

impl Interrupt for Uninterrupted {
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// What an operation runs in.
pub struct OpContext<'a> {
    /// The collections.
    pub catalog: &'a Arc<Catalog>,
    /// The client's transaction; `None` makes every statement its own.
    pub txn: Option<&'a mut Txn>,
    /// Asked about every hundred documents.
    pub interrupt: Arc<dyn Interrupt>,
    /// When a write may return.
    pub durability: Durability,
    /// The client's `comment`.
    pub comment: Option<RawBson>,
    /// `bypassDocumentValidation`: writes go past the collections' validators.
    pub bypass_validation: bool,
}

impl<'a> OpContext<'a> {
    /// The usual context: no transaction, buffered durability.
    pub fn new(catalog: &'a Arc<Catalog>, interrupt: Arc<dyn Interrupt>) -> Self {
        Self {
            catalog,
            txn: None,
            interrupt,
            durability: Durability::Buffered,
            comment: None,
            bypass_validation: false,
        }
    }
}
