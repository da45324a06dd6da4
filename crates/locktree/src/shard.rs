//! One shard of the table: the keys that are held, waited for, or remembered.
//!
//! An entry exists while it has a holder, a waiter or a remembered commit, and no longer.

use crate::{Granted, Mode};
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3Builder;

/// Dictionary (8 bytes, little-endian) and key, as one allocation shared by table and owner.
pub(crate) type Name = Arc<[u8]>;

/// A name under construction, without allocation for usual keys.
pub(crate) type NameBuf = SmallVec<[u8; 120]>;

/// Bytes an entry costs beside its name: map slot, reference counts, the owner's list.
const ENTRY_BYTES: u64 = 96;

pub(crate) fn name(dictionary: u64, key: &[u8]) -> NameBuf {
    let mut buf = NameBuf::with_capacity(key.len() + 8);
    buf.extend_from_slice(&dictionary.to_le_bytes());
    buf.extend_from_slice(key);
    buf
}

/// The two halves of a name.
pub(crate) fn split(name: &[u8]) -> (u64, &[u8]) {
    let (head, key) = name.split_at(8);
    (u64::from_le_bytes(head.try_into().expect("split_at gave eight bytes")), key)
}

pub(crate) fn cost(name: &[u8]) -> u64 {
    ENTRY_BYTES + name.len() as u64
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
    pub(crate) entries: HashMap<Name, Entry, Xxh3Builder>,
    /// Commits remembered on entries, oldest first.
    remembered: VecDeque<(u64, Name)>,
    /// Commits up to this timestamp may have been forgotten.
    floor: u64,
}

impl Shard {
    /// Grants where nobody else holds or waits incompatibly.
    pub(crate) fn try_grant(&mut self, name: &[u8], txn: u64, mode: Mode) -> Fast {
        let floor = self.floor;
        let Some(entry) = self.entries.get_mut(name) else {
            let name: Name = name.into();
            let mut entry = Entry::default();
            entry.add(txn, mode);
            self.entries.insert(Arc::clone(&name), entry);
            return Fast::Granted(Granted { last_commit: 0, complete_since: floor }, Some(name));
        };
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
                let (name, _) = self.entries.get_key_value(name).expect("it was found above");
                Fast::Granted(granted, Some(Arc::clone(name)))
            }
            _ => Fast::Contended,
        }
    }

    /// What is known about a name without locking it.
    pub(crate) fn known(&self, name: &[u8]) -> Granted {
        Granted {
            last_commit: self.entries.get(name).map_or(0, |entry| entry.last_commit),
            complete_since: self.floor,
        }
    }

    /// Removes a holder; remembers `commit` where it held the key exclusively.
    pub(crate) fn release(&mut self, name: &Name, txn: u64, commit: Option<u64>) -> Released {
        let Some(entry) = self.entries.get_mut(&**name) else { return Released::default() };
        let exclusive = entry.held_by(txn) == Some(Mode::Exclusive);
        entry.holders.retain(|holder| holder.txn != txn);
        let commit = commit.filter(|_| exclusive);
        if let Some(ts) = commit {
            entry.last_commit = entry.last_commit.max(ts);
            self.remembered.push_back((ts, Arc::clone(name)));
        }
        let waited_for = entry.waiters > 0;
        if entry.is_idle() {
            self.entries.remove(&**name);
        }
        Released { waited_for, remembered: commit.is_some() }
    }

    pub(crate) fn waiter_joins(&mut self, name: &Name) {
        self.entries.entry(Arc::clone(name)).or_default().waiters += 1;
    }

    pub(crate) fn waiter_leaves(&mut self, name: &Name) {
        let Some(entry) = self.entries.get_mut(&**name) else { return };
        entry.waiters = entry.waiters.saturating_sub(1);
        if entry.is_idle() {
            self.entries.remove(&**name);
        }
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
            if let Some(entry) = self.entries.get_mut(&*name)
                && entry.last_commit <= ts
            {
                entry.last_commit = 0;
                if entry.is_idle() {
                    self.entries.remove(&*name);
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
