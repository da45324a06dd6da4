//! The receive buffer of a worker: bytes come in at the end, whole frames leave at the front.
//!
//! It grows by doubling as bytes arrive, never because a header promised them, and shrinks again
//! when the messages do.

use std::io;
use std::ops::Range;
use wire::{HEADER_SIZE, Header};

/// Room that is always there: most requests fit, and one `read` fetches them whole.
const BASE: usize = 16 * 1024;

/// A buffer this large is given back when messages are much smaller.
const LARGE: usize = 256 * 1024;

/// The receive buffer.
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; BASE], start: 0, end: 0 }
    }

    /// Starts with the half message of a connection that was parked.
    pub(crate) fn load(&mut self, partial: &[u8]) {
        (self.start, self.end) = (0, partial.len());
        if self.bytes.len() < partial.len() + BASE {
            self.bytes.resize(partial.len() + BASE, 0);
        }
        self.bytes[..partial.len()].copy_from_slice(partial);
    }

    /// Takes the half message out, for a connection that is to be parked; exactly its bytes.
    pub(crate) fn unload(&mut self) -> Vec<u8> {
        let partial = self.bytes[self.start..self.end].to_vec();
        (self.start, self.end) = (0, 0);
        if self.bytes.len() > LARGE {
            self.bytes = vec![0; BASE];
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
            if self.bytes.len() > LARGE && frame.len() < self.bytes.len() / 8 {
                self.bytes = vec![0; BASE];
            }
        }
    }

    /// Lets `read` put bytes behind those that are here.
    pub(crate) fn fill(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.end == self.bytes.len() {
            if self.start > 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            } else {
                self.bytes.resize(self.bytes.len() * 2, 0);
            }
        }
        let received = read(&mut self.bytes[self.end..])?;
        self.end += received;
        Ok(received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                    Ok(n)
                })
                .unwrap();
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
            assert_eq!(feed(&mut Inbox::new(), &stream, piece), lengths, "pieces of {piece}");
        }
    }

    #[test]
    fn a_promised_length_allocates_nothing() {
        let mut inbox = Inbox::new();
        feed(&mut inbox, &frame(48_000_000)[..1000], 1000);
        assert_eq!(inbox.bytes.len(), BASE);
    }

    #[test]
    fn a_large_buffer_is_given_back_when_messages_are_small_again() {
        let mut inbox = Inbox::new();
        feed(&mut inbox, &frame(1_000_000), usize::MAX);
        assert!(inbox.bytes.len() >= 1_000_000);
        feed(&mut inbox, &frame(50), usize::MAX);
        assert_eq!(inbox.bytes.len(), BASE);
    }

    #[test]
    fn a_parked_half_message_goes_on_where_it_stopped() {
        let whole = frame(40_000);
        let mut inbox = Inbox::new();
        feed(&mut inbox, &whole[..30_000], 999);
        let partial = inbox.unload();
        assert_eq!(partial, &whole[..30_000]);
        let mut other = Inbox::new();
        other.load(&partial);
        assert_eq!(feed(&mut other, &whole[30_000..], 999), [40_000]);
    }
}
