//! Commit: from private writes to visible ones, in the order the log has them.
//!
//! ```text
//!  room for the writes?      pacing, outside every lock
//!  chunks of a large one  →  log
//!  ┌ commit_order ─────────────────────────┐
//!  │ timestamp = newest + 1                │   one short lock: log order is timestamp order
//!  │ commit record  →  log buffer          │
//!  └───────────────────────────────────────┘
//!  writes  →  memtables      in parallel with other commits (a spill: becomes a layer)
//!  publish                   in timestamp order; readers see all of it or nothing
//!  open the locks
//!  wait until it is visible  only where commits are held back
//!  wait for the disk         only if asked
//! ```
//!
//! Always true:
//! 1. A failure before the record is in the log buffer leaves no trace. After it nothing can fail
//!    but the waits: for the disk, and then the commit is visible ([`Committed`]); where commits are held
//!    back, until it is visible, which it may never be ([`Submitted`]).
//! 2. Every timestamp that was given is published, or the engine has stopped: a bug (a panic)
//!    between the two would leave a gap that all later commits wait for ([`StopOnPanic`]).
//!
//! See `docs/flows/commit.md`.

use crate::adjustable::Adjustable;
use crate::commit_order::CommitOrder;
use crate::counters::Counters;
use crate::dictionary::{Directory, Found};
use crate::health::Health;
use crate::history::History;
use crate::log::{COUNTED_RECORD, Log};
use crate::maintenance::FreeSpace;
use crate::open_records::OpenRecord;
use crate::records::{self, Encoder, HistoryHead, Operation};
use crate::schedule::Scheduler;
use crate::settings::{PlantedBug, Sizes};
use crate::snapshots::Snapshots;
use crate::submitted::Submitted;
use crate::times;
use crate::txn::{EngineTxn, Notes};
use crate::{
    Committed, Compression, DictionaryOptions, Durability, Error, Result, Seen, Timestamp,
    txn::MAX_UPDATE_BYTES, unsettled,
};
use cachetable::{CacheTable, MemoryKind, Reservation};
use ftree::{Context, Message, SpillTree};
use os::Padded;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::Arc;
use wal::{Body, NewRecord, Place, Priority};

/// A transaction that drops a dictionary may write so much more (the catalog's own entries) and is
/// still let through on a full disk; so much writes one that a start cannot do without.
const MOST_BESIDE_A_DROP: u64 = 1 << 20;

thread_local! {
    static COMMITS: Cell<u64> = const { Cell::new(0) };
}

/// How many commits with writes this thread has completed: what a piece of code has left behind
/// is the difference.
pub fn thread_commits() -> u64 {
    COMMITS.get()
}

/// Runs internal work on this thread: its commits are not counted as the request's, and the request does
/// not wait for them ([`crate::Engine::settle`]).
pub fn outside_request<T>(work: impl FnOnce() -> T) -> T {
    let before = COMMITS.get();
    let result = unsettled::besides(work);
    COMMITS.set(before);
    result
}

/// A commit that ends by a bug after it took its timestamp stops the engine, as a background thread
/// that does: later commits would wait for its publishing for ever. Whether it is in the log only
/// the next start knows.
pub(crate) struct StopOnPanic<'a>(pub(crate) &'a Committer);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _stopped = self.0.health.stop("a commit ended by a bug; the log says where");
            self.0.snapshots.abandon();
        }
    }
}

/// A large transaction's chunks in the log.
struct Chunks {
    count: u32,
    /// At or before the first one.
    position: u64,
}

/// A commit whose record is in the log.
#[derive(Clone, Copy)]
struct Logged {
    timestamp: u64,
    /// The last of its cluster times, or 0.
    time: u64,
    end: u64,
    /// When it was given its timestamp.
    era: u64,
}

