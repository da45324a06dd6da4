//! Dictionaries that are filled past the log, and adopted later or never.

use crate::features::Feature;
use crate::model::Contents;
use crate::setup;
use crate::waiting::Waiting;
use crate::world::World;
use anyhow::{Result, ensure};
use engine::{DictionaryId, Direction, Engine, FillError, FillTarget, KeyRange, Loaded};
use std::sync::Arc;

impl World {
    /// Fills a dictionary that nobody knows of, or gives up on the way.
    pub(crate) fn load(&mut self) -> Result<()> {
        let engine = self.engine()?;
        if !self.features.has(Feature::Loads) || !engine.may_load() {
            return Ok(());
        }
        if self.loads.len() >= 3 {
            let which = self.random.below(self.loads.len() as u64) as usize;
            let id = self.loads.swap_remove(which).loaded.id();
            self.note(format!("{id:?} is not adopted"));
            return Ok(());
        }
        let mut rows = Contents::new();
        for _ in 0..self.random.below(120) {
            let value = self.random.value(self.setup.value_bytes);
            rows.insert(self.random.key(self.setup.keys), value);
        }
        let keeps = !self.random.one_in(8);
        let sorts = self.random.one_in(2);
        match self.fill(&engine, &rows, sorts) {
            Ok(loaded) => {
                let (id, count) = (loaded.id(), rows.len());
                self.note(format!("{count} rows are loaded into {id:?}, kept: {keeps}"));
                ensure!(loaded.row_count() == count as u64, "{loaded:?} has {count} rows");
                if keeps {
                    self.loads.push(Waiting { loaded, rows });
                }
                self.tally.loads += 1;
                Ok(())
            }
            Err(error) => self.excuse("load", &error),
        }
    }

    fn fill(&mut self, engine: &Engine, rows: &Contents, sorts: bool) -> engine::Result<Loaded> {
        let shape = setup::dictionary(&mut self.random);
        let id = engine.new_dictionary_id();
        if !sorts {
            let mut load = engine.start_load(id, shape)?;
            for (key, value) in rows {
                load.put(key, value)?;
            }
            return load.finish();
        }
        engine.adjustable().set_loader_max_memory(self.random.below(3) * 5000);
        // Some lie in place already.
        let mut beside = engine.start_load(id, shape)?;
        let mut left = Vec::new();
        let most_beside = self.random.below(3);
        for (key, value) in rows {
            if self.random.below(2) < most_beside && self.random.one_in(2) {
                beside.put(key, value)?;
            } else {
                left.push((key, value));
            }
        }
        let beside = Some(beside.finish()?);
        let mut sorter = engine.sorter();
        while !left.is_empty() {
            let at = self.random.below(left.len() as u64) as usize;
            let (key, value) = left.swap_remove(at);
            sorter.put(7, key, value)?;
        }
        let sorted = Arc::new(sorter.finish()?);
        let target = FillTarget { space: 7, id, options: shape, beside };
        let filled =
            engine.fill(&sorted, vec![target], Arc::new(|_, _, _, _| false), &mut |_| true);
        match filled {
            Ok(mut filled) => Ok(filled.remove(0)),
            Err(FillError::Engine(error)) => Err(error),
            Err(error) => panic!("rows with different keys were not loaded: {error:?}"),
        }
    }

    /// A client's transaction adopts what was loaded.
    pub(crate) fn adopt(&mut self, who: usize) -> Result<()> {
        let there = self.model.dictionaries(self.model.newest).len();
        if self.loads.is_empty() || there >= 8 {
            return Ok(());
        }
        let which = self.random.below(self.loads.len() as u64) as usize;
        let Waiting { loaded, rows } = self.loads.swap_remove(which);
        let id = loaded.id();
        let loaded = [loaded];
        if let Err(error) = self.engine()?.make_durable(&loaded) {
            return self.excuse("make what was loaded durable", &error);
        }
        let [loaded] = loaded;
        ensure!(loaded.is_adoptable(), "{loaded:?} is durable, and no backup goes on");
        let own = &mut self.clients[who];
        if let Err(error) = own.txn.adopt(loaded) {
            return self.excuse("adopt", &error);
        }
        let txn = own.txn.id();
        own.changes.created.push(id.0);
        let writes = rows.iter().map(|(key, value)| ((id.0, key.clone()), Some(value.clone())));
        own.changes.writes.extend(writes);
        self.note(format!("{txn}: adopts {id:?}"));
        self.check_adopted(who, id, &rows)
    }

    /// The transaction reads what it has adopted, by itself and in a view of it.
    fn check_adopted(&mut self, who: usize, id: DictionaryId, rows: &Contents) -> Result<()> {
        let own = &self.clients[who].txn;
        let view = own.view();
        let cursors = [
            own.cursor(id, KeyRange::all(), Direction::Forward),
            view.cursor(id, KeyRange::all(), Direction::Forward),
        ];
        for cursor in cursors {
            let mut found = Contents::new();
            let read = || {
                let mut cursor = cursor?;
                while let Some((key, value)) = cursor.next()? {
                    found.insert(key.to_vec(), value.to_vec());
                }
                Ok(())
            };
            if let Err(error) = read() {
                return self.excuse("read what was adopted", &error);
            }
            ensure!(found == *rows, "{} rows of {} are read in {id:?}", found.len(), rows.len());
        }
        Ok(())
    }
}
