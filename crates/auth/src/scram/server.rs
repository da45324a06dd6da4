//! The server's side of a login.

use super::message::{ClientFirst, Refused, attribute, base64, bytes, is_nonce, text};
use super::{Credentials, Mechanism, auth_message, xor};
use subtle::ConstantTimeEq;

/// A login whose first message was answered.
#[derive(Debug)]
pub struct Server {
    mechanism: Mechanism,
    credentials: Credentials,
    first: ClientFirst,
    nonce: String,
    answer: String,
}

impl Server {
    /// Answers the first message. `nonce` is random, as bytes; what is sent of it is base64.
    pub fn start(
        mechanism: Mechanism,
        first: ClientFirst,
        credentials: Credentials,
        nonce: &[u8],
    ) -> (Self, Vec<u8>) {
        Self::start_with(mechanism, first, credentials, &base64(nonce))
    }

    pub(super) fn start_with(
        mechanism: Mechanism,
        first: ClientFirst,
        credentials: Credentials,
        nonce: &str,
    ) -> (Self, Vec<u8>) {
        assert!(is_nonce(nonce), "base64 can be printed and has no comma");
        let nonce = format!("{}{nonce}", first.nonce);
        let salt = base64(&credentials.salt);
        let server_first = format!("r={nonce},s={salt},i={}", credentials.iterations);
        let reply = server_first.clone().into_bytes();
        (Self { mechanism, credentials, first, nonce, answer: server_first }, reply)
    }

    /// Checks the proof; the reply proves to the client that this server has the credentials. The same work is done
    /// whether it holds or not.
    pub fn finish(self, payload: &[u8]) -> Result<Vec<u8>, Refused> {
        let message = text(payload)?;
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or(Refused)?;
        let proof = bytes(proof)?;
        if proof.len() != self.mechanism.hash_bytes() {
            return Err(Refused);
        }
        let mut attributes = without_proof.split(',');
        let header = bytes(attribute(attributes.next(), 'c')?)?;
        let nonce = attribute(attributes.next(), 'r')?;
        let signed = auth_message(&self.first.bare, &self.answer, without_proof);
        let signature = self.mechanism.hmac(self.credentials.stored_key.bytes(), signed.as_bytes());
        let client_key = self.mechanism.hash(&xor(&proof, &signature));
        let proven = self.credentials.stored_key.is(&client_key);
        let same = header.ct_eq(self.first.header.as_bytes())
            & nonce.as_bytes().ct_eq(self.nonce.as_bytes());
        let proof_of_ours =
            self.mechanism.hmac(self.credentials.server_key.bytes(), signed.as_bytes());
        if proven && bool::from(same) {
            Ok(format!("v={}", base64(&proof_of_ours)).into_bytes())
        } else {
            Err(Refused)
        }
    }

    /// Who wants to log in.
    pub fn user(&self) -> &str {
        &self.first.user
    }
}
