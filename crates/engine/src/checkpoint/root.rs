//! What a checkpoint says: the directory with each tree's image, and where the log goes on.
//!
//! A checkpoint mostly says only what is different from the one before: a **change**, in the data
//! file's chain of them. Little-endian:
//!
//! ```text
//!  0  8  "FERNROOT"
//!  8  4  version, 4 of a member whose commits may be overwritten, else 3
//! 12  4  kind: 0 whole, 1 change
//! 16  8  timestamp: dictionaries created or dropped up to here are as listed
//! 24  8  end of the log that was synced before this was written
//! 32  8  next dictionary id
//! 40  8  next transaction id
//! 48  4  dictionaries: all there are, or those that are new or different
//! 52  4  dictionaries that are gone; 0 in a whole one
//! 56  8  time of the newest commit, or a later one that was told; 0 where there never was one
//! 64  8  position from which on the log is history; 2^64 - 1 where none of it is
//! 72     in version 4: the newest entry that is visible: index u64 | term u64 | last timestamp u64
//!        | last time u64; where the log has later ones: position u64; the configuration that counts
//!        behind it: of the entry index u64, 0 where there is none | length u32 | bytes; then the void
//!        parts of the log: count u32, each from u64 | to u64
//!        per dictionary: id u64 | created u64 | flushed u64 | options (14) | image length u32 | image
//!        per gone one: id u64
//! ```
//!
//! Version 2 lacks the two numbers before those, and is read.
//!
//! `flushed`: every commit up to it is in the image; newer ones may be too, and are in the log.
//! `2^64 - 1` says every commit up to the timestamp of the newest change: so a dictionary nobody
//! writes to is the same in all of them. The data file checksums the whole. On disk:
//! `docs/formats/checkpoint-root.md`.

use crate::DictionaryOptions;
use crate::entries::EntryId;
use crate::records::{Input, Malformed, decode_options, encode_options};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_128;

const MAGIC: &[u8; 8] = b"FERNROOT";
const VERSION: u32 = 3;
/// With what a member knows.
const MEMBER_VERSION: u32 = 4;
/// Without times.
const VERSION_WITHOUT_TIME: u32 = 2;
/// Nothing in the log is history.
const NO_HISTORY: u64 = u64::MAX;
const WHOLE: u32 = 0;
const CHANGE: u32 = 1;
/// All commits are in the image.
pub(crate) const QUIESCENT: u64 = u64::MAX;

/// One dictionary as a checkpoint knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DictionaryImage {
    pub(crate) id: u64,
    pub(crate) created: u64,
    pub(crate) flushed: u64,
    pub(crate) options: DictionaryOptions,
    pub(crate) image: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CheckpointRoot {
    pub(crate) timestamp: u64,
    pub(crate) log_end: u64,
    pub(crate) next_dictionary: u64,
    pub(crate) next_txn: u64,
    /// No commit and nothing that was told has a later time.
    pub(crate) time: u64,
    /// From here on the log is history, if it is.
    pub(crate) history_from: Option<u64>,
    /// Of a log that may have cuts.
    pub(crate) member: Option<MemberRoot>,
    /// Ids ascending.
    pub(crate) dictionaries: Vec<DictionaryImage>,
}

/// What a member of a set knows of its log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct MemberRoot {
    /// The newest entry all of whose commits are visible.
    pub(crate) entry: EntryId,
    /// From this position of the log on records are of later entries, or void.
    pub(crate) entries_from: u64,
    /// The entry with which the configuration was told that counts behind `entry`.
    pub(crate) configured: u64,
    /// That configuration, as it was told; empty where there is none.
    pub(crate) configuration: Vec<u8>,
    /// The parts of the log that are void.
    pub(crate) voids: Vec<(u64, u64)>,
}

/// A hash of what the newest completed checkpoint holds of each dictionary.
#[derive(Default)]
pub(crate) struct CheckpointDigest(BTreeMap<u64, u128>);

impl CheckpointDigest {
    pub(crate) fn of(root: &CheckpointRoot) -> Self {
        Self(root.dictionaries.iter().map(|d| (d.id, d.hash())).collect())
    }
}

