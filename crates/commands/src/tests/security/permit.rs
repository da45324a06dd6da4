//! The second check: commands are planted here whose needs are too small, and what they open is refused.

use super::super::Client;
use super::{create, find};
use crate::command::Command;
use crate::crud::{find::FIND, insert::INSERT, update::UPDATE};
use crate::needs::Needs;
use auth::Action;
use bson::{Bson, Document, doc};
use dispatch::rules::Counter;

/// A find that needs nothing.
static PEEK: Command =
    Command::new("peek", "A find.", Needs::Login, FIND.run).reads(Counter::Query);
/// An insert and an update that need what a find does.
static POUR: Command =
    Command::new("pour", "An insert.", Needs::Collection(&[Action::Find]), INSERT.run)
        .writes(Counter::Insert);
static BEND: Command =
    Command::new("bend", "An update.", Needs::Collection(&[Action::Find]), UPDATE.run)
        .writes(Counter::Update);
/// A pipeline that needs what a find does, whatever its stages are.
static SIFT: Command = Command::new(
    "sift",
    "A pipeline.",
    Needs::Collection(&[Action::Find]),
    crate::aggregation::aggregate::AGGREGATE.run,
)
.reads(Counter::Command)
.write_concern();

fn misses(client: &Client) -> i64 {
    let status = client.ok("admin", doc! { "serverStatus": 1 });
    status.get_document("security").unwrap().get_i64("permitMisses").unwrap()
}

fn sift(stages: Bson) -> Document {
    doc! { "sift": "c", "pipeline": stages, "cursor": {} }
}

#[test]
fn what_no_need_names_is_refused_where_it_is_opened() {
    let root = Client::asking_with(&[&PEEK, &POUR, &BEND, &SIFT]);
    root.ok("admin", create("root", &[("root", "admin")]));
    assert_eq!(root.log_in("root", "admin"), 0);
    for (id, name) in [(1, "c"), (2, "other")] {
        root.ok("d", doc! { "insert": name, "documents": [{ "_id": id, "a": 1 }] });
    }
    root.ok("d", doc! { "create": "v", "viewOn": "c", "pipeline": [{ "$unionWith": "other" }] });
    // Whoever asks: even who may do everything.
    let update = |by: &str| doc! { by: "c", "updates": [{ "q": {}, "u": { "$set": { "a": 2 } } }] };
    let refused = [
        doc! { "peek": "c" },
        doc! { "peek": "c", "filter": { "_id": 1 } },
        doc! { "peek": "v" },
        doc! { "pour": "c", "documents": [{}] },
        update("bend"),
        sift(bson::bson!([{ "$lookup": { "from": "other", "as": "x", "pipeline": [] } }])),
        sift(bson::bson!([{ "$lookup": { "from": "v", "as": "x", "pipeline": [] } }])),
        sift(
            bson::bson!([{ "$graphLookup": { "from": "other", "startWith": 1, "connectFromField": "a", "connectToField": "a", "as": "x" } }]),
        ),
        sift(bson::bson!([{ "$unionWith": "other" }])),
        sift(
            bson::bson!([{ "$facet": { "f": [{ "$lookup": { "from": "other", "as": "x", "pipeline": [] } }] } }]),
        ),
        sift(bson::bson!([{ "$out": "made" }])),
        sift(bson::bson!([{ "$merge": { "into": "other" } }])),
        sift(bson::bson!([{ "$merge": { "into": "c" } }])),
    ];
    for command in refused {
        let before = misses(&root);
        let reply = root.run("d", command.clone());
        assert_eq!(reply.get_i32("code").ok(), Some(1), "{command} gave {reply}");
        assert!(misses(&root) > before, "{command}");
    }
    let count = root.ok("d", doc! { "count": "other" });
    assert_eq!(count.get_i32("n").unwrap(), 1, "nothing was written");
    assert_eq!(root.code("d", doc! { "collStats": "made" }), 0);
    assert_eq!(root.ok("d", doc! { "count": "made" }).get_i32("n").unwrap(), 0);
    // What is named is opened, also what a view is made of.
    let seen = misses(&root);
    for command in [
        find("c"),
        find("v"),
        sift(bson::bson!([{ "$match": {} }])),
        sift(bson::bson!([{ "$lookup": { "from": "c", "as": "x", "pipeline": [] } }])),
        doc! { "sift": "v", "pipeline": [], "cursor": {} },
        doc! { "count": "v" },
        doc! { "aggregate": "v", "pipeline": [{ "$out": "made" }], "cursor": {} },
        doc! { "aggregate": "v", "pipeline": [{ "$merge": { "into": "made" } }], "cursor": {} },
        doc! { "mapReduce": "c", "map": "function() { emit(1, 1) }", "reduce": "function() { return 1 }", "out": "reduced" },
        doc! { "explain": { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 3 } } }] } },
        doc! { "explain": find("v") },
        doc! { "planCacheSetFilter": "c", "query": { "a": 1 }, "indexes": ["_id_"] },
        doc! { "planCacheClear": "c", "query": { "a": 1 } },
        doc! { "findAndModify": "c", "query": { "_id": 1 }, "update": { "$set": { "a": 4 } } },
        doc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": {} }], "nsInfo": [{ "ns": "d.other" }] },
        doc! { "aggregate": "c", "pipeline": [{ "$indexStats": {} }], "cursor": {} },
        doc! { "aggregate": "c", "pipeline": [{ "$collStats": { "count": {} } }], "cursor": {} },
    ] {
        let database = if command.contains_key("bulkWrite") { "admin" } else { "d" };
        root.ok(database, command);
        assert_eq!(misses(&root), seen);
    }
}

