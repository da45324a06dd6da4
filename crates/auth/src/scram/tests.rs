//! SCRAM: the examples of the RFCs, and every way to be refused.

use super::{Client, ClientFirst, Credentials, Mechanism, Server, prepare};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The example of a RFC: its nonces, salt and messages.
struct Example {
    mechanism: Mechanism,
    client_nonce: &'static str,
    server_nonce: &'static str,
    salt: &'static str,
    messages: [&'static str; 4],
}

/// RFC 5802, section 5, and RFC 7677, section 3: user `user`, password `pencil`.
const EXAMPLES: [Example; 2] = [
    Example {
        mechanism: Mechanism::Sha1,
        client_nonce: "fyko+d2lbbFgONRv9qkxdawL",
        server_nonce: "3rfcNHYJY1ZVvWVs7j",
        salt: "QSXCR+Q6sek8bf92",
        messages: [
            "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
            "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
            "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
        ],
    },
    Example {
        mechanism: Mechanism::Sha256,
        client_nonce: "rOprNGfwEbeRWgbNEkqO",
        server_nonce: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        salt: "W22ZaJ0SNY7soEsUEjb6gQ==",
        messages: [
            "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ],
    },
];

#[test]
fn both_sides_say_what_the_rfcs_say() {
    for example in &EXAMPLES {
        let mechanism = example.mechanism;
        let salt = STANDARD.decode(example.salt).expect("base64");
        let credentials = Credentials::derive(mechanism, "pencil", salt, 4096);
        let (client, first) = Client::start_with(mechanism, "user", example.client_nonce);
        assert_eq!(first, example.messages[0].as_bytes());
        let parsed = ClientFirst::parse(&first).expect("fine");
        assert_eq!(parsed.user, "user");
        let (server, reply) =
            Server::start_with(mechanism, parsed, vec![credentials], example.server_nonce);
        assert_eq!(reply, example.messages[1].as_bytes());
        let (proof, expected) = client.proof(&reply, "pencil").expect("fine");
        assert_eq!(proof, example.messages[2].as_bytes());
        let last = server.finish(&proof).expect("the password is right");
        assert_eq!(last, example.messages[3].as_bytes());
        assert!(expected.matches(&last));
    }
}

fn log_in(mechanism: Mechanism, credentials: &Credentials, user: &str, password: &str) -> bool {
    let (client, first) = Client::start(mechanism, user, b"client's nonce");
    let first = ClientFirst::parse(&first).expect("a client's message");
    assert_eq!(first.user, user);
    let (server, reply) =
        Server::start(mechanism, first, vec![credentials.clone()], b"server's nonce");
    let (proof, expected) = client.proof(&reply, password).expect("a server's message");
    server.finish(&proof).is_ok_and(|last| expected.matches(&last))
}

#[test]
fn the_right_password_logs_in_and_no_other() {
    for mechanism in Mechanism::ALL {
        for user in ["user", "a=b,c", "IX", "\u{2168}", "=", ","] {
            let prepared = prepare(mechanism, user, "p\u{aa}ss").expect("allowed");
            let salt = vec![7; mechanism.salt_bytes()];
            let credentials = Credentials::derive(mechanism, &prepared, salt, 5000);
            let stored = Credentials::parse(mechanism, &credentials.to_document()).expect("ours");
            assert!(log_in(mechanism, &stored, user, &prepared));
            assert!(!log_in(mechanism, &stored, user, "pas"));
            assert!(!log_in(mechanism, &stored, user, ""));
            let made_up =
                Credentials::mock_for_unknown_user(mechanism, b"secret", user, "admin", 5000);
            assert!(!log_in(mechanism, &made_up, user, &prepared));
        }
    }
}

#[test]
fn names_that_do_not_exist_have_the_same_salt_each_time_and_each_its_own() {
    let salt = |mechanism, user, db| {
        Credentials::mock_for_unknown_user(mechanism, b"s", user, db, 5000).salt
    };
    let one = salt(Mechanism::Sha256, "a", "admin");
    assert_eq!(one, salt(Mechanism::Sha256, "a", "admin"));
    assert_eq!(one.len(), 28);
    assert_eq!(salt(Mechanism::Sha1, "a", "admin").len(), 16);
    assert_ne!(one, salt(Mechanism::Sha256, "b", "admin"));
    assert_ne!(one, salt(Mechanism::Sha256, "a", "test"));
    assert_ne!(
        one,
        Credentials::mock_for_unknown_user(Mechanism::Sha256, b"t", "a", "admin", 5000).salt
    );
}

#[test]
fn passwords_are_prepared() {
    let sha256 = |password: &str| prepare(Mechanism::Sha256, "u", password).map(|p| p.to_string());
    assert_eq!(sha256("I\u{ad}X").expect("allowed"), "IX");
    assert_eq!(sha256("\u{2168}").expect("allowed"), "IX");
    assert_eq!(sha256("\u{aa}").expect("allowed"), "a");
    assert!(sha256("\u{7}").is_err());
    assert!(sha256("\u{627}\u{31}").is_err());
    // md5("user:mongo:pencil")
    assert_eq!(
        *prepare(Mechanism::Sha1, "user", "pencil").expect("any"),
        "1c33006ec1ffd90f9cadcbcc0e118200"
    );
}

#[test]
fn first_messages_that_are_refused() {
    for bad in [
        "",
        "n",
        "n,,",
        "n,,n=user",
        "n,,r=abc",
        "n,,n=,r=abc",
        "n,,n=user,r=",
        "n,,n=us=er,r=abc",
        "n,,n=us=3d,r=abc",
        "p=tls-unique,,n=user,r=abc",
        "n,a=other,n=user,r=abc",
        "x,,n=user,r=abc",
        "n,,m=ext,n=user,r=abc",
        "n,,n=user,r=a b",
        "n,,n=us\0er,r=abc",
        "n=user,r=abc",
    ] {
        assert!(ClientFirst::parse(bad.as_bytes()).is_err(), "{bad}");
    }
    assert!(ClientFirst::parse(&[0xff, 0xfe]).is_err());
    assert!(ClientFirst::parse(format!("n,,n={},r=abc", "u".repeat(5000)).as_bytes()).is_err());
    assert!(ClientFirst::parse(b"y,,n=user,r=abc").is_ok());
}

#[test]
fn second_messages_that_are_refused() {
    let example = &EXAMPLES[1];
    let right = example.messages[2];
    let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    for bad in [
        String::new(),
        right.replace("c=biws", "c=eSws"),
        right.replace("c=biws", "c="),
        right.replace(",p=d", ",p=e"),
        right.replace(nonce, "other"),
        right.replace(",p=", ",q="),
        format!("c=biws,r={nonce},p="),
        format!("c=biws,r={nonce},p=AAAA"),
        format!("{right}x"),
    ] {
        let salt = STANDARD.decode(example.salt).expect("base64");
        let credentials = Credentials::derive(Mechanism::Sha256, "pencil", salt, 4096);
        let first = ClientFirst::parse(example.messages[0].as_bytes()).expect("fine");
        let (server, _) =
            Server::start_with(Mechanism::Sha256, first, vec![credentials], example.server_nonce);
        assert!(server.finish(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn a_client_refuses_servers_that_ask_for_too_little_or_answer_another() {
    for bad in [
        "",
        "r=abc,s=AAAA,i=4096",
        "r=bm9uY2U=x,s=AAAA,i=100",
        "r=bm9uY2U=x,s=AAAA,i=999999999",
        "r=bm9uY2U=x,s=?,i=4096",
    ] {
        let (client, _) = Client::start(Mechanism::Sha1, "u", b"nonce");
        assert!(client.proof(bad.as_bytes(), "p").is_err(), "{bad}");
    }
}

#[test]
fn stored_credentials_of_another_form_are_refused() {
    let fine = Credentials::derive(Mechanism::Sha1, "p", vec![1; 16], 10000).to_document();
    assert!(Credentials::parse(Mechanism::Sha1, &fine).is_ok());
    assert!(Credentials::parse(Mechanism::Sha256, &fine).is_err());
    for (field, value) in [
        ("iterationCount", bson::bson!(0)),
        ("iterationCount", bson::bson!("10000")),
        ("iterationCount", bson::bson!(1_000_000_000)),
        ("salt", bson::bson!("AAAA")),
        ("storedKey", bson::bson!("!")),
        ("serverKey", bson::bson!(1)),
    ] {
        let mut bad = fine.clone();
        bad.insert(field, value);
        assert!(Credentials::parse(Mechanism::Sha1, &bad).is_err(), "{bad}");
    }
}
