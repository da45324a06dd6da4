//! The client's side of a login: for tests, and for members that speak to each other.

use super::message::{Refused, attribute, base64, bytes, escape, text};
use super::{Mechanism, auth_message, xor};
use std::sync::Arc;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The fewest iterations that a client lets a server ask for.
const FEWEST_ITERATIONS: u32 = 4096;
/// The most: more would keep the client busy for a server that may be anybody.
const MOST_ITERATIONS: u32 = 10_000_000;

/// A login whose first message was sent.
#[derive(Debug)]
pub struct Client {
    mechanism: Mechanism,
    bare: String,
    nonce: String,
}

impl Client {
    /// The first message. `nonce` is random.
    pub fn start(mechanism: Mechanism, user: &str, nonce: &[u8]) -> (Self, Vec<u8>) {
        Self::start_with(mechanism, user, &base64(nonce))
    }

    pub(super) fn start_with(mechanism: Mechanism, user: &str, nonce: &str) -> (Self, Vec<u8>) {
        let bare = format!("n={},r={nonce}", escape(user));
        let message = format!("n,,{bare}").into_bytes();
        (Self { mechanism, bare, nonce: nonce.to_owned() }, message)
    }

    /// The second message, and what the server's answer to it must be. The password is a prepared one.
    pub fn proof(
        self,
        server_first: &[u8],
        prepared: &str,
    ) -> Result<(Vec<u8>, Expected), Refused> {
        let mechanism = self.mechanism;
        self.proof_by(server_first, |salt, iterations| {
            Some(Arc::new(Zeroizing::new(mechanism.salted(prepared.as_bytes(), salt, iterations))))
        })
    }

    /// As [`Client::proof`], for who keeps what the hash is taken for so often: `salted` is given the salt and how often
    /// it is taken, and gives what [`Mechanism::salted`] did, or nothing where that is too much.
    pub fn proof_by(
        self,
        server_first: &[u8],
        salted: impl FnOnce(&[u8], u32) -> Option<Arc<Zeroizing<Vec<u8>>>>,
    ) -> Result<(Vec<u8>, Expected), Refused> {
        let server_first = text(server_first)?;
        let mut attributes = server_first.split(',');
        let nonce = attribute(attributes.next(), 'r')?;
        let salt = bytes(attribute(attributes.next(), 's')?)?;
        let iterations: u32 = attribute(attributes.next(), 'i')?.parse().map_err(|_| Refused)?;
        let longer = nonce.len() > self.nonce.len() && nonce.starts_with(&self.nonce);
        if !longer || !(FEWEST_ITERATIONS..=MOST_ITERATIONS).contains(&iterations) {
            return Err(Refused);
        }
        let mechanism = self.mechanism;
        let salted = salted(&salt, iterations).ok_or(Refused)?;
        let client_key = Zeroizing::new(mechanism.hmac(&salted, b"Client Key"));
        let server_key = mechanism.hmac(&salted, b"Server Key");
        let without_proof = format!("c={},r={nonce}", base64(b"n,,"));
        let signed = auth_message(&self.bare, server_first, &without_proof);
        let signature = mechanism.hmac(&mechanism.hash(&client_key), signed.as_bytes());
        let proof = base64(&xor(&client_key, &signature));
        let expected = base64(&mechanism.hmac(&server_key, signed.as_bytes()));
        Ok((format!("{without_proof},p={proof}").into_bytes(), Expected(format!("v={expected}"))))
    }
}

/// What a server answers that has the user's credentials.
#[derive(Debug)]
pub struct Expected(String);

impl Expected {
    /// Whether it is this.
    pub fn matches(&self, server_final: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(server_final).into()
    }
}
