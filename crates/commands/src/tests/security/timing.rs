//! Who exists is not told by how much work a login is: counted in hashes, never in time.

use super::super::Client;
use super::{PASSWORD, binary, create};
use auth::UserName;
use auth::scram::{self, Mechanism, hashing};
use bson::{Document, doc};

/// The hashes that a command takes.
fn hashes(client: &Client, database: &str, command: Document) -> (u64, Document) {
    let before = hashing::taken();
    let reply = client.run(database, command);
    (hashing::taken() - before, reply)
}

/// What a login with a wrong password takes: begun by `saslStart`, begun by `hello`, and its end.
fn of_login(client: &Client, mechanism: Mechanism, (user, db): (&str, &str)) -> [u64; 3] {
    let (of_client, first) = scram::Client::start(mechanism, user, b"a client's nonce");
    let begin =
        doc! { "saslStart": 1, "mechanism": mechanism.name(), "payload": binary(first.clone()) };
    let mut speculative = begin.clone();
    speculative.insert("db", db);
    let hello = doc! { "hello": 1, "speculativeAuthenticate": speculative };
    let (of_hello, _) = hashes(client, "admin", hello);
    let (of_start, begun) = hashes(client, db, begin);
    let payload = begun.get_binary_generic("payload").expect("a login begins for everybody");
    // The client's own hashes are not counted.
    let (proof, _) = of_client.proof(payload, "a wrong password").unwrap();
    let go_on = doc! { "saslContinue": 1, "conversationId": 1, "payload": binary(proof) };
    let (of_end, refused) = hashes(client, db, go_on);
    assert_eq!(refused.get_i32("code").ok(), Some(18), "{refused}");
    [of_start, of_hello, of_end]
}

#[test]
fn a_login_takes_as_many_hashes_whoever_exists() {
    let root = Client::rooted();
    root.ok("admin", doc! { "createUser": "both", "pwd": PASSWORD, "roles": [] });
    root.ok("admin", create("only", &[]));
    let mut port = 50;
    let mut client = || {
        port += 1;
        root.another(port)
    };
    for mechanism in Mechanism::ALL {
        let known = of_login(&client(), mechanism, ("both", "admin"));
        assert!(known.iter().all(|hashes| *hashes > 0), "work is counted: {known:?}");
        for (user, db) in [("none", "admin"), ("both", "test"), ("none", "none1")] {
            assert_eq!(of_login(&client(), mechanism, (user, db)), known, "{user}@{db}");
        }
    }
    // Who has no credentials of this kind is nobody.
    let [start, _, end] = of_login(&client(), Mechanism::Sha1, ("only", "admin"));
    let [of_nobody, _, of_nobodys_end] = of_login(&client(), Mechanism::Sha1, ("none", "admin"));
    assert_eq!((start, end), (of_nobody, of_nobodys_end));
}

#[test]
fn a_password_takes_as_many_hashes_whoever_exists() {
    let root = Client::rooted();
    root.ok("admin", doc! { "createUser": "both", "pwd": PASSWORD, "roles": [] });
    let of = |user: &str, password: &str| {
        let before = hashing::taken();
        let client = root.another(90);
        let user = UserName::new(user, "admin");
        let outcome = root.service.log_in_by_password(&user, password, &client.connection);
        (outcome.is_ok(), hashing::taken() - before)
    };
    let (is_in, work) = of("both", PASSWORD);
    assert!(is_in && work > 15_000, "{work}");
    for (user, password) in [("both", "wrong"), ("none", PASSWORD), ("nobody", "")] {
        assert_eq!(of(user, password), (false, work), "{user}");
    }
}

#[test]
fn made_up_salts_are_the_same_after_a_start_as_those_of_users_are() {
    let root = Client::rooted();
    root.ok("admin", doc! { "createUser": "both", "pwd": PASSWORD, "roles": [] });
    let salt = |client: &Client, user: &str, mechanism: Mechanism| {
        let (_, first) = scram::Client::start(mechanism, user, b"n");
        let begin =
            doc! { "saslStart": 1, "mechanism": mechanism.name(), "payload": binary(first) };
        let begun = client.ok("admin", begin);
        let text = begun.get_binary_generic("payload").unwrap().clone();
        let text = String::from_utf8(text).unwrap();
        text.split(',').nth(1).unwrap().to_owned()
    };
    let again = root.asking_again(60);
    let other = Client::rooted();
    for mechanism in Mechanism::ALL {
        for user in ["both", "none"] {
            let told = salt(&root, user, mechanism);
            assert_eq!(told, salt(&again, user, mechanism), "{user}");
            assert_ne!(told, salt(&other, user, mechanism), "{user}: another server's secret");
        }
    }
}
