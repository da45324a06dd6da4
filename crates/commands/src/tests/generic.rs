//! The arguments every command takes, and the refusals every command shares.

use super::Client;
use bson::{Bson, doc};

#[test]
fn unknown_command_is_not_found() {
    let client = Client::new();
    client.fails("admin", doc! { "atlasVersion": 1 }, 59, "no such command: 'atlasVersion'");
    client.fails("admin", doc! {}, 59, "no such command: ''");
    client.fails("test", doc! { "getLastError": 1 }, 59, "no such command: 'getLastError'");
}

#[test]
fn unknown_field_is_refused_by_name() {
    let client = Client::new();
    let text = |place: &str| format!("BSON field '{place}' is an unknown field.");
    client.fails("test", doc! { "find": "c", "foo": 1 }, 40415, &text("find.foo"));
    client.fails("test", doc! { "ping": 1, "foo": 1 }, 40415, &text("ping.foo"));
    client.fails("test", doc! { "create": "c", "foo": 1 }, 40415, &text("create.foo"));
    let update = doc! { "update": "c", "updates": [{ "q": {}, "u": {}, "foo": 1 }] };
    client.fails("test", update, 40415, &text("update.updates.foo"));
}

#[test]
fn wrong_types_are_refused_in_mongodbs_words() {
    let client = Client::new();
    for (command, text) in [
        (
            doc! { "find": "c", "filter": "x" },
            "BSON field 'find.filter' is the wrong type 'string', expected type 'object'",
        ),
        (
            doc! { "find": "c", "singleBatch": "x" },
            "BSON field 'find.singleBatch' is the wrong type 'string', expected types '[bool, \
             long, int, decimal, double']",
        ),
        (
            doc! { "find": "c", "batchSize": true },
            "BSON field 'find.batchSize' is the wrong type 'bool', expected types '[long, int, \
             decimal, double']",
        ),
        (
            doc! { "listCollections": 1, "nameOnly": 1 },
            "BSON field 'listCollections.nameOnly' is the wrong type 'int', expected type 'bool'",
        ),
        (
            doc! { "getMore": 1, "collection": "c" },
            "BSON field 'getMore.getMore' is the wrong type 'int', expected type 'long'",
        ),
        (
            doc! { "insert": "c", "documents": [1] },
            "BSON field 'insert.documents.0' is the wrong type 'int', expected type 'object'",
        ),
    ] {
        client.fails("test", command, 14, text);
    }
}

#[test]
fn missing_and_duplicate_fields_are_refused() {
    let client = Client::new();
    let missing = |place: &str| format!("BSON field '{place}' is missing but a required field");
    client.fails("test", doc! { "insert": "c" }, 40414, &missing("insert.documents"));
    client.fails("test", doc! { "distinct": "c" }, 40414, &missing("distinct.key"));
    let delete = doc! { "delete": "c", "deletes": [{ "q": {} }] };
    client.fails("test", delete, 40414, &missing("delete.deletes.limit"));
}

#[test]
fn collection_names_are_checked() {
    let client = Client::new();
    client.fails("test", doc! { "find": 1 }, 73, "collection name has invalid type int");
    client.fails("test", doc! { "find": "" }, 73, "Invalid namespace specified 'test.'");
}

#[test]
fn admin_commands_are_for_admin() {
    let client = Client::new();
    client.fails(
        "test",
        doc! { "listDatabases": 1 },
        13,
        "listDatabases may only be run against the admin database.",
    );
}

#[test]
fn max_time_is_checked() {
    let client = Client::new();
    let command = |time: Bson| doc! { "ping": 1, "maxTimeMS": time };
    client.ok("admin", command(Bson::Int32(0)));
    client.ok("admin", command(Bson::Double(5.0)));
    let range = "2147483648 value for maxTimeMS is out of range";
    client.fails("admin", command(Bson::Int64(1 << 31)), 2, range);
    let negative = "BSON field 'maxTimeMS' value must be >= 0, actual value '-1'";
    client.fails("admin", command(Bson::Int32(-1)), 2, negative);
    client.fails("admin", command(Bson::Double(0.5)), 9, "maxTimeMS has non-integral value");
}

