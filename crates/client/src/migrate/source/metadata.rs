//! The names and descriptions in a directory that `mongodump` wrote.
//!
//! Always true: the order of an index's fields is that of the file.

use crate::migrate::facts::Facts;
use crate::migrate::names::Name;
use anyhow::Result;
use bson::Document;

/// What a file of a dump is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Documents of the collection that is named so in the file's name.
    Documents(String),
    /// Its options and indexes.
    Metadata(String),
    /// The oplog during the dump.
    Oplog,
    /// Not of a dump, or known by other files.
    Other,
}

/// What a file is, by its name.
pub(super) fn role(file: &str) -> Role {
    let file = file.strip_suffix(".gz").unwrap_or(file);
    if file == "oplog.bson" {
        return Role::Oplog;
    }
    if let Some(name) = file.strip_suffix(".metadata.json") {
        return Role::Metadata(unescaped(name));
    }
    match file.strip_suffix(".bson") {
        // Indexes stand in the metadata, too.
        Some("system.indexes") | None => Role::Other,
        Some(name) => Role::Documents(unescaped(name)),
    }
}

/// A name as it was before `mongodump` escaped what no file's name may hold: `%2F` for `/`.
fn unescaped(name: &str) -> String {
    let bytes = name.as_bytes();
    let (mut plain, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let digits = name.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            plain.push(byte);
            at += 3;
        } else {
            plain.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(plain).unwrap_or_else(|_| name.to_owned())
}

/// The facts of a collection by its file of metadata; `name` is that of the file.
pub(super) fn read(name: &Name, text: &str) -> Result<Facts> {
    let told: Document = serde_json::from_str(text)?;
    let mut name = name.clone();
    // A name too long for a file is cut there, and whole here.
    if let Ok(whole) = told.get_str("collectionName") {
        whole.clone_into(&mut name.collection);
    }
    let options = told.get_document("options").cloned().unwrap_or_default();
    let mut facts = Facts::new(name, told.get_str("type").unwrap_or_default(), options);
    let indexes = told.get_array("indexes").map(Vec::as_slice).unwrap_or_default();
    facts.indexes = indexes.iter().filter_map(|index| index.as_document().cloned()).collect();
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrate::facts::Kind;
    use bson::doc;

    #[test]
    fn files_are_known_by_their_names() {
        for (file, expected) in [
            ("a.bson", Role::Documents("a".into())),
            ("a.b.bson.gz", Role::Documents("a.b".into())),
            ("a%2Fb%25.bson", Role::Documents("a/b%".into())),
            ("100%.bson", Role::Documents("100%".into())),
            ("a.metadata.json", Role::Metadata("a".into())),
            ("a.metadata.json.gz", Role::Metadata("a".into())),
            ("oplog.bson", Role::Oplog),
            ("system.indexes.bson", Role::Other),
            ("prelude.json", Role::Other),
        ] {
            assert_eq!(role(file), expected, "{file}");
        }
    }

    #[test]
    fn metadata_of_every_age_is_read_in_its_order() {
        let name = Name::new("d", "c");
        let of_8 = r#"{"indexes":[{"v":{"$numberInt":"2"},"key":{"z":{"$numberInt":"1"},"a":{"$numberDouble":"-1.0"}},"name":"i"}],
            "options":{"capped":true,"size":{"$numberLong":"4096"}},"uuid":"x","collectionName":"whole","type":"collection"}"#;
        let facts = read(&name, of_8).unwrap();
        assert_eq!((facts.name.collection.as_str(), facts.kind), ("whole", Kind::Natural));
        assert_eq!(facts.options, doc! { "capped": true, "size": 4096_i64 });
        assert_eq!(facts.indexes[0].get_document("key").unwrap(), &doc! { "z": 1, "a": -1.0 });
        let of_tokumx = r#"{options : {"create":"c"}}"#;
        assert!(read(&name, of_tokumx).is_err(), "no JSON");
        let of_2_4 = r#"{ "options" : { "create" : "c", "primaryKey" : { "z" : 1, "_id" : 1 } }, "indexes" : [
            { "v" : 1, "key" : { "z" : 1, "a" : -1 }, "ns" : "d.c", "name" : "i", "expireAfterSeconds" : { "$numberLong" : "60" } } ] }"#;
        let facts = read(&name, of_2_4).unwrap();
        assert_eq!(facts.indexes[0].get_document("key").unwrap(), &doc! { "z": 1, "a": -1_i64 });
        assert_eq!(facts.indexes[0].get_i64("expireAfterSeconds").unwrap(), 60);
        let view = r#"{"options":{"viewOn":"a","pipeline":[{"$match":{"z":{"$numberInt":"1"}}}]},"indexes":[],"type":"view"}"#;
        assert_eq!(read(&name, view).unwrap().kind, Kind::View);
    }
}
