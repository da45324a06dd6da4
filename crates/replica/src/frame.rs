//! What goes over a link: a message of consensus with the payloads of its entries, or what a member says
//! of itself.
//!
//! ```text
//! frame     version u8, 3 │ kind u8 │ body
//! 1 consensus   length u32 │ message, as raft-messages.md │ count u32 │ payload …      payload, below
//! 2 report      from u64 │ term u64 │ applied u64 │ synced u64 │ last ts u64 │ last time u64 │ wall ms i64 │ flags u8
//! payload       length u32 │ bytes, or
//!               length u32, bit 31 set │ length of what was packed u32 │ the bytes, packed by zstd in one or more frames
//! ```
//!
//! In version 2 they are packed in one frame of zstd; a link speaks the newest version that both its ends know.
//!
//! Little-endian, read to its end. Payloads stand in the order of the message's entries, one for each.
//! A frame has at most [`MAX_FRAME`] bytes, and as many with its payloads unpacked; the link that carries it has its own head with length
//! and checksum.
//!
//! On the wire: `docs/formats/replica-frames.md`.

use quorum::{Body, Content, MemberId, Message, codec};

use crate::error::{Error, Result};
use crate::packing;
use crate::payload::Payload;

/// The newest version that this program writes and reads.
pub const FRAME_VERSION: u8 = 3;
/// The oldest version that this program writes and reads: that of links whose other end says nothing of versions.
pub const OLDEST_FRAME_VERSION: u8 = 2;
/// In the length of a payload: it is packed.
const PACKED: u32 = 1 << 31;
/// Bytes of a frame at most: an entry with one of the largest records, and some room.
pub const MAX_FRAME: usize = 64 << 20;
/// Bytes of the payload of an entry that is no records.
pub const MAX_PAYLOAD: usize = 1 << 20;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message, and of an append the payload of each entry.
    Consensus {
        /// The message.
        message: Message,
        /// One for each of its entries.
        payloads: Vec<Payload>,
    },
    /// What a member says of itself, once in a while.
    Report(MemberReport),
}

/// What a member says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberReport {
    /// Who.
    pub from: MemberId,
    /// Its term.
    pub term: u64,
    /// The last entry that it shows.
    pub applied: u64,
    /// The last entry that is safe with it.
    pub synced: u64,
    /// The last timestamp and time that it shows.
    pub last_ts: u64,
    /// See there.
    pub last_time: u64,
    /// Its clock, milliseconds since 1970.
    pub wall_ms: i64,
    /// It acknowledges nothing any more.
    pub stopped: bool,
    /// Its operator keeps it from showing anything, and from leading.
    pub in_maintenance: bool,
    /// It does not campaign for a while.
    pub frozen: bool,
}

impl MemberReport {
    /// Whether the member can take over, by what it says of itself.
    pub fn may_lead(&self) -> bool {
        !(self.stopped || self.in_maintenance || self.frozen)
    }
}

const CONSENSUS: u8 = 1;
const REPORT: u8 = 2;
/// Flags of a report.
const STOPPED: u8 = 1;
const IN_MAINTENANCE: u8 = 2;
const FROZEN: u8 = 4;

