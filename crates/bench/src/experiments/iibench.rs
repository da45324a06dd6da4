//! iiBench: what indexes cost an insert, and whether that grows with the data.
//!
//! A cash register's purchases with three secondary indexes over random values, beside a primary
//! key that ascends. `--docs` bounds what is inserted; without it, time does. The rate of the last
//! twentieth ("exit") against the whole is what a B-tree loses.

use super::find::{Ask, Finds};
use super::load::Load;
use super::{EPOCH_MS, indexes, text};
use crate::options::Options;
use crate::phase::{Client, End, MakeClient, Phase, Room};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, RawDocumentBuf, doc, rawdoc};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

const COLLECTION: &str = "purchases_index";

pub(super) fn phases(options: &Options) -> Vec<Phase> {
    let (payload, compressible) = (options.payload as usize, options.compressible as usize);
    let random = payload * (100 - compressible) / 100;
    let loaders = options.client_or(1);
    let load = Load {
        collection: COLLECTION,
        docs: options.docs.unwrap_or(u64::MAX),
        batch: options.batch_or(1000),
        loaders,
        make: Arc::new(move |n, rng| purchase(n, rng, random, payload - random)),
    };
    let keys = [
        doc! { "price": 1, "customerid": 1 },
        doc! { "cashregisterid": 1, "price": 1, "customerid": 1 },
        doc! { "price": 1, "dateandtime": 1, "customerid": 1 },
    ];
    let (insert, query) = (load.client(), queries());
    let client = Box::new(move |room: &Room, number: usize| -> Box<dyn Client> {
        if number < loaders { insert(room, number) } else { query(room, number) }
    });
    let end = End::Seconds(options.share(1));
    let mut phase = Phase::new("insert", "documents", loaders, end, client)
        .after(vec![indexes(COLLECTION, &keys)])
        .counting("insert");
    phase.beside = options.queries as usize;
    vec![phase]
}

/// A price follows from who buys, with some noise: what the first iiBench does.
fn price(rng: &mut ChaCha8Rng, customer: i32) -> f64 {
    (rng.random::<f64>() * 500.0 + f64::from(customer)) / 100.0
}

fn purchase(n: u64, rng: &mut ChaCha8Rng, random: usize, same: usize) -> RawDocumentBuf {
    let customer = rng.random_range(0..100_000);
    let mut row = rawdoc! {
        "_id": id(n),
        "dateandtime": DateTime::from_millis(EPOCH_MS + n as i64),
        "cashregisterid": rng.random_range(0..1000),
        "customerid": customer,
        "productid": rng.random_range(0..10_000),
        "price": price(rng, customer),
    };
    if random + same > 0 {
        row.append(mongodb::bson::cstr!("cf1"), text(rng, random) + &"a".repeat(same));
    }
    row
}

/// An id like a driver's: it ascends.
fn id(n: u64) -> ObjectId {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&((EPOCH_MS / 1000) as u32).to_be_bytes());
    bytes[4..].copy_from_slice(&n.to_be_bytes());
    ObjectId::from_bytes(bytes)
}

/// Asks for the ten purchases from a price upward, by each index alike.
fn queries() -> MakeClient {
    let ask = |rng: &mut ChaCha8Rng| {
        let customer = rng.random_range(0..100_000);
        let from = doc! { "$gte": price(rng, customer) };
        let (filter, sort) = match rng.random_range(0..3) {
            0 => (doc! { "price": from }, doc! { "price": 1, "customerid": 1 }),
            1 => (
                doc! { "cashregisterid": rng.random_range(0..1000), "price": from },
                doc! { "cashregisterid": 1, "price": 1, "customerid": 1 },
            ),
            _ => (doc! { "price": from }, doc! { "price": 1, "dateandtime": 1, "customerid": 1 }),
        };
        Ask { filter, sort: Some(sort), limit: Some(10), at_least: 0 }
    };
    let (class, round) = ("query", 1);
    let ask = Arc::new(ask);
    Finds { collection: COLLECTION, class, round, count_documents: false, ask }.client()
}
