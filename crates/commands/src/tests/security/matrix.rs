//! Every command asked by a holder of every built-in role, on its database, on another, and on `admin`, `local` and
//! `config`.
//!
//! What is expected is written here from MongoDB's documentation of its roles, command by command, and not from the
//! tables that the server goes by. Every request has a field that most commands do not know: what is let through does
//! nothing, or nothing that matters.

use super::{Client, create};
use crate::needs::Needs;
use crate::registry::COMMANDS;
use bson::{Bson, Document, doc};
use std::collections::BTreeSet;

/// Roles of the database `d`.
const OF_DATABASE: [&str; 5] = ["read", "readWrite", "dbAdmin", "userAdmin", "dbOwner"];
/// Roles of `admin`.
const OF_ADMIN: [&str; 13] = [
    "readAnyDatabase",
    "readWriteAnyDatabase",
    "dbAdminAnyDatabase",
    "userAdminAnyDatabase",
    "clusterMonitor",
    "hostManager",
    "clusterManager",
    "clusterAdmin",
    "backup",
    "restore",
    "enableSharding",
    "directShardOperations",
    "searchCoordinator",
];

/// A request on a collection of `d`, and who may send it. `root` may all of them.
pub(super) struct Row {
    pub(super) database: &'static str,
    pub(super) command: Document,
    /// Roles of `d`.
    own: &'static str,
    /// Roles of `admin`.
    any: &'static str,
}

fn row(database: &'static str, command: Document, own: &'static str, any: &'static str) -> Row {
    Row { database, command, own, any }
}

const READERS: &str = "read readWrite dbOwner";
const READERS_ANY: &str = "readAnyDatabase readWriteAnyDatabase backup";
const WRITERS: &str = "readWrite dbOwner";
const ADMINS: &str = "dbAdmin dbOwner";
const CHANGERS: &str = "readWrite dbAdmin dbOwner";
const CHANGERS_ANY: &str = "readWriteAnyDatabase dbAdminAnyDatabase";
const USER_MANAGERS: &str = "userAdmin dbOwner";
const USER_MANAGERS_ANY: &str = "userAdminAnyDatabase restore";
const MONITORS: &str = "clusterMonitor clusterAdmin";
const HOSTS: &str = "hostManager clusterAdmin";
const MANAGERS: &str = "clusterManager clusterAdmin";