impl Frame {
    /// Its bytes, in the newest version.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_into(FRAME_VERSION, &mut out);
        out
    }

    /// Puts its bytes behind what is in `out`.
    pub fn encode_into(&self, version: u8, out: &mut Vec<u8>) {
        match self {
            Self::Consensus { message, payloads } => {
                let message = codec::encode(message);
                let packed = |payload| packed(version, payload);
                let length = |payload| 8 + packed(payload).map_or(payload.len(), <[u8]>::len);
                let bytes: usize = payloads.iter().map(length).sum();
                out.reserve(10 + message.len() + bytes);
                out.extend_from_slice(&[version, CONSENSUS]);
                put_bytes(out, &message);
                put_length(out, payloads.len());
                for payload in payloads {
                    put_payload(out, payload, packed(payload));
                }
            }
            Self::Report(report) => {
                out.extend_from_slice(&[version, REPORT]);
                let numbers = [
                    report.from.0,
                    report.term,
                    report.applied,
                    report.synced,
                    report.last_ts,
                    report.last_time,
                    report.wall_ms.cast_unsigned(),
                ];
                for number in numbers {
                    out.extend_from_slice(&number.to_le_bytes());
                }
                let flags = [
                    (report.stopped, STOPPED),
                    (report.in_maintenance, IN_MAINTENANCE),
                    (report.frozen, FROZEN),
                ];
                out.push(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum());
            }
        }
    }

    /// Whether it is a leader's word on what its log has.
    pub fn is_append(&self) -> bool {
        match self {
            Self::Consensus { message, .. } => matches!(message.body, Body::Append { .. }),
            Self::Report(_) => false,
        }
    }

    /// Bytes of its payloads, unpacked.
    pub fn payload_bytes(&self) -> usize {
        match self {
            Self::Consensus { payloads, .. } => payloads.iter().map(|payload| payload.len()).sum(),
            Self::Report(_) => 0,
        }
    }

    /// Bytes of memory that its payloads take, about.
    pub fn payload_memory_bytes(&self) -> usize {
        match self {
            Self::Consensus { payloads, .. } => payloads.iter().map(Payload::memory_bytes).sum(),
            Self::Report(_) => 0,
        }
    }

    /// A frame from its bytes. What its payloads are is not looked at: [`Frame::check_payloads`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        Self::decode_held(bytes, &mut |_| {})
    }

    /// The same; `held` is told how much memory its payloads take so far, or are about to.
    pub fn decode_held(bytes: &[u8], held: &mut dyn FnMut(usize)) -> Result<Self> {
        if bytes.len() > MAX_FRAME {
            return Err(malformed("it is too long"));
        }
        let mut input = Input(bytes);
        let version = input.u8()?;
        if !(OLDEST_FRAME_VERSION..=FRAME_VERSION).contains(&version) {
            return Err(Error::Version { found: version, known: FRAME_VERSION });
        }
        let frame = match input.u8()? {
            CONSENSUS => {
                let message = codec::decode(input.bytes()?)?;
                let count = input.length()?;
                let entries = match &message.body {
                    Body::Append { entries, .. } => entries.len(),
                    _ => 0,
                };
                if count != entries {
                    return Err(malformed("it has a payload for each of its entries"));
                }
                let (mut here, mut kept) = (0, 0);
                let payload = |_| {
                    let payload = input.payload(here, &mut |more| held(kept + more))?;
                    here += payload.len();
                    kept += payload.memory_bytes();
                    Ok(payload)
                };
                let payloads = (0..count).map(payload).collect::<Result<_>>()?;
                Self::Consensus { message, payloads }
            }
            REPORT => Self::Report(decode_report(&mut input)?),
            _ => return Err(malformed("an unknown kind")),
        };
        if input.0.is_empty() { Ok(frame) } else { Err(malformed("bytes behind its end")) }
    }

    /// Who it says it is from.
    pub fn from(&self) -> MemberId {
        match self {
            Self::Consensus { message, .. } => message.from,
            Self::Report(report) => report.from,
        }
    }

    /// Whether the payloads are those that the entries describe.
    pub(crate) fn check_payloads(message: &Message, payloads: &[Payload]) -> Result<()> {
        let Body::Append { entries, .. } = &message.body else { return Ok(()) };
        for (entry, payload) in entries.iter().zip(payloads) {
            let wrong = |what| Error::Records { from: message.from, at: entry.position(), what };
            match &entry.content {
                Content::Records(records) => {
                    if payload.len() as u64 != u64::from(records.bytes) {
                        return Err(wrong("their length"));
                    }
                    if crc32c::crc32c(payload) != records.checksum {
                        return Err(wrong("their checksum"));
                    }
                }
                _ if payload.len() > MAX_PAYLOAD => return Err(wrong("they are too long")),
                _ => {}
            }
        }
        if entries.len() == payloads.len() {
            Ok(())
        } else {
            Err(malformed("it has a payload for each of its entries"))
        }
    }
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).expect("frames are far below");
    out.extend_from_slice(&length.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// What goes of a payload where that is shorter.
fn packed(version: u8, payload: &Payload) -> Option<&[u8]> {
    if version < FRAME_VERSION { payload.packed() } else { payload.joined() }
}

fn put_payload(out: &mut Vec<u8>, payload: &Payload, packed: Option<&[u8]>) {
    let Some(packed) = packed else { return put_bytes(out, payload) };
    let length = u32::try_from(packed.len()).expect("frames are far below");
    out.extend_from_slice(&(length | PACKED).to_le_bytes());
    put_length(out, payload.len());
    out.extend_from_slice(packed);
}

fn malformed(what: &'static str) -> Error {
    Error::Malformed { what }
}

/// What is left to read.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk().ok_or(malformed("it ends too early"))?;
        self.0 = tail;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8> {
        self.fixed::<1>().map(|[byte]| byte)
    }

    fn u64(&mut self) -> Result<u64> {
        self.fixed().map(u64::from_le_bytes)
    }

    fn length(&mut self) -> Result<usize> {
        self.fixed().map(|bytes| u32::from_le_bytes(bytes) as usize)
    }

    /// A payload, where those before it have so many bytes.
    fn payload(&mut self, here: usize, held: &mut dyn FnMut(usize)) -> Result<Payload> {
        let length = self.fixed().map(u32::from_le_bytes)?;
        if length & PACKED == 0 {
            let bytes = self.take(length as usize)?;
            held(bytes.len());
            return Ok(Payload::from(bytes.to_vec()));
        }
        let unpacked = self.length()?;
        if unpacked > MAX_FRAME - here.min(MAX_FRAME) {
            return Err(malformed("its payloads are too long"));
        }
        let packed = self.take((length & !PACKED) as usize)?;
        let bytes = packing::unpack(packed, unpacked, held);
        bytes.map(Payload::from).ok_or(malformed("a payload that cannot be unpacked"))
    }

    fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(length).ok_or(malformed("it ends too early"))?;
        self.0 = tail;
        Ok(head)
    }
}

