//! Changing documents from the outside.

use super::Client;
use bson::doc;

#[test]
fn insert_find_update_delete_have_their_replies() {
    let client = Client::new();
    let insert = doc! { "insert": "c", "documents": [{ "_id": 1, "a": 1 }, { "_id": 2, "a": 2 }] };
    assert_eq!(client.ok("db", insert), doc! { "n": 2, "ok": 1.0 });
    let found = client.ok("db", doc! { "find": "c", "filter": { "a": 2 } });
    assert_eq!(
        found,
        doc! {
            "cursor": { "firstBatch": [{ "_id": 2, "a": 2 }], "id": 0_i64, "ns": "db.c" },
            "ok": 1.0,
        }
    );
    let update = doc! {
        "update": "c",
        "updates": [
            { "q": { "_id": 1 }, "u": { "$set": { "a": 5 } } },
            { "q": { "_id": 1 }, "u": { "$set": { "a": 5 } } },
            { "q": { "_id": 9 }, "u": { "$set": { "a": 9 } }, "upsert": true },
        ],
    };
    assert_eq!(
        client.ok("db", update),
        doc! { "n": 3, "upserted": [{ "index": 2, "_id": 9 }], "nModified": 1, "ok": 1.0 }
    );
    let delete = doc! { "delete": "c", "deletes": [{ "q": { "a": { "$gt": 4 } }, "limit": 0 }] };
    assert_eq!(client.ok("db", delete), doc! { "n": 2, "ok": 1.0 });
    assert_eq!(client.ok("db", doc! { "count": "c" }), doc! { "n": 1, "ok": 1.0 });
}

#[test]
fn find_and_modify_has_its_replies() {
    let client = Client::new();
    let documents =
        [doc! { "_id": 0, "a": 0 }, doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": 2 }];
    client.ok("db", doc! { "insert": "c", "documents": documents.to_vec() });
    let changed = client.ok(
        "db",
        doc! { "findAndModify": "c", "query": { "_id": 1 }, "update": { "$set": { "a": 9 } }, "new": true },
    );
    assert_eq!(
        changed,
        doc! {
            "lastErrorObject": { "n": 1, "updatedExisting": true },
            "value": { "_id": 1, "a": 9 }, "ok": 1.0,
        }
    );
    let upserted = client.ok(
        "db",
        doc! { "findandmodify": "c", "query": { "_id": 7 }, "update": { "a": 1 }, "upsert": true },
    );
    assert_eq!(
        upserted,
        doc! {
            "lastErrorObject": { "n": 1, "updatedExisting": false, "upserted": 7 },
            "value": null, "ok": 1.0,
        }
    );
    let removed =
        client.ok("db", doc! { "findAndModify": "c", "query": { "_id": 7 }, "remove": true });
    assert_eq!(
        removed,
        doc! { "lastErrorObject": { "n": 1 }, "value": { "_id": 7, "a": 1 }, "ok": 1.0 }
    );
    let none =
        client.ok("db", doc! { "findAndModify": "c", "query": { "_id": 7 }, "remove": true });
    assert_eq!(none, doc! { "lastErrorObject": { "n": 0 }, "value": null, "ok": 1.0 });
    client.fails(
        "db",
        doc! { "findAndModify": "c" },
        9,
        "Either an update or remove=true must be specified",
    );
    client.fails(
        "db",
        doc! { "findAndModify": "c", "remove": true, "update": {} },
        9,
        "Cannot specify both an update and remove=true",
    );
}
