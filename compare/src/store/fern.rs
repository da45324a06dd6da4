//! FernDB's engine behind the same interface.

use super::{ROW_AT, Session, Settings, Store};
use anyhow::{Context, Result};
use engine::{
    Applied, DictionaryId, DictionaryOptions, Direction, Durability, Engine, EngineTxn, KeyRange,
    OnConflict, TxnOptions, UpdatePlace, Updates,
};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

struct Fern {
    engine: Engine,
    tables: [DictionaryId; 4],
    directory: PathBuf,
    /// Checkpoints nobody asked for yet: begin and end, in milliseconds since 1970.
    checkpoints: Mutex<Vec<(i64, i64)>>,
}

struct FernSession {
    of: Arc<Fern>,
    txn: Option<EngineTxn>,
}

/// Values and arguments begin with a number of eight bytes; an argument is nothing else.
#[derive(Debug)]
struct Add;

fn added(old: &[u8], more: &[u8]) -> Option<Vec<u8>> {
    let number = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let sum = number(old)?.wrapping_add(number(more)?);
    let mut value = old.to_vec();
    value[..8].copy_from_slice(&sum.to_le_bytes());
    Some(value)
}

impl Updates for Add {
    fn apply(&self, _: UpdatePlace<'_>, old: Option<&[u8]>, argument: &[u8]) -> Applied {
        match old {
            None => Applied::Value(argument.to_vec()),
            Some(old) => added(old, argument).map_or(Applied::Unchanged, Applied::Value),
        }
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        added(older, newer)
    }
}

pub fn open(directory: &Path, settings: &Settings) -> Result<Arc<dyn Store>> {
    let mut options = engine::Options::new(directory);
    options.cache_size = settings.cache_bytes;
    options.directio = settings.direct;
    options.updates = Some(Arc::new(Add));
    let registry = Arc::new(telemetry::Registry::default());
    let engine = Engine::open(os::Os::real(), registry, options)?;
    let mut ids = engine.dictionaries().into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    ids.retain(|id| *id != DictionaryId::ROOT);
    if ids.is_empty() {
        let mut txn = engine.begin(TxnOptions::default());
        for _ in 0..4 {
            ids.push(txn.create_dictionary(DictionaryOptions::default())?);
        }
        txn.commit(Durability::Synced)?.durable()?;
    }
    let tables = ids.as_slice().try_into().context("four tables")?;
    let fern = Arc::new(Fern {
        engine,
        tables,
        directory: directory.to_path_buf(),
        checkpoints: Mutex::default(),
    });
    let watched = Arc::downgrade(&fern);
    std::thread::spawn(move || {
        while let Some(fern) = watched.upgrade() {
            fern.note_checkpoint();
            drop(fern);
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    Ok(fern)
}

impl Fern {
    fn note_checkpoint(&self) {
        let Some((_, end, took)) = self.engine.stats().last_checkpoint else { return };
        let mut all = self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner);
        let checkpoint = (end - took as i64, end);
        if all.last() != Some(&checkpoint) {
            all.push(checkpoint);
        }
    }
}

impl Store for Fern {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        Ok(Box::new(FernSession { of: self, txn: None }))
    }

    fn flush_log(&self) -> Result<()> {
        Ok(()) // its own thread does, every logFlushPeriod
    }

    fn settle(&self) -> Result<()> {
        self.engine.checkpoint()?;
        let patience = Instant::now() + Duration::from_secs(120);
        while self.engine.stats().queued_jobs > 0 && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(50));
        }
        // What was free before a checkpoint, the keeper gives back to the disk after it, once nothing
        // else goes on; meanwhile the cleaner has its time and frees more.
        let patience = Instant::now() + Duration::from_secs(120);
        let (mut size, mut since) = (0, Instant::now());
        while since.elapsed() < Duration::from_secs(5) && Instant::now() < patience {
            std::thread::sleep(Duration::from_secs(1));
            self.engine.checkpoint()?;
            let now = crate::worker::disk_bytes(&self.directory)?;
            if now != std::mem::replace(&mut size, now) {
                since = Instant::now();
            }
        }
        Ok(())
    }

    fn close(&self) -> Result<()> {
        self.engine.close()?;
        Ok(())
    }

    fn checkpoints(&self) -> Vec<(i64, i64)> {
        self.note_checkpoint();
        let mut all = self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = all.last().copied();
        let done = std::mem::take(&mut *all);
        // The newest stays, so that it is not noted again.
        all.extend(newest);
        done
    }

    fn counters(&self) -> serde_json::Value {
        let stats = self.engine.stats();
        serde_json::json!({
            "memtable_bytes": stats.memtable_bytes, "log_bytes": stats.log_bytes,
            "checkpoints": stats.checkpoints, "drains": stats.drains, "merges": stats.merges,
            "flushes": stats.flushes, "fuses": stats.fuses, "delays": stats.delays,
            "delayed_micros": stats.delayed_micros, "stalls": stats.stalls,
            "queued_jobs": stats.queued_jobs, "cache": format!("{:?}", stats.cache),
            "file": format!("{:?}", stats.file),
        })
    }
}

