//! Clients that ask, and read what they get to the end.

use super::QUERY_TIMEOUT;
use crate::meter::now;
use crate::phase::{Client, MakeClient, Room, Work};
use anyhow::ensure;
use mongodb::Collection;
use mongodb::bson::{Document, RawDocumentBuf};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// One find.
#[derive(Clone, Default)]
pub(super) struct Ask {
    pub(super) filter: Document,
    pub(super) sort: Option<Document>,
    pub(super) limit: Option<i64>,
    /// Fewer documents than this are an error: the server lost some.
    pub(super) at_least: u64,
}

/// What a phase of finds is.
#[derive(Clone)]
pub(super) struct Finds {
    pub(super) collection: &'static str,
    pub(super) class: &'static str,
    /// Tells apart the schedules of several phases.
    pub(super) round: u64,
    /// Whether its units are the documents found, not the queries.
    pub(super) count_documents: bool,
    pub(super) ask: Arc<dyn Fn(&mut ChaCha8Rng) -> Ask + Send + Sync>,
}

impl Finds {
    pub(super) fn client(self) -> MakeClient {
        Box::new(move |room, number| {
            Box::new(Finder {
                rng: room.chance(stream(self.round, number)),
                collection: room.database.collection(self.collection),
                room: room.clone(),
                finds: self.clone(),
            })
        })
    }
}

/// The stream of chance of a client in a round of reading; loading has those below.
pub(super) fn stream(round: u64, number: usize) -> u64 {
    (1 << 63) | (round << 32) | number as u64
}

struct Finder {
    room: Room,
    collection: Collection<RawDocumentBuf>,
    rng: ChaCha8Rng,
    finds: Finds,
}

impl Client for Finder {
    fn step(&mut self) -> Work<'_> {
        Box::pin(async move {
            let Ask { filter, sort, limit, at_least } = (self.finds.ask)(&mut self.rng);
            let mut find = self.collection.find(filter.clone()).max_time(QUERY_TIMEOUT);
            if let Some(sort) = sort {
                find = find.sort(sort);
            }
            if let Some(limit) = limit {
                find = find.limit(limit);
            }
            let began = now();
            let mut rows = find.await?;
            let mut found = 0;
            while rows.advance().await? {
                found += 1;
            }
            let units = if self.finds.count_documents { found } else { 1 };
            self.room.meter.record(self.finds.class, units, began.elapsed());
            ensure!(found >= at_least, "{filter} found {found} documents of {at_least}");
            Ok(true)
        })
    }
}
