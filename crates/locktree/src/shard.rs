//! One shard of the table: the keys that are held, waited for, or remembered.
//!
//! An entry exists while it has a holder, a waiter or a remembered commit, and no longer.

use crate::ordered::Dictionaries;
use crate::{Granted, Mode, Range};
use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Dictionary (8 bytes, little-endian) and key, hashed once; one allocation shared by table and
/// owner. Derefs to the bytes.
#[derive(Clone)]
pub(crate) struct Name {
    hash: u64,
    bytes: Arc<[u8]>,
}

/// A name that nobody keeps yet.
#[derive(Clone, Copy)]
pub(crate) struct NameRef<'a> {
    hash: u64,
    bytes: &'a [u8],
}

/// A name under construction, without allocation for usual keys.
pub(crate) struct NameBuf {
    hash: u64,
    bytes: SmallVec<[u8; 120]>,
}

/// Bytes an entry costs beside its name: map slot, reference counts, the owner's list.
const ENTRY_BYTES: u64 = 96;

pub(crate) fn name(seed: u64, dictionary: u64, key: &[u8]) -> NameBuf {
    let mut bytes = SmallVec::with_capacity(key.len() + 8);
    bytes.extend_from_slice(&dictionary.to_le_bytes());
    bytes.extend_from_slice(key);
    NameBuf { hash: xxh3_64_with_seed(&bytes, seed), bytes }
}

impl NameBuf {
    pub(crate) fn borrow(&self) -> NameRef<'_> {
        NameRef { hash: self.hash, bytes: &self.bytes }
    }
}

impl Name {
    pub(crate) fn is_of(&self, dictionary: u64, key: &[u8]) -> bool {
        self.bytes.split_first_chunk() == Some((&dictionary.to_le_bytes(), key))
    }

    pub(crate) fn borrow(&self) -> NameRef<'_> {
        NameRef { hash: self.hash, bytes: &self.bytes }
    }
}

impl NameRef<'_> {
    /// Bits that choose the shard: not those that choose the place in its map.
    pub(crate) fn shard(self) -> usize {
        (self.hash >> 32) as usize
    }

    pub(crate) fn is(self, name: &Name) -> bool {
        self.hash == name.hash && *self.bytes == *name.bytes
    }
}

impl From<&NameRef<'_>> for Name {
    fn from(name: &NameRef<'_>) -> Self {
        Self { hash: name.hash, bytes: name.bytes.into() }
    }
}

impl Deref for Name {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Hash for NameRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        other.borrow().is(self)
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.bytes.cmp(&other.bytes)
    }
}

impl hashbrown::Equivalent<Name> for NameRef<'_> {
    fn equivalent(&self, name: &Name) -> bool {
        self.is(name)
    }
}

/// Passes on the hash that a name carries.
#[derive(Default)]
pub(crate) struct Carried(u64);

impl Hasher for Carried {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("names hash as one number");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// The two halves of a name.
pub(crate) fn split(name: &[u8]) -> (u64, &[u8]) {
    let (head, key) = name.split_at(8);
    (u64::from_le_bytes(head.try_into().expect("split_at gave eight bytes")), key)
}

pub(crate) fn cost(name: &[u8]) -> u64 {
    ENTRY_BYTES + name.len() as u64
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
    /// Requests queued for this name in `Waits`; changed only with both locks held.
    pub(crate) waiters: u32,
    /// Newest remembered commit; 0 is none.
    pub(crate) last_commit: u64,
}

impl Entry {
    pub(crate) fn held_by(&self, txn: u64) -> Option<Mode> {
        self.holders.iter().find(|holder| holder.txn == txn).map(|holder| holder.mode)
    }

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
    /// Granted; the name is there where it is new to the transaction.
    Granted(Granted, Option<Name>),
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
    pub(crate) entries: HashMap<Name, Entry, BuildHasherDefault<Carried>>,
    /// Commits remembered on entries, oldest first.
    remembered: VecDeque<(u64, Name)>,
    /// Commits up to this timestamp may have been forgotten.
    floor: u64,
    /// The names of `entries` by dictionary.
    dictionaries: Dictionaries,
    /// Bytes of lock memory taken here and not yet added to the table's sum.
    pub(crate) unreported: i64,
}

impl Shard {
    /// Grants where nobody else holds or waits incompatibly.
    pub(crate) fn try_grant(&mut self, name: NameRef<'_>, txn: u64, mode: Mode) -> Fast {
        let floor = self.floor;
        let mut occupied = match self.entries.entry_ref(&name) {
            EntryRef::Vacant(vacant) => {
                let mut entry = Entry::default();
                entry.add(txn, mode);
                let name = Name::from(&name);
                self.dictionaries.add(&name);
                vacant.insert_with_key(name.clone(), entry);
                let granted = Granted { last_commit: 0, complete_since: floor };
                return Fast::Granted(granted, Some(name));
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

    /// What is known about a name without locking it.
    pub(crate) fn known(&self, name: NameRef<'_>) -> Granted {
        Granted {
            last_commit: self.entries.get(&name).map_or(0, |entry| entry.last_commit),
            complete_since: self.floor,
        }
    }

    /// Removes a holder; remembers `commit` where it held the key exclusively.
    pub(crate) fn release(&mut self, name: &Name, txn: u64, commit: Option<u64>) -> Released {
        let EntryRef::Occupied(mut occupied) = self.entries.entry_ref(&name.borrow()) else {
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
            self.remembered.push_back((ts, name.clone()));
        }
        let waited_for = entry.waiters > 0;
        if entry.is_idle() {
            occupied.remove();
            self.dictionaries.remove(name);
        }
        Released { waited_for, remembered: commit.is_some() }
    }

    pub(crate) fn waiter_joins(&mut self, name: &Name) {
        let entry = self.entries.entry(name.clone()).or_insert_with(|| {
            self.dictionaries.add(name);
            Entry::default()
        });
        entry.waiters += 1;
    }

    pub(crate) fn waiter_leaves(&mut self, name: &Name) {
        let Some(entry) = self.entries.get_mut(&name.borrow()) else { return };
        debug_assert!(entry.waiters > 0, "a request leaves the queue it joined");
        entry.waiters = entry.waiters.saturating_sub(1);
        if entry.is_idle() {
            self.entries.remove(&name.borrow());
            self.dictionaries.remove(name);
        }
    }

    /// The entries of a dictionary within a range, in the order of their keys.
    pub(crate) fn within<'a>(
        &'a mut self,
        dictionary: u64,
        range: &'a Range,
    ) -> impl Iterator<Item = (&'a Name, &'a Entry)> {
        let entries = &self.entries;
        let names = self.dictionaries.within(dictionary, range, entries.keys());
        names.filter_map(|name| Some((name, entries.get(&name.borrow())?)))
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
            let Some((ts, name)) = self.remembered.pop_front() else { break };
            freed += cost(&name);
            if ts > oldest_snapshot {
                self.floor = self.floor.max(ts);
            }
            if let Some(entry) = self.entries.get_mut(&name.borrow())
                && entry.last_commit <= ts
            {
                entry.last_commit = 0;
                if entry.is_idle() {
                    self.entries.remove(&name.borrow());
                    self.dictionaries.remove(&name);
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
