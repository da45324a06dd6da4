//! The history: what followers of the log are told, against the model.
//!
//! A reader that follows the engine keeps its place over restarts. What it was shown is there after
//! every crash. Now and then, and after every recovery, all of the history is read.

use crate::features::Feature;
use crate::model::{NotedCommit, Overlay};
use crate::updates;
use crate::world::World;
use anyhow::{Result, bail, ensure};
use engine::{Error, HistoryCommit, HistoryOperation};

impl World {
    /// The follower reads on.
    pub(crate) fn follow(&mut self) -> Result<()> {
        let Some(history) = self.engine()?.history() else { return Ok(()) };
        let mut tail = if let Some(tail) = self.follower.tail.take() {
            tail
        } else {
            let after = self.follower.seen.map_or(0, |(_, time)| time);
            let opened = history.oldest_time().and_then(|oldest| match history.read_after(after) {
                Err(Error::HistoryLost) if after < oldest => {
                    self.follower.seen = None;
                    history.read_after(oldest)
                }
                other => other,
            });
            match opened {
                Ok(tail) => tail,
                Err(error) => return self.excuse("read the history", &error),
            }
        };
        for _ in 0..self.random.below(20) {
            match tail.next() {
                Ok(Some(commit)) => {
                    ensure!(commit.last_time() <= history.durable_time(), "{commit:?} is early");
                    let seen = match self.told(&commit, self.follower.seen) {
                        Ok(seen) => seen?,
                        Err(Error::HistoryLost) => return Ok(()),
                        Err(error) => return self.excuse("read the history", &error),
                    };
                    self.follower.seen = Some(seen);
                    // What was shown may not be taken back.
                    self.model.durable = self.model.durable.max(seen.0);
                }
                Ok(None) => break,
                Err(Error::HistoryLost) => {
                    self.note("the follower was too slow");
                    self.follower.seen = None;
                    return Ok(());
                }
                Err(error) => return self.excuse("read the history", &error),
            }
        }
        if self.random.one_in(3) {
            tail.park();
        }
        self.follower.tail = Some(tail);
        Ok(())
    }

    /// All of the history: commits that follow each other up to the newest durable one, each as it was.
    pub(crate) fn compare_history(&mut self) -> Result<()> {
        let engine = self.engine()?;
        let Some(history) = engine.history() else { return Ok(()) };
        if engine.stats().stopped.is_some() {
            return Ok(());
        }
        let opened = history.oldest_time().and_then(|oldest| history.read_after(oldest));
        let mut tail = match opened {
            Ok(tail) => tail,
            Err(error) => return self.excuse("read the history", &error),
        };
        let (mut first, mut seen) = (None, None);
        loop {
            match tail.next() {
                Ok(Some(commit)) => {
                    let this = match self.told(&commit, seen) {
                        Ok(this) => this?,
                        // Its chunks went while no index knew of them.
                        Err(Error::HistoryLost) => (commit.timestamp.0, commit.last_time()),
                        Err(error) => return self.excuse("read the history", &error),
                    };
                    first.get_or_insert(this.0);
                    seen = Some(this);
                }
                Ok(None) => break,
                Err(error) => return self.excuse("read the history", &error),
            }
        }
        ensure!(tail.is_at_end(), "the reader stopped before the end");
        let (first, last) = (first.unwrap_or(0), seen.map_or(0, |(ts, _)| ts));
        let (begin, end) = (engine.stats().log_first, engine.stats().log_end);
        let asked = history.options();
        self.note(format!(
            "the history holds commits {first} to {last}, log {begin}..{end}, {asked:?}"
        ));
        if let Some((ts, time)) = seen {
            ensure!(time == history.durable_time(), "it ends at {time}");
            let durable = self.model.durable;
            ensure!(ts >= durable, "commit {durable} is durable, the history ends at {ts}");
        }
        // On a disk that is full the history goes first.
        if self.setup.keeps_all_history && !self.features.has(Feature::FullDisk) {
            let damaged = history.stats().is_ok_and(|stats| stats.damage.is_some());
            if damaged {
                ensure!(
                    self.sim.injected().damage > 0,
                    "the history tells of damage where there is none"
                );
                self.tally.damages_detected += 1;
            }
            let ok = damaged || first == 1 || self.model.newest == 0 || history.newest().0.0 == 0;
            ensure!(
                ok || last == 0 && self.model.durable == 0,
                "all was to stay, {first} is first"
            );
        }
        let (newest, _) = history.newest();
        ensure!(newest.0 == self.model.newest, "the history knows commit {newest:?} as the newest");
        self.tally.histories += 1;
        Ok(())
    }

