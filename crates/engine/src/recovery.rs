//! Recovery: the newest checkpoint, then the log behind it.
//!
//! Only reads, until the log is opened for writing at the end; what it drains when memory is full
//! goes to new segments that no checkpoint names. So a crash during recovery changes nothing.
//!
//! A commit is replayed into each tree that has not flushed it yet, by threads that share the keys
//! out while the next records are read. Memory stays bounded: full memtables are drained as they
//! go, and the chunks of a large transaction are read again once its commit record has come. What is refused, always with
//! the place: a log that does not reach back to the checkpoint, or not up to what was synced
//! before the checkpoint; timestamps that do not follow each other; records that cannot be read.
//!
//! A member's log is looked at first ([`scan`]): what is void is not replayed, and commits that no majority is
//! known to have are complete and not visible. So is some of what is before the checkpoint ([`older`]), for
//! members that were away; nothing else follows from that.
//! See `docs/flows/recovery.md`.

mod older;
mod scan;
mod workers;

use crate::checkpoint::CheckpointRoot;
use crate::chunk_lists::{ChunkLists, Chunked};
use crate::dictionary::Dictionary;
use crate::dictionary::staged::STAGED;
use crate::entries::{Entries, EntryId};
use crate::environment::Environment;
use crate::history::Voids;
use crate::records::{self, Cut, EntryKind, HistoryHead, Operation, Operations, Record};
use crate::settings::PlantedBug;
use crate::times::Place;
use crate::{Background, Error, Result, Showing};
use blockfile::CheckpointImage;
use ftree::{SpillTree, Tombstone, Tree};
use older::older;
use scan::{LogScan, scan};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wal::Replay;
use workers::{Batch, Workers};
pub(crate) use workers::{Piece, each_needed, key_write, needed_dictionary};

/// What recovery did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Commits replayed.
    pub commits: u64,
    /// Operations of them that were not yet in their trees.
    pub operations: u64,
    /// Bytes of log read.
    pub log_bytes: u64,
    /// How long it took.
    pub micros: u64,
    /// Commits are held back from now on, and were not before: a checkpoint has to say so.
    pub(crate) is_new_member: bool,
}

/// Holes of the data file that are given back where the log finds no room.
const PUNCHES: usize = 1024;
/// Bytes of records that are applied together, on several threads.
const BATCH_BYTES: usize = 4 << 20;

/// The state between two records.
struct Redo<'a> {
    environment: &'a Environment,
    workers: Workers,
    /// Reads chunks again when their transaction is known to have committed.
    again: Replay,
    /// What is read and not yet being applied.
    batch: Batch,
    /// Dictionaries the batch writes to.
    touched: BTreeSet<u64>,
    /// Dictionaries the batch before it writes to, which is being applied…
    applying: BTreeSet<u64>,
    /// …and the newest commit that is complete with it.
    complete: u64,
    /// Dictionary → every commit up to this was in its tree at the checkpoint.
    flushed: BTreeMap<u64, u64>,
    /// Transactions whose commit record has not come yet, by id and position of the first chunk: positions of their
    /// chunks. Two may have one id: see [`ChunkLists`].
    chunks: BTreeMap<(u64, u64), Vec<u64>>,
    /// Of those, the first entry of a later term, if one has come.
    fences: BTreeMap<(u64, u64), u64>,
    newest: u64,
    /// No commit so far has a later cluster time.
    time: u64,
    /// The last cluster time of the commit before; 0 before the first.
    last_time: u64,
    /// From here on the log is history, if it is.
    history_from: Option<u64>,
    /// The checkpoint's timestamp.
    checkpoint: u64,
    /// Nothing has been replayed yet; then commits follow each other.
    first: bool,
    /// Some dictionaries were dropped and are still held.
    dropping: bool,
    /// What of the log is void.
    voids: Voids,
    /// Where commits are held back, the newest that is visible, until one comes that is not.
    visible: Option<Place>,
    has_invisible: bool,
    done: Recovered,
}

/// What the log has said, once all of it is replayed.
struct Replayed {
    done: Recovered,
    /// The newest commit, and its cluster time.
    newest: u64,
    time: u64,
    /// Transactions of a member whose commit may come with another entry.
    chunked: ChunkLists,
    all_visible: bool,
    history_from: Option<u64>,
    voids: Voids,
}

