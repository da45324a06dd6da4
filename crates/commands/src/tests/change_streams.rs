//! Change streams from the outside.

use super::Client;
use bson::{Bson, Document, doc};

fn member() -> Client {
    let options = serverstate::replication::ReplicaSetOptions {
        name: "rs".into(),
        address: "localhost:1".into(),
        initiate: true,
    };
    let client = Client::member(options);
    client.service.start_replication().unwrap();
    client
}

fn documents(batch: &[Bson]) -> Vec<Document> {
    batch.iter().map(|event| event.as_document().unwrap().clone()).collect()
}

/// A stream that a test reads.
struct Stream<'c> {
    client: &'c Client,
    database: String,
    collection: String,
    cursor: i64,
    token: Document,
    /// Events of the first batch that nobody has taken yet.
    first: Vec<Document>,
}

impl<'c> Stream<'c> {
    fn open(client: &'c Client, database: &str, on: impl Into<Bson>, stage: Document) -> Self {
        Self::with(client, database, on, vec![doc! { "$changeStream": stage }])
    }

    fn with(
        client: &'c Client,
        database: &str,
        on: impl Into<Bson>,
        pipeline: Vec<Document>,
    ) -> Self {
        let on = on.into();
        let reply =
            client.ok(database, doc! { "aggregate": &on, "pipeline": pipeline, "cursor": {} });
        let cursor = reply.get_document("cursor").unwrap();
        let ns = cursor.get_str("ns").unwrap();
        Self {
            client,
            database: database.to_owned(),
            collection: ns.split_once('.').unwrap().1.to_owned(),
            cursor: cursor.get_i64("id").unwrap(),
            token: cursor.get_document("postBatchResumeToken").unwrap().clone(),
            first: documents(cursor.get_array("firstBatch").unwrap()),
        }
    }

    fn batch(&mut self) -> Vec<Document> {
        if !self.first.is_empty() || self.cursor == 0 {
            return std::mem::take(&mut self.first);
        }
        let reply = self.client.ok(&self.database, self.get_more());
        let cursor = reply.get_document("cursor").unwrap();
        self.cursor = cursor.get_i64("id").unwrap();
        self.token = cursor.get_document("postBatchResumeToken").unwrap().clone();
        documents(cursor.get_array("nextBatch").unwrap())
    }

    fn get_more(&self) -> Document {
        doc! { "getMore": self.cursor, "collection": &self.collection, "maxTimeMS": 20 }
    }

    fn kinds(&mut self) -> Vec<String> {
        self.client.service.catalog.sync().unwrap();
        self.batch().iter().map(|e| e.get_str("operationType").unwrap().to_owned()).collect()
    }
}

fn insert(id: i32) -> Document {
    doc! { "insert": "c", "documents": [{ "_id": id }] }
}

#[test]
fn a_standalone_has_no_streams() {
    let client = Client::new();
    let aggregate = doc! { "aggregate": "c", "pipeline": [{ "$changeStream": {} }], "cursor": {} };
    client.fails(
        "db",
        aggregate,
        40573,
        "The $changeStream stage is only supported on replica sets",
    );
}

#[test]
fn changes_come_once_in_order() {
    let client = member();
    let mut stream = Stream::open(&client, "db", "c", doc! {});
    assert!(stream.batch().is_empty());
    client.ok("db", insert(1));
    client.ok("db", doc! { "insert": "other", "documents": [{ "_id": 1 }] });
    let update = |q: Document, u: Document| doc! { "update": "c", "updates": [{ "q": q, "u": u }] };
    client.ok("db", update(doc! { "_id": 1 }, doc! { "$set": { "a": 1 } }));
    client.ok("db", update(doc! { "_id": 1 }, doc! { "b": 1 }));
    client.ok("db", doc! { "delete": "c", "deletes": [{ "q": { "_id": 1 }, "limit": 1 }] });
    assert_eq!(stream.kinds(), ["insert", "update", "replace", "delete"]);
    let before = stream.token.clone();
    assert!(stream.batch().is_empty());
    client.ok("db", doc! { "insert": "other", "documents": [{ "_id": 2 }] });
    assert!(stream.kinds().is_empty());
    // What is not for the stream moves its token on nevertheless.
    assert!(stream.token.get_str("_data").unwrap() > before.get_str("_data").unwrap());
}

