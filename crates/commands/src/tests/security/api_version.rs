//! The Stable API: which commands it has, what a client must declare, and what was never built of encryption.

use super::super::Client;
use super::{Sha256, create};
use crate::registry::COMMANDS;
use bson::{Bson, Document, bson, doc};
use std::collections::BTreeSet;

/// The commands of version 1, as MongoDB's manual publishes them for 8.0 in its changelog of the Stable API.
const PUBLISHED: [&str; 27] = [
    "abortTransaction",
    "aggregate",
    "authenticate",
    "bulkWrite",
    "collMod",
    "commitTransaction",
    "count",
    "create",
    "createIndexes",
    "delete",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "endSessions",
    "explain",
    "find",
    "findAndModify",
    "getMore",
    "hello",
    "insert",
    "killCursors",
    "listCollections",
    "listDatabases",
    "listIndexes",
    "ping",
    "refreshSessions",
    "update",
];
/// How a client logs in is no part of the list, and is let through by MongoDB.
const TO_LOG_IN: [&str; 2] = ["saslContinue", "saslStart"];

#[test]
fn the_stable_api_has_the_published_commands_and_no_others() {
    let ours: BTreeSet<_> = COMMANDS
        .iter()
        .filter(|command| command.rules.api_v1)
        .map(|command| command.name)
        .collect();
    let expected: BTreeSet<_> = PUBLISHED.into_iter().chain(TO_LOG_IN).collect();
    assert_eq!(ours, expected);
    // The client is told so, command by command.
    let client = Client::new();
    for command in COMMANDS {
        let asked = doc! { command.name: 1, "apiVersion": "1", "apiStrict": true };
        let is_refused = client.code("admin", asked) == 323;
        assert_eq!(is_refused, !expected.contains(command.name), "{}", command.name);
    }
}

#[test]
fn where_a_version_must_be_declared_only_a_login_goes_without() {
    let root = Client::rooted();
    root.ok("admin", doc! { "setParameter": 1, "requireApiVersion": true });
    root.fails(
        "d",
        doc! { "find": "c" },
        498_870,
        "The apiVersion parameter is required, please configure your MongoClient's API version",
    );
    root.ok("d", doc! { "find": "c", "apiVersion": "1" });
    assert_eq!(root.code("d", doc! { "find": "c", "apiVersion": "2" }), 322);
    // Who is not told apart yet can log in and be told.
    let other = root.another(5);
    other.ok("admin", doc! { "hello": 1 });
    assert_eq!(other.log_in("root", "admin"), 0);
    assert_eq!(other.code("admin", doc! { "ping": 1 }), 498_870);
    let shown = doc! { "getParameter": 1, "requireApiVersion": 1, "apiVersion": "1" };
    assert_eq!(other.ok("admin", shown).get_bool("requireApiVersion").ok(), Some(true));
    let back = doc! { "setParameter": 1, "requireApiVersion": false, "apiVersion": "1" };
    other.ok("admin", back);
    other.ok("admin", doc! { "ping": 1 });
}

#[test]
fn the_same_user_logs_in_again_but_under_api_strict() {
    let root = Client::rooted();
    assert_eq!(root.log_in("root", "admin"), 0);
    let (client, first) = auth::scram::Client::start(Sha256, "root", b"n");
    let strict = |mut command: Document| {
        command.extend(doc! { "apiVersion": "1", "apiStrict": true });
        root.run("admin", command)
    };
    let begin = doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": super::binary(first),
    "options": { "skipEmptyExchange": true } };
    let begun = strict(begin);
    let prepared = auth::scram::prepare(Sha256, "root", super::PASSWORD).unwrap();
    let (proof, _) = client.proof(begun.get_binary_generic("payload").unwrap(), &prepared).unwrap();
    let reply =
        strict(doc! { "saslContinue": 1, "conversationId": 1, "payload": super::binary(proof) });
    assert_eq!(reply.get_i32("code").ok(), Some(5_626_703), "{reply}");
    assert_eq!(root.users(), ["root"], "who is logged in stays");
}

#[test]
fn queryable_encryption_is_refused_wherever_it_begins() {
    let root = Client::rooted();
    root.ok("d", doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    let fields = doc! { "fields": [] };
    let info = doc! { "type": 1, "schema": {} };
    let with = |mut command: Document| {
        command.insert("encryptionInformation", info.clone());
        command
    };
    let update = doc! { "q": {}, "u": { "$set": { "a": 1 } } };
    for command in [
        doc! { "create": "e", "encryptedFields": fields.clone() },
        doc! { "collMod": "c", "encryptedFields": fields },
        with(doc! { "insert": "c", "documents": [{}] }),
        with(doc! { "update": "c", "updates": [update] }),
        with(doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 1 }] }),
        with(doc! { "findAndModify": "c", "remove": true }),
        with(doc! { "find": "c" }),
        with(doc! { "aggregate": "c", "pipeline": [], "cursor": {} }),
        with(doc! { "count": "c" }),
        with(doc! { "distinct": "c", "key": "a" }),
        doc! { "explain": with(doc! { "find": "c" }) },
        with(doc! { "explain": { "find": "c" } }),
        doc! { "compactStructuredEncryptionData": "c", "compactionTokens": {} },
        doc! { "cleanupStructuredEncryptionData": "c", "cleanupTokens": {} },
    ] {
        let reply = root.run("d", command.clone());
        assert_eq!(reply.get_i32("code").ok(), Some(238), "{command} gave {reply}");
    }
    let entry = doc! { "ns": "d.c", "encryptionInformation": info };
    let bulk = doc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": {} }], "nsInfo": [entry] };
    assert_eq!(root.code("admin", bulk), 238);
    for name in ["$encStrContains", "$encStrEndsWith", "$encStrNormalizedEq", "$encStrStartsWith"] {
        let call = doc! { name: { "input": "$a", "string": "b" } };
        let stages: Bson = bson!([{ "$project": { "x": call.clone() } }]);
        let aggregate = doc! { "aggregate": "c", "pipeline": stages, "cursor": {} };
        assert_eq!(root.code("d", aggregate), 238, "{name}");
        assert_eq!(root.code("d", doc! { "find": "c", "filter": { "$expr": call } }), 238);
    }
    // Nothing of it has become of the collection.
    let kept = root.ok("d", doc! { "find": "c" });
    assert_eq!(super::first_batch(&kept), [doc! { "_id": 1 }]);
    // Who may not touch the collection is told no more than that.
    root.ok("admin", create("nobody", &[]));
    let nobody = root.another(9);
    assert_eq!(nobody.log_in("nobody", "admin"), 0);
    assert_eq!(nobody.code("d", doc! { "compactStructuredEncryptionData": "c" }), 13);
}