/// Opens what the checkpoint names, replays the log and opens it for writing.
pub(crate) fn recover(
    environment: &Arc<Environment>,
    image: Option<&CheckpointImage>,
    mut log: Replay,
) -> Result<Recovered> {
    let started = environment.os.clock.monotonic();
    let root = read_root(image, &mut log)?;
    let flushed = open_trees(environment, root.as_ref())?;
    let redo_from = image.map_or_else(|| log.first_lsn(), |i| i.lsn);
    let root = root.unwrap_or_default();
    go_on_after(environment, &root, redo_from);
    let mut scan = look_at(environment, image, &root, &log)?;
    if environment.options.sizes.planted == Some(PlantedBug::IgnoresCuts) {
        scan.voids = Voids::default();
    }
    let holds_back = environment.options.showing == Showing::Committed;
    let dropped = scan.open.filter(|_| scan.is_member && holds_back);
    if let Some(from) = dropped {
        scan.voids.add(from, u64::MAX);
    }
    environment.snapshots.advance_commit_point(scan.committed);
    let mut redo = Redo::start(environment, &root, flushed, redo_from, &mut scan, log.again());
    redo.replay(&mut log, root.log_end)?;
    let mut replayed = redo.finish(&root, &scan);
    let last = publish(environment, &mut replayed, scan);
    open_log(environment, &mut log, &mut replayed, dropped, last)?;
    environment.directory.staging.discard_all();
    environment.pruning.drop_invisible();
    for dictionary in environment.directory.those(|dictionary| dictionary.tree.tombstones() > 0) {
        // They are swept once nothing older is in memory.
        environment.schedule.seal(&dictionary);
    }
    let took = environment.os.clock.monotonic().saturating_sub(started);
    replayed.done.micros = took.as_micros() as u64;
    Ok(replayed.done)
}

/// The checkpoint's root, where there is a checkpoint; the log then stands behind it.
fn read_root(image: Option<&CheckpointImage>, log: &mut Replay) -> Result<Option<CheckpointRoot>> {
    let Some(image) = image else { return Ok(None) };
    let root = CheckpointRoot::fold(&image.root, &image.changes)
        .map_err(|e| Error::Corruption(format!("checkpoint root: {e}").into()))?;
    log.seek(image.lsn)?;
    Ok(Some(root))
}

/// Ids, checkpoints and the log's needs go on from where the checkpoint was.
fn go_on_after(environment: &Environment, root: &CheckpointRoot, redo_from: u64) {
    environment.log.needed.lock().start_at(redo_from);
    environment.log.set_redo_from(redo_from);
    environment.checkpoints.begin_after(root);
    environment.directory.taken_below(root.next_dictionary);
    environment.live.taken_below(root.next_txn);
}

impl<'a> Redo<'a> {
    fn start(
        environment: &'a Arc<Environment>,
        root: &CheckpointRoot,
        flushed: BTreeMap<u64, u64>,
        redo_from: u64,
        scan: &mut LogScan,
        again: Replay,
    ) -> Self {
        let newest = flushed.values().copied().min().unwrap_or(0).min(root.timestamp);
        // A checkpoint holds nothing that may be overwritten. It is visible once it is complete again: memtables
        // that are sealed meanwhile say that they hold all that is visible.
        environment.snapshots.advance_commit_point(root.timestamp);
        environment.snapshots.start_at(newest);
        let threads = environment.options.background == Background::Threads;
        let holds_back = environment.options.showing == Showing::Committed;
        Self {
            environment,
            workers: Workers::start(environment, threads),
            again,
            batch: Batch::default(),
            touched: BTreeSet::new(),
            applying: BTreeSet::new(),
            complete: newest,
            newest,
            time: root.time,
            last_time: 0,
            history_from: root.history_from,
            flushed,
            checkpoint: root.timestamp,
            chunks: BTreeMap::new(),
            fences: BTreeMap::new(),
            first: true,
            dropping: false,
            voids: std::mem::take(&mut scan.voids),
            visible: (holds_back && scan.is_member).then_some(Place {
                timestamp: root.timestamp,
                time: root.time,
                end: redo_from,
            }),
            has_invisible: false,
            done: Recovered::default(),
        }
    }

