//! Users asked for: logins, the gate, what belongs to whom.

mod api_version;
mod cluster_time;
mod connections;
mod exact;
mod findings;
mod matrix;
mod old_users;
mod permit;
mod secrets;
mod timing;
mod user_roles;

use super::Client;
use auth::scram;
use auth::scram::Mechanism::{Sha1, Sha256};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use std::sync::Arc;

const PASSWORD: &str = "pencil";

fn binary(bytes: Vec<u8>) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes }
}

impl Client {
    /// The code of a command's error, 0 where it has none.
    fn code(&self, database: &str, command: Document) -> i32 {
        self.run(database, command).get_i32("code").unwrap_or(0)
    }

    /// Logs in; the code of the error where it fails.
    fn log_in_by(
        &self,
        mechanism: scram::Mechanism,
        (user, database): (&str, &str),
        password: &str,
    ) -> i32 {
        let (client, first) = scram::Client::start(mechanism, user, b"a client's nonce");
        let reply = self.run(
            database,
            doc! { "saslStart": 1, "mechanism": mechanism.name(), "payload": binary(first),
            "options": { "skipEmptyExchange": true } },
        );
        let Ok(payload) = reply.get_binary_generic("payload") else {
            return reply.get_i32("code").unwrap();
        };
        let prepared = scram::prepare(mechanism, user, password).unwrap();
        let (proof, expected) = client.proof(payload, &prepared).unwrap();
        let go_on = doc! { "saslContinue": 1, "conversationId": 1, "payload": binary(proof) };
        let reply = self.run(database, go_on);
        let Ok(payload) = reply.get_binary_generic("payload") else {
            return reply.get_i32("code").unwrap();
        };
        assert!(expected.matches(payload), "the server proves itself too");
        assert_eq!(reply.get_bool("done").ok(), Some(true));
        0
    }

    fn log_in(&self, user: &str, database: &str) -> i32 {
        self.log_in_by(Sha256, (user, database), PASSWORD)
    }

    /// A server with a user `root`, and that one logged in.
    fn rooted() -> Self {
        let client = Self::asking();
        client.ok("admin", create("root", &[("root", "admin")]));
        assert_eq!(client.log_in("root", "admin"), 0);
        client
    }

    /// Makes a user with these roles, and logs it in on a connection of its own.
    fn with_user(&self, name: &str, roles: &[(&str, &str)]) -> Self {
        self.ok("admin", create(name, roles));
        let client = self.another(100);
        assert_eq!(client.log_in(name, "admin"), 0);
        client
    }

    fn users(&self) -> Vec<String> {
        let status = self.ok("admin", doc! { "connectionStatus": 1 });
        let info = status.get_document("authInfo").unwrap();
        let users = info.get_array("authenticatedUsers").unwrap();
        users.iter().map(|u| u.as_document().unwrap().get_str("user").unwrap().to_owned()).collect()
    }
}

fn create(name: &str, roles: &[(&str, &str)]) -> Document {
    let roles: Vec<Bson> =
        roles.iter().map(|(role, db)| Bson::from(doc! { "role": *role, "db": *db })).collect();
    // Few iterations: the tests make many users.
    doc! { "createUser": name, "pwd": PASSWORD, "roles": roles, "mechanisms": ["SCRAM-SHA-256"] }
}

/// The first batch of a reply.
fn first_batch(reply: &Document) -> Vec<Document> {
    let cursor = reply.get_document("cursor").unwrap();
    let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch")).unwrap();
    batch.iter().map(|one| one.as_document().unwrap().clone()).collect()
}

fn find(name: &str) -> Document {
    doc! { "find": name }
}

