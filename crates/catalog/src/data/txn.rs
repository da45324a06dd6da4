//! A transaction over documents: the engine's, with metadata locks and counts beside it.
//!
//! Always true:
//! 1. A collection written to is locked shared until the transaction ends, so its metadata and
//!    indexes stay what they were at the first write.
//! 2. Counts and multikey marks are written in the same commit as the documents they describe.
//! 3. Where commits are held back, the commit of a statement, and of a client's transaction, returns when it is complete
//!    ([`crate::data::statements`]), any other one's when it is visible.

use crate::catalog::Catalog;
use crate::data::load::Loading;
use crate::data::metadata_lock::{METADATA_SLICE, WriterGuard};
use crate::data::names::{Names, Taken};
use crate::data::notes::TxnNotes;
use crate::data::statements::Ahead;
use crate::failure::from_engine;
use crate::metadata::collection::{Collection, Index};
use crate::metadata::counts::{self, Lent, Stripe};
use crate::metadata::namespace::Namespace;
use crate::metadata::records;
use bson::raw::RawBsonRef;
use engine::{
    Cursor, DictionaryId, Direction, Durability, KeyRange, OnConflict, Snapshot, TxnOptions, Value,
};
use errors::{Code, Error, Result};
use oplog::notes::Mark;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a transaction is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxnKind {
    /// One statement, repeated by the server where it conflicts; writes go over the newest state.
    Statement,
    /// A client's transaction over several statements, under snapshot isolation.
    Transaction,
}

/// What a transaction that lives on a connection sees of others: TokuMX's three levels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    /// The state at its start. A document that was changed since cannot be written.
    Mvcc,
    /// The newest state, under locks on all that it has read.
    Serializable,
    /// In each statement the newest committed state. It is asked for as `readUncommitted`: nobody
    /// is shown what is not committed, which that level allows and does not demand.
    ReadCommitted,
}

/// Whose transaction it is, and so how it meets others.
#[derive(Clone, Copy)]
enum Client {
    /// Nobody's: the server repeats it. It waits so long for locks.
    Statement(Duration),
    /// A session's. It waits so long for locks; what it waits for will mostly have been changed
    /// when it comes, which is a conflict.
    Session(Duration),
    /// A connection's. It waits so long for locks, and then says so.
    Connection(Isolation, Duration),
}

impl Client {
    fn lock_timeout(self) -> Duration {
        match self {
            Self::Statement(lock_timeout)
            | Self::Session(lock_timeout)
            | Self::Connection(_, lock_timeout) => lock_timeout,
        }
    }
}

/// A read-write transaction. Dropping it aborts it.
pub struct Txn {
    pub(crate) engine: engine::EngineTxn,
    pub(crate) catalog: Arc<Catalog>,
    client: Client,
    /// What it makes of the names, published by its commit.
    pub(crate) names: Names,
    pub(crate) taken: Vec<Taken>,
    touched: SmallVec<[Touched; 1]>,
    multikey: Vec<(Arc<Index>, u32)>,
    pub(crate) bypasses_validation: bool,
    /// What its commit tells of itself, where anybody listens.
    pub(crate) notes: Option<Box<TxnNotes>>,
    /// Of a statement where commits are held back.
    ahead: Option<Ahead>,
    /// Documents on their way past the log.
    pub(crate) load: Option<Box<Loading>>,
}

/// Stripes that a commit has borrowed, by the place of what was touched.
type LentStripes = SmallVec<[(usize, Lent); 1]>;

struct Touched {
    /// As this transaction has it now…
    collection: Arc<Collection>,
    /// …and as it was at the first write.
    base: Arc<Collection>,
    /// `None` where nobody else writes there.
    guard: Option<WriterGuard>,
    /// This transaction has dropped it.
    is_dropped: bool,
    documents: i64,
    bytes: i64,
    /// It has written the mark that documents are not counted.
    marks: bool,
}

/// A place to roll back to.
pub struct Savepoint {
    engine: engine::Savepoint,
    names: Names,
    counts: SmallVec<[(i64, i64); 1]>,
    notes: Option<Mark>,
    /// Documents of a load that had begun.
    loaded: Option<i64>,
}

