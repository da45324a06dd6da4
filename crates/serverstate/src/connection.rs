//! One client connection, as commands see it.
//!
//! Always true: it runs one request at a time; what it holds between requests is small.

use crate::last_write::LastWrites;
use crate::security::Login;
use auth::RoleName;
use bson::RawDocumentBuf;
use catalog::{Namespace, Savepoint, Txn};
use dispatch::ConnectionInfo;
use engine::LockWait;
use errors::Result;
use limits::{Account, Limits};
use os::{Clock, Os};
use parking_lot::Mutex;
use query::Interrupt;
use session::{OperationSlot, ParkedOperation};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Whose word a connection carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Somebody's who connected, wherever from.
    Client,
    /// The server's own, before it listens: it may set what is fixed afterwards.
    Startup,
}

/// A connection's transaction.
pub struct Bound {
    /// The transaction of the collections.
    pub txn: Txn,
}

/// A connection's transaction in the hands of a request, and where the request began.
pub struct Running {
    /// The transaction.
    pub bound: Box<Bound>,
    /// Where a command that fails goes back to.
    pub savepoint: Option<Savepoint>,
}

/// A request that waits for a lock on no thread, until it is run again. Dropping it gives the request up.
pub struct LockWaiting {
    /// Its place in the queue.
    pub wait: LockWait,
    /// What shows and kills it meanwhile.
    pub operation: ParkedOperation,
    /// When it came.
    pub started: Duration,
}

/// Who a certificate says that a client is.
pub struct ClientCertificate {
    /// Its subject.
    pub subject: String,
    /// It is one of those that the members of the set have.
    pub of_member: bool,
    /// The roles that its authority has written into it.
    pub roles: Vec<RoleName>,
}

/// The namespace that requests named last. The next one mostly names it again: it is not checked again then, and shares
/// the text.
#[derive(Default)]
pub struct LastNamespace(Mutex<Option<Namespace>>);

impl LastNamespace {
    /// As [`Namespace::new`].
    ///
    /// # Errors
    /// `InvalidNamespace`.
    pub fn make(&self, database: &str, collection: &str) -> Result<Namespace> {
        let mut last = self.0.lock();
        match &*last {
            Some(known) if known.is(database, collection) => Ok(known.clone()),
            _ => Ok(last.insert(Namespace::new(database, collection)?).clone()),
        }
    }
}

/// With so many failed logins a connection ends. Drivers end theirs with the first: more is guessing, which has to
/// begin a connection, and so be counted, again and again.
const MOST_FAILED_LOGINS: u8 = 3;

/// A client connection.
pub struct Connection {
    this: Weak<Self>,
    pub(crate) id: u64,
    pub(crate) info: ConnectionInfo,
    /// Whose word it carries.
    pub origin: Origin,
    /// Who is logged in, and who is about to be.
    pub login: Arc<Mutex<Login>>,
    /// Where its running operation is known by, and told to stop.
    pub operation: Arc<OperationSlot>,
    /// The same slot as running queries see it.
    pub interrupt: Arc<dyn Interrupt>,
    /// And as loops over its data do, found through the thread; with the account of what they hold.
    pub limits: Arc<Limits>,
    /// And as a client's code does.
    pub script_host: Arc<dyn script::Host>,
    /// How many logins have failed on it.
    failed_logins: AtomicU8,
    /// What the audit log knows it by; made when it is first asked for.
    audit_id: OnceLock<[u8; 16]>,
    /// What the client said about itself in its first `hello`.
    pub client: OnceLock<RawDocumentBuf>,
    /// Its certificate, where it speaks TLS and the certificate's chain was verified.
    pub certificate: OnceLock<ClientCertificate>,
    /// Bit `i` is set where hello agreed on the compressor of number `i`.
    pub compressors: AtomicU8,
    /// What became of the newest write; there once it wrote in the old way.
    pub last_write: LastWrites,
    /// The transaction that `beginTransaction` began; not here while a request works in it.
    pub bound: Mutex<Option<Box<Bound>>>,
    /// The engine's number of that transaction; 0 without one.
    pub txn_id: AtomicU64,
    /// How long its requests wait for locks, in milliseconds; below 0 as long as everybody's.
    pub lock_timeout_ms: AtomicI64,
    /// What `setWriteLockYielding` was told last.
    pub yields_write_lock: AtomicBool,
    /// The cursor that ends with it, for nobody else will ask for that: its next batch follows the last reply by
    /// itself, or a request waits for it. 0 without one.
    pub own_cursor: AtomicI64,
    /// The namespace that its requests named last.
    pub last_namespace: LastNamespace,
    /// Its request that waits for a lock.
    pub lock_waiting: Mutex<Option<Box<LockWaiting>>>,
}

