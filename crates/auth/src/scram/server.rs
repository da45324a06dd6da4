//! The server's side of a login.

use super::message::{ClientFirst, Refused, attribute, base64, bytes, is_nonce, text};
use super::{Credentials, Mechanism, auth_message, xor};
use subtle::ConstantTimeEq;

/// A login whose first message was answered.
#[derive(Debug)]
pub struct Server {
    mechanism: Mechanism,
    /// The proof must fit one of them; all have the salt that was told.
    credentials: Vec<Credentials>,
    first: ClientFirst,
    nonce: String,
    answer: String,
}

impl Server {
    /// Answers the first message. `nonce` is random, as bytes; what is sent of it is base64. A user has one set of
    /// credentials, members as many as keys.
    pub fn start(
        mechanism: Mechanism,
        first: ClientFirst,
        credentials: Vec<Credentials>,
        nonce: &[u8],
    ) -> (Self, Vec<u8>) {
        Self::start_with(mechanism, first, credentials, &base64(nonce))
    }

    pub(super) fn start_with(
        mechanism: Mechanism,
        first: ClientFirst,
        credentials: Vec<Credentials>,
        nonce: &str,
    ) -> (Self, Vec<u8>) {
        assert!(is_nonce(nonce), "base64 can be printed and has no comma");
        let told = credentials.first().expect("who begins a login has credentials to check it by");
        assert!(
            credentials
                .iter()
                .all(|one| (&one.salt, one.iterations) == (&told.salt, told.iterations)),
            "one salt is told"
        );
        let nonce = format!("{}{nonce}", first.nonce);
        let server_first = format!("r={nonce},s={},i={}", base64(&told.salt), told.iterations);
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
        let same = header.ct_eq(self.first.header.as_bytes())
            & nonce.as_bytes().ct_eq(self.nonce.as_bytes());
        let mut proof_of_ours = None;
        for credentials in &self.credentials {
            let signature = self.mechanism.hmac(credentials.stored_key.bytes(), signed.as_bytes());
            let client_key = self.mechanism.hash(&xor(&proof, &signature));
            let proven = credentials.stored_key.constant_time_eq(&client_key);
            let ours = self.mechanism.hmac(credentials.server_key.bytes(), signed.as_bytes());
            if proven && bool::from(same) {
                proof_of_ours = Some(ours);
            }
        }
        let proof_of_ours = proof_of_ours.ok_or(Refused)?;
        Ok(format!("v={}", base64(&proof_of_ours)).into_bytes())
    }

    /// Who wants to log in.
    pub fn user(&self) -> &str {
        &self.first.user
    }
}
