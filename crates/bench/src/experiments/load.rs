//! Loading: documents numbered from 0, in batches that the loaders share out between them.
//!
//! Always true: document `n` depends on the seed and `n`'s batch, not on who inserts it.

use crate::phase::{Client, End, MakeClient, Phase, Room, Work};
use mongodb::Collection;
use mongodb::bson::RawDocumentBuf;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// Makes document `n`.
pub(super) type Make = Arc<dyn Fn(u64, &mut ChaCha8Rng) -> RawDocumentBuf + Send + Sync>;

/// What is loaded.
#[derive(Clone)]
pub(super) struct Load {
    pub(super) collection: &'static str,
    /// How many, at most.
    pub(super) docs: u64,
    /// In one command.
    pub(super) batch: u64,
    pub(super) loaders: usize,
    pub(super) make: Make,
}

impl Load {
    /// The client that inserts every batch of its number.
    pub(super) fn client(&self) -> MakeClient {
        let load = self.clone();
        Box::new(move |room, number| {
            Box::new(Loader {
                room: room.clone(),
                collection: room.database.collection(load.collection),
                next: number as u64,
                load: load.clone(),
            })
        })
    }

    /// A phase that loads everything.
    pub(super) fn phase(&self) -> Phase {
        let name = format!("load {}", self.collection);
        Phase::new(name, "documents", self.loaders, End::Units(self.docs), self.client())
    }
}

struct Loader {
    room: Room,
    collection: Collection<RawDocumentBuf>,
    load: Load,
    /// The next batch.
    next: u64,
}

impl Client for Loader {
    fn step(&mut self) -> Work<'_> {
        Box::pin(async move {
            let Load { docs, batch, loaders, ref make, .. } = self.load;
            let first = self.next * batch;
            if first >= docs {
                return Ok(false);
            }
            let mut rng = self.room.chance(self.next);
            let rows: Vec<_> =
                (first..docs.min(first + batch)).map(|n| make(n, &mut rng)).collect();
            self.next += loaders as u64;
            let meter = &self.room.meter;
            if let [row] = rows.as_slice() {
                meter.time("insert", 1, async { self.collection.insert_one(row).await }).await?;
            } else {
                let work = async { self.collection.insert_many(&rows).ordered(false).await };
                meter.time("insert", rows.len() as u64, work).await?;
            }
            Ok(true)
        })
    }
}
