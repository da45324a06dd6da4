//! Putting replayed writes into their trees, on several threads at once.
//!
//! Every thread is given every batch and takes the keys that are its own, in log order: so the
//! versions of one key go in by age, as a tree demands. Where there are no threads to be had
//! ([`Background::Manual`], the simulator) the caller does the same work itself.
//!
//! [`Background::Manual`]: crate::Background::Manual

use crate::dictionary::Found;
use crate::environment::Environment;
use crate::records::{Operation, Operations};
use crate::{Error, Result};
use ftree::Message;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use xxhash_rust::xxh3::xxh3_64;

/// More would wait for the one that reads the log.
const MOST_THREADS: usize = 4;

/// Writes that were read and can be applied: whole records, or chunks, in log order.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) pieces: Vec<Piece>,
    pub(super) bytes: usize,
}

pub(crate) struct Piece {
    /// Of the record in the log.
    pub(crate) position: u64,
    pub(crate) timestamp: u64,
    pub(crate) operations: Vec<u8>,
}

/// One of how many threads.
#[derive(Clone, Copy)]
struct Share {
    number: u64,
    of: u64,
}

impl Share {
    const ALL: Self = Self { number: 0, of: 1 };

    fn has(self, key: &[u8]) -> bool {
        debug_assert!(self.number < self.of, "share {} of {}", self.number, self.of);
        self.of == 1 || xxh3_64(key) % self.of == self.number
    }
}

/// The threads, or none.
pub(super) struct Workers {
    environment: Arc<Environment>,
    feeds: Vec<Sender<Arc<Batch>>>,
    /// How many operations a thread has applied of a batch.
    results: Receiver<Result<u64>>,
    /// What the caller did itself.
    inline: Option<Result<u64>>,
    busy: bool,
    threads: Vec<os::JoinHandle>,
}

impl Workers {
    pub(super) fn start(environment: &Arc<Environment>, wanted: bool) -> Self {
        let (done, results) = channel();
        let mut workers = Self {
            environment: Arc::clone(environment),
            feeds: Vec::new(),
            results,
            inline: None,
            busy: false,
            threads: Vec::new(),
        };
        let count = if wanted { os::cpu_count().clamp(1, MOST_THREADS) } else { 0 };
        for number in 0..count {
            let (feed, batches) = channel::<Arc<Batch>>();
            let share = Share { number: number as u64, of: count as u64 };
            let (environment, done) = (Arc::clone(environment), done.clone());
            let job = Box::new(move || {
                for batch in batches {
                    // A thread that ended without a word would be waited for.
                    let apply = AssertUnwindSafe(|| apply(&environment, &batch, share));
                    let bug = |_| {
                        Err(Error::Io(
                            "a bug in the recovery; the log says where".to_owned().into(),
                        ))
                    };
                    if done.send(catch_unwind(apply).unwrap_or_else(bug)).is_err() {
                        return;
                    }
                }
            });
            let name = format!("fern-redo-{}", number + 1);
            match workers.environment.os.spawner.spawn(&name, job) {
                Ok(thread) => workers.threads.push(thread),
                Err(error) => {
                    // Shares were cut for all of them: then none.
                    tracing::warn!(%error, "recovery goes on without threads");
                    workers.stop();
                    break;
                }
            }
            workers.feeds.push(feed);
        }
        workers
    }

    /// Nothing runs beside the caller.
    pub(super) fn is_inline(&self) -> bool {
        self.feeds.is_empty()
    }

    /// Applies a batch; the one before is done. Threads go on while the caller does other things.
    pub(super) fn apply(&mut self, batch: Batch) {
        assert!(!self.busy, "one batch at a time");
        self.busy = true;
        if self.is_inline() {
            self.inline = Some(apply(&self.environment, &batch, Share::ALL));
            return;
        }
        let batch = Arc::new(batch);
        for feed in &self.feeds {
            // A thread that is gone is missed when its result is waited for.
            let _gone = feed.send(Arc::clone(&batch));
        }
    }

    /// Waits until the batch is applied; says how many operations were new to their trees.
    pub(super) fn wait(&mut self) -> Result<u64> {
        if !std::mem::take(&mut self.busy) {
            return Ok(0);
        }
        if let Some(done) = self.inline.take() {
            return done;
        }
        let mut sum = 0;
        for _ in &self.feeds {
            let gone = |_| Error::Io("a thread of the recovery ended early".to_owned().into());
            sum += self.results.recv().map_err(gone)??;
        }
        Ok(sum)
    }

    fn stop(&mut self) {
        self.feeds.clear();
        for thread in self.threads.drain(..) {
            if let Err(panicked) = thread.join() {
                tracing::error!(%panicked, "a thread of the recovery ended by a panic");
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Applies a share of a batch: what is not yet in its tree. Memory only.
fn apply(environment: &Environment, batch: &Batch, share: Share) -> Result<u64> {
    let mut applied = 0;
    for piece in &batch.pieces {
        each_needed(environment, piece, &piece.operations, |dictionary, key, message| {
            if share.has(key) {
                dictionary.tree.insert(key, piece.timestamp, message);
                applied += 1;
            }
            Ok(())
        })?;
    }
    Ok(applied)
}

/// Every put and delete of a piece whose tree has not flushed it.
pub(crate) fn each_needed<'a>(
    environment: &Environment,
    piece: &Piece,
    operations: &'a [u8],
    mut see: impl FnMut(&Found, &'a [u8], Message<'a>) -> Result<()>,
) -> Result<()> {
    let mut target = Target { id: 0, dictionary: None };
    let commit = (piece.position, piece.timestamp);
    for operation in Operations::new(operations) {
        let operation = operation.map_err(|e| Error::in_record(piece.position, e))?;
        // The others are done by the one that read them.
        let Some((id, key, message)) = key_write(&operation) else { continue };
        if target.id != id {
            target = Target { id, dictionary: needed_dictionary(environment, id, commit)? };
        }
        if let Some(dictionary) = &target.dictionary {
            see(dictionary, key, message)?;
        }
    }
    Ok(())
}

/// What an operation writes to a key of a dictionary; `None` of one that does something else.
pub(crate) fn key_write<'a>(operation: &Operation<'a>) -> Option<(u64, &'a [u8], Message<'a>)> {
    match *operation {
        Operation::Put { dictionary, key, value } => Some((dictionary, key, Message::Put(value))),
        Operation::Delete { dictionary, key } => Some((dictionary, key, Message::Delete)),
        Operation::Update { dictionary, key, argument } => {
            Some((dictionary, key, Message::Update(argument)))
        }
        Operation::Create { .. }
        | Operation::Drop { .. }
        | Operation::Reshape { .. }
        | Operation::Adopt { .. }
        | Operation::Note { .. }
        | Operation::Tombstone { .. } => None,
    }
}

/// The dictionary that operations are for.
struct Target {
    id: u64,
    /// `None` where it needs no more of them: it is gone, or has flushed the commit.
    dictionary: Option<Found>,
}

/// The dictionary that a commit, whose record is at a position, writes to; `None` where it needs no more of its writes.
pub(crate) fn needed_dictionary(
    environment: &Environment,
    id: u64,
    (position, timestamp): (u64, u64),
) -> Result<Option<Found>> {
    match environment.directory.find(id) {
        Some(found) if found.tree.flushed_ts() >= timestamp => Ok(None),
        Some(found) => {
            found.written_at(timestamp);
            Ok(Some(found))
        }
        // Dropped before the checkpoint.
        None if id < environment.directory.next_id() => Ok(None),
        None => {
            let text = format_args!("dictionary {id} was never created");
            Err(Error::in_record(position, text))
        }
    }
}
