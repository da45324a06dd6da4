//! Tombstones of a tree: how they come, what reads make of them, how they go.
//!
//! From → to: a commit adds one before it becomes visible [`Tree::add_tombstone`]; readers ask the list for each
//! version that they would see; merges drop what is dead for everybody ([`crate::retain`]); a sweep, which
//! is background work ([`super::work`]), sees to it that nothing older is left, and takes it from the list
//! [`Tree::retire`].

use super::{Lookup, State, Tree};
use crate::error::Result;
use crate::message::{Kind, Message};
use crate::spill::Written;
use crate::tombstones::{MAX_TOMBSTONES, Tombstone, TombstoneBug, Tombstones};
use crate::value::Value;
use os::sync::atomic::AtomicBool;
use std::sync::Arc;

impl State {
    /// The same with other tombstones. The active memtable stays, so inserts need not wait.
    fn with_tombstones(&self, tombstones: Option<Tombstones>) -> Self {
        Self {
            active: Arc::clone(&self.active),
            sealed: self.sealed.clone(),
            root: Arc::clone(&self.root),
            flushed_ts: self.flushed_ts,
            sequence: self.sequence,
            tombstones: tombstones.map(Arc::new),
            installed: AtomicBool::new(true),
        }
    }

    pub(super) fn tombstone_list(&self) -> &[Tombstone] {
        self.tombstones.as_ref().map_or(&[], |tombstones| tombstones.list())
    }
}

impl Tree {
    /// Whether there is room for one more tombstone. Commits that come at the same time may go a little over
    /// the limit.
    pub fn has_tombstone_room(&self) -> bool {
        self.pin().tombstone_list().len() < MAX_TOMBSTONES
    }

    /// Whether some compare parts of entries.
    pub fn has_tombstones_of_parts(&self) -> bool {
        self.pin().tombstone_list().iter().any(|one| !one.part.is_empty())
    }

    /// How many tombstones there are.
    pub fn tombstones(&self) -> usize {
        self.pin().tombstone_list().len()
    }

    /// Deletes everything in a range that is older than the tombstone's commit. As with [`Tree::insert`] the
    /// caller made it durable, and keeps other writers out of the range until the commit is visible; the same
    /// one again changes nothing. Touches no disk.
    pub fn add_tombstone(&self, tombstone: Tombstone) {
        assert!(tombstone.ts != 0 && tombstone.ts != u64::MAX, "0 and MAX are places");
        let _swap = self.publish.lock();
        let state = self.pin();
        let mut list = state.tombstone_list().to_vec();
        if list.contains(&tombstone) {
            return;
        }
        list.push(tombstone);
        let next = state.with_tombstones(self.context.tombstones(list));
        self.pins.publish(&Arc::new(next));
    }

    /// Nothing that these cover is left, and no snapshot is older.
    pub(super) fn retire(&self, swept: &[Tombstone]) {
        let _swap = self.publish.lock();
        let state = self.pin();
        let left = state.tombstone_list().iter().filter(|one| !swept.contains(one));
        let left = left.cloned().collect();
        let next = state.with_tombstones(self.context.tombstones(left));
        self.pins.publish(&Arc::new(next));
    }

    /// As [`Tree::get`], where there are tombstones.
    pub(super) fn get_under(
        &self,
        state: &State,
        tombstones: &Tombstones,
        key: &[u8],
        ts: u64,
    ) -> Result<Option<Value>> {
        let Some((version, found)) = self.version(state, key, ts)? else { return Ok(None) };
        let value = match &found {
            Version::Gone => return Ok(None),
            Version::Value(value) => Some(&**value),
            Version::Update => None,
        };
        if tombstones.hides(key, value, version, ts) {
            return Ok(None);
        }
        match found {
            Version::Value(value) => Ok(Some(value)),
            _ => self.get_folded(key, ts),
        }
    }

    /// The version of `key` that a reader at `ts` would see if there were no tombstones.
    fn version(&self, state: &State, key: &[u8], ts: u64) -> Result<Option<(u64, Version)>> {
        let of = |value: Option<Value>| value.map_or(Version::Gone, Version::Value);
        let found = self.find(state, key, ts, true, |table, ts, message| {
            let version = match message {
                Message::Update(_) => Version::Update,
                message => of(message.value().map(|bytes| Value::in_memory(table, bytes))),
            };
            (ts, version)
        })?;
        Ok(found.map(|found| match found {
            Lookup::Memory(version) => version,
            Lookup::Spilled(ts, Written::Value(value)) => (ts, Version::Value(value)),
            Lookup::Spilled(ts, Written::Deleted) => (ts, Version::Gone),
            Lookup::Spilled(ts, Written::Update(_)) => (ts, Version::Update),
            Lookup::Disk(found) => match found.kind {
                Kind::Delete => (found.ts, Version::Gone),
                Kind::Update => (found.ts, Version::Update),
                Kind::Put | Kind::Large => {
                    (found.ts, Version::Value(Value::in_frame(found.frame, found.payload)))
                }
            },
        }))
    }

    /// The newest version of `key`, where there are tombstones: a key that was deleted by one is written by it.
    pub(super) fn newest_under(
        &self,
        state: &State,
        tombstones: &Tombstones,
        key: &[u8],
    ) -> Result<Option<(u64, Kind)>> {
        let found = self.version(state, key, u64::MAX)?;
        let (ts, value) = match &found {
            Some((ts, Version::Value(value))) => (*ts, Some(&**value)),
            Some((ts, _)) => (*ts, None),
            None => (0, None),
        };
        if tombstones.planted != Some(TombstoneBug::ConflictIgnores)
            && let Some(newer) = tombstones.newest(key, value, ts, u64::MAX)
        {
            return Ok(Some((newer, Kind::Delete)));
        }
        Ok(found.map(|(ts, version)| match version {
            Version::Gone => (ts, Kind::Delete),
            Version::Value(_) => (ts, Kind::Put),
            Version::Update => (ts, Kind::Update),
        }))
    }
}

/// What a version of a key is.
enum Version {
    Value(Value),
    Gone,
    /// Its value takes a look at older ones.
    Update,
}
