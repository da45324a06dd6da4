//! What belongs to a connection or a user beside its rights: failed logins, time limits, its name in the audit log.

use super::super::Client;
use super::Sha256;
use bson::spec::BinarySubtype;
use bson::{Document, doc};

#[test]
fn the_third_failed_login_is_answered_and_ends_the_connection() {
    let root = Client::rooted();
    let guess = |client: &Client, password: &str| {
        let (half, first) = auth::scram::Client::start(Sha256, "root", b"n");
        let begin = doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256",
        "payload": super::binary(first), "options": { "skipEmptyExchange": true } };
        let begun = client.ok("admin", begin);
        let prepared = auth::scram::prepare(Sha256, "root", password).unwrap();
        let (proof, _) =
            half.proof(begun.get_binary_generic("payload").unwrap(), &prepared).unwrap();
        let go_on =
            doc! { "saslContinue": 1, "conversationId": 1, "payload": super::binary(proof) };
        let reply = client.reply("admin", &go_on, false);
        let document = Document::try_from(&reply.document).unwrap();
        (document.get_i32("code").unwrap_or(0), reply.is_last)
    };
    let guesser = root.another(20);
    assert_eq!(guess(&guesser, "one"), (18, false));
    assert_eq!(guess(&guesser, "two"), (18, false));
    // A login in between does not begin the count anew: who knows one password may guess at others.
    assert_eq!(guess(&guesser, super::PASSWORD), (0, false));
    guesser.ok("admin", doc! { "logout": 1 });
    assert_eq!(guess(&guesser, "three"), (18, true));
    // Another connection has its own count, and what fails for another reason is no guess.
    let other = root.another(21);
    for _ in 0..5 {
        assert!(!other.reply("d", &doc! { "find": "c" }, false).is_last);
    }
    assert_eq!(guess(&other, "wrong"), (18, false));
    // A delayed answer counts once.
    root.ok("admin", doc! { "setParameter": 1, "authFailedDelayMs": 1 });
    assert_eq!(guess(&other, "wrong"), (18, false));
    assert_eq!(guess(&other, "wrong"), (18, true));
}

#[test]
fn the_default_time_limit_is_not_that_of_who_may_go_beyond_it() {
    let root = Client::rooted();
    root.ok("d", doc! { "insert": "c", "documents": [{}] });
    let reader = root.with_user("reader", &[("read", "d")]);
    root.ok(
        "admin",
        doc! { "createRole": "patient", "roles": [], "privileges": [
        { "resource": { "cluster": true }, "actions": ["bypassDefaultMaxTimeMS"] }] },
    );
    let patient = root.with_user("waiter", &[("read", "d"), ("patient", "admin")]);
    root.ok(
        "admin",
        doc! { "setClusterParameter": { "defaultMaxTimeMS": { "readOperations": 1 } } },
    );
    let slow = doc! { "find": "c", "filter": { "$where": "sleep(20); return true" } };
    let slow = |client: &Client, limit: Option<i32>| {
        let mut command = slow.clone();
        command.extend(limit.map(|limit| ("maxTimeMS".to_owned(), limit.into())));
        client.code("d", command)
    };
    assert_eq!(slow(&reader, None), 50);
    assert_eq!(slow(&patient, None), 0);
    assert_eq!(slow(&root, None), 0, "of the built-in roles root's knows it");
    // The limit that a client gives is everybody's.
    assert_eq!(slow(&patient, Some(1)), 50);
    assert_eq!(slow(&reader, Some(60_000)), 0);
}

#[test]
fn connection_status_tells_by_which_uuid_the_audit_log_knows_the_connection() {
    let root = Client::rooted();
    let told = |client: &Client| {
        let status = client.ok("admin", doc! { "connectionStatus": 1 });
        match status.get("uuid") {
            Some(bson::Bson::Binary(uuid)) if uuid.subtype == BinarySubtype::Uuid => {
                uuid.bytes.clone()
            }
            other => panic!("{other:?}"),
        }
    };
    let mine = told(&root);
    assert_eq!(mine, root.connection.audit_id(&root.service.os));
    assert_eq!(mine, told(&root));
    assert_ne!(mine, told(&root.another(30)));
}
