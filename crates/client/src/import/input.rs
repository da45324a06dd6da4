//! What is imported: files of four kinds, compressed or not, and the standard input; as documents with their places.
//!
//! Always true: what is held of a file is bounded, whatever is in it; a document longer than a server takes is broken.

use super::json::JsonReader;
use super::table::TableReader;
use crate::files;
use anyhow::{Result, bail};
use bson::{Document, RawDocumentBuf};
use os::Os;
use std::io::{self, BufRead};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The longest document that a server takes.
const MAX_DOCUMENT_BYTES: usize = 16 << 20;
/// What an `_id` that is added takes.
const ADDED_ID_BYTES: usize = 17;

/// What is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FileType {
    /// Documents of Extended JSON, one behind the other, or an array of them.
    Json,
    /// A table with commas.
    Csv,
    /// A table with tabs.
    Tsv,
    /// Documents as `mongodump` writes them.
    Bson,
}

/// What is no document, and where.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) place: String,
    pub(super) what: String,
    /// Nothing of the file can be read behind it.
    pub(super) is_last: bool,
}

impl Broken {
    pub(super) fn at_line(line: u64, what: impl Into<String>) -> Self {
        Self { place: format!("line {line}"), what: what.into(), is_last: false }
    }

    /// And so is what follows.
    pub(super) fn and_the_rest(self) -> Self {
        Self { is_last: true, ..self }
    }
}

/// A document with its line (of a `.bson`: its number), from 1; or what is none.
pub(super) type Found = std::result::Result<(u64, RawDocumentBuf), Broken>;
/// The next one; none at the end; an error where the file cannot be read.
pub(super) type Next = io::Result<Option<Found>>;

/// The documents of a file.
pub(super) enum Reader {
    Json(JsonReader<Box<dyn BufRead + Send>>),
    Table(TableReader),
    Bson(BsonReader),
}

impl Reader {
    /// Opens a file, or the standard input as `-`. What is read of it is added to `read`.
    pub(super) fn open(
        os: &Os,
        path: &Path,
        kind: FileType,
        is_compressed: bool,
        read: Arc<AtomicU64>,
    ) -> Result<Self> {
        let input = if is_standard_input(path) {
            files::buffered(io::stdin(), is_compressed, read)
        } else {
            files::open(os, path, is_compressed, read)?
        };
        Ok(match kind {
            FileType::Json => Self::Json(JsonReader::new(input)),
            FileType::Csv => Self::Table(TableReader::new(input, b',')),
            FileType::Tsv => Self::Table(TableReader::new(input, b'\t')),
            FileType::Bson => Self::Bson(BsonReader { input, offset: 0, number: 0 }),
        })
    }

    /// What a document's number is.
    pub(super) fn unit(&self) -> &'static str {
        if matches!(self, Self::Bson(_)) { "document" } else { "line" }
    }

    pub(super) fn next(&mut self) -> Next {
        let next = match self {
            Self::Json(reader) => reader.next(),
            Self::Table(reader) => reader.next(),
            Self::Bson(reader) => Ok(reader.next()),
        };
        let unit = self.unit();
        next.map(|next| {
            next.map(|found| found.and_then(|(at, document)| short_enough(unit, at, document)))
        })
    }
}

/// Refuses a document that no server takes.
fn short_enough(unit: &str, at: u64, document: RawDocumentBuf) -> Found {
    let added = if matches!(document.get("_id"), Ok(Some(_))) { 0 } else { ADDED_ID_BYTES };
    let bytes = document.as_bytes().len() + added;
    if bytes > MAX_DOCUMENT_BYTES {
        let what = format!("the document has {bytes} bytes, and {MAX_DOCUMENT_BYTES} are the most");
        return Err(Broken { place: format!("{unit} {at}"), what, is_last: false });
    }
    Ok((at, document))
}

pub(super) fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// What a file is by its name, and whether it is compressed.
pub(super) fn by_name(path: &Path) -> Result<(FileType, bool)> {
    let is_compressed = files::is_compressed(path);
    let plain = if is_compressed { path.with_extension("") } else { path.to_owned() };
    let ending = plain.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    Ok((
        match ending.as_deref() {
            Some("json" | "jsonl" | "ndjson") => FileType::Json,
            Some("csv") => FileType::Csv,
            Some("tsv" | "tab") => FileType::Tsv,
            Some("bson") => FileType::Bson,
            _ => bail!(
                "{}: what it is cannot be told by its name: --type json, csv, tsv or bson says it",
                path.display()
            ),
        },
        is_compressed,
    ))
}

/// The documents of `mongodump`.
pub(super) struct BsonReader {
    input: Box<dyn BufRead + Send>,
    offset: u64,
    number: u64,
}

impl BsonReader {
    fn next(&mut self) -> Option<Found> {
        let (began, number) = (self.offset, self.number + 1);
        self.number = number;
        let broken =
            |what: String, is_last| Broken { place: format!("document {number}"), what, is_last };
        match files::next_document(&mut *self.input, began) {
            Ok(None) => None,
            Ok(Some(document)) => {
                self.offset += document.as_bytes().len() as u64;
                // Bytes are checked to be a document from their beginning to their end.
                Some(match Document::try_from(&*document) {
                    Ok(_) => Ok((number, document)),
                    Err(error) => Err(broken(format!("at byte {began}: {error}"), false)),
                })
            }
            Err(error) => Some(Err(broken(format!("{error:#}"), true))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_a_file_is() {
        for (name, expected) in [
            ("a.json", Some((FileType::Json, false))),
            ("a.b.JSONL.gz", Some((FileType::Json, true))),
            ("a.csv", Some((FileType::Csv, false))),
            ("a.tsv.gz", Some((FileType::Tsv, true))),
            ("d/a.bson.gz", Some((FileType::Bson, true))),
            ("a.gz", None),
            ("a", None),
            ("-", None),
        ] {
            assert_eq!(by_name(Path::new(name)).ok(), expected, "{name}");
        }
    }

    #[test]
    fn a_document_that_no_server_takes_is_broken() {
        let of = |bytes: usize, has_id: bool| {
            let mut document = RawDocumentBuf::new();
            if has_id {
                document.append(bson::raw::cstr!("_id"), 1);
            }
            let rest = bytes - document.as_bytes().len() - 3 - 5;
            document.append(bson::raw::cstr!("a"), "x".repeat(rest));
            assert_eq!(document.as_bytes().len(), bytes);
            short_enough("line", 7, document)
        };
        assert!(of(MAX_DOCUMENT_BYTES, true).is_ok());
        assert_eq!(of(MAX_DOCUMENT_BYTES + 1, true).unwrap_err().place, "line 7");
        assert!(of(MAX_DOCUMENT_BYTES - ADDED_ID_BYTES, false).is_ok());
        assert!(of(MAX_DOCUMENT_BYTES, false).is_err());
    }
}
