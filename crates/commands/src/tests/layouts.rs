//! Clustered and time-series collections, as a client meets them.

use super::*;
use bson::{Bson, DateTime, bson};

fn at(seconds: i64) -> Bson {
    Bson::DateTime(DateTime::from_millis(seconds * 1000))
}

fn first(reply: &Document) -> Vec<Document> {
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|document| document.as_document().unwrap().clone()).collect()
}

fn code(reply: &Document) -> Option<i32> {
    let errors = reply.get_array("writeErrors").ok();
    let first = errors.and_then(|errors| errors.first()?.as_document()?.get_i32("code").ok());
    reply.get_i32("code").ok().or(first)
}

fn indexes(client: &Client, collection: &str) -> Vec<String> {
    let list = first(&client.ok("db", doc! { "listIndexes": collection }));
    list.iter().map(|index| index.get_str("name").unwrap().to_owned()).collect()
}

/// What the client sees of the plan of a find.
fn plan(client: &Client, filter: Document) -> Document {
    let explain = doc! { "explain": { "find": "c", "filter": filter } };
    let planner = client.ok("db", explain).get_document("queryPlanner").unwrap().clone();
    planner.get_document("winningPlan").unwrap().clone()
}

#[test]
fn a_clustered_collection_shows_its_order_and_uses_it() {
    let client = Client::new();
    let by = doc! { "key": { "_id": 1 }, "unique": true, "name": "by day" };
    client.ok("db", doc! { "create": "c", "clusteredIndex": by, "expireAfterSeconds": 3600 });
    let documents: Vec<Document> = (0..5).map(|day| doc! { "_id": at(day * 86_400) }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    let list = first(&client.ok("db", doc! { "listIndexes": "c" }));
    let shown = doc! {
        "v": 2, "key": { "_id": 1 }, "name": "by day", "unique": true, "expireAfterSeconds": 3600,
        "clustered": true,
    };
    assert_eq!(list, [shown]);
    let collections = first(&client.ok("db", doc! { "listCollections": 1 }));
    let options = doc! {
        "clusteredIndex": { "v": 2, "key": { "_id": 1 }, "name": "by day", "unique": true },
        "expireAfterSeconds": 3600_i64,
    };
    assert_eq!(collections[0].get_document("options").unwrap(), &options);
    assert!(!collections[0].contains_key("idIndex"));

    let point = plan(&client, doc! { "_id": at(86_400) });
    assert_eq!(point.get_str("stage").unwrap(), "CLUSTERED_IXSCAN");
    assert_eq!(point.get("minRecord"), Some(&at(86_400)));
    let range = plan(&client, doc! { "_id": { "$gte": at(86_400), "$lt": at(3 * 86_400) } });
    assert_eq!(range.get_str("stage").unwrap(), "CLUSTERED_IXSCAN");
    assert_eq!(
        (range.get("minRecord"), range.get("maxRecord")),
        (Some(&at(86_400)), Some(&at(3 * 86_400)))
    );
    let hinted =
        doc! { "find": "c", "filter": { "_id": { "$gte": at(86_400) } }, "hint": "by day" };
    assert_eq!(first(&client.ok("db", hinted)).len(), 4);
    client
        .ok("db", doc! { "reIndex": "c", "index": "by day", "options": { "compression": "zlib" } });
    let valid = client.ok("db", doc! { "validate": "c" });
    assert!(valid.get_document("keysPerIndex").unwrap().contains_key("by day"), "{valid}");
    client.fails(
        "db",
        doc! { "dropIndexes": "c", "index": "by day" },
        5_979_800,
        "Cannot drop the clustered index.",
    );
    let capped = client.run("db", doc! { "convertToCapped": "c", "size": 4096 });
    assert_eq!(code(&capped), Some(72));
}

#[test]
fn documents_of_a_clustered_collection_expire_by_their_id() {
    let client = Client::new();
    let by = doc! { "key": { "_id": 1 }, "unique": true };
    client.ok("db", doc! { "create": "c", "clusteredIndex": by, "expireAfterSeconds": 3600 });
    let now = DateTime::now();
    let documents = vec![doc! { "_id": at(0) }, doc! { "_id": now }, doc! { "_id": "no date" }];
    client.ok("db", doc! { "insert": "c", "documents": documents });
    let expire = || {
        let idle: Arc<dyn query::Interrupt> = Arc::new(query::Uninterrupted);
        query::expire_documents(&client.service.catalog, &idle).unwrap()
    };
    assert_eq!((expire(), expire()), (1, 0));
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": at(1) }] });
    client.ok("db", doc! { "collMod": "c", "expireAfterSeconds": "off" });
    assert_eq!(expire(), 0);
    client.ok("db", doc! { "collMod": "c", "expireAfterSeconds": 10 });
    assert_eq!(expire(), 1);
    client.ok("db", doc! { "create": "plain" });
    let plain = client.run("db", doc! { "collMod": "plain", "expireAfterSeconds": "off" });
    assert_eq!(code(&plain), Some(72));
    let off = client.run("db", doc! { "collMod": "c", "timeseries": { "granularity": "hours" } });
    assert_eq!(code(&off), Some(72));
}

fn series(client: &Client) {
    let series = doc! { "timeField": "t", "metaField": "sensor", "granularity": "minutes" };
    client.ok("db", doc! { "create": "c", "timeseries": series });
    let documents: Vec<Document> = (0..20)
        .map(|i| doc! { "t": at(i * 60), "sensor": { "id": i % 4 }, "temperature": i })
        .collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
}

#[test]
fn measurements_are_found_by_time_and_source() {
    let client = Client::new();
    series(&client);
    let collections = first(&client.ok("db", doc! { "listCollections": 1 }));
    assert_eq!(collections[0].get_str("type").unwrap(), "timeseries");
    let options = doc! { "timeseries": {
        "timeField": "t", "metaField": "sensor", "granularity": "minutes",
        "bucketMaxSpanSeconds": 86_400,
    } };
    assert_eq!(collections[0].get_document("options").unwrap(), &options);
    assert_eq!(indexes(&client, "c"), ["sensor_1_t_1"]);
    assert_eq!(code(&client.run("db", doc! { "find": "system.buckets.c" })), Some(238));
    for (filter, count) in [
        (doc! { "t": { "$gte": at(600), "$lt": at(900) } }, 5),
        (doc! { "sensor": { "id": 1 }, "t": { "$lt": at(600) } }, 3),
        (doc! { "sensor.id": 1, "temperature": { "$gt": 10 } }, 2),
    ] {
        assert_eq!(
            first(&client.ok("db", doc! { "find": "c", "filter": filter.clone() })).len(),
            count,
            "{filter}"
        );
    }
    let scan = plan(&client, doc! { "sensor": { "id": 1 }, "t": { "$lt": at(600) } });
    assert_eq!(
        scan.get_document("inputStage").unwrap().get_str("indexName").unwrap(),
        "sensor_1_t_1"
    );
    let group = doc! { "aggregate": "c", "cursor": {}, "pipeline": [
        { "$group": { "_id": "$sensor.id", "n": { "$sum": 1 }, "max": { "$max": "$temperature" } } },
        { "$sort": { "_id": 1 } },
    ] };
    let groups = first(&client.ok("db", group));
    assert_eq!(groups[3], doc! { "_id": 3_i64, "n": 5, "max": 19_i64 });
    let missing =
        |document: Bson| code(&client.run("db", doc! { "insert": "c", "documents": [document] }));
    assert_eq!(missing(bson!({ "temperature": 1 })), Some(2));
    assert_eq!(missing(bson!({ "t": "noon" })), Some(2));
    assert_eq!(missing(bson!({ "t": [(at(1))] })), Some(2));
}

#[test]
fn measurements_may_share_their_id() {
    let client = Client::new();
    series(&client);
    let shared = |n: i32| doc! { "_id": 7, "t": at(n.into()), "sensor": "s", "n": n };
    let many: Vec<Document> = (0..300).map(shared).collect();
    client.ok("db", doc! { "insert": "c", "documents": many });
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 8, "t": at(0), "n": 300 }] });
    let index = doc! { "key": { "n": 1 }, "name": "n_1" };
    client.ok("db", doc! { "createIndexes": "c", "indexes": [index] });
    client.ok("db", doc! { "insert": "c", "documents": [shared(300)] });
    let find = |filter: Document, projection: Document| {
        let find = doc! {
            "find": "c", "filter": filter, "projection": projection, "batchSize": 1000,
        };
        first(&client.ok("db", find))
    };
    for (filter, count) in [
        (doc! { "_id": 7 }, 301),
        (doc! { "_id": 7, "n": { "$lt": 10 } }, 10),
        (doc! { "_id": { "$gte": 7, "$lte": 7 } }, 301),
        (doc! { "_id": { "$gt": 7, "$type": "number" } }, 1),
        (doc! { "_id": { "$in": [7, 8] } }, 302),
        (doc! { "$or": [{ "_id": 7 }, { "_id": 8 }] }, 302),
        (doc! { "sensor": "s" }, 301),
        (doc! { "n": 300 }, 2),
    ] {
        assert_eq!(find(filter.clone(), doc! {}).len(), count, "{filter}");
        let number = doc! { "count": "c", "query": filter.clone() };
        assert_eq!(client.ok("db", number).get_i32("n").unwrap(), count as i32, "{filter}");
    }
    // An entry tells the `_id` without the document.
    let covered = find(doc! { "n": { "$gte": 299 } }, doc! { "_id": 1, "n": 1 });
    let expected: Vec<_> = [(7, 299), (8, 300), (7, 300)].map(|(id, n)| (id, n)).to_vec();
    let mut found: Vec<_> = covered
        .iter()
        .map(|row| (row.get_i32("_id").unwrap(), row.get_i32("n").unwrap()))
        .collect();
    found.sort_by_key(|row| (row.1, std::cmp::Reverse(row.0)));
    assert_eq!(found, expected);
    let rename = doc! { "q": { "sensor": "s" }, "u": { "$set": { "sensor": "z" } }, "multi": true };
    let reply = client.ok("db", doc! { "update": "c", "updates": [rename] });
    assert_eq!(reply.get_i32("nModified").unwrap(), 301);
    let delete = |filter: Document, limit: i32| {
        let deletes = doc! { "delete": "c", "deletes": [{ "q": filter, "limit": limit }] };
        client.ok("db", deletes).get_i32("n").unwrap()
    };
    assert_eq!(delete(doc! { "_id": 7 }, 1), 1);
    assert_eq!(delete(doc! { "n": { "$lt": 100 }, "sensor": "z" }, 0), 99);
    assert_eq!(find(doc! { "_id": 7 }, doc! {}).len(), 201);
    let valid = client.ok("db", doc! { "validate": "c", "full": true });
    assert!(valid.get_bool("valid").unwrap(), "{valid}");
    let restarted = client.restarted(2);
    let valid = restarted.ok("db", doc! { "validate": "c" });
    assert!(valid.get_bool("valid").unwrap(), "{valid}");
    let count = restarted.ok("db", doc! { "count": "c", "query": { "_id": 7 } });
    assert_eq!(count.get_i32("n").unwrap(), 201);
}

