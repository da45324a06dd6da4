//! What a command costs, from its parsed message to its reply, in instructions.
//!
//! `cargo xtask instructions` runs it under callgrind. One connection over an engine in memory: no
//! socket, no thread, no disk, so the same build counts the same everywhere.
//!
//! `cargo run --release -p commands --example command_instructions -- --times` tells instead how long users take, on
//! this machine: what being asked for adds to a request, and a login.
#![expect(clippy::needless_pass_by_value, reason = "a command reads best written in place")]
#![expect(clippy::disallowed_methods, reason = "a tool for people, never simulated")]

use auth::scram::{self, Mechanism};
use bson::spec::BinarySubtype;
use bson::{Binary, Document, RawDocumentBuf, doc};
use catalog::{Catalog, CatalogOptions};
use commands::Service;
use dispatch::writer::keep_room;
use dispatch::{ConnectionInfo, OpKind, Request};
use engine::Engine;
use os::Os;
use serverstate::security::AuthMode;
use serverstate::{Connection, Parts, ServerInfo, SessionRecords, SilentHost};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::Instructions;

/// Documents of the collection that is read and updated.
const DOCUMENTS: i32 = 2000;
/// How often an operation is counted.
const TIMES: u32 = 100;

struct Client {
    service: Arc<Service>,
    connection: Arc<Connection>,
}

impl Client {
    fn new() -> Self {
        Self::over(ServerInfo::default())
    }

    /// Of a server that asks for users, logged in as one of ten roles.
    fn of_user() -> Self {
        let client = Self::over(ServerInfo { auth: AuthMode::On, ..ServerInfo::default() });
        let roles = [
            "readAnyDatabase",
            "readWriteAnyDatabase",
            "dbAdminAnyDatabase",
            "userAdminAnyDatabase",
            "clusterMonitor",
            "clusterManager",
            "clusterAdmin",
            "hostManager",
            "backup",
            "restore",
        ];
        client.ok_in("admin", doc! { "createUser": "u", "pwd": "pencil", "roles": roles.to_vec() });
        client.log_in();
        client
    }

    /// Logs in; the time of the server's part.
    fn log_in(&self) -> Duration {
        let (login, first) = scram::Client::start(Mechanism::Sha256, "u", b"a client's nonce");
        let binary = |bytes| Binary { subtype: BinarySubtype::Generic, bytes };
        let options = doc! { "skipEmptyExchange": true };
        let begin = raw(
            doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": binary(first), "options": options },
        );
        let began = Instant::now();
        let begun = self.send_to("admin", &begin, None);
        let mut time = began.elapsed();
        let payload = begun.get_binary("payload").expect("an answer").bytes;
        let (proof, _) = login.proof(payload, "pencil").expect("a server's message");
        let go_on = raw(doc! { "saslContinue": 1, "conversationId": 1, "payload": binary(proof) });
        let began = Instant::now();
        let done = self.send_to("admin", &go_on, None);
        time += began.elapsed();
        assert_eq!(done.get_bool("done").ok(), Some(true), "{done:?}");
        time
    }

    fn over(info: ServerInfo) -> Self {
        let os = Os::real();
        let options = CatalogOptions::new(os.clone(), std::env::temp_dir());
        let catalog =
            Catalog::open(Engine::temporary(), options).expect("an engine in memory opens");
        let memory = limits::Account::new(1 << 30);
        let host = Arc::new(SilentHost);
        let session_records = SessionRecords::open(&catalog).expect("an engine in memory opens");
        let service = Service::new(Parts {
            catalog,
            session_records,
            os,
            info,
            host,
            memory,
            follows: false,
        });
        let info = ConnectionInfo { remote: "127.0.0.1:2".into(), local: "127.0.0.1:1".into() };
        let connection = service.open_connection(info);
        Self { service, connection }
    }

    /// Sends a command with its documents in a section of their own, as drivers do.
    fn send(
        &self,
        body: &RawDocumentBuf,
        section: Option<(&str, &[RawDocumentBuf])>,
    ) -> RawDocumentBuf {
        self.send_to("db", body, section)
    }

