//! Documents of so many bytes, in collections that fit a small cache. Every operation reads or writes all of them.

use super::prepare::Fill;
use super::work::{Aim, Operation, find_by_id, increment, plain};
use super::{Curve, Plan, fresh, proportional};
use crate::phase::Phase;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

const COLLECTION: &str = "size";
const POINTS: &[u64] = &[100, 1_000, 10_000, 100_000, 1_000_000];
/// Of all documents.
const BYTES: u64 = 8 << 20;
const MAX_DOCS: u64 = 10_000;
const MIN_DOCS: u64 = 8;
/// Bytes of a document beside its filler.
const FRAME: u64 = 40;

pub(super) fn phases(plan: &Plan) -> Vec<Phase> {
    let mut phases = Vec::new();
    for at in plan.points(POINTS, 10_000) {
        let at_point = |operation| proportional(Curve::Size, at, operation);
        let docs = (BYTES / at).clamp(MIN_DOCS, MAX_DOCS);
        let filler = at - FRAME;
        let fill = Fill {
            collection: COLLECTION,
            first: 0,
            end: docs,
            bytes: at,
            make: Arc::new(move |n, rng| plain(n, filler, rng)),
        };
        phases.push(fill.phase(plan.round()).after(fresh(COLLECTION, at == POINTS[0])));
        let find = plan.measure(at_point("find by _id"), find_by_id(COLLECTION, docs));
        phases.push(find.calm().reading());
        phases.push(plan.measure(at_point("$inc"), increment(COLLECTION, docs)));
        let insert = move |rng: &mut ChaCha8Rng, n| {
            Aim::at(COLLECTION, Operation::Insert(plain(n, filler, rng)))
        };
        phases.push(plan.measure(at_point("insert"), insert));
    }
    phases
}
