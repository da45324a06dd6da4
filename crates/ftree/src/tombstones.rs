//! Range tombstones: deletes of all that lies in a range, told in one step whatever the number of keys.
//!
//! A version is dead for a reader where a tombstone covers it that is newer than the version and not newer than
//! what the reader sees. What is newer than the tombstone, or of the same commit, is not touched by it. What
//! is compared with the range is the key, or a part of the entry that whoever opened the trees finds in it
//! ([`RecordPart`]).
//!
//! Always true:
//! 1. A tree's list changes by a swap of its state, before the commit that adds to it becomes visible.
//! 2. A tombstone goes once no snapshot is older and nothing that it covers is left ([`crate::tree`]'s sweep).
//! 3. An empty list costs a reader one branch.
//!
//! On disk: `docs/formats/node.md`, section "Tree image, version 2".

use crate::bytes::{Reader, put_bytes, put_u64, put_varint};
use crate::message::{Entry, KeyRange, Message};
use crate::segment::{Bounds, Content};
use std::ops::Bound;

/// A tree takes no further tombstone where it has so many: each of them is asked of every entry that is read.
pub const MAX_TOMBSTONES: usize = 64;

/// So many are read from an image: commits that came at the same time may go a little over the limit.
const MOST_STORED: usize = 16 * MAX_TOMBSTONES;

/// Finds in an entry what is compared with a tombstone's range. The first argument says how, and is never
/// empty; the value is missing where it lies by itself. `None` where the entry has no such part.
pub type RecordPart = for<'a> fn(&[u8], &'a [u8], Option<&'a [u8]>) -> Option<&'a [u8]>;

/// Entries have no parts.
pub fn no_parts<'a>(_: &[u8], _: &'a [u8], _: Option<&'a [u8]>) -> Option<&'a [u8]> {
    None
}

/// What would go wrong with tombstones: tests see it found.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TombstoneBug {
    /// Cursors that go backward do not ask for them.
    BackwardIgnores,
    /// They are no writes of the keys that they cover.
    ConflictIgnores,
    /// The sweep frees what a snapshot sees.
    FreesSeen,
}

/// A delete of everything in a range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tombstone {
    /// The commit.
    pub ts: u64,
    /// Where the range begins.
    pub lower: Vec<u8>,
    /// Where it ends, itself outside; `None` is at the end of all.
    pub upper: Option<Vec<u8>>,
    /// What is compared with the range: how to find it in an entry. Empty for the key itself.
    pub part: Vec<u8>,
}

impl Tombstone {
    /// Of a range.
    pub fn new(ts: u64, range: &KeyRange, part: &[u8]) -> Self {
        let behind = |key: &[u8]| [key, &[0]].concat();
        let lower = match &range.lower {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.clone(),
            Bound::Excluded(key) => behind(key),
        };
        let upper = match &range.upper {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(behind(key)),
            Bound::Excluded(key) => Some(key.clone()),
        };
        Self { ts, lower, upper, part: part.to_vec() }
    }

    fn is_of_keys(&self) -> bool {
        self.part.is_empty()
    }

    fn has(&self, bytes: &[u8]) -> bool {
        bytes >= &self.lower[..] && self.upper.as_ref().is_none_or(|upper| bytes < &upper[..])
    }

    fn is_everything(&self) -> bool {
        self.lower.is_empty() && self.upper.is_none()
    }

    /// Whether it covers an entry, whatever its timestamp. One over everything also covers what has no such
    /// part.
    pub fn covers(&self, key: &[u8], value: Option<&[u8]>, record_part: RecordPart) -> bool {
        if self.is_of_keys() {
            return self.has(key);
        }
        if self.is_everything() {
            return true;
        }
        record_part(&self.part, key, value).is_some_and(|part| self.has(part))
    }

    /// Whether it may cover some of the keys within bounds.
    pub(crate) fn meets(&self, bounds: &Bounds) -> bool {
        let ends_before = bounds
            .lower
            .as_ref()
            .is_some_and(|lower| self.upper.as_ref().is_some_and(|upper| lower[..] >= upper[..]));
        let begins_behind = bounds.upper.as_ref().is_some_and(|upper| upper[..] < self.lower[..]);
        !self.is_of_keys() || !(ends_before || begins_behind)
    }

