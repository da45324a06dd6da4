//! What a server opens connections to the members of its set with: the key that they share, if there is one, and the
//! login by it (`docs/formats/link-hello.md`).
//!
//! ```text
//! {saslStart: 1, mechanism: "SCRAM-SHA-256", payload, options: {skipEmptyExchange: true}, $db: "local"}
//! {saslContinue: 1, conversationId: int, payload, $db: "local"}
//! ```
//!
//! Always true: with a key that must hold, nothing is said to a server that has not proven that it has the key too.

use crate::dial::{DialError, Waiting, converse};
use crate::hello::{MAX_ANSWER, body_of};
use auth::scram::Client;
use auth::{ClusterKey, UserName};
use bson::spec::BinarySubtype;
use bson::{Binary, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use os::Os;
use os::sync::Mutex;
use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;
use wire::MsgFlags;
use zeroize::Zeroizing;

/// Random bytes in a nonce.
const NONCE_BYTES: usize = 24;
/// Of so many logins the costly part is kept: each other member has a salt of its own for each of its starts.
const MOST_KEPT: usize = 64;

/// What connections to other members are opened with.
#[derive(Clone)]
pub struct Dialer {
    pub(crate) os: Os,
    login: Option<Arc<Login>>,
}

/// How this member logs in.
struct Login {
    key: Arc<ClusterKey>,
    /// A server that does not take the key is not spoken to.
    must_hold: bool,
    /// What the hash of a key and a salt comes to, newest last.
    kept: Mutex<VecDeque<Kept>>,
}

struct Kept {
    key: usize,
    salt: Vec<u8>,
    iterations: u32,
    salted: Arc<Zeroizing<Vec<u8>>>,
}

/// Why a login came to nothing.
enum NotIn {
    /// The other server does not take this key, or does not prove that it has it.
    Key,
    /// There was no conversation.
    Failed(DialError),
}

impl From<DialError> for NotIn {
    fn from(error: DialError) -> Self {
        Self::Failed(error)
    }
}

impl Dialer {
    /// With the key that the members share; `must_hold` says whether a server that does not take it is left alone.
    pub fn new(os: Os, key: Option<Arc<ClusterKey>>, must_hold: bool) -> Self {
        let login = key.map(|key| Arc::new(Login { key, must_hold, kept: Mutex::default() }));
        Self { os, login }
    }

    /// Says who this member is, on a connection on which nothing was said yet.
    pub(crate) fn log_in(
        &self,
        socket: &TcpStream,
        limit: Duration,
        waiting: Waiting<'_>,
    ) -> Result<(), DialError> {
        let Some(login) = &self.login else { return Ok(()) };
        for number in 0..login.key.passwords().count() {
            match self.try_key(login, number, socket, limit, waiting) {
                Ok(()) => return Ok(()),
                Err(NotIn::Key) => {}
                Err(NotIn::Failed(error)) => return Err(error),
            }
        }
        if login.must_hold {
            let why = "it does not take this member's key: are the key files of both the same?";
            return Err(DialError::Failed(why.to_owned()));
        }
        Ok(())
    }

    fn try_key(
        &self,
        login: &Login,
        number: usize,
        socket: &TcpStream,
        limit: Duration,
        waiting: Waiting<'_>,
    ) -> Result<(), NotIn> {
        let mut nonce = [0; NONCE_BYTES];
        self.os.entropy.fill(&mut nonce);
        let member = UserName::member();
        let (client, first) = Client::start(ClusterKey::MECHANISM, &member.user, &nonce);
        let say = |command: &RawDocument| {
            let mut message = Vec::new();
            wire::encode_msg(&mut message, 1, 0, MsgFlags::NONE, command);
            let answer = converse(socket, &message, limit, MAX_ANSWER, waiting)?;
            // What it refuses is the login.
            body_of(&answer).map(RawDocument::to_owned).map_err(|_| NotIn::Key)
        };
        let answer = say(&rawdoc! {
            "saslStart": 1,
            "mechanism": ClusterKey::MECHANISM.name(),
            "payload": bytes_of(&first),
            "options": { "skipEmptyExchange": true },
            "$db": member.db.as_str(),
        })?;
        let by = |salt: &[u8], iterations| login.salted(number, salt, iterations);
        let proof = client.proof_by(payload_of(&answer)?, by);
        let (proof, expected) = proof.map_err(|_| NotIn::Key)?;
        let answer = say(&rawdoc! {
            "saslContinue": 1,
            "conversationId": answer.get_i32("conversationId").map_err(|_| NotIn::Key)?,
            "payload": bytes_of(&proof),
            "$db": member.db.as_str(),
        })?;
        let is_done = answer.get_bool("done").unwrap_or(false);
        if is_done && expected.is(payload_of(&answer)?) { Ok(()) } else { Err(NotIn::Key) }
    }
}

fn bytes_of(bytes: &[u8]) -> RawBson {
    RawBson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() })
}

fn payload_of(answer: &RawDocumentBuf) -> Result<&[u8], NotIn> {
    match answer.get("payload") {
        Ok(Some(RawBsonRef::Binary(payload))) => Ok(payload.bytes),
        _ => Err(NotIn::Key),
    }
}

impl Login {
    /// What a key and a salt come to: milliseconds the first time; nothing where the other server asks for too much.
    fn salted(
        &self,
        number: usize,
        salt: &[u8],
        iterations: u32,
    ) -> Option<Arc<Zeroizing<Vec<u8>>>> {
        let mut kept = self.kept.lock();
        let known = |one: &&Kept| {
            (one.key, one.salt.as_slice(), one.iterations) == (number, salt, iterations)
        };
        if let Some(known) = kept.iter().find(known) {
            return Some(Arc::clone(&known.salted));
        }
        let password = self.key.passwords().nth(number).unwrap_or_default();
        let salted = Arc::new(ClusterKey::salted(password, salt, iterations)?);
        if kept.len() == MOST_KEPT {
            kept.pop_front();
        }
        let (salt, one) = (salt.to_vec(), Arc::clone(&salted));
        kept.push_back(Kept { key: number, salt, iterations, salted: one });
        Some(salted)
    }
}
