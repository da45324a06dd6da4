//! Bytes as commands with pipelines, carried out by a server that asks for users: whatever they open, their needs have
//! named it, however deep it stands in stages and views.

use crate::{Random, Target};
use auth::scram::{self, Mechanism};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, RawDocumentBuf, doc};
use catalog::{Catalog, CatalogOptions};
use commands::Service;
use dispatch::{ConnectionInfo, OpKind, Request};
use engine::Engine;
use os::Os;
use serverstate::security::AuthMode;
use serverstate::{Connection, Parts, ServerInfo, SessionRecords, SilentHost};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Collections and views that are named; some of them are there.
const NAMES: [&str; 6] = ["c0", "c1", "c2", "v0", "v1", "v2"];
const DATABASES: [&str; 2] = ["d", "e"];
/// How deep pipelines may stand in each other.
const DEPTH: u32 = 4;
/// Bytes of an input to begin with.
const LENGTH: usize = 64;
/// A server is made anew after so many inputs, or where its documents have become so many bytes: pipelines that write
/// what they have joined make more of them each time.
const INPUTS: u32 = 20_000;
const MOST_BYTES: i64 = 16 << 10;

/// Cursors that may be open.
const CURSORS: usize = 8;

/// The permit of each kind of opening, asked by a server.
pub(super) const PERMIT: Target = Target {
    name: "permit",
    corpus: || {
        let of = |seed| {
            let mut random = Random::new(seed);
            (0..LENGTH).map(|_| random.bits() as u8).collect()
        };
        (0..64).map(of).collect()
    },
    start: || {
        let mut server = Server::new();
        let mut inputs = 0;
        Box::new(move |bytes| {
            inputs += 1;
            if inputs % INPUTS == 0 || server.has_grown() {
                server = Server::new();
            }
            let mut choices = Choices { bytes, at: 0 };
            for _ in 0..4 {
                match choices.of(8) {
                    0 => server.go_on(choices.of(CURSORS)),
                    _ => server.begin(&mut choices),
                }
                if choices.at >= bytes.len() {
                    break;
                }
            }
        })
    },
};

/// A server in memory, and a connection of its first user.
struct Server {
    service: Arc<Service>,
    connection: Arc<Connection>,
    /// Open cursors, the oldest first: their database, collection and id.
    cursors: VecDeque<(String, String, i64)>,
}

impl Server {
    fn new() -> Self {
        let os = Os::real();
        let options = CatalogOptions::new(os.clone(), std::env::temp_dir());
        let catalog = Catalog::open(Engine::temporary(), options).expect("an engine in memory");
        let session_records = SessionRecords::open(&catalog).expect("an engine in memory");
        let service = Service::new(Parts {
            catalog,
            session_records,
            os,
            info: ServerInfo { auth: AuthMode::On, ..ServerInfo::default() },
            host: Arc::new(SilentHost),
            memory: limits::Account::new(1 << 30),
            follows: false,
        });
        let info = ConnectionInfo { remote: "127.0.0.1:2".into(), local: "127.0.0.1:1".into() };
        let connection = service.open_connection(info);
        let server = Self { service, connection, cursors: VecDeque::new() };
        server.log_in();
        for database in DATABASES {
            for name in &NAMES[..2] {
                let documents: Vec<_> =
                    (0..3).map(|n| doc! { "_id": n, "a": n, "b": [n, 1] }).collect();
                server.ok(database, &doc! { "insert": *name, "documents": documents });
            }
        }
        server
    }

    fn log_in(&self) {
        // Fewer rounds, as passwords are guessed by nobody here.
        self.service.security.sha256_iterations.store(5000, Ordering::Relaxed);
        let roles = doc! { "createUser": "u", "pwd": "p", "roles": ["root"] };
        self.ok("admin", &roles);
        let (login, first) = scram::Client::start(Mechanism::Sha256, "u", b"a client's nonce");
        let binary = |bytes| Binary { subtype: BinarySubtype::Generic, bytes };
        let begun = self.ok(
            "admin",
            &doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": binary(first),
            "options": { "skipEmptyExchange": true } },
        );
        let payload = begun.get_binary("payload").expect("an answer").bytes;
        let (proof, _) = login.proof(payload, "p").expect("a server's message");
        let payload = binary(proof);
        self.ok("admin", &doc! { "saslContinue": 1, "conversationId": 1, "payload": payload });
    }

    fn ok(&self, database: &str, command: &Document) -> RawDocumentBuf {
        let reply = self.run(database, command);
        assert_eq!(reply.get_f64("ok").ok(), Some(1.0), "{reply:?}");
        reply
    }

    /// Whether documents have become many.
    fn has_grown(&self) -> bool {
        let bytes_of = |database| {
            let reply = self.ok(database, &doc! { "dbStats": 1 });
            let size = reply.get("dataSize").ok().flatten();
            size.and_then(dispatch::fields::as_i64).expect("a number")
        };
        DATABASES.into_iter().map(bytes_of).sum::<i64>() > MOST_BYTES
    }

    /// Carries out a command of these choices. A cursor that it leaves stays open until there are too many.
    fn begin(&mut self, choices: &mut Choices<'_>) {
        let (database, command) = choices.command();
        let reply = self.run(database, &command);
        let Ok(cursor) = reply.get_document("cursor") else { return };
        let (Ok(id), Ok(ns)) = (cursor.get_i64("id"), cursor.get_str("ns")) else { return };
        let Some((database, collection)) = ns.split_once('.').filter(|_| id != 0) else { return };
        self.cursors.push_back((database.to_owned(), collection.to_owned(), id));
        if self.cursors.len() > CURSORS {
            let (database, collection, id) = self.cursors.pop_front().expect("there are some");
            self.run(&database, &doc! { "killCursors": collection, "cursors": [id] });
        }
    }

    /// Reads on in an open cursor, where there are so many.
    fn go_on(&mut self, at: usize) {
        let Some((database, collection, id)) = self.cursors.get(at) else { return };
        let more = doc! { "getMore": *id, "collection": collection.as_str(), "batchSize": 2 };
        let reply = self.run(database, &more);
        let cursor = reply.get_document("cursor").ok();
        let is_open = cursor.is_some_and(|cursor| cursor.get_i64("id").is_ok_and(|id| id != 0));
        if !is_open {
            self.cursors.remove(at);
        }
    }

    /// Carries a command out; what it refuses is no matter, but for what it was not authorized for.
    fn run(&self, database: &str, command: &Document) -> RawDocumentBuf {
        let body = RawDocumentBuf::try_from(command).expect("a document");
        let request = Request {
            database,
            body: &body,
            sequences: &[],
            op: OpKind::Msg,
            exhaust_allowed: false,
            request_id: 1,
            waited_until: None,
            waker: None,
            finisher: None,
        };
        let reply = self.service.run(&self.connection, &request).document;
        let misses = self.service.security.permit_misses.load(Ordering::Relaxed);
        assert_eq!(misses, 0, "{database}: {command}: {reply:?}");
        reply
    }
}

