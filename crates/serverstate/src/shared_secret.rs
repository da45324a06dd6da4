//! The secret that a data directory keeps, and with it every member of a set: what signs the cluster's times and salts the
//! credentials of users that do not exist.
//!
//! | from | to | function |
//! |---|---|---|
//! | none | stored | [`ServerState::ensure_shared_secret`], before the first user is, by who takes writes |
//! | stored | known | [`ServerState::shared_secret`], by the first who asks |
//!
//! Always true: it is written once and never changed, so that what is known of it need not be looked up again; a follower
//! knows it when it knows the first user. A stored one that is not understood is none, and is not written over.
//!
//! The form: `docs/formats/shared-secret.md`.

use crate::host::{LogEvent, Severity};
use crate::known_secret::SharedSecret;
use crate::security::AuthMode;
use crate::state::ServerState;
use auth::{Secret, TimeFlaw, TimeSignature};
use bson::spec::BinarySubtype;
use bson::{Binary, Document, RawBsonRef, RawDocument, RawDocumentBuf, Timestamp, doc};
use catalog::{Namespace, TxnKind, is_retryable};
use dispatch::arguments::SeenTime;
use errors::{Code, Error, Result};
use std::sync::atomic::Ordering;

/// The `_id` of its document.
const ID: &str = "shared";
/// The version of the form.
const VERSION: i32 = 1;
/// Random bytes of it.
const BYTES: usize = 32;

/// What goes with a time that is told to clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signing {
    /// Nobody is asked for: times are not signed.
    Unsigned,
    /// This.
    Signed(TimeSignature),
    /// The time is not told: there is nothing to sign it with yet.
    Unable,
}

fn namespace() -> Result<Namespace> {
    Namespace::parse(Namespace::KEYS)
}

/// The stored document of a secret.
fn document_of(secret: &[u8]) -> Document {
    let bytes = Binary { subtype: BinarySubtype::Generic, bytes: secret.to_vec() };
    doc! { "_id": ID, "version": VERSION, "secret": bytes }
}

/// Reads a stored document; `None` where this version does not understand it.
fn parse(document: &RawDocument) -> Option<Secret> {
    let of = |name: &str| document.get(name).ok().flatten();
    match (of("_id")?, of("version")?, of("secret")?) {
        (RawBsonRef::String(ID), RawBsonRef::Int32(VERSION), RawBsonRef::Binary(secret))
            if secret.bytes.len() == BYTES =>
        {
            Some(Secret::new(secret.bytes.to_vec()))
        }
        _ => None,
    }
}

impl ServerState {
    /// The secret, where one is stored. Reads it where it is not known yet.
    pub(crate) fn shared_secret(&self) -> Result<Option<&SharedSecret>> {
        let held = &self.security.shared_secret;
        if let Some(known) = held.known.get() {
            return Ok(Some(known));
        }
        let Some(stored) = self.catalog.system_document(&namespace()?)? else { return Ok(None) };
        let Some(secret) = parse(&stored) else {
            if !held.is_told.swap(true, Ordering::Relaxed) {
                self.host.log(&LogEvent {
                    severity: Severity::Error,
                    component: "ACCESS",
                    id: 9_016_778,
                    context: "security",
                    message: "The stored secret of the set is not understood: times of the cluster cannot be signed",
                    attributes: doc! { "ns": Namespace::KEYS },
                });
            }
            return Ok(None);
        };
        Ok(Some(held.known.get_or_init(|| SharedSecret::of(&secret))))
    }

    /// Stores a secret where there is none. For who takes writes; waits until it is visible.
    pub fn ensure_shared_secret(&self) -> Result<()> {
        let namespace = namespace()?;
        if self.catalog.system_document(&namespace)?.is_some() {
            return Ok(());
        }
        let mut secret = [0; BYTES];
        self.os.entropy.fill(&mut secret);
        let document = RawDocumentBuf::try_from(&document_of(&secret))?;
        loop {
            limits::check_wait()?;
            self.catalog.ensure_system_collection(&namespace)?;
            let mut txn = self.catalog.begin(TxnKind::Statement);
            let stored = (|| {
                let Some(collection) = txn.open_for_write(&namespace)? else { return Ok(()) };
                let key = collection.id_key(RawBsonRef::String(ID))?;
                // Another one may have been faster, another member too: the first stays.
                match txn.get_for_update(&collection, &key)? {
                    Some(_) => Ok(()),
                    None => txn.insert_document(&collection, &document),
                }
            })();
            match stored.and_then(|()| txn.commit_visible()) {
                Err(error) if is_retryable(&error) => {}
                Err(error) => return Err(error),
                Ok(_) if self.catalog.system_document(&namespace)?.is_some() => return Ok(()),
                // The collection was dropped meanwhile.
                Ok(_) => {}
            }
        }
    }

