//! Members with engines, catalogs and ports of their own, in one process.

use bson::{Document, RawDocumentBuf, doc};
use catalog::{Catalog, CatalogOptions, CollectionOptions, Namespace, TxnKind};
use engine::{Engine, HistoryOptions, Showing};
use limits::Account;
use links::stand_in::Port;
use links::{Dialer, Tuning};
use member::View;
use membership::{Founding, Membership, Parts, Roles, SetDocument, Stored};
use os::Os;
use parking_lot::Mutex;
use quorum::MemberId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longer than anything here takes on a machine that works.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// What the layers above would do: take the catalog over.
pub(crate) struct Above {
    catalog: Arc<Catalog>,
    /// Terms that were taken over.
    pub(crate) terms: Mutex<Vec<u64>>,
}

impl Roles for Above {
    fn take_over(&self, term: u64) -> Result<(), String> {
        self.terms.lock().push(term);
        self.catalog.take_over().map_err(|error| error.message().to_owned())
    }

    fn changed(&self, _view: &View, _takes_writes: bool, _document: &SetDocument) {}
}

/// One member that runs.
pub(crate) struct Running {
    /// Its operations may wait no longer.
    stopping: Arc<AtomicBool>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) above: Arc<Above>,
    pub(crate) membership: Arc<Membership>,
    _port: Port,
}

impl Running {
    /// What a server does first when it ends.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.membership.stop();
    }
}

/// One member's directory, with or without a process.
pub(crate) struct Node {
    directory: tempfile::TempDir,
    port: u16,
    pub(crate) running: Option<Running>,
}

fn options(node: &Node) -> engine::Options {
    let mut options = engine::Options::new(node.directory.path());
    options.cache_size = 32 << 20;
    options.showing = Showing::Committed;
    options.history = Some(HistoryOptions { bytes: 1 << 30, min_age: Duration::ZERO });
    options
}

impl Node {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        Self { directory, port, running: None }
    }

    fn id(&self) -> MemberId {
        Stored::read(&Os::real(), self.directory.path()).unwrap().member
    }

    fn parts(&self) -> (Parts, Arc<Above>, Arc<AtomicBool>) {
        let os = Os::real();
        let registry = Arc::new(telemetry::Registry::new());
        let engine = Engine::open(os.clone(), registry, options(self)).unwrap();
        // The first who is asked is asked for good.
        let stopping = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&stopping);
        engine.ask_while_waiting(move || !stops.load(Ordering::Acquire));
        let temporary = self.directory.path().join("tmp");
        let catalog = CatalogOptions::new(os.clone(), temporary);
        let catalog = Catalog::following(engine.clone(), catalog).unwrap();
        let above = Arc::new(Above { catalog: Arc::clone(&catalog), terms: Mutex::default() });
        let parts = Parts {
            dialer: Dialer::new(os.clone(), None, false),
            os,
            directory: self.directory.path().to_owned(),
            engine,
            catalog,
            memory: Account::new(1 << 30),
            roles: Arc::clone(&above) as _,
            tuning: Tuning { most_pause: Duration::from_millis(100), ..Tuning::default() },
            pace_ms: Some((100, 20)),
        };
        (parts, above, stopping)
    }

    fn run(&mut self, begin: impl FnOnce(Parts) -> membership::Result<Arc<Membership>>) {
        let (parts, above, stopping) = self.parts();
        let catalog = Arc::clone(&parts.catalog);
        let membership = begin(parts).unwrap();
        let listener = std::net::TcpListener::bind(("127.0.0.1", self.port)).unwrap();
        let port = Port::open(&Os::real(), listener, membership.acceptor()).unwrap();
        self.running = Some(Running { stopping, catalog, above, membership, _port: port });
    }

    /// Starts the process again.
    pub(crate) fn start(&mut self) {
        assert!(self.running.is_none(), "it runs");
        self.run(Membership::start);
    }

    /// Ends the process, as by a signal: nothing is made ready for it.
    pub(crate) fn kill(&mut self) {
        let running = self.running.take().unwrap();
        running.stop();
        drop(running);
    }

    pub(crate) fn get(&self) -> &Running {
        self.running.as_ref().unwrap()
    }
}

/// A set.
pub(crate) struct Set {
    pub(crate) nodes: Vec<Node>,
}

