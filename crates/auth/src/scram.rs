//! SCRAM (RFC 5802, RFC 7677) as MongoDB speaks it: the server's two steps, the client's for tests and members,
//! credentials as they are stored.
//!
//! | from | message | to |
//! |---|---|---|
//! | nothing | [`ClientFirst::parse`], then [`Server::start`] | server first sent |
//! | server first sent | [`Server::finish`] | known, or refused |
//!
//! Always true: a refusal does not tell which part was wrong; a user that does not exist takes the same steps with
//! mock credentials ([`Credentials::mock_for_unknown_user`]).

mod client;
mod credentials;
pub mod hashing;
mod message;
mod server;

pub use client::Client;
pub use credentials::{Credentials, digest, prepare};
pub use message::{ClientFirst, Refused, decode};
pub use server::Server;

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// Which hash SCRAM works with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mechanism {
    /// `SCRAM-SHA-1`
    Sha1,
    /// `SCRAM-SHA-256`
    Sha256,
}

impl Mechanism {
    /// All, in the order in which they are told.
    pub const ALL: [Self; 2] = [Self::Sha1, Self::Sha256];

    /// The name in `saslStart`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "SCRAM-SHA-1",
            Self::Sha256 => "SCRAM-SHA-256",
        }
    }

    /// The mechanism of a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }

    /// How many bytes of salt MongoDB gives: four less than the hash, so that salt and counter fill one block.
    pub fn salt_bytes(self) -> usize {
        self.hash_bytes() - 4
    }

    /// How many bytes its hash has.
    pub fn hash_bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    fn hash(self, bytes: &[u8]) -> Vec<u8> {
        hashing::count(1);
        match self {
            Self::Sha1 => Sha1::digest(bytes).to_vec(),
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
        }
    }

    fn hmac(self, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        const ANY_LENGTH: &str = "HMAC takes keys of any length";
        hashing::count(2);
        match self {
            Self::Sha1 => {
                let mut mac = Hmac::<Sha1>::new_from_slice(key).expect(ANY_LENGTH);
                mac.update(bytes);
                mac.finalize().into_bytes().to_vec()
            }
            Self::Sha256 => {
                let mut mac = Hmac::<Sha256>::new_from_slice(key).expect(ANY_LENGTH);
                mac.update(bytes);
                mac.finalize().into_bytes().to_vec()
            }
        }
    }

    /// The hash of a prepared password, taken so often: milliseconds.
    pub fn salted(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        hashing::count(2 * u64::from(iterations));
        let mut out = vec![0; self.hash_bytes()];
        match self {
            Self::Sha1 => pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, iterations, &mut out),
            Self::Sha256 => pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut out),
        }
        out
    }
}

/// `a ^ b`, of equal length.
fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
    assert_eq!(a.len(), b.len(), "a proof is as long as the hash");
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

/// What both sides sign.
fn auth_message(client_first_bare: &str, server_first: &str, without_proof: &str) -> String {
    format!("{client_first_bare},{server_first},{without_proof}")
}

#[cfg(test)]
mod tests;