#[test]
fn api_version_is_honoured() {
    let client = Client::new();
    client.ok("admin", doc! { "ping": 1, "apiVersion": "1", "apiStrict": true });
    client.fails("admin", doc! { "ping": 1, "apiVersion": "2" }, 322, "API version must be \"1\"");
    let strict = doc! { "serverStatus": 1, "apiVersion": "1", "apiStrict": true };
    assert_eq!(client.run("admin", strict).get_i32("code").ok(), Some(323));
    assert_eq!(
        client.run("admin", doc! { "ping": 1, "apiStrict": true }).get_i32("code").ok(),
        Some(4886600)
    );
}

#[test]
fn parts_of_a_transaction_need_their_number_and_their_session() {
    let client = Client::new();
    client.fails(
        "test",
        doc! { "find": "c", "startTransaction": true },
        72,
        "'startTransaction' field requires a transaction number to also be specified",
    );
    client.fails(
        "test",
        doc! { "insert": "c", "documents": [{}], "txnNumber": 1_i64 },
        72,
        "Transaction number requires a session ID to also be specified",
    );
}

#[test]
fn concerns_are_checked() {
    let client = Client::new();
    let write = |concern: bson::Document| doc! { "insert": "c", "documents": [{}], "writeConcern": concern };
    client.fails(
        "test",
        write(doc! { "w": 2 }),
        2,
        "cannot use 'w' > 1 when a host is not replicated",
    );
    let range = "w has to be a non-negative number and not greater than 50; found: 51";
    client.fails("test", write(doc! { "w": 51 }), 9, range);
    assert_eq!(client.run("test", write(doc! { "foo": 1 })).get_i32("code").ok(), Some(40415));
    client.fails(
        "test",
        doc! { "find": "c", "readConcern": { "level": "snapshot" } },
        123,
        "node needs to be a replica set member to use readConcern: snapshot",
    );
    client.fails(
        "test",
        doc! { "find": "c", "readConcern": { "level": "wrong" } },
        2,
        "Enumeration value 'wrong' for field 'readConcern.level' is not a valid value.",
    );
    client.fails(
        "admin",
        doc! { "ping": 1, "writeConcern": { "w": 1 } },
        72,
        "Command does not support writeConcern",
    );
}

#[test]
fn security_finding_11_only_op_query_wraps_commands() {
    let client = Client::new();
    client.ok("db", doc! { "create": "c" });
    for name in ["$query", "query"] {
        let wrapped = doc! { name: { "ping": 1 }, "$readPreference": { "mode": "nearest" } };
        let body = bson::RawDocumentBuf::try_from(&wrapped).unwrap();
        let run = |op| {
            let request = dispatch::Request {
                database: "admin",
                body: &body,
                sequences: &[],
                op,
                exhaust_allowed: false,
                request_id: 1,
                waited_until: None,
                waker: None,
                finisher: None,
            };
            let reply = client.service.run(&client.connection, &request);
            bson::Document::try_from(&reply.document).unwrap()
        };
        assert_eq!(run(dispatch::OpKind::Query).get_f64("ok").ok(), Some(1.0), "{name}");
        let text = format!("no such command: '{name}'");
        assert_eq!(run(dispatch::OpKind::Msg).get_str("errmsg").ok(), Some(&*text));
        let hidden = doc! { name: { "drop": "c" } };
        assert_eq!(client.run("db", hidden).get_i32("code").ok(), Some(59));
    }
    let list = client.ok("db", doc! { "listCollections": 1 });
    let batch = list.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(batch.len(), 1, "nothing was dropped");
}

#[test]
fn security_finding_9_no_client_is_taken_for_the_server() {
    let client = Client::new();
    let set = doc! { "setParameter": 1, "enableTestCommands": 1 };
    for remote in ["", "127.0.0.1:1"] {
        let info = dispatch::ConnectionInfo { remote: remote.to_owned(), ..Default::default() };
        let connection = client.service.open_connection(info);
        let other = Client { service: std::sync::Arc::clone(&client.service), connection };
        assert_eq!(other.run("admin", set.clone()).get_i32("code").ok(), Some(20), "{remote:?}");
    }
    let connection = client.service.open_startup_connection();
    let startup = Client { service: std::sync::Arc::clone(&client.service), connection };
    startup.ok("admin", set);
}

