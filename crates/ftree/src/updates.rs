//! Updates: messages that say how a value changes, without the value.
//!
//! The tree does not know what an update means: [`Updates`] applies an argument to an old value, and makes one
//! argument of two. A read that meets an update gathers the older ones down to a put, a delete or nothing, and
//! applies them, the oldest first.
//!
//! Always true: no leaf has an update; where updates meet their base they are folded to a put. What lies lower
//! is older, or the same again after a replay: so where a lower level has a version, updates gathered above it
//! that are not newer are in it already, also where it is a later put or several updates combined.

use crate::message::Message;

/// Where an update is applied: for what is counted and logged of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpdatePlace<'a> {
    /// The tree's id.
    pub tree: u64,
    /// The key.
    pub key: &'a [u8],
    /// The commit that wrote the update; of several combined, the newest; 0 before it is committed.
    pub ts: u64,
}

/// What applying an update has come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Applied {
    /// The key has what it had, or still nothing: so also where the update cannot be applied.
    Unchanged,
    /// The key has this value.
    Value(Vec<u8>),
}

/// What updates mean. The same arguments give the same results whenever they are asked for.
pub trait Updates: Send + Sync + std::fmt::Debug {
    /// Applies an update's argument to an old value, `None` where the key has none.
    fn apply(&self, place: UpdatePlace<'_>, old: Option<&[u8]>, argument: &[u8]) -> Applied;

    /// One argument that does, to any value, what these two do one after the other; `None` where there is none
    /// or it would be too long.
    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>>;

    /// A bug that the tree has, for tests that must find it.
    fn planted_bug(&self) -> Option<PlantedUpdateBug> {
        None
    }
}

/// A bug in how a tree handles updates: tests plant it to see it found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedUpdateBug {
    /// Two updates are combined in the wrong order.
    CombinesInWrongOrder,
    /// To a cursor that walks backward an update hides what lies below it.
    HidesBaseBackward,
    /// What a replay brings again is applied again.
    AppliesReplayAgain,
}

/// No update is known: each leaves what is there.
#[derive(Debug)]
pub(crate) struct NoUpdates;

impl Updates for NoUpdates {
    fn apply(&self, _: UpdatePlace<'_>, _: Option<&[u8]>, _: &[u8]) -> Applied {
        Applied::Unchanged
    }

    fn combine(&self, _: &[u8], _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Updates of one key that wait for their base, as a read goes down: the newest first.
#[derive(Default)]
pub(crate) struct PendingUpdates {
    updates: Vec<(u64, Box<[u8]>)>,
}

impl PendingUpdates {
    pub(crate) fn clear(&mut self) {
        self.updates.clear();
    }

    /// An older one.
    pub(crate) fn push(&mut self, ts: u64, argument: &[u8]) {
        self.updates.push((ts, argument.into()));
    }

    /// A lower level has a version of `ts`: what is not newer is in it already.
    pub(crate) fn forget_up_to(&mut self, ts: u64) {
        while self.updates.last().is_some_and(|(last, _)| *last <= ts) {
            self.updates.pop();
        }
    }

    /// What they make of the base; [`Applied::Unchanged`] where that is what the key has.
    pub(crate) fn apply(
        &self,
        updates: &dyn Updates,
        (tree, key): (u64, &[u8]),
        base: Option<&[u8]>,
    ) -> Applied {
        let oldest_first = self.updates.iter().rev().map(|(ts, argument)| (*ts, &**argument));
        apply_all(updates, (tree, key), base, oldest_first)
    }
}

/// Applies updates, the oldest first, to a base.
pub(crate) fn apply_all<'a>(
    updates: &dyn Updates,
    (tree, key): (u64, &[u8]),
    base: Option<&[u8]>,
    oldest_first: impl Iterator<Item = (u64, &'a [u8])>,
) -> Applied {
    let mut result = Applied::Unchanged;
    for (ts, argument) in oldest_first {
        let old = match &result {
            Applied::Unchanged => base,
            Applied::Value(value) => Some(&value[..]),
        };
        match updates.apply(UpdatePlace { tree, key, ts }, old, argument) {
            Applied::Unchanged => {}
            value @ Applied::Value(_) => result = value,
        }
    }
    result
}

/// One argument that does what two do, where there is one: see [`Updates::combine`].
pub fn combine(updates: &dyn Updates, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
    if updates.planted_bug() == Some(PlantedUpdateBug::CombinesInWrongOrder) {
        return updates.combine(newer, older);
    }
    updates.combine(older, newer)
}

impl Message<'_> {
    pub(crate) fn is_update(self) -> bool {
        matches!(self, Message::Update(_))
    }
}
