//! Clients: transactions that read, write, conflict, roll back, commit or give up.

use crate::features::Feature;
use crate::model::{Changes, Key, Overlay};
use crate::setup;
use crate::updates;
use crate::world::{Down, World};
use anyhow::{Result, bail, ensure};
use engine::{DictionaryId, Durability, EngineTxn, Error, OnConflict, Savepoint, TxnOptions};
use os::sim::Fault;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// One open transaction and what it must have seen and done.
pub(crate) struct Client {
    pub(crate) txn: EngineTxn,
    pub(crate) snapshot: u64,
    on_conflict: OnConflict,
    pub(crate) changes: Changes,
    savepoints: Vec<(Savepoint, Overlay, usize, usize)>,
    /// It has deleted ranges of keys, whose gaps are locked, too.
    pub(crate) locks_ranges: bool,
    /// It has deleted a range, maybe one without keys.
    pub(crate) has_buried: bool,
}

/// What a request for a key's lock must answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lock {
    Granted,
    HeldByAnother,
    Conflict,
}

impl Client {
    pub(crate) fn has_savepoints(&self) -> bool {
        !self.savepoints.is_empty()
    }
}

impl World {
    pub(crate) fn begin(&mut self) -> Result<()> {
        let on_conflict = if self.random.one_in(2) { OnConflict::Fail } else { OnConflict::Latest };
        let txn = self.engine()?.begin(TxnOptions { on_conflict, lock_timeout: None });
        let snapshot = txn.snapshot_timestamp().0;
        ensure!(snapshot == self.model.newest, "a snapshot of now is at {snapshot}");
        self.note(format!("begin {} at {snapshot}, {on_conflict:?}", txn.id()));
        let (changes, savepoints) = (Changes::default(), Vec::new());
        let (locks_ranges, has_buried) = (false, false);
        self.clients.push(Client {
            txn,
            snapshot,
            on_conflict,
            changes,
            savepoints,
            locks_ranges,
            has_buried,
        });
        Ok(())
    }

    /// A dictionary that is there now, or that the client made.
    fn dictionary_for(&mut self, who: usize) -> u64 {
        let mut all = self.model.dictionaries(self.model.newest);
        all.extend(&self.clients[who].changes.created);
        self.random.pick(&all).copied().unwrap_or(DictionaryId::ROOT.0)
    }

    fn lock_outcome(&self, who: usize, key: &Key) -> Lock {
        let own = &self.clients[who];
        if own.changes.created.contains(&key.0) {
            return Lock::Granted;
        }
        let others = self.clients.iter().enumerate().filter(|(other, _)| *other != who);
        if others.map(|(_, other)| other).any(|other| other.changes.locks.contains(key)) {
            return Lock::HeldByAnother;
        }
        let changed = self.model.touched(key).max(self.model.created(key.0));
        if own.on_conflict == OnConflict::Fail && changed > own.snapshot {
            return Lock::Conflict;
        }
        Lock::Granted
    }

    fn value(&mut self) -> Vec<u8> {
        let most = match self.random.below(300) {
            0..10 if self.features.has(Feature::BigValues) => 20_000,
            10 if self.features.has(Feature::BigValues) => 200_000,
            _ => self.setup.value_bytes,
        };
        self.random.value(most)
    }

