//! A member with a port of its own, and no server behind it: what `net` and `hello` do for links, in short.

use bson::oid::ObjectId;
use dispatch::LinkAcceptor;
use limits::Account;
use links::stand_in::Port;
use links::{
    Admission, Arrival, Dialer, HostAndPort, Identity, LinkHello, LinkRefusal, Links, Mismatch,
    Tuning,
};
use os::Os;
use quorum::{Body, Content, Descriptor, Entry, MemberId, Message, Position};
use replica::{Frame, Links as _, MemberReport};
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Lets in members that it knows.
pub(crate) struct Set {
    pub(crate) identity: Mutex<Identity>,
    pub(crate) known: Mutex<BTreeSet<MemberId>>,
    /// What it was told of its set by those who do not know it.
    pub(crate) told: Mutex<Vec<Vec<u8>>>,
}

/// What is told of the set to whoever is not known.
pub(crate) const SET_NOW: &[u8] = b"the set";

impl Admission for Set {
    fn identity(&self) -> Identity {
        self.identity.lock().unwrap().clone()
    }

    fn admit(&self, hello: &LinkHello) -> Result<(), LinkRefusal> {
        let known = self.known.lock().unwrap().contains(&hello.from);
        self.identity().check(hello, known).map_err(|mismatch| LinkRefusal {
            cause: mismatch.to_string(),
            document: matches!(mismatch, Mismatch::Unknown(_)).then(|| SET_NOW.to_vec()),
        })
    }

    fn told_of_removal(&self, document: &[u8]) {
        self.told.lock().unwrap().push(document.to_vec());
    }
}

pub(crate) fn set_id() -> ObjectId {
    ObjectId::from_bytes([7; 12])
}

/// A port at that number, or at any.
pub(crate) fn open_port(port: u16, acceptor: Arc<dyn LinkAcceptor>) -> Port {
    let listener = eventually("the port is free", || TcpListener::bind(("127.0.0.1", port)).ok());
    Port::open(&Os::real(), listener, acceptor).unwrap()
}

/// A member.
pub(crate) struct Member {
    pub(crate) id: MemberId,
    pub(crate) set: Arc<Set>,
    pub(crate) links: Links,
    pub(crate) memory: Arc<Account>,
    pub(crate) port: Option<Port>,
    pub(crate) number: u16,
}

/// Short pauses; limits that a busy machine does not meet.
pub(crate) fn tuning() -> Tuning {
    Tuning {
        connect: Duration::from_secs(8),
        hello: Duration::from_secs(8),
        stalled: Duration::from_secs(8),
        least_pause: Duration::from_millis(10),
        most_pause: Duration::from_millis(100),
        ..Tuning::default()
    }
}

pub(crate) fn member(id: u64) -> Member {
    member_at(id, 0, tuning())
}

pub(crate) fn member_at(id: u64, port: u16, tuning: Tuning) -> Member {
    let id = MemberId(id);
    let identity = Identity { set: "rs".to_owned(), set_id: set_id(), member: id, lineage: 0 };
    let known = (1..10).map(MemberId).collect();
    let set = Arc::new(Set {
        identity: Mutex::new(identity),
        known: Mutex::new(known),
        told: Mutex::default(),
    });
    let memory = Account::new(1 << 30);
    let admission = Arc::clone(&set);
    let links =
        Links::new(Dialer::new(Os::real(), None, false), Arc::clone(&memory), admission, tuning);
    let port = open_port(port, links.acceptor());
    let number = port.number();
    Member { id, set, links, memory, port: Some(port), number }
}

/// What has come, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Report(MemberId, u64),
    Payload(MemberId, usize),
    Lost(MemberId),
    PortClosed(MemberId),
    Up(MemberId),
    Arriving(MemberId),
}

impl Member {
    pub(crate) fn at(&self) -> HostAndPort {
        HostAndPort::new("127.0.0.1", self.number)
    }

    pub(crate) fn others(&self, others: &[&Member]) {
        let peers: Vec<_> = others.iter().map(|member| (member.id, member.at())).collect();
        self.links.set_peers(&peers).unwrap();
    }

    pub(crate) fn report(&self, to: MemberId, term: u64) {
        let report = MemberReport { from: self.id, term, ..MemberReport::default() };
        self.links.sender().send(to, Frame::Report(report));
    }

    /// An append with a payload of so many bytes, which cannot be packed.
    pub(crate) fn append(&self, to: MemberId, bytes: usize) {
        let mut seed = 5_u64;
        let noise = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed.to_be_bytes()
        });
        let mut payload: Vec<u8> = noise.take(bytes.div_ceil(8)).flatten().collect();
        payload.truncate(bytes);
        self.append_payload(to, payload);
    }

    /// An append with that payload.
    pub(crate) fn append_payload(&self, to: MemberId, payload: Vec<u8>) {
        let described = Descriptor {
            bytes: payload.len() as u32,
            checksum: crc32c::crc32c(&payload),
            ..Descriptor::default()
        };
        let entries = vec![Entry { term: 2, index: 8, content: Content::Records(described) }];
        let body = Body::Append { previous: Position { term: 2, index: 7 }, commit: 5, entries };
        let message = Message { from: self.id, to, term: 3, body };
        self.links.sender().send(to, Frame::Consensus { message, payloads: vec![payload.into()] });
    }

    /// What has come by now.
    pub(crate) fn news(&self) -> Vec<News> {
        let inbox = self.links.inbox();
        inbox.wait(Duration::from_millis(2));
        let told = |arrival| match arrival {
            Arrival::Lost(member) => News::Lost(member),
            Arrival::PortClosed(member) => News::PortClosed(member),
            Arrival::Up(member) => News::Up(member),
            Arrival::Arriving(member) => News::Arriving(member),
            Arrival::Frame(received) => match &received.frame {
                Frame::Report(report) => News::Report(received.from, report.term),
                frame @ Frame::Consensus { .. } => {
                    News::Payload(received.from, frame.payload_bytes())
                }
            },
        };
        std::iter::from_fn(|| inbox.take(true)).map(told).collect()
    }

    /// Waits until all of that has come, in any order; other news are passed over.
    pub(crate) fn expect(&self, expected: &[News]) {
        let mut left = expected.to_vec();
        let mut all = Vec::new();
        let began = now();
        while !left.is_empty() {
            let news = self.news();
            left.retain(|wanted| !news.contains(wanted));
            all.extend(news);
            assert!(now() - began < Duration::from_secs(10), "{left:?} never came, but {all:?}");
        }
    }

    /// The terms of the reports that come from that member until `last`.
    pub(crate) fn reports_until(&self, from: MemberId, last: u64) -> Vec<u64> {
        let mut terms = Vec::new();
        let began = now();
        while terms.last() != Some(&last) {
            for news in self.news() {
                match news {
                    News::Report(member, term) if member == from => terms.push(term),
                    _ => {}
                }
            }
            assert!(now() - began < Duration::from_secs(10), "until {last} came {terms:?}");
        }
        terms
    }

    /// Its process is killed: the port is closed, and every socket.
    pub(crate) fn kill(mut self) -> u16 {
        self.port = None;
        assert!(self.links.shutdown(Duration::from_secs(5)), "all threads end");
        self.number
    }
}

#[expect(clippy::disallowed_methods, reason = "a test's own time limit")]
fn now() -> Instant {
    Instant::now()
}

pub(crate) fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    for _ in 0..2000 {
        if let Some(done) = attempt() {
            return done;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("never happened: {what}");
}