    fn send_to(
        &self,
        database: &str,
        body: &RawDocumentBuf,
        section: Option<(&str, &[RawDocumentBuf])>,
    ) -> RawDocumentBuf {
        let sequences: Vec<(&str, Vec<_>)> = section
            .into_iter()
            .map(|(name, documents)| (name, documents.iter().map(|one| &**one).collect()))
            .collect();
        let request = Request {
            database,
            body,
            sequences: &sequences,
            op: OpKind::Msg,
            exhaust_allowed: false,
            request_id: 1,
            waited_until: None,
            waker: None,
            finisher: None,
        };
        self.service.run(&self.connection, &request).document
    }

    fn ok(&self, command: Document) -> RawDocumentBuf {
        self.ok_in("db", command)
    }

    fn ok_in(&self, database: &str, command: Document) -> RawDocumentBuf {
        let reply = self.send_to(database, &raw(command), None);
        assert_eq!(reply.get_f64("ok").ok(), Some(1.0), "{reply:?}");
        reply
    }

    /// Counts a command, of a number that is never the same.
    fn row(&self, rows: &Instructions, name: &str, command: impl Fn(i32) -> Document) {
        let bodies: Vec<_> = (0..=TIMES as i32).map(|number| raw(command(number))).collect();
        rows.row(name, TIMES, 1, |number| {
            let reply = self.send(&bodies[number as usize], None);
            check(name, &reply);
            // As the server does once it is sent.
            keep_room(reply);
        });
    }

    /// Answers a message, from its bytes to the reply's.
    fn answer(&self, frame: &[u8], reply: &mut Vec<u8>) {
        let (header, message) = wire::decode(frame).expect("a message");
        let wire::Message::Msg(message) = message else { panic!("an OP_MSG") };
        let request = Request {
            database: message.database().expect("a database"),
            body: message.body,
            sequences: &message.sequences,
            op: OpKind::Msg,
            exhaust_allowed: false,
            request_id: header.request_id,
            waited_until: None,
            waker: None,
            finisher: None,
        };
        let answer = self.service.run(&self.connection, &request).document;
        reply.clear();
        wire::encode_msg(reply, 1, header.request_id, wire::MsgFlags::NONE, &answer);
        keep_room(answer);
    }