#[test]
fn nobody_does_anything_before_a_login_but_what_leads_to_one() {
    let client = Client::rooted();
    let nobody = client.another(2);
    for name in [
        "hello",
        "isMaster",
        "ping",
        "buildInfo",
        "whatsmyuri",
        "connectionStatus",
        "listCommands",
        "logout",
    ] {
        assert_eq!(nobody.code("admin", doc! { name: 1 }), 0, "{name}");
    }
    for command in [
        find("c"),
        doc! { "insert": "c", "documents": [{}] },
        doc! { "serverStatus": 1 },
        doc! { "startSession": 1 },
        doc! { "getMore": 1_i64, "collection": "c" },
        doc! { "endSessions": [] },
        doc! { "createUser": "x", "pwd": "x", "roles": [] },
    ] {
        let reply = nobody.run("admin", command.clone());
        assert_eq!(reply.get_i32("code").ok(), Some(13), "{command}");
        assert!(reply.get_str("errmsg").unwrap().ends_with("requires authentication"), "{reply}");
    }
    assert_eq!(nobody.code("admin", doc! { "noSuchCommand": 1 }), 59);
    // What is refused is neither shown nor kept.
    assert_eq!(client.service.sessions.len(), 0);
}

#[test]
fn both_mechanisms_log_in_and_wrong_passwords_do_not() {
    let client = Client::rooted();
    client.ok("admin", doc! { "createUser": "both", "pwd": PASSWORD, "roles": [] });
    client.ok("db", doc! { "createUser": "one", "pwd": PASSWORD, "roles": ["read"], "mechanisms": ["SCRAM-SHA-1"] });
    let mut port = 10;
    let mut by = |mechanism, user, database, password: &str| {
        port += 1;
        client.another(port).log_in_by(mechanism, (user, database), password)
    };
    assert_eq!(by(Sha1, "both", "admin", PASSWORD), 0);
    assert_eq!(by(Sha256, "both", "admin", PASSWORD), 0);
    assert_eq!(by(Sha1, "one", "db", PASSWORD), 0);
    for (mechanism, user, database, password) in [
        (Sha256, "one", "db", PASSWORD),
        (Sha256, "both", "db", PASSWORD),
        (Sha1, "both", "admin", "pencils"),
        (Sha256, "both", "admin", "wrong"),
        (Sha256, "nobody", "admin", PASSWORD),
        (Sha1, "nobody", "nowhere", PASSWORD),
    ] {
        assert_eq!(by(mechanism, user, database, password), 18, "{user}@{database}");
    }
}

#[test]
fn a_login_with_the_empty_exchange_is_not_one_before_it() {
    let client = Client::rooted();
    let other = client.another(3);
    let (half, first) = scram::Client::start(Sha256, "root", b"n");
    let reply = other.ok(
        "admin",
        doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": binary(first) },
    );
    let (proof, _) = half.proof(reply.get_binary_generic("payload").unwrap(), PASSWORD).unwrap();
    let go_on = |payload: Vec<u8>| doc! { "saslContinue": 1, "conversationId": 1, "payload": binary(payload) };
    assert_eq!(other.ok("admin", go_on(proof)).get_bool("done").ok(), Some(false));
    assert_eq!(other.code("db", find("c")), 13);
    assert_eq!(other.ok("admin", go_on(Vec::new())).get_bool("done").ok(), Some(true));
    other.ok("db", find("c"));
    assert_eq!(other.users(), ["root"]);
}

