//! Geospatial indexes and queries as a client sends them.

use super::*;

#[test]
fn geo_indexes_are_built_listed_and_asked() {
    let client = Client::new();
    let point = |x: i32, y: i32| doc! { "type": "Point", "coordinates": [x, y] };
    let documents: Vec<Document> =
        (0..20).map(|n| doc! { "_id": n, "at": point(n, 0), "flat": [n, n] }).collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    let near = doc! { "at": { "$near": { "$geometry": point(3, 0), "$maxDistance": 150_000 } } };
    let find = doc! { "find": "c", "filter": near.clone() };
    client.fails(
        "db",
        find.clone(),
        291,
        "error processing query: planner returned error :: caused by :: unable to find index for \
         $geoNear query",
    );
    let indexes = [
        doc! { "key": { "at": "2dsphere" }, "name": "at_2dsphere" },
        doc! { "key": { "flat": "2d" }, "name": "flat_2d", "bits": 20 },
    ];
    client.ok("db", doc! { "createIndexes": "c", "indexes": indexes.to_vec() });
    let list = client.ok("db", doc! { "listIndexes": "c" });
    let listed = list.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(
        listed[1..],
        [
            doc! {
                "v": 2, "key": { "at": "2dsphere" }, "name": "at_2dsphere",
                "2dsphereIndexVersion": 3
            }
            .into(),
            doc! { "v": 2, "key": { "flat": "2d" }, "name": "flat_2d", "bits": 20 }.into(),
        ]
    );
    let ids = |reply: &Document| -> Vec<i32> {
        let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        batch.iter().map(|found| found.as_document().unwrap().get_i32("_id").unwrap()).collect()
    };
    let found = ids(&client.ok("db", find.clone()));
    assert_eq!(found[0], 3);
    assert_eq!(found.len(), 3);
    let plan = client.ok("db", doc! { "explain": find, "verbosity": "queryPlanner" });
    let winner = plan.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap();
    assert_eq!(winner.get_str("stage").ok(), Some("GEO_NEAR_2DSPHERE"));
    let flat = doc! { "flat": { "$geoWithin": { "$box": [[2, 2], [5, 5]] } } };
    assert_eq!(ids(&client.ok("db", doc! { "find": "c", "filter": flat })), [2, 3, 4, 5]);
    let stage = doc! { "$geoNear": { "near": [7, 7], "distanceField": "far" } };
    let measured = client.ok("db", doc! { "aggregate": "c", "pipeline": [stage], "cursor": {} });
    assert_eq!(ids(&measured)[0], 7);
    let change = doc! { "q": near, "u": { "$set": { "close": true } } };
    let updated = client.ok("db", doc! { "update": "c", "updates": [change] });
    assert_eq!(updated.get_i32("n").ok(), Some(1));
    let close = client.ok("db", doc! { "find": "c", "filter": { "close": true } });
    assert_eq!(ids(&close), [3]);
    let bad = doc! { "at": { "type": "Point", "coordinates": [500, 0] } };
    let refused = client.ok("db", doc! { "insert": "c", "documents": [bad] });
    let error = refused.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(error.get_i32("code").ok(), Some(16755));
    assert!(error.get_str("errmsg").unwrap().starts_with("Can't extract geo keys: { "));
}

#[test]
fn what_was_measured_outlives_the_fields_that_a_stage_leaves_out() {
    let client = Client::new();
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 1, "at": [1, 1], "k": 1 }] });
    let index = doc! { "key": { "at": "2d" }, "name": "at" };
    client.ok("db", doc! { "createIndexes": "c", "indexes": [index] });
    for between in [
        doc! { "$project": { "k": 1 } },
        doc! { "$project": { "_id": 0, "j": "$k" } },
        doc! { "$replaceRoot": { "newRoot": { "k": "$k" } } },
        doc! { "$replaceWith": "$$ROOT" },
    ] {
        let pipeline = [
            doc! { "$geoNear": { "near": [1, 5], "distanceField": "far" } },
            between.clone(),
            doc! { "$project": {
                "_id": 0, "d": { "$meta": "geoNearDistance" }, "p": { "$meta": "geoNearPoint" },
            } },
        ];
        let reply = client.ok("db", doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} });
        let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        assert_eq!(batch, &[doc! { "d": 4.0, "p": [1, 1] }.into()], "{between}");
    }
}
