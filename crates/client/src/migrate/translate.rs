//! Which options of collections and indexes are taken over, and what is tried where the target refuses one.
//!
//! Always true: nothing is left out in silence. What the target refuses is named with its error; what is left out here
//! has no meaning any more, or is how the collection is written down and not what it is.

use bson::{Bson, Document, doc};

/// What servers write into a collection's options that is no option, or has had no meaning for years.
const NOT_OPTIONS: &[&str] =
    &["create", "autoIndexId", "temp", "flags", "uuid", "idIndex", "ns", "usePowerOf2Sizes"];

/// The same of an index: `background`, `dropDups` and `safe` were about the building of it.
const NOT_INDEX_OPTIONS: &[&str] = &["ns", "v", "background", "dropDups", "safe"];

/// What only FernDB and TokuMX know, of collections and of indexes; the first to be left out where one is refused.
const EXTENSIONS: &[&str] = &[
    "primaryKey",
    "partitioned",
    "partitionEvery",
    "clustering",
    "compression",
    "pageSize",
    "readPageSize",
    "fanout",
    "storageEngine",
];

/// What a collection or index is; without these it would be another one.
const ESSENTIAL: &[&str] = &[
    "key",
    "name",
    "unique",
    "capped",
    "size",
    "viewOn",
    "pipeline",
    "timeseries",
    "partialFilterExpression",
    "sparse",
    "collation",
];

/// The options of a collection as `create` takes them.
pub(crate) fn collection_options(options: &Document) -> Document {
    let kept = options.iter().filter(|(name, _)| !NOT_OPTIONS.contains(&name.as_str()));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// An index as `createIndexes` takes it. None for those that the collection has by itself: that of `_id`, and
/// TokuMX's `primaryKey`, which comes with the option of that name.
pub(crate) fn index(index: &Document) -> Option<Document> {
    let name = index.get_str("name").unwrap_or_default();
    let is_of_id = index.get_document("key").is_ok_and(|key| *key == doc! { "_id": 1 });
    let hashed = index.get_document("key").is_ok_and(|key| key.contains_key("_id") && !is_of_id);
    if name == "primaryKey" || (name == "_id_" && !hashed) || is_clustered(index) {
        return None;
    }
    let kept = index.iter().filter(|(name, value)| {
        let is_no = matches!(name.as_str(), "unique" | "sparse" | "clustering")
            && !super::facts::is_true(Some(value));
        !NOT_INDEX_OPTIONS.contains(&name.as_str()) && !is_no
    });
    let mut taken: Document = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    for name in ["unique", "sparse", "clustering"] {
        if taken.contains_key(name) {
            taken.insert(name, true);
        }
    }
    if let Ok(key) = index.get_document("key") {
        taken.insert("key", directions(key));
    }
    Some(taken)
}

/// The same, in a collection with these options: an index without a collation would get the collection's, and the source
/// has it with the simple one.
pub(crate) fn index_of(options: &Document, index: &Document) -> Option<Document> {
    let mut taken = self::index(index)?;
    if options.contains_key("collation") && !taken.contains_key("collation") {
        taken.insert("collation", doc! { "locale": "simple" });
    }
    Some(taken)
}

/// MongoDB's collections that are clustered by `_id` list that as an index.
fn is_clustered(index: &Document) -> bool {
    index.get_bool("clustered").unwrap_or(false)
}

/// Before MongoDB 3.4 a direction could be anything; what is no number, nor the name of a kind of index, was ascending.
fn directions(key: &Document) -> Document {
    let direction = |value: &Bson| match value {
        Bson::String(kind) if !kind.is_empty() => Bson::String(kind.clone()),
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) => {
            let number = super::facts::number(Some(value));
            match value {
                _ if number == 0.0 => Bson::Int32(1),
                // JSON of old dumps does not tell how long a number is.
                Bson::Int64(long) => i32::try_from(*long).map_or(Bson::Int64(*long), Bson::Int32),
                _ => value.clone(),
            }
        }
        _ => Bson::Int32(1),
    };
    key.iter().map(|(name, value)| (name.clone(), direction(value))).collect()
}

