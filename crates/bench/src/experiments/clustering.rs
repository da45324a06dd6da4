//! A ticker's day, a hundred documents that were inserted far apart: by a clustering index, whose
//! entries hold their documents, and by a plain one, which fetches each. A server without clustering
//! indexes has two plain ones.

use super::find::{Ask, Finds};
use super::indexes;
use super::load::Load;
use super::ticks::candle;
use crate::options::Options;
use crate::phase::{End, Phase};
use mongodb::bson::doc;
use rand::Rng;
use std::sync::Arc;

const CLUSTERING: &str = "by_clustering_index";
const PLAIN: &str = "by_plain_index";

pub(super) fn phases(options: &Options) -> Vec<Phase> {
    let docs = options.docs_or(200_000);
    let tickers = docs.div_ceil(100);
    let load = |collection| Load {
        collection,
        docs,
        batch: options.batch_or(1000),
        loaders: options.client_or(1),
        make: Arc::new(move |n, rng| candle(n, tickers, rng)),
    };
    let clustering = doc! { "createIndexes": CLUSTERING, "indexes": [
        { "key": { "ticker": 1, "time": 1 }, "name": "ticker_1_time_1", "clustering": true },
    ] };
    let mut phases = vec![
        load(CLUSTERING).phase().after(vec![clustering]),
        load(PLAIN).phase().after(vec![indexes(PLAIN, &[doc! { "ticker": 1, "time": 1 }])]),
    ];
    for (collection, class) in [(CLUSTERING, "clustering scan"), (PLAIN, "plain scan")] {
        let finds = Finds {
            collection,
            class,
            // the same questions of both
            round: 1,
            count_documents: false,
            ask: Arc::new(move |rng| {
                let ticker = rng.random_range(0..tickers);
                let filter = doc! { "ticker": format!("T{ticker:05}") };
                Ask { filter, at_least: docs / tickers, ..Ask::default() }
            }),
        };
        let end = End::Seconds(options.share(2));
        phases.push(Phase::new(class, "queries", options.client_or(1), end, finds.client()));
    }
    phases
}
