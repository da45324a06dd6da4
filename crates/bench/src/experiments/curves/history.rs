//! Versions of a few documents: every document is changed so often, and before each change a transaction begins that
//! holds a snapshot, so that no version may go. A find has to get at the newest version, or at the one before all
//! others.

use super::prepare::{Fill, OPENERS, hold, hold_snapshots, release_snapshots};
use super::work::{Aim, Operation, any, find_by_id, plain};
use super::{Curve, Plan, fresh, held, name, point};
use crate::phase::{Client, End, MakeClient, Phase, Room, Work};
use anyhow::ensure;
use mongodb::Collection;
use mongodb::bson::{Document, doc};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

const COLLECTION: &str = "history";
const DOCS: u64 = 16;
const POINTS: &[u64] = &[1, 10, 100, 1_000, 10_000];

pub(super) fn phases(plan: &Plan) -> Vec<Phase> {
    let mut phases = Vec::new();
    for at in plan.points(POINTS, 100) {
        let at_point = |operation| point(Curve::History, at, operation);
        let fill = Fill {
            collection: COLLECTION,
            first: 0,
            end: DOCS,
            bytes: 200,
            make: Arc::new(|n, rng| plain(n, 150, rng)),
        };
        phases.push(fill.phase(plan.round()).after(fresh(COLLECTION, at == POINTS[0])));
        // One for each client that reads in them.
        let first = plan.clients as u64;
        let client = hold_snapshots(plan.round(), COLLECTION, DOCS, first);
        let hold = Phase::new("hold snapshots", "snapshots", OPENERS, End::Units(first), client);
        phases.push(hold.hidden().reading());
        let change = held(Curve::History, at, "$inc, a snapshot for every 16");
        let client = changes(at);
        let phase = Phase::new(name(change), "updates", 1, End::Units(at * DOCS), client);
        phases.push(phase.calm().at(change));
        let find = plan.measure(at_point("find the newest version"), find_by_id(COLLECTION, DOCS));
        phases.push(find.calm().reading());
        let old = |rng: &mut ChaCha8Rng, _| {
            Aim::at(COLLECTION, Operation::FindInSnapshot(any(rng, DOCS)))
        };
        phases.push(plan.measure(at_point("find the oldest version"), old).reading());
        let end = End::Units(first + at);
        let release = Phase::new("release snapshots", "snapshots", 1, end, release_snapshots());
        phases.push(release.hidden().reading());
    }
    phases
}

/// Changes every document so often.
fn changes(times: u64) -> MakeClient {
    Box::new(move |room: &Room, _| -> Box<dyn Client> {
        let collection = room.database.collection(COLLECTION);
        Box::new(Changer { room: room.clone(), collection, left: times })
    })
}

struct Changer {
    room: Room,
    collection: Collection<Document>,
    left: u64,
}

impl Client for Changer {
    fn step(&mut self) -> Work<'_> {
        Box::pin(async move {
            let Some(left) = self.left.checked_sub(1) else { return Ok(false) };
            self.left = left;
            // A version is what a commit leaves, so that no command changes a document twice.
            let change = |id| doc! { "q": { "_id": id }, "u": { "$inc": { "n": 1_i64 } } };
            let updates: Vec<Document> = (0..DOCS as i64).map(change).collect();
            let command = doc! { "update": COLLECTION, "updates": updates };
            let work = async {
                hold(&self.room, &self.collection).await?;
                self.room.database.run_command(command).await
            };
            let reply = self.room.meter.time("update", DOCS, work).await?;
            let changed = reply.get_i32("nModified").map(i64::from);
            let changed = changed.or_else(|_| reply.get_i64("nModified"))?;
            ensure!(changed == DOCS as i64, "{changed} of {DOCS} documents were changed: {reply}");
            Ok(true)
        })
    }
}
