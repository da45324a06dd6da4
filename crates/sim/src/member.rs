//! A seed's run as a member of a set: commits are held back, entries close them, what is committed moves on at
//! random, tails are overwritten, and the power goes at any call, also within all of these.
//!
//! What is asserted:
//! 1. Readers see the state at what is committed and complete, statements that write the newest one: as the
//!    model has them, before, between and after everything else.
//! 2. No checkpoint and no history reaches beyond what is committed; what was visible is so after every
//!    restart, once what is committed is told again.
//! 3. After a tail was overwritten there is nothing of it; its timestamps carry other commits.
//! 4. A restart comes back with the commits of the entries that were synced, or of more of them; what no entry
//!    closes is gone.

use crate::crash::open;
use crate::model::{Changes, Model, Overlay};
use crate::reads::{contents, same};
use crate::setup;
use crate::trace::Trace;
use crate::updates::{self, Append};
use crate::world::Tally;
use anyhow::{Context, Result, bail, ensure};
use engine::{
    Background, CommitState, DictionaryId, Engine, EntryKind, HistoryOptions, OnConflict, Options,
    PlantedBug, PlantedUpdateBug, Showing, Sizes, Snapshot, Submitted, Timestamp, TxnOptions,
};
use os::sim::{SimOs, Survival};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use testkit::Gen;

const KEYS: u64 = 60;

pub(crate) struct MemberRun {
    sim: SimOs,
    options: Options,
    random: Gen,
    engine: Option<Engine>,
    model: Model,
    /// The last commit of each entry; the first has index 1.
    closed: Vec<u64>,
    /// The entries among them that are configurations.
    configurations: BTreeSet<u64>,
    /// The last commits of what was gathered and not closed.
    gathered: VecDeque<u64>,
    term: u64,
    /// Entries that are on this member's disk.
    synced: usize,
    /// The entries that a majority has.
    committed: usize,
    /// What was ever visible.
    shown: u64,
    pending: Vec<Submitted>,
    snapshots: Vec<Snapshot>,
    /// A cut from this index on was begun, and it is not known whether it is on disk.
    cutting: Option<usize>,
    pub(crate) trace: Trace,
    pub(crate) tally: Tally,
    pub(crate) step: u64,
}

fn latest() -> TxnOptions {
    TxnOptions { on_conflict: OnConflict::Latest, lock_timeout: None }
}

impl MemberRun {
    pub(crate) fn new(
        seed: u64,
        planted: Option<PlantedBug>,
        planted_update: Option<PlantedUpdateBug>,
        is_verbose: bool,
    ) -> Self {
        let mut random = Gen::new(seed ^ 0x6d_656d_6265);
        let mut options = Options::new("/data");
        options.cache_size = 8 << 20;
        options.background = Background::Manual;
        options.fs_redzone_percent = 0;
        options.lock_timeout = Duration::ZERO;
        options.checkpoint_period = Duration::ZERO;
        options.cleaner_period = Duration::ZERO;
        options.showing = Showing::Committed;
        options.updates = Some(Arc::new(Append { planted: planted_update }));
        options.history = Some(HistoryOptions { bytes: u64::MAX, min_age: Duration::ZERO });
        let budget = 24 << (10 + random.below(3));
        options.sizes = Sizes {
            log_segment_bytes: 8 << (10 + random.below(3)),
            write_budget: budget,
            most_write_budget: budget,
            memtable_bytes: budget / (2 + random.below(8)),
            chunk_bytes: 100 << random.below(5),
            entry_bytes: 100 << random.below(7),
            spill_bytes: 600 << random.below(4),
            log_cap: 16 << (10 + random.below(3)),
            tiny_trees: true,
            planted,
            ..Sizes::default()
        };
        Self {
            sim: SimOs::new(seed),
            options,
            random,
            engine: None,
            model: Model::new(),
            closed: Vec::new(),
            configurations: BTreeSet::new(),
            gathered: VecDeque::new(),
            term: 1,
            synced: 0,
            committed: 0,
            shown: 0,
            pending: Vec::new(),
            snapshots: Vec::new(),
            cutting: None,
            trace: Trace::new(is_verbose),
            tally: Tally::default(),
            step: 0,
        }
    }

