//! The mix of sysbench's OLTP test on 16 collections with an index on `k`. A round is ten documents
//! by `_id`, four ranges of a hundred (as they are, summed, sorted, distinct), an update of the
//! indexed field, one of another, and a document deleted and inserted again.
//!
//! Clients divide the documents: one that is deleted for a moment is nobody else's to find.

use super::find::stream;
use super::load::Load;
use super::{indexes, text};
use crate::options::Options;
use crate::phase::{Client, End, Phase, Room, Work};
use anyhow::ensure;
use mongodb::Collection;
use mongodb::bson::{Document, RawDocumentBuf, doc, rawdoc};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

const COLLECTIONS: [&str; 16] = [
    "sbtest1", "sbtest2", "sbtest3", "sbtest4", "sbtest5", "sbtest6", "sbtest7", "sbtest8",
    "sbtest9", "sbtest10", "sbtest11", "sbtest12", "sbtest13", "sbtest14", "sbtest15", "sbtest16",
];
const RANGE: u64 = 100;
const POINTS: usize = 10;

pub(super) fn phases(options: &Options) -> Vec<Phase> {
    let docs = (options.docs_or(160_000) / COLLECTIONS.len() as u64).max(1);
    let clients = options.client_or(4);
    let loads = COLLECTIONS.map(|collection| Load {
        collection,
        docs,
        batch: options.batch_or(1000),
        loaders: 1,
        make: Arc::new(move |n, rng| row(n, docs, rng)),
    });
    // one loader for each collection, all at once
    let loaders = loads.map(|load| load.client());
    let load = Box::new(move |room: &Room, number: usize| loaders[number](room, 0));
    let all = End::Units(docs * COLLECTIONS.len() as u64);
    let index = COLLECTIONS.map(|collection| indexes(collection, &[doc! { "k": 1 }]));
    let mut phases = vec![
        Phase::new("load", "documents", COLLECTIONS.len(), all, load)
            .after(index.to_vec())
            .hidden(),
    ];
    let client = Box::new(move |room: &Room, number: usize| -> Box<dyn Client> {
        let rng = room.chance(stream(1, number));
        Box::new(Mix { room: room.clone(), rng, docs, number: number as u64, of: clients as u64 })
    });
    let end = End::Seconds(options.share(1));
    phases.push(Phase::new("mix", "rounds", clients, end, client).counting("insert"));
    phases
}

fn row(n: u64, docs: u64, rng: &mut ChaCha8Rng) -> RawDocumentBuf {
    let k = rng.random_range(0..docs) as i64;
    rawdoc! { "_id": n as i64, "k": k, "c": text(rng, 119), "pad": text(rng, 59) }
}

struct Mix {
    room: Room,
    rng: ChaCha8Rng,
    docs: u64,
    number: u64,
    of: u64,
}

impl Mix {
    fn any(&mut self) -> i64 {
        self.rng.random_range(0..self.docs) as i64
    }

    /// A document that no other client writes, where there are enough.
    fn own(&mut self) -> i64 {
        let any = self.rng.random_range(0..self.docs);
        let own = any - any % self.of + self.number;
        (if own < self.docs { own } else { self.number % self.docs }) as i64
    }

    async fn drain(
        &self,
        class: &'static str,
        collection: &Collection<RawDocumentBuf>,
        pipeline: Vec<Document>,
    ) -> anyhow::Result<()> {
        let work = async {
            let mut rows = collection.aggregate(pipeline).await?;
            while rows.advance().await? {}
            Ok(())
        };
        self.room.meter.time(class, 1, work).await
    }
}

impl Client for Mix {
    fn step(&mut self) -> Work<'_> {
        Box::pin(async move {
            let name = COLLECTIONS[self.rng.random_range(0..COLLECTIONS.len())];
            let collection = self.room.database.collection::<RawDocumentBuf>(name);
            for _ in 0..POINTS {
                let filter = doc! { "_id": self.any() };
                let find = async { collection.find_one(filter).projection(doc! { "c": 1 }).await };
                self.room.meter.time("point", 1, find).await?;
            }
            let range = |from: i64| doc! { "_id": { "$gte": from, "$lt": from + RANGE as i64 } };
            let (plain, sum, sorted, distinct) = (self.any(), self.any(), self.any(), self.any());
            let work = async {
                let find = collection.find(range(plain)).projection(doc! { "c": 1, "_id": 0 });
                let mut rows = find.await?;
                while rows.advance().await? {}
                Ok(())
            };
            self.room.meter.time("range", 1, work).await?;
            let total = doc! { "$group": { "_id": null, "total": { "$sum": "$k" } } };
            self.drain("sum", &collection, vec![doc! { "$match": range(sum) }, total]).await?;
            let work = async {
                let mut rows = collection.find(range(sorted)).sort(doc! { "c": 1 }).await?;
                while rows.advance().await? {}
                Ok(())
            };
            self.room.meter.time("sort", 1, work).await?;
            let work = async { collection.distinct("c", range(distinct)).await };
            self.room.meter.time("distinct", 1, work).await?;
            let (id, change) = (doc! { "_id": self.own() }, doc! { "$inc": { "k": 1 } });
            let work = async { collection.update_one(id, change).await };
            self.room.meter.time("update k", 1, work).await?;
            let (id, c) = (doc! { "_id": self.own() }, text(&mut self.rng, 119));
            let work = async { collection.update_one(id, doc! { "$set": { "c": c } }).await };
            self.room.meter.time("update c", 1, work).await?;
            let id = self.own();
            let work = async { collection.delete_one(doc! { "_id": id }).await };
            let deleted = self.room.meter.time("delete", 1, work).await?;
            ensure!(deleted.deleted_count == 1, "{name} has lost {id}");
            let row = row(id as u64, self.docs, &mut self.rng);
            self.room.meter.time("insert", 1, async { collection.insert_one(&row).await }).await?;
            Ok(true)
        })
    }
}
