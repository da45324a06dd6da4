//! The cluster's time where users are asked for: signed, and moved by nobody who has not got it from the set.

use super::super::Client;
use super::{create, find};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, Timestamp, doc};

/// A set of one with a user `root`, and that one logged in.
fn rooted_member() -> Client {
    let client = Client::asking_member();
    client.ok("admin", create("root", &[("root", "admin")]));
    assert_eq!(client.log_in("root", "admin"), 0);
    client
}

fn told(client: &Client) -> Document {
    client.ok("admin", doc! { "ping": 1 }).get_document("$clusterTime").unwrap().clone()
}

fn time_of(told: &Document) -> Timestamp {
    told.get_timestamp("clusterTime").unwrap()
}

/// The same, as of so many seconds later.
fn later(told: &Document, seconds: u32) -> Document {
    let mut later = told.clone();
    let time = time_of(told);
    later.insert("clusterTime", Timestamp { time: time.time + seconds, ..time });
    later
}

fn with(mut command: Document, told: &Document) -> Document {
    command.insert("$clusterTime", told.clone());
    command
}

#[test]
fn a_time_is_signed_once_there_are_users_and_not_told_before() {
    let client = Client::asking_member();
    let reply = client.ok("admin", doc! { "ping": 1 });
    assert!(!reply.contains_key("$clusterTime") && reply.contains_key("operationTime"), "{reply}");
    client.ok("admin", create("root", &[("root", "admin")]));
    // Who has not logged in is told, too: drivers' monitors never log in.
    let told = told(&client.another(9));
    let signature = told.get_document("signature").unwrap();
    assert!(signature.get_i64("keyId").unwrap() > 0, "{told}");
    let hash = signature.get_binary_generic("hash").unwrap();
    assert!(hash.len() == 20 && hash.iter().any(|byte| *byte != 0), "{told}");
}

#[test]
fn a_time_that_no_member_has_signed_is_refused() {
    let root = rooted_member();
    root.ok(
        "admin",
        doc! { "createRole": "mover", "roles": [],
        "privileges": [{ "resource": { "cluster": true }, "actions": ["advanceClusterTime"] }] },
    );
    let mover = root.with_user("m", &[("mover", "admin"), ("readWriteAnyDatabase", "admin")]);
    let user = root.with_user("u", &[("readWriteAnyDatabase", "admin")]);
    let told = told(&user);
    // As a driver brings it, also with a number of another type.
    user.ok("db", with(find("c"), &told));
    let mut as_int = told.clone();
    let key_id = told.get_document("signature").unwrap().get_i64("keyId").unwrap();
    as_int.get_document_mut("signature").unwrap().insert("keyId", Bson::Int32(key_id as i32));
    user.ok("db", with(find("c"), &as_int));
    let forged = later(&told, 1000);
    let mut unsigned = forged.clone();
    unsigned.remove("signature");
    let zeros = Binary { subtype: BinarySubtype::Generic, bytes: vec![0; 20] };
    let mut dummy = forged.clone();
    dummy.insert("signature", doc! { "hash": zeros, "keyId": 0_i64 });
    let mut short = forged.clone();
    let three = Binary { subtype: BinarySubtype::Generic, bytes: vec![1, 2, 3] };
    short.get_document_mut("signature").unwrap().insert("hash", three);
    for (what, code) in [(&forged, 204), (&unsigned, 211), (&dummy, 211), (&short, 204)] {
        for client in [&user, &root] {
            let reply = client.run("db", with(find("c"), what));
            assert_eq!(reply.get_i32("code").ok(), Some(code), "{what} gave {reply}");
            let name = if code == 204 { "TimeProofMismatch" } else { "KeyNotFound" };
            assert_eq!(reply.get_str("codeName").ok(), Some(name));
        }
    }
    let before = time_of(&self::told(&user)).time;
    assert!(before < time_of(&forged).time, "nobody has moved the clock");
    // Nobody is logged in here, and nothing is followed.
    let nobody = root.another(7);
    nobody.ok("admin", with(doc! { "ping": 1 }, &forged));
    assert!(time_of(&self::told(&user)).time < time_of(&forged).time);
    mover.ok("db", with(find("c"), &unsigned));
    assert_eq!(time_of(&self::told(&user)).time, time_of(&forged).time);
    // What this set told then is signed like anything else, and the old one is older.
    user.ok("db", with(find("c"), &self::told(&mover)));
    user.ok("db", with(find("c"), &told));
}

#[test]
fn a_signature_holds_after_a_start_and_only_in_its_set() {
    let root = rooted_member();
    root.ok("db", doc! { "insert": "c", "documents": [{}] });
    let signed = told(&root);
    let again = root.asking_again(40);
    assert_eq!(again.log_in("root", "admin"), 0);
    // The times after a start are later ones: it is the signature of the newest that is compared.
    let newest = told(&again);
    let state = &again.service;
    let seen = |told: &Document| {
        let signature = told.get_document("signature").unwrap();
        let hash = signature.get_binary_generic("hash").unwrap().clone();
        let key_id = signature.get_i64("keyId").unwrap();
        (time_of(told), hash, key_id)
    };
    for told in [&signed, &newest] {
        let (time, hash, key_id) = seen(told);
        let signature = Some(dispatch::arguments::ClientSignature { hash: &hash, key_id });
        let brought = dispatch::arguments::SeenTime { time, signature };
        assert!(state.check_time(&brought).unwrap(), "{told}");
        let other = rooted_member();
        let refused = other.service.check_time(&brought).unwrap_err();
        assert_eq!(refused.code(), errors::Code::TIME_PROOF_MISMATCH);
    }
}