impl DictionaryImage {
    /// How far its tree has flushed, in a root of this timestamp.
    pub(crate) fn flushed_in(&self, root: &CheckpointRoot) -> u64 {
        if self.flushed == QUIESCENT { root.timestamp } else { self.flushed }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.id, self.created, self.flushed] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&encode_options(&self.options));
        let len = u32::try_from(self.image.len()).expect("an image is below 4 GiB");
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&self.image);
    }

    fn hash(&self) -> u128 {
        let mut bytes = Vec::with_capacity(64 + self.image.len());
        self.encode(&mut bytes);
        xxh3_128(&bytes)
    }
}

impl CheckpointRoot {
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.encode_as(WHOLE, &self.dictionaries.iter().collect::<Vec<_>>(), &[])
    }

    /// Only what differs from the checkpoint of this digest.
    pub(crate) fn encode_change(&self, before: &CheckpointDigest) -> Vec<u8> {
        let same = |d: &&DictionaryImage| before.0.get(&d.id) == Some(&d.hash());
        let different: Vec<_> = self.dictionaries.iter().filter(|d| !same(d)).collect();
        let there = |id| self.dictionaries.binary_search_by_key(id, |d| d.id).is_ok();
        let gone: Vec<_> = before.0.keys().filter(|id| !there(id)).copied().collect();
        self.encode_as(CHANGE, &different, &gone)
    }

    fn encode_as(&self, kind: u32, dictionaries: &[&DictionaryImage], gone: &[u64]) -> Vec<u8> {
        let ascend = dictionaries.is_sorted_by(|left, right| left.id < right.id);
        assert!(ascend, "the dictionaries of a root ascend");
        let mut out = Vec::new();
        out.extend_from_slice(MAGIC);
        let version = if self.member.is_some() { MEMBER_VERSION } else { VERSION };
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&kind.to_le_bytes());
        for number in [self.timestamp, self.log_end, self.next_dictionary, self.next_txn] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for count in [dictionaries.len(), gone.len()] {
            let count = u32::try_from(count).expect("fewer than 2^32 dictionaries");
            out.extend_from_slice(&count.to_le_bytes());
        }
        for number in [self.time, self.history_from.unwrap_or(NO_HISTORY)] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        if let Some(member) = &self.member {
            member.encode(&mut out);
        }
        for dictionary in dictionaries {
            dictionary.encode(&mut out);
        }
        for id in gone {
            out.extend_from_slice(&id.to_le_bytes());
        }
        debug_assert!(Self::decode_as(kind, &out).is_ok(), "a root reads as it was written");
        out
    }

    /// The root a chain comes to: a whole one first, then the changes in their order.
    pub(crate) fn fold(whole: &[u8], changes: &[impl AsRef<[u8]>]) -> Result<Self, Malformed> {
        let (mut root, _) = Self::decode_as(WHOLE, whole)?;
        let mut dictionaries: BTreeMap<_, _> =
            std::mem::take(&mut root.dictionaries).into_iter().map(|d| (d.id, d)).collect();
        for change in changes {
            let (mut next, gone) = Self::decode_as(CHANGE, change.as_ref())?;
            if gone.iter().any(|id| dictionaries.remove(id).is_none()) {
                return Err(Malformed("a change drops a dictionary that is not there"));
            }
            let different = std::mem::take(&mut next.dictionaries);
            dictionaries.extend(different.into_iter().map(|d| (d.id, d)));
            root = next;
        }
        root.dictionaries = dictionaries.into_values().collect();
        Ok(root)
    }

    fn decode_as(kind: u32, bytes: &[u8]) -> Result<(Self, Vec<u64>), Malformed> {
        let mut input = Input(bytes);
        if input.array::<8>()? != MAGIC {
            return Err(Malformed("it is not a checkpoint root"));
        }
        let word = |input: &mut Input<'_>| Ok::<_, Malformed>(u32::from_le_bytes(*input.array()?));
        let version = word(&mut input)?;
        if !(VERSION_WITHOUT_TIME..=MEMBER_VERSION).contains(&version) {
            return Err(Malformed("a version this program does not know"));
        }
        if word(&mut input)? != kind {
            return Err(Malformed("of another kind than its place in the chain"));
        }
        let mut root = Self {
            timestamp: number(&mut input)?,
            log_end: number(&mut input)?,
            next_dictionary: number(&mut input)?,
            next_txn: number(&mut input)?,
            time: 0,
            history_from: None,
            member: None,
            dictionaries: Vec::new(),
        };
        let (count, gone_count) = (word(&mut input)?, word(&mut input)?);
        if version >= VERSION {
            root.time = number(&mut input)?;
            root.history_from = Some(number(&mut input)?).filter(|from| *from != NO_HISTORY);
        }
        if version == MEMBER_VERSION {
            root.member = Some(MemberRoot::decode(&mut input)?);
        }
        for _ in 0..count {
            let (id, created, flushed) =
                (number(&mut input)?, number(&mut input)?, number(&mut input)?);
            let options = decode_options(input.array()?)?;
            let len = word(&mut input)?;
            let image = input.bytes(u64::from(len))?.to_vec();
            if root.dictionaries.last().is_some_and(|last| last.id >= id) {
                return Err(Malformed("dictionaries do not ascend"));
            }
            root.dictionaries.push(DictionaryImage { id, created, flushed, options, image });
        }
        let mut gone = Vec::new();
        for _ in 0..gone_count {
            gone.push(number(&mut input)?);
        }
        if !gone.is_sorted_by(|left, right| left < right) || kind == WHOLE && !gone.is_empty() {
            return Err(Malformed("dictionaries that are gone do not ascend"));
        }
        if !input.0.is_empty() {
            return Err(Malformed("bytes behind its end"));
        }
        Ok((root, gone))
    }
}