impl Set {
    /// Members 0 to `count`; 0 has founded the set.
    pub(crate) fn of(count: usize) -> Self {
        let mut nodes: Vec<Node> = (0..count).map(|_| Node::new()).collect();
        let ids: BTreeMap<i32, MemberId> =
            nodes.iter().enumerate().map(|(at, node)| (at as i32, node.id())).collect();
        let member = |(at, node): (usize, &Node)| {
            doc! { "_id": at as i32, "host": format!("127.0.0.1:{}", node.port), "priority": 1.0, "votes": 1 }
        };
        let members: Vec<Document> = nodes.iter().enumerate().map(member).collect();
        let set_id = bson::oid::ObjectId::from_bytes([9; 12]);
        let config = doc! {
            "_id": "rs", "version": 1, "members": members, "settings": { "replicaSetId": set_id },
        };
        let document = SetDocument::new(config, &ids).unwrap();
        let founder = ids[&0];
        for node in nodes.iter_mut().skip(1) {
            node.run(|parts| Membership::begin(parts, &document, Founding::By(founder)));
        }
        nodes[0].run(|parts| Membership::begin(parts, &document, Founding::Here));
        Self { nodes }
    }

    /// Waits until one takes writes that is not `but`, and all others that run follow it.
    pub(crate) fn primary_but(&self, but: Option<usize>) -> usize {
        let others = |at: &usize| Some(*at) != but && self.nodes[*at].running.is_some();
        let all = (0..self.nodes.len()).filter(others).count();
        for _ in 0..6000 {
            let takes = |at: &usize| {
                let running = self.nodes[*at].running.as_ref();
                Some(*at) != but && running.is_some_and(|node| node.membership.takes_writes())
            };
            if let Some(primary) = (0..self.nodes.len()).find(takes) {
                let leader = self.nodes[primary].get().membership.own();
                let follows = |at: &usize| {
                    self.nodes[*at].get().membership.view().role_state.leader == Some(leader)
                };
                if (0..self.nodes.len()).filter(others).filter(follows).count() == all {
                    return primary;
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("nobody takes writes");
    }

    pub(crate) fn primary(&self) -> usize {
        self.primary_but(None)
    }

    /// Waits until all members that run show the same, and the same as an opening of their engines; what.
    pub(crate) fn agree(&self) -> Vec<String> {
        self.agree_on(|_| true)
    }

    /// As [`Set::agree`], once that is as asked: changes of names are shown a moment after they are done.
    pub(crate) fn agree_on(&self, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..3000 {
            all = self.nodes.iter().filter_map(|node| node.running.as_ref()).map(shown).collect();
            if all.windows(2).all(|pair| pair[0] == pair[1]) && is_so(&all[0]) {
                return all.swap_remove(0);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("they differ: {all:#?}");
    }
}

/// Names, counts and documents.
fn shown(node: &Running) -> Vec<String> {
    let mut lines = Vec::new();
    for database in node.catalog.databases() {
        for collection in node.catalog.collections(&database) {
            let ids = ids(node, collection.namespace());
            let name = collection.namespace();
            lines.push(format!("{name} {} {} {ids:?}", collection.uuid(), collection.count()));
        }
    }
    lines
}

/// The numbers that are the ids of a collection's documents.
pub(crate) fn ids(node: &Running, namespace: &Namespace) -> Vec<i32> {
    let Some(collection) = node.catalog.collection(namespace) else { return Vec::new() };
    let state = node.catalog.snapshot();
    let range = engine::KeyRange::all();
    let cursor = state.cursor(collection.primary(), range, engine::Direction::Forward);
    let Ok(mut cursor) = cursor else { return Vec::new() };
    let mut found = Vec::new();
    while let Some((_, value)) = cursor.next().unwrap() {
        let document = bson::RawDocument::from_bytes(value).unwrap();
        found.push(document.get_i32("_id").unwrap());
    }
    found
}

pub(crate) fn ns(name: &str) -> Namespace {
    Namespace::parse(name).unwrap()
}

pub(crate) fn create(node: &Running, name: &str) -> errors::Result<()> {
    let plain = RawDocumentBuf::new();
    let options = CollectionOptions::parse(&plain)?;
    node.catalog.create_collection(&ns(name), &options, &|| Ok(())).map(drop)
}

fn gone(name: &str) -> errors::Error {
    errors::Error::new(errors::Code::NAMESPACE_NOT_FOUND, name)
}

/// Inserts a document and waits until a majority has it.
pub(crate) fn insert(node: &Running, name: &str, id: i32) -> errors::Result<()> {
    catalog::forget_statements();
    let document = RawDocumentBuf::try_from(&doc! { "_id": id, "text": "x".repeat(100) }).unwrap();
    let mut txn = node.catalog.begin(TxnKind::Statement);
    let Some(collection) = txn.open_for_write(&ns(name))? else { return Err(gone(name)) };
    txn.insert_document(&collection, &document)?;
    txn.commit()?;
    node.catalog.settle()
}
