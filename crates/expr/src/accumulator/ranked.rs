//! The first or last `n` values by a key.
//!
//! Always true: at most `n` entries are held, ordered by key bytes, then by arrival.

use bson::Binary;
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef};
use bson::spec::BinarySubtype;
use errors::{Code, Error, Result};
use std::collections::BTreeMap;

/// Bounded and ordered.
#[derive(Debug)]
pub(crate) struct Ranked {
    n: usize,
    /// Keep the greatest keys instead of the least.
    last: bool,
    entries: BTreeMap<(Vec<u8>, u64), RawBson>,
    arrivals: u64,
    bytes: usize,
}

impl Ranked {
    pub(super) fn new(n: usize, last: bool) -> Self {
        Self { n, last, entries: BTreeMap::new(), arrivals: 0, bytes: 0 }
    }

    /// Whether a key would be kept; asked before the value is copied.
    fn wants(&self, key: &[u8]) -> bool {
        if self.entries.len() < self.n {
            return true;
        }
        // A newcomer with an equal key comes after the ones there.
        if self.last {
            self.entries.first_key_value().is_none_or(|((worst, _), _)| key >= worst.as_slice())
        } else {
            self.entries.last_key_value().is_none_or(|((worst, _), _)| key < worst.as_slice())
        }
    }

    pub(super) fn add(&mut self, key: Vec<u8>, value: RawBsonRef<'_>) {
        if !self.wants(&key) {
            return;
        }
        let value: RawBson = value.into();
        self.bytes += weight(&key, &value);
        self.entries.insert((key, self.arrivals), value);
        self.arrivals += 1;
        if self.entries.len() > self.n {
            let dropped =
                if self.last { self.entries.pop_first() } else { self.entries.pop_last() };
            if let Some(((key, _), value)) = dropped {
                self.bytes = self.bytes.saturating_sub(weight(&key, &value));
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn into_values(self) -> impl Iterator<Item = RawBson> {
        self.entries.into_values()
    }

    /// Keys and values, alternating.
    pub(super) fn partial(&self) -> RawBson {
        let mut parts = RawArrayBuf::new();
        for ((key, _), value) in &self.entries {
            parts.push(&Binary { subtype: BinarySubtype::Generic, bytes: key.clone() });
            parts.push(value);
        }
        RawBson::Array(parts)
    }

    pub(super) fn merge(&mut self, partial: RawBsonRef<'_>) -> Result<()> {
        let malformed = || Error::new(Code::INTERNAL_ERROR, "malformed partial accumulator");
        let mut parts = partial.as_array().ok_or_else(malformed)?.into_iter();
        while let Some(key) = parts.next() {
            let key = key?.as_binary().ok_or_else(malformed)?;
            let value = parts.next().ok_or_else(malformed)??;
            self.add(key.bytes.to_vec(), value);
        }
        Ok(())
    }
}

fn weight(key: &[u8], value: &RawBson) -> usize {
    key.len() + super::state::value_bytes(value.as_raw_bson_ref()) + 64
}
