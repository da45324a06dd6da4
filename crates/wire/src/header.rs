//! The 16 bytes in front of every message, and the limits that hold before anything is read.
//!
//! `{ messageLength i32, requestID i32, responseTo i32, opCode i32 }`, little-endian; the length
//! counts the header itself.

use crate::error::{Error, Result};

/// Bytes of a header.
pub const HEADER_SIZE: usize = 16;

/// The longest message, header included (`maxMessageSizeBytes` of `hello`).
pub const MAX_MESSAGE_SIZE: usize = 48_000_000;

/// Operation codes of the wire protocol.
pub mod opcode {
    /// Reply to the legacy operations.
    pub const REPLY: i32 = 1;
    /// Legacy update, no reply.
    pub const UPDATE: i32 = 2001;
    /// Legacy insert, no reply.
    pub const INSERT: i32 = 2002;
    /// Query; also how every driver sends its first `isMaster`.
    pub const QUERY: i32 = 2004;
    /// Next batch of a legacy cursor.
    pub const GET_MORE: i32 = 2005;
    /// Legacy delete, no reply.
    pub const DELETE: i32 = 2006;
    /// Closes legacy cursors, no reply.
    pub const KILL_CURSORS: i32 = 2007;
    /// Any other message, compressed.
    pub const COMPRESSED: i32 = 2012;
    /// The one message modern clients use.
    pub const MSG: i32 = 2013;
}

/// A message header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the whole message, this header included.
    pub length: usize,
    /// The sender's number for this message.
    pub request_id: i32,
    /// The `request_id` this message answers, 0 in requests.
    pub response_to: i32,
    /// What follows; see [`opcode`].
    pub opcode: i32,
}

impl Header {
    /// Reads a header and checks that its length can be a message's.
    ///
    /// # Errors
    /// [`Error::Close`] if it cannot.
    pub fn parse(bytes: &[u8; HEADER_SIZE]) -> Result<Self> {
        let word = |at: usize| {
            i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let declared = word(0);
        let length = usize::try_from(declared).unwrap_or(0);
        if !(HEADER_SIZE..=MAX_MESSAGE_SIZE).contains(&length) {
            return Err(Error::close(format!(
                "message length {declared} is outside {HEADER_SIZE}..={MAX_MESSAGE_SIZE}"
            )));
        }
        Ok(Self { length, request_id: word(4), response_to: word(8), opcode: word(12) })
    }

    /// The header of a frame that is in memory as a whole: its length must be the frame's.
    pub(crate) fn of_frame(frame: &[u8]) -> Result<Self> {
        let bytes = frame
            .first_chunk::<HEADER_SIZE>()
            .ok_or_else(|| Error::close("frame shorter than a header"))?;
        let header = Self::parse(bytes)?;
        if header.length != frame.len() {
            return Err(Error::close(format!(
                "frame of {} bytes declares {}",
                frame.len(),
                header.length
            )));
        }
        Ok(header)
    }

    /// Appends the header with a length of zero; returns where it starts, for [`seal`].
    pub(crate) fn append(out: &mut Vec<u8>, request_id: i32, response_to: i32, op: i32) -> usize {
        let start = out.len();
        for word in [0, request_id, response_to, op] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        start
    }
}

/// Writes the final length into the header at `start`, when the message is complete in `out`.
pub(crate) fn seal(out: &mut [u8], start: usize) {
    seal_before(out, start, 0);
}

/// The same where so many bytes of the message are sent behind `out`.
pub(crate) fn seal_before(out: &mut [u8], start: usize, behind: usize) {
    let length = (out.len() - start + behind) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(length: i32) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    #[test]
    fn length_must_hold_the_header_and_stay_under_the_limit() {
        for bad in [i32::MIN, -1, 0, 15, 48_000_001, i32::MAX] {
            assert!(matches!(Header::parse(&header(bad)), Err(Error::Close(_))), "{bad}");
        }
        for good in [16, 17, 48_000_000] {
            assert_eq!(Header::parse(&header(good)).unwrap().length, good as usize);
        }
    }

    #[test]
    fn frame_must_be_as_long_as_it_says() {
        assert!(Header::of_frame(&header(16)).is_ok());
        assert!(matches!(Header::of_frame(&header(17)), Err(Error::Close(_))));
        assert!(matches!(Header::of_frame(&[1, 2, 3]), Err(Error::Close(_))));
    }
}
