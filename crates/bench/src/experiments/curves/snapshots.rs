//! Snapshots of different states, each held by a transaction that has read in it and does no more.

use super::prepare::{Fill, OPENERS, hold_snapshots, release_snapshots};
use super::work::{find_by_id, increment, plain};
use super::{Curve, Plan, fresh, held, name, point};
use crate::phase::{End, Phase};
use std::sync::Arc;

const COLLECTION: &str = "snapshots";
const DOCS: u64 = 10_000;
/// A transaction lives for a minute: the most has to be opened, measured and closed in that time.
const POINTS: &[u64] = &[0, 10, 100, 1_000, 10_000];

pub(super) fn phases(plan: &Plan) -> Vec<Phase> {
    let mut phases = Vec::new();
    for at in plan.points(POINTS, 100) {
        let at_point = |operation| point(Curve::Snapshots, at, operation);
        let fill = Fill {
            collection: COLLECTION,
            first: 0,
            end: DOCS,
            bytes: 200,
            make: Arc::new(|n, rng| plain(n, 150, rng)),
        };
        phases.push(fill.phase(plan.round()).after(fresh(COLLECTION, at == 0)));
        if at > 0 {
            let open = held(Curve::Snapshots, at, "$inc, begin a transaction, find");
            let client = hold_snapshots(plan.round(), COLLECTION, DOCS, at);
            let phase = Phase::new(name(open), "snapshots", OPENERS, End::Units(at), client);
            phases.push(phase.calm().reading().at(open));
        }
        let find = plan.measure(at_point("find by _id"), find_by_id(COLLECTION, DOCS));
        phases.push(find.reading());
        phases.push(plan.measure(at_point("$inc"), increment(COLLECTION, DOCS)));
        if at > 0 {
            let close = at_point("commit a transaction");
            let end = End::Units(at);
            let phase = Phase::new(name(close), "snapshots", 1, end, release_snapshots());
            phases.push(phase.reading().at(close));
        }
    }
    phases
}