impl Catalog {
    /// Starts a transaction whose snapshot is now.
    pub fn begin(self: &Arc<Self>, kind: TxnKind) -> Txn {
        let on_conflict = match kind {
            TxnKind::Statement => OnConflict::Latest,
            TxnKind::Transaction => OnConflict::Fail,
        };
        let lock_timeout = self.lock_timeout();
        let options = TxnOptions { on_conflict, lock_timeout: Some(lock_timeout) };
        if self.holds_back() && kind == TxnKind::Statement {
            return self.begin_ahead(options, lock_timeout);
        }
        Txn::over(self, Client::Statement(lock_timeout), || self.engine().begin(options))
    }

    /// Starts a statement that reads the newest complete state.
    #[cold]
    fn begin_ahead(self: &Arc<Self>, options: TxnOptions, lock_timeout: Duration) -> Txn {
        let begin = || self.engine().begin_newest(options);
        let mut txn = Txn::over(self, Client::Statement(lock_timeout), begin);
        txn.ahead = Some(Ahead::new(self, txn.engine.seen()));
        txn
    }

    /// Starts a session's transaction over several statements, on the state of `snapshot` or of
    /// now. It waits `lock_timeout` for locks: what it waits for will mostly have been changed when
    /// it comes, which is a conflict.
    pub fn begin_clients(
        self: &Arc<Self>,
        snapshot: Option<&Snapshot>,
        lock_timeout: Duration,
    ) -> Txn {
        let options =
            TxnOptions { on_conflict: OnConflict::Fail, lock_timeout: Some(lock_timeout) };
        let engine = match snapshot {
            Some(snapshot) => self.engine().begin_at(options, snapshot),
            None => self.engine().begin(options),
        };
        Txn::over(self, Client::Session(lock_timeout), || engine)
    }

    /// Starts a connection's transaction over several statements. It waits `lock_timeout` for
    /// locks.
    pub fn begin_bound(
        self: &Arc<Self>,
        isolation: Isolation,
        lock_timeout: Duration,
    ) -> Result<Txn> {
        let with = |on_conflict| TxnOptions { on_conflict, lock_timeout: Some(lock_timeout) };
        let engine = match isolation {
            Isolation::Mvcc => self.engine().begin(with(OnConflict::Fail)),
            Isolation::ReadCommitted => self.engine().begin(with(OnConflict::Latest)),
            Isolation::Serializable => {
                self.engine().begin_serializable(Some(lock_timeout)).map_err(from_engine)?
            }
        };
        Ok(Txn::over(self, Client::Connection(isolation, lock_timeout), || engine))
    }
}

impl Txn {
    /// The engine's transaction is begun in its place, as it is large.
    fn over(
        catalog: &Arc<Catalog>,
        client: Client,
        begin: impl FnOnce() -> engine::EngineTxn,
    ) -> Self {
        let is_clients = !matches!(client, Client::Statement(_));
        Self {
            engine: begin(),
            notes: catalog.tells().then(|| Box::new(TxnNotes::new(is_clients))),
            catalog: Arc::clone(catalog),
            client,
            names: Names::default(),
            taken: Vec::new(),
            touched: SmallVec::new(),
            multikey: Vec::new(),
            bypasses_validation: false,
            ahead: None,
            load: None,
        }
    }

    /// Whether this is a client's transaction over several statements.
    pub(crate) fn is_clients(&self) -> bool {
        !matches!(self.client, Client::Statement(_))
    }

    /// Whether it reads the newest complete state, whether readers see it yet or not.
    pub(crate) fn is_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    /// Whether it lives on a connection: TokuMX's kind.
    pub(crate) fn is_connections(&self) -> bool {
        matches!(self.client, Client::Connection(..))
    }

    /// Whether its statements see what was committed before them, not only before its begin.
    pub(crate) fn sees_each_state(&self) -> bool {
        matches!(self.client, Client::Connection(isolation, _) if isolation != Isolation::Mvcc)
    }

    /// Whether all of its statements read the state of its begin.
    pub(crate) fn reads_a_fixed_state(&self) -> bool {
        matches!(self.client, Client::Session(_) | Client::Connection(Isolation::Mvcc, _))
    }

    /// How long it waits for locks.
    pub(crate) fn lock_timeout(&self) -> Duration {
        self.client.lock_timeout()
    }

    /// A change of metadata is short where no transaction makes it: nobody's statement, which the
    /// server repeats, waits for its end also where no lock is waited for.
    fn least_lock_timeout(&self) -> Duration {
        if self.is_clients() { Duration::ZERO } else { METADATA_SLICE }
    }

