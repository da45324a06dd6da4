//! What a checkpoint says: the directory with each tree's image, and where the log goes on.
//!
//! Little-endian:
//!
//! ```text
//!  0  8  "FERNROOT"
//!  8  4  version, 1
//! 12  4  number of dictionaries
//! 16  8  timestamp: dictionaries created or dropped up to here are as listed
//! 24  8  end of the log that was synced before this was written
//! 32  8  next dictionary id
//! 40  8  next transaction id
//! 48     per dictionary: id u64 | created u64 | flushed u64 | options (14) | image length u32 | image
//! ```
//!
//! `flushed`: every commit up to it is in the image; newer ones may be too, and are in the log.
//! The data file checksums the whole. On disk: `docs/formats/checkpoint-root.md`.

use crate::DictionaryOptions;
use crate::records::{Input, Malformed, decode_options, encode_options};

const MAGIC: &[u8; 8] = b"FERNROOT";
const VERSION: u32 = 1;

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
    pub(crate) dictionaries: Vec<DictionaryImage>,
}

impl CheckpointRoot {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        let count = u32::try_from(self.dictionaries.len()).expect("fewer than 2^32 dictionaries");
        out.extend_from_slice(&count.to_le_bytes());
        for number in [self.timestamp, self.log_end, self.next_dictionary, self.next_txn] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for dictionary in &self.dictionaries {
            for number in [dictionary.id, dictionary.created, dictionary.flushed] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            out.extend_from_slice(&encode_options(&dictionary.options));
            let len = u32::try_from(dictionary.image.len()).expect("an image is below 4 GiB");
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(&dictionary.image);
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut input = Input(bytes);
        if input.array::<8>()? != MAGIC {
            return Err(Malformed("it is not a checkpoint root"));
        }
        if u32::from_le_bytes(*input.array()?) != VERSION {
            return Err(Malformed("a version this program does not know"));
        }
        let count = u32::from_le_bytes(*input.array()?);
        let mut root = Self {
            timestamp: number(&mut input)?,
            log_end: number(&mut input)?,
            next_dictionary: number(&mut input)?,
            next_txn: number(&mut input)?,
            dictionaries: Vec::new(),
        };
        for _ in 0..count {
            let (id, created, flushed) =
                (number(&mut input)?, number(&mut input)?, number(&mut input)?);
            let options = decode_options(input.array()?)?;
            let len = u32::from_le_bytes(*input.array()?);
            let image = input.bytes(u64::from(len))?.to_vec();
            if root.dictionaries.last().is_some_and(|last| last.id >= id) {
                return Err(Malformed("dictionaries do not ascend"));
            }
            root.dictionaries.push(DictionaryImage { id, created, flushed, options, image });
        }
        if !input.0.is_empty() {
            return Err(Malformed("bytes behind its end"));
        }
        Ok(root)
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

    fn sample() -> CheckpointRoot {
        let dictionary = |id: u64, image: &[u8]| DictionaryImage {
            id,
            created: id * 2,
            flushed: id * 3,
            options: DictionaryOptions { compression: Compression::Lz4, ..Default::default() },
            image: image.to_vec(),
        };
        CheckpointRoot {
            timestamp: 100,
            log_end: 5000,
            next_dictionary: 9,
            next_txn: 42,
            dictionaries: vec![dictionary(1, b"tree one"), dictionary(8, b"")],
        }
    }

    #[test]
    fn golden_root_is_read_and_written_the_same() {
        let golden = testkit::golden(
            env!("CARGO_MANIFEST_DIR"),
            "checkpoint-root.v1.bin",
            &sample().encode(),
        );
        assert_eq!(CheckpointRoot::decode(&golden), Ok(sample()));
    }

    proptest! {
        #[test]
        fn mutated_roots_never_panic(at in any::<prop::sample::Index>(), to in any::<u8>(), cut in any::<prop::sample::Index>()) {
            let mut bytes = sample().encode();
            let at = at.index(bytes.len());
            bytes[at] = to;
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Ok(root) = CheckpointRoot::decode(&bytes) {
                prop_assert_eq!(root.encode(), bytes);
            }
        }
    }
}