#[test]
fn hello_begins_a_login_and_names_mechanisms_and_tells_nothing_of_who_exists() {
    let client = Client::rooted();
    client.ok(
        "admin",
        doc! { "createUser": "old", "pwd": "x", "roles": [], "mechanisms": ["SCRAM-SHA-1"] },
    );
    let nobody = client.another(4);
    let mechanisms = |user: &str| {
        nobody
            .ok("admin", doc! { "hello": 1, "saslSupportedMechs": user })
            .get_array("saslSupportedMechs")
            .unwrap()
            .clone()
    };
    let both = vec![Bson::from("SCRAM-SHA-1"), Bson::from("SCRAM-SHA-256")];
    assert_eq!(mechanisms("admin.nobody"), both);
    assert_eq!(mechanisms("admin.old"), both[..1]);
    let speculate = |user: &str| {
        let (_, first) = scram::Client::start(Sha256, user, b"n");
        let wanted = doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "db": "admin", "payload": binary(first) };
        let reply = nobody.ok("admin", doc! { "hello": 1, "speculativeAuthenticate": wanted });
        let begun = reply.get_document("speculativeAuthenticate").unwrap();
        let text = begun.get_binary_generic("payload").unwrap().clone();
        let text = String::from_utf8(text).unwrap();
        let mut parts = text.split(',').skip(1).map(str::to_owned);
        (parts.next().unwrap(), parts.next().unwrap())
    };
    // The same salt each time, as many iterations, as much salt.
    let (salt, iterations) = speculate("ghost");
    assert_eq!((salt.clone(), iterations.clone()), speculate("ghost"));
    let real = speculate("root");
    assert_eq!((real.0.len(), real.1), (salt.len(), iterations));
    assert_ne!(salt, speculate("ghost2").0);
    // What cannot be begun is left out.
    let wanted =
        doc! { "saslStart": 1, "mechanism": "PLAIN", "db": "admin", "payload": binary(vec![1]) };
    let reply = nobody.ok("admin", doc! { "hello": 1, "speculativeAuthenticate": wanted });
    assert!(!reply.contains_key("speculativeAuthenticate"));
    assert_eq!(nobody.users(), Vec::<String>::new());
}

#[test]
fn the_first_user_is_made_on_this_machine_and_nothing_else_is_done_without_one() {
    let client = Client::asking();
    for command in [
        find("c"),
        doc! { "serverStatus": 1 },
        doc! { "createRole": "r", "privileges": [], "roles": [] },
        doc! { "dropAllUsersFromDatabase": 1 },
        doc! { "usersInfo": 1 },
        doc! { "startSession": 1 },
    ] {
        assert_eq!(client.code("admin", command.clone()), 13, "{command}");
    }
    assert_eq!(client.code("db", create("first", &[])), 13, "only of admin");
    let far = dispatch::ConnectionInfo { remote: "10.0.0.1:5".into(), local: "10.0.0.2:1".into() };
    let far = Client {
        connection: client.service.open_connection(far),
        service: Arc::clone(&client.service),
    };
    assert_eq!(far.code("admin", create("first", &[])), 13, "only on this machine");
    client.ok("admin", create("first", &[("root", "admin")]));
    assert_eq!(client.code("admin", create("second", &[])), 13, "only the first");
}