impl MemberRoot {
    fn encode(&self, out: &mut Vec<u8>) {
        let EntryId { index, term, timestamp, time } = self.entry;
        for number in [index, term, timestamp, time, self.entries_from, self.configured] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let len = u32::try_from(self.configuration.len()).expect("a configuration is below 4 GiB");
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&self.configuration);
        let count = u32::try_from(self.voids.len()).expect("fewer than 2^32 overwritten tails");
        out.extend_from_slice(&count.to_le_bytes());
        for (from, to) in &self.voids {
            out.extend_from_slice(&from.to_le_bytes());
            out.extend_from_slice(&to.to_le_bytes());
        }
    }

    fn decode(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let (index, term) = (number(input)?, number(input)?);
        let (timestamp, time) = (number(input)?, number(input)?);
        let entry = EntryId { index, term, timestamp, time };
        let (entries_from, configured) = (number(input)?, number(input)?);
        let len = u32::from_le_bytes(*input.array()?);
        let configuration = input.bytes(u64::from(len))?.to_vec();
        if configuration.is_empty() != (configured == 0) || configured > index {
            return Err(Malformed("a configuration of no entry that it knows"));
        }
        let mut voids = Vec::new();
        let mut behind = 0;
        for _ in 0..u32::from_le_bytes(*input.array()?) {
            let (from, to) = (number(input)?, number(input)?);
            if from < behind || to <= from {
                return Err(Malformed("void parts of the log do not ascend"));
            }
            behind = to;
            voids.push((from, to));
        }
        Ok(Self { entry, entries_from, configured, configuration, voids })
    }
}