#[test]
fn only_the_source_of_measurements_may_change() {
    let client = Client::new();
    series(&client);
    let update = |update: Document| {
        let reply = client.run("db", doc! { "update": "c", "updates": [update] });
        (code(&reply), reply.get_i32("nModified").ok())
    };
    let rename = doc! { "$set": { "sensor.room": "hall" } };
    let (one, all) = (doc! { "sensor.id": 1 }, true);
    assert_eq!(
        update(doc! { "q": one.clone(), "u": rename.clone(), "multi": all }),
        (None, Some(5))
    );
    for refused in [
        doc! { "q": one.clone(), "u": rename.clone() },
        doc! { "q": one.clone(), "u": rename.clone(), "multi": all, "upsert": true },
        doc! { "q": { "temperature": 1 }, "u": rename.clone(), "multi": all },
        doc! { "q": one.clone(), "u": { "$set": { "temperature": 0 } }, "multi": all },
        doc! { "q": one.clone(), "u": [{ "$set": { "sensor": 1 } }], "multi": all },
    ] {
        assert_eq!(update(refused.clone()).0, Some(72), "{refused}");
    }
    let modify = doc! { "findAndModify": "c", "query": one.clone(), "update": rename };
    assert_eq!(code(&client.run("db", modify)), Some(72));
    let deleted = client.ok(
        "db",
        doc! { "delete": "c", "deletes": [{ "q": { "temperature": { "$lt": 4 } }, "limit": 0 }] },
    );
    assert_eq!(deleted.get_i32("n").unwrap(), 4);
    for index in [
        doc! { "key": { "a": 1 }, "name": "a", "unique": true },
        doc! { "key": { "t": 1 }, "name": "b", "expireAfterSeconds": 1 },
        doc! { "key": { "a": "hashed" }, "name": "c" },
    ] {
        assert_eq!(
            code(&client.run("db", doc! { "createIndexes": "c", "indexes": [index] })),
            Some(72)
        );
    }
    let rename = doc! { "renameCollection": "db.c", "to": "db.d" };
    assert_eq!(code(&client.run("admin", rename)), Some(20));
    client.ok(
        "db",
        doc! { "collMod": "c", "timeseries": { "granularity": "hours" }, "expireAfterSeconds": 5 },
    );
    let restarted = client.restarted(2);
    let collections = first(&restarted.ok("db", doc! { "listCollections": 1 }));
    let options = collections[0].get_document("options").unwrap();
    assert_eq!(options.get_i64("expireAfterSeconds").unwrap(), 5);
    assert_eq!(
        options.get_document("timeseries").unwrap().get_str("granularity").unwrap(),
        "hours"
    );
    let idle: Arc<dyn query::Interrupt> = Arc::new(query::Uninterrupted);
    assert_eq!(query::expire_documents(&restarted.service.catalog, &idle).unwrap(), 16);
}