    /// What a failed engine call means here. A session's transaction that found a lock taken has
    /// met a conflict.
    pub(crate) fn failed(&self, error: engine::Error) -> Error {
        use engine::Error as E;
        match (self.client, error) {
            (Client::Session(_), E::LockTimeout { .. } | E::Deadlock) => {
                from_engine(E::WriteConflict)
            }
            (_, other) => from_engine(other),
        }
    }

    /// A statement of a connection's transaction begins: below `mvcc` it sees the newest state.
    /// From now on locks are waited for `lock_timeout`.
    pub fn begin_statement(&mut self, lock_timeout: Duration) {
        let Client::Connection(isolation, _) = self.client else { return };
        self.client = Client::Connection(isolation, lock_timeout);
        self.engine.set_lock_timeout(lock_timeout);
        self.see_newest_state();
    }

    /// Sees the newest state from now on, where it is a connection's below `mvcc`: as its statement begins, and
    /// where the statement has to look again, as what it found was gone when it had locked it.
    pub fn see_newest_state(&mut self) {
        if matches!(self.client, Client::Connection(isolation, _) if isolation != Isolation::Mvcc) {
            self.engine.refresh_snapshot();
        }
    }

    /// The state it reads, without its own writes.
    pub fn snapshot(&self) -> Snapshot {
        self.engine.snapshot()
    }

    /// What it reads, with its own writes as of now; may outlive it.
    pub fn view(&self) -> Snapshot {
        self.engine.view()
    }

    /// Whether a commit has anything to do.
    pub fn has_writes(&self) -> bool {
        !self.touched.is_empty() || !self.names.is_empty()
    }

    /// Names this transaction in lock tables.
    pub fn id(&self) -> u64 {
        self.engine.id()
    }

    /// The catalog it works in.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Whether the writes from now on go past the collections' validators.
    pub fn bypass_validation(&mut self, bypass: bool) {
        self.bypasses_validation = bypass;
    }

    /// The collection, locked against metadata changes until this transaction ends; `None` where
    /// it does not exist. May wait for a change of its metadata to end.
    pub fn open_for_write(&mut self, namespace: &Namespace) -> Result<Option<Arc<Collection>>> {
        self.open(namespace, Self::enter)
    }

    /// As [`Txn::open_for_write`]; `None` also where a change of its metadata would have to be waited for.
    pub fn open_for_write_at_once(
        &mut self,
        namespace: &Namespace,
    ) -> Result<Option<Arc<Collection>>> {
        self.open(namespace, |txn, collection| {
            Ok(WriterGuard::try_enter(collection, txn.is_clients()))
        })
    }

    fn open(
        &mut self,
        namespace: &Namespace,
        enter: fn(&Self, &Collection) -> Result<Option<WriterGuard>>,
    ) -> Result<Option<Arc<Collection>>> {
        let is_it = |touched: &&Touched| {
            !touched.is_dropped
                && !touched.collection.is_partition()
                && touched.collection.namespace == *namespace
        };
        if let Some(touched) = self.touched.iter().find(is_it) {
            return Ok(Some(Arc::clone(&touched.collection)));
        }
        loop {
            let found_at = self.catalog.changes_of_names();
            let Some(found) = self.collection(namespace) else {
                if self.wait_for_name(namespace)? {
                    continue;
                }
                self.absent_for_write(namespace)?;
                return Ok(None);
            };
            if found.is_view() {
                return Err(Error::new(
                    Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
                    format!("Namespace {namespace} is a view, not a collection"),
                ));
            }
            let is_taken = self.taken.iter().any(|taken| taken.number == found.number);
            let guard = if is_taken { None } else { enter(self, &found)? };
            if guard.is_none() && !is_taken {
                return Ok(None);
            }
            if !is_taken && self.wait_for_name(namespace)? {
                continue;
            }
            let Some(collection) = self.still(namespace, found_at, &found) else { return Ok(None) };
            self.check_still_the_same(&collection)?;
            self.check_was_there(&collection)?;
            if collection.order.is_some() && self.is_connections() {
                // TokuMX's number for an insert; here no write can be undone there.
                return Err(Error::location(
                    17228,
                    "Cannot insert into a capped collection in a multi-statement transaction.",
                ));
            }
            if collection.order.is_some() && self.is_clients() {
                return Err(Error::new(
                    Code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                    format!(
                        "Collection '{namespace}' is a capped collection. Writes in transactions \
                         are not allowed on capped collections."
                    ),
                ));
            }
            if collection.number == found.number {
                self.touched.push(Touched {
                    collection: Arc::clone(&collection),
                    base: Arc::clone(&collection),
                    guard,
                    is_dropped: false,
                    documents: 0,
                    bytes: 0,
                    marks: false,
                });
                return Ok(Some(collection));
            }
        }
    }

