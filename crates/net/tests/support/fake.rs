//! A small service behind real sockets, and a client that speaks in frames.
#![allow(dead_code, reason = "each test file uses a part of it")]

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use dispatch::{
    ConnectionInfo, HandedOver, MakeWaker, OpKind, Reply, Request, TakeOver, Unfinished, Wake,
};
use limits::{Arrivals, BeforeLogin};
use net::Service;
use net::{Endpoint, Listener, NetOptions, NetStats, Server};
use os::Os;
use os::sync::Mutex;
use parking_lot::Condvar;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use wire::{Codec, Compressor, Message, MsgFlags, ReplyFlags};

/// Answers a handful of commands made for these tests.
#[derive(Default)]
pub(crate) struct Commands {
    pub(crate) opened: AtomicUsize,
    pub(crate) closed: AtomicUsize,
    pub(crate) ran: AtomicUsize,
    pub(crate) left: AtomicUsize,
    pub(crate) close_panics: AtomicBool,
    pub(crate) interrupted: Mutex<bool>,
    pub(crate) wake: Condvar,
    /// Requests to `meet` that have come. Who waits for them says so.
    pub(crate) met: Mutex<usize>,
    pub(crate) all_met: os::sync::Condvar,
    /// Whose clock times of waits are.
    pub(crate) os: OnceLock<Os>,
    /// What requests to `await` wait for, and how to tell that it came.
    pub(crate) happened: AtomicBool,
    pub(crate) changed: OnceLock<Wake>,
    /// What runs requests to `watch` again, and whether it came.
    pub(crate) wakers: Arc<Mutex<Vec<Wake>>>,
    pub(crate) news: Arc<AtomicBool>,
    /// Answers that were given, or given up.
    pub(crate) dropped: Arc<AtomicUsize>,
    /// Connections that left.
    pub(crate) handed_over: Arc<Mutex<Vec<HandedOver>>>,
    /// Clients have to log in, by `login`.
    pub(crate) asks_for_logins: AtomicBool,
    pub(crate) before_login: BeforeLogin,
    pub(crate) arrivals: Arrivals,
    pub(crate) logged_in: Mutex<BTreeSet<u64>>,
    /// No compressor was agreed.
    pub(crate) plain_only: AtomicBool,
    /// Whoever comes is let in beyond the usual number.
    pub(crate) lets_in_beyond: AtomicBool,
}

/// Counted where it is dropped after `news` have come.
struct Held {
    news: Arc<AtomicBool>,
    dropped: Arc<AtomicUsize>,
}