impl Session for FernSession {
    fn begin(&mut self) -> Result<()> {
        let options = TxnOptions { on_conflict: OnConflict::Latest, ..TxnOptions::default() };
        self.txn = Some(self.of.engine.begin(options));
        Ok(())
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        let txn = self.txn.as_mut().context("begin comes first")?;
        // an index entry holds its row's key, and the row is locked: as the collections do it
        match table {
            0 => txn.put(self.of.tables[0], key, value)?,
            _ => txn.write_covered(self.of.tables[table], key, Some(value))?,
        }
        Ok(())
    }

    fn add(&mut self, table: usize, key: &[u8], amount: u64) -> Result<()> {
        let txn = self.txn.as_mut().context("begin comes first")?;
        Ok(txn.update(self.of.tables[table], key, &amount.to_le_bytes())?)
    }

    fn commit(&mut self) -> Result<()> {
        self.txn.take().context("begin comes first")?.commit(Durability::Buffered)?.durable()?;
        Ok(())
    }

    fn abort(&mut self) {
        self.txn = None;
    }

    fn get(&mut self, table: usize, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        let table = self.of.tables[table];
        let found = match &mut self.txn {
            Some(txn) => txn.get_for_update(table, key)?,
            None => self.of.engine.snapshot().get(table, key)?,
        };
        into.clear();
        if let Some(value) = &found {
            into.extend_from_slice(value);
        }
        Ok(found.is_some())
    }

    fn scan(&mut self, table: usize, from: &[u8], limit: u64) -> Result<(u64, u64)> {
        let range = KeyRange { lower: Bound::Included(from.to_vec()), upper: Bound::Unbounded };
        let snapshot = self.of.engine.snapshot();
        let mut cursor = snapshot.cursor(self.of.tables[table], range, Direction::Forward)?;
        let (mut entries, mut bytes) = (0, 0);
        while entries < limit {
            let Some((key, value)) = cursor.next()? else { break };
            entries += 1;
            bytes += (key.len() + value.len()) as u64 + u64::from(value.last() == Some(&1));
        }
        Ok((entries, bytes))
    }

    fn fetch(&mut self, from: &[u8], limit: u64, into: &mut Vec<u8>) -> Result<u64> {
        let range = KeyRange { lower: Bound::Included(from.to_vec()), upper: Bound::Unbounded };
        let snapshot = self.of.engine.snapshot();
        let mut cursor = snapshot.cursor(self.of.tables[1], range, Direction::Forward)?;
        let mut rows = 0;
        while rows < limit {
            let Some((entry, _)) = cursor.next()? else { break };
            let row = snapshot.get(self.of.tables[0], &entry[ROW_AT..])?;
            into.clear();
            into.extend_from_slice(&row.context("an index entry without row")?);
            rows += 1;
        }
        Ok(rows)
    }
}
