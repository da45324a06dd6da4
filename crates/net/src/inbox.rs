//! The receive buffer of a worker: bytes come in at the end, whole frames leave at the front.
//!
//! It grows by doubling as bytes arrive, never because a header promised them. Only a large message,
//! which was let in with its whole length ([`Inbox::needed`]), gets room for all of it once a part of it
//! is there. The buffer shrinks again when the messages do.

use limits::{Charge, LARGE_BYTES};
use std::io;
use std::ops::Range;
use tls::Arrived;
use wire::{HEADER_SIZE, Header};

/// Room that is always there: most requests fit, and one `read` fetches them whole.
const BASE: usize = 16 * 1024;

/// What OP_COMPRESSED says behind its header before the packed bytes: opcode, length, compressor.
const PACKED_HEAD: usize = 9;

/// The receive buffer.
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// For the buffer, but for what a large message is let in with.
    charge: Charge,
}

/// The beginning of a message, kept for a connection without a worker.
#[derive(Default)]
pub(crate) struct Partial {
    bytes: Vec<u8>,
    length: usize,
}

impl Partial {
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// What of the message has arrived.
    pub(crate) fn into_arrived(self) -> Vec<u8> {
        let Self { mut bytes, length } = self;
        bytes.truncate(length);
        bytes
    }
}

impl Inbox {
    /// An empty one; `charge` is for its buffer.
    pub(crate) fn new(charge: Charge) -> Self {
        let mut inbox = Self { bytes: Vec::new(), start: 0, end: 0, charge };
        inbox.reset();
        inbox
    }

    /// Starts with the half message of a connection that was parked.
    pub(crate) fn load(&mut self, partial: Partial) {
        let Partial { bytes, length } = partial;
        if bytes.len() < BASE {
            self.bytes[..length].copy_from_slice(&bytes[..length]);
        } else {
            self.bytes = bytes;
        }
        (self.start, self.end) = (0, length);
        self.recharge();
    }

    /// Takes the half message out, for a connection that is to be parked. A short one is copied, exactly
    /// its bytes; a long one takes the buffer with it.
    pub(crate) fn unload(&mut self) -> Partial {
        let length = self.held().len();
        let partial = if length < BASE {
            Partial { bytes: self.held().to_vec(), length }
        } else {
            self.bytes.copy_within(self.start..self.end, 0);
            Partial { bytes: std::mem::take(&mut self.bytes), length }
        };
        if self.bytes.len() == BASE {
            (self.start, self.end) = (0, 0);
        } else {
            self.reset();
        }
        partial
    }

    /// Where the next whole frame lies, if it has arrived. An error means the stream is lost.
    pub(crate) fn frame(&self) -> Result<Option<Range<usize>>, wire::Error> {
        let held = self.held();
        let Some(prefix) = held.first_chunk::<HEADER_SIZE>() else { return Ok(None) };
        let length = Header::parse(prefix)?.length;
        Ok((held.len() >= length).then(|| self.start..self.start + length))
    }

    /// Memory for the next message as it comes, and unpacked: known once its head is there. An error
    /// means the stream is lost.
    pub(crate) fn needed(&self) -> Result<Option<usize>, wire::Error> {
        let held = self.held();
        let Some(prefix) = held.first_chunk::<HEADER_SIZE>() else { return Ok(None) };
        let header = Header::parse(prefix)?;
        if header.opcode != wire::opcode::COMPRESSED {
            return Ok(Some(header.length));
        }
        let head = held[HEADER_SIZE..].first_chunk::<PACKED_HEAD>();
        // One too short to say it is refused once it is here.
        let unpacked = head.map(|head| i32::from_le_bytes([head[4], head[5], head[6], head[7]]));
        let whole = header.length < HEADER_SIZE + PACKED_HEAD;
        Ok(match unpacked {
            None => whole.then_some(header.length),
            Some(unpacked) => {
                let unpacked = usize::try_from(unpacked).unwrap_or_default();
                Some(header.length + unpacked.min(wire::MAX_MESSAGE_SIZE))
            }
        })
    }

    /// What has arrived and was not handled yet.
    pub(crate) fn held(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// The frame was handled.
    pub(crate) fn consume(&mut self, frame: &Range<usize>) {
        self.start = frame.end;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            let too_large = self.bytes.len() > LARGE_BYTES;
            if too_large || self.bytes.len() > BASE && frame.len() < self.bytes.len() / 8 {
                self.reset();
            }
        }
    }

