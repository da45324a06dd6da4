//! Ways around the gate that a review has found: each was open, and stays shut.

use super::super::Client;
use super::{PASSWORD, binary, create, find};
use auth::scram;
use auth::scram::Mechanism::Sha256;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Decimal128, Document, doc};

/// What a client says for "no" in a way that is not everybody's.
fn noes() -> [Bson; 3] {
    let zero: Decimal128 = "0".parse().unwrap();
    [Bson::Decimal128(zero), Bson::Undefined, Bson::Null]
}

#[test]
fn users_of_a_dump_get_no_more_than_who_brings_them_may_give() {
    let root = Client::rooted();
    let owner = root.with_user("owner", &[("dbOwner", "d")]);
    let credentials = doc! { "external": true };
    let user = |roles: Bson| doc! { "_id": "d.x", "user": "x", "db": "d", "credentials": credentials.clone(), "roles": roles };
    owner.ok("d", doc! { "insert": "tmp", "documents": [user(bson::bson!([{ "role": "root", "db": "admin" }]))] });
    let merge = doc! { "_mergeAuthzCollections": 1, "tempUsersCollection": "d.tmp", "db": "d" };
    assert_eq!(owner.code("admin", merge.clone()), 13);
    root.ok("admin", merge.clone());
    // Nobody brings a member of the set, or a role that reaches out of its database.
    for (document, users) in [
        (user(bson::bson!([{ "role": "__system", "db": "admin" }])), true),
        (
            doc! { "_id": "d.__system", "user": "__system", "db": "d", "credentials": credentials.clone(), "roles": [] },
            true,
        ),
        (doc! { "_id": "d.x", "user": "x", "db": "d", "credentials": {}, "roles": "none" }, true),
        (
            doc! { "_id": "d.r", "role": "r", "db": "d", "roles": [], "privileges": [{ "resource": { "anyResource": true }, "actions": ["anyAction"] }] },
            false,
        ),
        (
            doc! { "_id": "d.r", "role": "r", "db": "d", "privileges": [], "roles": [{ "role": "root", "db": "admin" }] },
            false,
        ),
    ] {
        root.ok("d", doc! { "drop": "tmp" });
        root.ok("d", doc! { "insert": "tmp", "documents": [document.clone()] });
        let from = if users { "tempUsersCollection" } else { "tempRolesCollection" };
        let code =
            root.code("admin", doc! { "_mergeAuthzCollections": 1, from: "d.tmp", "db": "" });
        assert!([2, 9, 49].contains(&code), "{code}: {document}");
    }
}