impl Drop for Held {
    fn drop(&mut self) {
        for _ in 0..1000 {
            if self.news.load(Ordering::SeqCst) {
                self.dropped.fetch_add(1, Ordering::SeqCst);
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Service for Commands {
    type Connection = (u64, ConnectionInfo);

    fn open_connection(&self, peer: ConnectionInfo) -> Arc<(u64, ConnectionInfo)> {
        let before = self.opened.fetch_add(1, Ordering::Relaxed);
        Arc::new((before as u64 + 1, peer))
    }

    fn number(&self, connection: &(u64, ConnectionInfo)) -> u64 {
        connection.0
    }

    fn before_login(&self, (number, _): &(u64, ConnectionInfo)) -> Option<&BeforeLogin> {
        let asks = self.asks_for_logins.load(Ordering::Relaxed);
        (asks && !self.logged_in.lock().contains(number)).then_some(&self.before_login)
    }

    fn arrivals(&self) -> Option<&Arrivals> {
        Some(&self.arrivals)
    }

    fn run(&self, (number, peer): &(u64, ConnectionInfo), request: &Request<'_>) -> Reply {
        self.ran.fetch_add(1, Ordering::Relaxed);
        let (name, value) = request.body.iter().next().unwrap().unwrap();
        match name.as_str() {
            "ping" | "isMaster" => rawdoc! {
                "ok": 1.0, "db": request.database, "id": *number as i64, "remote": peer.remote.as_str(),
                "query": request.op == OpKind::Query,
                "documents": request.sequences.iter().map(|(_, d)| d.len() as i32).sum::<i32>(),
            }
            .into(),
            "panic" => panic!("asked for"),
            "login" => {
                self.logged_in.lock().insert(*number);
                rawdoc! { "ok": 1.0 }.into()
            }
            "hang_up" => Reply { hang_up: true, ..rawdoc! {}.into() },
            "last" => Reply { is_last: true, ..rawdoc! { "ok": 1.0 }.into() },
            // The connection is another's from then on.
            "link" => {
                let kept = Arc::clone(&self.handed_over);
                let take: TakeOver = Box::new(move |link| kept.lock().push(link));
                Reply { hand_over: Some(take), ..rawdoc! { "ok": 1.0 }.into() }
            }
            "give" => {
                let bytes = value.as_i32().unwrap() as usize;
                rawdoc! { "ok": 1.0, "filler": "x".repeat(bytes) }.into()
            }
            // Its end waits for `news`, which comes once the client has the reply.
            "hold" => {
                let bytes = value.as_i32().unwrap() as usize;
                let held = Held { news: Arc::clone(&self.news), dropped: Arc::clone(&self.dropped) };
                let document = rawdoc! { "ok": 1.0, "filler": "x".repeat(bytes) };
                Reply { until_sent: Some(Box::new(held)), ..document.into() }
            }
            "stream" => {
                let left = value.as_i32().unwrap();
                let next = (request.exhaust_allowed && left > 0)
                    .then(|| rawdoc! { "stream": left - 1, "$db": "x" });
                Reply { exhaust: next, ..rawdoc! { "ok": 1.0, "left": left }.into() }
            }
            "flood" => {
                let left = value.as_i32().unwrap();
                let next = (request.exhaust_allowed && left > 0)
                    .then(|| rawdoc! { "flood": left - 1, "$db": "x" });
                let document = rawdoc! { "ok": 1.0, "left": left, "filler": "x".repeat(1_000_000) };
                Reply { exhaust: next, ..document.into() }
            }
            "wait" => {
                let mut interrupted = self.interrupted.lock();
                if !*interrupted {
                    self.wake.wait_for(&mut interrupted, Duration::from_secs(20));
                }
                rawdoc! { "ok": 1.0, "interrupted": *interrupted }.into()
            }
            // Returns once so many requests of its kind were here: each waits for the last one.
            "meet" => {
                let all = value.as_i32().unwrap() as usize;
                let mut met = self.met.lock();
                *met += 1;
                self.all_met.notify_all();
                while *met < all {
                    self.all_met.wait(&mut met);
                }
                rawdoc! { "ok": 1.0 }.into()
            }
            // Works until it is interrupted, and says nothing meanwhile.
            "spin" => {
                while !*self.interrupted.lock() {
                    std::hint::spin_loop();
                }
                rawdoc! { "ok": 1.0 }.into()
            }
            "await" => {
                let now = self.os.get().unwrap().clock.monotonic();
                let time = Duration::from_millis(value.as_i32().unwrap() as u64);
                let until = request.waited_until.unwrap_or(now + time);
                if now < until && !self.happened.load(Ordering::SeqCst) {
                    return Reply { wait: Some(until), ..rawdoc! {}.into() };
                }
                let next = request.exhaust_allowed.then(|| request.body.to_owned());
                Reply { exhaust: next, ..rawdoc! { "ok": 1.0 }.into() }
            }
            // Waits for `news`, whoever runs it again.
            "watch" => {
                let now = self.os.get().unwrap().clock.monotonic();
                let time = Duration::from_millis(value.as_i32().unwrap() as u64);
                let until = request.waited_until.unwrap_or(now + time);
                let has_news = || now >= until || self.news.load(Ordering::SeqCst);
                if !has_news() {
                    let waker = request.waker.map(|maker| (maker.0)());
                    self.wakers.lock().extend(waker);
                    if !has_news() {
                        return Reply { wait: Some(until), ..rawdoc! {}.into() };
                    }
                }
                rawdoc! { "ok": 1.0 }.into()
            }
            // Is done at once, and its answer waits for `news`.
            "finish" => {
                let waker = request.finisher.expect("each message may be answered later");
                let number = value.as_i32().unwrap();
                let parts = (Arc::clone(&self.wakers), Arc::clone(&self.news));
                Box::new(Rest { number, parts, dropped: Arc::clone(&self.dropped) }).go_on(waker)
            }
            _ => rawdoc! { "ok": 0.0, "code": 59 }.into(),
        }
    }

    /// Called outside of a command: what panics here is met by the network's own code.
    fn write_refused(&self, _: &(u64, ConnectionInfo), _: &errors::Error) {
        panic!("asked for by an insert that makes no sense");
    }

    fn close_connection(&self, _: &(u64, ConnectionInfo)) {
        self.closed.fetch_add(1, Ordering::Relaxed);
        assert!(!self.close_panics.load(Ordering::Relaxed), "asked for");
    }

    fn is_let_in_beyond(&self, from: std::net::IpAddr) -> bool {
        from.is_loopback() && self.lets_in_beyond.load(Ordering::Relaxed)
    }

    fn agreed(&self, _: &(u64, ConnectionInfo), compressor: Compressor) -> bool {
        compressor == Compressor::Noop || !self.plain_only.load(Ordering::Relaxed)
    }

    fn on_change(&self, wake: Wake) {
        assert!(self.changed.set(wake).is_ok(), "told once");
    }

    fn client_left(&self, _: &(u64, ConnectionInfo)) {
        self.left.fetch_add(1, Ordering::Relaxed);
        self.interrupt_all();
    }

    fn interrupt_all(&self) {
        *self.interrupted.lock() = true;
        self.wake.notify_all();
    }
}

/// The rest of a request to `finish`.
struct Rest {
    number: i32,
    parts: (Arc<Mutex<Vec<Wake>>>, Arc<AtomicBool>),
    dropped: Arc<AtomicUsize>,
}

impl Unfinished for Rest {
    fn go_on(self: Box<Self>, waker: MakeWaker<'_>) -> Reply {
        let (wakers, news) = &self.parts;
        assert!(self.number != 13 || !news.load(Ordering::SeqCst), "asked for");
        if !news.load(Ordering::SeqCst) {
            wakers.lock().push((waker.0)());
            if !news.load(Ordering::SeqCst) {
                let until = Os::real().clock.monotonic() + Duration::from_mins(1);
                return Reply { wait: Some(until), unfinished: Some(self), ..Reply::default() };
            }
        }
        rawdoc! { "ok": 1.0, "number": self.number }.into()
    }

    fn bytes(&self) -> usize {
        1000
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

pub(crate) struct Running {
    pub(crate) server: Server<Commands>,
    pub(crate) service: Arc<Commands>,
    pub(crate) stats: Arc<NetStats>,
    pub(crate) address: SocketAddr,
}

pub(crate) fn start_with(options: NetOptions) -> Running {
    let os = Os::real();
    let any = Endpoint::resolve("127.0.0.1", 0, false).unwrap().remove(0);
    let listener = Listener::bind(&any, &*os.vfs).unwrap();
    let Endpoint::Tcp(address) = *listener.endpoint() else { panic!("not TCP") };
    let (service, stats) = (Arc::new(Commands::default()), Arc::new(NetStats::default()));
    assert!(service.os.set(os.clone()).is_ok(), "set once");
    let server =
        Server::start(&os, vec![listener], Arc::clone(&service), options, Arc::clone(&stats))
            .unwrap();
    Running { server, service, stats, address }
}

pub(crate) fn start() -> Running {
    start_with(NetOptions::default())
}

impl Running {
    pub(crate) fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, codec: Codec::new() }
    }
}

pub(crate) fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("never happened: {what}");
}

/// A client that speaks in frames.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) codec: Codec,
}

pub(crate) struct Answer {
    pub(crate) request_id: i32,
    pub(crate) response_to: i32,
    pub(crate) flags: MsgFlags,
    pub(crate) packed: Option<Compressor>,
    pub(crate) document: RawDocumentBuf,
    pub(crate) failure: bool,
}

pub(crate) fn msg(flags: MsgFlags, body: &RawDocument) -> Vec<u8> {
    let mut frame = Vec::new();
    wire::encode_msg(&mut frame, 77, 0, flags, body);
    frame
}

pub(crate) fn ping() -> RawDocumentBuf {
    rawdoc! { "ping": 1, "$db": "admin" }
}

impl Client {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next frame, or `None` when the server closed.
    pub(crate) fn frame(&mut self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 4];
        match self.stream.read_exact(&mut frame) {
            Ok(()) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
                ) =>
            {
                return None;
            }
            Err(error) => panic!("{error}"),
        }
        let length = u32::from_le_bytes(frame[..4].try_into().unwrap()) as usize;
        frame.resize(length, 0);
        self.stream.read_exact(&mut frame[4..]).unwrap();
        Some(frame)
    }

