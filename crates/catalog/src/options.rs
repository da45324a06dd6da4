//! What a collection is made with: storage shape and view definition.
//!
//! Always true: an option that cannot be honoured was refused when it was parsed; what is kept is
//! shown by `listCollections` as it was given.

use crate::validation::Validation;
use bson::raw::{CStr, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use engine::{Compression, DictionaryOptions};
use errors::{Code, Error, Result};

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

impl StorageOptions {
    /// Takes `key: value` if it is one of the storage options; says whether it was.
    pub fn take(&mut self, key: &str, value: RawBsonRef<'_>) -> Result<bool> {
        match key {
            "compression" => self.compression = Some(compression(value)?),
            "pageSize" => self.page_size = Some(size(key, value, 4 << 10, 64 << 20)?),
            "readPageSize" => self.read_page_size = Some(size(key, value, 4 << 10, 256 << 10)?),
            "fanout" => {
                let fanout =
                    whole_number(value).filter(|n| (4..=256).contains(n)).ok_or_else(|| {
                        Error::location(17288, "fanout must be a number from 4 to 256")
                    })?;
                self.fanout = Some(fanout as u16);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The engine's options; what was not asked for comes from `self`'s collection or the default.
    pub(crate) fn dictionary(&self, inherited: &Self, leaf_filter: bool) -> DictionaryOptions {
        let default = DictionaryOptions::default();
        let page_size = self.page_size.or(inherited.page_size).unwrap_or(default.page_size);
        let read_page_size =
            self.read_page_size.or(inherited.read_page_size).unwrap_or(default.read_page_size);
        DictionaryOptions {
            compression: self.compression.or(inherited.compression).unwrap_or_default(),
            page_size: page_size.max(read_page_size),
            read_page_size,
            fanout: self.fanout.or(inherited.fanout).unwrap_or(default.fanout),
            leaf_filter,
        }
    }
}

/// `quicklz` and `fastlz` are honoured as lz4, `lzma` as high zstd.
fn compression(value: RawBsonRef<'_>) -> Result<Compression> {
    match value.as_str() {
        Some("zstd") => Ok(Compression::ZstdDefault),
        Some("zlib") => Ok(Compression::Zlib(6)),
        Some("lz4" | "quicklz" | "fastlz") => Ok(Compression::Lz4),
        Some("lzma") => Ok(Compression::Zstd(19)),
        Some("none" | "uncompressed") => Ok(Compression::None),
        _ => Err(Error::location(
            16442,
            "compression must be one of \"zstd\", \"zlib\", \"lz4\", \"quicklz\", \"lzma\", \"none\"",
        )),
    }
}

/// A number of bytes, as a number or as a string like `"64k"`.
fn size(key: &str, value: RawBsonRef<'_>, min: i64, max: i64) -> Result<u32> {
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

/// A number of any BSON type, if it is whole.
pub(crate) fn whole_number(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(v) => Some(i64::from(v)),
        RawBsonRef::Int64(v) => Some(v),
        RawBsonRef::Double(v) if v.fract() == 0.0 && v.abs() < 9e15 => Some(v as i64),
        _ => None,
    }
}

/// Truth of a value as MongoDB reads options: false, 0, null and missing are false.
pub(crate) fn truth(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(v) => v,
        RawBsonRef::Null | RawBsonRef::Undefined => false,
        RawBsonRef::Double(v) => v != 0.0,
        RawBsonRef::Int32(v) => v != 0,
        RawBsonRef::Int64(v) => v != 0,
        _ => true,
    }
}

/// Accepts the simple collation, refuses the others until they are built.
pub fn check_collation(value: RawBsonRef<'_>) -> Result<()> {
    let document = value.as_document().ok_or_else(|| {
        Error::type_mismatch("BSON field 'collation' is the wrong type, expected type 'object'")
    })?;
    if document.is_empty()
        || matches!(document.get("locale"), Ok(Some(RawBsonRef::String("simple"))))
    {
        return Ok(());
    }
    if !matches!(document.get("locale"), Ok(Some(RawBsonRef::String(_)))) {
        return Err(Error::location(
            40414,
            "BSON field 'collation.locale' is missing but a required field",
        ));
    }
    Err(Error::new(
        Code::COMMAND_NOT_SUPPORTED,
        "collations other than simple are not supported yet",
    ))
}

/// A view: a pipeline over another collection.
#[derive(Clone, PartialEq, Debug)]
pub struct View {
    /// The collection or view below, in the same database.
    pub on: String,
    /// What is done with its documents.
    pub pipeline: RawArrayBuf,
}

/// What a collection is created with.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CollectionOptions {
    /// The storage shape.
    pub storage: StorageOptions,
    /// Set for a view.
    pub view: Option<View>,
    /// What is demanded of documents.
    pub validation: Validation,
    /// The options as given, for `listCollections`.
    pub shown: RawDocumentBuf,
}

impl CollectionOptions {
    /// Reads the options among the fields of a `create` command. Fields that are not options of
    /// a collection (`create`, `comment`, …) are left to the caller.
    pub fn parse(command: &RawDocument) -> Result<Self> {
        let mut options = Self::default();
        let mut view_on = None;
        let mut pipeline = None;
        for element in command {
            let (key, value) = element?;
            if options.storage.take(key.as_str(), value)? {
                options.shown.append(key, value);
                continue;
            }
            match key.as_str() {
                "viewOn" => view_on = Some(text(key, value)?.to_owned()),
                "pipeline" => {
                    let array = value.as_array().ok_or_else(|| wrong_type(key, "array"))?;
                    pipeline = Some(array.to_owned());
                }
                name if Validation::is_option(name) => {
                    options.validation.take("create", name, value)?;
                }
                name => refuse_unbuilt(name, value)?,
            }
        }
        options.view = match (view_on, pipeline) {
            (None, None) => None,
            (None, Some(_)) => {
                return Err(invalid("'pipeline' requires 'viewOn' to also be specified"));
            }
            (Some(on), pipeline) => Some(View { on, pipeline: pipeline.unwrap_or_default() }),
        };
        options.validation.show(&mut options.shown);
        if let Some(view) = &options.view {
            if !options.validation.is_empty() {
                return Err(invalid("a view cannot have a validator"));
            }
            options.shown.append(bson::raw::cstr!("viewOn"), view.on.as_str());
            options.shown.append(bson::raw::cstr!("pipeline"), view.pipeline.clone());
        }
        Ok(options)
    }

    /// The same options with others of validation, as `collMod` gives them.
    pub(crate) fn with_validation(&self, change: &RawDocument) -> Result<Self> {
        let mut options = self.clone();
        for element in change {
            let (name, value) = element?;
            options.validation.take("collMod", name.as_str(), value)?;
        }
        options.shown = RawDocumentBuf::new();
        for element in &self.shown {
            let (name, value) = element?;
            if !Validation::is_option(name.as_str()) {
                options.shown.append(name, value);
            }
        }
        options.validation.show(&mut options.shown);
        Ok(options)
    }
}

/// Options MongoDB has and this server has not built yet are refused, never dropped silently.
fn refuse_unbuilt(name: &str, value: RawBsonRef<'_>) -> Result<()> {
    match name {
        "capped" if truth(value) => Err(unbuilt("capped collections are")),
        "size" | "max" if whole_number(value).is_some_and(|n| n > 0) => Err(invalid(
            "the 'capped' field needs to be true when either the 'size' or 'max' fields are present",
        )),
        "timeseries" => Err(unbuilt("time-series collections are")),
        "clusteredIndex" if value.as_document().is_some() || truth(value) => {
            Err(unbuilt("the option 'clusteredIndex' is"))
        }
        "primaryKey" => Err(unbuilt("the option 'primaryKey' is")),
        "partitioned" if truth(value) => Err(unbuilt("partitioned collections are")),
        "expireAfterSeconds" => Err(invalid(
            "'expireAfterSeconds' is only supported on time-series collections or when the \
             'clusteredIndex' option is specified",
        )),
        "encryptedFields" => Err(unbuilt("encrypted collections are")),
        "changeStreamPreAndPostImages"
            if value
                .as_document()
                .is_some_and(|d| matches!(d.get("enabled"), Ok(Some(v)) if truth(v))) =>
        {
            Err(unbuilt("change stream pre- and post-images are"))
        }
        "collation" => check_collation(value),
        _ => Ok(()),
    }
}

fn text<'a>(key: &CStr, value: RawBsonRef<'a>) -> Result<&'a str> {
    value.as_str().ok_or_else(|| wrong_type(key, "string"))
}