    /// Replays the log to its end. It was synced up to `synced` before the checkpoint: it may not end before that.
    fn replay(&mut self, log: &mut Replay, synced: u64) -> Result<()> {
        let mut end = 0;
        while let Some(record) = log.next_record()? {
            end = record.end;
            self.done.log_bytes += record.payload.len() as u64;
            self.record((record.lsn, record.end), record.payload)?;
        }
        self.hand_over()?;
        self.finish_batch()?;
        if synced > end && synced > log.find_end()? {
            let text =
                format_args!("the log ends, but was synced up to {synced} before the checkpoint");
            return Err(Error::in_record(end, text));
        }
        Ok(())
    }

    /// What there is now. Chunks of transactions that can commit no more are not needed from here on.
    fn finish(mut self, root: &CheckpointRoot, scan: &LogScan) -> Replayed {
        let environment = self.environment;
        let newest = self.newest.max(root.timestamp);
        let (mut time, history_from) = (self.time, self.history_from);
        if environment.history.is_some() && history_from.is_none() && newest > 0 {
            // Commits without a time came since: whoever has seen the last time has not seen them.
            time = time.saturating_add(1);
        }
        let holds_back = environment.options.showing == Showing::Committed;
        let mut chunked = ChunkLists::default();
        for (txn, first) in std::mem::take(&mut self.chunks).into_keys() {
            let fence = self.fences.remove(&(txn, first));
            let is_over = fence.is_some_and(|fence| fence <= scan.entries.committed());
            if scan.is_member && holds_back && !is_over {
                // Its commit may come with another entry.
                chunked.begin(txn, Chunked { first, fence });
            } else {
                environment.log.needed.lock().chunks_end(txn, first, None);
            }
        }
        Replayed {
            done: self.done,
            newest,
            time,
            chunked,
            all_visible: !self.has_invisible,
            history_from,
            voids: self.voids,
        }
    }
}

/// Commits go on behind the newest one that was replayed. Returns the last entry.
fn publish(environment: &Environment, replayed: &mut Replayed, scan: LogScan) -> EntryId {
    let (newest, time) = (replayed.newest, replayed.time);
    if environment.options.showing == Showing::Committed && !scan.is_member {
        // It has shown every commit so far.
        environment.snapshots.advance_commit_point(newest);
        replayed.done.is_new_member = true;
    }
    environment.snapshots.start_at(newest);
    if environment.snapshots.visible().get() < newest {
        // Transactions on a snapshot may meet them.
        environment.locks.not_remembered(newest);
    }
    let mut order = environment.commits.order.lock();
    (order.newest, order.time) = (newest, time);
    order.chunked = std::mem::take(&mut replayed.chunked);
    order.entries = if scan.is_member {
        scan.entries
    } else {
        Entries::behind(EntryId { index: 0, term: 0, timestamp: newest, time })
    };
    order.entries.last()
}

/// The log is written from here on. What is void from `dropped` on is cut off behind the last entry.
fn open_log(
    environment: &Environment,
    log: &mut Replay,
    replayed: &mut Replayed,
    dropped: Option<u64>,
    last: EntryId,
) -> Result<()> {
    if let Some(wal::TornTail { lsn, file, offset }) = log.torn_tail() {
        tracing::warn!(
            lsn,
            offset,
            file = %file.display(),
            "the log ends in a record that is not whole: it was being written when the server ended, \
             or it was damaged since; nothing on disk says that it was synced"
        );
    }
    let wal = match log.start_writing() {
        // What was written since the checkpoint is free space of the data file now.
        Err(wal::Error::NoSpace { .. }) => {
            environment.blocks.shrink(PUNCHES)?;
            log.start_writing()?
        }
        started => started?,
    };
    let mut voids = std::mem::take(&mut replayed.voids);
    if let Some(from) = dropped {
        let cut = Cut { index: last.index.saturating_add(1), timestamp: last.timestamp, from };
        let end = wal.append(&[&records::cut_record(&cut)])?;
        wal.sync_to(end)?;
        voids.add(from, end);
    }
    if let Some(history) = &environment.history {
        let (timestamp, time) = (replayed.newest, replayed.time);
        let place = Place { timestamp, time, end: wal.next_lsn() };
        history.set_voids(voids);
        if let Some(file) = log.damaged_segment() {
            tracing::error!(
                file = %file.display(),
                "the header of this file of the log is damaged: the history begins behind it"
            );
            history.lost_before(wal.first_lsn());
        }
        history.start_at(place, replayed.history_from, replayed.all_visible);
    }
    environment.log.open(wal);
    Ok(())
}

