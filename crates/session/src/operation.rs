//! Running operations: what `currentOp` shows and `killOp` stops.
//!
//! Each connection owns one [`OperationSlot`] and runs one request at a time in it, so that starting
//! an operation allocates nothing: a number, two times and a copy of the command's bytes into a
//! buffer that is kept.
//!
//! What is always true:
//! 1. A kill names an operation number and never reaches the next operation of the connection.
//! 2. [`OperationSlot::check`] is a few loads; it takes no lock.
//! 3. An operation that is parked ([`OperationGuard::park`]) runs on, for whoever lists or kills it, until what was
//!    parked is dropped; a kill calls whoever goes on with it.

use crate::{SessionId, UserDigest};
use errors::{Code, Error, Result};
use os::Call;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

/// Longest copy of a command that `currentOp` keeps; the rest of it is not shown.
const MAX_COMMAND_BYTES: usize = 4096;

/// What a connection keeps of the buffer for that between operations.
const KEPT_COMMAND_BYTES: usize = 512;

const NONE: u64 = u64::MAX;

/// The operation slot of one connection.
pub struct OperationSlot {
    connection: u64,
    /// Number of the running operation; 0 between operations.
    number: AtomicU64,
    /// Nanoseconds of server time at which the operation must stop; [`NONE`] without a limit.
    deadline: AtomicU64,
    /// The operation that was told to stop.
    killed: AtomicU64,
    kill_code: AtomicI32,
    /// The engine's number of the transaction it works in; 0 without one.
    txn: AtomicU64,
    /// It has done its work, and waits until as many members have it as was asked for.
    awaits_members: AtomicBool,
    /// The copy of its command is larger than what is kept from operation to operation.
    has_large_command: AtomicBool,
    stopping: Arc<Stopping>,
    /// What a kill calls where no thread looks after the operation.
    when_killed: Mutex<Option<Call>>,
    /// Guards what `currentOp` reads beside the numbers.
    details: Mutex<Details>,
}

/// How far the server's end has come, for all operations.
#[derive(Default)]
struct Stopping {
    /// Operations that wait for others end.
    ends_waits: AtomicBool,
    /// Every operation ends.
    ends_all: AtomicBool,
}

#[derive(Default)]
struct Details {
    name: &'static str,
    database: String,
    /// What it works on, where it `has_namespace`: a collection, or what stands for one.
    namespace: Arc<str>,
    has_namespace: bool,
    command: Vec<u8>,
    started: Duration,
    user: UserDigest,
    session: Option<SessionId>,
    progress: Option<OpProgress>,
}

impl Details {
    fn namespace(&self) -> String {
        if self.has_namespace {
            self.namespace.to_string()
        } else {
            format!("{}.$cmd", self.database)
        }
    }
}

/// How far a long operation has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpProgress {
    /// What it is at.
    pub message: String,
    /// Of `total`.
    pub done: u64,
    /// What there was to do at the start.
    pub total: u64,
}

/// A running operation as `currentOp` shows it.
#[derive(Clone, Debug)]
pub struct OpSnapshot {
    /// The connection it runs on.
    pub connection: u64,
    /// Its number, for `killOp`.
    pub number: u64,
    /// The command's name.
    pub name: &'static str,
    /// `db.collection`, or `db.$cmd`.
    pub namespace: String,
    /// The command as it came; empty where it was too long to keep.
    pub command: Vec<u8>,
    /// Server time of its start.
    pub started: Duration,
    /// Whose it is.
    pub user: UserDigest,
    /// The session it belongs to.
    pub session: Option<SessionId>,
    /// How far it is, where it says so.
    pub progress: Option<OpProgress>,
    /// The engine's number of the transaction it works in; 0 without one.
    pub txn: u64,
    /// Whether it was told to stop.
    pub kill_pending: bool,
    /// It has done its work, and waits until as many members have it as was asked for.
    pub awaits_members: bool,
}

impl OperationSlot {
    fn new(connection: u64, stopping: Arc<Stopping>) -> Self {
        Self {
            connection,
            number: AtomicU64::new(0),
            deadline: AtomicU64::new(NONE),
            killed: AtomicU64::new(0),
            kill_code: AtomicI32::new(0),
            txn: AtomicU64::new(0),
            awaits_members: AtomicBool::new(false),
            has_large_command: AtomicBool::new(false),
            stopping,
            when_killed: Mutex::default(),
            details: Mutex::default(),
        }
    }