/// The place in the history of the commit that comes next.
fn history_head(
    history: &History,
    order: &CommitOrder,
    txn: &EngineTxn,
    chunks: Option<&Chunks>,
) -> HistoryHead {
    let notes = txn.notes.as_deref();
    HistoryHead {
        time: history.times().next(order.time),
        span: notes.map_or(1, Notes::span),
        is_client_transaction: notes.is_some_and(|notes| notes.is_client_transaction),
        first_chunk: chunks.map_or(0, |chunks| chunks.position),
    }
}

/// Makes transactions' writes durable and visible, in one order.
pub(crate) struct Committer {
    pub(crate) order: Arc<Padded<Mutex<CommitOrder>>>,
    pub(crate) log: Arc<Padded<Log>>,
    pub(crate) history: Option<Arc<History>>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) schedule: Arc<Scheduler>,
    pub(crate) free_space: Arc<FreeSpace>,
    pub(crate) trees: Arc<Context>,
    pub(crate) cache: Arc<CacheTable>,
    pub(crate) health: Arc<Health>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) sizes: Sizes,
    /// Where `logFlushPeriod` is zero each commit is synced.
    pub(crate) adjustable: Arc<Adjustable>,
}

impl Committer {
    pub(crate) fn commit(
        &self,
        txn: &mut EngineTxn,
        durability: Durability,
        published: impl FnOnce(Timestamp),
    ) -> Result<Committed> {
        if txn.live.interrupt.is_set() {
            return Err(Error::Interrupted);
        }
        if !txn.has_writes() {
            let seen = txn.snapshot_timestamp();
            // What it has read at the newest state is told once others may see it.
            self.wait_visible(txn, (seen.0, txn.seen().era))?;
            published(seen);
            drop(txn.holder.take());
            let durable = match durability {
                // What it has read may be of commits that are not on disk yet.
                Durability::Synced => self.log.sync_to(self.log.wal().next_lsn()),
                Durability::Buffered => Ok(()),
            };
            return Ok(Committed::new(seen.0, 0, durable));
        }
        let held_back = self.snapshots.holds_back();
        let mut waiting = Some(published);
        let publish = |timestamp| {
            if !held_back && let Some(published) = waiting.take() {
                published(timestamp);
            }
        };
        let Logged { timestamp, time, end, era } = self.write(txn, || {}, publish)?;
        if held_back {
            self.wait_visible(txn, (timestamp, era))?;
            if let Some(published) = waiting {
                published(Timestamp(timestamp));
            }
        }
        let is_synced =
            durability == Durability::Synced || self.adjustable.log_flush_period().is_zero();
        let durable = if is_synced { self.log.sync_to(end) } else { Ok(()) };
        Ok(Committed::new(timestamp, time, durable))
    }

    /// Returns when a commit of an era is visible.
    fn wait_visible(&self, txn: &EngineTxn, (timestamp, era): (u64, u64)) -> Result<()> {
        if !self.snapshots.holds_back() {
            return Ok(());
        }
        Submitted::of(txn.handle(), (timestamp, era), 0, 0).wait()
    }

    /// As [`Committer::commit`], without waiting until it is visible or on disk.
    pub(crate) fn submit(&self, txn: &mut EngineTxn) -> Result<Submitted> {
        if txn.live.interrupt.is_set() {
            return Err(Error::Interrupted);
        }
        if !txn.has_writes() {
            let seen = txn.seen();
            drop(txn.holder.take());
            return Ok(Submitted::of(txn.handle(), (seen.timestamp, seen.era), 0, 0));
        }
        let Logged { timestamp, time, end, era } = self.write(txn, || {}, |_| {})?;
        Ok(Submitted::of(txn.handle(), (timestamp, era), time, end))
    }

    /// As [`Committer::submit`]; calls `written` while nobody reads the writes yet.
    pub(crate) fn submit_with(&self, txn: &mut EngineTxn, written: impl FnOnce()) -> Result<Seen> {
        if txn.live.interrupt.is_set() {
            return Err(Error::Interrupted);
        }
        if !txn.has_writes() {
            written();
            let seen = txn.seen();
            drop(txn.holder.take());
            return Ok(seen);
        }
        let Logged { timestamp, era, .. } = self.write(txn, written, |_| {})?;
        Ok(Seen { timestamp, era })
    }

