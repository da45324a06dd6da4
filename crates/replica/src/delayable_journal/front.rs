//! The log of entries of a delayed member, and what of it is due.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::Engine;
use os::sync::Mutex;
use quorum::{Configuration, Content, Entry, Older, Position, codec};

use crate::engine_journal::{EngineJournal, changes_configuration, journal_result};
use crate::entry_log::EntryLog;
use crate::error::{Error, Result};
use crate::journal::{HeldBack, Journal as _, log_bytes};
use crate::observer::Observer;
use crate::payload::Payload;
use crate::syncs::Syncs;

/// Bytes of records that one step shows, and some more: frames are looked at between.
const BYTES_A_STEP: usize = 1 << 20;
/// What an entry counts for beside its records.
const ENTRY_BYTES: usize = 256;
/// Milliseconds between two looks at what a checkpoint has.
const LOOK_MS: i64 = 1000;

pub(super) struct Front {
    pub(super) log: EntryLog,
    pub(super) syncs: Syncs,
    /// The last entry that the engine has, and shows.
    pub(super) applied: u64,
    /// Configurations that are decided and that the engine has not been told, and behind which entry each counts.
    pub(super) configurations: VecDeque<(u64, Configuration)>,
    /// The next entry, once it was looked at, and in which second it was committed.
    next: Option<(u64, u64)>,
    most_bytes: u64,
    is_short: bool,
    looked_ms: Option<i64>,
}

/// An entry of the log, with its records.
pub(super) fn read(log: &EntryLog, index: u64) -> Result<(Entry, Payload)> {
    let read = log.read(index)?.map(|(entry, payload)| (entry, Payload::from(payload)));
    read.ok_or_else(|| Error::Journal(format!("entry {index} is not in the log of entries")))
}

/// The second in which the last commit of an entry was made; that of one without records is long ago.
fn second(content: &Content) -> u64 {
    match content {
        Content::Records(records) => records.last_time >> 32,
        _ => 0,
    }
}

/// Whether what was committed in that second is old enough: never early, and up to a second late.
fn is_due(second: u64, delay: u32, wall_ms: i64) -> bool {
    let from = second.saturating_add(1).saturating_add(u64::from(delay)).saturating_mul(1000);
    delay == 0 || u64::try_from(wall_ms).unwrap_or(0) >= from
}

impl Front {
    pub(super) fn new(log: EntryLog, syncs: Syncs, applied: u64, most_bytes: u64) -> Self {
        Self {
            log,
            syncs,
            applied,
            configurations: VecDeque::new(),
            next: None,
            most_bytes,
            is_short: false,
            looked_ms: None,
        }
    }

    /// These are decided, and `configuration` counts behind the last of them.
    pub(super) fn decide(
        &mut self,
        entries: &[Entry],
        configuration: &Configuration,
    ) -> Result<()> {
        let Some(last) = entries.last() else { return Ok(()) };
        let changes = entries.iter().any(|entry| changes_configuration(&entry.content));
        self.log.decide(last.position(), configuration, changes)?;
        if changes && self.configurations.back().is_none_or(|(index, _)| *index < last.index) {
            self.configurations.push_back((last.index, configuration.clone()));
        }
        Ok(())
    }

    /// Whether nothing that is decided is held back.
    pub(super) fn shows_all(&self) -> bool {
        self.applied >= self.log.decided().at.index && self.configurations.is_empty()
    }

    /// Of what is due so much as fits into a step. Returns whether there was any.
    pub(super) fn show_due<O: Observer>(
        &mut self,
        journal: &mut EngineJournal<O>,
        wall_ms: i64,
        delay: u32,
    ) -> Result<bool> {
        let mut bytes = 0;
        while bytes < BYTES_A_STEP && journal.has_room(0) {
            let Some((entry, payload)) = self.next_due(wall_ms, delay)? else { break };
            if !journal.has_room(log_bytes(&entry)) {
                break;
            }
            journal.append(&entry, &payload, entry.index)?;
            journal.apply_appended()?;
            journal.show(std::slice::from_ref(&entry), None)?;
            self.applied = entry.index;
            bytes += payload.len() + ENTRY_BYTES;
        }
        self.tell_configurations(journal.engine())?;
        self.forget(journal.engine(), wall_ms)?;
        Ok(bytes > 0)
    }