/// What of the log counts, where it is a member's or may be.
fn look_at(
    environment: &Environment,
    image: Option<&CheckpointImage>,
    root: &CheckpointRoot,
    log: &Replay,
) -> Result<LogScan> {
    let holds_back = environment.options.showing == Showing::Committed;
    if !holds_back && root.member.is_none() && image.is_some() {
        return Ok(LogScan::default());
    }
    let mut again = log.again();
    if let Some(image) = image {
        again.seek(image.lsn)?;
    }
    let mut looked_at = scan(&mut again, root.member.as_ref())?;
    let (Some(member), Some(image)) = (&root.member, image) else { return Ok(looked_at) };
    let (index, told) = (member.configured, member.configuration.as_slice());
    looked_at.entries.configure(index, told.into());
    if holds_back {
        let most_bytes = environment.options.sizes.look_back_bytes;
        let older = older(&mut log.again(), member, image.lsn, most_bytes);
        looked_at.entries.look_back(older);
    }
    Ok(looked_at)
}

/// Opens each tree of the checkpoint and frees segments no tree names. Returns how far each tree
/// has flushed.
fn open_trees(
    environment: &Environment,
    root: Option<&CheckpointRoot>,
) -> Result<BTreeMap<u64, u64>> {
    let Some(root) = root else {
        environment.directory.create_root();
        return Ok(BTreeMap::from([(crate::DictionaryId::ROOT.0, 0)]));
    };
    let mut flushed = BTreeMap::new();
    let mut live = BTreeSet::new();
    for saved in &root.dictionaries {
        let shape = environment.directory.shape(&saved.options);
        let tree = Tree::open(&environment.trees, saved.id, shape, &saved.image)?;
        if tree.has_tombstones_of_parts() {
            environment.check_finds_parts()?;
        }
        live.extend(tree.segments());
        flushed.insert(saved.id, saved.flushed_in(root));
        if saved.created == STAGED {
            // A commit behind the checkpoint may adopt it.
            environment.directory.stage(saved.id, saved.options, tree);
            continue;
        }
        let dictionary = Dictionary::new(saved.id, saved.options, tree, saved.created);
        dictionary.note_quiescent(saved.flushed_in(root));
        environment.directory.add(dictionary);
    }
    environment.blocks.retain(|segment| live.contains(&segment.id.0))?;
    Ok(flushed)
}

impl Environment {
    /// A commit that was logged deletes a range, unless that is done already.
    pub(crate) fn bury(&self, dictionary: u64, tombstone: Tombstone) -> Result<()> {
        if let Some(found) = self.directory.find(dictionary)
            && found.tree.flushed_ts() < tombstone.ts
        {
            if !tombstone.part.is_empty() {
                self.check_finds_parts()?;
            }
            debug_assert!(tombstone.ts < u64::MAX, "a commit that is in the log has its timestamp");
            found.written_at(tombstone.ts);
            found.tree.add_tombstone(tombstone);
        }
        Ok(())
    }

    /// Refuses ranges of parts of entries where nothing finds those: what was deleted would be shown.
    fn check_finds_parts(&self) -> Result<()> {
        if self.options.record_part.is_some() {
            return Ok(());
        }
        let text =
            "ranges of record keys were deleted here, and nothing finds record keys in entries";
        Err(Error::InvalidOption(text.to_owned()))
    }
}