    /// What stands under a name under which something was found, at a count of changes.
    fn still(
        &self,
        namespace: &Namespace,
        found_at: u64,
        found: &Arc<Collection>,
    ) -> Option<Arc<Collection>> {
        // Who changes a collection keeps writers out until the map is changed, and that is counted.
        if self.catalog.changes_of_names() == found_at {
            return Some(Arc::clone(found));
        }
        self.collection(namespace)
    }

    fn enter(&self, collection: &Collection) -> Result<Option<WriterGuard>> {
        if let Some(guard) = WriterGuard::try_enter(collection, self.is_clients()) {
            return Ok(Some(guard));
        }
        let lock_timeout = self.lock_timeout().max(self.least_lock_timeout());
        let clock = &*self.catalog.os().clock;
        let enter = || WriterGuard::enter(clock, collection, lock_timeout, self.is_clients());
        self.catalog.waiting(enter).map(Some)
    }

    /// Reads a value: this transaction's own write, else its snapshot's.
    pub fn get(&self, dictionary: DictionaryId, key: &[u8]) -> Result<Option<Value>> {
        self.engine.get(dictionary, key).map_err(|error| self.failed(error))
    }

    /// Locks a document by its record key, then reads its newest version.
    pub fn get_for_update(
        &mut self,
        collection: &Collection,
        record_key: &[u8],
    ) -> Result<Option<Value>> {
        let found = self.engine.get_for_update(collection.primary_of(record_key), record_key);
        found.map_err(|error| self.failed(error))
    }

    /// As [`Txn::get_for_update`], where nobody has to be waited for and this transaction, a statement's own, has
    /// written nothing to the collection. `None`, and nothing was done, where that is not so.
    pub fn get_for_update_at_once(
        &mut self,
        collection: &Collection,
        record_key: &[u8],
    ) -> Result<Option<Option<Value>>> {
        let primary = collection.primary_of(record_key);
        let found = self.engine.get_for_update_at_once(primary, record_key);
        found.map_err(|error| self.failed(error))
    }

    /// Where the document of this `_id` stands now, and its newest version, after it was not where a
    /// snapshot had it: another writer has moved it. Locks its entry in the index on `_id`, then it.
    pub fn get_moved_for_update(
        &mut self,
        collection: &Collection,
        id: RawBsonRef<'_>,
    ) -> Result<Option<(Vec<u8>, Value)>> {
        let Some(index) = collection.id_index() else { return Ok(None) };
        let id_key = collection.id_key(id)?;
        for place in 0..collection.partitions().len().max(1) {
            let entry = self.engine.get_for_update(collection.index_at(index, place), &id_key);
            let Some(entry) = entry.map_err(|error| self.failed(error))? else { continue };
            let record_key = index.keys.record_key_of(&id_key, &entry)?.to_vec();
            let newest = self.get_for_update(collection, &record_key)?;
            return Ok(newest.map(|newest| (record_key, newest)));
        }
        Ok(None)
    }

    /// As [`Txn::get`], of what is about to be changed.
    pub fn get_to_change(&self, dictionary: DictionaryId, key: &[u8]) -> Result<Option<Value>> {
        self.engine.get_to_change(dictionary, key).map_err(|error| self.failed(error))
    }

    /// Whether its reads lock.
    pub(crate) fn locks_reads(&self) -> bool {
        matches!(self.client, Client::Connection(Isolation::Serializable, _))
    }

    /// As [`Txn::cursor`], over what is about to be changed.
    pub fn cursor_to_change(
        &self,
        dictionary: DictionaryId,
        range: KeyRange,
        direction: Direction,
    ) -> Result<Cursor> {
        let cursor = self.engine.cursor_to_change(dictionary, range, direction);
        cursor.map_err(|error| self.failed(error))
    }