    /// The next entry that is decided, on disk, and due.
    fn next_due(&mut self, wall_ms: i64, delay: u32) -> Result<Option<(Entry, Payload)>> {
        let index = self.applied + 1;
        if index > self.log.decided().at.index.min(self.log.synced_index()) {
            self.is_short = false;
            return Ok(None);
        }
        let known = self.next.filter(|(of, _)| *of == index).map(|(_, second)| second);
        let fits = self.log.bytes_from(index) <= self.most_bytes;
        if fits && known.is_some_and(|second| !is_due(second, delay, wall_ms)) {
            self.is_short = false;
            return Ok(None);
        }
        let (entry, payload) = read(&self.log, index)?;
        let second = second(&entry.content);
        self.next = Some((index, second));
        let is_due = is_due(second, delay, wall_ms);
        self.is_short = !is_due && !fits;
        Ok((is_due || !fits).then_some((entry, payload)))
    }

    /// Tells the engine of the configurations that count behind what it has.
    pub(super) fn tell_configurations(&mut self, engine: &Engine) -> Result<()> {
        let applied = self.applied;
        while let Some((index, configuration)) =
            self.configurations.pop_front_if(|(index, _)| *index <= applied)
        {
            // What the checkpoint has was told before it.
            if index > engine.entries().before.index {
                let configuration = codec::encode_configuration(&configuration);
                journal_result(engine.apply_configuration(index, &configuration))?;
            }
        }
        Ok(())
    }

    /// Lets go of what a checkpoint of the engine has.
    fn forget(&mut self, engine: &Engine, wall_ms: i64) -> Result<()> {
        let since = |before: i64| wall_ms.saturating_sub(before);
        // Wall clocks are set back.
        if self.looked_ms.is_some_and(|before| (0..LOOK_MS).contains(&since(before))) {
            return Ok(());
        }
        self.looked_ms = Some(wall_ms);
        self.log.forget_up_to(engine.entries().before.index)
    }

    pub(super) fn held_back(&self, seconds: u32, shown: (u64, u64)) -> HeldBack {
        HeldBack {
            seconds,
            shown,
            entries: self.log.decided().at.index.saturating_sub(self.applied),
            bytes: self.log.bytes_from(self.applied + 1),
            is_short: self.is_short,
        }
    }
}

/// What is no longer in consensus' memory: in the log of entries, where there is one, and before it in the engine's.
pub(super) struct CombinedOlder {
    pub(super) log: Arc<Mutex<Option<EntryLog>>>,
    pub(super) engine: Box<dyn Older>,
}

impl CombinedOlder {
    fn log(&self) -> Option<EntryLog> {
        self.log.lock().clone()
    }
}

impl Older for CombinedOlder {
    /// What is in the engine's log only comes before what is in the log of entries, without a gap.
    fn first(&self) -> u64 {
        self.engine.first()
    }

    fn position(&self, index: u64) -> Option<Position> {
        let of_log = self.log().and_then(|log| log.position(index));
        of_log.or_else(|| self.engine.position(index))
    }

    fn entries(&self, low: u64, high: u64, most: usize, most_bytes: u64) -> Vec<Entry> {
        match self.log() {
            Some(log) if low >= log.first() => log.older().entries(low, high, most, most_bytes),
            Some(log) => self.engine.entries(low, high.min(log.first()), most, most_bytes),
            None => self.engine.entries(low, high, most, most_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_due_early() {
        for (second, delay, wall_ms, due) in [
            (100, 0, 0, true),
            (0, 5, 6000, true),
            (100, 5, 105_999, false),
            (100, 5, 106_000, true),
            (100, 5, -1, false),
            (u64::MAX >> 32, u32::MAX, i64::MAX, true),
        ] {
            assert_eq!(is_due(second, delay, wall_ms), due, "{second} {delay} {wall_ms}");
        }
    }
}
