//! Which versions of a key a merge keeps. Versions die here and nowhere else.
//!
//! Always true: the newest version stays, and for every snapshot that is live or may still be
//! created the version it sees. A delete goes only at the bottom, when nothing older is kept
//! below it and no snapshot is older than it: until then it is what conflict checks look for. What a tombstone
//! covers goes once no snapshot is older than that; where only the value tells that it is covered, at the bottom.
//! What lies below an update that is kept is judged together with it (`key_updates`).

use crate::message::{Entry, Message, Visibility};
use crate::tombstones::Tombstones;

/// Decides entry by entry, in order.
pub(crate) struct Retain<'a> {
    visibility: &'a Visibility,
    /// Nothing older lies below: the output is a leaf.
    bottom: bool,
    /// What was deleted by ranges.
    tombstones: Option<&'a Tombstones>,
    key: Vec<u8>,
    started: bool,
    /// The version of `key` seen last, kept or not.
    seen_ts: u64,
    /// The version of `key` kept last.
    kept_ts: u64,
    /// Deletes that were dropped.
    pub(crate) dropped_deletes: u64,
    /// Versions that were dropped because newer ones hide them.
    pub(crate) dropped_versions: u64,
    /// What both weighed.
    pub(crate) dropped_bytes: u64,
}

impl<'a> Retain<'a> {
    pub(crate) fn new(visibility: &'a Visibility, bottom: bool) -> Self {
        Self {
            visibility,
            bottom,
            tombstones: None,
            key: Vec::new(),
            started: false,
            seen_ts: 0,
            kept_ts: 0,
            dropped_deletes: 0,
            dropped_versions: 0,
            dropped_bytes: 0,
        }
    }

    /// So many versions went into others, and weighed so much.
    pub(crate) fn note_dropped(&mut self, (versions, bytes): (u64, u64)) {
        self.dropped_versions += versions;
        self.dropped_bytes += bytes;
    }

    /// Where ranges were deleted.
    pub(crate) fn under(self, tombstones: Option<&'a Tombstones>) -> Self {
        Self { tombstones, ..self }
    }

    /// Whether the next entry stays.
    pub(crate) fn keep(&mut self, entry: Entry<'_>) -> bool {
        let stays = self.judge(entry);
        if !stays {
            self.dropped_bytes += entry.weight();
        }
        stays
    }

    fn judge(&mut self, entry: Entry<'_>) -> bool {
        let same = self.started && self.key == entry.key;
        if !same {
            self.key.clear();
            self.key.extend_from_slice(entry.key);
            self.started = true;
        } else if entry.ts == self.seen_ts {
            // The same version again, after a replay.
            return false;
        }
        self.seen_ts = entry.ts;
        if same && !self.visibility.sees_between(entry.ts, self.kept_ts) {
            self.dropped_versions += 1;
            return false;
        }
        self.kept_ts = entry.ts;
        // Dead for every reader: for what is older it hides as much as a delete would.
        if let Some(tombstones) = self.tombstones
            && tombstones.may_drop(entry, self.visibility.oldest(), self.bottom)
        {
            self.dropped_versions += 1;
            return false;
        }
        // At or before the oldest snapshot: whatever older versions there are, they go too.
        if self.bottom && entry.message == Message::Delete && entry.ts <= self.visibility.oldest() {
            self.dropped_deletes += 1;
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Versions are `ts` for a put and `-ts` for a delete, newest first.
    fn kept(versions: &[i64], horizon: u64, live: &[u64], bottom: bool) -> Vec<i64> {
        let visibility = Visibility::new(horizon, live);
        let mut retain = Retain::new(&visibility, bottom);
        let keep = |version: &&i64| {
            let message = if **version > 0 { Message::Put(b"v") } else { Message::Delete };
            retain.keep(Entry { key: b"k", ts: version.unsigned_abs(), message })
        };
        versions.iter().filter(keep).copied().collect()
    }

    #[test]
    fn only_versions_somebody_sees_stay() {
        assert_eq!(kept(&[9, 7, 5, 3], 10, &[], false), [9]);
        assert_eq!(kept(&[9, 7, 5, 3], 10, &[6], false), [9, 5]);
        assert_eq!(kept(&[9, 7, 5, 3], 10, &[7, 8, 4], false), [9, 7, 3]);
        assert_eq!(kept(&[9, 7, 5, 3], 6, &[], false), [9, 7, 5]);
        assert_eq!(kept(&[9, 7, 5, 3], 6, &[3], false), [9, 7, 5, 3]);
        assert_eq!(kept(&[9, 9, 7, 7], 8, &[], false), [9, 7]);
    }

    #[test]
    fn delete_dies_at_the_bottom_once_no_snapshot_is_older() {
        assert_eq!(kept(&[-9, 7], 10, &[], false), [-9]);
        assert_eq!(kept(&[-9, 7], 10, &[], true), []);
        assert_eq!(kept(&[-9, 7], 10, &[8], true), [-9, 7]);
        assert_eq!(kept(&[-9], 10, &[8], true), [-9]);
        assert_eq!(kept(&[11, -9, 7], 10, &[], true), [11]);
        assert_eq!(kept(&[-9, 9], 10, &[], true), []);
    }
}
