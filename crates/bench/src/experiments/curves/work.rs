//! What the clients of a point do, again and again.

use super::super::find::stream;
use crate::phase::{Client, MakeClient, Room, Work};
use anyhow::{Context, ensure};
use mongodb::bson::{Document, RawDocumentBuf, doc, rawdoc};
use mongodb::{Collection, Database};
use rand::{Rng, RngCore};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// One operation, which has to find what it is about.
pub(super) enum Operation {
    Find(Document),
    /// A find in the oldest of the transactions that are kept.
    FindInSnapshot(Document),
    Update(Document, Document),
    Insert(RawDocumentBuf),
    /// Makes the collection, and drops it again.
    CreateAndDrop,
}

/// An operation and the collection it is done in.
pub(super) struct Aim {
    pub(super) collection: String,
    pub(super) operation: Operation,
}

impl Aim {
    pub(super) fn at(collection: impl Into<String>, operation: Operation) -> Self {
        Self { collection: collection.into(), operation }
    }
}

/// Makes the next operation from chance and a number that no other operation of the run gets.
pub(super) trait Make: Fn(&mut ChaCha8Rng, u64) -> Aim + Send + Sync + 'static {}

impl<F: Fn(&mut ChaCha8Rng, u64) -> Aim + Send + Sync + 'static> Make for F {}

/// Numbers of a round: above those of loaded documents, 16,384 clients, 2^26 operations each.
const ROUND_SHIFT: u32 = 40;
const CLIENT_SHIFT: u32 = 26;

/// A client that repeats what `make` makes, over the pool that is kept, where there is one.
pub(super) fn worker(round: u64, class: &'static str, make: impl Make) -> MakeClient {
    let make: Arc<dyn Make> = Arc::new(make);
    Box::new(move |room: &Room, number: usize| -> Box<dyn Client> {
        let pool = room.kept.pool.lock();
        let own = pool.as_ref().map(|driver| driver.database(room.database.name()));
        Box::new(Worker {
            database: own.unwrap_or_else(|| room.database.clone()),
            rng: room.chance(stream(round, number)),
            room: room.clone(),
            class,
            make: Arc::clone(&make),
            next: round << ROUND_SHIFT | (number as u64) << CLIENT_SHIFT,
        })
    })
}

struct Worker {
    room: Room,
    database: Database,
    rng: ChaCha8Rng,
    class: &'static str,
    make: Arc<dyn Make>,
    /// The number of the next operation.
    next: u64,
}

impl Worker {
    /// Carries it out; whether it found what it was to find.
    async fn carry_out(&self, aim: Aim) -> mongodb::error::Result<bool> {
        let Aim { collection: name, operation } = aim;
        let collection: Collection<RawDocumentBuf> = self.database.collection(&name);
        Ok(match operation {
            Operation::Find(filter) => collection.find_one(filter).await?.is_some(),
            Operation::FindInSnapshot(filter) => {
                // There are as many as clients: one without would be a mistake of the curve's, which is told below.
                let Some(mut session) = self.take() else { return Ok(false) };
                let found = collection.find_one(filter).session(&mut session).await;
                self.room.kept.sessions.lock().push_front(session);
                found?.is_some()
            }
            Operation::Update(filter, change) => {
                collection.update_one(filter, change).await?.matched_count == 1
            }
            Operation::Insert(document) => collection.insert_one(document).await.map(|_| true)?,
            Operation::CreateAndDrop => {
                self.database.run_command(doc! { "create": &name }).await?;
                self.database.run_command(doc! { "drop": &name }).await.map(|_| true)?
            }
        })
    }

    fn take(&self) -> Option<mongodb::ClientSession> {
        self.room.kept.sessions.lock().pop_front()
    }
}

impl Client for Worker {
    fn step(&mut self) -> Work<'_> {
        Box::pin(async move {
            let aim = (self.make)(&mut self.rng, self.next);
            self.next += 1;
            let work = self.carry_out(aim);
            let found = self.room.meter.time(self.class, 1, work).await;
            ensure!(found.context(self.class)?, "{}: it found nothing", self.class);
            Ok(true)
        })
    }
}

/// Six bits each of so many bytes of chance, as text: it does not compress below three quarters.
pub(super) fn filler(rng: &mut ChaCha8Rng, bytes: u64) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut raw = vec![0; bytes as usize];
    rng.fill_bytes(&mut raw);
    raw.iter().map(|byte| char::from(SIGNS[usize::from(byte & 63)])).collect()
}

/// Finds one of so many documents by its `_id`.
pub(super) fn find_by_id(collection: &'static str, docs: u64) -> impl Make {
    move |rng: &mut ChaCha8Rng, _| Aim::at(collection, Operation::Find(any(rng, docs)))
}

/// Adds to a field, which no index has, of one of so many documents.
pub(super) fn increment(collection: &'static str, docs: u64) -> impl Make {
    move |rng: &mut ChaCha8Rng, _| {
        let change = doc! { "$inc": { "n": 1_i64 } };
        Aim::at(collection, Operation::Update(any(rng, docs), change))
    }
}

/// The filter of one of so many documents.
pub(super) fn any(rng: &mut ChaCha8Rng, docs: u64) -> Document {
    doc! { "_id": rng.random_range(0..docs) as i64 }
}

/// A document whose parts but for its filler take few bytes.
pub(super) fn plain(n: u64, filler_bytes: u64, rng: &mut ChaCha8Rng) -> RawDocumentBuf {
    rawdoc! { "_id": n as i64, "n": 0_i64, "y": filler(rng, filler_bytes) }
}
