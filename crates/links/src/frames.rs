//! Frames on a stream of bytes.
//!
//! ```text
//! length u32 │ crc32c of the frame u32 │ frame, see replica-frames.md
//! ```
//!
//! Always true: a length above [`MAX_FRAME`] is refused before anything is read for it, and memory grows with
//! the bytes that are there, not with those that were promised.

use std::io::{self, Read};

use limits::Charge;
use replica::{Frame, MAX_FRAME};

/// Bytes before each frame.
pub(crate) const HEAD: usize = 8;
/// A frame's buffer begins with so many bytes, and at most doubles.
const FIRST_ROOM: usize = 64 << 10;

/// Why nothing more is read from a link.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The other side has ended it, between two frames.
    #[error("it was closed")]
    Closed,
    /// It ended in the middle of a frame.
    #[error("it ended within a frame")]
    Torn,
    /// The rest of a frame did not come.
    #[error("a frame does not go on")]
    Stalled,
    /// A length that cannot be.
    #[error("a frame of {0} bytes, where {MAX_FRAME} are the most")]
    TooLong(usize),
    /// The bytes are not those that were sent.
    #[error("a frame with a wrong checksum")]
    Checksum,
    /// No frame.
    #[error("no frame: {0}")]
    Malformed(replica::Error),
    /// The system's word.
    #[error("{0}")]
    Io(io::Error),
}

/// Puts a frame behind what is in `out`, in a version that the other side reads. `false` where it is longer than a frame
/// may be, packed or not; nothing is put then.
pub(crate) fn put(frame: &Frame, version: u8, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD]);
    frame.encode_into(version, out);
    let Some((head, bytes)) = out.get_mut(start..).and_then(|all| all.split_at_mut_checked(HEAD))
    else {
        return false;
    };
    let fits = bytes.len() <= MAX_FRAME && frame.payload_bytes() <= MAX_FRAME;
    let Some(length) = u32::try_from(bytes.len()).ok().filter(|_| fits) else {
        out.truncate(start);
        return false;
    };
    let words = [length, crc32c::crc32c(bytes)].map(u32::to_le_bytes);
    head.copy_from_slice(words.as_flattened());
    true
}

/// Reads frames.
pub(crate) struct FrameReader<R> {
    input: R,
}