    pub(crate) fn write(&mut self, who: usize) -> Result<()> {
        let created = self.features.has(Feature::Dictionaries) && self.random.one_in(60);
        if created && self.model.dictionaries(self.model.newest).len() < 6 {
            return self.create_dictionary(who);
        }
        if self.deletes_ranges() && self.random.one_in(15) {
            return self.delete_range(who);
        }
        let key: Key = (self.dictionary_for(who), self.random.key(self.setup.keys));
        let outcome = self.lock_outcome(who, &key);
        let value = self.value();
        let newest = self.model.newest;
        let snapshot = self.clients[who].snapshot;
        // Its own reads apply an update to what its snapshot has.
        let may_update = self.features.has(Feature::FastUpdates)
            && self.model.value(&key, snapshot) == self.model.value(&key, newest);
        let kind = self.random.below(if may_update { 12 } else { 6 });
        let argument = if kind > 5 { updates::argument(&mut self.random) } else { Vec::new() };
        let own = &mut self.clients[who];
        let there = self.model.seen(&own.changes.writes, &key, newest);
        let id = DictionaryId(key.0);
        let (what, result) = match kind {
            0 => ("delete", own.txn.delete(id, &key.1).map(|()| Some(None))),
            1 => ("lock", own.txn.lock(id, &key.1).map(|()| None)),
            2 => match own.txn.get_for_update(id, &key.1) {
                Ok(seen) => {
                    let seen = seen.map(engine::Value::into_vec);
                    ensure!(seen == there, "get_for_update of {key:?}: {seen:?}, not {there:?}");
                    ("get for update", Ok(None))
                }
                Err(error) => ("get for update", Err(error)),
            },
            3 => match own.txn.insert(id, &key.1, &value) {
                Ok(written) => {
                    ensure!(written == there.is_none(), "insert of {key:?} says {written}");
                    ("insert", Ok(written.then_some(Some(value))))
                }
                Err(error) => ("insert", Err(error)),
            },
            4 | 5 => ("put", own.txn.put(id, &key.1, &value).map(|()| Some(Some(value)))),
            _ => {
                let write = updates::append(there.as_deref(), &argument);
                ("update", own.txn.update(id, &key.1, &argument).map(|()| Some(write)))
            }
        };
        let txn = own.txn.id();
        self.note(format!("{txn}: {what} {key:?}: {outcome:?}"));
        match (result, outcome) {
            (Ok(write), Lock::Granted) => {
                let changes = &mut self.clients[who].changes;
                if !changes.created.contains(&key.0) {
                    changes.locks.insert(key.clone());
                }
                if let Some(write) = write {
                    changes.buried.remove(&key);
                    changes.writes.insert(key, write);
                }
                self.note_something(who)
            }
            (Err(Error::LockTimeout { .. }), Lock::HeldByAnother) => {
                self.tally.conflicts += 1;
                Ok(())
            }
            (Err(Error::WriteConflict), Lock::Conflict) => {
                self.tally.conflicts += 1;
                // The lock stays with the transaction.
                self.clients[who].changes.locks.insert(key);
                Ok(())
            }
            (Err(error), _) => {
                // Whether it got the lock is not known; it gives up.
                drop(self.clients.swap_remove(who));
                self.excuse(what, &error)
            }
            (Ok(_), outcome) => bail!("{what} of {key:?} succeeded, expected {outcome:?}"),
        }
    }

    fn create_dictionary(&mut self, who: usize) -> Result<()> {
        let options = setup::dictionary(&mut self.random);
        let own = &mut self.clients[who];
        match own.txn.create_dictionary(options) {
            Ok(id) => {
                own.changes.created.push(id.0);
                let line = format!("{}: create dictionary {} {options:?}", own.txn.id(), id.0);
                self.note(line);
                Ok(())
            }
            Err(error) => self.excuse("create dictionary", &error),
        }
    }

    /// In a transaction of its own, with a write elsewhere.
    pub(crate) fn drop_dictionary(&mut self) -> Result<()> {
        let all = self.model.dictionaries(self.model.newest);
        let Some(victim) = self.random.pick(&all).copied() else { return Ok(()) };
        if victim == DictionaryId::ROOT.0 || !self.features.has(Feature::Dictionaries) {
            return Ok(());
        }
        self.note(format!("drop dictionary {victim}"));
        self.begin()?;
        let who = self.clients.len() - 1;
        let locked = self.clients.iter().any(|c| c.changes.locks.iter().any(|k| k.0 == victim));
        // A range may be locked where no key is.
        let may_be_locked = locked || self.clients.iter().any(|client| client.locks_ranges);
        match self.clients[who].txn.drop_dictionary(DictionaryId(victim)) {
            Ok(()) if !locked => {
                self.clients[who].changes.dropped.push(victim);
                self.commit(who)
            }
            Ok(()) => bail!("dictionary {victim} was dropped under somebody's locks"),
            Err(error) => {
                drop(self.clients.swap_remove(who));
                match error {
                    Error::LockTimeout { .. } if may_be_locked => Ok(()),
                    error => self.excuse("drop dictionary", &error),
                }
            }
        }
    }

