//! How `fern import` is called.

use super::input::FileType;
use super::json::argument;
use crate::migrate::Name;
use anyhow::{Context, Result, anyhow, bail};
use bench::Login;
use bson::{Bson, Document};
use std::path::PathBuf;

/// How `fern import` was called.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct ImportOptions {
    /// The server, if not that of the environment variable `FERN_URI`, which is better where there is a password in
    /// it; the collection; and files, or - for the standard input.
    #[arg(required = true, num_args = 2.., value_names = ["URI", "DB.COLLECTION", "FILE"])]
    pub place: Vec<String>,
    /// As whom to log in.
    #[command(flatten)]
    pub login: Login,
    /// What the files are, where their names do not tell by .json, .jsonl, .ndjson, .csv, .tsv or .bson.
    #[arg(long = "type", value_name = "TYPE", value_enum)]
    pub kind: Option<FileType>,
    /// The files are compressed by gzip, whatever their names are; without it those are that end in .gz.
    #[arg(long)]
    pub gzip: bool,
    /// Drop the collection first, if it is there.
    #[arg(long)]
    pub drop: bool,
    /// An index of a new collection, as '{"customer": 1}', or '{"key": {"customer": 1}, "unique": true}' with any of the
    /// options of createIndexes; may be given several times.
    #[arg(long, value_name = "JSON")]
    pub index: Vec<String>,
    /// What a new collection is clustered by, as '{"site": 1, "_id": 1}'.
    #[arg(long = "primaryKey", alias = "primary-key", value_name = "JSON")]
    pub primary_key: Option<String>,
    /// Insert documents as any client does, also where the collection is new.
    #[arg(long = "noLoad", alias = "no-load")]
    pub no_load: bool,
    /// Leave out what is no document, and count it; without it the first one ends the import.
    #[arg(long = "skipInvalid", alias = "skip-invalid")]
    pub skip_invalid: bool,
}

/// What the words of a call mean.
pub(super) struct Asked {
    pub(super) uri: Option<String>,
    pub(super) name: Name,
    pub(super) files: Vec<PathBuf>,
    /// Of a new collection.
    pub(super) indexes: Vec<Document>,
    pub(super) options: Document,
}

impl ImportOptions {
    pub(super) fn read(&self) -> Result<Asked> {
        let mut words = self.place.iter();
        let uri = words.as_slice().first().filter(|word| word.contains("://")).cloned();
        if uri.is_some() {
            words.next();
        }
        let name = words.next().ok_or_else(|| anyhow!("no collection is named"))?;
        let name = Name::parse(name)
            .ok_or_else(|| anyhow!("{name}: no collection, which is named as shop.orders"))?;
        let files: Vec<PathBuf> = words.map(PathBuf::from).collect();
        if files.is_empty() {
            bail!("no file is named; - is the standard input");
        }
        if files.iter().filter(|path| path.as_os_str() == "-").count() > 1 {
            bail!("the standard input can be read once");
        }
        let indexes = self.index.iter().map(|text| index(text).context("--index"));
        let indexes = indexes.collect::<Result<_>>()?;
        let mut options = Document::new();
        if let Some(text) = &self.primary_key {
            options.insert("primaryKey", argument(text).context("--primaryKey")?);
        }
        Ok(Asked { uri, name, files, indexes, options })
    }
}

/// An index by its fields alone, or with its options; named by its fields where it has no name.
fn index(text: &str) -> Result<Document> {
    let given = argument(text)?;
    let mut index = match given.get("key") {
        Some(Bson::Document(_)) => given,
        _ => Document::from_iter([("key".to_owned(), Bson::Document(given))]),
    };
    let key = index.get_document("key")?;
    if key.is_empty() {
        bail!("{text}: it has no fields");
    }
    if !index.contains_key("name") {
        let parts = key.iter().map(|(field, way)| match way {
            Bson::String(way) => format!("{field}_{way}"),
            way => format!("{field}_{way}"),
        });
        let name = parts.collect::<Vec<_>>().join("_");
        index.insert("name", name);
    }
    Ok(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::doc;

    #[test]
    fn an_index_is_its_fields_or_has_options() {
        for (text, expected) in [
            (r#"{"b":1,"a":-1}"#, doc! { "key": { "b": 1, "a": -1 }, "name": "b_1_a_-1" }),
            (r#"{"a":"hashed"}"#, doc! { "key": { "a": "hashed" }, "name": "a_hashed" }),
            (r#"{"key":1}"#, doc! { "key": { "key": 1 }, "name": "key_1" }),
            (
                r#"{"key":{"a":1},"unique":true,"name":"n"}"#,
                doc! { "key": { "a": 1 }, "unique": true, "name": "n" },
            ),
        ] {
            assert_eq!(index(text).unwrap(), expected);
        }
        assert!(index("{}").is_err() && index("a").is_err() && index("[1]").is_err());
    }
}
