//! Documents of a kilobyte with an index of random keys, more and more of them, up to a hundred times the server's
//! cache. What is not in the cache comes from the disk: a find pays for that from some point on, and then always the
//! same.

use super::prepare::Fill;
use super::work::{Aim, Operation, filler, find_by_id, increment};
use super::{Curve, Plan, fresh, point};
use crate::experiments::indexes;
use crate::phase::Phase;
use anyhow::{Context, Result};
use mongodb::bson::{RawDocumentBuf, doc, rawdoc};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

const COLLECTION: &str = "data";
/// Multiples of the cache.
const POINTS: &[u64] = &[1, 3, 10, 30, 100];
/// Of a document.
const BYTES: u64 = 1_000;
/// Bytes of a document beside its filler.
const FRAME: u64 = 50;

pub(super) fn phases(plan: &Plan) -> Result<Vec<Phase>> {
    let cache = plan.cache_bytes.context("the server does not tell how large its cache is")?;
    let mut phases = Vec::new();
    let mut there = 0;
    for at in plan.points(POINTS, 1) {
        let at_point = |operation| point(Curve::Data, at, operation);
        let docs = cache * at / BYTES;
        let fill = Fill {
            collection: COLLECTION,
            first: there,
            end: docs,
            bytes: BYTES,
            make: Arc::new(document),
        };
        let mut commands = Vec::new();
        if there == 0 {
            commands = fresh(COLLECTION, true);
            commands.push(indexes(COLLECTION, &[doc! { "x": 1 }]));
        }
        there = docs;
        phases.push(fill.phase(plan.round()).after(commands));
        let find = plan.measure(at_point("find by _id"), find_by_id(COLLECTION, docs));
        phases.push(find.calm().reading());
        let by_key = move |rng: &mut ChaCha8Rng, _| {
            let x = scattered(rng.random_range(0..docs));
            Aim::at(COLLECTION, Operation::Find(doc! { "x": x }))
        };
        phases.push(plan.measure(at_point("find by a secondary key"), by_key).reading());
        phases.push(plan.measure(at_point("$inc"), increment(COLLECTION, docs)));
        let insert =
            |rng: &mut ChaCha8Rng, n| Aim::at(COLLECTION, Operation::Insert(document(n, rng)));
        phases.push(plan.measure(at_point("insert"), insert));
    }
    Ok(phases)
}

/// Spreads neighbouring numbers over all numbers, no two to the same (an odd factor: 2^64 divided by the golden ratio).
fn scattered(n: u64) -> i64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15) as i64
}

fn document(n: u64, rng: &mut ChaCha8Rng) -> RawDocumentBuf {
    rawdoc! { "_id": n as i64, "x": scattered(n), "n": 0_i64, "y": filler(rng, BYTES - FRAME) }
}
