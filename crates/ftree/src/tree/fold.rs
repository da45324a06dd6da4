//! A point read that meets an update: it gathers the older ones down to their base.

use super::layer::Layer;
use super::{State, Tree};
use crate::error::Result;
use crate::memtable::hash;
use crate::message::{Kind, Message};
use crate::node::{Child, reads};
use crate::segment::Segment;
use crate::spill::Written;
use crate::updates::{Applied, PendingUpdates, PlantedUpdateBug};
use crate::value::Value;
use cachetable::Access;

/// The key's base as far as a level says, or that a lower one must.
enum Base {
    Below,
    Here(Option<Value>),
}

impl Tree {
    /// As [`Tree::get`], of a key whose newest version is an update. May read the disk, a page of each level.
    pub(super) fn get_folded(&self, key: &[u8], ts: u64) -> Result<Option<Value>> {
        let state = self.pin();
        let mut pending = PendingUpdates::default();
        let tombstones = state.tombstones.as_deref();
        let floor = tombstones.map_or(0, |tombstones| tombstones.newest_of_key(key, ts));
        let base = match self.gather(&state, key, (ts, floor), &mut pending)? {
            Base::Here(base) => base,
            Base::Below => None,
        };
        let updates = &*self.context.updates;
        Ok(match pending.apply(updates, (self.id(), key), base.as_deref()) {
            Applied::Unchanged => base,
            Applied::Value(value) => Some(Value::owned(value)),
        })
    }

    /// How many updates of `key` stand on top in the active memtable, up to `most`. Touches no disk.
    pub fn pending_updates(&self, key: &[u8], most: usize) -> usize {
        let state = self.pin();
        let versions = state.active.versions(key, self.context.hasher.hash(key), u64::MAX);
        versions.take(most).take_while(|(_, message)| message.is_update()).count()
    }

    /// What is older than `floor` was deleted by a tombstone.
    fn gather(
        &self,
        state: &State,
        key: &[u8],
        (ts, floor): (u64, u64),
        pending: &mut PendingUpdates,
    ) -> Result<Base> {
        let in_memory = self.context.hasher.hash(key);
        let tables = std::iter::once(&state.active).map(Ok);
        let layers = state.sealed.iter().map(|layer| match layer {
            Layer::Table(table) => Ok(table),
            Layer::Overlay(overlay) => Err(overlay),
        });
        for layer in tables.chain(layers) {
            match layer {
                Ok(table) => {
                    let versions = table.versions(key, in_memory, ts);
                    let mut versions = versions.take_while(|(ts, _)| *ts >= floor).peekable();
                    if let Some((newest, _)) = versions.peek() {
                        self.enter_level(pending, *newest);
                    }
                    for (ts, message) in versions {
                        match message {
                            Message::Update(argument) => pending.push(ts, argument),
                            message => {
                                let value = message.value();
                                let value = value.map(|bytes| Value::in_memory(table, bytes));
                                return Ok(Base::Here(value));
                            }
                        }
                    }
                }
                Err(overlay) => {
                    let found = overlay.get(key, ts)?.filter(|(at, _)| *at >= floor);
                    let Some((at, written)) = found else { continue };
                    self.enter_level(pending, at);
                    match written {
                        Written::Value(value) => return Ok(Base::Here(Some(value))),
                        Written::Deleted => return Ok(Base::Here(None)),
                        Written::Update(argument) => pending.push(at, &argument),
                    }
                }
            }
        }
        let on_disk = hash(key);
        let mut node = &state.root;
        loop {
            let child = node.child_of(key);
            for attached in node.runs.iter().filter(|attached| attached.is_live(child)) {
                let (base, updates) =
                    self.gather_in(&attached.run, (key, on_disk), (ts, floor), pending)?;
                self.note_reads(node, reads::gathered(updates));
                if let Base::Here(_) = base {
                    return Ok(base);
                }
            }
            match &node.children[child] {
                Child::Node(below) => node = below,
                Child::Leaf(leaf) => {
                    let found = self.gather_in(leaf, (key, on_disk), (ts, floor), pending);
                    return found.map(|(base, _)| base);
                }
                Child::Empty => return Ok(Base::Below),
            }
        }
    }

    /// What a segment has of the key: its base, and how many updates stand above that.
    fn gather_in(
        &self,
        segment: &Segment,
        (key, hash): (&[u8], u64),
        (ts, floor): (u64, u64),
        pending: &mut PendingUpdates,
    ) -> Result<(Base, u64)> {
        let (mut at, mut is_first, mut updates) = (ts, true, 0);
        while let Some(found) = segment.get(key, hash, at)?.filter(|found| found.ts >= floor) {
            if std::mem::take(&mut is_first) {
                self.enter_level(pending, found.ts);
            }
            let payload = &found.frame[found.payload.clone()];
            match found.kind {
                Kind::Update => {
                    pending.push(found.ts, payload);
                    updates += 1;
                }
                Kind::Delete => return Ok((Base::Here(None), updates)),
                Kind::Put => {
                    let value = Value::in_frame(found.frame, found.payload);
                    return Ok((Base::Here(Some(value)), updates));
                }
                Kind::Large => {
                    let frame = self.load_large(payload, Access::Demand)?;
                    let all = 0..frame.len();
                    return Ok((Base::Here(Some(Value::in_frame(frame, all))), updates));
                }
            }
            at = found.ts - 1;
        }
        Ok((Base::Below, updates))
    }

    fn enter_level(&self, pending: &mut PendingUpdates, newest: u64) {
        if self.context.updates.planted_bug() != Some(PlantedUpdateBug::AppliesReplayAgain) {
            pending.forget_up_to(newest);
        }
    }
}