    /// Commits became visible that were complete before.
    pub(crate) fn became_visible(&self) {
        self.schedule.became_visible();
        if let Some(times) = &self.log.times {
            times.settle(self.log.wal().synced_lsn());
        }
    }

    /// Writes a transaction to the log and into the trees, where it calls `written`; calls `published` when
    /// it is complete, and opens its locks.
    fn write(
        &self,
        txn: &mut EngineTxn,
        written: impl FnOnce(),
        published: impl FnOnce(Timestamp),
    ) -> Result<Logged> {
        let noted = txn.notes.as_ref().map_or(0, |notes| notes.bytes());
        let bytes = txn.writes.bytes();
        let little = bytes <= MOST_BESIDE_A_DROP && txn.writes.spilled().is_none();
        let gives_space_back = !txn.dropped.is_empty() || !txn.tombstones.is_empty();
        let priority = if (gives_space_back || txn.within_red_zone) && little {
            // What gives space back must not fail for want of it, nor must a first start.
            self.health.check_running()?;
            Priority::GivesSpaceBack
        } else {
            self.health.check_writable()?;
            self.free_space.take(bytes.saturating_add(noted))?;
            match txn.writes.spilled() {
                // It will bring nothing into memory.
                Some(spill) => self.health.check(spill.settle())?,
                None => self.schedule.make_room(bytes.saturating_sub(txn.paced))?,
            }
            Priority::Ordinary
        };
        let (tail, chunks, copy) = self.write_chunks(txn)?;
        let _guard = StopOnPanic(self);
        let logged = self.log_commit(txn, &tail, chunks.as_ref(), priority);
        let logged = match logged {
            Ok(logged) => logged,
            Err(error) => {
                self.abandon_chunks(txn, chunks.as_ref());
                return Err(error);
            }
        };
        // The log has it now.
        let Logged { timestamp, end, .. } = logged;
        let seen = txn.snapshot_timestamp().0;
        assert!(timestamp > seen, "commit {timestamp} is newer than what it has read, {seen}");
        records::keep_room(tail);
        drop(copy);
        if let Some(test) = self.sizes.before_publishing {
            test();
        }
        let grown = self.apply(txn, timestamp);
        written();
        if !self.snapshots.publish(timestamp) {
            return Err(self.health.stop("an earlier commit was never published"));
        }
        debug_assert!(
            self.snapshots.complete().get() >= timestamp,
            "what is published is complete"
        );
        if let Some(times) = &self.log.times {
            times.published(end, self.log.wal().synced_lsn());
        }
        if self.snapshots.holds_back() {
            // It may have been said to be committed before.
            self.schedule.became_visible();
        }
        published(Timestamp(timestamp));
        self.release_locks(txn, timestamp);
        self.counters.commits.inc();
        COMMITS.set(COMMITS.get() + 1);
        self.after_commit(txn, &grown);
        Ok(logged)
    }

    /// Encodes the writes. What exceeds one record goes to the log now, as chunks; the rest is
    /// returned, with its memory where it is large.
    fn write_chunks(
        &self,
        txn: &EngineTxn,
    ) -> Result<(Vec<u8>, Option<Chunks>, Option<Reservation>)> {
        let (longest, noted) = match &txn.notes {
            Some(notes) => (notes.longest().max(txn.writes.longest()), notes.bytes()),
            None => (txn.writes.longest(), 0),
        };
        let bytes = txn.writes.bytes().saturating_add(noted);
        let room = longest.saturating_add(self.sizes.chunk_bytes as u64).min(bytes);
        let copy = (room > COUNTED_RECORD).then(|| self.cache.reserve(MemoryKind::WriteSets, room));
        let mut encoder = Encoder::with_room(bytes, self.sizes.chunk_bytes);
        let mut chunks: Option<Chunks> = None;
        let written = self.encode(txn, &mut encoder, |encoder| {
            let chunks = chunks.get_or_insert_with(|| {
                let position = self.log.wal().next_lsn();
                self.log.needed.lock().chunk(txn.id(), position);
                Chunks { count: 0, position }
            });
            let head = records::chunk_head(txn.id(), chunks.count, self.history.is_some());
            let bytes = encoder.take();
            let (body, _room) = self.log.body(&bytes);
            self.append(txn.era(), &head, &body)?;
            chunks.count += 1;
            Ok(())
        });
        if let Err(error) = written {
            self.abandon_chunks(txn, chunks.as_ref());
            return Err(error);
        }
        Ok((encoder.take(), chunks, copy))
    }