#[test]
fn a_view_is_changed_as_a_whole() {
    let root = Client::rooted();
    let user =
        root.with_user("u", &[("dbAdminAnyDatabase", "admin"), ("readWriteAnyDatabase", "admin")]);
    root.ok("admin", doc! { "insert": "plain", "documents": [{}] });
    user.ok("admin", doc! { "create": "v", "viewOn": "plain", "pipeline": [] });
    let stages = bson::bson!([{ "$unionWith": "system.users" }]);
    assert_eq!(user.code("admin", doc! { "collMod": "v", "pipeline": stages.clone() }), 72);
    assert_eq!(user.code("admin", doc! { "collMod": "v", "viewOn": "plain" }), 72);
    let whole = doc! { "collMod": "v", "viewOn": "plain", "pipeline": stages };
    assert_eq!(user.code("admin", whole), 13);
    assert_eq!(
        user.ok("admin", find("v"))
            .get_document("cursor")
            .unwrap()
            .get_array("firstBatch")
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn what_says_yes_to_the_gate_says_yes_to_the_command() {
    let root = Client::rooted();
    root.ok("d", doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    let user = root.with_user("u", &[]);
    root.ok("admin", doc! { "createRole": "remover", "roles": [], "privileges": [{ "resource": { "db": "d", "collection": "c" }, "actions": ["find", "remove"] }] });
    let remover = root.with_user("r", &[("remover", "admin")]);
    for no in noes() {
        assert_eq!(user.code("admin", doc! { "currentOp": 1, "$ownOps": no.clone() }), 13, "{no}");
        let list = doc! { "listCollections": 1, "nameOnly": no.clone(), "authorizedCollections": no.clone() };
        assert_eq!(user.code("d", list), 13, "{no}");
        let change = doc! { "findAndModify": "c", "query": { "_id": 1 }, "remove": no.clone(), "update": { "$set": { "x": 1 } } };
        assert_eq!(remover.code("d", change), 13, "{no}");
    }
    assert_eq!(user.code("admin", doc! { "currentOp": 1, "$ownOps": true }), 0);
    remover.ok("d", doc! { "findAndModify": "c", "query": { "_id": 1 }, "remove": true });
}

#[test]
fn entries_are_judged_by_the_collection_that_they_reach() {
    let root = Client::rooted();
    root.ok("d", doc! { "create": "one" });
    root.ok("d", doc! { "create": "two" });
    let uuid_of = |database: &str, name: &str| {
        let list = root.ok(database, doc! { "listCollections": 1, "filter": { "name": name } });
        let first =
            list.get_document("cursor").unwrap().get_array("firstBatch").unwrap()[0].clone();
        first.as_document().unwrap().get_document("info").unwrap().get("uuid").unwrap().clone()
    };
    let drop = |database: &str, uuid: Bson| doc! { "applyOps": [{ "op": "c", "ns": format!("{database}.$cmd"), "ui": uuid, "o": { "drop": "one" } }] };
    let admin = root.with_user("a", &[("dbAdminAnyDatabase", "admin")]);
    assert_eq!(admin.code("admin", drop("admin", uuid_of("admin", "system.users"))), 13);
    root.ok(
        "admin",
        doc! { "createRole": "dropper", "roles": [], "privileges": [
        { "resource": { "cluster": true }, "actions": ["applyOps"] },
        { "resource": { "db": "d", "collection": "one" }, "actions": ["dropCollection"] }] },
    );
    let dropper = root.with_user("dropper", &[("dropper", "admin")]);
    assert_eq!(dropper.code("d", drop("d", uuid_of("d", "two"))), 13);
    let update = doc! { "applyOps": [{ "op": "u", "ns": "d.one", "o2": { "_id": 1 }, "o": { "$set": { "x": 1 } } }], "bypassDocumentValidation": true };
    let writer = root.with_user("w", &[("dropper", "admin"), ("readWrite", "d")]);
    assert_eq!(writer.code("d", update), 13);
    dropper.ok("d", drop("d", uuid_of("d", "one")));
}

#[test]
fn users_that_are_dropped_as_a_collection_are_logged_out() {
    let root = Client::rooted();
    let user = root.with_user("u", &[("readWriteAnyDatabase", "admin")]);
    user.ok("d", find("c"));
    let dropper = root.with_user("k", &[("restore", "admin"), ("root", "admin")]);
    root.ok("admin", doc! { "createRole": "all", "roles": [], "privileges": [{ "resource": { "anyResource": true }, "actions": ["anyAction"] }] });
    root.ok("admin", doc! { "grantRolesToUser": "k", "roles": ["all"] });
    // Sent to another database than the one it changes.
    dropper.ok(
        "d",
        doc! { "applyOps": [{ "op": "c", "ns": "admin.$cmd", "o": { "drop": "system.users" } }] },
    );
    assert_eq!(user.code("d", find("c")), 13);
    assert_eq!(root.another(50).log_in("u", "admin"), 18);
}

#[test]
fn a_change_of_a_role_loses_no_change_of_its_holders() {
    let root = Client::rooted();
    root.ok("admin", doc! { "createRole": "r", "roles": [], "privileges": [] });
    root.ok("admin", create("u", &[("r", "admin"), ("read", "d")]));
    root.ok("admin", doc! { "revokeRolesFromUser": "u", "roles": [{ "role": "read", "db": "d" }] });
    root.ok("admin", doc! { "dropRole": "r" });
    let info = root.ok("admin", doc! { "usersInfo": "u" });
    let user = info.get_array("users").unwrap()[0].as_document().unwrap().clone();
    assert!(user.get_array("roles").unwrap().is_empty(), "{user}");
}

#[test]
fn who_has_not_logged_in_has_no_session_and_moves_no_clock() {
    let root = Client::rooted();
    let nobody = root.another(60);
    let count = || root.service.sessions.len();
    let before = count();
    for byte in 0..50 {
        let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![byte; 16] };
        nobody.ok("admin", doc! { "ping": 1, "lsid": { "id": id } });
    }
    assert_eq!(count(), before);
}

#[test]
fn stored_functions_are_for_who_may_read_them() {
    let root = Client::rooted();
    root.ok("d", doc! { "insert": "system.js", "documents": [{ "_id": "secret", "value": bson::JavaScriptCodeWithScope { code: "function() { return 4711 }".into(), scope: Document::new() } }] });
    root.ok("d", doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    root.ok("admin", doc! { "createRole": "one", "roles": [], "privileges": [{ "resource": { "db": "d", "collection": "c" }, "actions": ["find"] }] });
    let one = root.with_user("one", &[("one", "admin")]);
    let reader = root.with_user("reader", &[("read", "d")]);
    let asks = doc! { "find": "c", "filter": { "$where": "typeof secret === 'undefined'" } };
    let found = |client: &Client| {
        let reply = client.ok("d", asks.clone());
        reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len()
    };
    assert_eq!((found(&one), found(&reader)), (1, 0));
}

#[test]
fn users_with_an_at_sign_in_their_database_are_refused() {
    let root = Client::rooted();
    assert_eq!(root.code("a@b", doc! { "createUser": "x", "pwd": PASSWORD, "roles": [] }), 2);
    let most = doc! { "setParameter": 1, "scramIterationCount": 10_000_001 };
    assert_ne!(root.code("admin", most), 0);
}

#[test]
fn who_guesses_passwords_waits_for_the_answer_and_holds_no_thread() {
    let root = Client::rooted();
    let guess = |client: &Client| client.log_in_by(Sha256, ("root", "admin"), "wrong");
    for _ in 0..10 {
        assert_eq!(guess(&root.another(5)), 18);
    }
    let client = root.another(6);
    let (login, first) = scram::Client::start(Sha256, "root", b"a client's nonce");
    let begun = client.ok(
        "admin",
        doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": binary(first),
        "options": { "skipEmptyExchange": true } },
    );
    let (proof, _) = login.proof(begun.get_binary_generic("payload").unwrap(), PASSWORD).unwrap();
    let go_on = doc! { "saslContinue": 1, "conversationId": 1, "payload": binary(proof) };
    let body = bson::RawDocumentBuf::try_from(&go_on).unwrap();
    let again = |until| {
        let request = dispatch::Request {
            database: "admin",
            body: &body,
            sequences: &[],
            op: dispatch::OpKind::Msg,
            exhaust_allowed: false,
            request_id: 1,
            waited_until: until,
            waker: None,
            finisher: None,
        };
        client.service.run(&client.connection, &request)
    };
    let waits = again(None);
    assert!(waits.wait.is_some(), "the answer is put off");
    assert!(client.users().is_empty());
    // Asked again before its time it waits on; then it is answered.
    let later = waits.wait.map(|until| until + std::time::Duration::from_hours(1));
    assert_eq!(again(later).wait, later);
    assert_eq!(again(Some(std::time::Duration::ZERO)).document.get_bool("done").ok(), Some(true));
    assert_eq!(client.users(), ["root"]);
}