fn decode_report(input: &mut Input<'_>) -> Result<MemberReport> {
    let mut report = MemberReport {
        from: MemberId(input.u64()?),
        term: input.u64()?,
        applied: input.u64()?,
        synced: input.u64()?,
        last_ts: input.u64()?,
        last_time: input.u64()?,
        wall_ms: input.u64()?.cast_signed(),
        ..MemberReport::default()
    };
    let flags = input.u8()?;
    if flags & !(STOPPED | IN_MAINTENANCE | FROZEN) != 0 {
        return Err(malformed("unknown flags"));
    }
    report.stopped = flags & STOPPED != 0;
    report.in_maintenance = flags & IN_MAINTENANCE != 0;
    report.frozen = flags & FROZEN != 0;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use quorum::{Descriptor, Entry, Position};

    fn append(payloads: &[&[u8]]) -> Frame {
        let describe = |bytes: &[u8]| Descriptor {
            last_ts: 7,
            last_time: 8,
            bytes: bytes.len() as u32,
            checksum: crc32c::crc32c(bytes),
        };
        let entry = |(index, bytes): (u64, &&[u8])| Entry {
            term: 3,
            index,
            content: Content::Records(describe(bytes)),
        };
        let entries = (5..).zip(payloads).map(entry).collect();
        let previous = Position { term: 2, index: 4 };
        let body = Body::Append { previous, commit: 3, entries };
        let message = Message { from: MemberId(1), to: MemberId(2), term: 3, body };
        let payloads = payloads.iter().map(|payload| Payload::from(payload.to_vec())).collect();
        Frame::Consensus { message, payloads }
    }

    #[test]
    fn flags_of_a_report_are_read_as_they_were_written_and_others_are_refused() {
        for flags in 0..8 {
            let has = |flag| flags & flag != 0;
            let report = MemberReport {
                stopped: has(STOPPED),
                in_maintenance: has(IN_MAINTENANCE),
                frozen: has(FROZEN),
                ..report()
            };
            let mut bytes = Frame::Report(report).encode();
            assert_eq!(bytes.last(), Some(&flags));
            assert_eq!(Frame::decode(&bytes).unwrap(), Frame::Report(report));
            *bytes.last_mut().unwrap() += 8;
            assert!(Frame::decode(&bytes).is_err());
        }
    }

    fn report() -> MemberReport {
        MemberReport {
            from: MemberId(1),
            term: 3,
            applied: 9,
            synced: 10,
            last_ts: 70,
            last_time: 1 << 33,
            wall_ms: -5,
            stopped: true,
            in_maintenance: false,
            frozen: false,
        }
    }

    #[test]
    fn frames_are_read_as_they_were_written_and_their_bytes_are_those_of_before() {
        let frames = [append(&[b"one", b"", b"three"]), append(&[]), Frame::Report(report())];
        for version in OLDEST_FRAME_VERSION..=FRAME_VERSION {
            let mut all = Vec::new();
            for frame in &frames {
                let mut bytes = Vec::new();
                frame.encode_into(version, &mut bytes);
                assert_eq!(&Frame::decode(&bytes).unwrap(), frame);
                for length in 0..bytes.len() {
                    assert!(Frame::decode(&bytes[..length]).is_err());
                }
                put_bytes(&mut all, &bytes);
            }
            let name = format!("replica-frames.v{version}.bin");
            testkit::golden(env!("CARGO_MANIFEST_DIR"), &name, &all);
        }
    }

    #[test]
    fn what_a_log_has_compressed_goes_so_to_who_can_read_it() {
        let mut random = 1_u64;
        let text: Vec<u8> = std::iter::repeat_with(|| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            b'a' + (random >> 62) as u8
        })
        .take(20_000)
        .collect();
        // By another level than this program's own: so it shows whether it was taken.
        let block = std::sync::Arc::new(zstd::bulk::compress(&text, 19).unwrap());
        let whole = [&b"head"[..], &text].concat();
        let Frame::Consensus { message, .. } = append(&[&whole]) else { unreachable!() };
        let part = engine::CompressedPart { range: 4..whole.len(), block: block.clone() };
        let payloads = vec![engine::EntryBytes::new(whole.clone(), vec![part]).into()];
        let frame = Frame::Consensus { message, payloads };
        for version in OLDEST_FRAME_VERSION..=FRAME_VERSION {
            let mut bytes = Vec::new();
            frame.encode_into(version, &mut bytes);
            let goes_so = bytes.windows(block.len()).any(|window| window == &**block);
            assert_eq!(goes_so, version >= 3);
            let read = Frame::decode(&bytes).unwrap();
            assert_eq!(read, frame);
            assert_eq!(read.payload_bytes(), whole.len());
            let kept = if goes_so { block.len() } else { 0 };
            assert_eq!(read.payload_memory_bytes(), whole.len() + kept);
            if goes_so {
                assert_eq!(read.encode(), bytes, "it goes on so");
            }
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let whole = append(&[b"one"]).encode();
        let check = |at: usize, byte: u8| {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            Frame::decode(&bytes).map_err(|error| error.to_string())
        };
        assert!(check(0, 1).unwrap_err().contains("version 1"));
        assert!(check(0, 4).unwrap_err().contains("version 4"));
        assert!(check(1, 9).is_err());
        let mut longer = whole.clone();
        longer.push(0);
        assert!(Frame::decode(&longer).is_err());
        let Frame::Consensus { message, .. } = append(&[b"one"]) else { unreachable!() };
        let lacking = Frame::Consensus { message, payloads: Vec::new() };
        assert!(Frame::decode(&lacking.encode()).is_err());
    }

    #[test]
    fn long_payloads_are_packed_and_others_are_not() {
        let names = b"field: ".repeat(10_000);
        let frame = append(&[&[7; 100], &names, b"short"]);
        let bytes = frame.encode();
        assert!(bytes.len() < 2000, "{}", bytes.len());
        let mut most = 0;
        let read = Frame::decode_held(&bytes, &mut |held| most = most.max(held));
        assert_eq!(read.unwrap(), frame);
        assert!(
            (70_105..80_000).contains(&most),
            "the memory is that of what was unpacked: {most}"
        );
        for length in 0..bytes.len() {
            assert!(Frame::decode(&bytes[..length]).is_err());
        }
    }

    /// Packed by hand: one block that is as it was. So frames of before are read, whatever the library makes of them.
    #[test]
    fn a_packed_payload_is_read_whoever_packed_it() {
        let frame = append(&[b"seven b"]);
        let whole = frame.encode();
        let before = &whole[..whole.len() - 11];
        // Magic number, one segment with its length in a byte, the last block: raw.
        let packed =
            [&[0x28, 0xb5, 0x2f, 0xfd, 0x20, 7, 7 << 3 | 1, 0, 0], &b"seven b"[..]].concat();
        let read = |length: u32, packed: &[u8]| {
            let words = [packed.len() as u32 | PACKED, length].map(u32::to_le_bytes);
            Frame::decode(&[before, words.as_flattened(), packed].concat())
        };
        assert_eq!(read(7, &packed).unwrap(), frame);
        let refused = |length, packed: &[u8]| read(length, packed).unwrap_err().to_string();
        assert!(refused(8, &packed).contains("cannot be unpacked"));
        assert!(refused(6, &packed).contains("cannot be unpacked"));
        assert!(refused(7, &packed[..12]).contains("cannot be unpacked"));
        assert!(refused(7, b"").contains("cannot be unpacked"));
        assert!(refused(MAX_FRAME as u32 + 1, &packed).contains("too long"));
        assert!(refused(u32::MAX, &packed).contains("too long"));
    }

    #[test]
    fn payloads_are_those_that_their_entries_describe() {
        let check = |change: &dyn Fn(&mut Vec<Payload>)| {
            let Frame::Consensus { message, mut payloads } = append(&[b"one", b"two"]) else {
                unreachable!()
            };
            change(&mut payloads);
            Frame::check_payloads(&message, &payloads).map_err(|error| error.to_string())
        };
        assert!(check(&|_| {}).is_ok());
        assert!(
            check(&|p| p[1] = Payload::from(b"twO".to_vec()))
                .unwrap_err()
                .ends_with("their checksum")
        );
        assert!(
            check(&|p| p[0] = Payload::from(b"one1".to_vec()))
                .unwrap_err()
                .ends_with("their length")
        );
        assert!(check(&|p| drop(p.pop())).is_err());
    }

    proptest! {
        #[test]
        fn what_can_be_read_is_written_with_the_same_bytes(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..4),
            (place, byte) in any::<(u16, u8)>(),
        ) {
            let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
            let mut bytes = append(&payloads).encode();
            let place = usize::from(place) % bytes.len();
            bytes[place] ^= byte;
            if let Ok(frame) = Frame::decode(&bytes) {
                let mut again = Vec::new();
                frame.encode_into(bytes[0], &mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
