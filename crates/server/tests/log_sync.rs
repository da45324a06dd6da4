//! Writes with `j: true` beside a disk that syncs the log when the test lets it: their answers wait on no thread, each as
//! long as what it tells of is not on disk, and as its client lets it.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "support/hooked_disk.rs"]
mod hooked_disk;
#[path = "support/sockets.rs"]
mod sockets;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use engine::Engine;
use hooked_disk::{DiskHooks, Served};
use os::Os;
use parking_lot::{Condvar, Mutex};
use sockets::Client;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Requests that run at once and do not wait.
const PERMITS: usize = 2;
/// Clients whose writes wait: many more than there are permits.
const WAITING: usize = 60;
/// Threads beside those that have a permit: who syncs, and who is on the way to a permit.
const MORE_THREADS: usize = 3;
/// How long something is waited for that must come.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

const WRITE_CONCERN_TIMEOUT: i32 = 64;
const INTERRUPTED: i32 = 11601;

/// Syncs of the log.
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
    /// So many times slower than the machine's clock goes the server's, beside what syncs take.
    slowness: u32,
    /// What syncs have taken, in milliseconds of the server's clock.
    taken: AtomicU64,
}

#[derive(Default)]
struct GateState {
    is_held: bool,
    fails: bool,
    held: usize,
    /// How long each takes, in milliseconds.
    time: u64,
}

impl Gate {
    fn new(slowness: u32) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            slowness,
            taken: AtomicU64::new(0),
        }
    }

    fn hold(&self) {
        self.state.lock().is_held = true;
    }

    /// Returns when a sync is held.
    fn wait_until_held(&self) {
        let mut state = self.state.lock();
        while state.held == 0 {
            let waited = self.changed.wait_for(&mut state, LONGEST_WAIT);
            assert!(!waited.timed_out(), "no sync has come");
        }
    }

    fn take(&self, milliseconds: u64) {
        self.state.lock().time = milliseconds;
    }

    fn open(&self) {
        self.state.lock().is_held = false;
        self.changed.notify_all();
    }

    /// What is held fails, and so does every later sync.
    fn fail(&self) {
        self.state.lock().fails = true;
        self.open();
    }
}

impl DiskHooks for Gate {
    fn before_sync(&self, name: &str) -> io::Result<()> {
        if !name.ends_with(".fernlog") {
            return Ok(());
        }
        let mut state = self.state.lock();
        let time = state.time;
        if state.is_held || time > 0 {
            // As the file does before it syncs.
            os::about_to_wait();
        }
        state.held += 1;
        self.changed.notify_all();
        while state.is_held {
            self.changed.wait(&mut state);
        }
        state.held -= 1;
        if state.fails {
            return Err(io::Error::other("the disk is broken"));
        }
        drop(state);
        Os::real().clock.sleep(Duration::from_millis(time));
        self.taken.fetch_add(time, Ordering::Relaxed);
        Ok(())
    }

    fn monotonic(&self, machine: Duration) -> Duration {
        machine / self.slowness + Duration::from_millis(self.taken.load(Ordering::Relaxed))
    }
}

struct Slow {
    gate: Arc<Gate>,
    served: Served,
    /// Removed last.
    directory: tempfile::TempDir,
}

impl Slow {
    fn start() -> Self {
        Self::start_with(Gate::new(1))
    }

    fn start_with(gate: Gate) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let gate = Arc::new(gate);
        let served = Served::start(directory.path(), &gate, PERMITS, LONGEST_WAIT);
        Self { gate, served, directory }
    }

    fn client(&self) -> Client {
        self.served.client()
    }

    /// So many clients whose writes wait for a sync that is held.
    fn waiting(&self, count: usize) -> Vec<Client> {
        let mut clients: Vec<_> = (0..count).map(|_| self.client()).collect();
        // A sync is under way before the first one writes: the log's thread flushes every so often.
        let mut first = self.client();
        check_done(&first.ask(&insert(-1, rawdoc! { "j": false })));
        self.gate.hold();
        self.gate.wait_until_held();
        for (number, client) in (0..).zip(&mut clients) {
            client.send(&insert(number, rawdoc! { "j": true }));
        }
        self.wait_until_waiting(count);
        clients
    }

    fn wait_until_waiting(&self, count: usize) {
        let mut asking = self.client();
        wait_until(|| waiting_now(&mut asking).len() == count);
    }
}

fn wait_until(holds: impl FnMut() -> bool) {
    let mut holds = holds;
    let clock = Os::real().clock;
    let until = clock.monotonic() + LONGEST_WAIT;
    while !holds() {
        assert!(clock.monotonic() < until, "it has not come");
        clock.sleep(Duration::from_millis(2));
    }
}

fn insert(id: i32, concern: RawDocumentBuf) -> RawDocumentBuf {
    rawdoc! { "insert": "c", "documents": [{ "_id": id }], "writeConcern": concern, "$db": "test" }
}

/// The numbers of the operations whose answers wait.
fn waiting_now(client: &mut Client) -> Vec<i32> {
    let reply =
        client.ask(&rawdoc! { "currentOp": 1, "waitingForWriteConcern": true, "$db": "admin" });
    let list = reply.get_array("inprog").unwrap();
    let numbers = list.into_iter().map(|operation| {
        let RawBsonRef::Document(operation) = operation.unwrap() else { panic!("{reply:?}") };
        operation.get_i32("opid").unwrap()
    });
    numbers.collect()
}

fn count(client: &mut Client) -> i32 {
    client.ask(&rawdoc! { "count": "c", "$db": "test" }).get_i32("n").unwrap()
}