    pub(crate) fn run(&mut self, steps: u64) -> Result<()> {
        self.engine = Some(open(&self.sim.os(), self.options.clone()).context("it opens")?);
        for step in 1..=steps {
            self.step = step;
            self.tally.steps += 1;
            let done = self.act();
            if self.sim.is_crashed() {
                // Whatever was said meanwhile, the power was gone.
                self.tally.crashes += 1;
                self.restart()?;
            } else {
                done?;
                self.check_bounds()?;
            }
        }
        self.sim.cancel_crash();
        self.compare()?;
        self.engine()?.close().context("a close")?;
        self.sim.crash();
        self.restart()?;
        self.finish();
        Ok(())
    }

    fn finish(&mut self) {
        self.forget_engine();
        for (path, bytes) in self.sim.files() {
            self.trace.bytes(path.as_os_str().as_encoded_bytes());
            self.trace.bytes(&bytes);
        }
    }

    fn engine(&self) -> Result<Engine> {
        self.engine.clone().context("the engine is open between steps")
    }

    fn act(&mut self) -> Result<()> {
        match self.random.below(1000) {
            0..430 => self.commit(),
            430..480 => self.gather(),
            480..530 => self.close(),
            530..600 => self.move_on(),
            600..640 => self.overwrite(),
            640..700 => self.hold_or_release(),
            700..850 => self.background(),
            850..880 => self.checkpoint(),
            880..910 => self.compare(),
            910..930 => self.sync(),
            930..940 => self.restart(),
            940..960 => self.plan_crash(),
            960..980 => self.conflict(),
            _ => {
                self.sim.advance(Duration::from_millis(self.random.below(3000)));
                Ok(())
            }
        }
    }

    fn commit(&mut self) -> Result<()> {
        let mut txn = self.engine()?.begin_newest(latest());
        let mut changes = Changes::default();
        let all = self.model.dictionaries(self.model.newest);
        if all.len() < 5 && self.random.one_in(20) {
            let id = txn.create_dictionary(setup::dictionary(&mut self.random))?;
            changes.created.push(id.0);
        }
        let victim = self.random.pick(&all).copied().unwrap_or(DictionaryId::ROOT.0);
        if victim != DictionaryId::ROOT.0 && self.random.one_in(30) {
            txn.drop_dictionary(DictionaryId(victim))?;
            changes.dropped.push(victim);
        }
        let most = if self.random.one_in(12) { 60 } else { 4 };
        for _ in 0..=self.random.below(most) {
            let candidates: Vec<u64> = all
                .iter()
                .chain(&changes.created)
                .copied()
                .filter(|id| !changes.dropped.contains(id))
                .collect();
            let id = self.random.pick(&candidates).copied().unwrap_or(DictionaryId::ROOT.0);
            let key = self.random.key(KEYS);
            if self.random.one_in(5) {
                txn.delete(DictionaryId(id), &key)?;
                changes.writes.insert((id, key), None);
            } else if self.random.one_in(3) {
                let argument = updates::argument(&mut self.random);
                txn.update(DictionaryId(id), &key, &argument)?;
                let key = (id, key);
                let before = self.model.seen(&changes.writes, &key, self.model.newest);
                let value = updates::append(before.as_deref(), &argument);
                changes.writes.insert(key, value);
            } else {
                let value = self.random.value(120);
                txn.put(DictionaryId(id), &key, &value)?;
                changes.writes.insert((id, key), Some(value));
            }
        }
        let submitted = txn.submit()?;
        let ts = submitted.timestamp().0;
        self.note(format!("commit {ts}"));
        ensure!(ts == self.model.newest + 1, "commit {ts} follows {}", self.model.newest);
        self.model.commit(ts, changes);
        self.pending.push(submitted);
        self.tally.commits += 1;
        Ok(())
    }

    /// A transaction on a snapshot meets what it does not see.
    fn conflict(&mut self) -> Result<()> {
        let engine = self.engine()?;
        let visible = engine.visible().timestamp().0;
        let key = self.random.key(KEYS);
        let mut txn = engine.begin(TxnOptions::default());
        let result = txn.put(DictionaryId::ROOT, &key, b"never");
        let versions = self.model.versions_of(&(DictionaryId::ROOT.0, key));
        let newer = versions.iter().any(|ts| *ts > visible);
        match result {
            Ok(()) => ensure!(!newer, "a write over a commit that the snapshot does not see"),
            Err(engine::Error::WriteConflict) => ensure!(newer, "a conflict with nobody"),
            Err(error) => bail!("a put fails: {error}"),
        }
        Ok(())
    }

