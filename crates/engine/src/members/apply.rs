//! What a leader's entries did goes into the trees, once they are in the log.
//!
//! Always true: the commits of what was appended are published together, when all of them are in the trees; that nobody
//! else writes meanwhile is the caller's word. Where one cannot go into the trees the engine stops: the log has it, and
//! the next start brings it there.

use super::entry_records::wrong;
use super::pieces::Pieces;
use crate::commit::StopOnPanic;
use crate::dictionary::Found;
use crate::environment::Environment;
use crate::records::{self, Operation, Operations};
use crate::recovery::{key_write, needed_dictionary};
use crate::settings::PlantedBug;
use crate::unapplied::{ChunksOfCommit, Unapplied, UnappliedCommit};
use crate::writes::WRITES_TOGETHER;
use crate::{Error, Result};
use ftree::Version;
use smallvec::SmallVec;

/// Room for so many entries is kept.
const MOST_KEPT: usize = 64;

impl Environment {
    /// What [`Environment::append_entry`] has appended goes into the trees.
    pub(super) fn apply_appended(&self) -> Result<()> {
        let entries = std::mem::take(&mut *self.unapplied.lock());
        let commits = entries.iter().map(|entry| entry.commits.len() as u64).sum::<u64>();
        let Some(last) = entries.last().and_then(|entry| entry.commits.last()) else {
            return Ok(());
        };
        let _guard = StopOnPanic(&self.commits);
        let mut inserts = Inserts::into(self);
        let applied = entries.iter().try_for_each(|entry| self.apply_entry(entry, &mut inserts));
        if let Err(error) = applied {
            let text = format!("what is in the log did not come into the trees: {error}");
            let stopped = self.health.stop(&text);
            self.snapshots.abandon();
            return Err(stopped);
        }
        inserts.finish();
        self.publish_applied(last.timestamp, commits);
        drop(inserts);
        self.keep_room(entries);
        Ok(())
    }

    /// The next entries come into the same memory.
    fn keep_room(&self, mut entries: Vec<Unapplied>) {
        entries.clear();
        let mut unapplied = self.unapplied.lock();
        if unapplied.is_empty() && entries.capacity() <= MOST_KEPT {
            *unapplied = entries;
        }
    }

    fn apply_entry<'a>(&self, entry: &'a Unapplied, inserts: &mut Inserts<'a>) -> Result<()> {
        for commit in &entry.commits {
            let UnappliedCommit { timestamp, position, .. } = *commit;
            let operations = entry.records.get(commit.operations.clone());
            let operations = operations.ok_or_else(|| wrong("a record ends behind the entry"))?;
            if let Some(ChunksOfCommit { txn, count: chunks, first }) = commit.pieces {
                // What earlier commits wrote to the same keys goes in before.
                inserts.finish();
                self.apply_pieces(&Pieces { txn, chunks, timestamp, first, position, operations })?;
                continue;
            }
            if entry.changes_dictionaries {
                inserts.finish();
                self.change_dictionaries(position, timestamp, operations)?;
            }
            inserts.add_all((position, timestamp), operations)?;
        }
        Ok(())
    }

    /// What operations do to dictionaries as a whole.
    pub(super) fn change_dictionaries(
        &self,
        position: u64,
        timestamp: u64,
        operations: &[u8],
    ) -> Result<()> {
        for operation in Operations::new(operations) {
            match operation.map_err(|e| Error::in_record(position, e))? {
                Operation::Create { dictionary, options }
                    if self.directory.find(dictionary).is_none() =>
                {
                    self.directory.create(dictionary, options, timestamp);
                }
                Operation::Reshape { dictionary, options } => {
                    if let Some(found) = self.directory.find(dictionary) {
                        let visible = self.snapshots.visible();
                        self.directory.reshape_held_back(&found, options, timestamp, visible);
                    }
                }
                Operation::Drop { dictionary } => {
                    if let Some(found) = self.directory.find(dictionary) {
                        found.drop_at(timestamp);
                    }
                }
                Operation::Tombstone { dictionary, part, lower, upper } => {
                    self.bury(dictionary, records::tombstone(timestamp, part, lower, upper))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What operations write to keys, into memtables.
    pub(super) fn insert(&self, position: u64, timestamp: u64, operations: &[u8]) -> Result<()> {
        let mut inserts = Inserts::into(self);
        let added = inserts.add_all((position, timestamp), operations);
        inserts.finish();
        added
    }

    /// Commits up to this timestamp are complete. Nobody else writes: no earlier one is on its way.
    fn publish_applied(&self, timestamp: u64, commits: u64) {
        // No lock was taken: who has one and does not see the last commit yet has to look.
        self.locks.not_remembered(timestamp);
        if self.options.sizes.planted != Some(PlantedBug::CompleteBeforeApplied) {
            self.snapshots.publish_all(timestamp);
        }
        self.commits.became_visible();
        self.counters.commits.add(commits);
    }
}

/// Writes of commits on their way into memtables: those to one dictionary go in together, whichever commits they are of.
struct Inserts<'a> {
    environment: &'a Environment,
    /// The dictionary of the versions.
    into: Option<Found>,
    versions: SmallVec<[Version<'a>; WRITES_TOGETHER]>,
}

impl<'a> Inserts<'a> {
    fn into(environment: &'a Environment) -> Self {
        Self { environment, into: None, versions: SmallVec::new() }
    }

    /// What a commit wrote to keys, whose record is at `position`.
    fn add_all(&mut self, (position, timestamp): (u64, u64), operations: &'a [u8]) -> Result<()> {
        for operation in Operations::new(operations) {
            let operation = operation.map_err(|e| Error::in_record(position, e))?;
            let Some((id, key, message)) = key_write(&operation) else { continue };
            if self.into.as_ref().is_none_or(|into| into.id != id) {
                self.insert();
                self.into = needed_dictionary(self.environment, id, (position, timestamp))?;
            } else if self.versions.len() >= WRITES_TOGETHER {
                self.insert();
            }
            if self.into.is_some() {
                self.versions.push((key, timestamp, message));
            }
        }
        Ok(())
    }

    fn insert(&mut self) {
        if let (Some((_, newest, _)), Some(dictionary)) = (self.versions.last(), &self.into) {
            dictionary.written_at(*newest);
            if dictionary.tree.insert_versions(&self.versions) {
                self.environment.schedule.account(dictionary);
            }
        }
        self.versions.clear();
    }

    /// All that was added is in memtables. What comes next looks for its dictionary anew.
    fn finish(&mut self) {
        self.insert();
        self.into = None;
    }
}
