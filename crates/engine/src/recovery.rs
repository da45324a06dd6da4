//! Recovery: the newest checkpoint, then the log behind it.
//!
//! Only reads, until the log is opened for writing at the end; what it drains when memory is full
//! goes to new segments that no checkpoint names. So a crash during recovery changes nothing.
//!
//! A commit is replayed into each tree that has not flushed it yet. What is refused, always with
//! the place: a log that does not reach back to the checkpoint, or not up to what was synced
//! before the checkpoint; timestamps that do not follow each other; records that cannot be read.
//! See `docs/flows/recovery.md`.

use crate::checkpoint_root::CheckpointRoot;
use crate::dictionary::Dictionary;
use crate::environment::{Environment, tree_options};
use crate::records::{Operation, Operations, Record};
use crate::{Error, Result};
use blockfile::CheckpointImage;
use ftree::{Message, Tree};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use wal::Replay;

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
}

/// The state between two records.
struct Redo<'a> {
    environment: &'a Environment,
    /// Dictionary → every commit up to this is in its tree.
    flushed: BTreeMap<u64, u64>,
    /// Transactions whose commit record has not come yet.
    chunks: BTreeMap<u64, OpenTxn>,
    newest: u64,
    /// The checkpoint's timestamp.
    checkpoint: u64,
    /// Dictionaries the commit at hand has written to.
    touched: BTreeSet<u64>,
    /// Nothing has been replayed yet; then commits follow each other.
    first: bool,
    done: Recovered,
}

struct OpenTxn {
    position: u64,
    pieces: Vec<Vec<u8>>,
}

/// Opens what the checkpoint names, replays the log and opens it for writing.
pub(crate) fn recover(
    environment: &Environment,
    image: Option<&CheckpointImage>,
    mut log: Replay,
) -> Result<Recovered> {
    let started = environment.os.clock.monotonic();
    let root = match image {
        Some(image) => {
            let root = CheckpointRoot::decode(&image.root)
                .map_err(|e| Error::Corruption(format!("checkpoint root: {e}")))?;
            log.seek(image.lsn)?;
            Some(root)
        }
        None => None,
    };
    let flushed = open_trees(environment, root.as_ref())?;
    environment.log.needed.lock().start_at(image.map_or_else(|| log.first_lsn(), |i| i.lsn));
    let root = root.unwrap_or_default();
    environment.directory.taken_below(root.next_dictionary);
    environment.next_txn.fetch_max(root.next_txn, Ordering::SeqCst);
    let mut redo = Redo {
        environment,
        newest: flushed.values().copied().min().unwrap_or(0).min(root.timestamp),
        flushed,
        checkpoint: root.timestamp,
        touched: BTreeSet::new(),
        chunks: BTreeMap::new(),
        first: true,
        done: Recovered::default(),
    };
    let mut end = 0;
    while let Some(record) = log.next_record()? {
        end = record.end;
        redo.done.log_bytes += record.payload.len() as u64;
        redo.record(record.lsn, record.payload)?;
    }
    if root.log_end > end && root.log_end > log.find_end()? {
        let text = format!(
            "the log ends at {end}, but was synced up to {} before the checkpoint",
            root.log_end
        );
        return Err(Error::Corruption(text));
    }
    let mut done = redo.done;
    let newest = redo.newest.max(root.timestamp);
    for (txn, open) in std::mem::take(&mut redo.chunks) {
        environment.log.needed.lock().chunks_end(txn, open.position, None);
    }
    environment.snapshots.start_at(newest);
    environment.commit_order.lock().newest = newest;
    environment.jobs.checkpointed.store(root.log_end, Ordering::Relaxed);
    let wal = log.start_writing()?;
    assert!(environment.log.wal.set(wal).is_ok(), "the log is opened once");
    environment.drop_invisible();
    let took = environment.os.clock.monotonic().saturating_sub(started);
    done.micros = took.as_micros() as u64;
    Ok(done)
}

/// Opens each tree of the checkpoint and frees segments no tree names. Returns how far each tree
/// has flushed.
fn open_trees(
    environment: &Environment,
    root: Option<&CheckpointRoot>,
) -> Result<BTreeMap<u64, u64>> {
    let Some(root) = root else {
        environment.create_root();
        return Ok(BTreeMap::from([(crate::DictionaryId::ROOT.0, 0)]));
    };
    let mut flushed = BTreeMap::new();
    let mut live = BTreeSet::new();
    for saved in &root.dictionaries {
        let shape = tree_options(&saved.options, &environment.options);
        let tree = Tree::open(&environment.trees, saved.id, shape, &saved.image)?;
        live.extend(tree.segments());
        flushed.insert(saved.id, saved.flushed);
        let dictionary = Dictionary::new(saved.id, saved.options, tree, saved.created);
        environment.directory.add(dictionary);
    }
    environment.blocks.retain(|segment| live.contains(&segment.id.0))?;
    environment.snapshots.start_at(root.timestamp);
    Ok(flushed)
}

