//! Counters that come to be when they are first counted (`upsert`): a monitoring company's writes.
//!
//! Half of the counts are for a counter that is new, the others for any there is; ids are scattered,
//! so that neither has a neighbour. The data grows for the whole run: the rate of the last tenth
//! against the first tells whether it matters.

use crate::options::Options;
use crate::phase::{Client, End, Phase, Room, Work};
use anyhow::ensure;
use mongodb::bson::{Document, doc};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

const COLLECTION: &str = "counters";

pub(super) fn phases(options: &Options) -> Vec<Phase> {
    let (batch, clients) = (options.batch_or(100), options.client_or(1));
    let docs = options.docs.unwrap_or(u64::MAX);
    let client = Box::new(move |room: &Room, number: usize| -> Box<dyn Client> {
        Box::new(Counting {
            room: room.clone(),
            rng: room.chance(number as u64),
            number: number as u64,
            made: 0,
            // the first clients take what cannot be shared out evenly
            docs: docs / clients as u64 + u64::from((number as u64) < docs % clients as u64),
            batch,
        })
    });
    let end = End::Seconds(options.share(1));
    vec![
        Phase::new("upsert", "upserts", clients, end, client)
            .after(vec![doc! { "create": COLLECTION }]),
    ]
}

struct Counting {
    room: Room,
    rng: ChaCha8Rng,
    /// Which client: its counters are its own.
    number: u64,
    made: u64,
    docs: u64,
    batch: u64,
}

impl Counting {
    fn statement(&mut self) -> Document {
        let new = self.made == 0 || self.rng.random::<bool>();
        let at = if new { self.made } else { self.rng.random_range(0..self.made) };
        self.made += u64::from(new);
        let id = format!("{:016x}", scatter((self.number << 40) | at));
        let labels = format!("host-{:05}.application.requests.{}", at % 10_000, &id[..8]);
        doc! {
            "q": { "_id": id },
            "u": { "$inc": { "count": 1_i64, "sum": at as i64 % 1000 }, "$setOnInsert": { "metric": labels } },
            "upsert": true,
        }
    }
}

/// Spreads numbers over all 64 bits, each to a place of its own (the finish of `splitmix64`).
fn scatter(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Client for Counting {
    fn step(&mut self) -> Work<'_> {
        Box::pin(async move {
            if self.made >= self.docs {
                return Ok(false);
            }
            let updates: Vec<Document> = (0..self.batch).map(|_| self.statement()).collect();
            let command = doc! { "update": COLLECTION, "updates": updates, "ordered": true };
            let work = async { self.room.database.run_command(command).await };
            let reply = self.room.meter.time("upsert", self.batch, work).await?;
            ensure!(!reply.contains_key("writeErrors"), "{reply}");
            let n = reply.get("n").and_then(|n| n.as_i64().or(n.as_i32().map(i64::from)));
            ensure!(n == Some(self.batch as i64), "{} upserts, the reply says {n:?}", self.batch);
            Ok(true)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn scattered_numbers_do_not_meet() {
        let places: BTreeSet<u64> = (0..100_000).map(scatter).collect();
        assert_eq!(places.len(), 100_000);
    }
}
