//! Operations on one document by its `_id`: what is found by one lookup answers as a plan does.

use super::*;
use bson::Bson;

/// A small generator, so that a failure repeats.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn id(numbers: &mut Numbers) -> Bson {
    let number = numbers.below(12);
    match numbers.below(6) {
        0 => Bson::Int64(number as i64),
        1 => Bson::String(["a", "A", "b", "B"][number as usize % 4].to_owned()),
        2 => Bson::ObjectId(bson::oid::ObjectId::from_bytes([number as u8 % 4; 12])),
        3 => Bson::DateTime(bson::DateTime::from_millis(number as i64 % 4)),
        _ => Bson::Int32(number as i32),
    }
}

fn change(numbers: &mut Numbers) -> Bson {
    let number = numbers.below(5) as i32;
    let change = match numbers.below(10) {
        0 => doc! { "$set": { "text": "x".repeat(number as usize) } },
        1 => doc! { "$inc": { "n": number, "a.b": 1 } },
        2 => doc! { "$set": { "list.$": number } },
        3 => doc! { "$push": { "list": number } },
        4 => doc! { "n": number, "replaced": true },
        5 => doc! { "$set": { "_id": 77 } },
        6 => doc! { "$inc": { "list": 1 } },
        7 => doc! { "$set": { "unique": number } },
        8 => return Bson::Array(vec![doc! { "$set": { "n": { "$add": ["$n", 1] } } }.into()]),
        _ => doc! { "$unset": { "text": 1 }, "$setOnInsert": { "made": number } },
    };
    change.into()
}

/// A request about the document that `filter` names.
fn request(numbers: &mut Numbers, filter: &Document) -> Document {
    let upsert = numbers.below(3) == 0;
    let update = |numbers: &mut Numbers| {
        let multi = numbers.below(4) == 0;
        doc! { "q": filter.clone(), "u": change(numbers), "upsert": upsert, "multi": multi }
    };
    match numbers.below(9) {
        0 => doc! { "find": "c", "filter": filter.clone() },
        1 => doc! { "count": "c", "query": filter.clone() },
        2 => doc! { "delete": "c", "deletes": [
            { "q": filter.clone(), "limit": numbers.below(2) as i32 },
        ] },
        3 => doc! { "findAndModify": "c", "query": filter.clone(), "remove": true },
        4 => doc! {
            "findAndModify": "c", "query": filter.clone(), "update": change(numbers),
            "upsert": upsert, "new": numbers.below(2) == 0,
        },
        5 => doc! {
            "findAndModify": "c", "query": filter.clone(), "update": change(numbers),
            "fields": { "n": 1 },
        },
        6 => {
            doc! { "update": "c", "updates": [update(numbers), update(numbers)], "ordered": false }
        }
        _ => doc! { "update": "c", "updates": [update(numbers)] },
    }
}

/// A server with a collection, and the profiler on.
fn server(options: &Document) -> Client {
    let client = Client::new();
    let mut create = doc! { "create": "c" };
    create.extend(options.clone());
    client.ok("db", create);
    let index = doc! { "key": { "unique": 1 }, "name": "unique", "unique": true, "sparse": true };
    client.ok("db", doc! { "createIndexes": "c", "indexes": [index] });
    client.ok("db", doc! { "profile": 2 });
    client
}

/// All documents of a collection, in the order of their ids.
fn documents(client: &Client, of: &str) -> Bson {
    let find = doc! { "find": of, "filter": {}, "batchSize": 100_000 };
    client.ok("db", find).get_document("cursor").unwrap().get("firstBatch").unwrap().clone()
}

/// What the profile tells of plans and figures.
fn profile(client: &Client) -> Vec<Document> {
    let told = [
        "op",
        "planSummary",
        "keysExamined",
        "docsExamined",
        "nMatched",
        "nModified",
        "ndeleted",
        "nreturned",
        "upsert",
        "errCode",
    ];
    let Bson::Array(entries) = documents(client, "system.profile") else { panic!("an array") };
    let some = |entry: &Bson| {
        let entry = entry.as_document().unwrap();
        told.iter()
            .filter_map(|name| Some(((*name).to_owned(), entry.get(*name)?.clone())))
            .collect()
    };
    entries.iter().map(some).collect()
}

fn compare(seed: u64, options: Document) {
    let mut numbers = Numbers(seed);
    let (by_lookup, by_plan) = (server(&options), server(&options));
    let mut open = false;
    for step in 0..1500 {
        if numbers.below(12) == 0 {
            let command = match (open, numbers.below(3)) {
                (false, _) => doc! { "beginTransaction": 1 },
                (true, 0) => doc! { "abortTransaction": 1 },
                (true, _) => doc! { "commitTransaction": 1 },
            };
            open = !open;
            assert_eq!(by_lookup.ok("db", command.clone()), by_plan.ok("db", command));
        }
        let id = id(&mut numbers);
        let mut same = Numbers(numbers.0);
        let lookup = request(&mut numbers, &doc! { "_id": id.clone() });
        let plan = request(&mut same, &doc! { "_id": { "$eq": id } });
        let replies = (by_lookup.run("db", lookup.clone()), by_plan.run("db", plan));
        assert_eq!(replies.0, replies.1, "{step}: {lookup}");
    }
    if open {
        by_lookup.ok("db", doc! { "commitTransaction": 1 });
        by_plan.ok("db", doc! { "commitTransaction": 1 });
    }
    assert_eq!(documents(&by_lookup, "c"), documents(&by_plan, "c"));
    let (lookups, plans) = (profile(&by_lookup), profile(&by_plan));
    assert!(
        lookups
            .iter()
            .any(|entry| entry.get_str("planSummary").is_ok_and(|summary| summary == "IDHACK"))
    );
    assert_eq!(lookups, plans);
}

#[test]
fn a_lookup_by_id_answers_as_a_plan_does() {
    for seed in 1..5 {
        compare(seed, doc! {});
    }
}

#[test]
fn also_where_a_collation_compares_ids() {
    compare(7, doc! { "collation": { "locale": "en", "strength": 2 } });
}

#[test]
fn what_another_transaction_holds_is_met_as_by_a_plan() {
    let client = server(&doc! {});
    client.ok("db", doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    let other = client.another(2);
    other.ok("db", doc! { "beginTransaction": 1 });
    other.ok("db", doc! { "insert": "c", "documents": [{ "_id": 2 }] });
    let update = |filter: Document| {
        doc! { "update": "c", "updates": [{ "q": filter, "u": { "$inc": { "n": 1 } } }] }
    };
    // A document that nobody else sees yet is not waited for.
    for filter in [doc! { "_id": 2 }, doc! { "_id": { "$eq": 2 } }] {
        assert_eq!(client.ok("db", update(filter)).get_i32("n").ok(), Some(0));
    }
    client.ok("db", doc! { "beginTransaction": 1 });
    for filter in [doc! { "_id": 2 }, doc! { "_id": { "$eq": 2 } }] {
        assert_eq!(client.ok("db", update(filter)).get_i32("n").ok(), Some(0));
    }
    assert_eq!(client.ok("db", update(doc! { "_id": 1 })).get_i32("n").ok(), Some(1));
    client.ok("db", doc! { "commitTransaction": 1 });
    other.ok("db", doc! { "commitTransaction": 1 });
    assert_eq!(client.ok("db", update(doc! { "_id": 2 })).get_i32("n").ok(), Some(1));
}
