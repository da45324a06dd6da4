//! Collations from the outside: what is shown, what is refused, and every command under one.

use super::Client;
use bson::{Bson, Document, doc};

fn full() -> Document {
    doc! {
        "locale": "en", "caseLevel": false, "caseFirst": "off", "strength": 2,
        "numericOrdering": false, "alternate": "non-ignorable", "maxVariable": "punct",
        "normalization": false, "backwards": false, "version": "57.1",
    }
}

fn ignoring_case() -> Document {
    doc! { "locale": "en", "strength": 2 }
}

fn batch(reply: &Document) -> Vec<Document> {
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|d| d.as_document().unwrap().clone()).collect()
}

fn words(client: &Client, collation: Option<Document>) {
    let mut create = doc! { "create": "c" };
    create.extend(collation.map(|c| ("collation".to_owned(), Bson::Document(c))));
    client.ok("db", create);
    let words = [(1, "b"), (2, "A"), (3, "a"), (4, "B")];
    let documents: Vec<_> = words.iter().map(|(id, w)| doc! { "_id": *id, "w": *w }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
}

#[test]
fn collections_and_indexes_show_the_whole_collation() {
    let client = Client::new();
    client.ok("db", doc! { "create": "c", "collation": ignoring_case() });
    let listed = &batch(&client.ok("db", doc! { "listCollections": 1 }))[0];
    assert_eq!(listed.get_document("options").unwrap(), &doc! { "collation": full() });
    let id = doc! { "v": 2, "key": { "_id": 1 }, "name": "_id_", "collation": full() };
    assert_eq!(listed.get_document("idIndex").unwrap(), &id);
    client.ok(
        "db",
        doc! { "createIndexes": "c", "indexes": [
            { "key": { "a": 1 }, "name": "inherits" },
            { "key": { "a": 1 }, "name": "simple", "collation": { "locale": "simple" } },
            { "key": { "a": 1 }, "name": "own", "collation": { "locale": "de" } },
            { "key": { "_id": 1 }, "name": "_id_", "collation": ignoring_case() },
        ] },
    );
    let indexes = batch(&client.ok("db", doc! { "listIndexes": "c" }));
    assert_eq!(indexes.len(), 4);
    assert_eq!(indexes[0], id);
    assert_eq!(indexes[1].get_document("collation").unwrap(), &full());
    assert!(!indexes[2].contains_key("collation"));
    assert_eq!(indexes[3].get_document("collation").unwrap().get_i32("strength").unwrap(), 3);
    // The same again is nothing new; another order under a known name is a conflict.
    let again = client.ok(
        "db",
        doc! { "createIndexes": "c", "indexes": [
            { "key": { "a": 1 }, "name": "inherits", "collation": full() },
        ] },
    );
    assert_eq!(again.get_str("note").unwrap(), "all indexes already exist");
    for (index, code) in [
        (doc! { "key": { "a": 1 }, "name": "inherits", "collation": { "locale": "fr" } }, 86),
        (doc! { "key": { "a": 1 }, "name": "other", "collation": { "locale": "de" } }, 85),
        (doc! { "key": { "_id": 1 }, "name": "_id_", "collation": { "locale": "fr" } }, 2),
        (doc! { "key": { "b": 1 }, "name": "b", "collation": {} }, 2),
        (doc! { "key": { "b": 1 }, "name": "b", "collation": { "locale": "xx" } }, 2),
    ] {
        let reply = client.run("db", doc! { "createIndexes": "c", "indexes": [index.clone()] });
        assert_eq!(reply.get_i32("code").ok(), Some(code), "{index}: {reply}");
    }
    let hint = client.run("db", doc! { "find": "c", "hint": { "a": 1 } });
    assert!(hint.get_str("errmsg").unwrap().contains("multiple indexes"), "{hint}");
    let reply = client.run(
        "db",
        doc! { "create": "d", "collation": ignoring_case(),
        "idIndex": { "key": { "_id": 1 }, "name": "_id_", "collation": { "locale": "simple" } } },
    );
    assert_eq!(reply.get_i32("code").ok(), Some(2));
}

#[test]
fn every_command_follows_the_collation() {
    for given in [false, true] {
        let client = Client::new();
        words(&client, (!given).then(ignoring_case));
        let own = |mut command: Document| {
            if given {
                command.insert("collation", ignoring_case());
            }
            command
        };
        let found = client.ok("db", own(doc! { "find": "c", "filter": { "w": "B" } }));
        assert_eq!(batch(&found).len(), 2);
        let sorted = client.ok("db", own(doc! { "find": "c", "sort": { "w": 1, "_id": 1 } }));
        let ids: Vec<i32> = batch(&sorted).iter().map(|d| d.get_i32("_id").unwrap()).collect();
        assert_eq!(ids, [2, 3, 1, 4]);
        let counted = client.ok("db", own(doc! { "count": "c", "query": { "w": { "$gt": "A" } } }));
        assert_eq!(counted.get_i32("n").unwrap(), 2);
        let distinct = client.ok("db", own(doc! { "distinct": "c", "key": "w" }));
        assert_eq!(distinct.get_array("values").unwrap(), &["A".into(), Bson::from("b")]);
        let pipeline = [
            doc! { "$group": { "_id": "$w", "n": { "$sum": 1 } } },
            doc! { "$sort": { "_id": 1 } },
        ];
        let grouped = client
            .ok("db", own(doc! { "aggregate": "c", "cursor": {}, "pipeline": pipeline.to_vec() }));
        assert_eq!(batch(&grouped), [doc! { "_id": "A", "n": 2 }, doc! { "_id": "b", "n": 2 }]);
        let pipeline = [
            doc! { "$match": { "_id": 2 } },
            doc! { "$lookup": { "from": "c", "localField": "w", "foreignField": "w", "as": "same" } },
            doc! { "$project": { "n": { "$size": "$same" }, "is": { "$eq": ["$w", "a"] } } },
        ];
        let joined = client
            .ok("db", own(doc! { "aggregate": "c", "cursor": {}, "pipeline": pipeline.to_vec() }));
        assert_eq!(batch(&joined), [doc! { "_id": 2, "n": 2, "is": true }]);
        let update = own(doc! { "q": { "w": "B" }, "u": { "$set": { "m": 1 } }, "multi": true });
        let updated = client.ok("db", doc! { "update": "c", "updates": [update] });
        assert_eq!(updated.get_i32("nModified").unwrap(), 2);
        let modified = client.ok(
            "db",
            own(doc! {
                "findAndModify": "c", "query": { "w": "a" }, "sort": { "_id": -1 }, "remove": true,
            }),
        );
        assert_eq!(modified.get_document("value").unwrap().get_i32("_id").unwrap(), 3);
        let delete = own(doc! { "q": { "w": "a" }, "limit": 0 });
        let deleted = client.ok("db", doc! { "delete": "c", "deletes": [delete] });
        assert_eq!(deleted.get_i32("n").unwrap(), 1);
        let explained = client.ok("db", doc! { "explain": own(doc! { "find": "c" }) });
        let planner = explained.get_document("queryPlanner").unwrap();
        assert_eq!(planner.get_document("collation").unwrap(), &full());
    }
}

#[test]
fn wrong_collations_are_refused_by_every_command() {
    let client = Client::new();
    words(&client, None);
    let wrong = doc! { "locale": "tlh" };
    for mut command in [
        doc! { "find": "c" },
        doc! { "count": "c" },
        doc! { "distinct": "c", "key": "w" },
        doc! { "aggregate": "c", "cursor": {}, "pipeline": [] },
        doc! { "findAndModify": "c", "remove": true },
        doc! { "create": "d" },
    ] {
        command.insert("collation", wrong.clone());
        let message = "Field 'locale' is invalid in: { locale: \"tlh\" }";
        client.fails("db", command, 2, message);
    }
    let delete = doc! { "q": {}, "limit": 0, "collation": wrong };
    let reply = client.ok("db", doc! { "delete": "c", "deletes": [delete] });
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap().clone();
    assert_eq!(error.get_i32("code").unwrap(), 2);
    // Empty is nothing said, but not where something is made of it.
    client.ok("db", doc! { "find": "c", "collation": {} });
    assert_eq!(
        client.run("db", doc! { "create": "d", "collation": {} }).get_f64("ok").ok(),
        Some(0.0)
    );
}

#[test]
fn a_view_has_its_own_collation_and_no_other() {
    let client = Client::new();
    words(&client, Some(ignoring_case()));
    client.ok("db", doc! { "create": "plain", "viewOn": "c", "pipeline": [] });
    client.ok(
        "db",
        doc! { "create": "v", "viewOn": "c", "pipeline": [], "collation": ignoring_case() },
    );
    let count = |from: &str| {
        let found = client.ok("db", doc! { "find": from, "filter": { "w": "B" } });
        batch(&found).len()
    };
    assert_eq!((count("c"), count("plain"), count("v")), (2, 1, 2));
    for (from, collation) in [("plain", ignoring_case()), ("v", doc! { "locale": "simple" })] {
        for mut command in [
            doc! { "find": from },
            doc! { "count": from },
            doc! { "distinct": from, "key": "w" },
            doc! { "aggregate": from, "cursor": {}, "pipeline": [] },
        ] {
            command.insert("collation", collation.clone());
            assert_eq!(client.run("db", command).get_i32("code").ok(), Some(167), "{from}");
        }
    }
    client.ok("db", doc! { "find": "v", "collation": ignoring_case() });
    let conflict = doc! { "create": "w", "viewOn": "v", "pipeline": [] };
    assert_eq!(client.run("db", conflict).get_i32("code").ok(), Some(167));
    let joined = doc! { "aggregate": "c", "cursor": {}, "pipeline": [
    { "$lookup": { "from": "plain", "localField": "w", "foreignField": "w", "as": "x" } }] };
    assert_eq!(client.run("db", joined).get_i32("code").ok(), Some(167));
}

#[test]
fn out_and_merge_keep_to_the_targets_collation() {
    let client = Client::new();
    words(&client, Some(ignoring_case()));
    client.ok("db", doc! { "create": "plain" });
    let run = |stage: Document| {
        client.run("db", doc! { "aggregate": "c", "cursor": {}, "pipeline": [stage] })
    };
    assert_eq!(run(doc! { "$merge": "plain" }).get_i32("code").ok(), Some(51183));
    assert_eq!(run(doc! { "$merge": "new" }).get_f64("ok").ok(), Some(1.0));
    client.ok("db", doc! { "create": "same", "collation": ignoring_case() });
    client.ok(
        "db",
        doc! { "createIndexes": "same", "indexes": [
        { "key": { "w": 1 }, "name": "w", "unique": true, "collation": { "locale": "simple" } }] },
    );
    assert_eq!(run(doc! { "$merge": "same" }).get_f64("ok").ok(), Some(1.0));
    assert_eq!(run(doc! { "$out": "same" }).get_f64("ok").ok(), Some(1.0));
    let indexes = batch(&client.ok("db", doc! { "listIndexes": "same" }));
    assert_eq!(indexes[0].get_document("collation").unwrap(), &full());
    assert!(!indexes[1].contains_key("collation"));
    let counted = client.ok("db", doc! { "count": "same", "query": { "w": "B" } });
    assert_eq!(counted.get_i32("n").unwrap(), 2);
}

#[test]
fn validators_follow_the_collections_collation() {
    let client = Client::new();
    client
        .ok("db", doc! { "create": "c", "collation": ignoring_case(), "validator": { "w": "x" } });
    client.ok("db", doc! { "insert": "c", "documents": [{ "w": "X" }] });
    let refused = client.ok("db", doc! { "insert": "c", "documents": [{ "w": "Y" }] });
    assert_eq!(refused.get_array("writeErrors").unwrap().len(), 1);
    client.ok("db", doc! { "collMod": "c", "validator": { "w": "y" } });
    client.ok("db", doc! { "insert": "c", "documents": [{ "w": "Y" }] });
}