    /// The same where users are asked for and stored: those of a directory that has none by now.
    pub(crate) fn ensure_secret_of_users(&self) {
        let ensure = || {
            if self.security.mode() == AuthMode::Off || self.user_tables()?.is_empty {
                return Ok(());
            }
            self.ensure_shared_secret()
        };
        // The next change of users tries again.
        if let Err(error) = ensure() {
            tracing::warn!(target: "ACCESS", error = error.message(), "No secret of the set could be stored");
        }
    }

    /// What made-up credentials are made of: the same on every member, and after a start.
    pub fn mock_credentials_secret(&self) -> Result<&[u8]> {
        let shared = self.shared_secret()?;
        Ok(shared.map_or(&self.security.secret, SharedSecret::mock_credentials).bytes())
    }

    /// What goes with a time in a reply.
    pub fn sign_time(&self, time: Timestamp) -> Signing {
        if self.security.mode() == AuthMode::Off {
            return Signing::Unsigned;
        }
        match self.shared_secret() {
            Ok(Some(shared)) => Signing::Signed(shared.sign(pack(time))),
            // While nothing is enforced yet an unsigned time is followed.
            _ if self.security.is_enforced() => Signing::Unable,
            _ => Signing::Unsigned,
        }
    }

    /// Refuses a time that a client brings without a signature of this set. Says whether it may be followed: where there
    /// is nothing to check it with it is as if it was not said.
    pub fn check_time(&self, seen: &SeenTime<'_>) -> Result<bool> {
        let Some(shared) = self.shared_secret()? else { return Ok(false) };
        let given = seen.signature.and_then(|signature| {
            let hash = signature.hash.try_into().ok()?;
            Some(TimeSignature { hash, key_id: signature.key_id })
        });
        let flaw = match (given, seen.signature) {
            (Some(given), _) => shared.check(pack(seen.time), &given),
            (None, None) => Err(TimeFlaw::UnknownKey),
            (None, Some(_)) => Err(TimeFlaw::Mismatch),
        };
        match flaw {
            Ok(()) => Ok(true),
            Err(TimeFlaw::Mismatch) => {
                Err(Error::new(Code::TIME_PROOF_MISMATCH, "Proof does not match the cluster time"))
            }
            Err(TimeFlaw::UnknownKey) => Err(Error::new(
                Code::KEY_NOT_FOUND,
                format!(
                    "No keys found for HMAC that is valid for time: {{ ts: Timestamp({}, {}) }} with id: {}",
                    seen.time.time,
                    seen.time.increment,
                    seen.signature.map_or(0, |signature| signature.key_id)
                ),
            )),
        }
    }
}

fn pack(time: Timestamp) -> u64 {
    u64::from(time.time) << 32 | u64::from(time.increment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(document: &Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(document).expect("a document")
    }

    #[test]
    fn what_is_stored_is_read_again_and_nothing_else_is() {
        let good = document_of(&[7; BYTES]);
        assert_eq!(parse(&raw(&good)).expect("fine").bytes(), [7; BYTES]);
        for (name, value) in [
            ("_id", bson::bson!("other")),
            ("version", bson::bson!(2)),
            ("secret", bson::bson!("text")),
            (
                "secret",
                bson::Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![7; 31] }),
            ),
        ] {
            let mut other = good.clone();
            other.insert(name, value);
            assert!(parse(&raw(&other)).is_none(), "{other}");
            other.remove(name);
            assert!(parse(&raw(&other)).is_none(), "{other}");
        }
    }

    #[test]
    fn golden_the_document_is_as_earlier_versions_wrote_it() {
        let stored = raw(&document_of(&[7; BYTES]));
        let hex =
            stored.as_bytes().iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/shared-secret-v1.hex");
        let golden = std::fs::read_to_string(path).expect("the golden file");
        assert_eq!(hex, golden.trim());
    }
}