pub(super) fn rows() -> Vec<Row> {
    let on = |name: &str| doc! { name: "c" };
    let one = |name: &str| doc! { name: 1 };
    let mut rows = vec![
        row("d", on("find"), READERS, READERS_ANY),
        row("d", on("count"), READERS, READERS_ANY),
        row("d", on("distinct"), READERS, READERS_ANY),
        row("d", doc! { "aggregate": "c", "pipeline": [] }, READERS, READERS_ANY),
        row(
            "d",
            doc! { "aggregate": "c", "pipeline": [{ "$out": "x" }] },
            WRITERS,
            "readWriteAnyDatabase",
        ),
        row("d", doc! { "mapReduce": "c", "out": { "inline": 1 } }, READERS, READERS_ANY),
        row("d", doc! { "explain": { "find": "c" } }, READERS, READERS_ANY),
        row("d", doc! { "explain": { "delete": "c" } }, WRITERS, "readWriteAnyDatabase"),
        row("d", doc! { "dataSize": "d.c" }, READERS, READERS_ANY),
        row("d", doc! { "filemd5": 1 }, READERS, READERS_ANY),
        row(
            "d",
            doc! { "insert": "c", "documents": [{}] },
            WRITERS,
            "readWriteAnyDatabase restore",
        ),
        row("d", doc! { "update": "c", "updates": [] }, WRITERS, "readWriteAnyDatabase"),
        row("d", doc! { "delete": "c", "deletes": [] }, WRITERS, "readWriteAnyDatabase"),
        row("d", doc! { "findAndModify": "c", "remove": true }, WRITERS, "readWriteAnyDatabase"),
        row(
            "admin",
            doc! { "bulkWrite": 1, "ops": [{ "delete": 0 }], "nsInfo": [{ "ns": "d.c" }] },
            WRITERS,
            "readWriteAnyDatabase",
        ),
        row("d", on("create"), CHANGERS, "readWriteAnyDatabase dbAdminAnyDatabase restore"),
        row("d", on("createIndexes"), CHANGERS, "readWriteAnyDatabase dbAdminAnyDatabase restore"),
        row("d", on("drop"), CHANGERS, "readWriteAnyDatabase dbAdminAnyDatabase restore"),
        row("d", on("dropIndexes"), CHANGERS, CHANGERS_ANY),
        row(
            "d",
            on("convertToCapped"),
            CHANGERS,
            "readWriteAnyDatabase dbAdminAnyDatabase restore",
        ),
        row(
            "d",
            doc! { "cloneCollectionAsCapped": "c", "toCollection": "x" },
            WRITERS,
            "readWriteAnyDatabase",
        ),
        row("admin", doc! { "renameCollection": "d.c", "to": "d.x" }, CHANGERS, CHANGERS_ANY),
        row("admin", doc! { "renameCollection": "d.c", "to": "f.x" }, "", "readWriteAnyDatabase"),
        row("d", on("collMod"), ADMINS, "dbAdminAnyDatabase restore"),
        row("d", on("compact"), ADMINS, "dbAdminAnyDatabase"),
        row("d", on("compactStructuredEncryptionData"), WRITERS, "readWriteAnyDatabase"),
        row("d", on("cleanupStructuredEncryptionData"), WRITERS, "readWriteAnyDatabase"),
        row("d", on("reIndex"), ADMINS, "dbAdminAnyDatabase"),
        row("d", on("validate"), ADMINS, "dbAdminAnyDatabase"),
        row("admin", doc! { "validateDBMetadata": 1, "db": "d" }, ADMINS, "dbAdminAnyDatabase"),
        row("d", one("profile"), ADMINS, "dbAdminAnyDatabase"),
        row("d", on("planCacheClear"), ADMINS, "dbAdminAnyDatabase"),
        row("d", on("planCacheClearFilters"), ADMINS, "dbAdminAnyDatabase"),
        row("d", on("planCacheListFilters"), ADMINS, "dbAdminAnyDatabase"),
        row("d", on("planCacheSetFilter"), ADMINS, "dbAdminAnyDatabase"),
        row("d", one("dropDatabase"), ADMINS, "dbAdminAnyDatabase clusterAdmin"),
        row(
            "d",
            on("collStats"),
            "read readWrite dbAdmin dbOwner",
            "readAnyDatabase readWriteAnyDatabase dbAdminAnyDatabase clusterMonitor clusterAdmin backup",
        ),
        row(
            "d",
            one("dbStats"),
            "read readWrite dbAdmin dbOwner",
            "readAnyDatabase readWriteAnyDatabase dbAdminAnyDatabase clusterMonitor clusterAdmin",
        ),
        row("d", one("dbHash"), READERS, "readAnyDatabase readWriteAnyDatabase"),
        row(
            "d",
            on("listIndexes"),
            "read readWrite dbAdmin dbOwner",
            "readAnyDatabase readWriteAnyDatabase dbAdminAnyDatabase backup",
        ),
        row(
            "d",
            one("listCollections"),
            "read readWrite dbAdmin dbOwner",
            "readAnyDatabase readWriteAnyDatabase dbAdminAnyDatabase backup restore",
        ),
        row(
            "d",
            on("listSearchIndexes"),
            "read readWrite dbAdmin dbOwner",
            "readAnyDatabase readWriteAnyDatabase dbAdminAnyDatabase backup",
        ),
        row(
            "d",
            on("createSearchIndexes"),
            CHANGERS,
            "readWriteAnyDatabase dbAdminAnyDatabase restore",
        ),
        row(
            "d",
            on("updateSearchIndex"),
            CHANGERS,
            "readWriteAnyDatabase dbAdminAnyDatabase restore",
        ),
        row("d", on("dropSearchIndex"), CHANGERS, CHANGERS_ANY),
        row("d", on("emptycapped"), "", ""),
        row("d", on("addPartition"), CHANGERS, CHANGERS_ANY),
        row("d", doc! { "beginLoad": 1, "ns": "c" }, "readWrite dbOwner", "readWriteAnyDatabase"),
        row("d", on("dropPartition"), CHANGERS, CHANGERS_ANY),
        row(
            "d",
            on("getPartitionInfo"),
            "read readWrite dbAdmin dbOwner",
            "readAnyDatabase readWriteAnyDatabase dbAdminAnyDatabase",
        ),
        row(
            "d",
            doc! { "createUser": "x", "pwd": "x", "roles": ["read"] },
            USER_MANAGERS,
            USER_MANAGERS_ANY,
        ),
        row("d", doc! { "updateUser": "x", "pwd": "x" }, USER_MANAGERS, USER_MANAGERS_ANY),
        row("d", doc! { "updateUser": "x", "roles": ["read"] }, "", USER_MANAGERS_ANY),
        row("d", doc! { "dropUser": "x" }, USER_MANAGERS, USER_MANAGERS_ANY),
        row("d", one("dropAllUsersFromDatabase"), USER_MANAGERS, USER_MANAGERS_ANY),
        row("d", one("usersInfo"), USER_MANAGERS, USER_MANAGERS_ANY),
        row(
            "d",
            doc! { "grantRolesToUser": "x", "roles": ["read"] },
            USER_MANAGERS,
            USER_MANAGERS_ANY,
        ),
        row(
            "d",
            doc! { "grantRolesToUser": "x", "roles": [{ "role": "root", "db": "admin" }] },
            "",
            USER_MANAGERS_ANY,
        ),
        row(
            "d",
            doc! { "revokeRolesFromUser": "x", "roles": ["read"] },
            USER_MANAGERS,
            USER_MANAGERS_ANY,
        ),
        row(
            "d",
            doc! { "createRole": "x", "roles": ["read"], "privileges": [{ "resource": { "db": "d", "collection": "" }, "actions": ["find"] }] },
            USER_MANAGERS,
            USER_MANAGERS_ANY,
        ),
        row("d", doc! { "updateRole": "x", "roles": ["read"] }, "", USER_MANAGERS_ANY),
        row("d", doc! { "dropRole": "x" }, USER_MANAGERS, USER_MANAGERS_ANY),
        row("d", one("dropAllRolesFromDatabase"), USER_MANAGERS, USER_MANAGERS_ANY),
        row("d", one("rolesInfo"), USER_MANAGERS, USER_MANAGERS_ANY),
        row(
            "d",
            doc! { "grantPrivilegesToRole": "x", "privileges": [{ "resource": { "db": "d", "collection": "" }, "actions": ["find"] }] },
            USER_MANAGERS,
            USER_MANAGERS_ANY,
        ),
        row(
            "d",
            doc! { "grantPrivilegesToRole": "x", "privileges": [{ "resource": { "cluster": true }, "actions": ["shutdown"] }] },
            "",
            USER_MANAGERS_ANY,
        ),
        row(
            "d",
            doc! { "revokePrivilegesFromRole": "x", "privileges": [{ "resource": { "db": "d", "collection": "" }, "actions": ["find"] }] },
            USER_MANAGERS,
            USER_MANAGERS_ANY,
        ),
        row(
            "d",
            doc! { "grantRolesToRole": "x", "roles": ["read"] },
            USER_MANAGERS,
            USER_MANAGERS_ANY,
        ),
        row(
            "d",
            doc! { "revokeRolesFromRole": "x", "roles": ["read"] },
            USER_MANAGERS,
            USER_MANAGERS_ANY,
        ),
        row(
            "admin",
            one("invalidateUserCache"),
            "",
            "userAdminAnyDatabase hostManager clusterAdmin",
        ),
        row(
            "admin",
            doc! { "_mergeAuthzCollections": 1, "tempUsersCollection": "admin.tempusers" },
            "",
            "restore",
        ),
        row("admin", one("authSchemaUpgrade"), "", "userAdminAnyDatabase"),
        row("admin", doc! { "authSchemaUpgrade": 1, "from": "x" }, "", "userAdminAnyDatabase"),
        row(
            "admin",
            doc! { "listDatabases": 1, "authorizedDatabases": false },
            "",
            "readAnyDatabase readWriteAnyDatabase dbAdminAnyDatabase userAdminAnyDatabase clusterMonitor clusterAdmin backup",
        ),
        row("admin", doc! { "applyOps": [] }, "", "dbAdminAnyDatabase restore"),
        row("admin", doc! { "applyOps": [{ "op": "i", "ns": "d.c", "o": {} }] }, "", "restore"),
        row("admin", doc! { "applyOps": [{ "op": "d", "ns": "d.c", "o": {} }] }, "", ""),
        row(
            "admin",
            doc! { "applyOps": [{ "op": "c", "ns": "d.$cmd", "o": { "drop": "c" } }] },
            "",
            "dbAdminAnyDatabase restore",
        ),
        row("admin", one("getParameter"), "", "clusterMonitor clusterAdmin backup restore"),
        row("admin", one("serverStatus"), "", "clusterMonitor clusterAdmin backup"),
        row("admin", one("engineStatus"), "", "clusterMonitor clusterAdmin backup"),
        row("admin", one("getDiagnosticData"), "", "clusterMonitor clusterAdmin backup"),
        row("admin", one("serverHistory"), "", "clusterMonitor clusterAdmin backup"),
        row("admin", one("cursorInfo"), "", "clusterMonitor clusterAdmin backup"),
        row("admin", one("setUserWriteBlockMode"), "", "backup restore"),
        row("admin", one("setClusterParameter"), "", MANAGERS),
        row("admin", one("getClusterParameter"), "", "clusterMonitor clusterManager clusterAdmin"),
        row("admin", one("getDefaultRWConcern"), "", "clusterMonitor clusterManager clusterAdmin"),
        row("admin", one("replSetGetConfig"), "", "clusterMonitor clusterManager clusterAdmin"),
        row("admin", one("replSetGetStatus"), "", "clusterMonitor clusterManager clusterAdmin"),
        row("admin", one("replGetExpireOplog"), "", "clusterMonitor clusterManager clusterAdmin"),
        row("admin", one("recoverToPoint"), "", MANAGERS),
        row("admin", one("listPlugins"), "", "clusterMonitor clusterAdmin backup restore"),
        row(
            "d",
            doc! { "beginTransaction": 1, "isolation": "serializable" },
            WRITERS,
            "readWriteAnyDatabase",
        ),
        row(
            "admin",
            doc! { "logApplicationMessage": "x" },
            "",
            "hostManager clusterManager clusterAdmin",
        ),
        row("admin", one("autoCompact"), "", ""),
    ];
    for name in OF_MEMBERS {
        rows.push(row("admin", one(name), "", ""));
    }
    for name in ["backupStart", "backupStatus", "backupThrottle"] {
        rows.push(row("admin", one(name), "", "backup"));
    }
    for name in [
        "getCmdLineOpts",
        "getLog",
        "hostInfo",
        "top",
        "connPoolStats",
        "currentOp",
        "showLiveTransactions",
        "showPendingLockRequests",
    ] {
        rows.push(row("admin", one(name), "", MONITORS));
    }
    for name in [
        "setParameter",
        "configureFailPoint",
        "shutdown",
        "fsync",
        "fsyncUnlock",
        "checkpoint",
        "logRotate",
        "rotateCertificates",
        "rotateDataKey",
        "rotateMasterKey",
        "dropConnections",
        "killAllSessions",
        "killAllSessionsByPattern",
        "touch",
        "loadPlugin",
        "replAddPartition",
        "replSetExpireOplog",
        "replSetResizeOplog",
        "replTrimOplog",
        "unloadPlugin",
    ] {
        rows.push(row("admin", one(name), "", HOSTS));
    }
    for name in [
        "setFeatureCompatibilityVersion",
        "setDefaultRWConcern",
        "replSetFreeze",
        "replSetInitiate",
        "replSetMaintenance",
        "replSetReconfig",
        "replSetStepDown",
    ] {
        rows.push(row("admin", one(name), "", MANAGERS));
    }
    rows.push(row("admin", doc! { "replSetSyncFrom": "a:1" }, "", MANAGERS));
    rows
}

