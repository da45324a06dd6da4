//! A random document by an index, again and again (`read`), or read and then made longer
//! (`readupdate`): more clients must do more, and a checkpoint must not be seen.

use super::find::stream;
use super::indexes;
use super::insert::{COLLECTION, document};
use super::load::Load;
use crate::options::Options;
use crate::phase::{Client, End, Phase, Room, Work};
use anyhow::{Context, ensure};
use mongodb::Collection;
use mongodb::bson::{RawDocumentBuf, doc};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

pub(super) fn phases(options: &Options, update: bool) -> Vec<Phase> {
    let docs = options.docs_or(200_000);
    let load = Load {
        collection: COLLECTION,
        docs,
        batch: options.batch_or(1000),
        loaders: 2,
        make: Arc::new(document),
    };
    let mut phases =
        vec![load.phase().after(vec![indexes(COLLECTION, &[doc! { "x": 1 }])]).hidden()];
    let counts = options.clients_or(&[1, 2, 4, 6]);
    for clients in &counts {
        let end = End::Seconds(options.share(counts.len()));
        let round = phases.len() as u64;
        let client = Box::new(move |room: &Room, number: usize| -> Box<dyn Client> {
            Box::new(Reader {
                rng: room.chance(stream(round, number)),
                collection: room.database.collection(COLLECTION),
                room: room.clone(),
                docs,
                update,
            })
        });
        let (what, unit) = if update { ("update", "updates") } else { ("read", "reads") };
        phases.push(Phase::new(people(*clients), unit, *clients, end, client).counting(what));
    }
    phases
}

/// `1 client`, `6 clients`.
pub(super) fn people(clients: usize) -> String {
    format!("{clients} client{}", if clients == 1 { "" } else { "s" })
}

struct Reader {
    room: Room,
    collection: Collection<RawDocumentBuf>,
    rng: ChaCha8Rng,
    docs: u64,
    update: bool,
}

impl Client for Reader {
    fn step(&mut self) -> Work<'_> {
        Box::pin(async move {
            let x = self.rng.random_range(0..self.docs) as i64;
            let meter = &self.room.meter;
            let read = self.collection.find_one(doc! { "x": x });
            if !self.update {
                let found = meter.time("read", 1, async { read.await }).await?;
                ensure!(found.is_some(), "no document has x = {x}");
                return Ok(true);
            }
            let read = async { read.projection(doc! { "y": 1 }).await };
            let found = meter.time("read", 1, read).await?;
            let found = found.with_context(|| format!("no document has x = {x}"))?;
            let y = format!("{}{x}", found.get_str("y")?);
            let change = doc! { "$set": { "y": y } };
            let write = async { self.collection.update_one(doc! { "x": x }, change).await };
            let done = meter.time("update", 1, write).await?;
            ensure!(done.matched_count == 1, "no document has x = {x}");
            Ok(true)
        })
    }
}