    pub(crate) fn receive(&mut self) -> Answer {
        let mut frame = self.frame().expect("the server closed");
        let mut packed = None;
        if frame[12..16] == wire::opcode::COMPRESSED.to_le_bytes() {
            let (plain, compressor) = self.codec.decompress(&frame).unwrap();
            (frame, packed) = (plain, Some(compressor));
        }
        let (header, message) = wire::decode(&frame).unwrap();
        let (flags, document, failure) = match &message {
            Message::Msg(msg) => (msg.flags, msg.body, false),
            Message::Reply(reply) => {
                let failure = reply.flags.0 & ReplyFlags::QUERY_FAILURE.0 != 0;
                (MsgFlags::NONE, reply.documents[0], failure)
            }
            other => panic!("{other:?} is no reply"),
        };
        Answer {
            request_id: header.request_id,
            response_to: header.response_to,
            flags,
            packed,
            document: document.to_owned(),
            failure,
        }
    }

    pub(crate) fn call(&mut self, body: &RawDocument) -> RawDocumentBuf {
        self.send(&msg(MsgFlags::NONE, body));
        let answer = self.receive();
        assert_eq!(answer.response_to, 77);
        answer.document
    }

    pub(crate) fn is_closed(&mut self) -> bool {
        self.frame().is_none()
    }
}

pub(crate) fn ok(document: &RawDocument) -> bool {
    document.get_f64("ok").unwrap() > 0.5
}