    fn encode(
        &self,
        txn: &EngineTxn,
        encoder: &mut Encoder,
        mut full: impl FnMut(&mut Encoder) -> Result<()>,
    ) -> Result<()> {
        for (dictionary, options) in &txn.created {
            if !txn.dropped.contains(dictionary) {
                let (dictionary, options) = (*dictionary, *options);
                encoder.write(match txn.loaded(dictionary) {
                    Some(_) => Operation::Adopt { dictionary, options },
                    None => Operation::Create { dictionary, options },
                });
            }
        }
        for own in txn.buries() {
            let one = &own.tombstone;
            encoder.write(Operation::Tombstone {
                dictionary: own.dictionary,
                part: &one.part,
                lower: &one.lower,
                upper: one.upper.as_deref(),
            });
        }
        let stays = |dictionary| !txn.dropped.contains(&dictionary);
        txn.writes.each(stays, |dictionary, key, message| {
            match message {
                Message::Put(value) | Message::Large(value) => encoder.put(dictionary, key, value),
                Message::Delete => encoder.write(Operation::Delete { dictionary, key }),
                Message::Update(argument) => {
                    assert!(argument.len() <= MAX_UPDATE_BYTES, "its length was checked");
                    encoder.write(Operation::Update { dictionary, key, argument });
                }
            }
            if encoder.bytes.len() >= self.sizes.chunk_bytes {
                full(encoder)?;
            }
            Ok(())
        })?;
        for (dictionary, options) in &txn.reshaped {
            if !txn.dropped.contains(dictionary) {
                let (dictionary, options) = (*dictionary, *options);
                encoder.write(Operation::Reshape { dictionary, options });
            }
        }
        for dictionary in &txn.dropped {
            if !txn.created.iter().any(|(created, _)| created == dictionary) {
                encoder.write(Operation::Drop { dictionary: *dictionary });
            }
        }
        for note in txn.notes.iter().flat_map(|notes| notes.iter()) {
            encoder.write(Operation::Note { note });
            if encoder.bytes.len() >= self.sizes.chunk_bytes {
                full(encoder)?;
            }
        }
        Ok(())
    }

    /// Appends a record that has no timestamp, of a transaction that began in an era. Where commits are held
    /// back it has its place in an entry.
    fn append(&self, era: u64, head: &[u8], body: &Body<'_>) -> Result<()> {
        let head = [head];
        let record = NewRecord::new(&head, body);
        if !self.snapshots.holds_back() {
            return self.log.append(&record).map(drop);
        }
        let leads = |order: &CommitOrder| self.check_leads(order, era);
        self.append_in_order(&record, leads, |order, place| {
            self.take_in(order, place, head[0], body);
        })
    }

    /// Takes a record that is in the log into what is open.
    fn take_in(&self, order: &mut CommitOrder, place: Place, head: &[u8], body: &Body<'_>) {
        let newest = (order.newest, order.time);
        let place = (place.begin, place.end);
        order.open.append(&OpenRecord { place, head, body, newest });
        self.log.set_entry_bytes(order.open.memory_bytes());
    }

    /// Fails where a transaction that began in `era` may not write: another leader may have written since.
    fn check_leads(&self, order: &CommitOrder, era: u64) -> Result<()> {
        if order.refuses_writes || self.snapshots.era() != era {
            return Err(Error::NotLeader);
        }
        Ok(())
    }