    pub(crate) fn read(&mut self, who: usize) -> Result<()> {
        if self.random.one_in(8) {
            let newest = self.model.newest;
            let own = &mut self.clients[who];
            if own.on_conflict == OnConflict::Latest {
                own.txn.refresh_snapshot();
                own.snapshot = newest;
            }
        }
        let key: Key = (self.dictionary_for(who), self.random.key(self.setup.keys));
        let own = &self.clients[who];
        let (dictionary, at) = (key.0, own.snapshot);
        let visible = self.model.exists(dictionary, at)
            || own.changes.created.contains(&dictionary)
            || own.changes.writes.contains_key(&key) && !own.changes.buried.contains(&key);
        let expected = self.model.seen(&own.changes.writes, &key, at);
        match own.txn.get(DictionaryId(dictionary), &key.1) {
            Ok(seen) => {
                let seen = seen.map(engine::Value::into_vec);
                ensure!(visible, "{key:?} was read at {at}, before its dictionary was there");
                ensure!(seen == expected, "{key:?} at {at} reads {seen:?}, not {expected:?}");
                Ok(())
            }
            Err(Error::NoSuchDictionary(_)) if !visible => Ok(()),
            Err(error) => self.excuse("get", &error),
        }
    }

    pub(crate) fn savepoint(&mut self, who: usize) -> Result<()> {
        if !self.features.has(Feature::Savepoints) {
            return Ok(());
        }
        let back = self.random.one_in(2);
        let own = &mut self.clients[who];
        if !back {
            let created = own.changes.created.len();
            let notes = own.changes.told.notes.len();
            own.savepoints.push((own.txn.savepoint(), own.changes.writes.clone(), created, notes));
        } else if let Some((savepoint, writes, created, notes)) = own.savepoints.pop() {
            own.txn.rollback_to(savepoint);
            own.changes.writes = writes;
            own.changes.created.truncate(created);
            own.changes.told.notes.truncate(notes);
        }
        let (id, depth) = (own.txn.id(), own.savepoints.len());
        self.note(format!("{id}: {depth} savepoints"));
        Ok(())
    }

    pub(crate) fn abort(&mut self, who: usize) -> Result<()> {
        let mut own = self.clients.swap_remove(who);
        let id = own.txn.id();
        if self.random.one_in(3) {
            self.note(format!("{id}: killed"));
            ensure!(self.engine()?.kill_transaction(id), "transaction {id} is not there");
            let next = own.txn.put(DictionaryId::ROOT, b"k", b"never");
            ensure!(matches!(next, Err(Error::Interrupted)), "killed, then a put: {next:?}");
            let end = own.txn.commit(Durability::Buffered);
            ensure!(matches!(end, Err(Error::Interrupted)), "killed, then a commit: {end:?}");
            return Ok(());
        }
        self.note(format!("{id}: abort"));
        own.txn.abort();
        Ok(())
    }

    pub(crate) fn commit(&mut self, who: usize) -> Result<()> {
        let synced = self.random.one_in(4);
        let durability = if synced { Durability::Synced } else { Durability::Buffered };
        let planted = match self.random.below(12) {
            0 | 1 if self.features.has(Feature::FullDisk) => Planted::FullDisk,
            2 if self.features.has(Feature::CommitPanics) => Planted::PanicBeforePublishing,
            3 if self.features.has(Feature::CommitPanics) => Planted::PanicAfterPublishing,
            _ => Planted::Nothing,
        };
        self.commit_with(who, durability, planted)
    }

    pub(crate) fn commit_as(&mut self, who: usize, durability: Durability) -> Result<()> {
        self.commit_with(who, durability, Planted::Nothing)
    }

    /// How many times it takes, and what it is.
    fn place_in_history(&mut self, txn: &mut EngineTxn, changes: &mut Changes) {
        changes.told.span = 1;
        if !self.features.has(Feature::History) {
            return;
        }
        if self.random.one_in(3) {
            changes.told.span = 1 + self.random.below(4) as u32;
            txn.set_span(changes.told.span);
        }
        if self.random.one_in(4) {
            changes.told.is_client_transaction = true;
            txn.set_client_transaction();
        }
    }

