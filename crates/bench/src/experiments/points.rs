//! Single operations on documents of 200 bytes in a collection with one more index: what each costs the
//! server beyond what a ping costs. The table's CPU an operation is the figure; the rate is mostly the
//! client's.

use super::find::stream;
use super::load::Load;
use super::random_read::people;
use super::{indexes, text};
use crate::options::Options;
use crate::phase::{Client, End, Phase, Room, Work};
use anyhow::ensure;
use mongodb::Collection;
use mongodb::bson::{Document, RawDocumentBuf, doc, rawdoc};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

const COLLECTION: &str = "points";

/// One kind of operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ping,
    FindById,
    FindBySecondary,
    Set,
    Inc,
    Insert,
    Transaction,
}

/// The kinds in their order, with their names in the table.
const KINDS: &[(Kind, &str)] = &[
    (Kind::Ping, "ping"),
    (Kind::FindById, "find by _id"),
    (Kind::FindBySecondary, "find by a secondary key"),
    (Kind::Set, "$set of 200 bytes"),
    (Kind::Inc, "$inc"),
    (Kind::Insert, "insert of one"),
    (Kind::Transaction, "begin, two updates, commit"),
];

pub(super) fn phases(options: &Options) -> Vec<Phase> {
    let docs = options.docs_or(100_000);
    let load = Load {
        collection: COLLECTION,
        docs,
        batch: options.batch_or(1000),
        loaders: 2,
        make: Arc::new(document),
    };
    let index = indexes(COLLECTION, &[doc! { "x": 1 }]);
    let mut phases = vec![load.phase().after(vec![index]).hidden()];
    let counts = options.clients_or(&[1, 6]);
    for (kind, name) in KINDS {
        for clients in &counts {
            let parts = counts.len() * KINDS.len() * options.rounds as usize;
            let end = End::Seconds(options.share(parts));
            let round = phases.len() as u64;
            let (kind, class, clients) = (*kind, *name, *clients);
            let client = Box::new(move |room: &Room, number: usize| -> Box<dyn Client> {
                Box::new(Single {
                    rng: room.chance(stream(round, number)),
                    collection: room.database.collection(COLLECTION),
                    room: room.clone(),
                    kind,
                    class,
                    docs,
                    pairs: Pairs {
                        docs: docs as i64,
                        clients: clients as i64,
                        number: number as i64,
                    },
                    next: room.repeat << 50 | round << 40 | (number as u64) << 30,
                })
            });
            let name = format!("{name}, {}", people(clients));
            phases.push(Phase::new(name, "operations", clients, end, client));
        }
    }
    phases
}

fn document(n: u64, rng: &mut ChaCha8Rng) -> RawDocumentBuf {
    rawdoc! { "_id": n as i64, "x": n as i64, "n": 0_i64, "y": text(rng, 150) }
}

/// The pairs of documents that one client changes together, and no other: transactions that meet in a document abort
/// each other.
#[derive(Clone, Copy)]
struct Pairs {
    docs: i64,
    clients: i64,
    /// Which of the clients.
    number: i64,
}

impl Pairs {
    /// The pair of this client that is nearest to a document. With fewer documents than two a client, clients share.
    fn near(self, id: i64) -> [i64; 2] {
        let block = 2 * self.clients;
        let blocks = (self.docs / block).max(1);
        let first = (id / block).min(blocks - 1) * block + 2 * self.number;
        [first, first + 1].map(|id| id % self.docs)
    }
}

struct Single {
    room: Room,
    collection: Collection<RawDocumentBuf>,
    rng: ChaCha8Rng,
    kind: Kind,
    class: &'static str,
    docs: u64,
    pairs: Pairs,
    /// The `_id` of the next document inserted.
    next: u64,
}

impl Single {
    async fn update(&self, id: i64, change: Document) -> mongodb::error::Result<u64> {
        let done = self.collection.update_one(doc! { "_id": id }, change).await?;
        Ok(done.matched_count)
    }

    /// Carries one out; whether it found what it was to find.
    async fn carry_out(&mut self) -> mongodb::error::Result<bool> {
        let id = self.rng.random_range(0..self.docs) as i64;
        Ok(match self.kind {
            Kind::Ping => self.room.database.run_command(doc! { "ping": 1 }).await.is_ok(),
            Kind::FindById => self.collection.find_one(doc! { "_id": id }).await?.is_some(),
            Kind::FindBySecondary => self.collection.find_one(doc! { "x": id }).await?.is_some(),
            Kind::Set => {
                let change = doc! { "$set": { "y": text(&mut self.rng, 200) } };
                self.update(id, change).await? == 1
            }
            Kind::Inc => self.update(id, doc! { "$inc": { "n": 1_i64 } }).await? == 1,
            Kind::Insert => {
                self.next += 1;
                self.collection.insert_one(document(self.next, &mut self.rng)).await.is_ok()
            }
            Kind::Transaction => self.transaction(id).await?,
        })
    }

    async fn transaction(&mut self, id: i64) -> mongodb::error::Result<bool> {
        let mut session = self.room.database.client().start_session().await?;
        session.start_transaction().await?;
        for id in self.pairs.near(id) {
            let update =
                self.collection.update_one(doc! { "_id": id }, doc! { "$inc": { "n": 1_i64 } });
            update.session(&mut session).await?;
        }
        session.commit_transaction().await?;
        Ok(true)
    }
}

impl Client for Single {
    fn step(&mut self) -> Work<'_> {
        Box::pin(async move {
            let (meter, class) = (Arc::clone(&self.room.meter), self.class);
            let found = meter.time(class, 1, self.carry_out()).await?;
            ensure!(found, "{class}: it found nothing");
            Ok(true)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Pairs;
    use std::collections::BTreeMap;

    #[test]
    fn no_two_clients_change_the_same_document() {
        for (docs, clients) in [(100_000, 1), (100_000, 6), (1000, 64), (128, 64), (129, 64)] {
            let mut owners = BTreeMap::new();
            for number in 0..clients {
                let pairs = Pairs { docs, clients, number };
                for id in (0..docs).flat_map(|id| pairs.near(id)) {
                    assert!((0..docs).contains(&id));
                    let owner = *owners.entry(id).or_insert(number);
                    assert_eq!(owner, number, "{id} of {docs}");
                }
            }
        }
    }
}
