//! Links on the clients' port: two servers' commands and sockets, and the links between them.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "support/sockets.rs"]
mod sockets;

use bson::oid::ObjectId;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use catalog::{Catalog, CatalogOptions};
use engine::Engine;
use limits::Account;
use links::{
    Admission, Arrival, Dialer, HostAndPort, Identity, LinkHello, LinkRefusal, Links, Tuning,
};
use net::{NetOptions, Server};
use os::Os;
use quorum::MemberId;
use replica::{Frame, Links as _, MemberReport};
use serverstate::{Parts, ServerInfo, SessionRecords, SilentHost};
use sockets::{Client, Commands};
use std::sync::Arc;
use std::time::Duration;

/// Lets in who is in the same set.
struct Set(Identity);

impl Admission for Set {
    fn identity(&self) -> Identity {
        self.0.clone()
    }

    fn admit(&self, hello: &LinkHello) -> Result<(), LinkRefusal> {
        self.0.check(hello, true).map_err(|mismatch| mismatch.to_string().into())
    }

    fn told_of_removal(&self, _document: &[u8]) {}
}

struct Member {
    id: MemberId,
    port: u16,
    service: Arc<commands::Service>,
    links: Links,
    server: Server<Commands>,
    _directory: tempfile::TempDir,
}

fn member(id: u64) -> Member {
    let directory = tempfile::tempdir().unwrap();
    let os = Os::real();
    let memory = Account::new(1 << 30);
    let registry = Arc::new(telemetry::Registry::new());
    let options = engine::Options::new(directory.path());
    let engine = Engine::open(os.clone(), registry, options).unwrap();
    let options = CatalogOptions::new(os.clone(), directory.path().join("tmp"));
    let catalog = Catalog::open(engine, options).unwrap();
    let service = commands::Service::new(Parts {
        os: os.clone(),
        session_records: SessionRecords::open(&catalog).unwrap(),
        catalog,
        info: ServerInfo::default(),
        host: Arc::new(SilentHost),
        memory: Arc::clone(&memory),
        follows: false,
    });
    let id = MemberId(id);
    let set_id = ObjectId::from_bytes([7; 12]);
    let set = Set(Identity { set: "rs".to_owned(), set_id, member: id, lineage: 0 });
    let links =
        Links::new(Dialer::new(os.clone(), None, false), memory, Arc::new(set), Tuning::default());
    let (server, port) = sockets::serve(&os, &service, NetOptions::default(), &Arc::default());
    Member { id, port, service, links, server, _directory: directory }
}

impl Member {
    fn others(&self, others: &[&Member]) {
        let peers: Vec<_> =
            others.iter().map(|m| (m.id, HostAndPort::new("127.0.0.1", m.port))).collect();
        self.links.set_peers(&peers).unwrap();
    }

    fn send(&self, to: &Member, term: u64) {
        let report = MemberReport { from: self.id, term, ..MemberReport::default() };
        self.links.sender().send(to.id, Frame::Report(report));
    }

    /// The first frame that comes.
    fn received(&self) -> (MemberId, u64) {
        let inbox = self.links.inbox();
        for _ in 0..100 {
            inbox.wait(Duration::from_millis(100));
            while let Some(arrival) = inbox.take(true) {
                if let Arrival::Frame(received) = arrival
                    && let Frame::Report(report) = &received.frame
                {
                    return (received.from, report.term);
                }
            }
        }
        panic!("nothing came");
    }
}

fn call(port: u16, body: &RawDocument) -> RawDocumentBuf {
    Client::connect(port, Duration::from_mins(1)).ask(body)
}

#[test]
fn two_servers_exchange_frames_on_the_port_that_serves_clients() {
    let (one, two) = (member(1), member(2));
    for member in [&one, &two] {
        member.service.links.set(Some(member.links.acceptor()));
    }
    one.others(&[&two]);
    two.others(&[&one]);
    one.send(&two, 7);
    two.send(&one, 8);
    assert_eq!(two.received(), (one.id, 7));
    assert_eq!(one.received(), (two.id, 8));
    for member in [&one, &two] {
        let reply = call(member.port, &rawdoc! { "hello": 1, "$db": "admin" });
        assert!(reply.get_f64("ok").unwrap() > 0.0, "clients are served as before");
    }
    let link = rawdoc! {
        "version": 1, "set": "another", "setId": ObjectId::from_bytes([7; 12]), "from": 3_i64,
        "to": 1_i64, "lineage": 0_i64, "start": 9_i64, "connection": 1_i64,
    };
    let reply = call(one.port, &rawdoc! { "hello": 1, "fernLink": link, "$db": "admin" });
    assert_eq!(reply.get_i32("code").unwrap(), 93);
    assert!(reply.get_str("errmsg").unwrap().contains("it is in the set 'another'"), "{reply:?}");
    // The sockets of links are not the server's: it ends at once, and they go on.
    one.server.stop(Duration::from_secs(5));
    two.send(&one, 9);
    assert_eq!(one.received(), (two.id, 9));
    assert!(one.links.shutdown(Duration::from_secs(5)));
    assert!(two.links.shutdown(Duration::from_secs(5)));
}
