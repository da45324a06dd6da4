//! `raft.state`: who this member is, and what it has promised. Bytes in, bytes out; the layer above
//! writes them.
//!
//! ```text
//! 0    [8]  magic "FERNRAFT"
//! 8    u32  format version, 1
//! 12   u32  length of the set's name, at most 255
//! 16   u64  generation: 1 for a new file, +1 with each write
//! 24   u64  member id, random, made with the data directory
//! 32   u64  lineage: the founder's member id, or a random number since the set was forced to go on without its majority
//! 40   u64  term
//! 48   u64  whom it voted for in that term, 0 for nobody
//! 56   u64  commit index, a hint
//! 64   [255] the set's name, UTF-8, zeros behind it
//! 508  u32  crc32c of bytes 0..508
//! 512  …    zeros to 4096
//! ```
//!
//! The file is two such blocks, and both hold the same: block 0 is written and synced, then block 1 is
//! written and synced, and only then does a vote go out. So whichever block is torn by a crash, or
//! damaged later, the other one holds every vote that was ever given. A start that finds only one
//! whole, or an older one, writes both again before it votes ([`Found::repair`]).
//!
//! On disk: `docs/formats/raft-state.md`.

use crate::entry::MemberId;
use crate::error::{Error, Result};

/// Bytes of one block; the file is two.
pub const BLOCK_BYTES: usize = 4096;
/// The format this program writes.
pub const VERSION: u32 = 1;
/// Bytes of a set's name at most.
pub const MAX_NAME: usize = 255;

const MAGIC: &[u8; 8] = b"FERNRAFT";
const NAME_AT: usize = 64;
const SUM_AT: usize = 508;
/// Numbers that only count up are far below this, and far from where counting on would overflow.
pub const MAX_COUNT: u64 = 1 << 62;

/// What a member must not forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberState {
    /// How often it was written.
    pub generation: u64,
    /// Who this member is.
    pub member: MemberId,
    /// Which history of the set it belongs to.
    pub lineage: u64,
    /// The set's name, empty before it has one.
    pub set_name: String,
    /// The newest term it has seen.
    pub term: u64,
    /// Whom it voted for in that term.
    pub vote: Option<MemberId>,
    /// What was known to be committed; at least so much is.
    pub commit_hint: u64,
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The newest state.
    pub state: MemberState,
    /// Both blocks must be written again before a vote is given.
    pub repair: bool,
}

impl MemberState {
    /// A new member of no set.
    pub fn new(member: MemberId) -> Self {
        Self {
            generation: 1,
            member,
            lineage: 0,
            set_name: String::new(),
            term: 0,
            vote: None,
            commit_hint: 0,
        }
    }