    /// The connection this slot belongs to.
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// The number of the running operation; 0 between operations.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Names the engine's transaction the running operation works in.
    pub fn set_txn(&self, txn: u64) {
        self.txn.store(txn, Ordering::Relaxed);
    }

    /// The running operation has done its work, and waits for members.
    pub fn set_awaits_members(&self) {
        self.awaits_members.store(true, Ordering::Relaxed);
    }

    /// Has `call` made, which must not wait, by whoever kills the running operation from now on. Who waits for that
    /// looks at [`OperationSlot::check_wait`] after this.
    pub fn when_killed(&self, call: Call) {
        *self.when_killed.lock() = Some(call);
    }

    /// The running operation ends.
    fn end(&self) {
        self.number.store(0, Ordering::Relaxed);
        self.deadline.store(NONE, Ordering::Relaxed);
        if self.awaits_members.load(Ordering::Relaxed) {
            self.awaits_members.store(false, Ordering::Relaxed);
        }
        if self.has_large_command.load(Ordering::Relaxed) {
            let mut details = self.details.lock();
            details.command.clear();
            details.command.shrink_to(KEPT_COMMAND_BYTES);
        }
    }

    /// Sets the time at which the running operation must stop.
    pub fn set_deadline(&self, at: Option<Duration>) {
        let nanos = at.map_or(NONE, |at| u64::try_from(at.as_nanos()).unwrap_or(NONE));
        self.deadline.store(nanos, Ordering::Relaxed);
    }

    /// The time at which the running operation must stop.
    pub fn deadline(&self) -> Option<Duration> {
        let nanos = self.deadline.load(Ordering::Relaxed);
        (nanos != NONE).then(|| Duration::from_nanos(nanos))
    }

    /// Names the collection the running operation works on, as `database.collection`.
    pub fn set_namespace(&self, namespace: &Arc<str>) {
        let mut details = self.details.lock();
        details.has_namespace = true;
        // Mostly that of the operation before.
        if !Arc::ptr_eq(&details.namespace, namespace) {
            details.namespace = Arc::clone(namespace);
        }
    }

    /// Says how far the running operation is.
    pub fn set_progress(&self, message: &str, done: u64, total: u64) {
        let progress = OpProgress { message: message.to_owned(), done, total };
        self.details.lock().progress = Some(progress);
    }

    /// The namespace set for the running operation.
    pub fn namespace(&self) -> String {
        self.details.lock().namespace()
    }

    /// Fails where the running operation was killed, ran past its deadline, or the server stops.
    /// `now` is asked only where there is a deadline.
    pub fn check(&self, now: impl FnOnce() -> Duration) -> Result<()> {
        if self.stopping.ends_all.load(Ordering::Relaxed) {
            return Err(interrupted_at_shutdown());
        }
        if self.killed.load(Ordering::Relaxed) == self.number() && self.number() != 0 {
            return Err(kill_error(Code(self.kill_code.load(Ordering::Relaxed))));
        }
        let deadline = self.deadline.load(Ordering::Relaxed);
        if deadline != NONE && now().as_nanos() >= u128::from(deadline) {
            return Err(Error::new(Code::MAX_TIME_MS_EXPIRED, "operation exceeded time limit"));
        }
        Ok(())
    }

    /// As [`OperationSlot::check`], where the operation waits for others: it ends as soon as the server
    /// begins to stop.
    pub fn check_wait(&self, now: impl FnOnce() -> Duration) -> Result<()> {
        if self.stopping.ends_waits.load(Ordering::Relaxed) {
            return Err(interrupted_at_shutdown());
        }
        self.check(now)
    }

    /// Tells the operation to stop if it still is number `number`.
    pub fn kill(&self, number: u64, code: Code) -> bool {
        if number == 0 || self.number() != number {
            return false;
        }
        self.kill_code.store(code.0, Ordering::Relaxed);
        self.killed.store(number, Ordering::Relaxed);
        let call = self.when_killed.lock().clone();
        if let Some(call) = call {
            call();
        }
        true
    }

