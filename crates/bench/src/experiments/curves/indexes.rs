//! Indexes of a collection whose documents have a field for each that there can be. An insert writes a key into every
//! index; nothing else has to know of them all.

use super::prepare::Fill;
use super::work::{Aim, Operation, any, find_by_id, increment};
use super::{Curve, Plan, fresh, point, proportional};
use crate::experiments::indexes;
use crate::phase::Phase;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

const COLLECTION: &str = "indexes";
const DOCS: u64 = 5_000;
/// The most is what MongoDB allows beside the index of `_id`.
const POINTS: &[u64] = &[0, 1, 4, 16, 32, 63];
const FIELDS: u64 = 63;

pub(super) fn phases(plan: &Plan) -> Vec<Phase> {
    let mut phases = Vec::new();
    for at in plan.points(POINTS, 4) {
        let at_point = |operation| point(Curve::Indexes, at, operation);
        let mut commands = fresh(COLLECTION, at == 0);
        let keys: Vec<Document> = (0..at).map(|n| doc! { field(n): 1 }).collect();
        commands.extend((at > 0).then(|| indexes(COLLECTION, &keys)));
        let fill = Fill {
            collection: COLLECTION,
            first: 0,
            end: DOCS,
            bytes: 1_000,
            make: Arc::new(|n, _| document(n)),
        };
        phases.push(fill.phase(plan.round()).after(commands));
        let by_id = plan.measure(at_point("find by _id"), find_by_id(COLLECTION, DOCS));
        phases.push(by_id.calm().reading());
        if at > 0 {
            let by_key = |rng: &mut ChaCha8Rng, _| {
                let key = rng.random_range(0..DOCS) as i64;
                Aim::at(COLLECTION, Operation::Find(doc! { field(0): key }))
            };
            phases.push(plan.measure(at_point("find by a secondary key"), by_key).reading());
        }
        let inc = at_point("$inc of a field without index");
        phases.push(plan.measure(inc, increment(COLLECTION, DOCS)));
        if at > 0 {
            let set = |rng: &mut ChaCha8Rng, n: u64| {
                let change = doc! { "$set": { field(0): n as i64 } };
                Aim::at(COLLECTION, Operation::Update(any(rng, DOCS), change))
            };
            phases.push(plan.measure(at_point("$set of a field with one"), set));
        }
        let insert = proportional(Curve::Indexes, at, "insert");
        let make = |_: &mut ChaCha8Rng, n| Aim::at(COLLECTION, Operation::Insert(document(n)));
        phases.push(plan.measure(insert, make));
    }
    phases
}

fn field(n: u64) -> String {
    format!("f{n}")
}

/// Each field has the number of the document.
fn document(n: u64) -> RawDocumentBuf {
    let mut document = doc! { "_id": n as i64, "n": 0_i64 };
    document.extend((0..FIELDS).map(|at| (field(at), Bson::Int64(n as i64))));
    RawDocumentBuf::try_from(&document).expect("no name has a zero byte")
}
