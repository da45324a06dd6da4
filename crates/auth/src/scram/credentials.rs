//! What is stored of a password: enough to check a proof, not enough to make one.
//!
//! Always true: the password itself and its digest are wiped when the function that got them returns.

use super::Mechanism;
use crate::document::{refuse, text};
use crate::secret::Secret;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bson::{Bson, Document, doc};
use errors::{Error, Result};
use md5::{Digest, Md5};
use std::fmt::Write;
use zeroize::Zeroizing;

/// The most iterations that a stored user may have: more would only slow its logins down.
const MAX_STORED_ITERATIONS: i32 = 10_000_000;

/// One mechanism's credentials of a user.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub(crate) iterations: u32,
    pub(crate) salt: Vec<u8>,
    pub(crate) stored_key: Secret,
    pub(crate) server_key: Secret,
}

/// MongoDB's digest of a name and a password, which is SCRAM-SHA-1's password.
pub fn digest(user: &str, password: &str) -> Zeroizing<String> {
    let mut hash = Md5::new();
    hash.update(user.as_bytes());
    hash.update(b":mongo:");
    hash.update(password.as_bytes());
    let mut hex = Zeroizing::new(String::with_capacity(32));
    for byte in hash.finalize() {
        write!(hex, "{byte:02x}").expect("a text takes what is written");
    }
    hex
}

/// A password as the mechanism takes it: digested for SHA-1, prepared by `SASLprep` for SHA-256.
pub fn prepare(mechanism: Mechanism, user: &str, password: &str) -> Result<Zeroizing<String>> {
    match mechanism {
        Mechanism::Sha1 => Ok(digest(user, password)),
        Mechanism::Sha256 => stringprep::saslprep(password)
            .map(|prepared| Zeroizing::new(prepared.into_owned()))
            .map_err(|_| {
                Error::bad_value("the password has characters that SASLprep does not allow")
            }),
    }
}

impl Credentials {
    /// Those of a prepared password. Takes milliseconds: that is what the iterations are for.
    pub fn derive(mechanism: Mechanism, prepared: &str, salt: Vec<u8>, iterations: u32) -> Self {
        let salted = Zeroizing::new(mechanism.salted(prepared.as_bytes(), &salt, iterations));
        Self::of_salted(mechanism, &salted, salt, iterations)
    }

    fn of_salted(mechanism: Mechanism, salted: &[u8], salt: Vec<u8>, iterations: u32) -> Self {
        let client_key = Zeroizing::new(mechanism.hmac(salted, b"Client Key"));
        Self {
            iterations,
            salt,
            stored_key: Secret::new(mechanism.hash(&client_key)),
            server_key: Secret::new(mechanism.hmac(salted, b"Server Key")),
        }
    }

    /// Credentials for a user that does not exist: the same salt each time, so that an attacker
    /// cannot tell the user from one that exists, and keys that match no password. `secret` is the
    /// server's own.
    pub fn mock_for_unknown_user(
        mechanism: Mechanism,
        secret: &[u8],
        user: &str,
        db: &str,
        iterations: u32,
    ) -> Self {
        let of = |what: &str| {
            let text = format!("{what}\0{}\0{db}\0{user}", mechanism.name());
            mechanism.hmac(secret, text.as_bytes())
        };
        let mut salt = of("salt");
        salt.truncate(mechanism.salt_bytes());
        Self::of_salted(mechanism, &of("password"), salt, iterations)
    }

    /// Whether they are those of a prepared password. Takes milliseconds, as long for any.
    pub fn matches_password(&self, mechanism: Mechanism, prepared: &str) -> bool {
        let derived = Self::derive(mechanism, prepared, self.salt.clone(), self.iterations);
        self.stored_key.constant_time_eq(derived.stored_key.bytes())
    }

    /// What the password was hashed with.
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// How often the hash was taken.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Reads what a user's document holds for a mechanism.
    pub fn parse(mechanism: Mechanism, document: &Document) -> Result<Self> {
        let bytes = |name: &str, length: usize| {
            let bytes = STANDARD.decode(text(document, name)?);
            let bytes =
                bytes.map_err(|_| refuse(&format!("'{name}' of credentials is not base64")))?;
            if bytes.len() != length {
                return Err(refuse(&format!("'{name}' of credentials has a wrong length")));
            }
            Ok(bytes)
        };
        let iterations = match document.get("iterationCount") {
            Some(Bson::Int32(count)) => Some(*count),
            Some(Bson::Int64(count)) => i32::try_from(*count).ok(),
            Some(Bson::Double(count)) if count.fract() == 0.0 => Some(*count as i32),
            _ => None,
        };
        let iterations = iterations.filter(|count| (1..=MAX_STORED_ITERATIONS).contains(count));
        Ok(Self {
            iterations: iterations
                .ok_or_else(|| refuse("'iterationCount' of credentials is no count"))?
                .unsigned_abs(),
            salt: bytes("salt", mechanism.salt_bytes())?,
            stored_key: Secret::new(bytes("storedKey", mechanism.hash_bytes())?),
            server_key: Secret::new(bytes("serverKey", mechanism.hash_bytes())?),
        })
    }

    /// As a user's document holds it.
    pub fn to_document(&self) -> Document {
        doc! {
            "iterationCount": self.iterations.cast_signed(),
            "salt": STANDARD.encode(&self.salt),
            "storedKey": STANDARD.encode(self.stored_key.bytes()),
            "serverKey": STANDARD.encode(self.server_key.bytes()),
        }
    }
}