    fn snapshot(&self) -> Option<OpSnapshot> {
        let details = self.details.lock();
        let number = self.number();
        (number != 0).then(|| OpSnapshot {
            connection: self.connection,
            number,
            name: details.name,
            namespace: details.namespace(),
            command: details.command.clone(),
            started: details.started,
            user: details.user,
            session: details.session,
            progress: details.progress.clone(),
            txn: self.txn.load(Ordering::Relaxed),
            kill_pending: self.killed.load(Ordering::Relaxed) == number,
            awaits_members: self.awaits_members.load(Ordering::Relaxed),
        })
    }
}

fn interrupted_at_shutdown() -> Error {
    Error::new(Code::INTERRUPTED_AT_SHUTDOWN, "interrupted at shutdown")
}

fn kill_error(code: Code) -> Error {
    match code {
        Code::CURSOR_KILLED => Error::new(code, "cursor was killed"),
        Code::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE => {
            Error::new(code, "operation was interrupted: this member is no longer primary")
        }
        _ => Error::new(Code::INTERRUPTED, "operation was interrupted"),
    }
}

/// What is known of an operation when it starts.
pub struct OperationStart<'a> {
    /// The command's name.
    pub name: &'static str,
    /// Whose it is.
    pub user: UserDigest,
    /// The database it is sent to.
    pub database: &'a str,
    /// Its document.
    pub command: &'a [u8],
    /// Server time.
    pub now: Duration,
}

/// All slots, by connection.
pub struct Operations {
    next: AtomicU64,
    stopping: Arc<Stopping>,
    slots: Mutex<BTreeMap<u64, Arc<OperationSlot>>>,
}

impl Default for Operations {
    fn default() -> Self {
        Self { next: AtomicU64::new(1), stopping: Arc::default(), slots: Mutex::default() }
    }
}

impl Operations {
    /// Makes the slot of a new connection.
    pub fn open(&self, connection: u64) -> Arc<OperationSlot> {
        let slot = Arc::new(OperationSlot::new(connection, Arc::clone(&self.stopping)));
        self.slots.lock().insert(connection, Arc::clone(&slot));
        slot
    }

    /// Forgets the slot of a connection that closed.
    pub fn close(&self, connection: u64) {
        let gone = self.slots.lock().remove(&connection);
        drop(gone);
    }

    /// Starts an operation in `slot`; it ends when the guard is dropped.
    pub fn start<'a>(
        &self,
        slot: &'a OperationSlot,
        start: &OperationStart<'_>,
    ) -> OperationGuard<'a> {
        {
            let mut details = slot.details.lock();
            details.name = start.name;
            // Mostly that of the request before.
            if details.database != start.database {
                start.database.clone_into(&mut details.database);
            }
            details.has_namespace = false;
            details.command.clear();
            if start.command.len() <= MAX_COMMAND_BYTES {
                details.command.reserve_exact(start.command.len());
                details.command.extend_from_slice(start.command);
            }
            details.started = start.now;
            details.user = start.user;
            details.session = None;
            details.progress = None;
        }
        let is_large = start.command.len() > KEPT_COMMAND_BYTES;
        slot.has_large_command.store(is_large, Ordering::Relaxed);
        slot.deadline.store(NONE, Ordering::Relaxed);
        slot.set_txn(0);
        slot.number.store(self.next.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        OperationGuard { slot }
    }

    /// Notes the session of the operation that runs in `slot`.
    pub fn set_session(&self, slot: &OperationSlot, session: SessionId) {
        slot.details.lock().session = Some(session);
    }

    /// All running operations.
    pub fn list(&self) -> Vec<OpSnapshot> {
        let slots: Vec<_> = self.slots.lock().values().cloned().collect();
        slots.iter().filter_map(|slot| slot.snapshot()).collect()
    }

    /// Tells operation `number` to stop; says whether it runs.
    pub fn kill(&self, number: u64, code: Code) -> bool {
        if number == 0 {
            return false;
        }
        let named = |slot: &&Arc<OperationSlot>| slot.number() == number;
        // Whoever goes on with it is called without the lock.
        let slot = self.slots.lock().values().find(named).cloned();
        slot.is_some_and(|slot| slot.kill(number, code))
    }

    /// From here on every [`OperationSlot::check_wait`] fails with `InterruptedAtShutdown`.
    pub fn end_waits(&self) {
        self.stopping.ends_waits.store(true, Ordering::Relaxed);
    }

    /// Kills what runs in any of these sessions, but for one operation.
    pub fn kill_sessions(&self, sessions: &std::collections::BTreeSet<SessionId>, but: u64) {
        for running in self.list() {
            let theirs = running.session.is_some_and(|session| sessions.contains(&session));
            if theirs && running.number != but {
                self.kill(running.number, Code::INTERRUPTED);
            }
        }
    }

    /// From here on every [`OperationSlot::check`] fails with `InterruptedAtShutdown`.
    pub fn begin_shutdown(&self) {
        self.end_waits();
        self.stopping.ends_all.store(true, Ordering::Relaxed);
    }
}