#[test]
fn of_fifty_clients_at_once_one_makes_the_first_user() {
    let client = Client::asking();
    let made: usize = std::thread::scope(|scope| {
        let all: Vec<_> = (0..50)
            .map(|at| {
                let client = client.another(at + 2);
                scope.spawn(move || {
                    let name = format!("user{at}");
                    usize::from(client.code("admin", create(&name, &[("root", "admin")])) == 0)
                })
            })
            .collect();
        all.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(made, 1);
    assert_eq!(client.service.user_tables().unwrap().users.len(), 1);
}

#[test]
fn a_right_that_is_taken_away_is_felt_by_the_next_request_and_by_open_cursors() {
    let root = Client::rooted();
    root.ok("db", doc! { "insert": "c", "documents": [{}, {}, {}] });
    let user = root.with_user("u", &[("read", "db")]);
    let opened = user.ok("db", doc! { "find": "c", "batchSize": 1 });
    let id = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
    let more = doc! { "getMore": id, "collection": "c", "batchSize": 1 };
    user.ok("db", more.clone());
    root.ok(
        "admin",
        doc! { "revokeRolesFromUser": "u", "roles": [{ "role": "read", "db": "db" }] },
    );
    assert_eq!(user.code("db", find("c")), 13);
    assert_eq!(user.code("db", more.clone()), 13);
    root.ok("admin", doc! { "grantRolesToUser": "u", "roles": [{ "role": "read", "db": "db" }] });
    user.ok("db", more);
    root.ok("admin", doc! { "dropUser": "u" });
    let reply = user.run("db", find("c"));
    assert!(reply.get_str("errmsg").unwrap().ends_with("requires authentication"), "{reply}");
    // One of the same name that is made later is somebody else.
    root.ok("admin", create("u", &[("read", "db")]));
    assert_eq!(user.code("db", find("c")), 13);
    assert_eq!(user.users(), Vec::<String>::new());
}

#[test]
fn nobody_goes_on_with_kills_or_sees_what_is_anothers() {
    let root = Client::rooted();
    root.ok("db", doc! { "insert": "c", "documents": [{}, {}, {}] });
    let (one, two) = (
        root.with_user("one", &[("readWrite", "db")]),
        root.with_user("two", &[("readWrite", "db")]),
    );
    let opened = one.ok("db", doc! { "find": "c", "batchSize": 1 });
    let id = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
    let more = doc! { "getMore": id, "collection": "c" };
    assert_eq!(two.code("db", more.clone()), 13);
    let killed = two.ok("db", doc! { "killCursors": "c", "cursors": [id] });
    assert!(killed.get_array("cursorsKilled").unwrap().is_empty());
    one.ok("db", more);
    // The same id of a session is another session.
    let lsid = doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] } };
    let begin = doc! { "insert": "c", "documents": [{ "_id": "one" }], "lsid": lsid.clone(), "txnNumber": 1_i64, "autocommit": false, "startTransaction": true };
    one.ok("db", begin);
    let commit = doc! { "commitTransaction": 1, "lsid": lsid.clone(), "txnNumber": 1_i64, "autocommit": false };
    assert_eq!(two.code("admin", commit.clone()), 251);
    two.ok("db", doc! { "endSessions": [lsid.clone()] });
    two.ok("db", doc! { "killSessions": [] });
    one.ok("admin", commit);
    let shown = |client: &Client| {
        let reply = client.ok(
            "admin",
            doc! { "aggregate": 1, "pipeline": [{ "$listLocalSessions": {} }], "cursor": {} },
        );
        reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len()
    };
    assert_eq!(shown(&one), 1);
    assert_eq!(shown(&two), 0);
    let all = doc! { "aggregate": 1, "pipeline": [{ "$listLocalSessions": { "allUsers": true } }], "cursor": {} };
    assert_eq!(two.code("admin", all), 13);
    assert_eq!(two.code("admin", doc! { "currentOp": 1 }), 13);
    let own = two.ok("admin", doc! { "currentOp": 1, "$ownOps": true });
    assert_eq!(own.get_array("inprog").unwrap().len(), 1);
    assert_eq!(two.code("admin", doc! { "killOp": 1, "op": 123_456 }), 13);
    let foreign = doc! { "id": lsid.get("id").unwrap().clone(), "uid": binary(vec![1; 32]) };
    assert_eq!(two.code("db", doc! { "find": "c", "lsid": foreign }), 13);
}