    /// Appends a record under the lock that orders commits, where `may` says so, and calls `done` with its
    /// place.
    pub(crate) fn append_in_order<T>(
        &self,
        record: &NewRecord<'_>,
        may: impl Fn(&CommitOrder) -> Result<()>,
        done: impl FnOnce(&mut CommitOrder, Place) -> T,
    ) -> Result<T> {
        loop {
            let mut order = self.order.lock();
            may(&order)?;
            let appended = self.log.wal().try_append(record, Priority::Ordinary);
            if let Some(place) = self.health.check(appended)? {
                let done = done(&mut order, place);
                drop(order);
                self.log.grew(place.end);
                return Ok(done);
            }
            drop(order);
            self.health.check(self.log.wal().make_room(record, Priority::Ordinary))?;
        }
    }

    /// Takes the next timestamp and appends the commit record under it.
    fn log_commit(
        &self,
        txn: &EngineTxn,
        tail: &[u8],
        chunks: Option<&Chunks>,
        priority: Priority,
    ) -> Result<Logged> {
        let id = txn.id();
        let count = chunks.map_or(0, |chunks| chunks.count);
        let held_back = self.snapshots.holds_back();
        let (body, _room) = self.log.body(tail);
        let (mut order, timestamp, history_head, head, place) = loop {
            let order = self.order.lock();
            if held_back {
                self.check_leads(&order, txn.era())?;
            }
            let timestamp = order.newest + 1;
            let history = self.history.as_deref();
            let history_head = history.map(|history| history_head(history, &order, txn, chunks));
            let head = records::commit_head(id, timestamp, count, history_head);
            let pieces = [head.bytes()];
            let record = NewRecord::new(&pieces, &body);
            let appended = self.log.wal().try_append(&record, priority);
            if let Some(place) = self.health.check(appended)? {
                break (order, timestamp, history_head, head, place);
            }
            // Where the log has no room, nobody else waits for this one.
            drop(order);
            self.health.check(self.log.wal().make_room(&record, priority))?;
        };
        let Place { begin: position, end } = place;
        order.newest = timestamp;
        let mut time = 0;
        if let (Some(history), Some(own)) = (&self.history, history_head) {
            time = own.last_time();
            assert!(order.time < own.time, "times ascend");
            order.time = time;
            history.times().given(times::Place { timestamp, time, end });
            if count > 0 || position >= order.next_history_point {
                order.next_history_point = history.note_commit(&own, count, position);
            }
        }
        if held_back {
            let head = if count > 0 {
                // Positions are of this log alone.
                let sent = history_head.map(|own| HistoryHead { first_chunk: 0, ..own });
                records::commit_head(id, timestamp, count, sent)
            } else {
                head
            };
            self.take_in(&mut order, place, head.bytes(), &body);
        }
        if chunks.is_some() || position >= order.next_point {
            let mut needed = self.log.needed.lock();
            order.next_point = needed.commit(timestamp, position);
            if let Some(chunks) = chunks {
                needed.chunks_end(id, chunks.position, Some(timestamp));
            }
        }
        drop(order);
        self.log.grew(end);
        Ok(Logged { timestamp, time, end, era: txn.era() })
    }

    /// The transaction will not commit: its chunks need not be kept.
    fn abandon_chunks(&self, txn: &EngineTxn, chunks: Option<&Chunks>) {
        if let Some(chunks) = chunks {
            self.log.needed.lock().chunks_end(txn.id(), chunks.position, None);
            // Only saves memory in a recovery; without it the chunks still count for nothing.
            let _told = self.append(txn.era(), &records::abort_record(txn.id()), &Body::plain(&[]));
        }
    }

    /// A place on disk for the writes of a transaction that are too many for memory.
    pub(crate) fn start_spill(&self, txn: u64) -> SpillTree {
        // Short-lived: compressed fast rather than well. The number is no dictionary's.
        let options = DictionaryOptions { compression: Compression::Lz4, ..Default::default() };
        let shape = self.directory.shape(&options);
        self.counters.spills.inc();
        SpillTree::create(&self.trees, 1 << 63 | txn, shape, self.sizes.spill_bytes)
    }