#[test]
fn a_view_may_get_another_source_and_pipeline() {
    let client = Client::new();
    client.ok("db", doc! { "insert": "a", "documents": [{ "_id": 1 }, { "_id": 2 }] });
    client.ok("db", doc! { "insert": "b", "documents": [{ "_id": 3 }] });
    client
        .ok("db", doc! { "create": "v", "viewOn": "a", "pipeline": [{ "$match": { "_id": 1 } }] });
    let ids = || -> Vec<i32> {
        let found = first(&client.ok("db", doc! { "find": "v" }));
        found.iter().map(|document| document.get_i32("_id").unwrap()).collect()
    };
    assert_eq!(ids(), [1]);
    client
        .ok("db", doc! { "collMod": "v", "viewOn": "a", "pipeline": [{ "$match": { "_id": 2 } }] });
    assert_eq!(ids(), [2]);
    client.ok("db", doc! { "collMod": "v", "viewOn": "b", "pipeline": [] });
    assert_eq!(ids(), [3]);
    assert_eq!(code(&client.run("db", doc! { "collMod": "a", "viewOn": "b" })), Some(72));
    assert_eq!(code(&client.run("db", doc! { "collMod": "v", "viewOn": "v" })), Some(5));
}

/// Views that would reach themselves through a stage, each by its way to name a collection.
#[test]
fn no_view_reaches_itself_through_a_stage() {
    let lookup = |from: &str| {
        doc! { "$lookup": { "from": from, "as": "x", "localField": "a", "foreignField": "a" } }
    };
    let stages = |from: &str| {
        let searched = doc! {
            "from": from, "as": "x", "startWith": "$a",
            "connectFromField": "a", "connectToField": "a"
        };
        [
            lookup(from),
            doc! { "$lookup": { "from": "c", "as": "x", "pipeline": [lookup(from)] } },
            doc! { "$unionWith": from },
            doc! { "$unionWith": { "coll": from } },
            doc! { "$unionWith": { "coll": "c", "pipeline": [lookup(from)] } },
            doc! { "$graphLookup": searched },
            doc! { "$facet": { "one": [lookup(from)] } },
        ]
    };
    for (itself, other) in stages("v").into_iter().zip(stages("w")) {
        let client = Client::new();
        client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 1, "a": 1 }] });
        client.ok("db", doc! { "create": "v", "viewOn": "c", "pipeline": [] });
        let change = doc! { "collMod": "v", "viewOn": "c", "pipeline": [&itself] };
        assert_eq!(code(&client.run("db", change)), Some(5), "{itself}");
        let create = doc! { "create": "u", "viewOn": "c", "pipeline": [&itself] };
        client.ok("db", create);
        client.ok("db", doc! { "drop": "v" });
        let made = doc! { "create": "v", "viewOn": "c", "pipeline": [&other] };
        client.ok("db", made);
        let back = doc! { "create": "w", "viewOn": "c", "pipeline": [&itself] };
        assert_eq!(code(&client.run("db", back)), Some(5), "{other}");
        client.ok("db", doc! { "create": "w", "viewOn": "c", "pipeline": [] });
        let back = doc! { "collMod": "w", "viewOn": "v", "pipeline": [] };
        assert_eq!(code(&client.run("db", back)), Some(5), "{other}");
        client.ok("db", doc! { "aggregate": "u", "pipeline": [], "cursor": {} });
    }
}

#[test]
fn chains_of_views_through_stages_have_an_end() {
    let client = Client::new();
    client.ok("db", doc! { "insert": "v0", "documents": [{ "_id": 1 }] });
    let view = |number: u32| {
        let below = format!("v{}", number - 1);
        let stage = doc! { "$lookup": { "from": below, "as": "x", "pipeline": [] } };
        doc! { "create": format!("v{number}"), "viewOn": "v0", "pipeline": [stage] }
    };
    for number in 1..=20 {
        client.ok("db", view(number));
    }
    assert_eq!(code(&client.run("db", view(21))), Some(165));
    let found = doc! { "aggregate": "v20", "pipeline": [], "cursor": {} };
    client.ok("db", found);
    let stage = doc! { "$lookup": { "from": "v20", "as": "x", "pipeline": [] } };
    let deeper = doc! { "aggregate": "v0", "pipeline": [stage], "cursor": {} };
    assert_eq!(code(&client.run("db", deeper)), Some(232));
}
