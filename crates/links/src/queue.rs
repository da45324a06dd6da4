//! Frames that wait to be sent to one member.
//!
//! Always true: it holds at most so many bytes and frames, or one frame of whatever size.

use std::collections::VecDeque;

use limits::Charge;
use quorum::Body;
use replica::Frame;

/// Frames at most.
const MAX_FRAMES: usize = 4096;
/// What a frame takes beside its payloads, about.
const FRAME_BYTES: usize = 256;
/// What an entry takes beside its payload, about.
const ENTRY_BYTES: usize = 128;

/// The queue.
pub(crate) struct Queue {
    frames: VecDeque<(Frame, usize)>,
    bytes: usize,
    most: usize,
    charge: Charge,
}

/// The memory that a frame takes, about.
pub(crate) fn weight(frame: &Frame) -> usize {
    match frame {
        Frame::Report(_) => FRAME_BYTES,
        Frame::Consensus { message, .. } => {
            let entries = match &message.body {
                Body::Append { entries, .. } => entries.len(),
                _ => 0,
            };
            FRAME_BYTES + entries * ENTRY_BYTES + frame.payload_bytes()
        }
    }
}

impl Queue {
    /// An empty one for `most` bytes, for which `charge` stands.
    pub(crate) fn new(most: usize, charge: Charge) -> Self {
        Self { frames: VecDeque::new(), bytes: 0, most, charge }
    }

    /// Takes a frame in; `false` where it does not fit, and is lost.
    pub(crate) fn push(&mut self, frame: Frame) -> bool {
        let bytes = weight(&frame);
        let full = self.bytes + bytes > self.most || self.frames.len() >= MAX_FRAMES;
        if full && !self.frames.is_empty() {
            return false;
        }
        self.bytes += bytes;
        self.frames.push_back((frame, bytes));
        self.charge.set(self.bytes as u64);
        true
    }

    /// The oldest frame.
    pub(crate) fn pop(&mut self) -> Option<Frame> {
        let (frame, bytes) = self.frames.pop_front()?;
        self.bytes -= bytes;
        self.charge.set(self.bytes as u64);
        Some(frame)
    }

    /// The weight of the oldest frame.
    pub(crate) fn next_weight(&self) -> Option<usize> {
        self.frames.front().map(|(_, bytes)| *bytes)
    }

    /// Whether there is nothing to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Loses everything.
    pub(crate) fn clear(&mut self) {
        self.frames = VecDeque::new();
        self.bytes = 0;
        self.charge.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limits::{Account, Part};
    use quorum::{Content, Descriptor, Entry, MemberId, Message, Position};
    use replica::MemberReport;

    fn append(bytes: usize) -> Frame {
        let content = Content::Records(Descriptor::default());
        let entries = vec![Entry { term: 1, index: 2, content }];
        let body = Body::Append { previous: Position { term: 1, index: 1 }, commit: 1, entries };
        let message = Message { from: MemberId(1), to: MemberId(2), term: 1, body };
        Frame::Consensus { message, payloads: vec![vec![0; bytes].into()] }
    }

    #[test]
    fn a_queue_is_bounded_and_takes_one_frame_of_any_size() {
        let account = Account::new(1 << 30);
        let charge = account.charge_regardless(Part::Links, 0);
        let mut queue = Queue::new(10_000, charge);
        assert!(queue.push(append(50_000)), "alone");
        assert!(!queue.push(append(1)));
        assert!(account.usage().of(Part::Links) >= 50_000);
        assert!(queue.pop().is_some() && queue.is_empty());
        let taken = (0..100).filter(|_| queue.push(append(1000))).count();
        assert_eq!(taken, 7, "with what each takes beside its payload");
        assert!(account.usage().of(Part::Links) <= 10_000);
        queue.clear();
        assert_eq!(account.usage().of(Part::Links), 0);
        let small = || Frame::Report(MemberReport::default());
        let mut many = Queue::new(usize::MAX, Charge::uncharged(Part::Links));
        assert_eq!((0..10_000).filter(|_| many.push(small())).count(), MAX_FRAMES);
    }
}