#[test]
fn a_stream_goes_on_behind_any_token() {
    let client = member();
    let mut stream = Stream::open(&client, "db", "c", doc! {});
    let documents: Vec<Document> = (0..20).map(|id| doc! { "_id": id }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    client.service.catalog.sync().unwrap();
    let all = stream.batch();
    assert_eq!(all.len(), 20);
    for (at, event) in all.iter().enumerate().step_by(5) {
        let token = event.get_document("_id").unwrap().clone();
        for option in ["resumeAfter", "startAfter"] {
            let mut again = Stream::open(&client, "db", "c", doc! { option: token.clone() });
            let mut rest = Vec::new();
            for _ in 0..3 {
                rest.extend(again.batch());
            }
            assert_eq!(rest, all[at + 1..], "{at}");
        }
        let time = event.get_timestamp("clusterTime").unwrap();
        let mut again = Stream::open(&client, "db", "c", doc! { "startAtOperationTime": time });
        let mut rest = Vec::new();
        for _ in 0..3 {
            rest.extend(again.batch());
        }
        assert_eq!(rest, all[at..], "{at}");
    }
}

#[test]
fn small_batches_give_the_same() {
    let client = member();
    let stream = Stream::open(&client, "db", "c", doc! {});
    let documents: Vec<Document> = (0..20).map(|id| doc! { "_id": id }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    client.service.catalog.sync().unwrap();
    let mut ids = Vec::new();
    for _ in 0..20 {
        let mut command = stream.get_more();
        command.insert("batchSize", 1);
        let reply = client.ok("db", command);
        let cursor = reply.get_document("cursor").unwrap();
        let event = cursor.get_array("nextBatch").unwrap()[0].as_document().unwrap();
        let token = cursor.get_document("postBatchResumeToken").unwrap();
        assert_eq!(token, event.get_document("_id").unwrap());
        ids.push(event.get_document("documentKey").unwrap().get_i32("_id").unwrap());
    }
    assert_eq!(ids, (0..20).collect::<Vec<_>>());
}

#[test]
fn a_drop_ends_the_stream_of_a_collection() {
    let client = member();
    client.ok("db", insert(1));
    let mut stream = Stream::open(&client, "db", "c", doc! {});
    let mut database = Stream::open(&client, "db", 1, doc! {});
    let mut cluster = Stream::open(&client, "admin", 1, doc! { "allChangesForCluster": true });
    client.ok("db", doc! { "drop": "c" });
    client.service.catalog.sync().unwrap();
    let events = stream.batch();
    let kinds: Vec<_> = events.iter().map(|e| e.get_str("operationType").unwrap()).collect();
    assert_eq!(kinds, ["drop", "invalidate"]);
    assert_eq!(stream.cursor, 0);
    let token = |at: usize| events[at].get_document("_id").unwrap().clone();
    let again = doc! {
        "aggregate": "c",
        "pipeline": [{ "$changeStream": { "resumeAfter": token(1) } }],
        "cursor": {},
    };
    assert_eq!(client.run("db", again).get_i32("code").ok(), Some(260));
    client.ok("db", insert(2));
    let mut after = Stream::open(&client, "db", "c", doc! { "startAfter": token(1) });
    assert_eq!(after.kinds(), ["insert"]);
    let mut behind_drop = Stream::open(&client, "db", "c", doc! { "resumeAfter": token(0) });
    assert_eq!(behind_drop.kinds(), ["invalidate"]);
    assert_eq!(database.kinds(), ["drop", "insert"]);
    client.ok("db", doc! { "dropDatabase": 1 });
    assert_eq!(database.kinds(), ["drop", "dropDatabase", "invalidate"]);
    assert_eq!(cluster.kinds(), ["drop", "insert", "drop", "dropDatabase"]);
}

#[test]
fn changes_of_collections_are_told_where_asked_for() {
    let client = member();
    let mut stream = Stream::open(&client, "db", 1, doc! { "showExpandedEvents": true });
    client.ok("db", doc! { "create": "c" });
    client.ok("db", insert(1));
    let index = doc! { "key": { "a": 1 }, "name": "a_1" };
    client.ok("db", doc! { "createIndexes": "c", "indexes": [index] });
    client.ok("db", doc! { "collMod": "c", "index": { "name": "a_1", "hidden": true } });
    client.ok("db", doc! { "collMod": "c", "validationLevel": "off" });
    client.ok("db", doc! { "collMod": "c" });
    client.ok("db", doc! { "dropIndexes": "c", "index": "a_1" });
    client.ok("admin", doc! { "renameCollection": "db.c", "to": "db.d" });
    let expected = [
        "create",
        "insert",
        "createIndexes",
        "modify",
        "modify",
        "modify",
        "dropIndexes",
        "rename",
    ];
    assert_eq!(stream.kinds(), expected);
}

#[test]
fn images_are_told_where_they_are_kept() {
    let client = member();
    let images = doc! { "enabled": true };
    client.ok("db", doc! { "create": "c", "changeStreamPreAndPostImages": images });
    client.ok("db", insert(1));
    let full = doc! { "fullDocument": "required", "fullDocumentBeforeChange": "required" };
    let mut stream = Stream::open(&client, "db", "c", full.clone());
    let update = doc! { "q": { "_id": 1 }, "u": { "$set": { "a": 1 } } };
    client.ok("db", doc! { "update": "c", "updates": [update.clone()] });
    client.service.catalog.sync().unwrap();
    let event = stream.batch().remove(0);
    assert_eq!(event.get_document("fullDocument").unwrap(), &doc! { "_id": 1, "a": 1 });
    assert_eq!(event.get_document("fullDocumentBeforeChange").unwrap(), &doc! { "_id": 1 });
    // Images that are older than they may be are gone.
    let expiry = |value: Bson| doc! { "preAndPostImages": { "expireAfterSeconds": value } };
    let set = |value| doc! { "setClusterParameter": { "changeStreamOptions": expiry(value) } };
    client.ok("admin", set(1.into()));
    std::thread::sleep(std::time::Duration::from_secs(3));
    let mut again = full.clone();
    again.insert("startAtOperationTime", event.get_timestamp("clusterTime").unwrap());
    let gone = client.run(
        "db",
        doc! { "aggregate": "c", "pipeline": [{ "$changeStream": again.clone() }], "cursor": {} },
    );
    assert_eq!(gone.get_i32("code").ok(), Some(47), "{gone}");
    client.ok("admin", set("off".into()));
    assert_eq!(Stream::open(&client, "db", "c", again).batch().len(), 1);
    let disabled = doc! { "enabled": false };
    client.ok("db", doc! { "collMod": "c", "changeStreamPreAndPostImages": disabled });
    let update = doc! { "q": { "_id": 1 }, "u": { "$set": { "a": 2 } } };
    client.ok("db", doc! { "update": "c", "updates": [update] });
    client.service.catalog.sync().unwrap();
    let failed = client.run("db", stream.get_more());
    assert_eq!(failed.get_i32("code").ok(), Some(47), "{failed}");
    let lookup = doc! { "resumeAfter": event.get_document("_id").unwrap().clone(), "fullDocument": "updateLookup" };
    let mut stream = Stream::open(&client, "db", "c", lookup);
    let event = stream.batch().remove(0);
    assert_eq!(event.get_document("fullDocument").unwrap(), &doc! { "_id": 1, "a": 2 });
}

#[test]
fn a_transactions_changes_come_together() {
    let client = member();
    client.ok("db", insert(0));
    let mut stream = Stream::open(&client, "db", "c", doc! {});
    let session = doc! { "id": bson::Uuid::from_bytes([7; 16]) };
    let begun = |mut command: Document, starts: bool| {
        command.insert("lsid", session.clone());
        command.insert("txnNumber", 1_i64);
        command.insert("autocommit", false);
        if starts {
            command.insert("startTransaction", true);
        }
        command
    };
    client.ok("db", begun(insert(1), true));
    let update = doc! { "q": { "_id": 1 }, "u": { "$set": { "a": 1 } } };
    client.ok("db", begun(doc! { "update": "c", "updates": [update] }, false));
    client.ok(
        "db",
        begun(doc! { "delete": "c", "deletes": [{ "q": { "_id": 0 }, "limit": 1 }] }, false),
    );
    client.ok("admin", begun(doc! { "commitTransaction": 1 }, false));
    client.service.catalog.sync().unwrap();
    let events = stream.batch();
    let kinds: Vec<_> = events.iter().map(|e| e.get_str("operationType").unwrap()).collect();
    assert_eq!(kinds, ["insert", "update", "delete"]);
    assert_eq!(events[0].get_document("fullDocument").unwrap(), &doc! { "_id": 1 });
    for event in &events {
        let time = event.get_timestamp("clusterTime").unwrap();
        assert_eq!(time, events[0].get_timestamp("clusterTime").unwrap());
        assert_eq!(event.get_i64("txnNumber").unwrap(), 1);
    }
}

#[test]
fn what_a_stream_cannot_be_is_refused() {
    let client = member();
    client.ok("db", doc! { "create": "v", "viewOn": "c" });
    let on = |database: &str, on: Bson, pipeline: Vec<Document>, code: i32| {
        let aggregate = doc! { "aggregate": on, "pipeline": pipeline.clone(), "cursor": {} };
        let reply = client.run(database, aggregate);
        assert_eq!(reply.get_i32("code").ok(), Some(code), "{database} {pipeline:?}: {reply}");
    };
    let stage = |spec: Document| vec![doc! { "$changeStream": spec }];
    let c = || Bson::from("c");
    on("db", c(), stage(doc! { "x": 1 }), 40415);
    on("db", c(), stage(doc! { "fullDocument": "x" }), 2);
    on("db", c(), stage(doc! { "resumeAfter": { "_data": "zz" } }), 260);
    on("db", c(), stage(doc! { "resumeAfter": {}, "startAfter": {} }), 50674);
    on("db", c(), stage(doc! { "allChangesForCluster": true }), 72);
    on("db", "v".into(), stage(doc! {}), 166);
    on("local", c(), stage(doc! {}), 73);
    on("admin", 1.into(), stage(doc! {}), 73);
    let behind = |second: Document| vec![doc! { "$changeStream": {} }, second];
    on("db", c(), behind(doc! { "$group": { "_id": 1 } }), 20);
    on("db", c(), behind(doc! { "$changeStream": {} }), 40602);
    let facet = doc! { "$facet": { "a": stage(doc! {}) } };
    on("db", c(), vec![facet], 40600);
    let mut stream = Stream::with(
        &client,
        "db",
        "c",
        vec![doc! { "$changeStream": {} }, doc! { "$project": { "_id": 0 } }],
    );
    client.ok("db", insert(1));
    client.service.catalog.sync().unwrap();
    let failed = client.run("db", stream.get_more());
    assert_eq!(failed.get_i32("code").ok(), Some(280), "{failed}");
    stream.cursor = 0;
}

#[test]
fn what_failed_is_not_told() {
    let client = member();
    let index = doc! { "key": { "a": 1 }, "name": "a_1", "unique": true };
    client.ok("db", doc! { "createIndexes": "c", "indexes": [index] });
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 0, "a": 0 }] });
    let mut stream = Stream::open(&client, "db", "c", doc! {});
    let documents =
        vec![doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": 0 }, doc! { "_id": 3, "a": 3 }];
    client.ok("db", doc! { "insert": "c", "documents": documents, "ordered": false });
    let updates = vec![
        doc! { "q": { "_id": 1 }, "u": { "$set": { "a": 3 } } },
        doc! { "q": { "_id": 3 }, "u": { "$set": { "a": 4 } } },
    ];
    client.ok("db", doc! { "update": "c", "updates": updates, "ordered": false });
    client.service.catalog.sync().unwrap();
    let told: Vec<String> = stream
        .batch()
        .iter()
        .map(|event| {
            let id = event.get_document("documentKey").unwrap().get_i32("_id").unwrap();
            format!("{} {id}", event.get_str("operationType").unwrap())
        })
        .collect();
    assert_eq!(told, ["insert 1", "insert 3", "update 3"]);
}

