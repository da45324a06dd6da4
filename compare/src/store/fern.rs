//! FernDB's engine behind the same interface.

use super::{Session, Settings, Store};
use anyhow::{Context, Result};
use engine::{
    DictionaryId, DictionaryOptions, Direction, Durability, Engine, KeyRange, OnConflict, Txn,
    TxnOptions,
};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

struct Fern {
    engine: Engine,
    tables: [DictionaryId; 4],
}

struct FernSession {
    of: Arc<Fern>,
    txn: Option<Txn>,
}

pub fn open(directory: &Path, settings: &Settings) -> Result<Arc<dyn Store>> {
    let options = engine::Options {
        dir: directory.to_path_buf(),
        cache_size: settings.cache_bytes,
        directio: settings.direct,
        ..engine::Options::default()
    };
    let registry = Arc::new(telemetry::Registry::default());
    let engine = Engine::open(os::Os::real(), registry, options)?;
    let mut txn = engine.begin(TxnOptions::default());
    let mut tables = [DictionaryId::ROOT; 4];
    for table in &mut tables {
        *table = txn.create_dictionary(DictionaryOptions::default())?;
    }
    txn.commit(Durability::Synced)?;
    Ok(Arc::new(Fern { engine, tables }))
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
        Ok(())
    }

    fn close(&self) -> Result<()> {
        self.engine.close()?;
        Ok(())
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
        txn.put(self.of.tables[table], key, value)?;
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.txn.take().context("begin comes first")?.commit(Durability::Buffered)?;
        Ok(())
    }

    fn get(&mut self, table: usize, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        let found = self.of.engine.snapshot().get(self.of.tables[table], key)?;
        into.clear();
        if let Some(value) = &found {
            into.extend_from_slice(value);
        }
        Ok(found.is_some())
    }

    fn scan(
        &mut self,
        table: usize,
        from: &[u8],
        limit: u64,
        last: &mut Vec<u8>,
    ) -> Result<(u64, u64)> {
        let range = KeyRange { lower: Bound::Included(from.to_vec()), upper: Bound::Unbounded };
        let snapshot = self.of.engine.snapshot();
        let mut cursor = snapshot.cursor(self.of.tables[table], range, Direction::Forward)?;
        let (mut entries, mut bytes) = (0, 0);
        while entries < limit {
            let Some((key, value)) = cursor.next()? else { break };
            entries += 1;
            bytes += (key.len() + value.len()) as u64;
            last.clear();
            last.extend_from_slice(key);
        }
        Ok((entries, bytes))
    }
}