    /// Counts a command as a driver sends it: in a message, for a session, documents in a section of their own.
    fn row_of_messages(
        &self,
        rows: &Instructions,
        name: &str,
        command: impl Fn(i32) -> (Document, Option<(&'static str, Document)>),
    ) {
        let session = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
        let frames: Vec<_> = (0..=TIMES as i32)
            .map(|number| {
                let (mut body, section) = command(number);
                body.insert("lsid", doc! { "id": session.clone() });
                body.insert("$db", "db");
                let section = section.map(|(name, document)| (name, raw(document)));
                let sections: Vec<_> =
                    section.iter().map(|(name, document)| (*name, vec![&**document])).collect();
                let mut frame = Vec::new();
                let flags = wire::MsgFlags::NONE;
                wire::encode_msg_with_sequences(&mut frame, 1, 0, flags, &raw(body), &sections);
                frame
            })
            .collect();
        let mut reply = Vec::with_capacity(1024);
        rows.row(name, TIMES, 1, |number| {
            self.answer(&frames[number as usize], &mut reply);
        });
        // Behind the header, the flags and the kind of the section.
        if let Some(document) = reply.get(21..) {
            check(name, &RawDocumentBuf::from_bytes(document.to_vec()).expect("a document"));
        }
    }

    /// Counts a command that goes through all documents, for each of them.
    fn row_of_all(&self, rows: &Instructions, name: &str, command: Document) {
        let body = raw(command);
        rows.row(name, 2, DOCUMENTS as u32, |_| check(name, &self.send(&body, None)));
    }
}

/// A reply that says so has gone through; walking it is not what is counted.
fn check(name: &str, reply: &RawDocumentBuf) {
    let bytes = reply.as_bytes();
    let refused =
        bytes.get(5..12) == Some(b"errmsg\0") || bytes.get(5..17) == Some(b"writeErrors\0");
    assert!(!refused, "{name}: {reply:?}");
}

fn raw(document: Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(&document).expect("a document")
}

fn person(number: i32) -> Document {
    doc! {
        "_id": number, "name": format!("person {number}"), "group": number % 20, "age": number % 80,
        "score": f64::from(number) / 3.0, "text": "x".repeat(150),
    }
}

fn main() {
    if std::env::args().any(|argument| argument == "--times") {
        return times();
    }
    let rows = Instructions::of_arguments();
    let client = Client::new();
    let people: Vec<_> = (0..DOCUMENTS).map(|number| raw(person(number))).collect();
    client.send(&raw(doc! { "insert": "c" }), Some(("documents", &people)));
    let index = |field: &str| doc! { "key": { field: 1 }, "name": field };
    client.ok(doc! { "createIndexes": "c", "indexes": [index("name"), index("age")] });
    reads(&client, &rows);
    pipelines(&client, &rows);
    writes(&client, &rows);
    messages(&client, &rows);
    // Before the batches: these fill memory, and whoever commits after them moves it on.
    transactions(&client, &rows);
    batches(&client, &rows);
    unique_keys(&client, &people, &rows);
    drop(client);
    by_a_user(&people, &rows);
}

/// How long users take: requests with and without, in turns, and logins.
#[expect(clippy::print_stdout, reason = "the figures")]
fn times() {
    const ROUNDS: usize = 21;
    const REQUESTS: u32 = 50_000;
    let clients = [Client::new(), Client::of_user()];
    for client in &clients {
        client.ok(doc! { "insert": "c", "documents": [person(7)] });
    }
    for (name, body) in [
        ("ping", doc! { "ping": 1 }),
        ("find by _id", doc! { "find": "c", "filter": { "_id": 7 } }),
    ] {
        let body = raw(body);
        let one = |client: &Client| {
            let began = Instant::now();
            for _ in 0..REQUESTS {
                check(name, &client.send(&body, None));
            }
            began.elapsed().as_secs_f64() * 1e9 / f64::from(REQUESTS)
        };
        let mut rounds: Vec<_> = (0..ROUNDS).map(|_| clients.each_ref().map(one)).collect();
        rounds.sort_by(|one, other| (one[1] - one[0]).total_cmp(&(other[1] - other[0])));
        let [without, with] = rounds[ROUNDS / 2];
        println!("{name}: {without:.0} ns, by a user {with:.0} ns: {:.0} ns more", with - without);
    }
    let mut logins: Vec<_> = (0..500).map(|_| clients[1].log_in()).collect();
    logins.sort();
    println!("a login: {:.1} us", logins[logins.len() / 2].as_secs_f64() * 1e6);
}

/// What asking for users costs.
fn by_a_user(people: &[RawDocumentBuf], rows: &Instructions) {
    let client = Client::of_user();
    client.send(&raw(doc! { "insert": "c" }), Some(("documents", people)));
    client.row(rows, "by a user: ping", |_| doc! { "ping": 1 });
    client.row(
        rows,
        "by a user: find by _id",
        |n| doc! { "find": "c", "filter": { "_id": n * 7 } },
    );
    client.ok(doc! { "create": "plain" });
    client.row(
        rows,
        "by a user: insert of one",
        |n| doc! { "insert": "plain", "documents": [person(n)] },
    );
    client.row(rows, "by a user: $inc", |n| {
        doc! { "update": "c", "updates": [{ "q": { "_id": n * 7 }, "u": { "$inc": { "score": 1 } } }] }
    });
}

fn reads(client: &Client, rows: &Instructions) {
    client.row(rows, "ping", |_| doc! { "ping": 1 });
    client.row(rows, "find by _id", |n| doc! { "find": "c", "filter": { "_id": n * 7 } });
    client.row(rows, "find by a secondary key", |n| {
        doc! { "find": "c", "filter": { "name": format!("person {}", n * 7) } }
    });
    client.row(rows, "find by _id, projected", |n| {
        doc! { "find": "c", "filter": { "_id": n * 7 }, "projection": { "name": 1 } }
    });
    client.row(
        rows,
        "count by a secondary key",
        |n| doc! { "count": "c", "query": { "age": n % 80 } },
    );
    let range = doc! {
        "find": "c", "filter": { "_id": { "$gte": 500, "$lt": 600 } }, "batchSize": 1000,
    };
    let range = raw(range);
    rows.row("range of 100, a document", 10, 100, |_| check("range", &client.send(&range, None)));
    let ten = |n: i32| {
        doc! { "find": "c", "filter": { "_id": { "$gte": n * 7 } }, "sort": { "_id": 1 }, "limit": 10 }
    };
    client.row(rows, "ten by a range of _id", ten);
    client.row(rows, "ten by a range of _id, planned", |n| {
        let mut command = ten(n);
        command.insert("let", doc! {});
        command
    });
    // Two documents come first, the rest in one getMore.
    let open = doc! { "find": "c", "batchSize": 2 };
    let cursors: Vec<_> = (0..3)
        .map(|_| {
            let reply = client.ok(open.clone());
            let id = reply.get_document("cursor").and_then(|cursor| cursor.get_i64("id"));
            raw(doc! { "getMore": id.expect("a cursor"), "collection": "c", "batchSize": 1500 })
        })
        .collect();
    rows.row("getMore, a document", 2, 1500, |n| {
        check("getMore", &client.send(&cursors[n as usize], None));
    });
    let scan = doc! { "count": "c", "query": { "score": { "$lt": 0.0 } } };
    client.row_of_all(rows, "scan, a document", scan);
    client.row_of_all(
        rows,
        "sort, a document",
        doc! {
            "find": "c", "sort": { "score": -1 }, "batchSize": 1, "singleBatch": true,
        },
    );
    client.row_of_all(rows, "distinct, a document", doc! { "distinct": "c", "key": "group" });
}

/// Reads by keys of which there is one document at most. In a collection of their own: another index would be a cost
/// of every write.
fn unique_keys(client: &Client, people: &[RawDocumentBuf], rows: &Instructions) {
    client.send(&raw(doc! { "insert": "unique" }), Some(("documents", people)));
    let index = doc! { "key": { "name": 1 }, "name": "name", "unique": true };
    client.ok(doc! { "createIndexes": "unique", "indexes": [index] });
    let name = |n: i32| format!("person {}", n * 7);
    client.row(
        rows,
        "find by a unique key",
        |n| doc! { "find": "unique", "filter": { "name": name(n) } },
    );
    client.row(rows, "find by a unique key, planned", |n| {
        doc! { "find": "unique", "filter": { "name": { "$eq": name(n) } } }
    });
    client.row(rows, "count by _id", |n| doc! { "count": "unique", "query": { "_id": n * 7 } });
    client.row(rows, "count by _id, planned", |n| {
        doc! { "count": "unique", "query": { "_id": { "$eq": n * 7 } } }
    });
}

fn pipelines(client: &Client, rows: &Instructions) {
    let run =
        |pipeline: Vec<Document>| doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} };
    client.row(rows, "a small pipeline", |n| {
        run(vec![
            doc! { "$match": { "_id": n * 7 } },
            doc! { "$project": { "name": 1, "twice": { "$multiply": ["$score", 2] } } },
        ])
    });
    let group = doc! { "$group": { "_id": "$group", "sum": { "$sum": "$score" } } };
    client.row_of_all(rows, "$group, a document", run(vec![group]));
    let lookup = doc! { "$lookup": {
        "from": "c", "localField": "age", "foreignField": "_id", "as": "other",
    } };
    let count = doc! { "$match": { "other.name": "nobody" } };
    client.row_of_all(rows, "$lookup by _id, a document", run(vec![lookup, count]));
}

