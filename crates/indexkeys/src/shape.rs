//! The storage shape of a collection or an index, as users ask for it.
//!
//! Always true: what is asked for is honoured or refused. A compressor that is not built in is
//! honoured by its nearest relative, which the reply says ([`substitution`]).

use crate::values::whole_number;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use errors::{Code, Error, Result};

/// How pages are compressed, as users ask for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Stored as they are.
    None,
    /// LZ4.
    Lz4,
    /// zlib at a level from 1 to 9.
    Zlib(u8),
    /// zstd at the engine's own level.
    ZstdDefault,
    /// zstd at a level from 1 to 22.
    Zstd(u8),
}

/// The storage shape a user asked for, per collection or per index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StorageOptions {
    /// `compression`.
    pub compression: Option<Compression>,
    /// `pageSize` in bytes.
    pub page_size: Option<u32>,
    /// `readPageSize` in bytes.
    pub read_page_size: Option<u32>,
    /// `fanout`.
    pub fanout: Option<u16>,
}

/// What TokuMX calls the options, in the order they are shown.
pub const STORAGE_OPTIONS: [&str; 4] = ["compression", "pageSize", "readPageSize", "fanout"];

const PAGE_SIZES: (i64, i64) = (4 << 10, 16 << 20);
const READ_PAGE_SIZES: (i64, i64) = (4 << 10, 256 << 10);

impl StorageOptions {
    /// Takes `key: value` if it is one of the storage options; says whether it was.
    pub fn take(&mut self, key: &str, value: RawBsonRef<'_>) -> Result<bool> {
        match key {
            "compression" => self.compression = Some(compression(value)?),
            "pageSize" => self.page_size = Some(size(key, value, PAGE_SIZES)?),
            "readPageSize" => self.read_page_size = Some(size(key, value, READ_PAGE_SIZES)?),
            "fanout" => {
                let fanout =
                    whole_number(value).filter(|n| (4..=64).contains(n)).ok_or_else(|| {
                        Error::location(17288, "fanout must be a number from 4 to 64")
                    })?;
                self.fanout = Some(fanout as u16);
            }
            "storageEngine" => self.take_engines(value)?,
            _ => return Ok(false),
        }
        if let (Some(page), Some(read)) = (self.page_size, self.read_page_size)
            && read > page
        {
            return Err(invalid(format!(
                "readPageSize ({read} bytes) must not be greater than pageSize ({page} bytes)"
            )));
        }
        Ok(true)
    }

    /// Reads `{compression: …, …}` and nothing else; what is unknown is refused as TokuMX does.
    pub fn parse(options: &RawDocument) -> Result<Self> {
        let mut storage = Self::default();
        for element in options {
            let (name, value) = element?;
            if name.as_str() == "storageEngine" || !storage.take(name.as_str(), value)? {
                return Err(Error::location(
                    17234,
                    format!("unknown index attribute '{}'", name.as_str()),
                ));
            }
        }
        Ok(storage)
    }

    /// `{wiredTiger: {configString: …}}`, or our own options under our own name.
    fn take_engines(&mut self, value: RawBsonRef<'_>) -> Result<()> {
        let engines = value
            .as_document()
            .ok_or_else(|| Error::type_mismatch("'storageEngine' has to be a document."))?;
        for element in engines {
            let (engine, value) = element?;
            let engine = engine.as_str();
            let options = value.as_document().ok_or_else(|| {
                Error::bad_value(format!(
                    "'storageEngine.{engine}' has to be an embedded document."
                ))
            })?;
            for element in options {
                let (name, value) = element?;
                let known = match (engine, name.as_str()) {
                    ("fern", name) => name != "storageEngine" && self.take(name, value)?,
                    ("wiredTiger", "configString") => {
                        let text = value.as_str().ok_or_else(|| {
                            Error::type_mismatch("'configString' must be a string.")
                        })?;
                        self.take_config(text)?;
                        true
                    }
                    _ => false,
                };
                if !known {
                    let name = name.as_str();
                    return Err(invalid(format!("'{name}' is not a supported option in {engine}")));
                }
            }
            if !matches!(engine, "fern" | "wiredTiger") {
                return Err(invalid(format!(
                    "{engine} is not a registered storage engine for this server"
                )));
            }
        }
        Ok(())
    }

    /// A configuration string of WiredTiger's: what has a counterpart here is honoured.
    fn take_config(&mut self, text: &str) -> Result<()> {
        if text.contains('\0') {
            return Err(Error::failed_to_parse("'configString' cannot contain a NUL byte"));
        }
        for (key, value) in config_settings(text) {
            match (key, value) {
                ("block_compressor", name) => {
                    let (compression, _) = wired_tiger_compressor(name).ok_or_else(|| {
                        Error::bad_value(format!("unknown block_compressor '{name}'"))
                    })?;
                    self.compression = Some(compression);
                }
                ("leaf_page_max", bytes) => {
                    self.take("readPageSize", RawBsonRef::String(bytes))?;
                }
                // Keys of a page share their prefixes here always.
                ("prefix_compression", "true") => {}
                _ => {
                    return Err(Error::bad_value(format!(
                        "the setting '{key}={value}' of a configString is not supported"
                    )));
                }
            }
        }
        Ok(())
    }

