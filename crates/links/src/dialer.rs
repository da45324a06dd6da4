//! What a server opens connections to the members of its set with: TLS, if they speak it; the key that they share, if
//! there is one, and the login by it (`docs/formats/link-hello.md`).
//!
//! ```text
//! {saslStart: 1, mechanism: "SCRAM-SHA-256", payload, options: {skipEmptyExchange: true}, $db: "local"}
//! {saslContinue: 1, conversationId: int, payload, $db: "local"}
//!
//! {authenticate: 1, mechanism: "MONGODB-X509", $db: "$external"}      by a certificate
//! ```
//!
//! Always true: with a key that is required, nothing is said to a server that has not proven that
//! it has the key too; and nothing is said plainly where members are to speak TLS.

use crate::address::HostAndPort;
use crate::address_map::AddressMap;
use crate::dial::{DialError, DialLimits, WaitContext, connect, converse, shake_hands};
use crate::hello::{MAX_ANSWER, body_of};
use crate::stream::Stream;
use auth::scram::Client;
use auth::{ClusterKey, UserName};
use bson::spec::BinarySubtype;
use bson::{Binary, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use os::Os;
use os::sync::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tls::{Certificates, Outgoing};
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
    /// Where members are dialled instead; for tests.
    instead: Arc<AddressMap>,
    tls: Option<Arc<Certificates>>,
    login: Option<Arc<Login>>,
}

/// How this member logs in.
struct Login {
    credential: Credential,
    /// A server that does not take it is not spoken to.
    is_required: bool,
}

/// What a member proves who it is by.
enum Credential {
    Key(Key),
    /// The certificate that TLS has shown.
    Certificate,
}

struct Key {
    key: Arc<ClusterKey>,
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
enum LoginError {
    /// The other server rejects this key, does not prove that it has it, or answers what is no
    /// SCRAM message.
    Rejected,
    /// There was no conversation.
    Connection(DialError),
}

impl From<DialError> for LoginError {
    fn from(error: DialError) -> Self {
        Self::Connection(error)
    }
}

impl Dialer {
    /// With the key that the members share; `is_required` says whether a server that rejects it is
    /// not spoken to.
    pub fn new(os: Os, key: Option<Arc<ClusterKey>>, is_required: bool) -> Self {
        let credential = |key| Credential::Key(Key { key, kept: Mutex::default() });
        let login = key.map(|key| Arc::new(Login { credential: credential(key), is_required }));
        Self { os, instead: Arc::default(), tls: None, login }
    }

    /// With the certificate that is shown by TLS; `is_required` says whether a server that rejects
    /// it is not spoken to.
    pub fn by_certificate(os: Os, is_required: bool) -> Self {
        let login = Login { credential: Credential::Certificate, is_required };
        Self { os, instead: Arc::default(), tls: None, login: Some(Arc::new(login)) }
    }

    /// Speaks TLS, with what these are at the time.
    #[must_use]
    pub fn with_tls(mut self, certificates: Option<Arc<Certificates>>) -> Self {
        self.tls = certificates;
        self
    }

    /// Dials other addresses than the configuration's, where this says so.
    #[must_use]
    pub fn with_addresses(mut self, instead: AddressMap) -> Self {
        self.instead = Arc::new(instead);
        self
    }

    /// Connects to the first address that answers, and says who this member is.
    pub(crate) fn open(
        &self,
        to: &HostAndPort,
        limits: DialLimits,
        waiting: WaitContext<'_>,
    ) -> Result<Stream, DialError> {
        let socket = connect(self.instead.dialled(to), limits, waiting)?;
        let begin = |tls: &Arc<Certificates>| Outgoing::new(&tls.now(), to.host());
        let tls = self.tls.as_ref().map(begin).transpose().map_err(DialError::Failed)?;
        let mut stream = Stream::new(socket, tls);
        shake_hands(&mut stream, limits.hello, waiting)?;
        self.log_in(&mut stream, limits.hello, waiting)?;
        Ok(stream)
    }