#[test]
fn a_failed_statement_of_a_connections_transaction_is_not_told() {
    let client = member();
    client.ok("db", insert(0));
    let mut stream = Stream::open(&client, "db", "c", doc! {});
    let another = client.another(2);
    another.ok("db", doc! { "beginTransaction": 1 });
    another.ok("db", insert(1));
    let both = vec![doc! { "_id": 2 }, doc! { "_id": 0 }];
    another.run("db", doc! { "insert": "c", "documents": both });
    let update = doc! { "q": { "_id": 1 }, "u": { "$set": { "a": 1 } } };
    another.ok("db", doc! { "update": "c", "updates": [update] });
    assert!(stream.kinds().is_empty());
    another.ok("db", doc! { "commitTransaction": 1 });
    client.service.catalog.sync().unwrap();
    let events = stream.batch();
    let there = client.ok("db", doc! { "find": "c", "sort": { "_id": 1 } });
    let there = there.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len();
    let inserted =
        events.iter().filter(|e| matches!(e.get_str("operationType"), Ok("insert"))).count();
    assert_eq!(inserted, there - 1);
    assert_eq!(events.last().unwrap().get_str("operationType").unwrap(), "update");
}

#[test]
fn what_a_cap_pushes_out_is_not_told() {
    let client = member();
    client.ok("db", doc! { "create": "c", "capped": true, "size": 4096, "max": 2 });
    let mut stream = Stream::open(&client, "db", "c", doc! {});
    let documents: Vec<Document> = (0..5).map(|id| doc! { "_id": id }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    client.ok("db", insert(9));
    assert_eq!(stream.kinds(), vec!["insert"; 6]);
}

#[test]
fn measurements_are_silent_and_of_views_that_they_came_is_told() {
    let client = member();
    let mut stream = Stream::open(&client, "db", 1, doc! { "showExpandedEvents": true });
    client.ok("db", doc! { "create": "m", "timeseries": { "timeField": "t" } });
    let now = bson::DateTime::from_millis(1_700_000_000_000);
    client.ok("db", doc! { "insert": "m", "documents": [{ "t": now }] });
    client.ok("db", doc! { "create": "v", "viewOn": "m", "pipeline": [] });
    client.ok("db", doc! { "drop": "v" });
    client.ok("db", doc! { "drop": "m" });
    client.ok("db", insert(1));
    assert_eq!(stream.kinds(), ["create", "create", "insert"]);
}
