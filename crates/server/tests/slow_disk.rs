//! A disk that takes very long for some reads: the clients that need those pages wait, everybody else goes on.
//!
//! The disk holds those reads until the others are done, so none of their operations can have waited for them.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "support/sockets.rs"]
mod sockets;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use catalog::{Catalog, CatalogOptions};
use engine::Engine;
use limits::Account;
use net::{NetOptions, NetStats, Server};
use os::{File, FilePermissions, LockGuard, OpenOptions, Os, Space, Vfs};
use parking_lot::{Condvar, Mutex};
use serverstate::{Parts, ServerInfo, SessionRecords, SilentHost};
use sockets::{Client, Commands};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Requests that run at once and do not wait.
const PERMITS: usize = 2;
/// Clients whose pages do not come: more than there are permits.
const STUCK: usize = 8;
/// The others, and how often each finds and updates.
const OTHERS: usize = 4;
const ROUNDS: i32 = 300;
/// Threads beside those of requests that wait.
const MORE_THREADS: usize = 6;
const DOCUMENTS: i32 = 1000;
/// Documents that have pages of their own.
const LARGE_DOCUMENTS: i32 = 4;
const LARGE_BYTES: usize = 2 << 20;
/// How long something is waited for that must come.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Holds the reads of the places that are asked for first after it is told to.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    /// So many more reads are to be held.
    wanted: usize,
    /// Where those begin that are held.
    places: BTreeSet<u64>,
    held: usize,
}

impl Gate {
    fn hold_next(&self, reads: usize) {
        self.state.lock().wanted = reads;
    }

    fn wait_until_held(&self, reads: usize) {
        let mut state = self.state.lock();
        while state.held < reads {
            let waited = self.changed.wait_for(&mut state, LONGEST_WAIT);
            assert!(!waited.timed_out(), "{} of {reads} reads have come", state.held);
        }
    }

    fn held(&self) -> usize {
        self.state.lock().held
    }

    fn open(&self) {
        let mut state = self.state.lock();
        state.places.clear();
        state.wanted = 0;
        self.changed.notify_all();
    }

    fn pass(&self, place: u64) {
        let mut state = self.state.lock();
        if state.wanted > 0 {
            state.wanted -= 1;
            state.places.insert(place);
        }
        if !state.places.contains(&place) {
            return;
        }
        // As the file does before a read that the kernel cannot answer from memory.
        os::about_to_wait();
        state.held += 1;
        self.changed.notify_all();
        while state.places.contains(&place) {
            self.changed.wait(&mut state);
        }
        state.held -= 1;
    }
}

/// The machine's disk behind a gate for reads of the data file.
struct GatedDisk {
    inner: Arc<dyn Vfs>,
    gate: Arc<Gate>,
}

struct GatedFile {
    inner: Arc<dyn File>,
    gate: Arc<Gate>,
}

impl Vfs for GatedDisk {
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let inner = self.inner.open(path, options)?;
        if path.file_name().is_none_or(|name| name != "fern.data") {
            return Ok(inner);
        }
        Ok(Arc::new(GatedFile { inner, gate: Arc::clone(&self.gate) }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.inner.list_dir(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<LockGuard> {
        self.inner.lock(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.inner.space(path)
    }
}

impl File for GatedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.gate.pass(offset);
        self.inner.read_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_all_at(buf, offset)
    }

    fn begin_writeback(&self, offset: u64, len: u64) {
        self.inner.begin_writeback(offset, len);
    }

    fn permissions(&self) -> io::Result<FilePermissions> {
        self.inner.permissions()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.inner.sync_all()
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.allocate(offset, len)
    }

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.punch_hole(offset, len)
    }
}

/// A server over a directory, whose disk can be told to hold reads.
struct Gated {
    gate: Arc<Gate>,
    engine: Engine,
    stats: Arc<NetStats>,
    server: Server<Commands>,
    port: u16,
}

impl Gated {
    fn start(directory: &Path) -> Self {
        let gate = Arc::new(Gate::default());
        let real = Os::real();
        let vfs = Arc::new(GatedDisk { inner: Arc::clone(&real.vfs), gate: Arc::clone(&gate) });
        let os = Os { vfs, ..real };
        let registry = Arc::new(telemetry::Registry::new());
        let engine = Engine::open(os.clone(), registry, engine::Options::new(directory)).unwrap();
        let options = CatalogOptions::new(os.clone(), directory.join("tmp"));
        let catalog = Catalog::open(engine.clone(), options).unwrap();
        let service = commands::Service::new(Parts {
            os: os.clone(),
            session_records: SessionRecords::open(&catalog).unwrap(),
            catalog,
            info: ServerInfo::default(),
            host: Arc::new(SilentHost),
            memory: Account::new(1 << 30),
            follows: false,
        });
        let stats = Arc::new(NetStats::default());
        let options = NetOptions { permits: PERMITS, ..NetOptions::default() };
        let (server, port) = sockets::serve(&os, &service, options, &stats);
        Self { gate, engine, stats, server, port }
    }

    fn client(&self) -> Client {
        Client::connect(self.port, LONGEST_WAIT)
    }

