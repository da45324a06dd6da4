//! Many finds in flight: `{test: 'value', index: i}`, found by its index, and with no index at all.
//! How long one waits must follow from how many wait, and the disk per record must be small.

use super::find::{Ask, Finds};
use super::indexes;
use super::load::Load;
use crate::options::Options;
use crate::phase::{End, Phase};
use mongodb::bson::{doc, rawdoc};
use rand::Rng;
use std::sync::Arc;

const INDEXED: &str = "indexed";
const PLAIN: &str = "plain";

pub(super) fn phases(options: &Options) -> Vec<Phase> {
    let docs = options.docs_or(6000);
    let load = |collection| Load {
        collection,
        docs,
        batch: options.batch_or(1000),
        loaders: 1,
        make: Arc::new(|n, _| rawdoc! { "_id": n as i64, "test": "value", "index": n as i64 }),
    };
    let mut phases = vec![
        load(INDEXED).phase().after(vec![indexes(INDEXED, &[doc! { "index": 1 }])]).hidden(),
        load(PLAIN).phase().after(vec![doc! { "create": PLAIN }]).hidden(),
    ];
    let counts = options.clients_or(&[100, 1000]);
    for (collection, how) in [(INDEXED, "by index"), (PLAIN, "by scan")] {
        for clients in &counts {
            let finds = Finds {
                collection,
                class: how,
                round: phases.len() as u64,
                count_documents: false,
                ask: Arc::new(move |rng| Ask {
                    filter: doc! { "index": rng.random_range(0..docs) as i64 },
                    at_least: 1,
                    ..Ask::default()
                }),
            };
            let end = End::Seconds(options.share(2 * counts.len()));
            let name = format!("{how}, {clients} in flight");
            phases.push(Phase::new(name, "finds", *clients, end, finds.client()));
        }
    }
    phases
}
