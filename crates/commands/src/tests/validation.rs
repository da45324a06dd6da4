//! Validators: who asks them, what they say, and how they are changed.

use super::Client;
use bson::{Document, doc};

/// A collection `c` whose documents have an `a` above 5.
fn above_five(extra: Document) -> Client {
    let client = Client::new();
    let mut create = doc! { "create": "c", "validator": { "a": { "$gt": 5 } } };
    create.extend(extra);
    client.ok("db", create);
    client
}

/// The only error of a write.
fn write_error(reply: &Document) -> &Document {
    let errors = reply.get_array("writeErrors").unwrap();
    assert_eq!(errors.len(), 1, "{reply}");
    errors[0].as_document().unwrap()
}

fn refused(reply: &Document) {
    assert_eq!(write_error(reply).get_i32("code").ok(), Some(121), "{reply}");
}

fn accepted(reply: &Document) {
    assert!(!reply.contains_key("writeErrors"), "{reply}");
}

fn set(client: &Client, id: i32, a: i32) -> Document {
    let update = doc! { "q": { "_id": id }, "u": { "$set": { "a": a } } };
    client.ok("db", doc! { "update": "c", "updates": [update] })
}

fn count(client: &Client, collection: &str) -> i32 {
    client.ok("db", doc! { "count": collection }).get_i32("n").unwrap()
}

#[test]
fn insert_tells_why_a_document_fails() {
    let client = above_five(doc! {});
    let documents =
        [doc! { "_id": 1, "a": 6 }, doc! { "_id": 2, "a": 5 }, doc! { "_id": 3, "a": 7 }];
    let reply =
        client.ok("db", doc! { "insert": "c", "ordered": false, "documents": documents.to_vec() });
    assert_eq!(reply.get_i32("n").ok(), Some(2));
    assert_eq!(
        *write_error(&reply),
        doc! {
            "index": 1, "code": 121,
            "errInfo": {
                "failingDocumentId": 2,
                "details": {
                    "operatorName": "$gt",
                    "specifiedAs": { "a": { "$gt": 5 } },
                    "reason": "comparison failed",
                    "consideredValue": 5,
                },
            },
            "errmsg": "Document failed validation",
        }
    );
    assert_eq!(count(&client, "c"), 2);
}

#[test]
fn schemas_validate() {
    let client = Client::new();
    let schema = doc! { "required": ["name"], "properties": { "name": { "bsonType": "string" } } };
    client.ok("db", doc! { "create": "c", "validator": { "$jsonSchema": schema } });
    accepted(&client.ok("db", doc! { "insert": "c", "documents": [{ "name": "x" }] }));
    let reply = client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 1, "name": 3 }] });
    let info = write_error(&reply).get_document("errInfo").unwrap();
    let details = info.get_document("details").unwrap();
    assert_eq!(details.get_str("operatorName").ok(), Some("$jsonSchema"));
}

#[test]
fn every_kind_of_write_is_validated_unless_it_asks_not_to_be() {
    let client = above_five(doc! {});
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 1, "a": 6 }] });
    client.ok("db", doc! { "insert": "from", "documents": [{ "_id": 5, "a": 1 }] });
    let update = |u: Document, upsert: bool| {
        doc! { "update": "c", "updates": [{ "q": { "_id": if upsert { 9 } else { 1 } }, "u": u, "upsert": upsert }] }
    };
    let writes = [
        doc! { "insert": "c", "documents": [{ "_id": 2, "a": 1 }] },
        update(doc! { "$set": { "a": 1 } }, false),
        update(doc! { "a": 2 }, false),
        update(doc! { "$set": { "a": 1 } }, true),
    ];
    for write in &writes {
        refused(&client.ok("db", write.clone()));
    }
    let modify =
        doc! { "findAndModify": "c", "query": { "_id": 1 }, "update": { "$inc": { "a": -3 } } };
    client.fails(
        "db",
        modify.clone(),
        121,
        "Plan executor error during findAndModify :: caused by :: Document failed validation",
    );
    assert!(client.run("db", modify.clone()).contains_key("errInfo"));
    let pipelines = [doc! { "$merge": "c" }, doc! { "$out": "c" }].map(|stage| {
        doc! { "aggregate": "from", "pipeline": [stage], "cursor": {} }
    });
    for pipeline in &pipelines {
        let reply = client.run("db", pipeline.clone());
        assert_eq!(reply.get_i32("code").ok(), Some(121), "{reply}");
    }
    let found = client.ok("db", doc! { "find": "c" });
    let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(*batch, [bson::bson!({ "_id": 1, "a": 6 })]);

    for mut write in writes.into_iter().chain([modify]).chain(pipelines) {
        write.insert("bypassDocumentValidation", true);
        accepted(&client.ok("db", write));
    }
    // `$out` has taken the validator along.
    assert_eq!(count(&client, "c"), 1);
    refused(&client.ok("db", doc! { "insert": "c", "documents": [{ "a": 1 }] }));
}