    /// Records of the next entry are told apart from those that come behind them.
    fn gather(&mut self) -> Result<()> {
        let engine = self.engine()?;
        if self.random.one_in(10) {
            engine.ungather();
            self.gathered.clear();
        }
        let before = self.gathered.back().or(self.closed.last()).copied().unwrap_or(0);
        match engine.gather() {
            Some(found) => {
                self.note(format!("gathered up to {}", found.last_timestamp));
                let is_there = (before..=self.model.newest).contains(&found.last_timestamp);
                ensure!(is_there, "behind {before} there is {found:?}");
                self.gathered.push_back(found.last_timestamp);
            }
            None => ensure!(before == self.model.newest, "nothing is open behind {before}"),
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let index = self.closed.len() as u64 + 1;
        if self.random.one_in(10) {
            self.term += 1;
        }
        let before = self.closed.last().copied().unwrap_or(0);
        let (kind, bytes) = match self.random.below(16) {
            0 | 1 => (EntryKind::Fence, &b""[..]),
            2 | 3 => (EntryKind::Configuration, &b"members"[..]),
            _ => (EntryKind::Records, &b""[..]),
        };
        let closed =
            self.engine()?.close_entry((self.term, index), kind, bytes, self.committed as u64)?;
        let Some(head) = closed else {
            ensure!(before == self.model.newest, "nothing is open behind {before}");
            return Ok(());
        };
        self.note(format!("entry {index} up to {}", head.last_timestamp));
        let last = if kind == EntryKind::Records {
            let most = self.model.newest;
            let expected = self.gathered.pop_front().map_or(before..=most, |at| at..=at);
            ensure!(expected.contains(&head.last_timestamp), "an entry ends at {head:?}");
            head.last_timestamp
        } else {
            ensure!(head.last_timestamp == before, "an entry without records ends at {head:?}");
            before
        };
        if kind == EntryKind::Configuration {
            self.configurations.insert(index);
        }
        self.closed.push(last);
        Ok(())
    }

    /// The configuration that counts behind an entry, by the entry that brought it.
    fn configuration(&self, index: u64) -> Option<u64> {
        self.configurations.range(..=index).next_back().copied()
    }

    fn sync(&mut self) -> Result<()> {
        self.engine()?.sync()?;
        self.synced = self.closed.len();
        Ok(())
    }

    /// A majority has more entries; this member is one of it.
    fn move_on(&mut self) -> Result<()> {
        self.sync()?;
        self.committed +=
            self.random.below((self.closed.len() - self.committed) as u64 + 1) as usize;
        self.tell_committed()
    }

    fn committed_ts(&self) -> u64 {
        self.committed.checked_sub(1).and_then(|at| self.closed.get(at)).copied().unwrap_or(0)
    }

    fn tell_committed(&mut self) -> Result<()> {
        let committed = self.committed_ts();
        self.note(format!("committed up to {committed}"));
        let engine = self.engine()?;
        let index = self.committed as u64;
        if let Some(told) = self.configuration(index)
            && self.random.one_in(2)
        {
            engine.apply_configuration(index, &told.to_le_bytes())?;
        } else if index > 0 && self.random.one_in(2) {
            engine.commit_entries_up_to(index)?;
        } else {
            engine.advance_commit_point(Timestamp(committed))?;
        }
        let visible = engine.visible().timestamp().0;
        ensure!(visible == committed, "{committed} is committed, {visible} is visible");
        ensure!(visible >= self.shown, "{visible} is visible, {} was", self.shown);
        self.shown = visible;
        for submitted in &self.pending {
            let is_visible = submitted.timestamp().0 <= visible;
            let expected = if is_visible { CommitState::Visible } else { CommitState::Pending };
            ensure!(submitted.state() == expected, "{submitted:?} where {visible} is visible");
        }
        self.pending.retain(|submitted| submitted.timestamp().0 > visible);
        Ok(())
    }

    /// Consensus has other entries than those from an index on.
    fn overwrite(&mut self) -> Result<()> {
        let most = self.closed.len() - self.committed;
        let stay = self.committed + self.random.below(most as u64 + 1) as usize;
        let ts = stay.checked_sub(1).and_then(|at| self.closed.get(at)).copied().unwrap_or(0);
        self.note(format!("entries from {} on are overwritten, {ts} stays", stay + 1));
        if self.random.one_in(3) {
            self.sim.crash_after(1 + self.random.below(4));
        }
        self.cutting = Some(stay);
        let synced = self.synced;
        let ends_here = stay == self.closed.len();
        let has_open = !self.gathered.is_empty() || self.engine()?.open_bytes() > 0;
        let discards = ends_here && self.random.one_in(2);
        if discards {
            self.engine()?.discard_open()?;
        } else {
            self.engine()?.cut(stay as u64 + 1)?;
        }
        self.sim.cancel_crash();
        if self.sim.is_crashed() {
            return Ok(());
        }
        self.cutting = None;
        self.forgotten(stay, ts)?;
        if discards && !has_open {
            // Nothing was written, nor synced.
            self.synced = synced;
        }
        self.compare()
    }

    fn forgotten(&mut self, stay: usize, ts: u64) -> Result<()> {
        self.stay(stay);
        self.tally.commits_lost_unsynced += self.model.newest - ts;
        self.model.recovered(ts);
        for submitted in self.pending.extract_if(.., |submitted| submitted.timestamp().0 > ts) {
            ensure!(submitted.state() == CommitState::Overwritten, "{submitted:?}");
        }
        Ok(())
    }

    /// Entries behind that are gone, and what was gathered is.
    fn stay(&mut self, stay: usize) {
        self.closed.truncate(stay);
        self.configurations.split_off(&(stay as u64 + 1));
        self.gathered.clear();
        self.synced = stay;
    }

    fn hold_or_release(&mut self) -> Result<()> {
        if self.snapshots.len() < 4 && self.random.one_in(2) {
            self.snapshots.push(self.engine()?.snapshot());
        } else if !self.snapshots.is_empty() {
            let which = self.random.below(self.snapshots.len() as u64) as usize;
            drop(self.snapshots.swap_remove(which));
        }
        Ok(())
    }

    fn background(&mut self) -> Result<()> {
        let engine = self.engine()?;
        for _ in 0..=self.random.below(6) {
            if !engine.step()? {
                break;
            }
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.note("checkpoint");
        self.engine()?.checkpoint()?;
        // It syncs the log.
        self.synced = self.closed.len();
        self.tally.checkpoints += 1;
        Ok(())
    }

    fn plan_crash(&mut self) -> Result<()> {
        let after = 1 + self.random.skewed(200);
        self.note(format!("the power goes in {after} calls"));
        self.sim.crash_after(after);
        Ok(())
    }

    /// Nothing is ahead of what is committed.
    fn check_bounds(&self) -> Result<()> {
        let engine = self.engine()?;
        let committed = self.committed_ts();
        let (visible, complete) = (engine.visible().timestamp().0, engine.complete().timestamp().0);
        ensure!(visible <= committed, "{visible} is visible, {committed} committed");
        ensure!(complete == self.model.newest, "{complete} is complete");
        if let Some((checkpoint, _, _)) = engine.stats().last_checkpoint {
            ensure!(checkpoint.0 <= committed, "a checkpoint at {checkpoint:?}");
        }
        Ok(())
    }

    fn compare(&mut self) -> Result<()> {
        self.note("compare");
        let engine = self.engine()?;
        let found: Vec<u64> = engine.dictionaries().iter().map(|(id, _)| id.0).collect();
        let expected = self.model.dictionaries(self.model.newest);
        ensure!(found == expected, "there are dictionaries {found:?}, not {expected:?}");
        let newest = engine.begin_newest(latest()).snapshot();
        ensure!(newest.timestamp().0 == self.model.newest, "the newest is {newest:?}");
        let held = self.random.pick(&self.snapshots).cloned();
        for snapshot in [Some(newest), Some(engine.snapshot()), held].into_iter().flatten() {
            let at = snapshot.timestamp().0;
            for id in self.model.dictionaries(at) {
                let found = contents(&snapshot, id)?;
                let expected = self.model.contents(id, at, &Overlay::new());
                same(&found, &expected).with_context(|| format!("dictionary {id} at {at}"))?;
            }
        }
        engine.verify_all()?;
        self.tally.comparisons += 1;
        self.compare_history()
    }

    fn compare_history(&mut self) -> Result<()> {
        let engine = self.engine()?;
        let history = engine.history().context("a member has a history")?;
        let mut tail = history.read_after(history.oldest_time()?)?;
        let mut last: Option<(u64, u64)> = None;
        while let Some(commit) = tail.next()? {
            let (ts, time) = (commit.timestamp.0, commit.last_time());
            ensure!(ts <= self.committed_ts(), "the history shows {ts}, which is not committed");
            if let Some((before, before_time)) = last {
                ensure!(ts == before + 1, "commit {ts} follows {before} in the history");
                ensure!(commit.time > before_time, "times go back in the history");
            }
            last = Some((ts, time));
            let mut writes = Overlay::new();
            let mut operations = commit.operations();
            while let Some(operation) = operations.next()? {
                match operation {
                    engine::HistoryOperation::Put { dictionary, key, value } => {
                        writes.insert((dictionary.0, key.to_vec()), Some(value.to_vec()));
                    }
                    engine::HistoryOperation::Delete { dictionary, key } => {
                        writes.insert((dictionary.0, key.to_vec()), None);
                    }
                    engine::HistoryOperation::Update { dictionary, key, argument } => {
                        let key = (dictionary.0, key.to_vec());
                        let before = self.model.value(&key, ts.saturating_sub(1));
                        let value = updates::append(before.map(Vec::as_slice), argument);
                        writes.insert(key, value);
                    }
                    engine::HistoryOperation::Note(_) => bail!("nobody has noted anything"),
                }
            }
            let expected = self.model.told.get(&ts).context("a commit that never was")?;
            ensure!(writes == expected.writes, "commit {ts} has other writes in the history");
        }
        self.tally.histories += 1;
        Ok(())
    }

    fn forget_engine(&mut self) {
        self.snapshots.clear();
        self.pending.clear();
        if let Some(engine) = &self.engine {
            let stats = engine.stats();
            self.tally.drains += stats.drains;
            self.tally.merges += stats.merges;
            self.tally.flushes += stats.flushes;
        }
        self.engine = None;
    }

    fn restart(&mut self) -> Result<()> {
        self.sim.crash();
        self.forget_engine();
        for attempt in 0..8 {
            let survival = match self.random.below(4) {
                0 => Survival::Nothing,
                1 => Survival::Everything,
                _ => Survival::Random,
            };
            self.note(format!("reboot, {survival:?} survives"));
            let os = self.sim.reboot_with(survival);
            if attempt < 3 && self.random.one_in(3) {
                self.sim.crash_after(1 + self.random.skewed(40));
            }
            match open(&os, self.options.clone()) {
                Ok(engine) if !self.sim.is_crashed() => {
                    self.engine = Some(engine);
                    self.sim.cancel_crash();
                    return self.check_recovered();
                }
                Ok(_) => self.tally.recovery_crashes += 1,
                Err(error) => {
                    ensure!(self.sim.is_crashed(), "it does not open: {error}");
                    self.tally.recovery_crashes += 1;
                }
            }
            self.sim.crash();
        }
        bail!("it does not open any more")
    }

    fn check_recovered(&mut self) -> Result<()> {
        self.tally.recoveries += 1;
        let engine = self.engine()?;
        let last = engine.entries().last;
        let stay = last.index as usize;
        let cutting = self.cutting.take();
        self.note(format!("recovered with entry {stay}, commit {}", last.timestamp));
        let least = cutting.map_or(self.synced, |cutting| cutting.min(self.synced));
        ensure!(stay >= least && stay <= self.closed.len(), "it comes back with entry {stay}");
        let ts = stay.checked_sub(1).and_then(|at| self.closed.get(at)).copied().unwrap_or(0);
        ensure!(last.timestamp == ts, "entry {stay} ends at {}, not {ts}", last.timestamp);
        let visible = engine.visible().timestamp().0;
        let committed = self.committed_ts();
        ensure!(visible <= committed, "{visible} is visible, {committed} committed");
        self.stay(stay);
        self.model.recovered(ts);
        let before = engine.entries().before.index;
        let told = engine.configuration_at(before).map(|told| told.to_vec());
        let expected = self.configuration(before).map(|told| told.to_le_bytes().to_vec());
        ensure!(told == expected, "behind entry {before} counts {told:?}, not {expected:?}");
        self.tell_committed()?;
        self.check_bounds()?;
        self.compare()
    }

    fn note(&mut self, what: impl AsRef<str>) {
        let line = format!("{:5} {:6} {}", self.step, self.sim.syscalls(), what.as_ref());
        self.trace.line(line);
    }
}
