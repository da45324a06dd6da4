//! JavaScript of a client's: `$where`, `$function`, `$accumulator`, `mapReduce`.

use super::*;
use bson::Bson;

fn client() -> Client {
    let client = Client::new();
    let documents: Vec<Document> = (0..10)
        .map(|i| doc! { "_id": i, "k": i % 3, "tags": ["x", format!("t{}", i % 2)] })
        .collect();
    client.ok("db", doc! { "insert": "c", "documents": documents });
    client
}

fn batch(reply: &Document) -> Vec<Document> {
    let cursor = reply.get_document("cursor").unwrap();
    let batch = cursor.get_array("firstBatch").unwrap();
    batch.iter().map(|item| item.as_document().unwrap().clone()).collect()
}

fn code(source: &str) -> Bson {
    Bson::JavaScriptCode(source.into())
}

fn ids(client: &Client, filter: Document) -> Vec<i32> {
    let found = client.ok("db", doc! { "find": "c", "filter": filter });
    batch(&found).iter().map(|document| document.get_i32("_id").unwrap()).collect()
}

fn fails(client: &Client, command: Document) -> i32 {
    client.run("db", command).get_i32("code").unwrap()
}

#[test]
fn where_asks_code_about_each_document() {
    let client = client();
    assert_eq!(ids(&client, doc! { "$where": "this._id > 7" }), [8, 9]);
    assert_eq!(ids(&client, doc! { "$where": code("() => obj._id < 2") }), [0, 1]);
    let both =
        doc! { "k": 0, "$or": [{ "$where": code("return obj.tags[1] == 't1'") }, { "_id": 0 }] };
    assert_eq!(ids(&client, both), [0, 3, 9]);
    let count = client.ok("db", doc! { "count": "c", "query": { "$where": "this.k == 1" } });
    assert_eq!(count.get_i32("n").unwrap(), 3);
    let update = doc! { "q": { "$where": "this._id == 4" }, "u": { "$set": { "hit": true } } };
    client.ok("db", doc! { "update": "c", "updates": [update] });
    assert_eq!(ids(&client, doc! { "hit": true }), [4]);
}

#[test]
fn where_has_its_place_and_its_mistakes() {
    let client = client();
    let find = |filter: Document| doc! { "find": "c", "filter": filter };
    assert_eq!(fails(&client, find(doc! { "$where": 5 })), 2);
    let scoped = Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope {
        code: "function() { return this._id < n }".into(),
        scope: doc! { "n": 2 },
    });
    assert_eq!(fails(&client, find(doc! { "$where": scoped })), 4_649_201);
    assert_eq!(fails(&client, find(doc! { "$where": "nonsense(" })), 139);
    assert_eq!(fails(&client, find(doc! { "$where": "throw 1" })), 139);
    assert_eq!(fails(&client, find(doc! { "a": { "$elemMatch": { "$where": "1" } } })), 2);
    let matched = doc! { "$match": { "$where": "true" } };
    assert_eq!(fails(&client, doc! { "aggregate": "c", "pipeline": [matched], "cursor": {} }), 2);
    let endless =
        doc! { "find": "c", "filter": { "$where": "for (;;) {}; return 1" }, "maxTimeMS": 50 };
    assert_eq!(fails(&client, endless), 50);
    assert_eq!(ids(&client, doc! { "$where": "this._id == 1" }), [1]);
}

#[test]
fn functions_are_expressions() {
    let client = client();
    let function =
        |body: Bson, args: Bson| doc! { "$function": { "body": body, "args": args, "lang": "js" } };
    let sum =
        function(code("function(a, b) { return a + b.length }"), vec!["$_id", "$tags"].into());
    let pipeline =
        vec![doc! { "$match": { "_id": { "$lt": 2 } } }, doc! { "$project": { "sum": sum } }];
    let reply = client.ok("db", doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} });
    assert_eq!(batch(&reply), [doc! { "_id": 0, "sum": 2.0 }, doc! { "_id": 1, "sum": 3.0 }]);
    let even = function("function(id) { return id % 2 == 0 }".into(), vec!["$_id"].into());
    assert_eq!(ids(&client, doc! { "$expr": even }), [0, 2, 4, 6, 8]);
    let project = |function: Document| {
        let pipeline = vec![doc! { "$project": { "x": { "$function": function } } }];
        doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} }
    };
    for (function, expected) in [
        (doc! { "args": [], "lang": "js" }, 31261),
        (doc! { "body": 1, "args": [], "lang": "js" }, 31262),
        (doc! { "body": "f", "lang": "js" }, 31263),
        (doc! { "body": "f", "args": [] }, 31418),
        (doc! { "body": "f", "args": [], "lang": "lua" }, 31419),
        (doc! { "body": "$a", "args": [], "lang": "js" }, 31432),
        (doc! { "body": "function() { return 1 }", "args": "$k", "lang": "js" }, 31266),
        (doc! { "body": "function() { return f() }", "args": [], "lang": "js" }, 139),
    ] {
        assert_eq!(fails(&client, project(function.clone())), expected, "{function}");
    }
}

