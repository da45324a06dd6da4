//! Single inserts from one client, `{x: i, y: 200 random bytes}` with an index on `x`: flat, without
//! dips, and how much disk the documents take. No bulk load: each insert waits for its answer.

use super::load::Load;
use super::{indexes, text};
use crate::options::Options;
use crate::phase::{End, Phase};
use mongodb::bson::{RawDocumentBuf, doc, rawdoc};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// What the insert, read and readupdate experiments share.
pub(super) const COLLECTION: &str = "johan";

pub(super) fn phases(options: &Options) -> Vec<Phase> {
    let load = Load {
        collection: COLLECTION,
        docs: options.docs.unwrap_or(u64::MAX),
        batch: options.batch_or(1),
        loaders: options.client_or(1),
        make: Arc::new(document),
    };
    let end = End::Seconds(options.share(1));
    vec![
        Phase::new("insert", "documents", load.loaders, end, load.client())
            .after(vec![indexes(COLLECTION, &[doc! { "x": 1 }])]),
    ]
}

/// Document `n`, its `_id` a number too, so that a run can be made again.
pub(super) fn document(n: u64, rng: &mut ChaCha8Rng) -> RawDocumentBuf {
    rawdoc! { "_id": n as i64, "x": n as i64, "y": text(rng, 200) }
}
