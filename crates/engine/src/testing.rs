//! Engines in memory, for the tests of the layers above: only with the feature `testing`.

use crate::Engine;
use crate::settings::{Background, Options};
use os::Os;
use os::sim::SimOs;
use std::sync::Arc;
use telemetry::Registry;

impl Engine {
    /// An engine over a simulated disk in memory. No thread runs; writers drain memory themselves.
    pub fn temporary() -> Self {
        Self::temporary_with(|_| {})
    }

    /// As [`Engine::temporary`], with other options.
    pub fn temporary_with(change: impl FnOnce(&mut Options)) -> Self {
        Self::temporary_over(&SimOs::new(0).os(), change)
    }

    /// As [`Engine::temporary`], on a simulated disk that may crash and be started again.
    pub fn temporary_on(disk: &Os) -> Self {
        Self::temporary_over(disk, |_| {})
    }

    /// As [`Engine::temporary_on`], with other options.
    pub fn temporary_on_with(disk: &Os, change: impl FnOnce(&mut Options)) -> Self {
        Self::temporary_over(disk, change)
    }

    fn temporary_over(disk: &Os, change: impl FnOnce(&mut Options)) -> Self {
        let os = Os { vfs: Arc::clone(&disk.vfs), ..Os::real() };
        let mut options = Options::new("/temporary");
        options.cache_size = 64 << 20;
        options.fs_redzone_percent = 0;
        options.background = Background::ManualThreads;
        options.sizes.log_segment_bytes = 1 << 20;
        change(&mut options);
        Self::open(os, Arc::new(Registry::new()), options).expect("a disk in memory does not fail")
    }
}

#[cfg(test)]
mod tests {
    use crate::{DictionaryId, Direction, Durability, Engine, KeyRange, TxnOptions};

    #[test]
    fn temporary_engine_takes_more_than_its_memory() {
        let engine = Engine::temporary();
        let mut txn = engine.begin(TxnOptions::default());
        for i in 0..2000_u32 {
            txn.put(DictionaryId::ROOT, &i.to_be_bytes(), b"v").unwrap();
        }
        txn.commit(Durability::Synced).unwrap().durable().unwrap();
        let (snapshot, all) = (engine.snapshot(), KeyRange::all());
        let mut cursor = snapshot.cursor(DictionaryId::ROOT, all, Direction::Backward).unwrap();
        let mut count = 0;
        while cursor.next().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 2000);
    }
}