/// What to try without, after the target has refused: an option that its error names, else the extensions one by one,
/// else whatever can be left out. None where only what it is, is left: it cannot be made there.
pub(crate) fn left_out_next(options: &Document, error: &str) -> Option<String> {
    let may_go = |name: &str| !ESSENTIAL.contains(&name);
    let is_named = |name: &str| {
        let words = error.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        words.into_iter().any(|word| word == name)
    };
    let names = || options.keys().filter(|name| may_go(name));
    let named = names().find(|name| is_named(name));
    let extension = || names().find(|name| EXTENSIONS.contains(&name.as_str()));
    named.or_else(extension).or_else(|| names().next()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_old_servers_lose_what_is_none() {
        let of_2_4 = doc! { "create": "c", "capped": true, "size": 4096, "autoIndexId": true };
        assert_eq!(collection_options(&of_2_4), doc! { "capped": true, "size": 4096 });
        let of_tokumx =
            doc! { "create": "c", "primaryKey": { "a": 1, "_id": 1 }, "partitioned": true };
        let expected = doc! { "primaryKey": { "a": 1, "_id": 1 }, "partitioned": true };
        assert_eq!(collection_options(&of_tokumx), expected);
    }

    #[test]
    fn an_index_keeps_the_simple_collation_beside_the_collections() {
        let (simple, french) = (doc! { "locale": "simple" }, doc! { "locale": "fr" });
        let plain = doc! { "key": { "a": 1 }, "name": "a" };
        let mut own = plain.clone();
        own.insert("collation", french.clone());
        let collation = |options: Document, index: &Document| {
            index_of(&options, index).unwrap().get_document("collation").cloned().ok()
        };
        assert_eq!(collation(doc! {}, &plain), None);
        let options = doc! { "collation": french.clone() };
        assert_eq!(collation(options.clone(), &plain), Some(simple));
        assert_eq!(collation(options, &own), Some(french));
    }

    #[test]
    fn indexes_lose_how_they_were_built_and_keep_what_they_are() {
        let made = |key: Document, more: Document| {
            let mut index = doc! { "v": 1, "key": key, "ns": "a.b", "name": "n" };
            index.extend(more);
            super::index(&index)
        };
        for (key, more, expected) in [
            (doc! { "_id": 1 }, doc! { "name": "_id_", "unique": true }, None),
            (doc! { "a": 1, "_id": 1 }, doc! { "name": "primaryKey", "unique": true }, None),
            (doc! { "_id": 1 }, doc! { "name": "own", "clustered": true }, None),
            (
                doc! { "_id": "hashed" },
                doc! {},
                Some(doc! { "key": { "_id": "hashed" }, "name": "n" }),
            ),
            (
                doc! { "a": 1_i64, "b": -1.0 },
                doc! { "background": true, "dropDups": true, "unique": false },
                Some(doc! { "key": { "a": 1, "b": -1.0 }, "name": "n" }),
            ),
            (
                doc! { "a": true, "b": "" },
                doc! { "unique": 1.0, "expireAfterSeconds": 60 },
                Some(
                    doc! { "key": { "a": 1, "b": 1 }, "name": "n", "unique": true, "expireAfterSeconds": 60 },
                ),
            ),
            (
                doc! { "a": "2dsphere" },
                doc! { "clustering": true, "compression": "zlib" },
                Some(
                    doc! { "key": { "a": "2dsphere" }, "name": "n", "clustering": true, "compression": "zlib" },
                ),
            ),
        ] {
            assert_eq!(made(key, more), expected);
        }
    }

    #[test]
    fn what_is_refused_is_left_out_one_by_one() {
        for (options, error, expected) in [
            (
                doc! { "compression": "zlib", "max": 1 },
                "field 'create.max' is unknown",
                Some("max"),
            ),
            (doc! { "max": 1, "compression": "zlib" }, "no", Some("compression")),
            (doc! { "capped": true, "size": 1, "max": 1 }, "no", Some("max")),
            (doc! { "capped": true, "size": 1 }, "capped collections are refused", None),
            (doc! { "key": { "a": 1 }, "name": "n", "unique": true }, "E11000", None),
            (doc! {}, "no", None),
        ] {
            assert_eq!(left_out_next(&options, error).as_deref(), expected, "{options} {error}");
        }
    }
}