    /// What is set here, else what is set there.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            compression: self.compression.or(other.compression),
            page_size: self.page_size.or(other.page_size),
            read_page_size: self.read_page_size.or(other.read_page_size),
            fanout: self.fanout.or(other.fanout),
        }
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// `shown` with the storage options of `change` in the place of its own.
pub fn reshaped(shown: &RawDocument, change: &RawDocument) -> Result<RawDocumentBuf> {
    let mut options = RawDocumentBuf::new();
    for element in shown {
        let (name, value) = element?;
        if change.get(name.as_str())?.is_none() {
            options.append(name, value);
        }
    }
    for element in change {
        let (name, value) = element?;
        options.append(name, value);
    }
    Ok(options)
}

/// What a compression is called in replies.
pub fn compression_name(compression: Compression) -> String {
    match compression {
        Compression::None => "uncompressed".to_owned(),
        Compression::Lz4 => "lz4".to_owned(),
        Compression::Zlib(6) => "zlib".to_owned(),
        Compression::Zlib(level) => format!("zlib:{level}"),
        Compression::ZstdDefault => "zstd".to_owned(),
        Compression::Zstd(level) => format!("zstd:{level}"),
    }
}

/// Says which compressor stands in for one that these options name and that is not built in.
pub fn substitution(options: &RawDocument) -> Option<String> {
    let stand_in = |name| compressor(name)?.1.map(|other| (name, other));
    let given = options.get("compression").ok().flatten();
    let mut name = given.and_then(RawBsonRef::as_str).and_then(stand_in);
    if name.is_none()
        && let Ok(Some(RawBsonRef::Document(engines))) = options.get("storageEngine")
        && let Ok(Some(RawBsonRef::Document(engine))) = engines.get("wiredTiger")
        && let Ok(Some(RawBsonRef::String(text))) = engine.get("configString")
    {
        name = config_settings(text).find_map(|(key, value)| {
            let (_, stands_in) = wired_tiger_compressor(value)?;
            stands_in.filter(|_| key == "block_compressor").map(|other| (value, other))
        });
    }
    name.map(|(asked, other)| format!("compression '{asked}' is carried out by {other}"))
}

/// A compressor and, where it stands in for the one that was named, what to call it.
type Chosen = (Compression, Option<&'static str>);

fn compressor(name: &str) -> Option<Chosen> {
    Some(match name {
        "zstd" => (Compression::ZstdDefault, None),
        "zlib" => (Compression::Zlib(6), None),
        "lz4" => (Compression::Lz4, None),
        "quicklz" | "fastlz" => (Compression::Lz4, Some("lz4")),
        "lzma" => (Compression::Zstd(19), Some("zstd at level 19")),
        "none" | "uncompressed" => (Compression::None, None),
        _ => {
            let (method, level) = name.split_once(':')?;
            let level = level.parse::<u8>().ok()?;
            match method {
                "zstd" if (1..=22).contains(&level) => (Compression::Zstd(level), None),
                "zlib" if (1..=9).contains(&level) => (Compression::Zlib(level), None),
                _ => return None,
            }
        }
    })
}

fn wired_tiger_compressor(name: &str) -> Option<Chosen> {
    match name {
        "snappy" => Some((Compression::Lz4, Some("lz4"))),
        "" | "none" => Some((Compression::None, None)),
        "zlib" | "zstd" | "lz4" => compressor(name),
        _ => None,
    }
}

fn compression(value: RawBsonRef<'_>) -> Result<Compression> {
    let found = value.as_str().and_then(compressor);
    found.map(|(compression, _)| compression).ok_or_else(|| {
        Error::location(
            16442,
            "compression must be one of \"zstd\", \"zlib\", \"lz4\", \"quicklz\", \"lzma\", \"none\"",
        )
    })
}

/// `a=1,b=(c=2,d=3)`: settings at the outer level.
fn config_settings(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut depth = 0_usize;
    let settings = text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    settings.map(str::trim).filter(|setting| !setting.is_empty()).map(|setting| {
        let (key, value) = setting.split_once('=').unwrap_or((setting, "true"));
        (key.trim(), value.trim().trim_matches('"'))
    })
}

/// A number of bytes, as a number or as a string like `"64k"`.
fn size(key: &str, value: RawBsonRef<'_>, (min, max): (i64, i64)) -> Result<u32> {
    let bytes = match value.as_str() {
        Some(text) => size_text(text),
        None => whole_number(value),
    };
    bytes
        .filter(|n| (min..=max).contains(n))
        .map(|n| n as u32)
        .ok_or_else(|| Error::bad_value(format!("{key} must be a size from {min} to {max} bytes")))
}

/// `"64k"`, `"4MB"`: binary units.
fn size_text(text: &str) -> Option<i64> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_suffix('b').unwrap_or(&text);
    let (digits, shift) = match text.char_indices().next_back()? {
        (at, 'k') => (&text[..at], 10),
        (at, 'm') => (&text[..at], 20),
        (at, 'g') => (&text[..at], 30),
        _ => (text, 0),
    };
    digits.trim().parse::<i64>().ok()?.checked_mul(1 << shift)
}

