//! Collections of one document and one index each; an operation is in any of them.

use super::work::{Aim, Operation, any};
use super::{Curve, Plan, held, name, point};
use crate::phase::{Client, End, MakeClient, Phase, Room, Work};
use mongodb::Collection;
use mongodb::bson::{RawDocumentBuf, doc, rawdoc};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

const POINTS: &[u64] = &[1, 10, 100, 1_000, 10_000];
/// Clients that make collections.
const MAKERS: u64 = 2;

pub(super) fn phases(plan: &Plan) -> Vec<Phase> {
    let mut phases = Vec::new();
    let mut there = 0;
    for at in plan.points(POINTS, 1_000) {
        let at_point = |operation| point(Curve::Collections, at, operation);
        let create = held(Curve::Collections, at, "create with an index, insert");
        let end = End::Units(at - there);
        let client = creator(there, at);
        phases
            .push(Phase::new(name(create), "collections", MAKERS as usize, end, client).at(create));
        there = at;
        let find = move |rng: &mut ChaCha8Rng, _| {
            Aim::at(any_collection(rng, at), Operation::Find(any(rng, 1)))
        };
        phases.push(plan.measure(at_point("find by _id"), find).calm().reading());
        let insert = move |rng: &mut ChaCha8Rng, n| {
            Aim::at(any_collection(rng, at), Operation::Insert(document(n)))
        };
        phases.push(plan.measure(at_point("insert"), insert));
        let create =
            |_: &mut ChaCha8Rng, n: u64| Aim::at(format!("new_{n}"), Operation::CreateAndDrop);
        phases.push(plan.measure(at_point("create and drop"), create));
    }
    phases
}

fn any_collection(rng: &mut ChaCha8Rng, collections: u64) -> String {
    collection(rng.random_range(0..collections))
}

fn collection(number: u64) -> String {
    format!("many_{number}")
}

fn document(n: u64) -> RawDocumentBuf {
    rawdoc! { "_id": n as i64, "x": n as i64, "n": 0_i64 }
}

/// Makes the collections of the numbers from `first` up to `end`.
fn creator(first: u64, end: u64) -> MakeClient {
    Box::new(move |room: &Room, number: usize| -> Box<dyn Client> {
        Box::new(Creator { room: room.clone(), next: first + number as u64, end })
    })
}

struct Creator {
    room: Room,
    /// Its next collection; those between are the other makers'.
    next: u64,
    end: u64,
}

impl Client for Creator {
    fn step(&mut self) -> Work<'_> {
        Box::pin(async move {
            if self.next >= self.end {
                return Ok(false);
            }
            let name = collection(self.next);
            self.next += MAKERS;
            let work = async {
                let index = doc! { "key": { "x": 1 }, "name": "x_1" };
                let create = doc! { "createIndexes": &name, "indexes": [index] };
                self.room.database.run_command(create).await?;
                let collection: Collection<RawDocumentBuf> = self.room.database.collection(&name);
                collection.insert_one(document(0)).await
            };
            self.room.meter.time("create with an index, insert", 1, work).await?;
            Ok(true)
        })
    }
}