impl Redo<'_> {
    fn record(&mut self, (position, end): (u64, u64), payload: &[u8]) -> Result<()> {
        let damaged = |e| Error::in_record(position, e);
        let is_void = self.voids.has(position);
        match Record::decode(payload).map_err(damaged)? {
            Record::Chunk { txn, .. } | Record::Commit { txn, .. } if is_void => {
                self.saw_txn(txn);
                Ok(())
            }
            _ if is_void => Ok(()),
            Record::Chunk { txn, number, .. } => {
                self.saw_txn(txn);
                self.chunk(position, txn, number)
            }
            Record::Abort { txn } => {
                self.forget_chunks(txn, None);
                Ok(())
            }
            Record::Entry { head, .. } => {
                if head.kind == EntryKind::Fence {
                    for list in self.chunks.keys() {
                        self.fences.entry(*list).or_insert(head.index);
                    }
                }
                Ok(())
            }
            Record::Cut(cut) => {
                // Those that were looked for are known; a log that was not looked at has none.
                if self.voids.has(cut.from) {
                    return Ok(());
                }
                let text = "a tail was overwritten: this is the log of a member of a set, and is to be \
                            opened as one";
                Err(Error::in_record(position, text))
            }
            Record::Commit { txn, timestamp, chunks, history, operations } => {
                self.saw_txn(txn);
                self.place(position, chunks, history)?;
                self.note_visible(timestamp, history, end);
                self.commit(position, txn, timestamp, chunks, operations)
            }
        }
    }

    /// Notes where a commit stands in the history.
    fn place(&mut self, position: u64, chunks: u32, history: Option<HistoryHead>) -> Result<()> {
        let Some(head) = history else {
            // Written while none was kept: what is before cannot be followed over it.
            self.history_from = None;
            return Ok(());
        };
        if head.time <= self.last_time {
            let text = format_args!("time {} follows time {}", head.time, self.last_time);
            return Err(Error::in_record(position, text));
        }
        self.last_time = head.last_time();
        self.time = self.time.max(head.last_time());
        // A large one begins with its chunks.
        self.history_from.get_or_insert(if chunks > 0 { head.first_chunk } else { position });
        if let Some(history) = &self.environment.history {
            history.note_commit(&head, chunks, position);
        }
        Ok(())
    }

    /// Where commits are held back: what is visible is durable as well, the others are given.
    fn note_visible(&mut self, timestamp: u64, head: Option<HistoryHead>, end: u64) {
        let (Some(history), Some(head)) = (&self.environment.history, head) else { return };
        let place = Place { timestamp, time: head.last_time(), end };
        match self.visible {
            Some(before) if timestamp <= self.environment.snapshots.committed_to() => {
                let newer = timestamp >= before.timestamp;
                self.visible = Some(if newer { place } else { Place { end, ..before } });
            }
            Some(before) => {
                history.times().start_at(before);
                history.times().given(place);
                self.visible = None;
                self.has_invisible = true;
            }
            None if self.has_invisible => history.times().given(place),
            None => {}
        }
    }

    /// Ids of transactions are not used again while the log may hold their chunks.
    fn saw_txn(&self, txn: u64) {
        self.environment.live.taken_below(txn.saturating_add(1));
    }

    /// Remembers where a chunk is: what it holds is read again if its transaction commits.
    fn chunk(&mut self, position: u64, txn: u64, number: u32) -> Result<()> {
        if number == 0 {
            self.environment.log.needed.lock().chunk(txn, position);
            self.chunks.insert((txn, position), Vec::new());
        }
        // Chunks whose first is before the log's start belong to a commit that is flushed.
        let mut lists = self.chunks.range_mut((txn, 0)..=(txn, u64::MAX));
        let Some((_, positions)) = lists.next_back() else { return Ok(()) };
        if positions.len() as u64 != u64::from(number) {
            let text = format_args!("chunk {number} is out of order");
            return Err(Error::in_record(position, text));
        }
        positions.push(position);
        Ok(())
    }

    /// The newest list of this id is over: its commit has come, or an abort.
    fn forget_chunks(&mut self, txn: u64, timestamp: Option<u64>) -> Vec<u64> {
        let mut lists = self.chunks.range((txn, 0)..=(txn, u64::MAX));
        let Some(list) = lists.next_back().map(|(list, _)| *list) else { return Vec::new() };
        self.fences.remove(&list);
        self.environment.log.needed.lock().chunks_end(txn, list.1, timestamp);
        self.chunks.remove(&list).unwrap_or_default()
    }

    fn commit(
        &mut self,
        position: u64,
        txn: u64,
        timestamp: u64,
        chunks: u32,
        operations: &[u8],
    ) -> Result<()> {
        let follows = timestamp == self.newest + 1 || (self.first && timestamp <= self.newest + 1);
        if !follows || timestamp == 0 {
            let text = format_args!("commit {timestamp} follows commit {}", self.newest);
            return Err(Error::in_record(position, text));
        }
        // Members have used ids again that they had seen in another leader's records. Chunks of those that never
        // committed stand in such a log: who has no chunks has none of them either.
        let positions =
            if chunks > 0 { self.forget_chunks(txn, Some(timestamp)) } else { Vec::new() };
        self.first = false;
        self.environment.log.needed.lock().commit(timestamp, position);
        if positions.len() as u64 == u64::from(chunks) {
            let sizes = &self.environment.options.sizes;
            let is_large = positions.len() as u64 * sizes.chunk_bytes as u64 > sizes.spill_bytes;
            let spilled = is_large
                && match self.spill(txn, timestamp, &positions, (position, operations)) {
                    // A full disk: it stays in memory, as what is not drained does.
                    Err(Error::NoSpace(_)) => false,
                    spilled => spilled.map(|()| true)?,
                };
            if !spilled {
                for (number, chunk) in positions.into_iter().enumerate() {
                    let piece = self.read_chunk(chunk, txn, number)?;
                    self.stage(chunk, timestamp, piece)?;
                }
                self.newest = timestamp;
                self.stage(position, timestamp, operations.to_vec())?;
            }
        } else if self.is_needed(timestamp) {
            let text = format_args!("chunks of commit {timestamp} are missing");
            return Err(Error::in_record(position, text));
        }
        self.newest = timestamp;
        self.done.commits += 1;
        Ok(())
    }

    /// The operations of a chunk that was met before.
    fn read_chunk(&mut self, position: u64, txn: u64, number: usize) -> Result<Vec<u8>> {
        self.again.seek(position)?;
        let record = self.again.next_record()?;
        match record.map(|record| Record::decode(record.payload)) {
            Some(Ok(Record::Chunk { txn: of, number: at, operations }))
                if of == txn && at as usize == number =>
            {
                Ok(operations.to_vec())
            }
            _ => Err(Error::in_record(position, "a chunk has changed")),
        }
    }

    /// Some tree has not flushed this commit.
    fn is_needed(&self, timestamp: u64) -> bool {
        self.flushed.values().any(|flushed| *flushed < timestamp)
    }

    /// Takes operations into the batch. Creates and drops are done here and now: what the batches
    /// being applied write to stays in the directory.
    fn stage(&mut self, position: u64, timestamp: u64, operations: Vec<u8>) -> Result<()> {
        self.look_at(position, timestamp, &operations)?;
        self.batch.bytes += operations.len();
        self.batch.pieces.push(Piece { position, timestamp, operations });
        if self.workers.is_inline() || self.batch.bytes >= BATCH_BYTES {
            self.hand_over()?;
        }
        Ok(())
    }

    /// Lays a large transaction over the trees it wrote to, from a spill, as it came from one. Draining
    /// it is left to the time after the recovery.
    fn spill(
        &mut self,
        txn: u64,
        timestamp: u64,
        chunks: &[u64],
        (position, operations): (u64, &[u8]),
    ) -> Result<()> {
        let mut spill = self.environment.commits.start_spill(txn);
        let before = self.done.operations;
        let mut stage_all = || {
            for (number, chunk) in chunks.iter().enumerate() {
                let piece = self.read_chunk(*chunk, txn, number)?;
                self.stage_large(*chunk, timestamp, &piece, &mut spill)?;
            }
            self.stage_large(position, timestamp, operations, &mut spill)?;
            Ok(spill.settle()?)
        };
        let staged: Result<()> = stage_all();
        if staged.is_err() {
            self.done.operations = before;
            return staged;
        }
        self.adopt(&spill, timestamp)
    }

    /// Takes operations of a large transaction into a spill: in key order, so it writes each once.
    fn stage_large(
        &mut self,
        position: u64,
        timestamp: u64,
        operations: &[u8],
        spill: &mut SpillTree,
    ) -> Result<()> {
        self.look_at(position, timestamp, operations)?;
        let piece = Piece { position, timestamp, operations: Vec::new() };
        let mut applied = 0;
        each_needed(self.environment, &piece, operations, |dictionary, key, message| {
            applied += 1;
            Ok(spill.write_message(dictionary.id, key, message, false)?)
        })?;
        self.done.operations += applied;
        Ok(())
    }

    /// Lays a large transaction over the trees it wrote to.
    fn adopt(&mut self, spill: &SpillTree, timestamp: u64) -> Result<()> {
        // Older versions of its keys belong below it.
        self.hand_over()?;
        self.finish_batch()?;
        for id in spill.spaces() {
            if let Some(dictionary) = self.environment.directory.find(id) {
                let flushed = self.environment.snapshots.visible().get();
                let newest = || dictionary.newest_write();
                dictionary.tree.adopt(spill, id, timestamp, flushed.min(self.complete), newest);
                self.environment.schedule.add_layer(&dictionary);
            }
        }
        Ok(())
    }

    /// Notes what operations write to, and does creates and drops. Looking again changes nothing.
    fn look_at(&mut self, position: u64, timestamp: u64, operations: &[u8]) -> Result<()> {
        for operation in Operations::new(operations) {
            let operation = operation.map_err(|e| Error::in_record(position, e))?;
            match operation {
                Operation::Put { dictionary, .. }
                | Operation::Delete { dictionary, .. }
                | Operation::Update { dictionary, .. } => {
                    self.touched.insert(dictionary);
                }
                Operation::Create { dictionary, options } => {
                    // Up to the checkpoint's timestamp its directory has the last word.
                    let is_new = self.environment.directory.find(dictionary).is_none();
                    if timestamp > self.checkpoint && is_new {
                        let options = crate::options::validate(options)
                            .map_err(|e| Error::in_record(position, e))?;
                        self.environment.directory.create(dictionary, options, timestamp);
                        self.flushed.insert(dictionary, 0);
                    }
                }
                Operation::Reshape { dictionary, options } => {
                    if timestamp > self.checkpoint
                        && let Some(found) = self.environment.directory.find(dictionary)
                    {
                        let options = crate::options::validate(options)
                            .map_err(|e| Error::in_record(position, e))?;
                        self.environment.directory.reshape(&found, options);
                    }
                }
                Operation::Adopt { dictionary, options } => {
                    let is_new = self.environment.directory.find(dictionary).is_none();
                    if timestamp > self.checkpoint && is_new {
                        let options = crate::options::validate(options)
                            .map_err(|e| Error::in_record(position, e))?;
                        if !self.environment.directory.adopt(dictionary, options, timestamp) {
                            let text = format_args!(
                                "dictionary {dictionary} was filled past the log, and the checkpoint lacks it"
                            );
                            return Err(Error::in_record(position, text));
                        }
                    }
                }
                Operation::Note { .. } => {}
                Operation::Tombstone { dictionary, part, lower, upper } => {
                    self.environment
                        .bury(dictionary, records::tombstone(timestamp, part, lower, upper))?;
                }
                Operation::Drop { dictionary } => {
                    if let Some(found) = self.environment.directory.find(dictionary) {
                        found.drop_at(timestamp);
                        self.dropping = true;
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets the batch be applied. With threads that goes on while the next one is read.
    fn hand_over(&mut self) -> Result<()> {
        self.finish_batch()?;
        self.applying = std::mem::take(&mut self.touched);
        self.complete = self.newest;
        self.workers.apply(std::mem::take(&mut self.batch));
        if self.workers.is_inline() {
            self.finish_batch()?;
        }
        self.environment.schedule.make_room_in_recovery()
    }

    /// Waits for the batch that is being applied and accounts for it.
    fn finish_batch(&mut self) -> Result<()> {
        self.done.operations += self.workers.wait()?;
        self.environment.snapshots.start_at(self.complete);
        for id in std::mem::take(&mut self.applying) {
            if let Some(dictionary) = self.environment.directory.find(id) {
                self.environment.schedule.account(&dictionary);
            }
        }
        if std::mem::take(&mut self.dropping) {
            // Nobody will ask for what they hold: draining it would be for nothing.
            self.environment.pruning.drop_invisible();
            self.dropping = self.environment.pruning.has_dropped();
        }
        Ok(())
    }
}