    fn commit_with(&mut self, who: usize, durability: Durability, planted: Planted) -> Result<()> {
        let Client { mut txn, snapshot, mut changes, has_buried, .. } =
            self.clients.swap_remove(who);
        self.place_in_history(&mut txn, &mut changes);
        let synced =
            durability == Durability::Synced || self.setup.options.log_flush_period.is_zero();
        let writes = changes.writes.len();
        self.note(format!("{}: commit {durability:?}, {writes} writes, {planted:?}", txn.id()));
        let mut published = None;
        let ended = catch_unwind(AssertUnwindSafe(|| {
            panic_next_commit(planted == Planted::PanicBeforePublishing);
            txn.commit_with(durability, |ts| {
                published = Some(ts.0);
                match planted {
                    // The next call is the log's: it writes what the sync is to make durable.
                    Planted::FullDisk if synced => {
                        self.sim.fault_at(self.sim.syscalls() + 1, Fault::NoSpace);
                    }
                    Planted::PanicAfterPublishing => resume_unwind(Box::new("planted")),
                    _ => {}
                }
            })
        }));
        panic_next_commit(false);
        // A spilled transaction may count as a commit also where all it wrote was taken back.
        let wrote = !changes.is_empty() || published.is_some_and(|ts| ts != snapshot);
        let Ok(result) = ended else {
            return self.commit_panicked(published, wrote || has_buried, changes);
        };
        if let Some(ts) = published.filter(|_| wrote) {
            ensure!(ts == self.model.newest + 1, "commit {ts} follows {}", self.model.newest);
            self.model.commit(ts, changes);
            self.tally.commits += 1;
        }
        let (committed, told) = match (result, published) {
            (Ok(committed), Some(told)) => (committed, told),
            (Ok(committed), None) => bail!("commit {committed:?} was never published"),
            (Err(error), Some(told)) if wrote => {
                bail!("commit {told} is visible, and was said to have failed: {error}")
            }
            (Err(error), _) => return self.excuse("commit", &error),
        };
        match committed.durable() {
            Ok(ts) => {
                ensure!(ts.0 == told, "commit {ts:?} was published as {told}");
                if wrote && synced {
                    self.model.durable = told;
                } else if durability == Durability::Synced {
                    // It vouches for what it read.
                    self.model.durable = self.model.newest;
                }
                Ok(())
            }
            Err(error) => {
                self.tally.commits_not_durable += 1;
                self.excuse("the sync of a commit", &error)
            }
        }
    }

    /// A commit ended by a bug: nobody may wait for it, and the next start decides whether it was.
    fn commit_panicked(
        &mut self,
        published: Option<u64>,
        wrote: bool,
        changes: Changes,
    ) -> Result<()> {
        self.tally.commit_panics += 1;
        let stopped = self.engine()?.stats().stopped.is_some();
        // One that spilled may count as a commit, and stop the engine, though all it wrote was taken back.
        if !wrote && !stopped {
            return Ok(());
        }
        ensure!(stopped, "a commit ended by a panic, and those behind it wait for it");
        match published {
            Some(ts) => self.model.commit(ts, changes),
            None => self.model.in_doubt = Some(changes),
        }
        let mut next = self.engine()?.begin(TxnOptions::default());
        let end = next
            .put(DictionaryId::ROOT, b"k", b"never")
            .and_then(|()| next.commit(Durability::Buffered)?.durable().map(drop));
        ensure!(
            matches!(
                end,
                Err(Error::Stopped(_) | Error::WriteConflict | Error::LockTimeout { .. })
            ),
            "a commit behind one that panicked: {end:?}"
        );
        self.down.get_or_insert(Down::Stopped);
        Ok(())
    }
}

/// What goes wrong in the middle of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Planted {
    Nothing,
    /// The disk fills up when the commit is visible, and before it is synced.
    FullDisk,
    /// A bug when its record is in the log…
    PanicBeforePublishing,
    /// …or when it is visible.
    PanicAfterPublishing,
}

thread_local! {
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

fn panic_next_commit(panics: bool) {
    PANICS.set(panics);
}

/// What the engine calls in each commit between the log and the publishing.
pub(crate) fn before_publishing() {
    if PANICS.replace(false) {
        resume_unwind(Box::new("planted"));
    }
}
