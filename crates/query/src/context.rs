//! What every operation is given beside its arguments.

use crate::fast_updates::FastUpdates;
use crate::permit::{Opening, Permit};
use crate::request::FindAndModifyResult;
use bson::raw::{RawArrayBuf, RawBson};
use catalog::{Catalog, Collection, Names, Namespace, Reader, Txn};
use engine::Snapshot;
use errors::{Code, Error, Result};
use std::sync::Arc;

/// Asked now and then whether the operation should go on.
pub trait Interrupt: Send + Sync {
    /// `Ok` to go on; the error the client gets where the operation was killed, its time is up
    /// (`MaxTimeMSExpired`) or the server stops.
    fn check(&self) -> Result<()>;

    /// Told in which of the engine's transactions the operation works now.
    fn works_in(&self, _txn: u64) {}
}

/// Never interrupts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uninterrupted;

impl Interrupt for Uninterrupted {
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// What a statement of a retryable write did.
#[derive(Clone, Debug)]
pub enum StatementOutcome {
    /// So many documents of the batch were inserted, from this one on.
    Inserted(u32),
    /// An update that matched, or upserted.
    Updated {
        /// Documents matched, and upserted.
        n: u64,
        /// Documents that changed.
        modified: u64,
        /// The `_id` of a new document.
        upserted: Option<RawBson>,
    },
    /// A delete that removed so many documents.
    Deleted(u64),
    /// A findAndModify that found or made a document.
    FoundAndModified(FindAndModifyResult),
}

/// Remembers what statements of a retryable write did, in the transactions that do it. A statement
/// is named by its place in the batch.
pub trait StatementLog: Send {
    /// What the statement did when it was sent before.
    fn done(&mut self, statement: usize) -> Result<Option<StatementOutcome>>;

    /// Writes what it does, as part of the transaction that does it.
    fn write(&mut self, txn: &mut Txn, statement: usize, outcome: &StatementOutcome) -> Result<()>;

    /// The transaction that was written to last ended.
    fn ended(&mut self, committed: bool);
}

/// What an operation runs in.
pub struct OpContext<'a> {
    /// The collections.
    pub catalog: &'a Arc<Catalog>,
    /// The client's transaction; `None` makes every statement its own.
    pub txn: Option<&'a mut Txn>,
    /// The state to read, where it is not that of now or of `txn`.
    pub snapshot: Option<Snapshot>,
    /// What stands under names for whoever asks alone: what a transaction has made of them.
    pub own: Names,
    /// The memory of a retryable write.
    pub statements: Option<&'a mut dyn StatementLog>,
    /// The place in the client's batch of the request's first statement.
    pub first_statement: usize,
    /// Asked about every hundred documents.
    pub interrupt: Arc<dyn Interrupt>,
    /// The client's `comment`.
    pub comment: Option<RawBson>,
    /// `bypassDocumentValidation`: writes go past the collections' validators.
    pub bypass_validation: bool,
    /// `bypassEmptyTsReplacement`: empty timestamps are stored as they come.
    pub keep_empty_timestamps: bool,
    /// `$$CLUSTER_TIME`, on a member of a replica set.
    pub cluster_time: Option<bson::Timestamp>,
    /// `$$USER_ROLES`: the roles of the user who asks; none for the server's own work.
    pub user_roles: Option<Arc<RawArrayBuf>>,
    /// What is done as a whole outside a transaction.
    pub atomicity: Atomicity,
    /// What it may open; the server's own work has none.
    pub permit: Option<&'a dyn Permit>,
    /// Whether updates may be fast ones; the server's own work makes none.
    pub fast_updates: Option<&'a FastUpdates>,
}

/// What a write outside a transaction does as a whole or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Atomicity {
    /// Each update and delete statement; of an insert each document.
    #[default]
    Statement,
    /// All of an insert: it ends at the first document that fails, and none is there then.
    Insert,
    /// Only so many documents at a time: for the server's own upkeep.
    Part,
}

impl<'a> OpContext<'a> {
    /// The usual context: no transaction.
    pub fn new(catalog: &'a Arc<Catalog>, interrupt: Arc<dyn Interrupt>) -> Self {
        Self {
            catalog,
            txn: None,
            snapshot: None,
            own: Names::default(),
            statements: None,
            first_statement: 0,
            interrupt,
            comment: None,
            bypass_validation: false,
            keep_empty_timestamps: false,
            cluster_time: None,
            user_roles: None,
            atomicity: Atomicity::default(),
            permit: None,
            fast_updates: None,
        }
    }

