//! Damaged and misshapen commands: every one gets an answer, none a panic.
//!
//! `wire` refuses malformed BSON before it comes here; this shows that nothing depends on that.

use super::Client;
use crate::registry::COMMANDS;
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use dispatch::{OpKind, Request};

/// A small generator, so that a failure repeats.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

fn corpus() -> Vec<Document> {
    vec![
        doc! { "find": "c", "filter": { "a": { "$gt": 1 } }, "sort": { "a": 1 }, "limit": 3, "batchSize": 1 },
        doc! { "insert": "c", "documents": [{ "_id": 1, "a": [1, 2] }, { "a": "x" }], "ordered": false },
        doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "a": 2 } }, "multi": false }] },
        doc! { "delete": "c", "deletes": [{ "q": { "a": 1 }, "limit": 1 }] },
        doc! { "getMore": 5_i64, "collection": "c", "batchSize": 2 },
        doc! { "killCursors": "c", "cursors": [5_i64, 6_i64] },
        doc! { "aggregate": "c", "pipeline": [{ "$match": { "a": 1 } }, { "$sort": { "a": 1 } }], "cursor": {} },
        doc! { "findAndModify": "c", "query": { "a": 1 }, "update": { "$inc": { "a": 1 } }, "new": true },
        doc! { "distinct": "c", "key": "a", "query": {} },
        doc! { "count": "c", "query": { "a": null }, "skip": 1 },
        doc! { "explain": { "find": "c", "filter": { "a": 1 } }, "verbosity": "queryPlanner" },
        doc! { "create": "d", "compression": "zlib" },
        doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1, "b": -1 }, "name": "x" }] },
        doc! { "collMod": "c", "index": { "name": "x", "hidden": true } },
        doc! { "dropIndexes": "c", "index": ["x"] },
        doc! { "listCollections": 1, "filter": { "name": "c" }, "cursor": { "batchSize": 1 } },
        doc! { "listDatabases": 1, "nameOnly": true },
        doc! { "currentOp": 1, "$all": true, "op": "command" },
        doc! { "serverStatus": 1, "metrics": 0 },
        doc! { "hello": 1, "compression": ["snappy"], "client": { "driver": { "name": "x" }, "os": { "type": "y" } } },
        doc! { "endSessions": [{ "id": bson::Uuid::from_bytes([1; 16]) }] },
        doc! { "ping": 1, "writeConcern": { "w": 1 }, "readConcern": { "level": "local" }, "maxTimeMS": 5 },
        doc! { "setParameter": 1, "cursorTimeoutMillis": 100_000 },
    ]
}

fn run(client: &Client, body: &RawDocument) {
    for database in ["admin", "db"] {
        let request = Request {
            database,
            body,
            sequences: &[],
            op: OpKind::Msg,
            exhaust_allowed: true,
            request_id: 1,
            waited_until: None,
            waker: None,
            finisher: None,
        };
        let reply = client.service.run(&client.connection, &request);
        let reply = Document::try_from(&reply.document).unwrap();
        assert!(reply.get_f64("ok").is_ok(), "{reply}");
    }
}

#[test]
fn flipped_bytes_get_an_answer() {
    let client = Client::new();
    client.service.end_waits();
    let corpus: Vec<_> = corpus()
        .iter()
        .map(|command| RawDocumentBuf::try_from(command).unwrap().into_bytes())
        .collect();
    let mut numbers = Numbers(42);
    for _ in 0..4000 {
        let mut bytes = corpus[numbers.below(corpus.len())].clone();
        for _ in 0..=numbers.below(3) {
            let at = 4 + numbers.below(bytes.len() - 5);
            bytes[at] = numbers.next() as u8;
        }
        if let Ok(body) = RawDocument::from_bytes(&bytes) {
            run(&client, body);
        }
    }
}

#[test]
fn every_field_takes_every_type_or_refuses_it() {
    let client = Client::new();
    client.service.end_waits();
    let values = [
        Bson::Null,
        Bson::Int32(-1),
        Bson::Int64(i64::MIN),
        Bson::Double(f64::NAN),
        Bson::from("x\0y"),
        Bson::Boolean(true),
        Bson::Array(vec![Bson::Int32(1)]),
        Bson::Document(doc! { "$x": 1 }),
        Bson::MinKey,
        Bson::Undefined,
    ];
    for command in corpus() {
        for (name, _) in &command {
            for value in &values {
                let mut changed = command.clone();
                changed.insert(name, value.clone());
                run(&client, &RawDocumentBuf::try_from(&changed).unwrap());
            }
        }
    }
}

#[test]
fn every_command_answers_a_bare_call() {
    let client = Client::new();
    client.service.end_waits();
    for command in COMMANDS {
        for value in [Bson::Int32(1), Bson::from("c"), Bson::Document(doc! {}), Bson::Array(vec![])]
        {
            run(&client, &RawDocumentBuf::try_from(&doc! { command.name: value }).unwrap());
        }
    }
}