/// Dropping it ends the operation that runs in the slot.
pub struct OperationGuard<'a> {
    slot: &'a OperationSlot,
}

impl Drop for OperationGuard<'_> {
    fn drop(&mut self) {
        self.slot.end();
    }
}

impl OperationGuard<'_> {
    /// The operation goes on without a thread, until what this gives is dropped. `slot` is its own.
    pub fn park(self, slot: &Arc<OperationSlot>) -> ParkedOperation {
        debug_assert!(std::ptr::eq(self.slot, &raw const **slot), "an operation stays in its slot");
        std::mem::forget(self);
        ParkedOperation { slot: Some(Arc::clone(slot)) }
    }
}

/// An operation that no thread works at. Dropping it ends the operation.
pub struct ParkedOperation {
    /// None once a thread goes on with it.
    slot: Option<Arc<OperationSlot>>,
}

impl ParkedOperation {
    /// Where it is.
    pub fn slot(&self) -> &OperationSlot {
        self.slot.as_ref().expect("it is there until a thread goes on with it")
    }

    /// A thread goes on with it, in its slot: it is the same operation, and one that was killed is.
    pub fn resume(mut self, slot: &OperationSlot) -> OperationGuard<'_> {
        if let Some(own) = self.slot.take() {
            debug_assert!(std::ptr::eq(&raw const *own, slot), "an operation stays in its slot");
            let call = own.when_killed.lock().take();
            drop(call);
        }
        OperationGuard { slot }
    }
}