/// Rows that not even `root` has the right to, for it is `__system`'s, or no built-in role's by itself.
pub(super) const NOT_OF_ROOT: [&str; 2] = ["emptycapped", "autoCompact"];

/// What members ask of each other, and no user may.
pub(super) const OF_MEMBERS: [&str; 6] =
    ["_fernJoin", "_fernMember", "_fernCopyBegin", "_fernCopyLog", "_fernCopyRead", "_fernCopyEnd"];

pub(super) fn is_refused(client: &Client, database: &str, command: &Document) -> bool {
    let mut command = command.clone();
    command.insert("noCommandKnowsThis", 1);
    let reply = client.run(database, command);
    let text = reply.get_str("errmsg").unwrap_or_default();
    reply.get_i32("code").ok() == Some(13)
        && (text.starts_with("not authorized on") || text.ends_with("requires authentication"))
}

/// The same request about another database; whether it is another request.
fn elsewhere(row: &Row, to: &'static str) -> (&'static str, Document, bool) {
    fn moved(value: &Bson, to: &str) -> Bson {
        match value {
            Bson::String(text) if text.starts_with("d.") => {
                Bson::String(format!("{to}.{}", &text[2..]))
            }
            Bson::String(text) if text == "d" => Bson::from(to),
            Bson::Document(inner) => Bson::Document(
                inner.iter().map(|(name, value)| (name.clone(), moved(value, to))).collect(),
            ),
            Bson::Array(all) => Bson::Array(all.iter().map(|one| moved(one, to)).collect()),
            other => other.clone(),
        }
    }
    let command: Document =
        row.command.iter().map(|(name, value)| (name.clone(), moved(value, to))).collect();
    let database = if row.database == "d" { to } else { row.database };
    let is_other = (database, &command) != (row.database, &row.command);
    (database, command, is_other)
}

