//! A cursor over received bytes that never reads past their end.
//!
//! Every method either advances by what it returns or fails and leaves the cursor where it was.

use crate::validate::{MAX_INTERNAL_DOCUMENT_SIZE, invalid, too_large, validate};
use bson::RawDocument;
use errors::Result;

/// The unread rest of a frame.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (head, tail) = self
            .rest
            .split_at_checked(count)
            .ok_or_else(|| invalid("a length reaches beyond the end of the message"))?;
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, tail) =
            self.rest.split_first_chunk().ok_or_else(|| invalid("the message ends too early"))?;
        self.rest = tail;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// A zero-terminated UTF-8 string.
    pub(crate) fn cstr(&mut self) -> Result<&'a str> {
        let end = self
            .rest
            .iter()
            .position(|byte| *byte == 0)
            .ok_or_else(|| invalid("a string has no terminator"))?;
        let text = std::str::from_utf8(&self.rest[..end])
            .map_err(|_| invalid("a string is not valid UTF-8"))?;
        self.rest = &self.rest[end + 1..];
        Ok(text)
    }

    /// A document, checked to its last byte.
    pub(crate) fn document(&mut self) -> Result<&'a RawDocument> {
        validate(self.document_bytes()?)
    }

    /// What says that it is one.
    pub(crate) fn document_bytes(&mut self) -> Result<&'a [u8]> {
        let prefix =
            self.rest.first_chunk::<4>().ok_or_else(|| invalid("the message ends too early"))?;
        let declared = i32::from_le_bytes(*prefix);
        let length = usize::try_from(declared).ok().filter(|n| *n >= 5);
        match length {
            Some(length) if length <= MAX_INTERNAL_DOCUMENT_SIZE => self.take(length),
            _ => Err(too_large(declared)),
        }
    }
}