#[test]
fn accumulators_keep_their_own_state() {
    let client = client();
    let average = doc! { "$accumulator": {
        "init": "function(start) { return { n: start, sum: 0 } }",
        "initArgs": [0],
        "accumulate": "function(state, x) { return { n: state.n + 1, sum: state.sum + x } }",
        "accumulateArgs": ["$_id"],
        "merge": "function(a, b) { return { n: a.n + b.n, sum: a.sum + b.sum } }",
        "finalize": "function(state) { return state.sum / state.n }",
        "lang": "js",
    } };
    let pipeline = vec![
        doc! { "$group": { "_id": "$k", "average": average } },
        doc! { "$sort": { "_id": 1 } },
    ];
    let reply = client.ok("db", doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} });
    let averages: Vec<f64> =
        batch(&reply).iter().map(|group| group.get_f64("average").unwrap()).collect();
    assert_eq!(averages, [4.5, 4.0, 5.0]);
}

#[test]
fn what_is_stored_is_known_to_where_and_map_reduce() {
    let client = client();
    let stored = vec![
        doc! { "_id": "limit", "value": 8 },
        doc! { "_id": "isLarge", "value": code("function(x) { return x >= limit }") },
    ];
    client.ok("db", doc! { "insert": "system.js", "documents": stored });
    assert_eq!(ids(&client, doc! { "$where": "isLarge(this._id)" }), [8, 9]);
    let reply = client.ok(
        "db",
        doc! {
            "mapReduce": "c",
            "map": "function() { emit(isLarge(this._id), 1) }",
            "reduce": "function(key, values) { return Array.sum(values) }",
            "out": { "inline": 1 },
        },
    );
    let results = reply.get_array("results").unwrap();
    assert_eq!(results[1], Bson::Document(doc! { "_id": true, "value": 2.0 }));
    let function = doc! { "body": "function() { return limit }", "args": [], "lang": "js" };
    let pipeline = vec![doc! { "$project": { "x": { "$function": function } } }];
    let unknown = doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} };
    assert_eq!(fails(&client, unknown), 139);
}

#[test]
fn where_it_is_not_allowed_it_is_refused() {
    let client = client();
    client.service.scripting.enabled.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(fails(&client, doc! { "find": "c", "filter": { "$where": "1" } }), 6_108_304);
    assert_eq!(fails(&client, map_reduce(doc! { "inline": 1 })), 31264);
    let function = doc! { "$function": { "body": "f", "args": [], "lang": "js" } };
    assert_eq!(fails(&client, doc! { "find": "c", "filter": { "$expr": function } }), 31264);
    let parameter = client.ok("admin", doc! { "getParameter": 1, "javascriptEnabled": 1 });
    assert!(!parameter.get_bool("javascriptEnabled").unwrap());
}

#[test]
fn validators_run_no_code() {
    let client = client();
    let function = doc! { "$function": { "body": "f", "args": [], "lang": "js" } };
    for (validator, code) in
        [(doc! { "$where": "1" }, 2), (doc! { "$expr": { "$not": [function] } }, 4_660_800)]
    {
        let create = doc! { "create": "v", "validator": validator };
        assert_eq!(fails(&client, create.clone()), code, "{create}");
    }
}

#[test]
fn a_call_ends_after_its_time() {
    let client = client();
    let parameter = "internalQueryJavaScriptFnTimeoutMillis";
    client.ok("admin", doc! { "setParameter": 1, parameter: 20 });
    let endless = doc! { "find": "c", "filter": { "$where": "for (;;) {}; return 1" } };
    assert_eq!(fails(&client, endless), 11601);
}

fn map_reduce(out: impl Into<Bson>) -> Document {
    doc! {
        "mapReduce": "c",
        "map": code("function() { for (var tag of this.tags) emit(tag, one) }"),
        "reduce": code("function(key, values) { return Array.sum(values) }"),
        "scope": { "one": 1 },
        "out": out,
    }
}

#[test]
fn map_reduce_replies_or_writes() {
    let client = client();
    let inline = client.ok("db", map_reduce(doc! { "inline": 1 }));
    let wanted = |t0: f64, t1: f64, x: f64| {
        [("t0", t0), ("t1", t1), ("x", x)].map(|(tag, n)| doc! { "_id": tag, "value": n })
    };
    let results: Vec<Document> = inline
        .get_array("results")
        .unwrap()
        .iter()
        .map(|one| one.as_document().unwrap().clone())
        .collect();
    assert_eq!(results, wanted(5.0, 5.0, 10.0));
    let stored =
        |client: &Client| batch(&client.ok("db", doc! { "find": "out", "sort": { "_id": 1 } }));
    let reply = client.ok("db", map_reduce("out"));
    assert_eq!(reply.get_str("result").unwrap(), "out");
    assert_eq!(stored(&client), wanted(5.0, 5.0, 10.0));
    client.ok("db", map_reduce(doc! { "reduce": "out" }));
    assert_eq!(stored(&client), wanted(10.0, 10.0, 20.0));
    let mut some = map_reduce(doc! { "merge": "out" });
    some.extend(
        doc! { "query": { "_id": 1 }, "finalize": "function(key, value) { return -value }" },
    );
    client.ok("db", some);
    assert_eq!(stored(&client), wanted(10.0, -1.0, -1.0));
    for missing in ["map", "reduce", "out"] {
        let mut command = map_reduce("out");
        command.remove(missing);
        assert_eq!(fails(&client, command), 40414, "{missing}");
    }
}