    /// Refuses a namespace that was not judged.
    pub(crate) fn check_permit(&self, ns: &Namespace, opening: Opening) -> Result<()> {
        self.permit.map_or(Ok(()), |permit| permit.check(ns, opening))
    }

    /// The collection or view of this name, to be read. May wait where the reader is serializable.
    pub(crate) fn collection(&self, ns: &Namespace) -> Result<Option<Arc<Collection>>> {
        self.collection_for(ns, Opening::Read)
    }

    /// The same for another purpose. Who writes finds what is complete, whether readers see it yet or not.
    pub(crate) fn collection_for(
        &self,
        ns: &Namespace,
        opening: Opening,
    ) -> Result<Option<Arc<Collection>>> {
        self.check_permit(ns, opening)?;
        if opening == Opening::Write && self.reads_newest() && self.own.find(ns).is_none() {
            let found = self.catalog.newest(ns);
            if found.is_none() {
                self.refuse_buckets(ns)?;
            }
            return Ok(found);
        }
        self.find_collection(ns)
    }

    /// What a write that is only explained would write to.
    pub(crate) fn collection_to_explain(&self, ns: &Namespace) -> Result<Option<Arc<Collection>>> {
        self.check_permit(ns, Opening::Write)?;
        self.find_collection(ns)
    }

    fn find_collection(&self, ns: &Namespace) -> Result<Option<Arc<Collection>>> {
        let found = match (&self.txn, self.own.find(ns), &self.snapshot) {
            (Some(txn), ..) => txn.collection_to_read(ns)?,
            (None, Some(own), _) => own.cloned(),
            (None, None, Some(state)) => self.catalog.collection_in(ns, state)?,
            (None, None, None) => self.catalog.collection(ns),
        };
        if found.is_none() {
            self.refuse_buckets(ns)?;
            match (&self.txn, &self.snapshot) {
                (Some(txn), _) => Reader::Txn(txn).hold_absence(ns)?,
                (None, Some(view)) => Reader::View(view).hold_absence(ns)?,
                (None, None) => {}
            }
        }
        Ok(found)
    }

    /// Tools that copy measurements ask for their buckets: an empty answer would lose them all.
    fn refuse_buckets(&self, ns: &Namespace) -> Result<()> {
        let Some(name) = ns.collection().strip_prefix("system.buckets.") else { return Ok(()) };
        let series = Namespace::new(ns.database(), name)?;
        match self.catalog.collection(&series) {
            Some(collection) if collection.options().time_series.is_some() => Err(Error::new(
                Code::NOT_IMPLEMENTED,
                format!(
                    "{series} keeps its measurements as documents, not in buckets: read {series}"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Whether it reads the newest state, whatever that is: no transaction's, and none that the
    /// client named.
    pub(crate) fn reads_newest(&self) -> bool {
        self.txn.is_none() && self.snapshot.is_none()
    }

    /// Whether a state that was taken now has the collection as it was looked up before. That of a fixed
    /// state was looked up in it.
    pub(crate) fn fits(&self, collection: &Collection, state: &Snapshot) -> bool {
        !self.reads_newest() || collection.is_whole_in(state)
    }

    /// What a read sees. Take it after looking up collections.
    pub(crate) fn read_state(&self) -> Snapshot {
        match (&self.txn, &self.snapshot) {
            (Some(txn), _) => txn.view(),
            (None, Some(snapshot)) => snapshot.clone(),
            (None, None) => self.catalog.snapshot(),
        }
    }

    /// What a write finds its documents in; a transaction's own writes are laid over it by the
    /// transaction itself.
    pub(crate) fn write_state(&self) -> Snapshot {
        self.txn.as_ref().map_or_else(|| self.catalog.statement_snapshot(), |txn| txn.snapshot())
    }

    /// Before a write looks for its document again, as another writer was faster: in the same state it
    /// would find the same again, and lose it again, for ever.
    pub(crate) fn look_again(&mut self) -> Result<()> {
        self.interrupt.check()?;
        if let Some(txn) = &mut self.txn {
            txn.see_newest_state();
        }
        Ok(())
    }

    /// What a statement did when it was sent before.
    pub(crate) fn done(&mut self, statement: usize) -> Result<Option<StatementOutcome>> {
        let statement = self.first_statement + statement;
        self.statements.as_deref_mut().map_or(Ok(None), |log| log.done(statement))
    }
}
