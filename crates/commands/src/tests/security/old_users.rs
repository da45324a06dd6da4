//! Users of MongoDB before 3.0 and of TokuMX: carried over with passwords that nobody knows.

use super::super::Client;
use super::{PASSWORD, find};
use auth::scram::Mechanism::{Sha1, Sha256};
use auth::scram::digest;
use bson::{Bson, Document, RawDocumentBuf, doc};
use catalog::Namespace;

/// What old versions stored of the password that all tests use.
fn pwd(user: &str) -> String {
    digest(user, PASSWORD).to_string()
}

fn upgrade(client: &Client, fields: Document) -> (Vec<String>, Vec<String>) {
    let mut command = doc! { "authSchemaUpgrade": 1 };
    command.extend(fields);
    let reply = client.ok("admin", command);
    let of = |name: &str| reply.get_array(name).unwrap().clone();
    let left = of("notUpgraded").into_iter().map(|left| {
        let left = left.as_document().unwrap();
        let text = |name: &str| left.get_str(name).unwrap();
        format!("{}.{}: {}", text("db"), text("user"), text("reason"))
    });
    let upgraded = of("upgraded").iter().map(|id| id.as_str().unwrap().to_owned()).collect();
    (upgraded, left.collect())
}

#[test]
fn users_of_a_dump_of_tokumx_log_in_with_their_passwords() {
    let root = Client::rooted();
    let of_shop = vec![
        doc! { "user": "clerk", "pwd": pwd("clerk"), "roles": ["readWrite"] },
        doc! { "user": "old", "pwd": pwd("old"), "readOnly": true },
        doc! { "user": "boss", "userSource": "admin", "roles": ["read"] },
        doc! { "user": "lost", "userSource": "nowhere", "roles": ["read"] },
        doc! { "user": "odd", "pwd": pwd("odd"), "roles": ["read", "juggler"] },
        doc! { "user": "broken", "pwd": "pencil", "roles": [] },
    ];
    let of_admin = vec![
        doc! { "user": "boss", "pwd": pwd("boss"), "roles": ["clusterAdmin"], "otherDBRoles": { "log": ["read"] } },
        doc! { "user": "root", "pwd": pwd("root"), "roles": [] },
    ];
    root.ok("shop", doc! { "insert": "old_users", "documents": of_shop });
    root.ok("admin", doc! { "insert": "old_users", "documents": of_admin });
    let (upgraded, left) = upgrade(&root, doc! { "from": "old_users" });
    assert_eq!(upgraded, ["admin.boss", "shop.clerk", "shop.odd", "shop.old"]);
    let mut names: Vec<&str> = left.iter().map(|text| text.split(':').next().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["admin.root", "nowhere.lost", "shop.broken", "shop.odd"], "{left:?}");
    assert!(left.iter().any(|text| text.contains("juggler@shop")), "{left:?}");
    let mut port = 70;
    let mut log_in = |mechanism, user, db| {
        port += 1;
        let client = root.another(port);
        (client.log_in_by(mechanism, (user, db), PASSWORD), client)
    };
    let (code, clerk) = log_in(Sha1, "clerk", "shop");
    assert_eq!(code, 0);
    clerk.ok("shop", doc! { "insert": "c", "documents": [{}] });
    assert_eq!(clerk.code("log", find("c")), 13);
    let (code, old) = log_in(Sha1, "old", "shop");
    assert_eq!((code, old.code("shop", find("c"))), (0, 0));
    assert_eq!(old.code("shop", doc! { "insert": "c", "documents": [{}] }), 13);
    // What both databases grant is together.
    let (code, boss) = log_in(Sha1, "boss", "admin");
    assert_eq!(code, 0);
    for (database, code) in [("shop", 0), ("log", 0), ("other", 13)] {
        assert_eq!(boss.code(database, find("c")), code, "{database}");
    }
    boss.ok("admin", doc! { "serverStatus": 1 });
    for (mechanism, user, db) in
        [(Sha256, "clerk", "shop"), (Sha1, "lost", "nowhere"), (Sha1, "broken", "shop")]
    {
        assert_eq!(log_in(mechanism, user, db).0, 18, "{user}");
    }
    // Nobody reads a digest any more, and whoever was there already is as before.
    let stored = root.ok("admin", find("system.users")).to_string();
    assert!(!stored.contains(&pwd("clerk")) && !stored.contains("MONGODB-CR"), "{stored}");
    assert_eq!(log_in(Sha256, "root", "admin").0, 0);
    let (again, _) = upgrade(&root, doc! { "from": "old_users" });
    assert_eq!(again, Vec::<String>::new());
    assert_eq!(root.ok("admin", find("system.users")).to_string().len(), stored.len());
}