impl<R: Read> FrameReader<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input }
    }

    /// The next frame and the bytes it takes, for which `charge` stands. Waits for it as long as it takes,
    /// but for its rest only as long as one read of the stream does. `arriving` is told how many bytes of a frame
    /// each read brought.
    pub(crate) fn next(
        &mut self,
        charge: &mut Charge,
        arriving: &mut dyn FnMut(usize),
    ) -> Result<(Frame, usize), ReadError> {
        let mut head = [0; HEAD];
        self.fill(&mut head, true, &mut |_| {})?;
        let [length, checksum] = [0, 4].map(|at| {
            head.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
        });
        let length = length as usize;
        if length > MAX_FRAME {
            return Err(ReadError::TooLong(length));
        }
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let here = bytes.len();
            let more = (length - here).min(here.max(FIRST_ROOM));
            charge.set((here + more) as u64);
            bytes.reserve_exact(more);
            bytes.resize(here + more, 0);
            let (_, room) = bytes.split_at_mut(here);
            self.fill(room, false, arriving)?;
        }
        if crc32c::crc32c(&bytes) != checksum {
            return Err(ReadError::Checksum);
        }
        let mut held = |payloads: usize| charge.set((length + payloads) as u64);
        let frame = Frame::decode_held(&bytes, &mut held).map_err(ReadError::Malformed)?;
        let taken = HEAD + length.max(frame.payload_memory_bytes());
        charge.set(taken as u64);
        Ok((frame, taken))
    }

    /// Reads as many bytes as there is room for. `between`: at the beginning of a frame, which may take its
    /// time.
    fn fill(
        &mut self,
        mut room: &mut [u8],
        between: bool,
        arriving: &mut dyn FnMut(usize),
    ) -> Result<(), ReadError> {
        let mut began = !between;
        while !room.is_empty() {
            match self.input.read(room) {
                Ok(0) if began => return Err(ReadError::Torn),
                Ok(0) => return Err(ReadError::Closed),
                Ok(count) => {
                    began = true;
                    arriving(count);
                    room = room.get_mut(count..).unwrap_or_default();
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut if began => {
                        return Err(ReadError::Stalled);
                    }
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => {}
                    _ => return Err(ReadError::Io(error)),
                },
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limits::{Account, Part};
    use quorum::MemberId;
    use replica::{FRAME_VERSION, MemberReport};

    fn report(term: u64) -> Frame {
        Frame::Report(MemberReport { from: MemberId(1), term, ..MemberReport::default() })
    }

    /// Gives its bytes in pieces; between two it says that there is nothing now.
    struct Pieces<'a> {
        left: &'a [u8],
        piece: usize,
        pause: bool,
        pauses: bool,
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.pauses && std::mem::replace(&mut self.pause, true) {
                self.pause = false;
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let count = self.piece.min(into.len()).min(self.left.len());
            let (now, later) = self.left.split_at(count);
            into[..count].copy_from_slice(now);
            self.left = later;
            Ok(count)
        }
    }

    fn read(left: &[u8], piece: usize) -> (Vec<Frame>, ReadError) {
        let mut reader = FrameReader::new(Pieces { left, piece, pause: false, pauses: false });
        let mut frames = Vec::new();
        loop {
            match reader.next(&mut Charge::uncharged(Part::Links), &mut |_| {}) {
                Ok((frame, _)) => frames.push(frame),
                Err(error) => return (frames, error),
            }
        }
    }

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let frames: Vec<Frame> = (0..5).map(report).collect();
        let mut bytes = Vec::new();
        for frame in &frames {
            assert!(put(frame, FRAME_VERSION, &mut bytes));
        }
        for piece in [1, 7, 64, usize::MAX] {
            let (got, end) = read(&bytes, piece);
            assert_eq!(got, frames);
            assert!(matches!(end, ReadError::Closed));
            let (got, end) = read(&bytes[..bytes.len() - 1], piece);
            assert_eq!(got.len(), 4);
            assert!(matches!(end, ReadError::Torn));
        }
    }

    #[test]
    fn what_is_no_frame_ends_the_link() {
        let mut bytes = Vec::new();
        put(&report(1), FRAME_VERSION, &mut bytes);
        let changed = |at: usize, to: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = to;
            read(&bytes, usize::MAX).1
        };
        assert!(matches!(changed(HEAD + 10, 0xff), ReadError::Checksum));
        assert!(matches!(changed(5, 0xff), ReadError::Checksum));
        assert!(matches!(changed(3, 0xff), ReadError::TooLong(_)));
        let longest = u32::try_from(MAX_FRAME + 1).unwrap().to_le_bytes();
        assert!(matches!(read(&[longest, [0; 4]].concat(), 3).1, ReadError::TooLong(_)));
        let garbage = [&4_u32.to_le_bytes()[..], &crc32c::crc32c(b"none").to_le_bytes(), b"none"];
        assert!(matches!(read(&garbage.concat(), 3).1, ReadError::Malformed(_)));
        assert!(matches!(read(&[0; 8], 3).1, ReadError::Malformed(_)), "an empty frame");
    }

    #[test]
    fn a_promised_length_takes_no_memory_until_it_is_there() {
        let account = Account::new(1 << 30);
        let mut charge = account.charge_regardless(Part::Links, 0);
        let mut bytes = (MAX_FRAME as u32).to_le_bytes().to_vec();
        bytes.resize(HEAD + 1000, 0);
        let mut reader = FrameReader::new(&bytes[..]);
        assert!(matches!(reader.next(&mut charge, &mut |_| {}), Err(ReadError::Torn)));
        assert_eq!(account.usage().of(Part::Links), FIRST_ROOM as u64);
    }

    #[test]
    fn the_rest_of_a_frame_must_come_and_the_next_frame_need_not() {
        let mut bytes = Vec::new();
        put(&report(1), FRAME_VERSION, &mut bytes);
        let mut reader = FrameReader::new(Pieces {
            left: &bytes,
            piece: bytes.len(),
            pause: true,
            pauses: true,
        });
        let stalled = reader.next(&mut Charge::uncharged(Part::Links), &mut |_| {});
        assert!(matches!(stalled, Err(ReadError::Stalled)), "behind the head there was a pause");
        let whole = io::BufReader::new(Pieces {
            left: &bytes,
            piece: bytes.len(),
            pause: true,
            pauses: true,
        });
        let mut came = 0;
        let next = FrameReader::new(whole)
            .next(&mut Charge::uncharged(Part::Links), &mut |count| came += count);
        assert!(next.is_ok());
        assert_eq!(came, bytes.len() - HEAD, "what comes of a frame is told");
    }
}
