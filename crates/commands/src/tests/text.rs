//! Text indexes and `$text` from the outside.

use super::Client;
use bson::{Document, doc};

fn batch(reply: &Document, name: &str) -> Vec<Document> {
    let batch = reply.get_document("cursor").unwrap().get_array(name).unwrap();
    batch.iter().map(|document| document.as_document().unwrap().clone()).collect()
}

fn shown() -> Document {
    doc! {
        "v": 2,
        "key": { "_fts": "text", "_ftsx": 1, "n": 1 },
        "name": "a_text_b_text_n_1",
        "weights": { "a": 10, "b": 1 },
        "default_language": "english",
        "language_override": "language",
        "textIndexVersion": 3,
    }
}

fn create(client: &Client, index: Document) -> Document {
    client.ok("db", doc! { "createIndexes": "c", "indexes": [index] })
}

#[test]
fn a_text_index_is_listed_kept_and_restored() {
    let client = Client::new();
    let given = doc! {
        "key": { "a": "text", "b": "text", "n": 1 },
        "name": "a_text_b_text_n_1",
        "weights": { "a": 10 },
    };
    create(&client, given.clone());
    let again = create(&client, given);
    assert_eq!(again.get_str("note").ok(), Some("all indexes already exist"));
    // What `listIndexes` shows is what mongorestore sends, also with `ns`.
    let mut restored = shown();
    restored.insert("ns", "db.c");
    let again = create(&client, restored.clone());
    assert_eq!(again.get_str("note").ok(), Some("all indexes already exist"));
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 1, "a": "green teas" }] });
    client.fails(
        "db",
        doc! { "createIndexes": "c", "indexes": [{ "key": { "p": 1, "z": "text" }, "name": "z" }] },
        67,
        "only one text index per collection allowed, found existing text index \
         \"a_text_b_text_n_1\"",
    );
    let later = client.restarted(2);
    let list = later.ok("db", doc! { "listIndexes": "c" });
    assert_eq!(batch(&list, "firstBatch")[1], shown());
    let search = doc! { "$text": { "$search": "tea" } };
    let found = later.ok("db", doc! { "find": "c", "filter": search.clone() });
    assert_eq!(batch(&found, "firstBatch"), [doc! { "_id": 1, "a": "green teas" }]);
    later.ok("db", doc! { "dropIndexes": "c", "index": "a_text_b_text_n_1" });
    let command = doc! { "find": "c", "filter": search.clone() };
    later.fails("db", command, 27, "text index required for $text query");
    create(&later, restored);
    let counted = later.ok("db", doc! { "count": "c", "query": search });
    assert_eq!(counted.get_i32("n").unwrap(), 1);
}

#[test]
fn a_search_goes_on_over_batches() {
    let client = Client::new();
    create(&client, doc! { "key": { "$**": "text" }, "name": "all" });
    let documents: Vec<Document> =
        (0..30).map(|i| doc! { "_id": i, "t": "tea ".repeat(i as usize % 3 + 1) }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    let score = doc! { "$meta": "textScore" };
    let first = client.ok(
        "db",
        doc! {
            "find": "c",
            "filter": { "$text": { "$search": "TEAS -cake" } },
            "projection": { "s": score.clone() },
            "sort": { "s": score, "_id": 1 },
            "batchSize": 8,
        },
    );
    let mut found = batch(&first, "firstBatch");
    let id = first.get_document("cursor").unwrap().get_i64("id").unwrap();
    let more = client.ok("db", doc! { "getMore": id, "collection": "c" });
    found.extend(batch(&more, "nextBatch"));
    assert_eq!(found.len(), 30);
    let ids: Vec<i32> = found.iter().map(|d| d.get_i32("_id").unwrap()).collect();
    assert_eq!(ids[..3], [2, 5, 8]);
    assert_eq!(found[0].keys().collect::<Vec<_>>(), ["_id", "t", "s"]);
    let distinct = doc! { "distinct": "c", "key": "t", "query": { "$text": { "$search": "tea" } } };
    assert_eq!(client.ok("db", distinct).get_array("values").unwrap().len(), 3);
    let tail = doc! { "find": "c", "filter": { "$text": { "$search": "x" } }, "tailable": true };
    assert!(client.run("db", tail).get_i32("code").is_ok());
}

#[test]
fn a_view_searches_its_collection() {
    let client = Client::new();
    create(&client, doc! { "key": { "a": "text" }, "name": "a_text" });
    let documents = [doc! { "_id": 1, "a": "tea" }, doc! { "_id": 2, "a": "cake" }];
    client.ok("db", doc! { "insert": "c", "documents": documents.to_vec() });
    client.ok("db", doc! { "create": "all", "viewOn": "c", "pipeline": [] });
    client.ok("db", doc! { "create": "cut", "viewOn": "c", "pipeline": [{ "$limit": 5 }] });
    let search = doc! { "$text": { "$search": "tea" } };
    let found = client.ok("db", doc! { "find": "all", "filter": search.clone() });
    assert_eq!(batch(&found, "firstBatch"), [doc! { "_id": 1, "a": "tea" }]);
    client.fails(
        "db",
        doc! { "find": "cut", "filter": search },
        17313,
        "$match with $text is only allowed as the first pipeline stage",
    );
}