    /// A cursor over the snapshot and this transaction's writes as of now.
    pub fn cursor(
        &self,
        dictionary: DictionaryId,
        range: KeyRange,
        direction: Direction,
    ) -> Result<Cursor> {
        self.engine.cursor(dictionary, range, direction).map_err(|error| self.failed(error))
    }

    /// The commit timestamp whose state this transaction reads.
    pub fn snapshot_timestamp(&self) -> engine::Timestamp {
        self.engine.snapshot_timestamp()
    }

    /// How many documents of `collection` this transaction has added so far.
    pub(crate) fn documents_added(&self, collection: &Collection) -> i64 {
        self.touched
            .iter()
            .filter(|touched| touched.collection.owner_number() == collection.number)
            .map(|touched| touched.documents)
            .sum()
    }

    /// Marks a place to roll back to.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            engine: self.engine.savepoint(),
            names: self.names.clone(),
            counts: self.touched.iter().map(|t| (t.documents, t.bytes)).collect(),
            notes: self.notes.as_ref().map(|notes| notes.mark()),
            loaded: self.load.as_ref().map(|load| load.documents()),
        }
    }

    /// Undoes the writes since `savepoint`; locks and multikey marks stay.
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        self.engine.rollback_to(savepoint.engine);
        match (&mut self.load, savepoint.loaded) {
            // What has gone past the log since cannot be taken back by itself.
            (Some(load), Some(documents)) if load.documents() > documents => load.fail(),
            (Some(_), None) => self.load = None,
            _ => {}
        }
        if let (Some(notes), Some(mark)) = (&mut self.notes, savepoint.notes) {
            notes.truncate(mark);
        }
        if !self.names.is_untouched() {
            let gone = std::mem::replace(&mut self.names, savepoint.names);
            let names = &self.names;
            self.touched.retain(|touched| {
                let number = touched.base.owner_number();
                names.has_made(number) || !gone.has_made(number)
            });
            for touched in &mut self.touched {
                let number = touched.base.owner_number();
                if !touched.base.is_partition() {
                    let version = names.version_of(number).unwrap_or(&touched.base);
                    touched.collection = Arc::clone(version);
                }
                touched.is_dropped = names.has_dropped(number);
            }
        }
        let zero = std::iter::repeat((0, 0));
        for (touched, before) in
            self.touched.iter_mut().zip(savepoint.counts.into_iter().chain(zero))
        {
            (touched.documents, touched.bytes) = before;
            // Whether the mark was written before: the next one who needs it writes it.
            touched.marks = false;
        }
    }

    /// Makes the writes visible. Whoever acknowledges them as durable waits for the disk once, for
    /// all of a command's: [`Catalog::sync`]. Where commits are held back, a statement's writes are complete
    /// then, and seen by the statements after it; whoever tells of them waits until they are visible once, for
    /// all of a request's: [`Catalog::settle`].
    ///
    /// # Errors
    /// Nothing of it is visible.
    pub fn commit(mut self) -> Result<engine::Timestamp> {
        self.commit_in_place()
    }

    /// As [`Txn::commit`], of one that stays where it is, as it is large. It is of no use any more.
    ///
    /// # Errors
    /// Nothing of it is visible.
    pub fn commit_in_place(&mut self) -> Result<engine::Timestamp> {
        let lent = self.prepare()?;
        if self.catalog.holds_back() {
            return self.commit_held_back(&lent, false);
        }
        let mut published = false;
        let committed = self.engine.commit_in_place(Durability::Buffered, |timestamp| {
            published = true;
            if !self.names.is_untouched() {
                self.catalog.namespaces.apply(self.names.change(timestamp), timestamp);
            }
            publish_counts(&self.touched, &lent);
            publish_marks(&self.multikey, &self.names);
        });
        if published {
            if changes_accounts(&self.touched) {
                self.catalog.accounts_changed();
            }
            for touched in self.touched.iter().filter(|touched| touched.collection.order.is_some())
            {
                touched.collection.shared.arrivals.tell();
            }
        } else {
            give_back(&self.touched, &lent);
        }
        Ok(committed.map_err(from_engine)?.visible())
    }

    /// As [`Txn::commit`]; returns when the writes are visible in any case.
    ///
    /// # Errors
    /// Where commits are held back, as [`Catalog::settle`].
    pub fn commit_visible(mut self) -> Result<engine::Timestamp> {
        if !self.catalog.holds_back() {
            return self.commit();
        }
        let lent = self.prepare()?;
        self.commit_held_back(&lent, true)
    }

    /// Writes what belongs to the documents: marks, notes, counts. Gives the stripes it has borrowed.
    fn prepare(&mut self) -> Result<LentStripes> {
        self.write_multikey_marks()?;
        if let Some(mut notes) = self.notes.take() {
            let (wall_ms, is_clients) = (self.catalog.os().clock.wall_ms(), self.is_clients());
            notes.hand_over(&mut self.engine, wall_ms, is_clients)?;
        }
        let mut lent = LentStripes::new();
        for (at, touched) in self.touched.iter().enumerate() {
            if touched.is_dropped || (touched.documents, touched.bytes) == (0, 0) {
                continue;
            }
            let borrowed = touched.collection.shared.counts.borrow();
            lent.push((at, borrowed));
            let stripe = borrowed.stripe;
            // Whoever borrowed the stripe is its only writer.
            let written = self.engine.write_covered(
                counts::DICTIONARY,
                &Stripe::key(touched.collection.number, stripe.number),
                Some(&Stripe::value(
                    stripe.documents + touched.documents,
                    stripe.bytes + touched.bytes,
                )),
            );
            if let Err(error) = written {
                give_back(&self.touched, &lent);
                return Err(from_engine(error));
            }
        }
        Ok(lent)
    }

    /// As [`Txn::commit`], where commits are held back. Counts and marks are those of the newest complete
    /// state, over which the next commit writes its own; who reads finds names, and is told of arrivals, when they are
    /// visible.
    #[cold]
    fn commit_held_back(
        &mut self,
        lent: &[(usize, Lent)],
        is_waited_for: bool,
    ) -> Result<engine::Timestamp> {
        let mut written = false;
        let submitted = self.engine.submit_in_place(|| {
            written = true;
            publish_counts(&self.touched, lent);
            publish_marks(&self.multikey, &self.names);
        });
        if !written {
            give_back(&self.touched, lent);
        }
        let seen = submitted.map_err(from_engine)?;
        let engine = self.catalog.engine();
        if let Some(ahead) = &mut self.ahead {
            ahead.committed(seen);
        }
        for touched in self.touched.iter().filter(|touched| touched.collection.order.is_some()) {
            let shared = Arc::clone(&touched.collection.shared);
            engine.when_visible(seen, move || shared.arrivals.tell());
        }
        let mut change = self.names.change(seen.timestamp());
        change.changes_accounts = changes_accounts(&self.touched);
        if change.changes_accounts || !change.names.is_empty() {
            self.catalog.push_names(seen, change)?;
        }
        if is_waited_for || !(self.is_ahead() || self.is_clients()) {
            engine.wait_visible(seen).map_err(from_engine)?;
        } else if self.is_clients() {
            engine.remember(seen);
        }
        Ok(seen.timestamp())
    }

    /// Forgets the writes and opens the locks.
    pub fn abort(self) {
        self.engine.abort();
    }

    /// Puts a newer version of a collection of its own in the place of the one it has written to.
    pub(crate) fn replace_touched(&mut self, collection: &Arc<Collection>) {
        if let Some(touched) = self.find_touched(collection.number) {
            touched.collection = Arc::clone(collection);
        }
    }

    /// A collection that this transaction has dropped, if it has written there.
    pub(crate) fn forget_touched(&mut self, number: u64) {
        let of_it = |touched: &&mut Touched| touched.base.owner_number() == number;
        for touched in self.touched.iter_mut().filter(of_it) {
            touched.is_dropped = true;
        }
    }

    /// Gives its share of a collection's metadata back; says whether it had one.
    pub(crate) fn release(&mut self, number: u64) -> bool {
        self.find_touched(number).is_some_and(|touched| touched.guard.take().is_some())
    }

    /// Takes the share again that [`Txn::release`] gave back; false where somebody else was
    /// quicker.
    pub(crate) fn reacquire(&mut self, number: u64) -> bool {
        // Whoever is before it is done soon, or changes the collection.
        let lock_timeout = self.lock_timeout().max(METADATA_SLICE * 10);
        let catalog = Arc::clone(&self.catalog);
        let Some(touched) = self.find_touched(number) else { return false };
        let clock = &*catalog.os().clock;
        touched.guard = WriterGuard::enter(clock, &touched.base, lock_timeout, true).ok();
        let current = catalog.newest(&touched.base.namespace);
        touched.guard.is_some()
            && current.is_some_and(|current| Arc::ptr_eq(&current, &touched.base))
    }

    fn find_touched(&mut self, number: u64) -> Option<&mut Touched> {
        self.touched.iter_mut().find(|touched| touched.base.number == number)
    }

    /// How many documents it has added to a store, less those that it has removed.
    pub(crate) fn own_documents(&self, number: u64) -> i64 {
        let of_store = |touched: &&Touched| touched.collection.number == number;
        self.touched.iter().filter(of_store).map(|touched| touched.documents).sum()
    }

    /// A document of a collection that [`Txn::open_for_write`] returned may be made without being counted.
    pub(crate) fn note_uncounted(&mut self, collection: &Arc<Collection>) -> Result<()> {
        if !collection.shared.counts.note_uncounted() {
            return Ok(());
        }
        let key = Stripe::mark_key(collection.number);
        let mark = Some(&Stripe::value(0, 0)[..]);
        let written = self.engine.write_covered(counts::DICTIONARY, &key, mark);
        written.map_err(|error| self.failed(error))?;
        if let Some(touched) = self.find_touched(collection.number) {
            touched.marks = true;
        }
        Ok(())
    }

    /// Adds to the counts of a store of a collection that [`Txn::open_for_write`] returned.
    pub(crate) fn count(&mut self, store: &Arc<Collection>, documents: i64, bytes: i64) {
        let known =
            self.touched.iter_mut().find(|touched| touched.collection.number == store.number);
        match known {
            Some(touched) => {
                touched.documents += documents;
                touched.bytes += bytes;
            }
            // The lock is that of its collection, which was touched before.
            None if store.is_partition() => self.touched.push(Touched {
                collection: Arc::clone(store),
                base: Arc::clone(store),
                guard: None,
                is_dropped: false,
                documents,
                bytes,
                marks: false,
            }),
            None => {}
        }
    }

    /// Notes that a document has arrays in the parts of `mask`.
    pub(crate) fn note_multikey(&mut self, index: &Arc<Index>, mask: u32) {
        if mask == 0 || mask & !index.state.persisted.load(Ordering::Acquire) == 0 {
            return;
        }
        index.state.observed.fetch_or(mask, Ordering::AcqRel);
        match self.multikey.iter_mut().find(|(known, _)| known.logical == index.logical) {
            Some((_, known)) => *known |= mask,
            None => self.multikey.push((Arc::clone(index), mask)),
        }
    }

    fn write_multikey_marks(&mut self) -> Result<()> {
        for (index, mask) in &self.multikey {
            if self.names.has_dropped_index(index.logical) {
                continue;
            }
            let key = records::multikey_key(index.logical);
            let before = self
                .engine
                .get_for_update(DictionaryId::ROOT, &key)
                .map_err(from_engine)?
                .map_or(0, |value| records::read_multikey(&value));
            let mask = before | mask;
            self.engine.put(DictionaryId::ROOT, &key, &mask.to_le_bytes()).map_err(from_engine)?;
        }
        Ok(())
    }
}

/// Takes back what a commit has lent that has not come about.
fn give_back(touched: &[Touched], lent: &[(usize, Lent)]) {
    for (at, lent) in lent {
        touched[*at].collection.shared.counts.give_back(*lent);
    }
}

/// Whether users or roles are among what was written to.
fn changes_accounts(touched: &[Touched]) -> bool {
    touched.iter().any(|touched| touched.collection.namespace.holds_accounts())
}

fn publish_counts(touched: &[Touched], lent: &[(usize, Lent)]) {
    for touched in touched.iter().filter(|touched| touched.marks && !touched.is_dropped) {
        touched.collection.shared.counts.mark();
    }
    for (at, lent) in lent {
        let Touched { collection, documents, bytes, .. } = &touched[*at];
        collection.shared.counts.publish(*lent, *documents, *bytes);
    }
}

fn publish_marks(marks: &[(Arc<Index>, u32)], names: &Names) {
    for (index, mask) in marks {
        if !names.has_dropped_index(index.logical) {
            index.state.persisted.fetch_or(*mask, Ordering::AcqRel);
        }
    }
}
