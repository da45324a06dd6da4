//! What a cursor makes of the versions of one key where updates are among them.
//!
//! Always true: of two sources the one that is opened later is the older one. Where it has a version, what newer
//! sources have that is not newer is a replay of what is in that version or below it.

use super::Cursor;
use crate::error::Result;
use crate::message::Message;
use crate::updates::{Applied, PlantedUpdateBug, apply_all};
use cachetable::Access;

/// What an update that was applied counts as, in entries that a walk steps over.
const GATHERED_AS_SKIPPED: u64 = 8;

impl Cursor {
    /// Going forward, the newest visible version of `key`, an update, is under the cursor. Says whether the
    /// key has a value, which is in `value` then.
    pub(super) fn fold_forward(&mut self) -> Result<bool> {
        let Some(open) = &mut self.open else { return Ok(false) };
        let updates = &*self.tree.context().updates;
        let again = updates.planted_bug() == Some(PlantedUpdateBug::AppliesReplayAgain);
        self.pending.clear();
        self.value.clear();
        let (mut deepest, mut has_base) = (0, false);
        while let Some((entry, source)) = open.merge.top_from() {
            let reaches = entry.key == self.key && open.bounds.reaches(entry.key);
            if !reaches || open.hides(entry, self.ts) {
                break;
            }
            if source >= deepest || again {
                deepest = deepest.max(source);
                if !again {
                    self.pending.forget_up_to(entry.ts);
                }
                match entry.message {
                    Message::Update(argument) => self.pending.push(entry.ts, argument),
                    Message::Delete => break,
                    Message::Put(value) => {
                        (has_base, self.value) = (true, value.to_vec());
                        break;
                    }
                    Message::Large(reference) => {
                        let value = self.tree.load_large(reference, Access::Scan)?;
                        (has_base, self.value) = (true, value.to_vec());
                        break;
                    }
                }
            }
            open.skipped += GATHERED_AS_SKIPPED;
            open.merge.advance()?;
        }
        let base = has_base.then_some(&self.value[..]);
        match self.pending.apply(updates, (self.tree.id(), &self.key), base) {
            Applied::Value(value) => (has_base, self.value) = (true, value),
            Applied::Unchanged => {}
        }
        self.is_folded = has_base;
        self.passed += self.value.len();
        Ok(has_base)
    }

    /// Going backward, the oldest version of `key` is under the cursor; the last one not newer than the
    /// snapshot counts, and where that is an update, those before it down to their base. Says whether the key
    /// has a value, which is in `value` then.
    pub(super) fn fold_backward(&mut self) -> Result<bool> {
        let Some(open) = &mut self.open else { return Ok(false) };
        let (mut put, mut base_source) = (false, 0);
        // Oldest first: source, timestamp, argument.
        let mut pending: Vec<(usize, u64, Box<[u8]>)> = Vec::new();
        while let Some((entry, source)) = open.merge.top_from() {
            if entry.key != self.key {
                break;
            }
            if entry.ts <= self.ts {
                let is_hidden = open.hides(entry, self.ts);
                match entry.message {
                    _ if is_hidden => {
                        // So is what is older.
                        pending.clear();
                        put = false;
                    }
                    Message::Update(argument) => {
                        pending.retain(|(above, ..)| *above >= source);
                        put &= base_source >= source;
                        pending.push((source, entry.ts, argument.into()));
                    }
                    message => {
                        pending.clear();
                        put = message != Message::Delete;
                        base_source = source;
                        self.is_large = matches!(message, Message::Large(_));
                        self.value.clear();
                        self.value.extend_from_slice(message.payload());
                    }
                }
            }
            open.merge.advance()?;
        }
        if pending.is_empty() {
            return Ok(put);
        }
        open.skipped += GATHERED_AS_SKIPPED * pending.len() as u64;
        if put && std::mem::take(&mut self.is_large) {
            self.value = self.tree.load_large(&self.value, Access::Scan)?.to_vec();
        }
        let updates = &*self.tree.context().updates;
        if updates.planted_bug() == Some(PlantedUpdateBug::HidesBaseBackward) {
            put = false;
        }
        let base = put.then_some(&self.value[..]);
        let oldest_first = pending.iter().map(|(_, ts, argument)| (*ts, &**argument));
        match apply_all(updates, (self.tree.id(), &self.key), base, oldest_first) {
            Applied::Value(value) => (put, self.value) = (true, value),
            Applied::Unchanged => {}
        }
        self.is_large = false;
        Ok(put)
    }
}