#[test]
fn pipelines_reach_no_further_than_what_their_sender_may() {
    let root = Client::rooted();
    for name in ["open", "secret"] {
        root.ok("db", doc! { "insert": name, "documents": [{ "_id": 1 }] });
    }
    root.ok("db", doc! { "create": "view", "viewOn": "secret", "pipeline": [] });
    let on = |name: &str, actions: &[&str]| doc! { "resource": { "db": "db", "collection": name }, "actions": actions };
    root.ok("admin", doc! { "createRole": "narrow", "roles": [], "privileges": [on("open", &["find", "insert", "createCollection", "collMod"]), on("view", &["find"]), on("mine", &["find", "createCollection"])] });
    let user = root.with_user("narrow", &[("narrow", "admin")]);
    let lookup =
        |from: Bson| bson::bson!({ "$lookup": { "from": from, "pipeline": [], "as": "x" } });
    let deep = lookup(Bson::from("secret"));
    for (stages, code) in [
        (bson::bson!([{ "$match": {} }]), 0),
        (Bson::Array(vec![lookup(Bson::from("open"))]), 0),
        (Bson::Array(vec![lookup(Bson::from("view"))]), 0),
        (Bson::Array(vec![deep.clone()]), 13),
        (
            bson::bson!([{ "$lookup": { "from": "open", "as": "x", "pipeline": [deep.clone()] } }]),
            13,
        ),
        (
            bson::bson!([{ "$facet": { "a": [{ "$lookup": { "from": "open", "as": "x", "pipeline": [deep.clone()] } }] } }]),
            13,
        ),
        (bson::bson!([{ "$unionWith": "secret" }]), 13),
        (bson::bson!([{ "$unionWith": { "coll": "secret" } }]), 13),
        (bson::bson!([{ "$unionWith": { "coll": "open", "pipeline": [deep.clone()] } }]), 13),
        (bson::bson!([{ "$unionWith": "open" }]), 0),
        (
            bson::bson!([{ "$graphLookup": { "from": "secret", "startWith": 1, "connectFromField": "a", "connectToField": "a", "as": "x" } }]),
            13,
        ),
        (bson::bson!([{ "$out": "secret" }]), 13),
        (bson::bson!([{ "$out": { "db": "elsewhere", "coll": "c" } }]), 13),
        (bson::bson!([{ "$merge": "secret" }]), 13),
        (
            bson::bson!([{ "$merge": { "into": { "db": "db", "coll": "open" }, "whenMatched": "fail" } }]),
            0,
        ),
        (bson::bson!([{ "$merge": { "into": "open" } }]), 13),
        (bson::bson!([{ "$indexStats": {} }]), 13),
        (bson::bson!([{ "$collStats": {} }]), 13),
        (bson::bson!([{ "$changeStream": {} }]), 13),
    ] {
        let command = doc! { "aggregate": "open", "pipeline": stages, "cursor": {} };
        let reply = user.run("db", command.clone());
        let got = reply.get_i32("code").unwrap_or(0);
        assert_eq!(got == 13, code == 13, "{command} gave {reply}");
        let explained = user.code("db", doc! { "explain": command.clone() });
        assert_eq!(explained == 13, code == 13, "explain of {command}");
    }
    user.ok("db", find("view"));
    assert_eq!(user.code("db", find("secret")), 13);
    let through = doc! { "create": "mine", "viewOn": "secret", "pipeline": [] };
    assert_eq!(user.code("db", through), 13);
    let through = doc! { "create": "mine", "viewOn": "open", "pipeline": [deep] };
    assert_eq!(user.code("db", through), 13);
    user.ok("db", doc! { "create": "mine", "viewOn": "open", "pipeline": [] });
    for hidden in [
        doc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": {} }], "nsInfo": [{ "ns": "db.secret" }] },
        doc! { "bulkWrite": 1, "ops": [{ "delete": 0, "filter": {} }], "nsInfo": [{ "ns": "db.open" }] },
        doc! { "applyOps": [{ "op": "i", "ns": "db.open", "o": {} }] },
        doc! { "renameCollection": "db.secret", "to": "db.mine2" },
        doc! { "explain": { "find": "secret" } },
        doc! { "explain": { "explain": { "find": "secret" } } },
        doc! { "mapReduce": "secret", "map": "", "reduce": "", "out": { "inline": 1 } },
    ] {
        assert_eq!(user.code("admin", hidden.clone()), 13, "{hidden}");
    }
    user.ok("admin", doc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": {} }], "nsInfo": [{ "ns": "db.open" }] });
}

#[test]
fn what_stands_twice_in_a_stage_is_not_judged_by_the_one_and_read_by_the_other() {
    let root = Client::rooted();
    root.ok("db", doc! { "insert": "open", "documents": [{ "_id": 1 }] });
    root.ok("db", doc! { "insert": "secret", "documents": [{ "_id": 1 }] });
    let on = doc! { "resource": { "db": "db", "collection": "open" }, "actions": ["find"] };
    root.ok("admin", doc! { "createRole": "narrow", "roles": [], "privileges": [on] });
    let user = root.with_user("narrow", &[("narrow", "admin")]);
    let mut lookup = bson::RawDocumentBuf::new();
    for (name, value) in [
        (c"from", "open"),
        (c"from", "secret"),
        (c"localField", "_id"),
        (c"foreignField", "_id"),
        (c"as", "x"),
    ] {
        lookup.append(<&bson::raw::CStr>::try_from(name.to_str().unwrap()).unwrap(), value);
    }
    let mut stage = bson::RawDocumentBuf::new();
    stage.append(<&bson::raw::CStr>::try_from("$lookup").unwrap(), lookup);
    let mut stages = bson::RawArrayBuf::new();
    stages.push(stage);
    let mut body = bson::RawDocumentBuf::new();
    body.append(<&bson::raw::CStr>::try_from("aggregate").unwrap(), "open");
    body.append(<&bson::raw::CStr>::try_from("pipeline").unwrap(), stages);
    body.append(<&bson::raw::CStr>::try_from("cursor").unwrap(), bson::RawDocumentBuf::new());
    let request = dispatch::Request {
        database: "db",
        body: &body,
        sequences: &[],
        op: dispatch::OpKind::Msg,
        exhaust_allowed: false,
        request_id: 1,
        waited_until: None,
        waker: None,
        finisher: None,
    };
    let reply = user.service.run(&user.connection, &request);
    assert_eq!(reply.document.get_i32("code").ok(), Some(13));
}

#[test]
fn own_roles_hold_what_they_say_and_their_grant_needs_a_right() {
    let root = Client::rooted();
    root.ok("d", doc! { "createRole": "base", "roles": [], "privileges": [{ "resource": { "db": "d", "collection": "" }, "actions": ["find"] }] });
    root.ok("d", doc! { "createRole": "more", "roles": ["base"], "privileges": [{ "resource": { "db": "d", "collection": "c" }, "actions": ["insert"] }] });
    assert_eq!(root.code("d", doc! { "createRole": "wide", "roles": [], "privileges": [{ "resource": { "cluster": true }, "actions": ["shutdown"] }] }), 49);
    assert_eq!(root.code("d", doc! { "createRole": "wide", "roles": [{ "role": "read", "db": "e" }], "privileges": [] }), 49);
    assert_eq!(root.code("d", doc! { "grantRolesToRole": "base", "roles": ["more"] }), 49);
    assert_eq!(root.code("d", doc! { "createRole": "read", "roles": [], "privileges": [] }), 49);
    assert_eq!(root.code("admin", doc! { "createUser": "x", "pwd": "p", "roles": ["gone"] }), 31);
    assert_eq!(
        root.code("admin", doc! { "createUser": "x", "pwd": "p", "roles": ["__system"] }),
        31
    );
    assert_eq!(root.code("admin", create("root", &[])), 51003);
    assert_eq!(root.code("admin", doc! { "dropUser": "gone" }), 11);
    assert_eq!(root.code("admin", doc! { "dropRole": "gone" }), 31);
    let user = root.with_user("u", &[("more", "d")]);
    user.ok("d", find("c"));
    user.ok("d", doc! { "insert": "c", "documents": [{}] });
    assert_eq!(user.code("d", doc! { "insert": "other", "documents": [{}] }), 13);
    root.ok("d", doc! { "revokePrivilegesFromRole": "more", "privileges": [{ "resource": { "db": "d", "collection": "c" }, "actions": ["insert"] }] });
    assert_eq!(user.code("d", doc! { "insert": "c", "documents": [{}] }), 13);
    root.ok("d", doc! { "grantPrivilegesToRole": "more", "privileges": [{ "resource": { "db": "d", "collection": "x" }, "actions": ["remove"] }] });
    user.ok("d", doc! { "delete": "x", "deletes": [{ "q": {}, "limit": 0 }] });
    root.ok("d", doc! { "dropRole": "base" });
    assert_eq!(user.code("d", find("c")), 13);
    let manager = root.with_user("manager", &[("userAdmin", "d")]);
    manager.ok(
        "d",
        doc! { "createUser": "v", "pwd": "p", "roles": ["read"], "mechanisms": ["SCRAM-SHA-1"] },
    );
    assert_eq!(
        manager.code(
            "d",
            doc! { "createUser": "w", "pwd": "p", "roles": [{ "role": "root", "db": "admin" }] }
        ),
        13
    );
    assert_eq!(
        manager
            .code("d", doc! { "grantRolesToUser": "v", "roles": [{ "role": "read", "db": "e" }] }),
        13
    );
    assert_eq!(manager.code("admin", doc! { "usersInfo": 1 }), 13);
    assert_eq!(user.ok("admin", doc! { "usersInfo": "u" }).get_array("users").unwrap().len(), 1);
    assert_eq!(user.code("admin", doc! { "usersInfo": "root" }), 13);
    assert_eq!(
        user.code("admin", doc! { "updateUser": "u", "pwd": "new" }),
        13,
        "changeOwnPassword is a right"
    );
}

#[test]
fn a_guess_at_a_mechanism_that_the_user_has_not_is_left_out() {
    let root = Client::rooted();
    for mechanism in [Sha1, Sha256] {
        let name = mechanism.name();
        root.ok(
            "d",
            doc! { "createUser": name, "pwd": PASSWORD, "roles": [], "mechanisms": [name] },
        );
    }
    for (user, mechanism, answered) in [
        ("SCRAM-SHA-1", Sha1, true),
        ("SCRAM-SHA-1", Sha256, false),
        ("SCRAM-SHA-256", Sha256, true),
        ("SCRAM-SHA-256", Sha1, false),
        ("nobody", Sha256, true),
        ("nobody", Sha1, true),
    ] {
        let (_, first) = scram::Client::start(mechanism, user, b"a client's nonce");
        let begin = doc! { "saslStart": 1, "mechanism": mechanism.name(), "payload": binary(first), "db": "d" };
        let reply =
            root.another(70).ok("admin", doc! { "hello": 1, "speculativeAuthenticate": begin });
        assert_eq!(
            reply.contains_key("speculativeAuthenticate"),
            answered,
            "{user} by {mechanism:?}"
        );
    }
}

#[test]
fn a_connection_is_of_one_user_until_it_logs_out() {
    let root = Client::rooted();
    let user = root.with_user("u", &[]);
    root.ok(
        "d",
        doc! { "createUser": "v", "pwd": PASSWORD, "roles": [], "mechanisms": ["SCRAM-SHA-256"] },
    );
    assert_eq!(user.log_in("u", "admin"), 0);
    assert_eq!(user.log_in("root", "admin"), 5626702);
    assert_eq!(user.log_in("v", "d"), 5626701);
    assert_eq!(user.users(), ["u"]);
    user.ok("admin", doc! { "logout": 1 });
    assert_eq!(user.log_in("v", "d"), 0);
    assert_eq!(user.users(), ["v"]);
}

#[test]
fn restrictions_of_addresses_hold_for_users_and_roles() {
    let root = Client::rooted();
    let mut there = create("there", &[]);
    there.insert("authenticationRestrictions", bson::bson!([{ "clientSource": ["10.0.0.0/8"] }]));
    root.ok("admin", there);
    let mut here = create("here", &[]);
    here.insert(
        "authenticationRestrictions",
        bson::bson!([{ "clientSource": ["127.0.0.1"], "serverAddress": ["127.0.0.1"] }]),
    );
    root.ok("admin", here);
    assert_eq!(root.another(5).log_in("there", "admin"), 18);
    assert_eq!(root.another(6).log_in("here", "admin"), 0);
    root.ok("admin", doc! { "createRole": "far", "roles": [], "privileges": [], "authenticationRestrictions": [{ "clientSource": ["10.0.0.1"] }] });
    root.ok("admin", create("held", &[("far", "admin")]));
    assert_eq!(root.another(7).log_in("held", "admin"), 18);
}

#[test]
fn databases_and_collections_are_listed_to_who_may_know_them() {
    let root = Client::rooted();
    root.ok("a", doc! { "insert": "c", "documents": [{}] });
    root.ok("a", doc! { "insert": "d", "documents": [{}] });
    root.ok("b", doc! { "insert": "c", "documents": [{}] });
    root.ok("admin", doc! { "createRole": "one", "roles": [], "privileges": [{ "resource": { "db": "a", "collection": "c" }, "actions": ["find"] }] });
    let user = root.with_user("u", &[("one", "admin")]);
    let names = |reply: Document, list: &[&str]| {
        let mut at = reply;
        for name in &list[..list.len() - 1] {
            at = at.get_document(name).unwrap().clone();
        }
        let all = at.get_array(list[list.len() - 1]).unwrap().clone();
        all.iter()
            .map(|one| one.as_document().unwrap().get_str("name").unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(user.ok("admin", doc! { "listDatabases": 1 }), &["databases"]), ["a"]);
    assert_eq!(user.code("admin", doc! { "listDatabases": 1, "authorizedDatabases": false }), 13);
    assert_eq!(user.code("a", doc! { "listCollections": 1 }), 13);
    let own = doc! { "listCollections": 1, "nameOnly": true, "authorizedCollections": true };
    assert_eq!(names(user.ok("a", own), &["cursor", "firstBatch"]), ["c"]);
    assert_eq!(user.code("a", doc! { "find": "not there" }), 13);
}

#[test]
fn secrets_are_shown_nowhere() {
    const MARK: &str = "MARKEDSECRET";
    let root = Client::rooted();
    root.ok("admin", doc! { "profile": 2, "slowms": 0 });
    root.ok("admin", doc! { "createUser": "m", "pwd": MARK, "roles": [] });
    root.ok("admin", doc! { "updateUser": "m", "pwd": format!("{MARK}2") });
    let refused = root.run("admin", doc! { "createUser": "m", "pwd": MARK, "roles": [] });
    assert!(!refused.to_string().contains(MARK), "{refused}");
    let wrong = root.run("admin", doc! { "createUser": "n", "pwd": { "x": MARK }, "roles": [] });
    assert!(!wrong.to_string().contains(MARK), "{wrong}");
    let profile = root.ok("admin", doc! { "find": "system.profile" });
    assert!(profile.to_string().contains("createUser"), "it was profiled");
    assert!(!profile.to_string().contains(MARK), "{profile}");
    let users = root.ok("admin", doc! { "usersInfo": 1 });
    assert!(!users.to_string().contains("storedKey"));
}

#[test]
fn stored_users_that_are_not_understood_are_nobody_and_keep_nobody_out() {
    let root = Client::rooted();
    root.ok("admin", create("broken", &[]));
    let namespace = catalog::Namespace::new("admin", "system.users").unwrap();
    let catalog = &root.service.catalog;
    let mut txn = catalog.begin(catalog::TxnKind::Statement);
    let users = txn.open_for_write(&namespace).unwrap().unwrap();
    let bad = bson::RawDocumentBuf::try_from(&doc! { "_id": "admin.bad", "user": "bad", "db": "admin", "roles": "root", "credentials": {} }).unwrap();
    txn.insert_document(&users, &bad).unwrap();
    txn.commit().unwrap();
    root.ok("admin", doc! { "invalidateUserCache": 1 });
    assert_eq!(root.another(8).log_in("bad", "admin"), 18);
    assert_eq!(root.another(9).log_in("broken", "admin"), 0);
    // It is something all the same: the exception for the first user stays shut.
    root.ok("admin", doc! { "dropUser": "broken" });
    root.ok("admin", doc! { "dropUser": "root" });
    assert_eq!(root.code("admin", create("first", &[])), 13);
}

#[test]
fn without_asking_logins_work_and_nothing_is_enforced() {
    let client = Client::new();
    client.ok("admin", create("u", &[]));
    assert_eq!(client.log_in("u", "admin"), 0);
    assert_eq!(client.users(), ["u"]);
    client.ok("db", find("c"));
    client.ok("admin", doc! { "serverStatus": 1 });
}
