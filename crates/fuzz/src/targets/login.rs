//! What a stranger says to log in, and what a dump or a key file brings of users.

use super::network::raw;
use crate::Target;
use auth::old_users::OldUser;
use auth::scram::{Client, ClientFirst, Credentials, Mechanism, Server};
use auth::{Grants, RoleDocument, UserDocument, key_file};
use bson::spec::BinarySubtype;
use bson::{Binary, Document, RawDocument, doc};

/// Both messages of a client, as one text with a zero byte between them. Nobody knows the password, so that nobody gets in.
pub(super) const LOGIN: Target = Target {
    name: "login",
    corpus: || {
        let mechanism = Mechanism::Sha256;
        let (client, first) = Client::start(mechanism, "a=b,c", b"a client's nonce");
        let parsed = ClientFirst::parse(&first).expect("a client's message");
        let (_, answer) =
            Server::start(mechanism, parsed, vec![stored(mechanism)], b"a server's nonce");
        let (proof, _) = client.proof(&answer, "pencil").expect("a server's message");
        vec![[&first[..], &[0], &proof].concat(), [&answer[..], &[0], &first].concat()]
    },
    start: || {
        let credentials = Mechanism::ALL.map(|mechanism| (mechanism, stored(mechanism)));
        Box::new(move |bytes| {
            let (first, second) = split(bytes);
            if let Ok(message) = ClientFirst::parse(first) {
                assert!(!message.user.is_empty(), "somebody wants to log in");
                for (mechanism, credentials) in &credentials {
                    let (server, _) = Server::start(
                        *mechanism,
                        message.clone(),
                        vec![credentials.clone()],
                        b"a nonce",
                    );
                    assert!(server.finish(second).is_err(), "nobody knows the password");
                }
            }
            // The same bytes as what a server says, which may be anybody: it may not ask for hours of work.
            let (client, _) = Client::start(Mechanism::Sha256, "u", b"a nonce");
            let cheap = |_: &[u8], iterations: u32| {
                assert!((4096..=10_000_000).contains(&iterations));
                Some(std::sync::Arc::new(vec![7; 32].into()))
            };
            let _ = client.proof_by(first, cheap).is_ok();
        })
    },
};

fn stored(mechanism: Mechanism) -> Credentials {
    Credentials::mock_for_unknown_user(mechanism, b"a secret of nobody", "u", "d", 4096)
}

fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let zero = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    (&bytes[..zero], bytes.get(zero + 1..).unwrap_or_default())
}

/// A key file.
pub(super) const KEY_FILE: Target = Target {
    name: "key-file",
    corpus: || {
        [&b"abc def\n ghi\n"[..], b"- abcdef\n- \"ghijkl\"\n", b"# none\n-\nabcdefg"]
            .map(<[u8]>::to_vec)
            .to_vec()
    },
    start: || {
        Box::new(|bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if let Ok(keys) = key_file::parse(text) {
                let fits =
                    |length: usize| (key_file::SHORTEST..=key_file::LONGEST).contains(&length);
                assert!(
                    (1..=2).contains(&keys.len()) && keys.iter().all(|key| fits(key.bytes().len()))
                );
            }
        })
    },
};

/// A user as old versions stored it. What it is made into is a user of today.
pub(super) const OLD_USER: Target = Target {
    name: "old-user",
    corpus: || {
        let pwd = "0123456789abcdef0123456789abcdef";
        let roles = vec![doc! { "role": "read", "db": "d" }];
        [
            doc! { "user": "u", "pwd": pwd, "roles": ["read"], "otherDBRoles": { "e": ["dbAdmin"] } },
            doc! { "user": "u", "pwd": pwd, "readOnly": true },
            doc! { "user": "u", "userSource": "$external", "roles": [] },
            doc! { "_id": "d.u", "user": "u", "db": "d", "credentials": { "MONGODB-CR": pwd }, "roles": roles, "customData": {} },
        ]
        .iter()
        .map(|document| raw(document).into_bytes())
        .collect()
    },
    start: || {
        Box::new(|bytes| {
            let Ok(document) = RawDocument::from_bytes(bytes) else { return };
            let Ok(document) = Document::try_from(document) else { return };
            let Ok(user) = OldUser::parse(&document, "admin") else { return };
            let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
            // One round: the bytes are looked at, not the hash.
            if let Some(made) = user.to_document(id.into(), vec![1; 16], 1) {
                let made = UserDocument::parse(&made).expect("a user of today");
                assert_eq!(made.name, user.name);
            }
        })
    },
};

/// A stored user or role. What a role is read to allow it allows.
pub(super) const ACCOUNT: Target = Target {
    name: "account",
    corpus: || {
        let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
        let credentials = doc! { "SCRAM-SHA-256": stored(Mechanism::Sha256).to_document() };
        let roles = vec![doc! { "role": "read", "db": "d" }];
        let restrictions = vec![doc! { "clientSource": ["10.0.0.0/8", "::1"] }];
        let user = doc! { "_id": "d.u", "userId": id, "user": "u", "db": "d", "credentials": credentials,
        "roles": roles.clone(), "authenticationRestrictions": restrictions };
        let privileges = vec![
            doc! { "resource": { "db": "d", "collection": "" }, "actions": ["find", "insert"] },
            doc! { "resource": { "cluster": true }, "actions": ["serverStatus"] },
            doc! { "resource": { "anyResource": true }, "actions": ["anyAction"] },
        ];
        let role =
            doc! { "_id": "d.r", "role": "r", "db": "d", "privileges": privileges, "roles": roles };
        [user, role].iter().map(|document| raw(document).into_bytes()).collect()
    },
    start: || {
        Box::new(|bytes| {
            let Ok(document) = RawDocument::from_bytes(bytes) else { return };
            let Ok(document) = Document::try_from(document) else { return };
            if let Ok(user) = UserDocument::parse(&document) {
                assert!(!user.name.user.is_empty() && !user.name.db.contains('@'));
            }
            if let Ok(role) = RoleDocument::parse(&document) {
                let grants = Grants::new(&role.privileges);
                assert!(role.privileges.iter().all(|privilege| grants.covers(privilege)));
            }
        })
    },
};
