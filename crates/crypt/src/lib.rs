//! Encryption at rest: the master key, the data keys that it wraps, and encrypting with keys derived
//! from those.
//!
//! The operator keeps a [`MasterKey`] in a file of its own ([`read_master_key`]). It wraps the random
//! data keys of one data directory, which stand in `fern.keys` ([`KeysFile`]). Nothing is encrypted with
//! a data key itself: a [`FreshKey`] is derived for each thing that is written.
//!
//! A member of a set that copies another one's files gets its data keys, and wraps them with its own master key
//! ([`KeyRequest`]).
//!
//! What is always true:
//! 1. A key is wiped from memory when its owner is dropped, and no message or `Debug` shows one.
//! 2. What does not open under its key, nonce and additional data is an error, never other bytes.
//! 3. A data key that [`KeysFile`] has given out is on disk in both slots of `fern.keys`.
//!
//! On disk: `docs/formats/keys.md`. The decision: ADR 49.
#![forbid(unsafe_code)]

mod cipher;
mod error;
mod fingerprint;
mod handover;
mod key_file;
mod keys_file;
mod master;
mod nonces;
mod ring;
mod slot;

pub use cipher::{Cipher, Nonce, TAG_BYTES};
pub use error::{Error, Result};
pub use fingerprint::Fingerprint;
pub use handover::{KeyRequest, PUBLIC_KEY_BYTES};
pub use key_file::{Permissions, read_master_key};
pub use keys_file::{FILE_BYTES, FILE_NAME, KeysFile};
pub use master::MasterKey;
pub use nonces::NonceLog;
pub use ring::{FreshKey, KeyNumber, KeyRing, MOST_KEYS, Purpose, SALT_BYTES};