fn number(input: &mut Input<'_>) -> Result<u64, Malformed> {
    Ok(u64::from_le_bytes(*input.array()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Compression;
    use proptest::prelude::*;

    fn dictionary(id: u64, image: &[u8]) -> DictionaryImage {
        DictionaryImage {
            id,
            created: id * 2,
            flushed: id * 3,
            options: DictionaryOptions { compression: Compression::Lz4, ..Default::default() },
            image: image.to_vec(),
        }
    }

    fn sample() -> CheckpointRoot {
        CheckpointRoot {
            timestamp: 100,
            log_end: 5000,
            next_dictionary: 9,
            next_txn: 42,
            time: 7 << 32 | 3,
            history_from: Some(4000),
            member: None,
            dictionaries: vec![dictionary(1, b"tree one"), dictionary(8, b"")],
        }
    }

    fn of_a_member() -> CheckpointRoot {
        let entry = EntryId { index: 12, term: 3, timestamp: 90, time: 7 << 32 };
        let voids = vec![(4100, 4200), (4200, 4500)];
        let (entries_from, configured) = (4300, 9);
        let configuration = b"members".to_vec();
        let member = MemberRoot { entry, entries_from, configured, configuration, voids };
        CheckpointRoot { member: Some(member), ..sample() }
    }

    #[test]
    fn golden_root_of_a_member_is_read_and_written_the_same() {
        let here = env!("CARGO_MANIFEST_DIR");
        let root = of_a_member();
        let whole = testkit::golden(here, "checkpoint-root.v4.bin", &root.encode());
        assert_eq!(CheckpointRoot::fold(&whole, &NONE), Ok(root));
        // It is no member any more.
        let change = later().encode_change(&CheckpointDigest::of(&sample()));
        assert_eq!(CheckpointRoot::fold(&whole, &[&change]), Ok(later()));
        let mut bytes = of_a_member().encode();
        bytes[139..147].copy_from_slice(&5000_u64.to_le_bytes());
        assert!(CheckpointRoot::fold(&bytes, &NONE).is_err(), "void parts that meet");
    }

    fn later() -> CheckpointRoot {
        CheckpointRoot {
            timestamp: 200,
            history_from: None,
            dictionaries: vec![
                dictionary(1, b"tree one"),
                dictionary(7, b"new"),
                DictionaryImage { flushed: QUIESCENT, ..dictionary(9, b"newer") },
            ],
            ..sample()
        }
    }

    const NONE: [&[u8]; 0] = [];

    #[test]
    fn golden_roots_are_read_and_written_the_same() {
        let here = env!("CARGO_MANIFEST_DIR");
        let whole = testkit::golden(here, "checkpoint-root.v3.bin", &sample().encode());
        assert_eq!(CheckpointRoot::fold(&whole, &NONE), Ok(sample()));
        let change = later().encode_change(&CheckpointDigest::of(&sample()));
        let change = testkit::golden(here, "checkpoint-change.v3.bin", &change);
        assert_eq!(CheckpointRoot::fold(&whole, &[&change]), Ok(later()));
    }

    #[test]
    fn golden_roots_without_a_time_are_read() {
        let whole = include_bytes!("../../tests/golden/checkpoint-root.v2.bin");
        let change = include_bytes!("../../tests/golden/checkpoint-change.v2.bin");
        let without = |root| CheckpointRoot { time: 0, history_from: None, ..root };
        assert_eq!(CheckpointRoot::fold(whole, &NONE), Ok(without(sample())));
        assert_eq!(CheckpointRoot::fold(whole, &[change]), Ok(without(later())));
        let newer = later().encode_change(&CheckpointDigest::of(&sample()));
        assert_eq!(CheckpointRoot::fold(whole, &[newer]), Ok(later()), "after an upgrade");
    }

    #[test]
    fn change_says_only_what_is_different() {
        let digest = CheckpointDigest::of(&later());
        let nothing = CheckpointRoot { timestamp: 300, ..later() }.encode_change(&digest);
        assert_eq!(nothing.len(), 72);
        let root = CheckpointRoot::fold(&later().encode(), &[&nothing]).unwrap();
        assert_eq!(root.dictionaries[2].flushed_in(&root), 300, "quiescent up to the newest");
        assert_eq!(root.dictionaries[0].flushed_in(&root), 3);
        let gone = CheckpointRoot { dictionaries: Vec::new(), ..later() }.encode_change(&digest);
        assert_eq!(CheckpointRoot::fold(&later().encode(), &[&gone]).unwrap().dictionaries, []);
        assert!(CheckpointRoot::fold(&later().encode(), &[&gone, &gone]).is_err());
        assert!(CheckpointRoot::fold(&gone, &NONE).is_err(), "a change alone");
    }

    #[test]
    fn root_with_one_byte_changed_is_refused_or_says_just_that() {
        for whole in [sample().encode(), of_a_member().encode()] {
            check_each_byte(&whole);
        }
    }

    fn check_each_byte(whole: &[u8]) {
        for at in 0..whole.len() {
            for to in 0..=u8::MAX {
                let mut bytes = whole.to_vec();
                bytes[at] = to;
                if let Ok(root) = CheckpointRoot::fold(&bytes, &NONE) {
                    assert_eq!(root.encode(), bytes, "byte {at} set to {to}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn mutated_roots_never_panic(at in any::<prop::sample::Index>(), to in any::<u8>(), cut in any::<prop::sample::Index>()) {
            let mut bytes = sample().encode();
            let at = at.index(bytes.len());
            bytes[at] = to;
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Ok(root) = CheckpointRoot::fold(&bytes, &NONE) {
                prop_assert_eq!(root.encode(), &bytes[..]);
            }
            let _either = CheckpointRoot::fold(&sample().encode(), &[bytes]).is_ok();
        }
    }
}