fn invalid(message: String) -> Error {
    Error::new(Code::INVALID_OPTIONS, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Document, doc};

    fn raw(document: &Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(document).unwrap()
    }

    fn taken(document: &Document) -> Result<StorageOptions> {
        let mut storage = StorageOptions::default();
        for element in &raw(document) {
            let (name, value) = element?;
            assert!(storage.take(name.as_str(), value)?, "{name:?} is one of ours");
        }
        Ok(storage)
    }

    #[test]
    fn options_are_read_as_numbers_and_strings() {
        let storage = taken(&doc! {
            "compression": "quicklz", "pageSize": "4MB", "readPageSize": 65536.0, "fanout": 16,
        });
        let expected = StorageOptions {
            compression: Some(Compression::Lz4),
            page_size: Some(4 << 20),
            read_page_size: Some(64 << 10),
            fanout: Some(16),
        };
        assert_eq!(storage.unwrap(), expected);
    }

    #[test]
    fn names_of_compressors_read_back() {
        for name in ["zstd", "zlib", "lz4", "uncompressed", "zstd:19", "zlib:9"] {
            let storage = taken(&doc! { "compression": name }).unwrap();
            assert_eq!(compression_name(storage.compression.unwrap()), name);
        }
    }

    #[test]
    fn mongodbs_own_form_is_honoured_where_it_maps() {
        let config =
            |text: &str| doc! { "storageEngine": { "wiredTiger": { "configString": text } } };
        for (text, compression, read_page_size) in [
            ("block_compressor=zlib", Some(Compression::Zlib(6)), None),
            ("block_compressor=", Some(Compression::None), None),
            ("prefix_compression=true, block_compressor=snappy", Some(Compression::Lz4), None),
            (
                "leaf_page_max=32KB,block_compressor=\"zstd\"",
                Some(Compression::ZstdDefault),
                Some(32 << 10),
            ),
            ("", None, None),
        ] {
            let storage = taken(&config(text)).unwrap();
            assert_eq!(
                (storage.compression, storage.read_page_size),
                (compression, read_page_size)
            );
        }
        let own = doc! { "storageEngine": { "fern": { "compression": "lz4", "fanout": 8 } } };
        assert_eq!(taken(&own).unwrap().fanout, Some(8));
        for text in ["block_compressor=rle", "internal_page_max=4KB", "app_metadata=(a=1,b=2)"] {
            assert_eq!(taken(&config(text)).unwrap_err().code(), Code::BAD_VALUE, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        for (options, code) in [
            (doc! { "compression": "best" }, 16442),
            (doc! { "compression": 1 }, 16442),
            (doc! { "compression": "zlib:10" }, 16442),
            (doc! { "fanout": 2 }, 17288),
            (doc! { "fanout": 65 }, 17288),
            (doc! { "pageSize": "many" }, 2),
            (doc! { "pageSize": "64g" }, 2),
            (doc! { "readPageSize": 0 }, 2),
            (doc! { "pageSize": "16k", "readPageSize": "64k" }, 72),
            (doc! { "storageEngine": { "rocksdb": {} } }, 72),
            (doc! { "storageEngine": { "wiredTiger": { "b": 1 } } }, 72),
            (doc! { "storageEngine": { "wiredTiger": 1 } }, 2),
            (doc! { "storageEngine": 1 }, 14),
        ] {
            assert_eq!(taken(&options).unwrap_err().code().0, code, "{options}");
        }
        assert_eq!(StorageOptions::parse(&raw(&doc! { "a": 1 })).unwrap_err().code().0, 17234);
    }

    #[test]
    fn stand_ins_are_named() {
        let said = |document: &Document| substitution(&raw(document));
        assert_eq!(said(&doc! { "compression": "zlib" }), None);
        assert_eq!(said(&doc! { "pageSize": 4096 }), None);
        assert!(said(&doc! { "compression": "quicklz" }).unwrap().contains("lz4"));
        assert!(said(&doc! { "compression": "lzma" }).unwrap().contains("zstd"));
        let snappy = "block_compressor=snappy";
        let wired = doc! { "storageEngine": { "wiredTiger": { "configString": snappy } } };
        assert!(said(&wired).unwrap().contains("'snappy'"));
    }
}
