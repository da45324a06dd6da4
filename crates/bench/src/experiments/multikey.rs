//! Arrays of a hundred values in an index: one document is a hundred entries all over it. Then the
//! documents that hold a value are asked for.

use super::find::{Ask, Finds};
use super::indexes;
use super::load::Load;
use crate::options::Options;
use crate::phase::{End, Phase};
use mongodb::bson::{RawArrayBuf, doc, rawdoc};
use rand::Rng;
use std::sync::Arc;

const COLLECTION: &str = "multikey";
const VALUES: usize = 100;
const RANGE: i32 = 1_000_000;

pub(super) fn phases(options: &Options) -> Vec<Phase> {
    let load = Load {
        collection: COLLECTION,
        docs: options.docs.unwrap_or(u64::MAX),
        batch: options.batch_or(100),
        loaders: options.client_or(1),
        make: Arc::new(|n, rng| {
            let mut values = RawArrayBuf::new();
            for _ in 0..VALUES {
                values.push(rng.random_range(0..RANGE));
            }
            rawdoc! { "_id": n as i64, "values": values }
        }),
    };
    let finds = Finds {
        collection: COLLECTION,
        class: "find",
        round: 1,
        count_documents: false,
        ask: Arc::new(|rng| Ask {
            filter: doc! { "values": rng.random_range(0..RANGE) },
            ..Ask::default()
        }),
    };
    let whole = options.share(1);
    let insert = End::Seconds(whole * 0.75);
    vec![
        Phase::new("insert", "documents", load.loaders, insert, load.client())
            .after(vec![indexes(COLLECTION, &[doc! { "values": 1 }])]),
        Phase::new("find", "finds", load.loaders, End::Seconds(whole * 0.25), finds.client()),
    ]
}