#[test]
fn levels_and_actions_are_honoured() {
    let client = above_five(doc! { "validationLevel": "moderate" });
    let bad = doc! {
        "insert": "c", "documents": [{ "_id": 1, "a": 1 }, { "_id": 2, "a": 8 }],
        "bypassDocumentValidation": true,
    };
    client.ok("db", bad);
    accepted(&set(&client, 1, 2));
    refused(&set(&client, 2, 2));
    client.ok("db", doc! { "collMod": "c", "validationLevel": "strict" });
    refused(&set(&client, 1, 3));
    accepted(&set(&client, 1, 2));
    client.ok("db", doc! { "collMod": "c", "validationLevel": "off" });
    accepted(&set(&client, 1, 3));
    client
        .ok("db", doc! { "collMod": "c", "validationLevel": "strict", "validationAction": "warn" });
    accepted(&set(&client, 1, 4));
    client.ok("db", doc! { "collMod": "c", "validationAction": "error" });
    refused(&set(&client, 1, 3));
    client.ok("db", doc! { "collMod": "c", "validator": {} });
    accepted(&set(&client, 1, 3));
}

#[test]
fn validators_are_shown_and_counted_against() {
    let options = |client: &Client| {
        let list = client.ok("db", doc! { "listCollections": 1 });
        let batch = list.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        batch[0].as_document().unwrap().get_document("options").unwrap().clone()
    };
    let client = above_five(doc! { "compression": "lz4", "validationAction": "warn" });
    let validator = doc! { "a": { "$gt": 5 } };
    assert_eq!(
        options(&client),
        doc! { "compression": "lz4", "validator": validator, "validationAction": "warn" }
    );
    client.ok("db", doc! { "insert": "c", "documents": [{ "a": 1 }, { "a": 8 }] });
    let report = client.ok("db", doc! { "validate": "c" });
    assert_eq!(report.get_bool("valid").ok(), Some(true));
    assert_eq!(report.get_i64("nNonCompliantDocuments").ok(), Some(1));
    assert_eq!(report.get_array("warnings").unwrap().len(), 1);
    client
        .ok("db", doc! { "collMod": "c", "validator": { "b": 1 }, "validationLevel": "moderate" });
    assert_eq!(
        options(&client),
        doc! {
            "compression": "lz4", "validator": { "b": 1 }, "validationLevel": "moderate",
            "validationAction": "warn",
        }
    );
    client.ok("db", doc! { "collMod": "c", "validator": {} });
    assert!(!options(&client).contains_key("validator"));
}

#[test]
fn what_is_no_validator_is_refused() {
    let client = Client::new();
    client.ok("db", doc! { "create": "c" });
    client.ok("db", doc! { "create": "v", "viewOn": "c", "pipeline": [] });
    client.fails(
        "db",
        doc! { "create": "d", "validator": { "$foo": 1 } },
        2,
        "Parsing of collection validator failed :: caused by :: unknown top level operator: $foo. \
         If you have a field name that starts with a '$' symbol, consider using $getField or \
         $setField.",
    );
    client.fails(
        "db",
        doc! { "collMod": "c", "validationLevel": "loose" },
        2,
        "Enumeration value 'loose' for field 'collMod.validationLevel' is not a valid value.",
    );
    client.fails(
        "db",
        doc! { "collMod": "v", "validator": { "a": 1 } },
        72,
        "option not supported on a view: validator",
    );
    client.fails(
        "admin",
        doc! { "create": "d", "validator": { "a": 1 } },
        72,
        "Document validators are not allowed on collection admin.d in the admin internal database",
    );
    client.fails("db", doc! { "collMod": "x", "validator": { "a": 1 } }, 26, "ns not found db.x");
}