/// Choices that bytes make; where there are no more, the first of each.
struct Choices<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Choices<'_> {
    fn of(&mut self, count: usize) -> usize {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::from(byte) % count
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.of(NAMES.len())]
    }

    fn pipeline(&mut self, depth: u32) -> Vec<Document> {
        let length = if depth >= DEPTH { 1 } else { self.of(3) + 1 };
        (0..length).map(|_| self.stage(depth)).collect()
    }

    fn stage(&mut self, depth: u32) -> Document {
        let inner = depth < DEPTH;
        match self.of(16) {
            0 | 1 if inner => {
                doc! { "$lookup": { "from": self.name(), "as": "l", "let": { "x": "$a" },
                "pipeline": self.pipeline(depth + 1) } }
            }
            2 => {
                doc! { "$lookup": { "from": self.name(), "as": "l", "localField": "a", "foreignField": "b" } }
            }
            3 if inner => {
                doc! { "$unionWith": { "coll": self.name(), "pipeline": self.pipeline(depth + 1) } }
            }
            4 => doc! { "$unionWith": self.name() },
            5 | 6 if inner => {
                doc! { "$facet": { "f": self.pipeline(depth + 1), "g": self.pipeline(depth + 1) } }
            }
            7 => {
                doc! { "$graphLookup": { "from": self.name(), "startWith": "$a", "connectFromField": "a",
                "connectToField": "b", "as": "g", "maxDepth": 2 } }
            }
            8 => doc! { "$merge": { "into": self.name(), "on": "_id" } },
            9 => {
                doc! { "$merge": { "into": { "db": DATABASES[self.of(2)], "coll": self.name() } } }
            }
            10 => doc! { "$out": self.name() },
            11 => doc! { "$out": { "db": DATABASES[self.of(2)], "coll": self.name() } },
            12 => doc! { "$collStats": { "count": {} } },
            13 => doc! { "$match": { "a": { "$gte": self.of(3) as i32 } } },
            14 => doc! { "$group": { "_id": "$a", "n": { "$sum": 1 } } },
            _ => doc! { "$project": { "a": 1, "b": 1 } },
        }
    }

    /// A command, and the database it is sent to.
    fn command(&mut self) -> (&'static str, Document) {
        let database = DATABASES[self.of(DATABASES.len())];
        let name = self.name();
        let filter = doc! { "a": 1 };
        let command = match self.of(16) {
            0 => doc! { "find": name, "filter": filter, "batchSize": self.of(3) as i32 },
            1 => doc! { "count": name, "query": filter },
            2 => doc! { "distinct": name, "key": "a" },
            3 => {
                doc! { "create": NAMES[3 + self.of(3)], "viewOn": name, "pipeline": self.pipeline(1) }
            }
            4 => {
                doc! { "collMod": NAMES[3 + self.of(3)], "viewOn": name, "pipeline": self.pipeline(1) }
            }
            5 => doc! { "drop": NAMES[2 + self.of(4)] },
            6 => {
                doc! { "explain": { "aggregate": name, "pipeline": self.pipeline(0), "cursor": {} } }
            }
            7 => {
                doc! { "update": name, "updates": [{ "q": filter, "u": [{ "$set": { "b": 1 } }], "upsert": true }] }
            }
            8 => doc! { "findAndModify": name, "query": filter, "update": { "$inc": { "n": 1 } } },
            9 => {
                let id = self.of(200) as i32;
                doc! { "insert": name, "documents": [{ "_id": id, "a": id }] }
            }
            _ => {
                let first: Bson = if self.of(12) == 0 { 1.into() } else { name.into() };
                let size = self.of(3) as i32;
                doc! { "aggregate": first, "pipeline": self.pipeline(0), "cursor": { "batchSize": size } }
            }
        };
        (database, command)
    }
}