fn writes(client: &Client, rows: &Instructions) {
    let update = |n: i32, change: Document| {
        doc! { "update": "c", "updates": [{ "q": { "_id": n * 7 }, "u": change }] }
    };
    client.row(rows, "$set of 150 bytes", |n| {
        update(n, doc! { "$set": { "text": "y".repeat(150) } })
    });
    client.row(rows, "$inc", |n| update(n, doc! { "$inc": { "score": 1 } }));
    client.row(rows, "$inc of an indexed field", |n| update(n, doc! { "$inc": { "age": 1 } }));
    client.row(rows, "replace", |n| update(n, person(n * 7)));
    client.row(rows, "findAndModify", |n| {
        doc! { "findAndModify": "c", "query": { "_id": n * 7 }, "update": { "$inc": { "score": 1 } } }
    });
    client.row(rows, "upsert of a new document", |n| {
        doc! { "update": "c", "updates": [
            { "q": { "_id": n + 100_000 }, "u": { "$set": { "a": 1 } }, "upsert": true },
        ] }
    });
    client.row(rows, "delete by _id", |n| {
        doc! { "delete": "c", "deletes": [{ "q": { "_id": n + 100_000 }, "limit": 1 }] }
    });
    client.ok(doc! { "create": "plain" });
    client.row(rows, "insert of one", |n| doc! { "insert": "plain", "documents": [person(n)] });
}

