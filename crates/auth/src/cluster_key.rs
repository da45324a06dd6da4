//! The secret that the members of a set share, as they log in to each other with it: as `__system@local`, by
//! SCRAM-SHA-256.
//!
//! Always true: a member speaks with the first key, then with the second; it listens to either, so that the key can be
//! changed one member after another.

use crate::scram::{Credentials, Mechanism};
use crate::secret::{Secret, keyed_digest};
use crate::user::UserName;
use zeroize::Zeroizing;

/// PBKDF2 iterations: a key is long and random, so more would only slow logins down.
const ITERATIONS: u32 = 15_000;
/// The most iterations that a peer may demand: it has not authenticated yet, and could burn this
/// member's CPU.
const MAX_PEER_ITERATIONS: u32 = 10 * ITERATIONS;

/// The keys of a key file.
#[derive(Debug)]
pub struct ClusterKey {
    keys: Vec<Secret>,
    credentials: Vec<Credentials>,
}

impl ClusterKey {
    /// By which mechanism members log in.
    pub const MECHANISM: Mechanism = Mechanism::Sha256;

    /// The salted password of a key for another server's salt. Takes milliseconds of CPU; `None`
    /// where that server asks for more iterations than `MAX_PEER_ITERATIONS`.
    pub fn salted(password: &str, salt: &[u8], iterations: u32) -> Option<Zeroizing<Vec<u8>>> {
        let is_usual = iterations <= MAX_PEER_ITERATIONS;
        is_usual
            .then(|| Zeroizing::new(Self::MECHANISM.salted(password.as_bytes(), salt, iterations)))
    }

    /// The keys of a file, of which there is one at least. `salt` is random, as long as the mechanism's salts are.
    /// Takes milliseconds a key.
    pub fn new(keys: Vec<Secret>, salt: &[u8]) -> Self {
        assert!(!keys.is_empty(), "a key file holds a key");
        assert_eq!(salt.len(), Self::MECHANISM.salt_bytes(), "a salt is as long as others are");
        let of = |key: &Secret| {
            Credentials::derive(Self::MECHANISM, text(key), salt.to_vec(), ITERATIONS)
        };
        let credentials = keys.iter().map(of).collect();
        Self { keys, credentials }
    }

    /// What a member's proof is checked by: one of them it must fit.
    pub fn credentials(&self) -> &[Credentials] {
        &self.credentials
    }

    /// A secret that every member with the same first key has, for one purpose.
    pub fn secret_for(&self, purpose: &[u8]) -> Secret {
        Secret::new(keyed_digest(&self.keys[0], &[purpose]).to_vec())
    }

    /// The passwords to log in to another member with, in the order in which they are tried.
    pub fn passwords(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(text)
    }
}

fn text(key: &Secret) -> &str {
    std::str::from_utf8(key.bytes()).expect("a key has characters of base64 alone")
}

impl UserName {
    /// Who members log in as.
    pub fn member() -> Self {
        Self::new("__system", "local")
    }

    /// Whether this is who members log in as: no stored user is.
    pub fn is_member(&self) -> bool {
        self.user == "__system" && self.db == "local"
    }
}

#[cfg(test)]
mod tests {
    use super::ClusterKey;
    use crate::key_file;
    use crate::scram::{Client, ClientFirst, Server};

    fn key(text: &str, salt: u8) -> ClusterKey {
        ClusterKey::new(key_file::parse(text).expect("fine"), &[salt; 28])
    }

    /// Whether one of the speaker's keys, in their order, is taken; the number of the one that is.
    fn taken(speaker: &ClusterKey, listener: &ClusterKey) -> Option<usize> {
        speaker.passwords().position(|password| {
            let (client, first) = Client::start(ClusterKey::MECHANISM, "__system", b"one nonce");
            let first = ClientFirst::parse(&first).expect("fine");
            let credentials = listener.credentials().to_vec();
            let (server, reply) =
                Server::start(ClusterKey::MECHANISM, first, credentials, b"another nonce");
            let (proof, expected) = client.proof(&reply, password).expect("fine");
            server.finish(&proof).is_ok_and(|last| expected.matches(&last))
        })
    }

    #[test]
    fn another_server_cannot_keep_a_member_busy() {
        assert!(ClusterKey::salted("a key", &[7; 28], super::ITERATIONS).is_some());
        assert!(ClusterKey::salted("a key", &[7; 28], super::MAX_PEER_ITERATIONS + 1).is_none());
    }

    #[test]
    fn keys_change_one_member_after_another() {
        let (old, both, new) = (key("oldkey", 1), key("- oldkey\n- newkey\n", 2), key("newkey", 3));
        for (speaker, listener, by) in [
            (&old, &old, Some(0)),
            (&old, &both, Some(0)),
            (&both, &old, Some(0)),
            (&both, &both, Some(0)),
            (&new, &both, Some(0)),
            (&both, &new, Some(1)),
            (&old, &new, None),
            (&new, &old, None),
        ] {
            assert_eq!(taken(speaker, listener), by, "{speaker:?} to {listener:?}");
        }
    }
}