impl Drop for ParkedOperation {
    fn drop(&mut self) {
        let Some(slot) = &self.slot else { return };
        let call = slot.when_killed.lock().take();
        drop(call);
        slot.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start<'a>(operations: &Operations, slot: &'a OperationSlot) -> OperationGuard<'a> {
        let start = OperationStart {
            name: "find",
            user: UserDigest::NOBODY,
            database: "a",
            command: b"x",
            now: Duration::ZERO,
        };
        operations.start(slot, &start)
    }

    fn code(slot: &OperationSlot, now: u64) -> Option<Code> {
        slot.check(|| Duration::from_secs(now)).err().map(|error| error.code())
    }

    #[test]
    fn kill_stops_the_named_operation_and_not_the_next() {
        let operations = Operations::default();
        let slot = operations.open(7);
        let running = start(&operations, &slot);
        let number = slot.number();
        assert!(operations.kill(number, Code::INTERRUPTED));
        assert_eq!(code(&slot, 0), Some(Code::INTERRUPTED));
        drop(running);
        assert!(!operations.kill(number, Code::INTERRUPTED));
        let _running = start(&operations, &slot);
        assert_eq!(code(&slot, 0), None);
    }

    #[test]
    fn parked_operation_is_listed_and_its_kill_calls_whoever_goes_on_with_it() {
        let operations = Operations::default();
        let slot = operations.open(7);
        let parked = start(&operations, &slot).park(&slot);
        let number = slot.number();
        let calls = Arc::new(AtomicU64::new(0));
        let counting = Arc::clone(&calls);
        slot.set_awaits_members();
        slot.when_killed(Arc::new(move || {
            counting.fetch_add(1, Ordering::Relaxed);
        }));
        let listed = operations.list();
        assert_eq!((listed.len(), listed[0].number, listed[0].awaits_members), (1, number, true));
        assert!(!operations.kill(number + 1, Code::INTERRUPTED));
        assert_eq!((calls.load(Ordering::Relaxed), code(&slot, 0)), (0, None));
        assert!(operations.kill(number, Code::INTERRUPTED));
        let killed = Some(Code::INTERRUPTED);
        assert_eq!((calls.load(Ordering::Relaxed), code(parked.slot(), 0)), (1, killed));
        drop(parked);
        assert!(operations.list().is_empty());
        let running = start(&operations, &slot);
        assert!(operations.kill(slot.number(), Code::INTERRUPTED));
        assert_eq!(calls.load(Ordering::Relaxed), 1, "the next one is its thread's");
        assert!(!operations.list()[0].awaits_members);
        drop(running);
    }

    #[test]
    fn parked_operation_goes_on_as_the_same_one_killed_or_not() {
        let operations = Operations::default();
        let slot = operations.open(7);
        let parked = start(&operations, &slot).park(&slot);
        let number = slot.number();
        slot.set_deadline(Some(Duration::from_secs(10)));
        slot.when_killed(Arc::new(|| {}));
        let running = parked.resume(&slot);
        assert_eq!((slot.number(), slot.deadline()), (number, Some(Duration::from_secs(10))));
        assert!(slot.when_killed.lock().is_none(), "its thread looks for itself");
        assert_eq!(code(&slot, 0), None);
        let parked = running.park(&slot);
        assert!(operations.kill(number, Code::INTERRUPTED));
        let running = parked.resume(&slot);
        assert_eq!(code(&slot, 0), Some(Code::INTERRUPTED));
        drop(running);
        assert!(operations.list().is_empty());
        assert_eq!(Arc::strong_count(&slot), 2, "of those that are parked nothing stays");
    }

    #[test]
    fn a_large_command_is_shown_while_it_runs_and_not_kept_behind_it() {
        let operations = Operations::default();
        let slot = operations.open(1);
        for bytes in [10, KEPT_COMMAND_BYTES, KEPT_COMMAND_BYTES + 1, MAX_COMMAND_BYTES, 300] {
            let command = vec![7; bytes];
            let user = UserDigest::NOBODY;
            let start = OperationStart {
                name: "find",
                user,
                database: "db",
                command: &command,
                now: Duration::ZERO,
            };
            let running = operations.start(&slot, &start);
            assert_eq!(operations.list()[0].command, command);
            drop(running);
            let kept = slot.details.lock().command.capacity();
            assert!(kept <= KEPT_COMMAND_BYTES, "{kept} bytes are kept of {bytes}");
        }
    }

    #[test]
    fn deadline_ends_with_its_operation() {
        let operations = Operations::default();
        let slot = operations.open(7);
        let running = start(&operations, &slot);
        slot.set_deadline(Some(Duration::from_secs(5)));
        assert_eq!((code(&slot, 4), code(&slot, 5)), (None, Some(Code::MAX_TIME_MS_EXPIRED)));
        drop(running);
        let _running = start(&operations, &slot);
        assert_eq!(code(&slot, 9), None);
    }

    #[test]
    fn only_running_operations_are_listed() {
        let operations = Operations::default();
        let (one, _two) = (operations.open(1), operations.open(2));
        let running = start(&operations, &one);
        one.set_namespace(&"a.b".into());
        let list = operations.list();
        assert_eq!((list.len(), list[0].connection, &*list[0].namespace), (1, 1, "a.b"));
        drop(running);
        assert!(operations.list().is_empty());
        operations.close(1);
        assert_eq!(operations.slots.lock().len(), 1);
    }

    #[test]
    fn shutdown_interrupts_everything() {
        let operations = Operations::default();
        let slot = operations.open(1);
        let of_wait = || slot.check_wait(|| Duration::ZERO).err().map(|error| error.code());
        assert_eq!((code(&slot, 0), of_wait()), (None, None));
        operations.end_waits();
        let ended = Some(Code::INTERRUPTED_AT_SHUTDOWN);
        assert_eq!((code(&slot, 0), of_wait()), (None, ended), "who works may finish");
        operations.begin_shutdown();
        assert_eq!((code(&slot, 0), of_wait()), (ended, ended));
    }
}