    /// One commit as the history has it, behind the one that was seen before. The outer error is the
    /// engine's.
    fn told(
        &mut self,
        commit: &HistoryCommit,
        before: Option<(u64, u64)>,
    ) -> engine::Result<Result<(u64, u64)>> {
        let mut found = NotedCommit::default();
        let mut writes = Overlay::new();
        let mut operations = commit.operations();
        while let Some(operation) = operations.next()? {
            match operation {
                HistoryOperation::Put { dictionary, key, value } => {
                    writes.insert((dictionary.0, key.to_vec()), Some(value.to_vec()));
                }
                HistoryOperation::Delete { dictionary, key } => {
                    writes.insert((dictionary.0, key.to_vec()), None);
                }
                HistoryOperation::Update { dictionary, key, argument } => {
                    let key = (dictionary.0, key.to_vec());
                    let before = self.model.value(&key, commit.timestamp.0.saturating_sub(1));
                    let value = updates::append(before.map(Vec::as_slice), argument);
                    writes.insert(key, value);
                }
                HistoryOperation::Note(note) => found.notes.push(note.to_vec()),
            }
        }
        found.span = commit.span;
        found.is_client_transaction = commit.is_client_transaction;
        Ok(self.same_commit(commit, &found, &writes, before))
    }

    fn same_commit(
        &mut self,
        commit: &HistoryCommit,
        found: &NotedCommit,
        writes: &Overlay,
        before: Option<(u64, u64)>,
    ) -> Result<(u64, u64)> {
        let (ts, time) = (commit.timestamp.0, commit.last_time());
        if let Some((last, last_time)) = before {
            ensure!(ts == last + 1, "commit {ts} follows {last} in the history");
            ensure!(commit.time > last_time, "time {} follows {last_time}", commit.time);
        }
        let Some(expected) = self.model.told.get_mut(&ts) else {
            bail!("commit {ts} is in the history and never was");
        };
        ensure!(*writes == expected.writes, "commit {ts} has other writes in the history");
        ensure!(found.notes == expected.notes, "commit {ts} has other notes in the history");
        ensure!(
            (found.span, found.is_client_transaction)
                == (expected.span, expected.is_client_transaction),
            "commit {ts} is another one in the history"
        );
        let known = *expected.time.get_or_insert(time);
        ensure!(known == time, "commit {ts} was at {known}, and is at {time} now");
        Ok((ts, time))
    }

    /// A client notes something beside what it has written.
    pub(crate) fn note_something(&mut self, who: usize) -> Result<()> {
        // In some lives of such a run no history is kept.
        let kept = self.features.has(Feature::History) && self.engine()?.keeps_history();
        if !kept || !self.random.one_in(3) {
            return Ok(());
        }
        let most = if self.random.one_in(50) { 2000 } else { 40 };
        let note = self.random.value(most);
        let Some(client) = self.clients.get_mut(who) else { return Ok(()) };
        match client.txn.note(&note) {
            Ok(()) => {
                client.changes.told.notes.push(note);
                Ok(())
            }
            Err(error) => {
                drop(self.clients.swap_remove(who));
                self.excuse("note", &error)
            }
        }
    }
}
