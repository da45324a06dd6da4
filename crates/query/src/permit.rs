//! What an operation may open: the second check, below the one that judges a client's request.
//!
//! Whoever makes an [`OpContext`](crate::OpContext) for a client gives it a permit. Each namespace that a client's words
//! lead to is asked for where it is opened; what was not judged before is refused there. The server's own work has none.
//!
//! Always true: a view's definition was judged when the view was made, so that what it names may be opened by who may open
//! the view, and what it names is looked for too widely rather than too narrowly.

use bson::RawBsonRef;
use bson::raw::{RawArray, RawDocument};
use catalog::{Namespace, View};
use errors::Result;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a namespace is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opening {
    /// To be told about.
    Metadata,
    /// Its documents are read.
    Read,
    /// Its documents are changed.
    Write,
}

/// Says of each namespace whether it was judged.
pub trait Permit {
    /// Refuses what was not judged.
    ///
    /// # Errors
    /// `InternalError`: the check before this one has a gap.
    fn check(&self, namespace: &Namespace, opening: Opening) -> Result<()>;

    /// The same for what outlives the request: a cursor.
    fn keep(&self) -> Arc<dyn KeptPermit>;
}

/// A permit that outlives its request.
pub trait KeptPermit: Permit + Send + Sync {
    /// Reads of these were judged when a view was made.
    fn add_reads(&self, names: BTreeSet<String>);
}

/// The namespaces that a view of a database may read: the collection below it, and whatever stands in its stages where
/// one can name a collection.
pub(crate) fn names_of(database: &str, view: &View) -> BTreeSet<String> {
    let mut names = BTreeSet::from([format!("{database}.{}", view.on)]);
    in_array(database, &view.pipeline, &mut names);
    names
}

fn in_array(database: &str, array: &RawArray, names: &mut BTreeSet<String>) {
    for value in array.into_iter().flatten() {
        match value {
            RawBsonRef::Document(document) => in_document(database, document, names),
            RawBsonRef::Array(array) => in_array(database, array, names),
            _ => {}
        }
    }
}

fn in_document(database: &str, document: &RawDocument, names: &mut BTreeSet<String>) {
    let of = match document.get("db") {
        Ok(Some(RawBsonRef::String(db))) => db,
        _ => database,
    };
    for (name, value) in document.iter().flatten() {
        match (name.as_str(), value) {
            ("from" | "coll" | "$unionWith", RawBsonRef::String(collection)) => {
                names.insert(format!("{of}.{collection}"));
            }
            (_, RawBsonRef::Document(document)) => in_document(database, document, names),
            (_, RawBsonRef::Array(array)) => in_array(database, array, names),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::names_of;
    use bson::raw::RawArrayBuf;
    use bson::{RawDocumentBuf, doc};
    use catalog::View;
    use std::collections::BTreeSet;

    #[test]
    fn every_collection_that_a_view_names_is_found() {
        let stages = [
            doc! { "$match": { "a": "b" } },
            doc! { "$lookup": { "from": "one", "as": "x", "pipeline": [{ "$unionWith": "two" }] } },
            doc! { "$facet": { "f": [{ "$graphLookup": { "from": "three" } }] } },
            doc! { "$unionWith": { "coll": "four", "pipeline": [{ "$lookup": { "from": { "db": "other", "coll": "five" } } }] } },
        ];
        let mut pipeline = RawArrayBuf::new();
        for stage in &stages {
            pipeline.push(RawDocumentBuf::try_from(stage).unwrap());
        }
        let view = View { on: "below".to_owned(), pipeline };
        let expected = ["d.below", "d.one", "d.two", "d.three", "d.four", "other.five"];
        assert_eq!(names_of("d", &view), BTreeSet::from(expected.map(str::to_owned)));
    }
}
