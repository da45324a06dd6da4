//! What a transaction has deleted by ranges and not committed yet, as its reads see it.
//!
//! Always true: it hides what others have committed, whenever that was; the transaction's own writes are newer.

use crate::DictionaryId;
use ftree::{RecordPart, Tombstone};
use std::sync::Arc;

/// A delete of a range that is not committed yet.
#[derive(Clone)]
pub(crate) struct OwnTombstone {
    pub(crate) dictionary: u64,
    /// Its timestamp is the commit's, which nobody knows yet.
    pub(crate) tombstone: Tombstone,
}

/// What a transaction has deleted of one dictionary, over what others have committed there.
#[derive(Clone)]
pub(crate) struct Buried {
    tombstones: Arc<[Tombstone]>,
    record_part: RecordPart,
}

impl Buried {
    pub(crate) fn has(&self, key: &[u8], value: &[u8]) -> bool {
        self.tombstones.iter().any(|one| one.covers(key, Some(value), self.record_part))
    }

    /// `None` where nothing was deleted so.
    pub(crate) fn of(
        all: &[OwnTombstone],
        dictionary: DictionaryId,
        record_part: Option<RecordPart>,
    ) -> Option<Self> {
        debug_assert!(
            all.iter().all(|own| own.tombstone.ts == u64::MAX),
            "what is not committed has no timestamp"
        );
        let of = all.iter().filter(|own| own.dictionary == dictionary.0);
        let tombstones: Arc<[_]> = of.map(|own| own.tombstone.clone()).collect();
        (!tombstones.is_empty())
            .then(|| Self { tombstones, record_part: record_part.unwrap_or(ftree::no_parts) })
    }
}
