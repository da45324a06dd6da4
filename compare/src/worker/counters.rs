//! Counters: rows of a hundred bytes whose first eight are a number. It is added to without being read, by what an
//! engine has for that, or by reading it and writing it back. The worker knows what it has added to each, and
//! every read is checked.

use super::{BATCH, Job, Usage, Worker, transact};
use crate::data::{self, Random};
use crate::measure::Tally;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes of a counter's value.
const BYTES: usize = 100;

/// Zero, and behind it bytes of which half are random.
fn new_counter(id: u64) -> [u8; BYTES] {
    let mut value = [b'f'; BYTES];
    value[..8].fill(0);
    let mut random = Random(id);
    for chunk in value[8..BYTES / 2].chunks_mut(8) {
        chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
    }
    value
}

/// The number of a counter that was read.
fn number(found: &[u8]) -> Result<u64> {
    ensure!(found.len() == BYTES, "a counter of {} bytes", found.len());
    Ok(found.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
}

impl Worker {
    /// As many counters, in key order.
    pub(super) fn fill_counters(&mut self, rows: u64) -> Result<Value> {
        let started = Instant::now();
        let mut session = self.store.clone().session()?;
        for first in (0..rows).step_by(BATCH as usize) {
            transact(&mut *session, |session| {
                (first..(first + BATCH).min(rows))
                    .try_for_each(|id| session.put(0, &data::key(id), &new_counter(id)))
            })?;
        }
        self.rows.store(rows, Ordering::Relaxed);
        self.added = vec![0; rows as usize];
        Ok(json!({ "rows": rows, "seconds": started.elapsed().as_secs_f64() }))
    }

    /// Work on random counters by one thread, which is told what was added to each.
    pub(super) fn count_on(
        &mut self,
        seconds: u64,
        mut work: impl FnMut(&mut Job, &mut [u32]) -> Result<u64>,
    ) -> Result<Value> {
        ensure!(!self.added.is_empty(), "counters come first");
        let (before, started) = (Usage::now(), Instant::now());
        let mut job = self.job(started, 0)?;
        let added = &mut self.added;
        job.until(Duration::from_secs(seconds), |job| work(job, added))?;
        let tally: Tally = job.tally;
        Ok(tally.report(started.elapsed(), before))
    }
}

/// Adds one, in a transaction, without reading.
pub(super) fn add(job: &mut Job, added: &mut [u32]) -> Result<u64> {
    let id = job.random.below(job.rows);
    transact(&mut *job.session, |session| session.add(0, &data::key(id), 1))?;
    added[id as usize] += 1;
    Ok(1)
}

/// Adds one, in a transaction that reads.
pub(super) fn add_by_reading(job: &mut Job, added: &mut [u32]) -> Result<u64> {
    let Job { session, random, rows, found, .. } = job;
    let id = random.below(*rows);
    transact(&mut **session, |session| {
        ensure!(session.get(0, &data::key(id), found)?, "counter {id} is lost");
        let sum = number(found)? + 1;
        found[..8].copy_from_slice(&sum.to_le_bytes());
        session.put(0, &data::key(id), found)
    })?;
    added[id as usize] += 1;
    Ok(1)
}

/// Reads one, which must be what was added to it.
pub(super) fn read(job: &mut Job, added: &mut [u32]) -> Result<u64> {
    let id = job.random.below(job.rows);
    ensure!(job.session.get(0, &data::key(id), &mut job.found)?, "counter {id} is lost");
    let (number, expected) = (number(&job.found)?, u64::from(added[id as usize]));
    ensure!(number == expected, "counter {id} is {number}, {expected} were added");
    Ok(1)
}