impl Connection {
    pub(crate) fn open(
        id: u64,
        info: ConnectionInfo,
        origin: Origin,
        interrupt: Arc<OperationInterrupt>,
        script_host: Arc<dyn script::Host>,
        login: Arc<Mutex<Login>>,
        memory: Arc<Account>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            id,
            info,
            origin,
            login,
            operation: Arc::clone(&interrupt.operation),
            script_host,
            limits: Limits::new(Arc::clone(&interrupt) as _, memory),
            interrupt,
            failed_logins: AtomicU8::new(0),
            audit_id: OnceLock::new(),
            client: OnceLock::new(),
            certificate: OnceLock::new(),
            compressors: AtomicU8::new(0),
            last_write: OnceLock::new(),
            bound: Mutex::default(),
            txn_id: AtomicU64::new(0),
            lock_timeout_ms: AtomicI64::new(-1),
            yields_write_lock: AtomicBool::new(false),
            own_cursor: AtomicI64::new(0),
            last_namespace: LastNamespace::default(),
            lock_waiting: Mutex::default(),
        })
    }

    /// The connection, for what goes on beside a request.
    pub fn this(&self) -> Arc<Self> {
        self.this.upgrade().expect("whoever borrows it has it from its owner")
    }

    /// Counts a login that has failed; says whether it was one too many.
    pub fn fails_login(&self) -> bool {
        let now = self.failed_logins.load(Ordering::Relaxed).saturating_add(1);
        // One request of a connection runs at a time.
        self.failed_logins.store(now, Ordering::Relaxed);
        now >= MOST_FAILED_LOGINS
    }

    /// What the audit log knows it by: a random UUID.
    pub fn audit_id(&self, os: &Os) -> [u8; 16] {
        *self.audit_id.get_or_init(|| {
            let mut id = [0; 16];
            os.entropy.fill(&mut id);
            id[6] = id[6] & 0x0f | 0x40;
            id[8] = id[8] & 0x3f | 0x80;
            id
        })
    }

    /// Its number: `conn12` in the log, `connectionId` in `hello`.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether a transaction is bound to it, and no request works in that.
    pub fn has_bound(&self) -> bool {
        // Most connections never have one, and each request asks.
        self.txn_id.load(Ordering::Relaxed) != 0 && self.bound.lock().is_some()
    }

    /// Where it comes from.
    pub fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    /// Whether hello agreed on the compressor of this number. The number 0, which packs nothing, needs
    /// no agreement.
    pub fn agreed(&self, compressor: u8) -> bool {
        let agreed = self.compressors.load(Ordering::Relaxed) | 1;
        1_u8.checked_shl(u32::from(compressor)).is_some_and(|bit| agreed & bit != 0)
    }

    /// What the client said about itself (`driver`, `os`, `application`), once it did.
    pub fn client_metadata(&self) -> Option<&RawDocumentBuf> {
        self.client.get()
    }
}

/// Stops queries where their operation was killed or ran out of time.
pub(crate) struct OperationInterrupt {
    pub(crate) operation: Arc<OperationSlot>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Interrupt for OperationInterrupt {
    fn check(&self) -> Result<()> {
        self.operation.check(|| self.clock.monotonic())
    }

    fn works_in(&self, txn: u64) {
        self.operation.set_txn(txn);
    }
}

impl limits::Interrupt for OperationInterrupt {
    fn check(&self) -> Result<()> {
        Interrupt::check(self)
    }

    fn check_wait(&self) -> Result<()> {
        self.operation.check_wait(|| self.clock.monotonic())
    }

    fn note_progress(&self, message: &str, done: u64, total: u64) {
        self.operation.set_progress(message, done, total);
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("id", &self.id)
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}