#[test]
fn a_cursor_opens_later_what_its_command_was_judged_by() {
    let root = Client::rooted();
    for name in ["c", "other"] {
        let documents: Vec<Document> = (0..5).map(|id| doc! { "_id": id }).collect();
        root.ok("d", doc! { "insert": name, "documents": documents });
    }
    let lookup = doc! { "$lookup": { "from": "other", "localField": "_id", "foreignField": "_id", "as": "x" } };
    let pipeline = doc! { "aggregate": "c", "pipeline": [lookup], "cursor": { "batchSize": 1 } };
    let opened = root.ok("d", pipeline);
    let mut id = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
    let mut seen = 1;
    while id != 0 {
        let more = root.ok("d", doc! { "getMore": id, "collection": "c", "batchSize": 1 });
        let cursor = more.get_document("cursor").unwrap();
        seen += cursor.get_array("nextBatch").unwrap().len();
        id = cursor.get_i64("id").unwrap();
    }
    assert_eq!((seen, misses(&root)), (5, 0));
}

#[test]
fn a_collection_is_found_by_its_uuid_by_who_may_find_it() {
    let root = Client::rooted();
    root.ok("d", doc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 2 }, { "_id": 3 }] });
    root.ok("d", doc! { "insert": "hidden", "documents": [{ "_id": 1 }] });
    let listed = root.ok("d", doc! { "listCollections": 1 });
    let listed = listed.get_document("cursor").unwrap().get_array("firstBatch").unwrap().clone();
    let uuid_of = |name: &str| {
        let of = |one: &&Bson| one.as_document().unwrap().get_str("name").ok() == Some(name);
        let one = listed.iter().find(of).unwrap().as_document().unwrap();
        one.get_document("info").unwrap().get("uuid").unwrap().clone()
    };
    let privilege = |resource: Document, actions: &[&str]| {
        doc! { "resource": resource, "actions": actions.to_vec() }
    };
    let c = doc! { "db": "d", "collection": "c" };
    let uuids = privilege(doc! { "cluster": true }, &["useUUID"]);
    root.ok("admin", doc! { "createRole": "by", "roles": [], "privileges": [privilege(c.clone(), &["find", "listIndexes"]), uuids] });
    root.ok(
        "admin",
        doc! { "createRole": "reads", "roles": [], "privileges": [privilege(c, &["find"])] },
    );
    let by = root.with_user("by", &[("by", "admin")]);
    let reads = root.with_user("reads", &[("reads", "admin")]);
    for name in ["find", "count", "listIndexes", "distinct"] {
        let command = |uuid: Bson| {
            let mut command = doc! { name: uuid };
            if name == "distinct" {
                command.insert("key", "_id");
            }
            command
        };
        by.ok("d", command(uuid_of("c")));
        root.ok("d", command(uuid_of("hidden")));
        assert_eq!(by.code("d", command(uuid_of("hidden"))), 13, "{name}");
        assert_eq!(reads.code("d", command(uuid_of("c"))), 13, "{name}: without useUUID");
    }
    assert_eq!(by.code("d", doc! { "insert": uuid_of("c"), "documents": [{}] }), 13);
    // Its cursor is judged by the collection, too.
    let opened = by.ok("d", doc! { "find": uuid_of("c"), "batchSize": 1 });
    let id = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
    let more = doc! { "getMore": id, "collection": "c", "batchSize": 1 };
    by.ok("d", more.clone());
    root.ok(
        "admin",
        doc! { "revokePrivilegesFromRole": "by",
        "privileges": [privilege(doc! { "db": "d", "collection": "c" }, &["find"])] },
    );
    assert_eq!(by.code("d", more), 13);
    assert_eq!(misses(&root), 0);
}