impl Redo<'_> {
    fn record(&mut self, position: u64, payload: &[u8]) -> Result<()> {
        let damaged = |e| Error::Corruption(format!("log position {position}: {e}"));
        match Record::decode(payload).map_err(damaged)? {
            Record::Chunk { txn, number, operations } => {
                self.saw_txn(txn);
                self.chunk(position, txn, number, operations)
            }
            Record::Abort { txn } => {
                self.forget_chunks(txn, None);
                Ok(())
            }
            Record::Commit { txn, timestamp, chunks, operations } => {
                self.saw_txn(txn);
                self.commit(position, txn, timestamp, chunks, operations)
            }
        }
    }

    /// Ids of transactions are not used again while the log may hold their chunks.
    fn saw_txn(&self, txn: u64) {
        self.environment.next_txn.fetch_max(txn.saturating_add(1), Ordering::SeqCst);
    }

    fn chunk(&mut self, position: u64, txn: u64, number: u32, operations: &[u8]) -> Result<()> {
        if number == 0 {
            self.environment.log.needed.lock().chunk(txn, position);
            self.chunks.insert(txn, OpenTxn { position, pieces: Vec::new() });
        }
        // Chunks whose first is before the log's start belong to a commit that is flushed.
        let Some(open) = self.chunks.get_mut(&txn) else { return Ok(()) };
        if open.pieces.len() as u64 != u64::from(number) {
            let text = format!("log position {position}: chunk {number} is out of order");
            return Err(Error::Corruption(text));
        }
        open.pieces.push(operations.to_vec());
        Ok(())
    }

    fn forget_chunks(&mut self, txn: u64, timestamp: Option<u64>) -> Option<OpenTxn> {
        let open = self.chunks.remove(&txn)?;
        self.environment.log.needed.lock().chunks_end(txn, open.position, timestamp);
        Some(open)
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
            let text = format!(
                "log position {position}: commit {timestamp} follows commit {}",
                self.newest
            );
            return Err(Error::Corruption(text));
        }
        let open = self.forget_chunks(txn, Some(timestamp));
        let pieces = open.map(|open| open.pieces).unwrap_or_default();
        self.first = false;
        self.newest = timestamp;
        self.environment.log.needed.lock().commit(timestamp, position);
        if pieces.len() as u64 == u64::from(chunks) {
            for piece in pieces.iter().map(Vec::as_slice).chain([operations]) {
                self.apply(position, timestamp, piece)?;
            }
        } else if self.is_needed(timestamp) {
            let text = format!("log position {position}: chunks of commit {timestamp} are missing");
            return Err(Error::Corruption(text));
        }
        self.done.commits += 1;
        self.environment.snapshots.start_at(timestamp);
        for id in std::mem::take(&mut self.touched) {
            if let Some(dictionary) = self.environment.directory.find(id) {
                self.environment.account(&dictionary);
            }
        }
        self.environment.make_room_alone()
    }

    /// Some tree has not flushed this commit.
    fn is_needed(&self, timestamp: u64) -> bool {
        self.flushed.values().any(|flushed| *flushed < timestamp)
    }

    fn apply(&mut self, position: u64, timestamp: u64, operations: &[u8]) -> Result<()> {
        for operation in Operations::new(operations) {
            let operation = operation
                .map_err(|e| Error::Corruption(format!("log position {position}: {e}")))?;
            match operation {
                Operation::Put { dictionary, key, value } => {
                    self.insert(position, dictionary, key, timestamp, Message::Put(value))?;
                }
                Operation::Delete { dictionary, key } => {
                    self.insert(position, dictionary, key, timestamp, Message::Delete)?;
                }
                Operation::Create { dictionary, options } => {
                    // Up to the checkpoint's timestamp its directory has the last word.
                    if timestamp > self.checkpoint {
                        let options = crate::options::validate(options)
                            .map_err(|e| Error::Corruption(format!("log: {e}")))?;
                        self.environment.create_dictionary(dictionary, options, timestamp);
                        self.flushed.insert(dictionary, 0);
                    }
                }
                Operation::Drop { dictionary } => {
                    if let Some(found) = self.environment.directory.find(dictionary) {
                        found.drop_at(timestamp);
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts one version into its tree, unless it is there, or the tree is gone.
    fn insert(
        &mut self,
        position: u64,
        dictionary: u64,
        key: &[u8],
        timestamp: u64,
        message: Message<'_>,
    ) -> Result<()> {
        if self.flushed.get(&dictionary).is_some_and(|flushed| *flushed >= timestamp) {
            return Ok(());
        }
        match self.environment.directory.find(dictionary) {
            Some(found) => {
                found.written_at(timestamp);
                found.tree.insert(key, timestamp, message);
                self.touched.insert(dictionary);
                self.done.operations += 1;
                Ok(())
            }
            // Dropped before the checkpoint.
            None if dictionary < self.environment.directory.next_id() => Ok(()),
            None => {
                let text =
                    format!("log position {position}: dictionary {dictionary} was never created");
                Err(Error::Corruption(text))
            }
        }
    }
}
