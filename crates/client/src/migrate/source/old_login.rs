//! Logins at servers that the driver refuses: SCRAM-SHA-1 of MongoDB 3.0 to 4.2, and MONGODB-CR of TokuMX and MongoDB
//! before.
//!
//! Always true: the password does not go over the wire; what stands for it is worked out from random numbers of both
//! sides. With SCRAM the server proves that it knows the password, too.

use super::old_wire::Connection;
use anyhow::{Context, Result, anyhow, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use os::Os;
use sha1::Sha1;
use std::fmt::Write as _;

/// What SCRAM may be made to work for at most, and at least.
const ITERATIONS: std::ops::RangeInclusive<u32> = 4096..=1_000_000;
const NONCE_BYTES: usize = 24;
/// Of SHA-1.
const HASH_BYTES: usize = 20;

/// Who logs in.
#[derive(Clone)]
pub(crate) struct OldUser {
    pub(crate) name: String,
    pub(crate) password: String,
    pub(crate) database: String,
}

fn hex_md5(text: &str) -> String {
    Md5::digest(text).iter().fold(String::new(), |mut hex, byte| {
        let _never_fails = write!(hex, "{byte:02x}");
        hex
    })
}

/// What servers of both kinds keep in the place of the password, or make what they keep from.
fn digest_of(user: &OldUser) -> String {
    hex_md5(&format!("{}:mongo:{}", user.name, user.password))
}

/// Logs in on a connection, in the way of the server's time.
pub(super) fn log_in(
    os: &Os,
    server: &mut Connection,
    user: &OldUser,
    knows_scram: bool,
) -> Result<()> {
    let done = if knows_scram {
        let mut bytes = [0; NONCE_BYTES];
        os.entropy.fill(&mut bytes);
        scram(server, user, &BASE64.encode(bytes))
    } else {
        challenge_response(server, user)
    };
    done.with_context(|| {
        let OldUser { name, database, .. } = user;
        format!(
            "the login of {name}@{database} failed; look at the user, the password and authSource"
        )
    })
}

fn asked(server: &mut Connection, user: &OldUser, command: &Document) -> Result<Document> {
    server.command(&user.database, command)?.map_err(|error| anyhow!(error))
}

fn challenge_response(server: &mut Connection, user: &OldUser) -> Result<()> {
    let reply = asked(server, user, &doc! { "getnonce": 1 })?;
    let nonce = reply.get_str("nonce").context("the server gave no nonce")?;
    let login = doc! {
        "authenticate": 1, "user": &user.name, "nonce": nonce, "key": key(user, nonce),
    };
    asked(server, user, &login).map(drop)
}

/// What stands for the password in one login by MONGODB-CR.
fn key(user: &OldUser, nonce: &str) -> String {
    hex_md5(&format!("{nonce}{}{}", user.name, digest_of(user)))
}

fn scram(server: &mut Connection, user: &OldUser, nonce: &str) -> Result<()> {
    let name = user.name.replace('=', "=3D").replace(',', "=2C");
    let first = format!("n={name},r={nonce}");
    let begin = doc! {
        "saslStart": 1, "mechanism": "SCRAM-SHA-1", "payload": payload(&format!("n,,{first}")),
    };
    let reply = asked(server, user, &begin)?;
    let (last, signature) = answer(&digest_of(user), &first, nonce, &text_of(&reply)?)?;
    let conversation = reply.get("conversationId").cloned().unwrap_or(Bson::Int32(1));
    let more = |text: &str| {
        doc! { "saslContinue": 1, "conversationId": conversation.clone(), "payload": payload(text) }
    };
    let mut reply = asked(server, user, &more(&last))?;
    ensure!(text_of(&reply)? == signature, "the server does not prove that it knows the user");
    // The end of it is a message without content.
    while !crate::migrate::facts::is_true(reply.get("done")) {
        reply = asked(server, user, &more(""))?;
    }
    Ok(())
}

fn payload(text: &str) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: text.as_bytes().to_vec() }
}

fn text_of(reply: &Document) -> Result<String> {
    let payload = reply.get_binary_generic("payload").context("a login without a challenge")?;
    Ok(String::from_utf8(payload.clone())?)
}

fn hmac(key: &[u8], text: &[u8]) -> Result<[u8; HASH_BYTES]> {
    let mut mac = Hmac::<Sha1>::new_from_slice(key).map_err(|_| anyhow!("a key of no length"))?;
    mac.update(text);
    Ok(mac.finalize().into_bytes().into())
}

/// The client's last message, and what the server has to answer (RFC 5802).
fn answer(password: &str, first: &str, nonce: &str, challenge: &str) -> Result<(String, String)> {
    let field = |name: &str| challenge.split(',').find_map(|part| part.strip_prefix(name));
    let both = field("r=").context("a challenge without a nonce")?;
    ensure!(both.starts_with(nonce) && both.len() > nonce.len(), "a challenge of another login");
    let salt = BASE64.decode(field("s=").context("a challenge without salt")?)?;
    let iterations: u32 = field("i=").context("a challenge without a count")?.parse()?;
    ensure!(ITERATIONS.contains(&iterations), "a challenge of {iterations} iterations");
    let mut salted = [0; HASH_BYTES];
    pbkdf2::pbkdf2_hmac::<Sha1>(password.as_bytes(), &salt, iterations, &mut salted);
    let client = hmac(&salted, b"Client Key")?;
    let without_proof = format!("c=biws,r={both}");
    let whole = format!("{first},{challenge},{without_proof}");
    let signature = hmac(&Sha1::digest(client), whole.as_bytes())?;
    let proof: Vec<u8> = client.iter().zip(signature).map(|(a, b)| a ^ b).collect();
    let of_server = hmac(&hmac(&salted, b"Server Key")?, whole.as_bytes())?;
    let last = format!("{without_proof},p={}", BASE64.encode(proof));
    Ok((last, format!("v={}", BASE64.encode(of_server))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_of_nonce_name_and_password() {
        let user = OldUser { name: "user".into(), password: "pencil".into(), database: "x".into() };
        assert_eq!(digest_of(&user), "1c33006ec1ffd90f9cadcbcc0e118200");
        let inner = "2375531c32080ae8user1c33006ec1ffd90f9cadcbcc0e118200";
        assert_eq!(key(&user, "2375531c32080ae8"), hex_md5(inner));
    }

    #[test]
    fn the_example_of_rfc_5802() {
        let nonce = "fyko+d2lbbFgONRv9qkxdawL";
        let challenge = "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096";
        let (last, signature) =
            answer("pencil", "n=user,r=fyko+d2lbbFgONRv9qkxdawL", nonce, challenge).unwrap();
        let both = "fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j";
        assert_eq!(last, format!("c=biws,r={both},p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="));
        assert_eq!(signature, "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=");
        for bad in
            ["", "r=other,s=QSXCR+Q6sek8bf92,i=4096", "r=fyko+d2lbbFgONRv9qkxdawL3,s=QSXC,i=1"]
        {
            assert!(answer("pencil", "", nonce, bad).is_err(), "{bad}");
        }
    }
}
