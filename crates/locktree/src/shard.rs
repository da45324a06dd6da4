//! One shard of the table: the keys that are held, waited for, or remembered.
//!
//! An entry exists while it has a holder, a waiter or a remembered commit, and no longer.

use crate::ordered::Dictionaries;
use crate::{Granted, Mode, Range};
use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;
use os::SharedBytes;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::ops::Deref;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Dictionary (8 bytes, little-endian) and key, hashed once; those of long keys are shared by table and
/// owner. Derefs to the bytes.
#[derive(Clone)]
pub(crate) struct LockId {
    hash: u64,
    bytes: SharedBytes,
}

/// A lock id that nobody keeps yet.
#[derive(Clone, Copy)]
pub(crate) struct LockIdRef<'a> {
    hash: u64,
    bytes: &'a [u8],
}

/// A lock id under construction, without allocation for usual keys.
pub(crate) struct LockIdBuf {
    hash: u64,
    bytes: SmallVec<[u8; 120]>,
}

/// Bytes an entry costs beside its id: map slot, reference counts, the owner's list.
const ENTRY_BYTES: u64 = 96;

#[inline]
pub(crate) fn lock_id(seed: u64, dictionary: u64, key: &[u8]) -> LockIdBuf {
    let mut bytes = SmallVec::from_elem(0, key.len() + 8);
    let (head, rest) = bytes.split_at_mut(8);
    head.copy_from_slice(&dictionary.to_le_bytes());
    rest.copy_from_slice(key);
    LockIdBuf { hash: xxh3_64_with_seed(&bytes, seed), bytes }
}

impl LockIdBuf {
    pub(crate) fn borrow(&self) -> LockIdRef<'_> {
        LockIdRef { hash: self.hash, bytes: &self.bytes }
    }
}

impl LockId {
    pub(crate) fn is_of(&self, dictionary: u64, key: &[u8]) -> bool {
        self.bytes.split_first_chunk() == Some((&dictionary.to_le_bytes(), key))
    }

    pub(crate) fn borrow(&self) -> LockIdRef<'_> {
        LockIdRef { hash: self.hash, bytes: &self.bytes }
    }
}

impl LockIdRef<'_> {
    /// Bits that choose the shard: not those that choose the place in its map.
    pub(crate) fn shard(self) -> usize {
        (self.hash >> 32) as usize
    }

    pub(crate) fn is(self, id: &LockId) -> bool {
        self.hash == id.hash && *self.bytes == *id.bytes
    }
}

impl From<&LockIdRef<'_>> for LockId {
    fn from(id: &LockIdRef<'_>) -> Self {
        Self { hash: id.hash, bytes: id.bytes.into() }
    }
}

impl Deref for LockId {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Hash for LockId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Hash for LockIdRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialEq for LockId {
    fn eq(&self, other: &Self) -> bool {
        other.borrow().is(self)
    }
}

impl Eq for LockId {}

impl PartialOrd for LockId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LockId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.bytes.cmp(&other.bytes)
    }
}

impl hashbrown::Equivalent<LockId> for LockIdRef<'_> {
    fn equivalent(&self, id: &LockId) -> bool {
        self.is(id)
    }
}

/// Passes on the hash that a lock id carries.
#[derive(Default)]
pub(crate) struct Carried(u64);

impl Hasher for Carried {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("ids hash as one number");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// The two halves of a lock id.
pub(crate) fn split(id: &[u8]) -> (u64, &[u8]) {
    let (head, key) = id.split_at(8);
    (u64::from_le_bytes(head.try_into().expect("split_at gave eight bytes")), key)
}

pub(crate) fn cost(id: &[u8]) -> u64 {
    ENTRY_BYTES + id.len() as u64
}

/// What a range that is held costs.
pub(crate) fn cost_of_range(range: &Range) -> u64 {
    // Its ends are kept by the table and by the owner.
    ENTRY_BYTES + 2 * range.bytes() as u64
}

#[derive(Clone, Copy)]
pub(crate) struct Holder {
    pub(crate) txn: u64,
    pub(crate) mode: Mode,
}

#[derive(Default)]
pub(crate) struct Entry {
    pub(crate) holders: SmallVec<[Holder; 1]>,
    /// Requests queued for this id in `Waits`; changed only with both locks held.
    pub(crate) waiters: u32,
    /// Newest remembered commit; 0 is none.
    pub(crate) last_commit: u64,
}

impl Entry {
    #[inline]
    pub(crate) fn held_by(&self, txn: u64) -> Option<Mode> {
        self.holders.iter().find(|holder| holder.txn == txn).map(|holder| holder.mode)
    }

    #[inline]
    pub(crate) fn add(&mut self, txn: u64, mode: Mode) {
        match self.holders.iter_mut().find(|holder| holder.txn == txn) {
            Some(own) => own.mode = own.mode.max(mode),
            None => self.holders.push(Holder { txn, mode }),
        }
        let exclusive = self.holders.iter().any(|holder| holder.mode == Mode::Exclusive);
        debug_assert!(!exclusive || self.holders.len() == 1, "an exclusive lock has one holder");
    }

    fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.waiters == 0 && self.last_commit == 0
    }
}

/// What the uncontended path found.
pub(crate) enum Fast {
    /// Granted; the id is there where it is new to the transaction.
    Granted(Granted, Option<LockId>),
    /// Somebody is in the way, or waits: take the slow path.
    Contended,
}

/// What opening a lock left behind.
#[derive(Clone, Copy, Default)]
pub(crate) struct Released {
    /// Somebody waits for the key.
    pub(crate) waited_for: bool,
    /// The entry stays, with the commit's timestamp.
    pub(crate) remembered: bool,
}