/// The role whose rights another has as well, and none besides in the rows.
fn as_another(role: &str) -> &str {
    if role == "searchCoordinator" { "readAnyDatabase" } else { role }
}

/// What roles of `admin` may in `local` and `config`, which are of no role of every database: those that the manual
/// names these two databases for.
fn may_in_system(row: &Row, role: &str, database: &str) -> bool {
    let has = |list: &str, role: &str| list.split(' ').any(|one| one == role);
    let reads = has(row.own, "read");
    let name = row.command.keys().next().map_or("", String::as_str);
    let within = match row.command.get("explain") {
        Some(Bson::Document(inner)) => inner.keys().next().map_or("", String::as_str),
        _ => name,
    };
    let changes = match within {
        // Who may insert makes plain collections by that.
        "insert" | "update" | "delete" | "bulkWrite" | "create" => true,
        // They find first.
        "findAndModify" => database == "config" || role == "clusterAdmin",
        "aggregate" if !has(row.own, "read") => database == "config" || role == "clusterAdmin",
        _ => false,
    };
    match role {
        "clusterMonitor" => reads,
        "clusterManager" => reads && database == "config" || changes,
        "clusterAdmin" => reads || changes,
        // Users of these databases are managed by the one role, and restored by nobody.
        "userAdminAnyDatabase" | "backup" => has(row.any, role),
        // What is given there may be of `admin`, and is judged by the right to give it.
        "restore" if row.own.is_empty() && name.starts_with("grant") => has(row.any, role),
        "restore" => has(row.any, role) && !has(row.any, "userAdminAnyDatabase"),
        _ => false,
    }
}