    /// Whether a segment may hold something within bounds that it covers and that is older.
    pub(crate) fn is_of(&self, content: &Content, bounds: &Bounds) -> bool {
        let keys = !self.is_of_keys()
            || (content.max_key[..] >= self.lower[..]
                && self.upper.as_ref().is_none_or(|upper| content.min_key[..] < upper[..]));
        content.min_ts < self.ts && keys && self.meets(bounds)
    }

    /// Whether it covers all that a segment has within bounds, and is newer.
    pub(crate) fn has_all_of(&self, content: &Content, bounds: &Bounds) -> bool {
        if content.max_ts >= self.ts {
            return false;
        }
        if !self.is_of_keys() {
            return self.is_everything();
        }
        let lower = bounds.lower.as_deref().unwrap_or_default().max(&content.min_key);
        let upper =
            bounds.upper.as_deref().map_or(&content.max_key[..], |key| key.min(&content.max_key));
        lower >= &self.lower[..] && self.upper.as_ref().is_none_or(|end| upper < &end[..])
    }
}

/// The tombstones of a tree; there is at least one.
pub(crate) struct Tombstones {
    list: Vec<Tombstone>,
    record_part: RecordPart,
    pub(crate) planted: Option<TombstoneBug>,
}

impl Tombstones {
    /// `None` where the list is empty.
    pub(crate) fn new(
        list: Vec<Tombstone>,
        record_part: RecordPart,
        planted: Option<TombstoneBug>,
    ) -> Option<Self> {
        (!list.is_empty()).then_some(Self { list, record_part, planted })
    }

    pub(crate) fn list(&self) -> &[Tombstone] {
        &self.list
    }

    /// Whether a version that a reader at `at` sees is dead for it.
    pub(crate) fn hides(&self, key: &[u8], value: Option<&[u8]>, ts: u64, at: u64) -> bool {
        self.newest(key, value, ts, at).is_some()
    }

    /// As [`Tombstones::hides`].
    pub(crate) fn hides_entry(&self, entry: Entry<'_>, at: u64) -> bool {
        let value = entry.message.value();
        entry.message != Message::Delete && self.hides(entry.key, value, entry.ts, at)
    }

    /// The newest tombstone up to `at` that covers a version and is newer than it.
    pub(crate) fn newest(&self, key: &[u8], value: Option<&[u8]>, ts: u64, at: u64) -> Option<u64> {
        let newer = self.list.iter().filter(|one| ts < one.ts && one.ts <= at);
        newer.filter(|one| one.covers(key, value, self.record_part)).map(|one| one.ts).max()
    }

    /// The newest tombstone up to `at` that covers a key, whatever it holds; 0 where there is none. What is older is
    /// nothing to what is not.
    pub(crate) fn newest_of_key(&self, key: &[u8], at: u64) -> u64 {
        self.newest(key, None, 0, at).unwrap_or(0)
    }

    /// Whether a merge may drop an entry where nobody reads before `oldest`. At the bottom nothing older lies
    /// below. Elsewhere something may, and it must be dead as well: it is where the key alone tells.
    pub(crate) fn may_drop(&self, entry: Entry<'_>, oldest: u64, bottom: bool) -> bool {
        if entry.message == Message::Delete {
            return false;
        }
        let value = if bottom { entry.message.value() } else { None };
        self.hides(entry.key, value, entry.ts, oldest)
    }

    /// Appends those up to `flushed_ts` as an image stores them.
    pub(crate) fn encode(&self, flushed_ts: u64, out: &mut Vec<u8>) {
        let stored: Vec<&Tombstone> = self.list.iter().filter(|one| one.ts <= flushed_ts).collect();
        put_varint(out, stored.len() as u64);
        for one in stored {
            put_u64(out, one.ts);
            put_bytes(out, &one.part);
            put_bytes(out, &one.lower);
            out.push(u8::from(one.upper.is_some()));
            if let Some(upper) = &one.upper {
                put_bytes(out, upper);
            }
        }
    }
}