#[test]
fn security_finding_12_accounts_cannot_be_laid_before_there_are_any() {
    let client = Client::new();
    client.ok("admin", doc! { "insert": "c", "documents": [{ "_id": "admin.me" }] });
    for name in ["system.users", "system.roles", "system.version", "system.keys"] {
        let full = format!("admin.{name}");
        for command in [
            doc! { "insert": name, "documents": [{ "_id": "admin.me" }] },
            doc! { "update": name, "updates": [{ "q": {}, "u": { "a": 1 }, "upsert": true }] },
            doc! { "findAndModify": name, "query": {}, "update": { "a": 1 }, "upsert": true },
            doc! { "create": name },
            doc! { "create": name, "viewOn": "c", "pipeline": [] },
            doc! { "createIndexes": name, "indexes": [{ "key": { "a": 1 }, "name": "a" }] },
            doc! { "renameCollection": "admin.c", "to": &full },
            doc! { "cloneCollectionAsCapped": "c", "toCollection": name, "size": 4096 },
            doc! { "aggregate": "c", "pipeline": [{ "$out": name }], "cursor": {} },
            doc! { "aggregate": "c", "pipeline": [{ "$merge": name }], "cursor": {} },
            doc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": {} }], "nsInfo": [{ "ns": &full }] },
        ] {
            let reply = client.run("admin", command.clone());
            let refused = reply.get_i32("code").ok().or_else(|| {
                let list = |name: &str| reply.get_array(name).ok()?.first()?.as_document().cloned();
                let batch = reply.get_document("cursor").ok()?.get_array("firstBatch").ok();
                let first =
                    list("writeErrors").or_else(|| batch?.first()?.as_document().cloned())?;
                first.get_i32("code").ok()
            });
            assert!(matches!(refused, Some(73 | 17385 | 31319)), "{command} gave {reply}");
        }
        let count = client.ok("admin", doc! { "count": name });
        assert_eq!(count.get_i32("n").ok(), Some(0), "{name}");
    }
}

#[test]
fn null_stands_for_a_field_not_given_where_a_type_is_wanted() {
    let client = Client::new();
    let find = doc! {
        "find": "c", "filter": Bson::Null, "sort": Bson::Null, "skip": Bson::Null,
        "limit": Bson::Undefined, "collation": Bson::Null, "let": Bson::Null,
    };
    client.ok("test", find);
    let text = "BSON field 'distinct.key' is missing but a required field";
    client.fails("test", doc! { "distinct": "c", "key": Bson::Null }, 40414, text);
    let hint = doc! { "find": "c", "hint": Bson::Null };
    client.fails("test", hint, 9, "Hint must be a string or an object");
    let update = doc! { "q": {}, "u": { "$set": { "a": 1 } }, "multi": Bson::Null };
    client.ok("test", doc! { "update": "c", "updates": [update], "ordered": Bson::Null });
}

#[test]
fn what_the_first_api_does_not_have_is_refused_under_api_strict() {
    let client = Client::new();
    let strict = |mut command: bson::Document| {
        command.extend(doc! { "apiVersion": "1", "apiStrict": true });
        client.run("test", command)
    };
    for command in [
        doc! { "nope": 1 },
        doc! { "distinct": "c", "key": "a" },
        doc! { "find": "c", "showRecordId": true },
        doc! { "create": "c", "capped": true, "size": 1 },
    ] {
        assert_eq!(strict(command.clone()).get_i32("code").ok(), Some(323), "{command}");
    }
    assert_eq!(strict(doc! { "find": "c" }).get_f64("ok").ok(), Some(1.0));
    let second = doc! { "ping": 1, "apiVersion": "2" };
    assert_eq!(client.run("test", second).get_i32("code").ok(), Some(322));
}

#[test]
fn making_the_same_again_is_no_error_and_views_are_looked_at_first() {
    let client = Client::new();
    for command in [
        doc! { "create": "c" },
        doc! { "create": "k", "capped": true, "size": 4096 },
        doc! { "create": "v", "viewOn": "c", "pipeline": [{ "$match": { "a": 1 } }] },
    ] {
        client.ok("test", command.clone());
        client.ok("test", command);
    }
    let other = client.run("test", doc! { "create": "c", "capped": true, "size": 4096 });
    assert_eq!(other.get_i32("code").ok(), Some(48));
    for (stage, code) in [(doc! { "$out": "x" }, 167), (doc! { "$foo": 1 }, 40324)] {
        let view = doc! { "create": "w", "viewOn": "c", "pipeline": [stage] };
        assert_eq!(client.run("test", view).get_i32("code").ok(), Some(code));
    }
}
