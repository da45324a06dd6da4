//! The records of a log of entries: bytes in, bytes out. `docs/formats/entry-log.md` has them.

use quorum::{Configuration, Entry, Position, codec};

const ENTRY: u8 = 1;
const PART: u8 = 2;
const BEGUN: u8 = 3;
const DECIDED: u8 = 4;
const ENDED: u8 = 5;

/// Bytes of an entry's records in one record of the log; what is longer lies in parts before it.
pub(super) const MAX_PART: usize = if cfg!(test) { 700 } else { 32 << 20 };

/// One record.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LogRecord<'a> {
    /// Records of the entry that follows, which has more than fit beside it.
    Part { number: u32, bytes: &'a [u8] },
    /// An entry, what was known to be committed, how many parts are before it, and (the rest of) its records.
    Entry { entry: Entry, commit: u64, parts: u32, payload: &'a [u8] },
    /// The log begins here: what is before it is void, and everything up to the place is decided.
    Begun { at: Position, configuration: Configuration },
    /// Everything up to the place is decided, and the configuration counts behind it.
    Decided { at: Position, configuration: Configuration },
    /// The log has no beginning any more: what is before it is void.
    Ended,
}

/// What stands before a part's bytes.
pub(super) fn part_head(number: u32) -> Vec<u8> {
    let mut head = vec![PART];
    head.extend_from_slice(&number.to_le_bytes());
    head
}

/// What stands before an entry's records.
pub(super) fn entry_head(entry: &Entry, commit: u64, parts: u32) -> Vec<u8> {
    let content = codec::encode_content(&entry.content);
    let mut head = vec![ENTRY];
    for number in [entry.term, entry.index, commit] {
        head.extend_from_slice(&number.to_le_bytes());
    }
    head.extend_from_slice(&parts.to_le_bytes());
    head.extend_from_slice(&(content.len() as u32).to_le_bytes());
    head.extend_from_slice(&content);
    head
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], &'static str> {
    let (taken, rest) = bytes.split_first_chunk().ok_or("a record is cut off")?;
    *bytes = rest;
    Ok(*taken)
}

fn number(bytes: &mut &[u8]) -> Result<u64, &'static str> {
    take(bytes).map(u64::from_le_bytes)
}

impl<'a> LogRecord<'a> {
    /// The bytes of a record that is no entry's.
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, at, configuration) = match self {
            Self::Begun { at, configuration } => (BEGUN, at, configuration),
            Self::Decided { at, configuration } => (DECIDED, at, configuration),
            Self::Ended => return vec![ENDED],
            Self::Part { number, bytes } => {
                let mut record = part_head(*number);
                record.extend_from_slice(bytes);
                return record;
            }
            Self::Entry { entry, commit, parts, payload } => {
                let mut record = entry_head(entry, *commit, *parts);
                record.extend_from_slice(payload);
                return record;
            }
        };
        let mut record = vec![kind];
        record.extend_from_slice(&at.term.to_le_bytes());
        record.extend_from_slice(&at.index.to_le_bytes());
        record.extend_from_slice(&codec::encode_configuration(configuration));
        record
    }

    pub(super) fn decode(mut bytes: &'a [u8]) -> Result<Self, &'static str> {
        let [kind] = take(&mut bytes)?;
        match kind {
            PART => Ok(Self::Part { number: take(&mut bytes).map(u32::from_le_bytes)?, bytes }),
            ENTRY => {
                let (term, index) = (number(&mut bytes)?, number(&mut bytes)?);
                let commit = number(&mut bytes)?;
                let parts = take(&mut bytes).map(u32::from_le_bytes)?;
                let length = take(&mut bytes).map(u32::from_le_bytes)? as usize;
                let (content, payload) =
                    bytes.split_at_checked(length).ok_or("an entry is cut off")?;
                let content = codec::decode_content(content)
                    .map_err(|_| "an entry's content cannot be read")?;
                if term == 0 || index == 0 {
                    return Err("an entry has no place");
                }
                Ok(Self::Entry { entry: Entry { term, index, content }, commit, parts, payload })
            }
            BEGUN | DECIDED => {
                let (term, index) = (number(&mut bytes)?, number(&mut bytes)?);
                let configuration = codec::decode_configuration(bytes)
                    .map_err(|_| "a configuration cannot be read")?;
                configuration.verify().map_err(|_| "a configuration cannot be")?;
                let at = Position { term, index };
                if term == 0 || index == 0 {
                    return Err("the log has no place");
                }
                Ok(if kind == BEGUN {
                    Self::Begun { at, configuration }
                } else {
                    Self::Decided { at, configuration }
                })
            }
            ENDED if bytes.is_empty() => Ok(Self::Ended),
            ENDED => Err("bytes behind a record's end"),
            _ => Err("a record of a kind that this program does not know"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorum::{Content, Descriptor, MemberId};

    fn samples() -> Vec<LogRecord<'static>> {
        let configuration = Configuration::of_voters([1, 2, 9].map(MemberId));
        let at = Position { term: 3, index: 77 };
        let records = Descriptor { last_ts: 5, last_time: 6, bytes: 4, checksum: 7 };
        let content = Content::Records(records);
        vec![
            LogRecord::Begun { at, configuration: configuration.clone() },
            LogRecord::Decided { at, configuration },
            LogRecord::Part { number: 2, bytes: b"before" },
            LogRecord::Entry {
                entry: Entry { term: 3, index: 78, content },
                commit: 70,
                parts: 1,
                payload: b"rows",
            },
            LogRecord::Entry {
                entry: Entry { term: 4, index: 79, content: Content::Fence },
                commit: 78,
                parts: 0,
                payload: b"",
            },
            LogRecord::Ended,
        ]
    }

    #[test]
    fn records_are_read_as_they_were_written_and_bytes_are_those_of_before() {
        let mut bytes = Vec::new();
        for record in samples() {
            let encoded = record.encode();
            assert_eq!(LogRecord::decode(&encoded), Ok(record));
            bytes.extend_from_slice(&encoded);
        }
        testkit::golden(env!("CARGO_MANIFEST_DIR"), "entry-log.v1.bin", &bytes);
    }

    #[test]
    fn what_is_cut_off_or_unknown_is_no_record() {
        for record in samples() {
            let bytes = record.encode();
            // What an entry's records are, its content says, and a part is as long as it is.
            let fixed = match &record {
                LogRecord::Entry { payload, .. } => bytes.len() - payload.len(),
                LogRecord::Part { bytes: part, .. } => bytes.len() - part.len(),
                _ => bytes.len(),
            };
            for cut in 0..fixed {
                assert!(LogRecord::decode(&bytes[..cut]).is_err(), "{record:?} at {cut}");
            }
        }
        for kind in [0, 5, 6, 255] {
            assert!(LogRecord::decode(&[kind; 40]).is_err());
        }
    }
}
