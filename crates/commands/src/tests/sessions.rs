//! Logical sessions from the outside.

use super::Client;
use bson::{Binary, Bson, Document, doc, spec::BinarySubtype};

fn lsid(byte: u8) -> Document {
    doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![byte; 16] } }
}

#[test]
fn session_is_started_used_and_ended() {
    let client = Client::new();
    let started = client.ok("test", doc! { "startSession": 1 });
    assert_eq!(started.get_i32("timeoutMinutes").ok(), Some(30));
    let id = started.get_document("id").unwrap().clone();
    client.ok("test", doc! { "ping": 1, "lsid": id.clone() });
    assert_eq!(client.service.sessions.len(), 1);
    client.ok("test", doc! { "ping": 1, "lsid": lsid(1) });
    assert_eq!(client.service.sessions.len(), 2);
    client.ok("admin", doc! { "endSessions": [id, lsid(1), lsid(2)] });
    assert!(client.service.sessions.is_empty());
}

#[test]
fn what_sessions_and_statistics_take_is_in_the_account() {
    let client = Client::new();
    let part = |name: &str| {
        let status = client.ok("admin", doc! { "serverStatus": 1 });
        let account = status.get_document("memoryAccount").unwrap();
        let clients = account.get_document("clients").unwrap();
        clients.get_document("parts").unwrap().get_i64(name).unwrap()
    };
    for byte in 0..50 {
        client.ok("test", doc! { "ping": 1, "lsid": lsid(byte) });
        client.ok("test", doc! { "insert": format!("c{byte}"), "documents": [{ "_id": 1 }] });
    }
    assert_eq!(part("sessions"), 50 * session::Sessions::BYTES as i64);
    let top = client.service.metrics.top_bytes();
    assert!(top > 50 * 100, "50 collections were used: {top}");
    assert!(part("statistics") >= top as i64);
    client.ok("admin", doc! { "killAllSessions": [] });
    client.ok("test", doc! { "dropDatabase": 1 });
    assert_eq!((part("sessions"), client.service.metrics.top_bytes()), (0, 0));
}

#[test]
fn malformed_session_ids_are_refused() {
    let client = Client::new();
    for (id, code) in [
        (Bson::from("x"), 14),
        (Bson::Document(doc! {}), 40414),
        (Bson::Document(doc! { "id": "x" }), 14),
        (
            Bson::Document(doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![1] } }),
            207,
        ),
        (Bson::Document(doc! { "id": lsid(1).get("id").unwrap().clone(), "foo": 1 }), 40415),
    ] {
        let reply = client.run("test", doc! { "ping": 1, "lsid": id.clone() });
        assert_eq!(reply.get_i32("code").ok(), Some(code), "{id}");
    }
}

#[test]
fn refresh_and_kill_work_on_lists() {
    let client = Client::new();
    client.ok("admin", doc! { "refreshSessions": [lsid(1), lsid(2), lsid(3)] });
    assert_eq!(client.service.sessions.len(), 3);
    client.ok("admin", doc! { "killSessions": [lsid(1)] });
    assert_eq!(client.service.sessions.len(), 2);
    client.ok("admin", doc! { "killAllSessionsByPattern": [{ "lsid": lsid(2) }] });
    assert_eq!(client.service.sessions.len(), 1);
    client.ok("admin", doc! { "killAllSessions": [] });
    assert!(client.service.sessions.is_empty());
}

#[test]
fn security_finding_4_one_command_names_ten_thousand_sessions_at_most() {
    let client = Client::new();
    let ids = |count: u32| -> Vec<Bson> {
        let id = |n: u32| {
            let mut bytes = vec![0; 16];
            bytes[..4].copy_from_slice(&n.to_le_bytes());
            Bson::Document(doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes } })
        };
        (0..count).map(id).collect()
    };
    for command in ["refreshSessions", "endSessions", "killSessions"] {
        client.ok("admin", doc! { command: ids(10_000) });
        let refused = client.run("admin", doc! { command: ids(10_001) });
        assert_eq!(refused.get_i32("code").ok(), Some(2), "{command}");
    }
}

#[test]
fn sessions_are_listed() {
    let client = Client::new();
    client.ok("test", doc! { "ping": 1, "lsid": lsid(1) });
    let count = |database: &str, target: Bson, stage: &str| {
        let command = doc! { "aggregate": target, "pipeline": [{ stage: {} }], "cursor": {} };
        let reply = client.run(database, command);
        let cursor = reply.get_document("cursor").ok()?;
        cursor.get_array("firstBatch").ok().map(Vec::len)
    };
    assert_eq!(count("admin", 1.into(), "$listLocalSessions"), Some(1));
    assert_eq!(count("config", "system.sessions".into(), "$listSessions"), Some(1));
    assert_eq!(count("config", "c".into(), "$listSessions"), None);
}

#[test]
fn commit_without_a_transaction_fails() {
    let client = Client::new();
    client.fails(
        "admin",
        doc! { "commitTransaction": 1 },
        16788,
        "no transaction exists to be committed",
    );
}