/// Reads what [`Tombstones::encode`] wrote, all of it.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Tombstone>> {
    let mut reader = Reader::new(bytes);
    let count: usize = reader.number()?;
    if count > MOST_STORED {
        return None;
    }
    let mut list = Vec::with_capacity(count);
    for _ in 0..count {
        let ts = u64::from_le_bytes(*reader.take(8)?.first_chunk()?);
        let (part, lower) = (reader.bytes()?.to_vec(), reader.bytes()?.to_vec());
        let upper = match reader.byte()? {
            0 => None,
            1 => Some(reader.bytes()?.to_vec()),
            _ => return None,
        };
        if ts == 0 || ts == u64::MAX {
            return None;
        }
        list.push(Tombstone { ts, lower, upper, part });
    }
    (reader.remaining() == 0).then_some(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn range(lower: &[u8], upper: &[u8]) -> KeyRange {
        KeyRange { lower: Bound::Included(lower.to_vec()), upper: Bound::Excluded(upper.to_vec()) }
    }

    fn bounds(lower: Option<&[u8]>, upper: Option<&[u8]>) -> Bounds {
        let arc = |key: &[u8]| -> Arc<[u8]> { key.into() };
        Bounds { lower: lower.map(arc), upper: upper.map(arc) }
    }

    #[test]
    fn what_is_newer_or_of_the_same_commit_lives() {
        let list = vec![Tombstone::new(10, &range(b"b", b"d"), &[])];
        let list = Tombstones::new(list, no_parts, None).unwrap();
        for (key, ts, at, hidden) in [
            (b"b", 9, 10, true),
            (b"c", 9, 11, true),
            (b"c", 9, 9, false),
            (b"c", 10, 11, false),
            (b"c", 11, 12, false),
            (b"a", 9, 11, false),
            (b"d", 9, 11, false),
        ] {
            assert_eq!(list.hides(key, Some(b""), ts, at), hidden, "{key:?} {ts} {at}");
        }
    }

    #[test]
    fn ranges_meet_children_that_have_some_of_their_keys() {
        let one = Tombstone::new(1, &range(b"b", b"d"), &[]);
        for (lower, upper, meets) in [
            (None, None, true),
            (None, Some(&b"a"[..]), false),
            (None, Some(b"b"), true),
            (Some(&b"c"[..]), None, true),
            // A child's keys are greater than its lower bound.
            (Some(b"d"), None, false),
            (Some(b"e"), None, false),
        ] {
            assert_eq!(one.meets(&bounds(lower, upper)), meets, "{lower:?} {upper:?}");
        }
        assert!(Tombstone::new(1, &range(b"b", b"d"), b"p").meets(&bounds(Some(b"x"), None)));
    }

    #[test]
    fn where_the_value_tells_only_the_bottom_drops() {
        fn part<'a>(_: &[u8], _: &'a [u8], value: Option<&'a [u8]>) -> Option<&'a [u8]> {
            value
        }
        let list = vec![Tombstone::new(10, &range(b"b", b"d"), b"p")];
        let list = Tombstones::new(list, part, None).unwrap();
        let entry = Entry { key: b"k", ts: 5, message: Message::Put(b"c") };
        assert!(list.hides_entry(entry, 10));
        assert!(list.may_drop(entry, 10, true));
        assert!(!list.may_drop(entry, 10, false));
        assert!(!list.may_drop(entry, 9, true));
    }

    #[test]
    fn images_read_back() {
        let list = vec![
            Tombstone::new(10, &range(b"b", b"d"), &[]),
            Tombstone::new(11, &KeyRange::all(), b"part"),
            Tombstone::new(12, &KeyRange::all(), b""),
        ];
        let mut bytes = Vec::new();
        Tombstones::new(list.clone(), no_parts, None).unwrap().encode(11, &mut bytes);
        assert_eq!(decode(&bytes).unwrap(), list[..2]);
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), None, "{end}");
        }
    }
}
