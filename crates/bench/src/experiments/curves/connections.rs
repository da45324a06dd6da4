//! Clients that work at once, each on a connection of its own and with an operation under way all the time. So what a
//! client waits must grow with their number; the server's processor time an operation must not.

use super::prepare::{Fill, connect};
use super::work::{find_by_id, increment, plain};
use super::{Curve, Plan, fresh, held, name, point};
use crate::phase::{End, Phase};
use std::sync::Arc;

const COLLECTION: &str = "connections";
const DOCS: u64 = 10_000;
const POINTS: &[u64] = &[1, 10, 100, 1_000, 10_000];

pub(super) fn phases(plan: &Plan) -> Vec<Phase> {
    let fill = Fill {
        collection: COLLECTION,
        first: 0,
        end: DOCS,
        bytes: 200,
        make: Arc::new(|n, rng| plain(n, 150, rng)),
    };
    let mut phases = vec![fill.phase(plan.round()).after(fresh(COLLECTION, true))];
    let points = plan.points(POINTS, 1_000);
    // The most of them first, while they are idle: later the server keeps memory that earlier points took.
    let most = points.iter().copied().max().unwrap_or(1);
    phases.extend([open(most).calm(), close()]);
    for at in points {
        let opened = if at == most { again(most) } else { open(at) };
        phases.push(opened.calm());
        let find = point(Curve::Connections, at, "find by _id");
        let find = plan.measure_with(find, at as usize, find_by_id(COLLECTION, DOCS));
        phases.push(find.calm().reading());
        let inc = point(Curve::Connections, at, "$inc");
        phases.push(plan.measure_with(inc, at as usize, increment(COLLECTION, DOCS)));
    }
    phases.push(close());
    phases
}

/// Opens so many connections; what the server's memory grows by is what they take while they are idle.
fn open(connections: u64) -> Phase {
    let point = held(Curve::Connections, connections, "open one");
    let client = connect(connections);
    Phase::new(name(point), "connections", 1, End::Units(connections), client).at(point).reading()
}

/// Opens them without being drawn.
fn again(connections: u64) -> Phase {
    Phase { name: "open connections again".to_owned(), point: None, ..open(connections) }.hidden()
}

fn close() -> Phase {
    Phase::new("close connections", "connections", 1, End::Units(1), connect(0)).hidden().reading()
}