#[derive(Default)]
pub(crate) struct Shard {
    pub(crate) entries: HashMap<LockId, Entry, BuildHasherDefault<Carried>>,
    /// Commits remembered on entries, oldest first.
    remembered: VecDeque<(u64, LockId)>,
    /// Commits up to this timestamp may have been forgotten.
    floor: u64,
    /// The ids of `entries` by dictionary.
    dictionaries: Dictionaries,
    /// Bytes of lock memory taken here and not yet added to the table's sum.
    pub(crate) unreported: i64,
}

impl Shard {
    /// Grants where nobody else holds or waits incompatibly.
    pub(crate) fn try_grant(&mut self, id: LockIdRef<'_>, txn: u64, mode: Mode) -> Fast {
        let floor = self.floor;
        let mut occupied = match self.entries.entry_ref(&id) {
            EntryRef::Vacant(vacant) => {
                let mut entry = Entry::default();
                entry.add(txn, mode);
                let id = LockId::from(&id);
                self.dictionaries.add(&id);
                vacant.insert_with_key(id.clone(), entry);
                let granted = Granted { last_commit: 0, complete_since: floor };
                return Fast::Granted(granted, Some(id));
            }
            EntryRef::Occupied(occupied) => occupied,
        };
        let entry = occupied.get_mut();
        let granted = Granted { last_commit: entry.last_commit, complete_since: floor };
        match entry.held_by(txn) {
            Some(own) if own >= mode => Fast::Granted(granted, None),
            Some(_) if entry.holders.len() == 1 && entry.waiters == 0 => {
                entry.add(txn, mode);
                Fast::Granted(granted, None)
            }
            None if entry.waiters == 0
                && entry.holders.iter().all(|holder| holder.mode.compatible(mode)) =>
            {
                entry.add(txn, mode);
                Fast::Granted(granted, Some(occupied.key().clone()))
            }
            _ => Fast::Contended,
        }
    }

    /// What is known about a lock id without locking it.
    pub(crate) fn known(&self, id: LockIdRef<'_>) -> Granted {
        Granted {
            last_commit: self.entries.get(&id).map_or(0, |entry| entry.last_commit),
            complete_since: self.floor,
        }
    }

    /// Removes a holder; remembers `commit` where it held the key exclusively.
    pub(crate) fn release(&mut self, id: &LockId, txn: u64, commit: Option<u64>) -> Released {
        let EntryRef::Occupied(mut occupied) = self.entries.entry_ref(&id.borrow()) else {
            return Released::default();
        };
        let entry = occupied.get_mut();
        let mode = entry.held_by(txn);
        debug_assert!(mode.is_some(), "a lock that is opened is held");
        let exclusive = mode == Some(Mode::Exclusive);
        entry.holders.retain(|holder| holder.txn != txn);
        let commit = commit.filter(|_| exclusive);
        if let Some(ts) = commit {
            entry.last_commit = entry.last_commit.max(ts);
            self.remembered.push_back((ts, id.clone()));
        }
        let waited_for = entry.waiters > 0;
        if entry.is_idle() {
            occupied.remove();
            self.dictionaries.remove(id);
        }
        Released { waited_for, remembered: commit.is_some() }
    }

    pub(crate) fn waiter_joins(&mut self, id: &LockId) {
        let entry = self.entries.entry(id.clone()).or_insert_with(|| {
            self.dictionaries.add(id);
            Entry::default()
        });
        entry.waiters += 1;
    }

    pub(crate) fn waiter_leaves(&mut self, id: &LockId) {
        let Some(entry) = self.entries.get_mut(&id.borrow()) else { return };
        debug_assert!(entry.waiters > 0, "a request leaves the queue it joined");
        entry.waiters = entry.waiters.saturating_sub(1);
        if entry.is_idle() {
            self.entries.remove(&id.borrow());
            self.dictionaries.remove(id);
        }
    }

    /// The entries of a dictionary within a range, in the order of their keys.
    pub(crate) fn within<'a>(
        &'a mut self,
        dictionary: u64,
        range: &'a Range,
    ) -> impl Iterator<Item = (&'a LockId, &'a Entry)> {
        let entries = &self.entries;
        let ids = self.dictionaries.within(dictionary, range, entries.keys());
        ids.filter_map(|id| Some((id, entries.get(&id.borrow())?)))
    }

    /// Called now and then: what only ranges need is let go of where none are asked for.
    pub(crate) fn age(&mut self) {
        self.dictionaries.age();
    }

    /// Forgets commits that no snapshot older than `oldest_snapshot` can conflict with; with
    /// `at_most`, forgets more, oldest first, and moves the floor. Returns the bytes freed.
    pub(crate) fn forget(&mut self, oldest_snapshot: u64, at_most: usize) -> u64 {
        let mut freed = 0;
        while let Some((ts, _)) = self.remembered.front() {
            if *ts > oldest_snapshot && self.remembered.len() <= at_most {
                break;
            }
            let Some((ts, id)) = self.remembered.pop_front() else { break };
            freed += cost(&id);
            if ts > oldest_snapshot {
                self.floor = self.floor.max(ts);
            }
            if let Some(entry) = self.entries.get_mut(&id.borrow())
                && entry.last_commit <= ts
            {
                entry.last_commit = 0;
                if entry.is_idle() {
                    self.entries.remove(&id.borrow());
                    self.dictionaries.remove(&id);
                }
            }
        }
        if self.entries.capacity() > 1024 && self.entries.len() * 8 < self.entries.capacity() {
            self.entries.shrink_to(self.entries.len() * 2);
            self.remembered.shrink_to(self.remembered.len() * 2);
        }
        freed
    }

    pub(crate) fn remembered(&self) -> usize {
        self.remembered.len()
    }
}