    /// Puts the writes into the trees. Memory only, cannot fail: a spilled set is laid over the
    /// trees as it is, and background work takes it from there. Says which dictionaries took more
    /// memory for it.
    fn apply(&self, txn: &EngineTxn, timestamp: u64) -> SmallVec<[Found; 2]> {
        let mut grown = SmallVec::new();
        for (id, options) in &txn.created {
            if !txn.dropped.contains(id) {
                if txn.loaded(*id).is_some() {
                    let created = match self.sizes.planted {
                        Some(PlantedBug::AdoptsForAll) => 0,
                        _ => timestamp,
                    };
                    let adopted = self.directory.adopt(*id, *options, created);
                    assert!(adopted, "what a transaction adopts is staged");
                } else {
                    self.directory.create(*id, *options, timestamp);
                }
            }
        }
        for own in txn.buries() {
            if let Some(dictionary) = self.directory.find(own.dictionary) {
                dictionary.written_at(timestamp);
                debug_assert_eq!(own.tombstone.ts, u64::MAX, "a tombstone is committed once");
                let tombstone = ftree::Tombstone { ts: timestamp, ..own.tombstone.clone() };
                dictionary.tree.add_tombstone(tombstone);
            }
        }
        txn.writes.each_dictionary(|id, in_memory| {
            if txn.dropped.contains(&id) {
                return;
            }
            // Its lock keeps everybody else from dropping it.
            let looked_up;
            let dictionary = if let Some(found) = txn.used(id) {
                found
            } else {
                looked_up = self.directory.find(id);
                let Some(found) = &looked_up else { return };
                found
            };
            dictionary.written_at(timestamp);
            let mut grew = false;
            if let Some(spill) = txn.writes.spilled() {
                let visible = self.snapshots.visible().get();
                dictionary.tree.adopt(spill, id, timestamp, visible, || dictionary.newest_write());
                self.schedule.add_layer(dictionary);
                grew = true;
            }
            if let Some(writes) = in_memory {
                writes.each_together(|writes| {
                    grew |= match writes {
                        [(key, message)] => dictionary.tree.insert(key, timestamp, *message),
                        writes => dictionary.tree.insert_all(timestamp, writes),
                    };
                });
            }
            if grew {
                grown.push(dictionary.clone());
            }
        });
        for (id, options) in &txn.reshaped {
            if let Some(dictionary) = self.directory.find(*id) {
                if self.snapshots.holds_back() {
                    let visible = self.snapshots.visible();
                    self.directory.reshape_held_back(&dictionary, *options, timestamp, visible);
                } else {
                    self.directory.reshape(&dictionary, *options);
                }
            }
        }
        for id in &txn.dropped {
            if let Some(dictionary) = self.directory.find(*id) {
                dictionary.drop_at(timestamp);
            }
        }
        grown
    }

    /// Opens the locks; where a transaction lives that will ask, the keys remember the commit.
    fn release_locks(&self, txn: &mut EngineTxn, timestamp: u64) {
        if !txn.tombstones.is_empty() {
            // Keys of a range remember nothing: who has one and does not see the commit yet has to look.
            txn.handle().locks.not_remembered(timestamp);
        }
        txn.unpin();
        // After publishing: whoever begins from now on has it in its snapshot, or, where commits are
        // held back, is below it as long as it is not visible.
        let remember = self.snapshots.oldest_watching() < timestamp;
        txn.holder.release(remember.then_some(timestamp));
    }

    /// Accounts for the memory the commit took; seals memtables that are full.
    fn after_commit(&self, txn: &EngineTxn, grown: &[Found]) {
        for dictionary in grown {
            self.schedule.account(dictionary);
        }
        for own in txn.buries() {
            if let Some(dictionary) = self.directory.find(own.dictionary) {
                // What is in memory of it goes to the disk, or nowhere: then it can be swept.
                self.schedule.seal(&dictionary);
            }
        }
        if !txn.dropped.is_empty() {
            self.counters.drops.inc();
            self.schedule.queue.wake();
        }
    }
}