/// The same as drivers send it, with what the message itself costs.
fn messages(client: &Client, rows: &Instructions) {
    client.row_of_messages(rows, "message: ping", |_| (doc! { "ping": 1 }, None));
    client.row_of_messages(rows, "message: find by _id", |n| {
        let find =
            doc! { "find": "c", "filter": { "_id": n * 7 }, "limit": 1, "singleBatch": true };
        (find, None)
    });
    client.row_of_messages(rows, "message: $inc", |n| {
        let update = doc! { "q": { "_id": n * 7 }, "u": { "$inc": { "score": 1 } } };
        (doc! { "update": "c", "ordered": true }, Some(("updates", update)))
    });
    client.ok(doc! { "create": "sent" });
    client.row_of_messages(rows, "message: insert of one", |n| {
        (doc! { "insert": "sent", "ordered": true }, Some(("documents", person(n))))
    });
}

/// Inserts of a thousand documents, by indexes.
fn batches(client: &Client, rows: &Instructions) {
    for indexes in [0, 1, 3, 8] {
        let collection = format!("batches{indexes}");
        client.ok(doc! { "create": &collection });
        let specs: Vec<_> = (0..indexes)
            .map(|n| doc! { "key": { format!("k{n}"): 1 }, "name": format!("k{n}") })
            .collect();
        if indexes > 0 {
            client.ok(doc! { "createIndexes": &collection, "indexes": specs });
        }
        let of = |number: i32| {
            let mut document = person(number);
            let scattered = |n: i32| number.wrapping_mul(0x9E37_79B1_u32 as i32) ^ (n << 20);
            document.extend((0..8).map(|n| (format!("k{n}"), scattered(n).into())));
            raw(document)
        };
        let batches: Vec<Vec<_>> =
            (0..3).map(|batch| (batch * 1000..(batch + 1) * 1000).map(of).collect()).collect();
        let body = raw(doc! { "insert": &collection, "ordered": true });
        let name = format!("insert of 1,000 with {indexes} indexes, a document");
        rows.row(&name, 2, 1000, |n| {
            check(&name, &client.send(&body, Some(("documents", &batches[n as usize]))));
        });
    }
}

fn transactions(client: &Client, rows: &Instructions) {
    let session = doc! { "id": Binary {
        subtype: BinarySubtype::Uuid, bytes: vec![7; 16],
    } };
    // What stands in a command of the transaction of this number; `number` is never the same.
    let within = |mut command: Document, number: i32| {
        let ids = doc! {
            "lsid": session.clone(), "txnNumber": i64::from(number) + 1, "autocommit": false,
        };
        command.extend(ids);
        command
    };
    let update = |number: i32, at: i32| {
        let change = doc! { "q": { "_id": number * 2 + at }, "u": { "$inc": { "score": 1 } } };
        within(doc! { "update": "c", "updates": [change] }, number)
    };
    // The uncounted call has the largest number, and numbers of a session only grow: it comes first
    // here too.
    let times = TIMES as i32;
    let bodies: Vec<_> = (0..=times)
        .map(|at| if at == times { 0 } else { at + 1 })
        .map(|number| {
            let mut first = update(number, 0);
            first.insert("startTransaction", true);
            let commit = within(doc! { "commitTransaction": 1, "$db": "admin" }, number);
            [raw(first), raw(update(number, 1)), raw(commit)]
        })
        .collect();
    rows.row("begin, two updates, commit", TIMES, 1, |number| {
        let [first, second, commit] = &bodies[number as usize];
        check("update", &client.send(first, None));
        check("update", &client.send(second, None));
        check("commit", &client.send_to("admin", commit, None));
    });
}