    /// Says who this member is, on a connection on which nothing was said yet.
    fn log_in(
        &self,
        stream: &mut Stream,
        limit: Duration,
        waiting: WaitContext<'_>,
    ) -> Result<(), DialError> {
        let Some(login) = &self.login else { return Ok(()) };
        let why = match &login.credential {
            Credential::Certificate => match show_certificate(stream, limit, waiting)? {
                Ok(()) => return Ok(()),
                Err(refusal) => format!("it does not take this member's certificate: {refusal}"),
            },
            Credential::Key(key) => {
                for number in 0..key.key.passwords().count() {
                    match self.try_key(key, number, stream, limit, waiting) {
                        Ok(()) => return Ok(()),
                        Err(LoginError::Rejected) => {}
                        Err(LoginError::Connection(error)) => return Err(error),
                    }
                }
                "authentication with this member's key file failed: are the key files equal?"
                    .to_owned()
            }
        };
        if login.is_required { Err(DialError::Failed(why)) } else { Ok(()) }
    }

    fn try_key(
        &self,
        key: &Key,
        number: usize,
        stream: &mut Stream,
        limit: Duration,
        waiting: WaitContext<'_>,
    ) -> Result<(), LoginError> {
        let mut nonce = [0; NONCE_BYTES];
        self.os.entropy.fill(&mut nonce);
        let member = UserName::member();
        let (client, first) = Client::start(ClusterKey::MECHANISM, &member.user, &nonce);
        let mut say = |command: &RawDocument| {
            let mut message = Vec::new();
            wire::encode_msg(&mut message, 1, 0, MsgFlags::NONE, command);
            let answer = converse(stream, &message, limit, MAX_ANSWER, waiting)?;
            // What it refuses is the login.
            body_of(&answer).map(RawDocument::to_owned).map_err(|_| LoginError::Rejected)
        };
        let answer = say(&rawdoc! {
            "saslStart": 1,
            "mechanism": ClusterKey::MECHANISM.name(),
            "payload": bytes_of(&first),
            "options": { "skipEmptyExchange": true },
            "$db": member.db.as_str(),
        })?;
        let credential = |salt: &[u8], iterations| key.salted(number, salt, iterations);
        let proof = client.proof_by(payload_of(&answer)?, credential);
        let (proof, expected) = proof.map_err(|_| LoginError::Rejected)?;
        let answer = say(&rawdoc! {
            "saslContinue": 1,
            "conversationId": answer.get_i32("conversationId").map_err(|_| LoginError::Rejected)?,
            "payload": bytes_of(&proof),
            "$db": member.db.as_str(),
        })?;
        let is_done = answer.get_bool("done").unwrap_or(false);
        if is_done && expected.matches(payload_of(&answer)?) {
            Ok(())
        } else {
            Err(LoginError::Rejected)
        }
    }
}

/// Logs in by the certificate that the connection's handshake has shown. What is refused is told as text.
fn show_certificate(
    stream: &mut Stream,
    limit: Duration,
    waiting: WaitContext<'_>,
) -> Result<Result<(), String>, DialError> {
    let command = rawdoc! { "authenticate": 1, "mechanism": "MONGODB-X509", "$db": "$external" };
    let mut message = Vec::new();
    wire::encode_msg(&mut message, 1, 0, MsgFlags::NONE, &command);
    let answer = converse(stream, &message, limit, MAX_ANSWER, waiting)?;
    Ok(body_of(&answer).map(drop))
}

fn bytes_of(bytes: &[u8]) -> RawBson {
    RawBson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() })
}

fn payload_of(answer: &RawDocumentBuf) -> Result<&[u8], LoginError> {
    match answer.get("payload") {
        Ok(Some(RawBsonRef::Binary(payload))) => Ok(payload.bytes),
        _ => Err(LoginError::Rejected),
    }
}

impl Key {
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