    /// The bytes of a block. A name beyond [`MAX_NAME`] bytes is refused.
    pub fn encode(&self) -> Result<[u8; BLOCK_BYTES]> {
        let name = self.set_name.as_bytes();
        if name.len() > MAX_NAME {
            return Err(Error::Invalid("a set's name has at most 255 bytes"));
        }
        let mut out = [0; BLOCK_BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(name.len() as u32).to_le_bytes());
        let vote = self.vote.unwrap_or_default();
        let numbers =
            [self.generation, self.member.0, self.lineage, self.term, vote.0, self.commit_hint];
        for (place, number) in out[16..NAME_AT].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        out[NAME_AT..NAME_AT + name.len()].copy_from_slice(name);
        let sum = crc32c::crc32c(&out[..SUM_AT]);
        out[SUM_AT..SUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        Ok(out)
    }

    /// Reads one block.
    fn decode(bytes: &[u8]) -> Result<Self> {
        let block: &[u8; 512] = bytes.first_chunk().ok_or(damaged("it is too short"))?;
        let u32_at = |at: usize| block[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b));
        let u64_at = |at: usize| block[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        if &block[..8] != MAGIC {
            return Err(damaged("wrong magic number"));
        }
        if crc32c::crc32c(&block[..SUM_AT]) != u32_at(SUM_AT) {
            return Err(damaged("its checksum is wrong"));
        }
        if u32_at(8) != VERSION {
            return Err(Error::State(NEWER));
        }
        let length = u32_at(12) as usize;
        let name = block[NAME_AT..NAME_AT + MAX_NAME].get(..length);
        let name = name.ok_or(damaged("the set's name is too long"))?;
        let state = Self {
            generation: u64_at(16),
            member: MemberId(u64_at(24)),
            lineage: u64_at(32),
            set_name: String::from_utf8(name.to_vec())
                .map_err(|_| damaged("the set's name is no text"))?,
            term: u64_at(40),
            vote: Some(MemberId(u64_at(48))).filter(|vote| *vote != MemberId(0)),
            commit_hint: u64_at(56),
        };
        let counts = [state.generation, state.term, state.commit_hint];
        if state.generation == 0 || counts.iter().any(|count| *count >= MAX_COUNT) {
            return Err(damaged("a counter is out of range"));
        }
        if state.member == MemberId(0) {
            return Err(damaged("it names no member"));
        }
        Ok(state)
    }

    /// What the two blocks of a file say. Both damaged is an error: a member that has forgotten its
    /// votes must not vote again under the same id.
    pub fn read(first: &[u8], second: &[u8]) -> Result<Found> {
        match (Self::decode(first), Self::decode(second)) {
            (Ok(a), Ok(b)) if a.member != b.member => {
                Err(damaged("its two blocks are of two members"))
            }
            (Ok(a), Ok(b)) => {
                let repair = a != b;
                Ok(Found { state: if b.generation > a.generation { b } else { a }, repair })
            }
            // A whole block of a newer program is no damage: it may hold a newer vote.
            (Ok(_), Err(newer)) | (Err(newer), Ok(_)) if newer == Error::State(NEWER) => Err(newer),
            (Ok(state), Err(_)) | (Err(_), Ok(state)) => Ok(Found { state, repair: true }),
            (Err(error), Err(_)) => Err(error),
        }
    }
}

const NEWER: &str = "a newer program wrote it";

fn damaged(what: &'static str) -> Error {
    Error::State(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> MemberState {
        MemberState {
            generation: 5,
            member: MemberId(0x1122_3344_5566_7788),
            lineage: 9,
            set_name: "rs0".to_owned(),
            term: 12,
            vote: Some(MemberId(3)),
            commit_hint: 400,
        }
    }

    #[test]
    fn a_state_is_read_as_it_was_written_and_its_bytes_are_those_of_before() {
        let block = sample().encode().unwrap();
        let found = MemberState::read(&block, &block).unwrap();
        assert_eq!(found, Found { state: sample(), repair: false });
        testkit::golden(env!("CARGO_MANIFEST_DIR"), "raft-state.v1.bin", &block[..512]);
        let new = MemberState::new(MemberId(1));
        let block = new.encode().unwrap();
        assert_eq!(MemberState::read(&block, &block).unwrap().state, new);
    }

    #[test]
    fn no_flipped_bit_of_either_block_loses_a_vote() {
        let whole = sample().encode().unwrap();
        for byte in 0..512 {
            for bit in 0..8 {
                let mut damaged = whole;
                damaged[byte] ^= 1 << bit;
                let expected = Found { state: sample(), repair: true };
                let ignored = byte >= SUM_AT + 4;
                for (first, second) in [(&damaged, &whole), (&whole, &damaged)] {
                    let found = MemberState::read(first, second).unwrap();
                    assert_eq!(found.state, expected.state, "byte {byte}");
                    assert_eq!(found.repair, !ignored, "byte {byte}");
                }
                assert_eq!(MemberState::read(&damaged, &damaged).is_err(), !ignored);
            }
        }
    }

    #[test]
    fn a_crash_between_the_two_writes_leaves_a_whole_state() {
        let old = sample();
        let new = MemberState { generation: 6, term: 13, vote: None, ..sample() };
        let (old_block, new_block) = (old.encode().unwrap(), new.encode().unwrap());
        for torn in [0, 100, 511, 512, 4096] {
            let mut block = old_block;
            block[..torn].copy_from_slice(&new_block[..torn]);
            let first = MemberState::read(&block, &old_block).unwrap();
            assert_eq!(first.state, if torn < 512 { old.clone() } else { new.clone() }, "{torn}");
            let second = MemberState::read(&new_block, &block).unwrap();
            assert_eq!(second.state, new, "{torn}");
            assert_eq!(second.repair, torn < 512, "{torn}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_though_its_checksum_is_right() {
        let check = |change: &dyn Fn(&mut [u8; BLOCK_BYTES]), what: &'static str| {
            let mut block = sample().encode().unwrap();
            change(&mut block);
            let sum = crc32c::crc32c(&block[..SUM_AT]);
            block[SUM_AT..SUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(MemberState::read(&block, &[]), Err(Error::State(what)));
        };
        check(&|b| b[8] = 2, NEWER);
        check(&|b| b[14] = 1, "the set's name is too long");
        check(&|b| b[12..14].copy_from_slice(&[0, 1]), "the set's name is too long");
        check(&|b| b[NAME_AT] = 0xff, "the set's name is no text");
        check(&|b| b[16..24].fill(0), "a counter is out of range");
        check(&|b| b[40..48].fill(0xff), "a counter is out of range");
        check(&|b| b[24..32].fill(0), "it names no member");
        let whole = sample().encode().unwrap();
        let other = MemberState { member: MemberId(1), ..sample() }.encode().unwrap();
        assert!(MemberState::read(&whole, &other).is_err());
        let mut newer = whole;
        newer[8] = 2;
        let sum = crc32c::crc32c(&newer[..SUM_AT]);
        newer[SUM_AT..SUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(MemberState::read(&whole, &newer), Err(Error::State(NEWER)));
        assert!(sample().encode().is_ok());
        let long = MemberState { set_name: "x".repeat(256), ..sample() };
        assert!(long.encode().is_err());
    }
}