    fn stop(self) {
        self.server.stop(LONGEST_WAIT);
        self.engine.close().unwrap();
    }
}

/// Documents that lie in pages of their own, four to each.
fn fill(client: &mut Client, collection: &str) {
    for first in (0..DOCUMENTS).step_by(100) {
        let mut documents = bson::RawArrayBuf::new();
        for key in first..first + 100 {
            // Different, so that a page of them is not packed to nothing.
            let filler: String =
                (0..4000).map(|at| char::from(b'!' + (at * key * 31 % 89) as u8)).collect();
            documents.push(rawdoc! { "_id": key, "n": 0, "filler": filler });
        }
        let reply =
            client.ask(&rawdoc! { "insert": collection, "documents": documents, "$db": "test" });
        assert_eq!(reply.get_i32("n").unwrap(), 100, "{reply:?}");
    }
}

fn fill_large(client: &mut Client) {
    for key in 0..LARGE_DOCUMENTS {
        let filler = "x".repeat(LARGE_BYTES);
        let document = rawdoc! { "_id": key, "filler": filler };
        let reply =
            client.ask(&rawdoc! { "insert": "large", "documents": [document], "$db": "test" });
        assert_eq!(reply.get_i32("n").unwrap(), 1, "{reply:?}");
    }
}

fn find(collection: &str, key: i32) -> RawDocumentBuf {
    rawdoc! { "find": collection, "filter": { "_id": key }, "projection": { "filler": 0 }, "$db": "test" }
}

fn check_found(reply: &RawDocument, key: i32) {
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let first = batch.into_iter().next().expect("it is found").unwrap();
    assert_eq!(first.as_document().unwrap().get_i32("_id").unwrap(), key);
}

fn increment(client: &mut Client, collection: &str, key: i32) {
    let change = rawdoc! { "q": { "_id": key }, "u": { "$inc": { "n": 1 } } };
    let reply = client.ask(&rawdoc! { "update": collection, "updates": [change], "$db": "test" });
    assert_eq!(reply.get_i32("nModified").unwrap(), 1, "{reply:?}");
}

/// The others' operations: on documents in memory, and on some whose pages are read from the disk. How long each took.
fn others(gated: &Gated, cold: i32) -> Vec<Duration> {
    let clock = Os::real().clock;
    let one = |number: i32| {
        let mut client = gated.client();
        let mut times = Vec::new();
        for round in 0..ROUNDS {
            let key = (round * 131 + number * 7) % DOCUMENTS;
            let began = clock.monotonic();
            check_found(&client.ask(&find("warm", key)), key);
            times.push(clock.monotonic().saturating_sub(began));
            let began = clock.monotonic();
            increment(&mut client, "warm", key);
            times.push(clock.monotonic().saturating_sub(began));
            if round % 10 == 0 {
                let key = (cold + number * ROUNDS / 10 + round / 10) % DOCUMENTS;
                check_found(&client.ask(&find("cold", key)), key);
            }
        }
        times
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..OTHERS as i32).map(|number| scope.spawn(move || one(number))).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    })
}

fn shown(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |share: usize| times[times.len() * share / 100];
    format!("median {:?}, p99 {:?}, most {:?}", at(50), at(99), times[times.len() - 1])
}

#[expect(clippy::print_stdout, reason = "shown with --nocapture")]
fn tell(text: &str) {
    println!("{text}");
}

#[test]
fn clients_whose_pages_do_not_come_hold_up_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    let filled = Gated::start(directory.path());
    let mut client = filled.client();
    for collection in ["warm", "cold", "stuck"] {
        fill(&mut client, collection);
    }
    fill_large(&mut client);
    filled.stop();

    // Nothing is in memory now but what is found here: all that is warm, and the roots of the others.
    let gated = Gated::start(directory.path());
    let mut client = gated.client();
    for key in 0..DOCUMENTS {
        check_found(&client.ask(&find("warm", key)), key);
    }
    for collection in ["cold", "stuck", "large"] {
        check_found(&client.ask(&find(collection, 0)), 0);
    }
    let alone = others(&gated, 100);
    gated.gate.hold_next(STUCK);
    let key = |number: usize| 50 + i32::try_from(number).unwrap() * 100;
    let mut stuck: Vec<_> = (0..STUCK).map(|_| gated.client()).collect();
    for (number, client) in stuck.iter_mut().enumerate() {
        client.send(&find("stuck", key(number)));
    }
    gated.gate.wait_until_held(STUCK);
    gated.gate.hold_next(1);
    let mut stuck_at_large = gated.client();
    stuck_at_large.send(&find("large", 1));
    gated.gate.wait_until_held(STUCK + 1);
    let beside = others(&gated, 500);
    for key in [0, 2, 3] {
        check_found(&client.ask(&find("large", key)), key);
    }
    assert_eq!(gated.gate.held(), STUCK + 1, "the reads are held as before");
    let most = STUCK + 1 + PERMITS + MORE_THREADS;
    assert!(gated.stats.threads() <= most, "{} threads", gated.stats.threads());
    tell(&format!("alone: {}", shown(alone)));
    tell(&format!("beside {STUCK} reads that do not end: {}", shown(beside)));
    gated.gate.open();
    for (number, client) in stuck.iter_mut().enumerate() {
        check_found(&client.receive(), key(number));
    }
    check_found(&stuck_at_large.receive(), 1);
    gated.stop();
}