/// The code of the error beside what was done.
fn concern_code(reply: &RawDocument) -> i32 {
    assert_eq!(reply.get_i32("n").unwrap(), 1, "{reply:?}");
    reply.get_document("writeConcernError").unwrap().get_i32("code").unwrap()
}

fn is_ok(reply: &RawDocument) -> bool {
    reply.get_f64("ok").unwrap() > 0.0
}

fn check_done(reply: &RawDocument) {
    assert_eq!(reply.get_i32("n").unwrap(), 1, "{reply:?}");
    assert!(reply.get("writeConcernError").unwrap().is_none(), "{reply:?}");
}

#[test]
fn answers_that_wait_for_the_log_hold_no_thread_and_move_nobody_else() {
    let slow = Slow::start();
    let mut waiting = slow.waiting(WAITING);
    let threads = slow.served.stats.threads();
    assert!(threads <= PERMITS + MORE_THREADS, "{threads} threads");
    let mut other = slow.client();
    assert_eq!(count(&mut other), 1 + i32::try_from(WAITING).unwrap(), "what is done is seen");
    check_done(&other.ask(&insert(1000, rawdoc! { "w": 1 })));
    // A request behind one that waits is answered behind it.
    waiting[0].send(&rawdoc! { "ping": 1, "$db": "admin" });
    assert_eq!(waiting_now(&mut other).len(), WAITING, "nobody is answered before the sync");
    slow.gate.open();
    for client in &mut waiting {
        check_done(&client.receive());
    }
    assert!(is_ok(&waiting[0].receive()));
    assert_eq!(waiting_now(&mut other), [0_i32; 0]);
    slow.served.stop();
}

#[test]
fn a_wait_for_the_log_ends_by_its_time_by_kill_op_and_by_its_clients_leave() {
    let slow = Slow::start();
    let mut waiting = slow.waiting(2);
    let mut other = slow.client();
    let reply = other.ask(&insert(100, rawdoc! { "j": true, "wtimeout": 20 }));
    assert_eq!(concern_code(&reply), WRITE_CONCERN_TIMEOUT, "{reply:?}");
    let killed = waiting_now(&mut other)[0];
    other.ask(&rawdoc! { "killOp": 1, "op": killed, "$db": "admin" });
    wait_until(|| waiting_now(&mut other).len() == 1);
    assert_eq!(concern_code(&waiting.remove(0).receive()), INTERRUPTED);
    let left = waiting.remove(0);
    drop(left);
    wait_until(|| waiting_now(&mut other).is_empty());
    assert_eq!(count(&mut other), 4, "what was done stays");
    slow.gate.open();
    check_done(&other.ask(&insert(101, rawdoc! { "j": true })));
    slow.served.stop();
}

#[test]
fn a_sync_that_fails_stops_the_engine_and_acknowledges_nobody() {
    let slow = Slow::start();
    let waiting = slow.waiting(WAITING);
    slow.gate.fail();
    for mut client in waiting {
        let reply = client.receive();
        let error = reply.get_document("writeConcernError").unwrap();
        assert!(error.get_str("errmsg").unwrap().contains("the disk is broken"), "{reply:?}");
    }
    let mut other = slow.client();
    let reply = other.ask(&insert(2000, rawdoc! { "j": false }));
    assert!(!is_ok(&reply), "{reply:?}");
    slow.served.stop_serving(LONGEST_WAIT);
}

#[test]
fn a_server_ends_beside_answers_that_wait_for_the_log() {
    let slow = Slow::start();
    let waiting = slow.waiting(WAITING);
    let Slow { gate, served, directory } = slow;
    let engine = served.stop_serving(Duration::from_millis(50));
    gate.open();
    engine.close().unwrap();
    drop((engine, waiting));
    let engine = Engine::open(
        Os::real(),
        Arc::new(telemetry::Registry::new()),
        engine::Options::new(directory.path()),
    );
    engine.unwrap().close().unwrap();
}

/// The log syncs, where each takes some milliseconds, that writes of several clients take. The server's clock is a
/// hundred times slower than the machine's: who is late because the machine is busy does not come late.
fn syncs_of(clients: usize, writes: i32) -> u64 {
    let slow = Slow::start_with(Gate::new(100));
    let mut all: Vec<_> = (0..clients).map(|_| slow.client()).collect();
    // The collection is there.
    check_done(&all[0].ask(&insert(-1, rawdoc! { "j": true })));
    slow.gate.take(5);
    let before = slow.served.engine.stats().log.syncs;
    std::thread::scope(|scope| {
        for (number, client) in (0..).zip(&mut all) {
            scope.spawn(move || {
                for write in 0..writes {
                    check_done(&client.ask(&insert(number * 1000 + write, rawdoc! { "j": true })));
                }
            });
        }
    });
    let syncs = slow.served.engine.stats().log.syncs - before;
    slow.gate.take(0);
    slow.served.stop();
    syncs
}

#[test]
fn those_who_write_one_after_the_other_share_a_sync() {
    const CLIENTS: usize = 8;
    const WRITES: i32 = 50;
    let syncs = syncs_of(CLIENTS, WRITES);
    let writes = CLIENTS as u64 * WRITES as u64;
    // Two halves that take turns would be a quarter of them; some more are by the log's period and by the beginning.
    assert!(syncs * 6 <= writes, "{syncs} syncs for {writes} writes");
    assert!(syncs >= WRITES as u64, "each write of a client is behind the one before: {syncs}");
}
