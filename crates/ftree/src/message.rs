//! What the tree stores: a key, the commit timestamp that wrote it, and what was written.
//!
//! Entries are ordered by key ascending, then by timestamp descending: the newest version of a
//! key comes first. Timestamp 0 is reserved, so that `Place { key, ts: 0 }` lies behind every
//! version of `key` and `Place { key, ts: u64::MAX }` before all of them.
//!
//! On disk: `docs/formats/message.md`.

use std::cmp::Ordering;
use std::ops::Bound;

/// What one commit did to one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// The key now has this value.
    Put(&'a [u8]),
    /// The key is gone.
    Delete,
    /// The key's value changes as [`crate::Updates`] says of this argument.
    Update(&'a [u8]),
    /// The key now has a value that lies by itself; the bytes say where. Only the tree makes these,
    /// and nobody outside meets one.
    Large(&'a [u8]),
}

impl<'a> Message<'a> {
    /// The value, if there is one.
    pub fn value(self) -> Option<&'a [u8]> {
        match self {
            Message::Put(value) => Some(value),
            Message::Delete | Message::Update(_) | Message::Large(_) => None,
        }
    }

    pub(crate) fn kind(self) -> Kind {
        match self {
            Message::Put(_) => Kind::Put,
            Message::Delete => Kind::Delete,
            Message::Update(_) => Kind::Update,
            Message::Large(_) => Kind::Large,
        }
    }

    pub(crate) fn payload(self) -> &'a [u8] {
        match self {
            Message::Put(bytes) | Message::Update(bytes) | Message::Large(bytes) => bytes,
            Message::Delete => &[],
        }
    }

    pub(crate) fn of(kind: Kind, payload: &'a [u8]) -> Self {
        match kind {
            Kind::Put => Message::Put(payload),
            Kind::Delete => Message::Delete,
            Kind::Update => Message::Update(payload),
            Kind::Large => Message::Large(payload),
        }
    }
}

/// The number a message has on disk. 3 (`RangeDelete`) is kept free for the message that
/// `docs/formats/message.md` names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Put = 0,
    Delete = 1,
    Update = 2,
    Large = 4,
}

impl Kind {
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Put),
            1 => Some(Self::Delete),
            2 => Some(Self::Update),
            4 => Some(Self::Large),
            _ => None,
        }
    }
}

/// One version of one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) ts: u64,
    pub(crate) message: Message<'a>,
}

impl<'a> Entry<'a> {
    pub(crate) fn place(&self) -> Place<'a> {
        Place { key: self.key, ts: self.ts }
    }

    /// What the entry counts for in buffer budgets: its bytes and a small header.
    pub(crate) fn weight(&self) -> u64 {
        (self.key.len() + self.message.payload().len()) as u64 + HEADER_WEIGHT
    }
}

/// What an entry counts for in buffer budgets besides its bytes.
pub(crate) const HEADER_WEIGHT: u64 = 10;

/// A position in the order of entries, whether or not an entry is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) ts: u64,
}

impl<'a> Place<'a> {
    /// Before every version of `key`.
    pub(crate) fn before(key: &'a [u8]) -> Self {
        Self { key, ts: u64::MAX }
    }

    /// Behind every version of `key`.
    pub(crate) fn behind(key: &'a [u8]) -> Self {
        Self { key, ts: 0 }
    }
}

impl Ord for Place<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(other.key).then_with(|| other.ts.cmp(&self.ts))
    }
}

impl PartialOrd for Place<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The first eight bytes of `key` as a number that orders as the bytes do.
pub(crate) fn head(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let taken = key.len().min(8);
    bytes[..taken].copy_from_slice(&key[..taken]);
    u64::from_be_bytes(bytes)
}

/// The part of a tree a cursor walks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRange {
    /// Where it starts in key order.
    pub lower: Bound<Vec<u8>>,
    /// Where it ends in key order.
    pub upper: Bound<Vec<u8>>,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> Self {
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    /// True where `key` is not beyond the range's end.
    pub(crate) fn below_upper(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Unbounded => true,
            Bound::Included(upper) => key <= &upper[..],
            Bound::Excluded(upper) => key < &upper[..],
        }
    }

    /// True where `key` is not before the range's start.
    pub(crate) fn above_lower(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Unbounded => true,
            Bound::Included(lower) => key >= &lower[..],
            Bound::Excluded(lower) => key > &lower[..],
        }
    }
}

/// Which way a cursor walks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// Ascending keys.
    #[default]
    Forward,
    /// Descending keys.
    Backward,
}

/// Which versions somebody can still read; merges keep those and drop the others.
///
/// Taken by the engine under the lock that hands out snapshots: every snapshot created later has
/// a timestamp of at least `horizon`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Visibility {
    horizon: u64,
    live: Vec<u64>,
    /// What is newer stays in memory, where that is asked for.
    drains_to: Option<u64>,
}

impl Visibility {
    /// `horizon` is the published commit watermark, `live` the timestamps of live snapshots in
    /// any order. Live snapshots above the horizon are allowed.
    pub fn new(horizon: u64, live: &[u64]) -> Self {
        let mut live: Vec<u64> = live.iter().copied().filter(|ts| *ts < horizon).collect();
        live.push(horizon);
        live.sort_unstable_by(|a, b| b.cmp(a));
        live.dedup();
        Self { horizon, live, drains_to: None }
    }

    /// And what is newer than this stays in memory: it may be overwritten
    /// ([`Tree::forget_after`](crate::Tree::forget_after)), and on disk nothing is undone.
    #[must_use]
    pub fn draining_to(self, timestamp: u64) -> Self {
        Self { drains_to: Some(timestamp), ..self }
    }

    /// See [`Visibility::draining_to`].
    pub(crate) fn drains_to(&self) -> Option<u64> {
        self.drains_to
    }

    /// Nobody reads the past: only the newest version of each key at `horizon` and all later
    /// ones count.
    pub fn newest_only(horizon: u64) -> Self {
        Self::new(horizon, &[])
    }

    /// The oldest timestamp anybody reads at.
    pub(crate) fn oldest(&self) -> u64 {
        self.live.last().copied().unwrap_or(self.horizon)
    }

    /// Some reader sees a version written at `ts` although a newer one was written at `newer`.
    pub(crate) fn sees_between(&self, ts: u64, newer: u64) -> bool {
        if newer > self.horizon {
            // The newer one may be invisible to snapshots at or above the horizon.
            return true;
        }
        let below_newer = self.live.partition_point(|snapshot| *snapshot >= newer);
        self.live.get(below_newer).is_some_and(|snapshot| *snapshot >= ts)
    }
}
