//! What the ordered bytes leave out: which of several equal values it was.
//!
//! A stream of bits, one group per number or string in the key, in order of appearance:
//!
//! ```text
//! string         0 string, 1 symbol
//! number         0 the default type of its bytes: int32 if it is a whole number that fits, int64
//!                  if it is a whole number below 2^63, otherwise double
//!                1 then two bits: 00 int32, 01 int64, 10 double, 11 decimal
//!                  zero as a double: one bit more, the sign
//!                  decimal: 128 bits more, the value itself, lowest byte first
//! ```
//!
//! Always true: zero bytes at the end are not stored, so keys of the usual types carry nothing.

/// The bits beside a key. Empty for most keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeBits {
    bytes: Vec<u8>,
    len_bits: usize,
}

impl TypeBits {
    /// The bytes to store beside the key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether every value had its default type.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn push(&mut self, bit: bool) {
        if bit {
            self.bytes.resize(self.len_bits / 8 + 1, 0);
            self.bytes[self.len_bits / 8] |= 1 << (self.len_bits % 8);
        }
        self.len_bits += 1;
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.len_bits = 0;
    }
}

/// Reads bits; past the end there are only zeros.
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> BitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn next(&mut self) -> bool {
        let byte = self.bytes.get(self.at / 8).copied().unwrap_or(0);
        let bit = byte >> (self.at % 8) & 1;
        self.at += 1;
        bit == 1
    }

    pub(crate) fn bits(&mut self, count: u32) -> u128 {
        (0..count).fold(0, |value, at| value | u128::from(self.next()) << at)
    }
}