#[test]
fn users_of_a_dump_of_mongodb_2_6_are_taken_over_with_credentials_of_today() {
    let root = Client::rooted();
    let user = doc! { "_id": "shop.u", "user": "u", "db": "shop", "credentials": { "MONGODB-CR": pwd("u") },
    "roles": [{ "role": "read", "db": "shop" }] };
    root.ok("admin", doc! { "insert": "tempusers", "documents": [user.clone()] });
    root.ok(
        "admin",
        doc! { "_mergeAuthzCollections": 1, "tempUsersCollection": "admin.tempusers", "db": "" },
    );
    let stored = root.ok("admin", doc! { "find": "system.users", "filter": { "_id": "shop.u" } });
    assert!(!stored.to_string().contains("MONGODB-CR"), "{stored}");
    let client = root.another(80);
    assert_eq!(client.log_in_by(Sha1, ("u", "shop"), PASSWORD), 0);
    client.ok("shop", find("c"));
    // One that an earlier version of this server has taken over as it was.
    let mut kept = user;
    kept.insert("_id", "shop.v");
    kept.insert("user", "v");
    kept.insert("credentials", doc! { "MONGODB-CR": pwd("v") });
    let namespace = Namespace::new("admin", "system.users").unwrap();
    let raw = RawDocumentBuf::try_from(&kept).unwrap();
    root.service.catalog.put_system_document(&namespace, &raw).unwrap();
    assert_eq!(root.another(81).log_in_by(Sha1, ("v", "shop"), PASSWORD), 18);
    assert_eq!(upgrade(&root, doc! {}), (vec!["shop.v".to_owned()], vec![]));
    assert_eq!(root.another(82).log_in_by(Sha1, ("v", "shop"), PASSWORD), 0);
    assert_eq!(upgrade(&root, doc! {}), (vec![], vec![]));
    // MONGODB-CR itself is refused by name.
    let nonce = root.run("admin", doc! { "getnonce": 1 });
    assert_eq!(nonce.get_i32("code").ok(), Some(59), "{nonce}");
    let by = doc! { "authenticate": 1, "user": "u", "nonce": "n", "key": "k" };
    let refused = root.another(83).run("shop", by);
    assert_eq!(refused.get_i32("code").ok(), Some(334), "{refused}");
    assert!(refused.get_str("errmsg").unwrap().contains("MONGODB-CR"));
}

#[test]
fn who_brings_old_users_must_be_allowed_to_make_any() {
    let root = Client::rooted();
    root.ok("admin", doc! { "insert": "old", "documents": [{ "user": "u", "pwd": pwd("u") }] });
    root.ok(
        "admin",
        doc! { "createRole": "upgrades", "roles": [],
        "privileges": [{ "resource": { "cluster": true }, "actions": ["authSchemaUpgrade"] }] },
    );
    let one = root.with_user("one", &[("upgrades", "admin")]);
    let from = doc! { "authSchemaUpgrade": 1, "from": "old" };
    assert_eq!(one.code("admin", doc! { "authSchemaUpgrade": 1 }), 0);
    assert_eq!(one.code("admin", from.clone()), 13);
    root.ok("admin", from);
    assert_eq!(root.code("admin", doc! { "authSchemaUpgrade": 1, "from": "none" }), 26);
    assert_eq!(root.code("admin", doc! { "authSchemaUpgrade": 1, "maxSteps": 0 }), 2);
    // Without users asked for only a client of this machine brings any.
    let open = Client::new();
    open.ok("db", doc! { "insert": "old", "documents": [{ "user": "u", "pwd": pwd("u") }] });
    let away = dispatch::ConnectionInfo { remote: "10.0.0.9:5".into(), local: "10.0.0.1:1".into() };
    let away = Client {
        connection: open.service.open_connection(away),
        service: std::sync::Arc::clone(&open.service),
    };
    let from = doc! { "authSchemaUpgrade": 1, "from": "old" };
    assert_eq!(away.code("admin", from.clone()), 13);
    open.ok("admin", from);
    let made = open.ok("db", doc! { "usersInfo": "u" });
    let made = made.get_array("users").unwrap()[0].as_document().unwrap();
    assert_eq!(
        made.get("roles"),
        Some(&Bson::Array(vec![doc! { "role": "dbOwner", "db": "db" }.into()]))
    );
}