#[test]
fn every_command_by_every_role() {
    let root = Client::rooted();
    let rows = rows();
    let listed: BTreeSet<&str> =
        rows.iter().filter_map(|row| row.command.keys().next()).map(String::as_str).collect();
    for command in COMMANDS {
        let is_free = matches!(command.needs, Needs::NoLogin | Needs::Login);
        assert_eq!(listed.contains(command.name), !is_free, "{} in the matrix", command.name);
    }
    let mut wrong = Vec::new();
    let mut asked = 0;
    let mut check =
        |client: &Client, who: &str, database: &str, command: &Document, allowed: bool| {
            asked += 1;
            if is_refused(client, database, command) == allowed {
                wrong.push(format!(
                    "{who} {} {command} on {database}",
                    if allowed { "may" } else { "may not" }
                ));
            }
        };
    let has = |list: &str, role: &str| list.split(' ').any(|one| one == role);
    for role in OF_DATABASE {
        let client = root.with_user(role, &[(role, "d")]);
        for row in &rows {
            check(&client, role, row.database, &row.command, has(row.own, role));
            for other in ["e", "admin", "local", "config"] {
                let (database, command, _) = elsewhere(row, other);
                check(&client, role, database, &command, false);
            }
        }
    }
    for role in OF_ADMIN {
        let client = root.with_user(role, &[(role, "admin")]);
        for row in &rows {
            let allowed = has(row.any, as_another(role));
            check(&client, role, row.database, &row.command, allowed);
            for other in ["e", "admin"] {
                let (database, command, _) = elsewhere(row, other);
                check(&client, role, database, &command, allowed);
            }
            for other in ["local", "config"] {
                let (database, command, is_other) = elsewhere(row, other);
                if is_other {
                    let allowed = may_in_system(row, role, other);
                    check(&client, role, database, &command, allowed);
                }
            }
        }
    }
    let nobody = root.another(7);
    let nothing = root.with_user("nothing", &[]);
    for row in &rows {
        check(&nobody, "nobody", row.database, &row.command, false);
        check(&nothing, "a user without roles", row.database, &row.command, false);
        let name = row.command.keys().next().expect("a command");
        let name = name.as_str();
        let allowed = !NOT_OF_ROOT.contains(&name) && !OF_MEMBERS.contains(&name);
        check(&root, "root", row.database, &row.command, allowed);
    }
    assert!(wrong.is_empty(), "{} of {asked}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn collections_of_the_system_are_of_those_who_are_named_for_them() {
    let root = Client::rooted();
    root.ok("admin", create("more", &[]));
    for (role, db, database, name, allowed) in [
        ("read", "d", "d", "system.js", true),
        ("read", "d", "d", "system.profile", false),
        ("dbAdmin", "d", "d", "system.profile", true),
        ("read", "admin", "admin", "system.users", false),
        ("readAnyDatabase", "admin", "admin", "system.users", false),
        ("readAnyDatabase", "admin", "local", "c", false),
        ("readAnyDatabase", "admin", "config", "transactions", false),
        ("readAnyDatabase", "admin", "d", "system.views", false),
        ("clusterMonitor", "admin", "local", "c", true),
        ("clusterMonitor", "admin", "config", "c", true),
        ("userAdminAnyDatabase", "admin", "admin", "system.users", true),
        ("userAdminAnyDatabase", "admin", "admin", "system.roles", true),
        ("backup", "admin", "admin", "system.users", true),
        ("backup", "admin", "local", "c", true),
        ("root", "admin", "admin", "system.users", true),
    ] {
        let user = format!("{role}{database}{name}");
        let client = root.with_user(&user, &[(role, db)]);
        let refused = client.code(database, doc! { "find": name }) == 13;
        assert_eq!(!refused, allowed, "{role}@{db} on {database}.{name}");
    }
}
