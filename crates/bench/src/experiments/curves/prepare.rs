//! What brings a server to a point: documents, connections, snapshots.

use super::super::find::stream;
use super::super::load::Make as MakeDocument;
use crate::phase::{Client, End, MakeClient, Phase, Room, Work};
use crate::status::number;
use anyhow::{Context, ensure};
use mongodb::Client as Driver;
use mongodb::Collection;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongodb::options::ReadConcern;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use std::time::Duration;

/// Clients that fill a collection.
const FILLERS: u64 = 2;
/// Bytes of documents in one insert command.
const BATCH_BYTES: u64 = 1 << 20;

/// A collection's documents, those of the numbers from `first` up to `end`.
#[derive(Clone)]
pub(super) struct Fill {
    pub(super) collection: &'static str,
    pub(super) first: u64,
    pub(super) end: u64,
    /// About how large one is.
    pub(super) bytes: u64,
    pub(super) make: MakeDocument,
}

impl Fill {
    /// A phase that inserts them; it is not drawn.
    pub(super) fn phase(self, round: u64) -> Phase {
        let name = format!("fill {} up to {}", self.collection, self.end);
        let end = End::Units(self.end - self.first);
        let batch = (BATCH_BYTES / self.bytes).clamp(1, 1000);
        let client = Box::new(move |room: &Room, number: usize| -> Box<dyn Client> {
            Box::new(Filler {
                room: room.clone(),
                rng: room.chance(stream(round, number)),
                next: self.first + number as u64 * batch,
                batch,
                fill: self.clone(),
            })
        });
        Phase::new(name, "documents", FILLERS as usize, end, client).hidden()
    }
}

struct Filler {
    room: Room,
    rng: ChaCha8Rng,
    fill: Fill,
    batch: u64,
    /// The first document of its next batch; the batches between are the other fillers'.
    next: u64,
}

impl Client for Filler {
    fn step(&mut self) -> Work<'_> {
        Box::pin(async move {
            let end = self.fill.end.min(self.next + self.batch);
            if self.next >= end {
                return Ok(false);
            }
            let rows: Vec<_> =
                (self.next..end).map(|n| (self.fill.make)(n, &mut self.rng)).collect();
            self.next += self.batch * FILLERS;
            let collection: Collection<RawDocumentBuf> =
                self.room.database.collection(self.fill.collection);
            let work = async { collection.insert_many(&rows).ordered(false).await };
            self.room.meter.time("insert", rows.len() as u64, work).await?;
            Ok(true)
        })
    }
}

/// How long a server has, behind the opening of connections, to let go of what that took.
const SETTLED: Duration = Duration::from_secs(1);
/// Connections that are opened at the same time.
const OPENED_AT_ONCE: u32 = 64;

/// Closes the connections that are kept, and opens so many; none: it only closes.
pub(super) fn connect(connections: u64) -> MakeClient {
    Box::new(move |room: &Room, _| -> Box<dyn Client> {
        Box::new(Connector { room: room.clone(), connections, is_done: false })
    })
}

struct Connector {
    room: Room,
    connections: u64,
    is_done: bool,
}

impl Client for Connector {
    fn step(&mut self) -> Work<'_> {
        Box::pin(async move {
            if std::mem::replace(&mut self.is_done, true) {
                return Ok(false);
            }
            let kept = self.room.kept.pool.lock().take();
            if let Some(kept) = kept {
                kept.shutdown().immediate(true).await;
            }
            if self.connections == 0 {
                return Ok(true);
            }
            let mut settings = (*self.room.settings).clone();
            let size = self.connections as u32;
            (settings.min_pool_size, settings.max_pool_size) = (Some(size), Some(size));
            settings.max_connecting = Some(OPENED_AT_ONCE.min(size));
            let driver = Driver::with_options(settings)?;
            let admin = driver.database("admin");
            let opening = async {
                // Only of a server that it has found does the driver open more than one.
                admin.run_command(doc! { "ping": 1 }).await?;
                driver.warm_connection_pool().await;
                Ok(())
            };
            self.room.meter.time("open", self.connections, opening).await?;
            tokio::time::sleep(SETTLED).await;
            let status = admin.run_command(doc! { "serverStatus": 1 }).await?;
            let open = number(&status, &["connections", "current"]).unwrap_or(self.connections);
            ensure!(open >= self.connections, "the server has {open} connections");
            *self.room.kept.pool.lock() = Some(driver);
            Ok(true)
        })
    }
}

/// Transactions that hold a snapshot each, opened by so many clients; every one sees another state, for an update comes
/// before it.
pub(super) fn hold_snapshots(
    round: u64,
    collection: &'static str,
    docs: u64,
    snapshots: u64,
) -> MakeClient {
    Box::new(move |room: &Room, number: usize| -> Box<dyn Client> {
        let (openers, number) = (OPENERS as u64, number as u64);
        Box::new(Opener {
            room: room.clone(),
            rng: room.chance(stream(round, number as usize)),
            collection: room.database.collection(collection),
            docs,
            left: snapshots / openers + u64::from(number < snapshots % openers),
        })
    })
}

/// Clients that open snapshots.
pub(super) const OPENERS: usize = 4;

struct Opener {
    room: Room,
    rng: ChaCha8Rng,
    collection: Collection<Document>,
    docs: u64,
    left: u64,
}

impl Opener {
    async fn open(&mut self) -> mongodb::error::Result<()> {
        let id = self.rng.random_range(0..self.docs) as i64;
        let change = doc! { "$inc": { "n": 1_i64 } };
        self.collection.update_one(doc! { "_id": id }, change).await?;
        hold(&self.room, &self.collection).await
    }
}

/// Begins a transaction that reads in a snapshot, and keeps it.
pub(super) async fn hold(
    room: &Room,
    collection: &Collection<Document>,
) -> mongodb::error::Result<()> {
    let mut session = room.database.client().start_session().await?;
    session.start_transaction().read_concern(ReadConcern::snapshot()).await?;
    collection.find_one(doc! { "_id": 0_i64 }).session(&mut session).await?;
    room.kept.sessions.lock().push_back(session);
    Ok(())
}

impl Client for Opener {
    fn step(&mut self) -> Work<'_> {
        Box::pin(async move {
            let Some(left) = self.left.checked_sub(1) else { return Ok(false) };
            self.left = left;
            let meter = Arc::clone(&self.room.meter);
            meter.time("snapshot", 1, self.open()).await?;
            Ok(true)
        })
    }
}

/// Ends the transactions that are kept. That each can still be committed shows that its snapshot was there to the end.
pub(super) fn release_snapshots() -> MakeClient {
    Box::new(|room: &Room, _| -> Box<dyn Client> { Box::new(Closer { room: room.clone() }) })
}

struct Closer {
    room: Room,
}

impl Client for Closer {
    fn step(&mut self) -> Work<'_> {
        Box::pin(async move {
            let session = self.room.kept.sessions.lock().pop_front();
            let Some(mut session) = session else { return Ok(false) };
            let work = async { session.commit_transaction().await };
            let ended = self.room.meter.time("commit", 1, work).await;
            ended.context("a snapshot was not held until the end of its point")?;
            Ok(true)
        })
    }
}