    /// Lets `read` put bytes behind those that are here.
    pub(crate) fn fill(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> io::Result<Arrived>,
    ) -> io::Result<Arrived> {
        if self.end == self.bytes.len() {
            if self.start > 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            } else {
                self.grow();
            }
        }
        let arrived = read(&mut self.bytes[self.end..])?;
        if let Arrived::Plain(received) = arrived {
            self.end += received;
        }
        Ok(arrived)
    }

    /// Forgets what has arrived: it went elsewhere.
    pub(crate) fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Makes room behind a half message that fills the buffer.
    fn grow(&mut self) {
        let header = self.held().first_chunk().and_then(|prefix| Header::parse(prefix).ok());
        let length = header.map_or(0, |header| header.length);
        let doubled = self.bytes.len() * 2;
        // What is copied into the room for a large message is little; it is never copied again.
        let size =
            if doubled > LARGE_BYTES { length.max(doubled.min(LARGE_BYTES)) } else { doubled };
        let more = size.saturating_sub(self.bytes.len()).max(1);
        self.bytes.reserve_exact(more);
        self.bytes.resize(self.bytes.len() + more, 0);
        self.recharge();
    }

    fn reset(&mut self) {
        self.bytes = vec![0; BASE];
        (self.start, self.end) = (0, 0);
        self.recharge();
    }

    fn recharge(&mut self) {
        self.charge.set(self.bytes.len().min(LARGE_BYTES) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limits::Part;

    fn empty() -> Inbox {
        Inbox::new(Charge::uncharged(Part::Requests))
    }

    fn frame(length: usize) -> Vec<u8> {
        let mut bytes = vec![7; length];
        bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
        bytes
    }

    /// Feeds `bytes` in pieces of at most `piece`; returns the lengths of the frames that came out.
    fn feed(inbox: &mut Inbox, mut bytes: &[u8], piece: usize) -> Vec<usize> {
        let mut lengths = Vec::new();
        while !bytes.is_empty() {
            let got = inbox
                .fill(|into| {
                    let n = piece.min(into.len()).min(bytes.len());
                    into[..n].copy_from_slice(&bytes[..n]);
                    Ok(Arrived::Plain(n))
                })
                .unwrap();
            let Arrived::Plain(got) = got else { panic!("bytes were given") };
            bytes = &bytes[got..];
            while let Some(range) = inbox.frame().unwrap() {
                let held = inbox.bytes(range.clone());
                assert_eq!(held, frame(held.len()));
                lengths.push(range.len());
                inbox.consume(&range);
            }
        }
        lengths
    }

    #[test]
    fn frames_come_out_whole_however_they_are_cut() {
        let lengths = [16, 17, 100, 16 * 1024, 16 * 1024 + 1, 20, 300_000, 16, 1_000_000, 40];
        let stream: Vec<u8> = lengths.iter().flat_map(|n| frame(*n)).collect();
        for piece in [1, 7, 1000, 16 * 1024, usize::MAX] {
            assert_eq!(feed(&mut empty(), &stream, piece), lengths, "pieces of {piece}");
        }
    }

    #[test]
    fn a_promised_length_allocates_nothing_until_a_part_of_it_is_there() {
        let whole = frame(48_000_000);
        let mut inbox = empty();
        feed(&mut inbox, &whole[..1000], 1000);
        assert_eq!(inbox.bytes.len(), BASE);
        feed(&mut inbox, &whole[1000..250_000], 10_000);
        assert_eq!(inbox.bytes.len(), LARGE_BYTES);
        feed(&mut inbox, &whole[250_000..300_000], 10_000);
        assert_eq!(inbox.bytes.len(), whole.len(), "in one piece, no byte too many");
    }

    #[test]
    fn a_large_buffer_is_given_back_when_its_message_was_handled() {
        let mut inbox = empty();
        assert_eq!(feed(&mut inbox, &frame(1_000_000), usize::MAX), [1_000_000]);
        assert_eq!(inbox.bytes.len(), BASE);
        feed(&mut inbox, &frame(100_000), usize::MAX);
        assert!(inbox.bytes.len() >= 100_000, "others of its size may follow");
        feed(&mut inbox, &frame(50), usize::MAX);
        assert_eq!(inbox.bytes.len(), BASE);
    }

    #[test]
    fn a_parked_half_message_goes_on_where_it_stopped() {
        for (length, cut) in [(40_000, 30_000), (40_000, 100), (3_000_000, 2_000_000)] {
            let whole = frame(length);
            let mut inbox = empty();
            feed(&mut inbox, &whole[..cut], 999);
            let partial = inbox.unload();
            assert!(inbox.held().is_empty() && partial.length == cut);
            assert!(cut >= BASE || partial.bytes() == cut, "a short one takes no more than it is");
            let mut other = empty();
            other.load(partial);
            assert_eq!(feed(&mut other, &whole[cut..], 999), [length]);
        }
    }

    #[test]
    fn a_packed_message_needs_room_unpacked_too() {
        let mut packed = frame(50_000);
        packed[12..16].copy_from_slice(&wire::opcode::COMPRESSED.to_le_bytes());
        packed[20..24].copy_from_slice(&47_000_000_i32.to_le_bytes());
        let mut inbox = empty();
        feed(&mut inbox, &packed[..20], 20);
        assert_eq!(inbox.needed().unwrap(), None);
        feed(&mut inbox, &packed[20..25], 20);
        assert_eq!(inbox.needed().unwrap(), Some(47_050_000));
    }
}