fn wrong_type(key: &CStr, expected: &str) -> Error {
    Error::type_mismatch(format!(
        "BSON field 'create.{}' is the wrong type, expected type '{expected}'",
        key.as_str()
    ))
}

fn invalid(message: &str) -> Error {
    Error::new(Code::INVALID_OPTIONS, message)
}

fn unbuilt(what: &str) -> Error {
    Error::new(Code::INVALID_OPTIONS, format!("{what} not supported yet"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Document, doc};

    fn parse(command: &Document) -> Result<CollectionOptions> {
        CollectionOptions::parse(&RawDocumentBuf::try_from(command).unwrap())
    }

    #[test]
    fn storage_options_are_read_as_numbers_and_strings() {
        let options = parse(&doc! {
            "create": "c", "compression": "quicklz", "pageSize": "4MB", "readPageSize": 65536.0,
            "fanout": 16,
        })
        .unwrap();
        assert_eq!(options.storage.compression, Some(Compression::Lz4));
        assert_eq!(options.storage.page_size, Some(4 << 20));
        assert_eq!(options.storage.read_page_size, Some(64 << 10));
        assert_eq!(options.storage.fanout, Some(16));
        assert_eq!(options.shown.iter().count(), 4);
    }

    #[test]
    fn changed_validation_reads_back_as_it_is_shown() {
        let options = parse(&doc! { "compression": "lz4", "validator": { "a": 1 } }).unwrap();
        let change = doc! { "validator": { "b": { "$gt": 1 } }, "validationLevel": "moderate" };
        let changed = options.with_validation(&RawDocumentBuf::try_from(&change).unwrap()).unwrap();
        assert_ne!(changed, options);
        assert_eq!(CollectionOptions::parse(&changed.shown).unwrap(), changed);
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        for (command, code) in [
            (doc! { "compression": "best" }, 16442),
            (doc! { "fanout": 2 }, 17288),
            (doc! { "capped": true, "size": 100 }, 72),
            (doc! { "validator": { "a": { "$foo": 1 } } }, 2),
            (doc! { "validator": { "a": 1 }, "viewOn": "b" }, 72),
            (doc! { "validationLevel": "loose" }, 2),
            (doc! { "collation": { "locale": "de" } }, 115),
            (doc! { "pipeline": [] }, 72),
        ] {
            assert_eq!(parse(&command).unwrap_err().code().0, code, "{command}");
        }
        assert!(parse(&doc! { "capped": false, "collation": { "locale": "simple" } }).is_ok());
    }
}
