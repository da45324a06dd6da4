//! `prepareUnique`, and an index that becomes unique by `collMod`.

use super::Client;
use bson::{Document, doc};

fn coll_mod(mut index: Document) -> Document {
    index.insert("name", "a_1");
    doc! { "collMod": "c", "index": index }
}

#[test]
fn an_index_becomes_unique_in_two_steps() {
    let client = Client::new();
    let index = doc! { "key": { "a": 1 }, "name": "a_1" };
    client.ok("db", doc! { "createIndexes": "c", "indexes": [index] });
    let documents = [doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": 1 }];
    client.ok("db", doc! { "insert": "c", "documents": documents });
    client.fails(
        "db",
        coll_mod(doc! { "unique": true }),
        72,
        "Cannot make index unique with 'prepareUnique=false'. Run collMod to set it first.",
    );
    let prepared = client.ok("db", coll_mod(doc! { "prepareUnique": true }));
    assert_eq!(prepared, doc! { "prepareUnique_old": false, "prepareUnique_new": true, "ok": 1.0 });
    let again = client.ok("db", coll_mod(doc! { "prepareUnique": true }));
    assert_eq!(again, doc! { "ok": 1.0 });
    let third = client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 3, "a": 1 }] });
    let error = third.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(error.get_i32("code").unwrap(), 11000);
    assert_eq!(error.get_document("keyValue").unwrap(), &doc! { "a": 1 });
    let mut dry = coll_mod(doc! { "unique": true });
    dry.insert("dryRun", true);
    for command in [dry.clone(), coll_mod(doc! { "unique": true })] {
        let refused = client.run("db", command);
        assert_eq!(refused.get_i32("code").unwrap(), 359);
        assert_eq!(refused.get_str("codeName").unwrap(), "CannotConvertIndexToUnique");
        assert_eq!(refused.get_array("violations").unwrap(), &[doc! { "ids": [1, 2] }.into()]);
    }
    client.ok("db", doc! { "delete": "c", "deletes": [{ "q": { "_id": 2 }, "limit": 1 }] });
    assert_eq!(client.ok("db", dry), doc! { "ok": 1.0 });
    let made = client.ok("db", coll_mod(doc! { "unique": true }));
    assert_eq!(made, doc! { "unique_new": true, "ok": 1.0 });
    let list = client.ok("db", doc! { "listIndexes": "c" });
    let batch = list.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let shown = doc! { "v": 2, "key": { "a": 1 }, "name": "a_1", "unique": true };
    assert_eq!(batch[1], shown.into());
}

#[test]
fn what_does_not_go_together_is_refused() {
    let client = Client::new();
    let index = doc! { "key": { "a": 1 }, "name": "a_1", "foo": 1 };
    let create =
        doc! { "createIndexes": "c", "indexes": [index], "ignoreUnknownIndexOptions": true };
    client.ok("db", create);
    client.fails("db", coll_mod(doc! { "unique": false }), 2, "Cannot make index non-unique");
    client.fails(
        "db",
        coll_mod(doc! { "prepareUnique": true, "hidden": true }),
        72,
        "prepareUnique cannot be combined with any other modification.",
    );
    client.fails(
        "db",
        doc! { "collMod": "c", "index": { "name": "b", "hidden": true } },
        27,
        "cannot find index b for ns db.c",
    );
}

#[test]
fn what_is_made_of_many_values_is_not_prepared() {
    let client = Client::new();
    for key in [doc! { "a": "text" }, doc! { "$**": 1 }] {
        let index = doc! { "key": key, "name": "x", "prepareUnique": true };
        let refused = client.run("db", doc! { "createIndexes": "c", "indexes": [index] });
        assert_eq!(refused.get_i32("code").ok(), Some(67));
    }
    client.ok("db", doc! { "create": "c" });
    client.ok("db", doc! { "collMod": "c", "changeStreamPreAndPostImages": { "enabled": false } });
}
