//! A disk that takes very long for some reads: the clients that need those pages wait, everybody else goes on.
//!
//! The disk holds those reads until the others are done, so none of their operations can have waited for them.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "support/hooked_disk.rs"]
mod hooked_disk;
#[path = "support/sockets.rs"]
mod sockets;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use hooked_disk::{DiskHooks, Served};
use os::Os;
use parking_lot::{Condvar, Mutex};
use sockets::Client;
use std::collections::BTreeSet;
use std::path::Path;
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

impl DiskHooks for Gate {
    fn before_read(&self, name: &str, offset: u64) {
        if name == "fern.data" {
            self.pass(offset);
        }
    }
}

/// A server over a directory, whose disk can be told to hold reads.
struct Gated {
    gate: Arc<Gate>,
    served: Served,
}

impl Gated {
    fn start(directory: &Path) -> Self {
        let gate = Arc::new(Gate::default());
        let served = Served::start(directory, &gate, PERMITS, LONGEST_WAIT);
        Self { gate, served }
    }

    fn client(&self) -> Client {
        self.served.client()
    }

    fn threads(&self) -> usize {
        self.served.stats.threads()
    }

    fn stop(self) {
        self.served.stop();
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
    assert!(gated.threads() <= most, "{} threads", gated.threads());
    tell(&format!("alone: {}", shown(alone)));
    tell(&format!("beside {STUCK} reads that do not end: {}", shown(beside)));
    gated.gate.open();
    for (number, client) in stuck.iter_mut().enumerate() {
        check_found(&client.receive(), key(number));
    }
    check_found(&stuck_at_large.receive(), 1);
    gated.stop();
}
