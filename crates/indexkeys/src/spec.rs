//! The specification of an index, checked by MongoDB's rules.
//!
//! Always true: a [`IndexSpec`] that exists can be honoured; what cannot was refused with
//! `CannotCreateIndex`.

mod geo;

use super::text::{self, TextIndex};
use super::wildcard::{Wildcard, is_wildcard};
use crate::values::{truth, whole_number};
use crate::{STORAGE_OPTIONS, StorageOptions};
use ::geo::Grid;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bsonval::path::is_reserved_name;
use bsonval::show::document as document_text;
use errors::{Code, Error, Result};
use keystring::Collation;
use matcher::{Filter, ParseContext};

/// The most fields a compound index may have.
const MAX_PARTS: usize = 32;
/// The largest `expireAfterSeconds`.
const MAX_EXPIRE_SECONDS: i64 = i32::MAX as i64;

/// One field of an index key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyPart {
    /// The dotted path.
    pub path: String,
    /// Whether larger values come first.
    pub descending: bool,
    /// What the key holds in the place of the value.
    pub kind: PartKind,
}

/// What a part of an index key holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartKind {
    /// The value itself.
    Value,
    /// The value's hash.
    Hashed,
    /// The path and value of everything below, see [`Wildcard`].
    Wildcard,
    /// A term of the document's texts, or in the part after it the score of that term.
    Text,
    /// Cells of the sphere that cover the geometry: `2dsphere`.
    Sphere,
    /// The place of a point on the grid: `2d`.
    Flat,
}

impl PartKind {
    /// Whether it holds values as they are, be it under their paths.
    fn is_plain(self) -> bool {
        matches!(self, Self::Value | Self::Wildcard)
    }

    /// Whether it is made of geometry.
    pub fn is_geo(self) -> bool {
        matches!(self, Self::Sphere | Self::Flat)
    }
}

/// What an index is.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent options, not states")]
pub struct IndexSpec {
    /// Its name, unique in the collection.
    pub name: String,
    /// Its fields in order.
    pub parts: Vec<KeyPart>,
    /// The key pattern as given.
    pub key: RawDocumentBuf,
    /// No two documents may share a key.
    pub unique: bool,
    /// No document may come to share a key with another; those that do already may stay.
    pub prepare_unique: bool,
    /// Each entry holds its whole document.
    pub clustering: bool,
    /// Documents with none of the fields are left out.
    pub sparse: bool,
    /// Maintained, but not offered to the planner.
    pub hidden: bool,
    /// The part that stands for everything below a path.
    pub wildcard: Option<Wildcard>,
    /// `partialFilterExpression`: only matching documents are indexed.
    /// Boxed, as most indexes have none.
    pub partial: Option<Box<PartialFilter>>,
    /// `expireAfterSeconds`.
    pub expire_after_seconds: Option<i64>,
    /// Of a text index: what it is over.
    pub text: Option<TextIndex>,
    /// The collation; `None` compares bytes.
    pub collation: Option<Collation>,
    /// The client did not say, so the collection's will be taken.
    pub inherits_collation: bool,
    /// The grid of a `2d` part.
    pub grid: Grid,
    /// The storage shape.
    pub storage: StorageOptions,
    /// The specification as shown by `listIndexes`: `v`, `key`, `name`, then the options.
    pub shown: RawDocumentBuf,
}

/// A filter that says which documents an index holds.
#[derive(Clone, Debug)]
pub struct PartialFilter {
    /// As given.
    pub document: RawDocumentBuf,
    /// Parsed.
    pub filter: Filter,
}

/// What `collMod` may change about an index.
#[derive(Clone, Copy, Debug, Default)]
pub struct IndexChange {
    /// Hide it from the planner, or show it again.
    pub hidden: Option<bool>,
    /// A new `expireAfterSeconds`.
    pub expire_after_seconds: Option<i64>,
    /// Refuse keys that another document has, or take them again.
    pub prepare_unique: Option<bool>,
    /// The dictionary now holds the entries of a unique index.
    pub unique: bool,
}

impl IndexSpec {
    /// Reads one element of `createIndexes.indexes`.
    pub fn parse(spec: &RawDocument) -> Result<Self> {
        let key = match spec.get("key")? {
            Some(RawBsonRef::Document(key)) => key,
            Some(other) => {
                return Err(Error::type_mismatch(format!(
                    "The field 'key' must be an object, but got {:?}",
                    other.element_type()
                )));
            }
            None => {
                return Err(Error::failed_to_parse(
                    "The 'key' field is a required property of an index specification",
                ));
            }
        };
        let texts = text::parse(key, spec)?;
        let parts = match &texts {
            Some(texts) => check_parts(texts.parts.clone(), key)?,
            None => parse_parts(key)?,
        };
        let name = match spec.get("name")? {
            Some(RawBsonRef::String(name)) => check_name(name, key)?,
            Some(_) => {
                return Err(Error::type_mismatch("The field 'name' must be a string"));
            }
            None => {
                return Err(Error::failed_to_parse(
                    "The 'name' field is a required property of an index specification",
                ));
            }
        };
        let mut index = Self {
            name: name.to_owned(),
            parts,
            key: texts.as_ref().map_or_else(|| key.to_owned(), |texts| texts.key.clone()),
            unique: false,
            prepare_unique: false,
            clustering: false,
            sparse: false,
            hidden: false,
            wildcard: None,
            partial: None,
            expire_after_seconds: None,
            text: texts.as_ref().map(|texts| texts.index.clone()),
            collation: None,
            inherits_collation: true,
            grid: Grid::default(),
            storage: StorageOptions::default(),
            shown: RawDocumentBuf::new(),
        };
        index.shown.append(cstr!("v"), 2);
        index.shown.append(cstr!("key"), &index.key);
        index.shown.append(cstr!("name"), name);
        for element in spec {
            let (option, value) = element?;
            index.take_option(option.as_str(), value, spec)?;
        }
        // The client need not say so, and is not shown it.
        index.unique |= index.is_id();
        index.take_wildcard(spec.get("wildcardProjection")?)?;
        for element in texts.iter().flat_map(|texts| texts.options.iter()) {
            let (option, value) = element?;
            index.shown.append(option, value);
        }
        index.show_sphere_version()?;
        // A copy has no room for more, and indexes are many.
        index.shown = (*index.shown).to_owned();
        index.check_combinations(spec)?;
        index.parse_partial()?;
        Ok(index)
    }

    /// Reads the partial filter under the index's collation, once that is known.
    fn parse_partial(&mut self) -> Result<()> {
        if let (Some(partial), Some(collation)) = (&mut self.partial, &self.collation) {
            let ctx = ParseContext::under(Some(collation.clone()));
            partial.filter = Filter::parse(&partial.document, &ctx)?;
        }
        Ok(())
    }

    /// The index in a collection that has a collation of its own: where the client said nothing it
    /// is the collection's. The one on `_id` has no other.
    pub fn in_collection(&self, default: Option<&Collation>) -> Result<Self> {
        let mut index = self.clone();
        if self.is_id() && !self.inherits_collation && self.collation.as_ref() != default {
            let shown = |collation: Option<&Collation>| {
                collation.map_or_else(
                    || "{ locale: \"simple\" }".to_owned(),
                    |collation| document_text(&bsonval::collation::to_document(collation)),
                )
            };
            return Err(Error::bad_value(format!(
                "The _id index must have the same collation as the collection. Index collation: \
                 {}, collection collation: {}",
                shown(self.collation.as_ref()),
                shown(default)
            )));
        }
        if std::mem::take(&mut index.inherits_collation)
            && let Some(collation) = default
        {
            index.collation = Some(collation.clone());
            if index.is_text() {
                text::check(&index)?;
            }
            index.shown.append(cstr!("collation"), bsonval::collation::to_document(collation));
            index.parse_partial()?;
        }
        Ok(index)
    }

    fn take_option(&mut self, name: &str, value: RawBsonRef<'_>, spec: &RawDocument) -> Result<()> {
        let option: &bson::raw::CStr = name.try_into()?;
        if self.is_id() {
            // TokuMX tells these of it; whether they are those of the collection is looked at where it is known.
            if name == "clustering" {
                self.clustering = truth(value);
                return Ok(());
            }
            if STORAGE_OPTIONS.contains(&name) && self.storage.take(name, value)? {
                return Ok(());
            }
            if !matches!(name, "key" | "name" | "v" | "ns" | "collation" | "unique" | "background")
            {
                return Err(not_valid(name, "an _id index specification", spec));
            }
        }
        match name {
            "clustering" => {
                self.clustering = truth(value);
                if self.clustering {
                    self.shown.append(option, true);
                }
            }
            "key" | "name" | "ns" | "dropDups" => {}
            // Every build lets readers on; the option is shown again and changes nothing.
            "background" | "wildcardProjection" => self.shown.append(option, value),
            "v" => check_version(value)?,
            "unique" | "prepareUnique" | "sparse" | "hidden" => {
                if !matches!(
                    value,
                    RawBsonRef::Boolean(_)
                        | RawBsonRef::Int32(_)
                        | RawBsonRef::Int64(_)
                        | RawBsonRef::Double(_)
                ) {
                    return Err(Error::type_mismatch(format!(
                        "The field '{name}' has value {}, which is not convertible to bool",
                        bsonval::show::value(value)
                    )));
                }
                let set = truth(value);
                match name {
                    "unique" => self.unique = set,
                    "prepareUnique" => self.prepare_unique = set,
                    "sparse" => self.sparse = set,
                    _ => self.hidden = set,
                }
                match name {
                    _ if self.is_id() => {}
                    // Shown as it was given; the others only where they are set.
                    "sparse" => self.shown.append(option, value),
                    _ if set => self.shown.append(option, true),
                    _ => {}
                }
            }
            "expireAfterSeconds" => {
                self.expire_after_seconds = Some(expire_seconds(value)?);
                self.shown.append(option, value);
            }
            "partialFilterExpression" => {
                self.partial = Some(Box::new(partial_filter(value)?));
                self.shown.append(option, value);
            }
            "collation" => {
                let document = value.as_document().ok_or_else(|| {
                    Error::type_mismatch("The field 'collation' must be an object")
                })?;
                if document.is_empty() {
                    return Err(Error::bad_value(
                        "The field 'collation' cannot be an empty object.",
                    ));
                }
                self.collation = bsonval::collation::parse(document)?;
                self.inherits_collation = false;
                if let Some(collation) = &self.collation {
                    self.shown.append(option, bsonval::collation::to_document(collation));
                }
            }
            // Read with the key pattern, shown at the end.
            name if self.text.is_some() && text::OPTIONS.contains(&name) => {}
            "weights"
            | "default_language"
            | "language_override"
            | "textIndexVersion"
            | "bucketSize"
            | "columnstoreProjection"
            | "clustered" => {
                return Err(cannot(&format!("the index option '{name}' is not supported yet")));
            }
            "2dsphereIndexVersion" | "bits" | "min" | "max" => {
                self.take_geo_option(name, value)?;
                self.shown.append(option, value);
            }
            _ if self.storage.take(name, value)? => self.shown.append(option, value),
            _ => return Err(not_valid(name, "an index specification", spec)),
        }
        Ok(())
    }

    /// Reads the wildcard part, where there is one, with its projection.
    fn take_wildcard(&mut self, projection: Option<RawBsonRef<'_>>) -> Result<()> {
        let mut found = self.parts.iter().enumerate().filter(|(_, p)| p.kind == PartKind::Wildcard);
        let Some((at, part)) = found.next() else {
            return match projection {
                None => Ok(()),
                Some(_) => Err(Error::bad_value(
                    "The field 'wildcardProjection' is only allowed in an 'wildcard' index",
                )),
            };
        };
        if found.next().is_some() {
            return Err(cannot("wildcard indexes do not allow more than one wildcard field"));
        }
        let no = |option: &str| {
            Err(cannot(&format!("Index type 'wildcard' does not support the {option} option")))
        };
        match self {
            _ if self.parts.len() == MAX_PARTS => return Err(too_many_parts()),
            _ if self.unique || self.prepare_unique => return no("unique"),
            _ if self.sparse => return no("sparse"),
            _ if self.expire_after_seconds.is_some() => return no("expireAfterSeconds"),
            _ if self.parts.iter().any(|p| !p.kind.is_plain()) => {
                return Err(cannot("wildcard indexes allow only ordinary fields beside them"));
            }
            _ => {}
        }
        let wildcard = Wildcard::parse(at, &part.path, projection)?;
        let others = self.parts.iter().filter(|p| p.kind != PartKind::Wildcard);
        wildcard.check_beside(others.map(|p| p.path.as_str()))?;
        self.wildcard = Some(wildcard);
        Ok(())
    }

    fn check_combinations(&self, spec: &RawDocument) -> Result<()> {
        if self.sparse && self.partial.is_some() {
            return Err(cannot("cannot mix \"partialFilterExpression\" and \"sparse\" options"));
        }
        if self.unique && self.is_hashed() {
            return Err(Error::location(
                16764,
                "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.",
            ));
        }
        if self.is_text() {
            text::check(self)?;
        }
        self.check_grid()?;
        if self.expire_after_seconds.is_some() && self.parts.len() > 1 {
            return Err(cannot(&format!(
                "TTL indexes are single-field indexes, compound indexes do not support TTL. Index \
                 spec: {}",
                document_text(spec)
            )));
        }
        Ok(())
    }

    /// The same index with another storage shape, as `reIndex` gives it.
    pub fn with_storage(&self, change: &RawDocument) -> Result<Self> {
        Self::parse(&crate::reshaped(&self.shown, change)?)
    }

    /// The same index with options changed by `collMod`.
    pub fn with_change(&self, change: IndexChange) -> Result<Self> {
        let mut shown = RawDocumentBuf::new();
        let replaced = |name: &str| {
            name == "hidden" && change.hidden.is_some()
                || name == "prepareUnique" && (change.prepare_unique.is_some() || change.unique)
                || name == "expireAfterSeconds" && change.expire_after_seconds.is_some()
        };
        for element in &self.shown {
            let (name, value) = element?;
            if !replaced(name.as_str()) {
                shown.append(name, value);
            }
        }
        if let Some(seconds) = change.expire_after_seconds {
            let seconds = expire_seconds(RawBsonRef::Int64(seconds))?;
            match i32::try_from(seconds) {
                Ok(small) => shown.append(cstr!("expireAfterSeconds"), small),
                Err(_) => shown.append(cstr!("expireAfterSeconds"), seconds),
            }
        }
        if change.hidden == Some(true) {
            shown.append(cstr!("hidden"), true);
        }
        if change.unique {
            shown.append(cstr!("unique"), true);
        } else if change.prepare_unique == Some(true) {
            shown.append(cstr!("prepareUnique"), true);
        }
        Self::parse(&shown)
    }

    /// Whether the server made it for itself: no client sees or drops it, and the same index may be
    /// asked for beside it.
    pub fn is_internal(&self) -> bool {
        self.name == INTERNAL_TIME_INDEX
    }

    /// Whether this describes the index every collection has on `_id`.
    pub fn is_id(&self) -> bool {
        matches!(&self.parts[..], [part] if part.path == "_id" && part.kind == PartKind::Value)
    }

    /// Whether a new entry is refused where another document has one with the same values, though
    /// the index may hold such.
    pub fn guards_keys(&self) -> bool {
        self.prepare_unique && !self.unique
    }

    /// Whether one of its parts is hashed.
    pub fn is_hashed(&self) -> bool {
        self.parts.iter().any(|part| part.kind == PartKind::Hashed)
    }

    /// Whether it is over strings.
    pub fn is_text(&self) -> bool {
        self.text.is_some()
    }

    /// Whether two specifications index the same things under the same rules, name aside.
    pub fn same_signature(&self, other: &Self) -> bool {
        let partial = |spec: &Self| spec.partial.as_ref().map(|p| p.document.as_bytes().to_vec());
        self.parts == other.parts
            && self.unique == other.unique
            && self.sparse == other.sparse
            && self.collation == other.collation
            && self.wildcard == other.wildcard
            && partial(self) == partial(other)
    }

    /// Whether the options beside the signature agree too.
    pub fn same_options(&self, other: &Self) -> bool {
        self.expire_after_seconds == other.expire_after_seconds
            && self.clustering == other.clustering
            && self.grid == other.grid
            && self.storage == other.storage
            && self.text == other.text
    }
}

/// The index on the time field that every collection of measurements has. MongoDB finds measurements
/// by time through their buckets, without an index that a client could see.
pub const INTERNAL_TIME_INDEX: &str = "_fern_time_";

/// Whether two key patterns name the same fields in the same order and directions.
pub fn same_pattern(a: &RawDocument, b: &RawDocument) -> bool {
    keystring::compare_documents(a, b).is_eq()
}

/// `a_1_b_-1`, the name clients give when the user gives none.
pub fn default_index_name(key: &RawDocument) -> String {
    let mut parts = Vec::new();
    for (path, value) in key.iter().flatten() {
        let direction = match value {
            RawBsonRef::String(plugin) => plugin.to_owned(),
            other => whole_number(other).map_or_else(String::new, |n| n.to_string()),
        };
        parts.push(format!("{}_{direction}", path.as_str()));
    }
    parts.join("_")
}

/// The parts of a key pattern without texts.
pub(super) fn parse_parts(key: &RawDocument) -> Result<Vec<KeyPart>> {
    check_parts(parse_key(key)?, key)
}

fn parse_key(key: &RawDocument) -> Result<Vec<KeyPart>> {
    let mut parts: Vec<KeyPart> = Vec::new();
    for element in key {
        let (path, value) = element?;
        let path = path.as_str();
        let (kind, descending) = match value {
            RawBsonRef::String("hashed") if is_wildcard(path) => {
                return Err(cannot("wildcard indexes do not allow hashed fields"));
            }
            RawBsonRef::String(plugin) if is_wildcard(path) => {
                return Err(cannot(&format!(
                    "Cannot use an index plugin '{plugin}' with a wildcard index"
                )));
            }
            RawBsonRef::String("hashed") => (PartKind::Hashed, false),
            RawBsonRef::String("2dsphere") => (PartKind::Sphere, false),
            RawBsonRef::String("2d") => (PartKind::Flat, false),
            value if is_wildcard(path) => (PartKind::Wildcard, direction(value)?),
            value => (PartKind::Value, direction(value)?),
        };
        check_path(path)?;
        if parts.iter().any(|part| part.path == path) {
            return Err(Error::bad_value(format!(
                "The field '{path}' appears multiple times in the index key pattern {}",
                document_text(key)
            )));
        }
        parts.push(KeyPart { path: path.to_owned(), descending, kind });
    }
    geo::check_parts(&parts)?;
    // Indexes are many, and most have one part.
    parts.shrink_to_fit();
    Ok(parts)
}

/// What holds of every key pattern, whatever its parts are.
fn check_parts(parts: Vec<KeyPart>, key: &RawDocument) -> Result<Vec<KeyPart>> {
    let hashed = parts.iter().filter(|part| part.kind == PartKind::Hashed).count();
    if hashed > 1 {
        return Err(Error::location(
            31303,
            format!(
                "A maximum of one index field is allowed to be hashed but found {hashed} for \
                 'key' {}",
                document_text(key)
            ),
        ));
    }
    if parts.is_empty() {
        return Err(cannot("Index keys cannot be an empty object"));
    }
    if parts.len() > MAX_PARTS {
        return Err(too_many_parts());
    }
    Ok(parts)
}

fn too_many_parts() -> Error {
    Error::location(13103, "too many compound keys")
}

pub(super) fn direction(value: RawBsonRef<'_>) -> Result<bool> {
    let number = match value {
        RawBsonRef::Int32(v) => f64::from(v),
        RawBsonRef::Int64(v) => v as f64,
        RawBsonRef::Double(v) => v,
        RawBsonRef::String(plugin @ ("geoHaystack" | "wildcard")) => {
            return Err(cannot(&format!("indexes of type '{plugin}' are not supported yet")));
        }
        RawBsonRef::String(plugin) => {
            return Err(cannot(&format!("Unknown index plugin '{plugin}'")));
        }
        other => {
            return Err(cannot(&format!(
                "Values in v:2 index key pattern cannot be of type {}. Only numbers > 0, numbers \
                 < 0, and strings are allowed.",
                type_name(other)
            )));
        }
    };
    if number.is_nan() {
        return Err(cannot("Values in the index key pattern cannot be NaN."));
    }
    if number == 0.0 {
        return Err(cannot("Values in the index key pattern cannot be 0."));
    }
    Ok(number < 0.0)
}

fn type_name(value: RawBsonRef<'_>) -> &'static str {
    match value {
        RawBsonRef::Boolean(_) => "bool",
        RawBsonRef::Document(_) => "object",
        RawBsonRef::Array(_) => "array",
        RawBsonRef::Null => "null",
        RawBsonRef::Undefined => "undefined",
        RawBsonRef::ObjectId(_) => "objectId",
        RawBsonRef::DateTime(_) => "date",
        RawBsonRef::Timestamp(_) => "timestamp",
        RawBsonRef::Binary(_) => "binData",
        RawBsonRef::RegularExpression(_) => "regex",
        RawBsonRef::Decimal128(_) => "decimal",
        RawBsonRef::MinKey => "minKey",
        RawBsonRef::MaxKey => "maxKey",
        RawBsonRef::String(_) => "string",
        RawBsonRef::Double(_) => "double",
        RawBsonRef::Symbol(_) => "symbol",
        RawBsonRef::DbPointer(_) => "dbPointer",
        RawBsonRef::JavaScriptCodeWithScope(_) => "javascriptWithScope",
        _ => "javascript",
    }
}

pub(super) fn check_path(path: &str) -> Result<()> {
    if path.is_empty() {
        return Err(cannot("Index keys cannot be an empty field."));
    }
    let components: Vec<&str> = path.split('.').collect();
    if components.iter().any(|part| part.is_empty()) {
        return Err(cannot("Index keys cannot contain an empty field."));
    }
    // `a.$id`, `a.$ref` and `a.$db` are the fields of a DBRef.
    let known = |(at, part): (usize, &&str)| {
        at > 0 && !is_reserved_name(part) || *part == "$**" && at + 1 == components.len()
    };
    if components.iter().enumerate().any(|(at, part)| part.starts_with('$') && !known((at, part))) {
        return Err(cannot(
            "Index key contains an illegal field name: field name starts with '$'.",
        ));
    }
    Ok(())
}

fn check_name<'a>(name: &'a str, key: &RawDocument) -> Result<&'a str> {
    let id_key = key.iter().flatten().count() == 1
        && matches!(key.get("_id"), Ok(Some(value)) if value.as_str().is_none());
    if name.is_empty() {
        return Err(cannot("index name cannot be empty"));
    }
    if name.contains('\0') {
        return Err(cannot("index names cannot contain NUL"));
    }
    if name == "*" {
        return Err(Error::bad_value("The index name '*' is not valid."));
    }
    if name == "_id_" && !id_key {
        return Err(Error::bad_value(format!(
            "The index name '_id_' is reserved for the _id index, which must have key pattern \
             {{_id: 1}}, found key: {}",
            document_text(key)
        )));
    }
    Ok(if id_key { "_id_" } else { name })
}

/// Refuses versions of indexes that this server does not write.
pub(crate) fn check_version(value: RawBsonRef<'_>) -> Result<()> {
    match whole_number(value) {
        Some(1 | 2) => Ok(()),
        Some(v) => {
            Err(cannot(&format!("Invalid index specification: cannot create an index with v={v}")))
        }
        None => Err(Error::type_mismatch("The field 'v' must be a number")),
    }
}

fn expire_seconds(value: RawBsonRef<'_>) -> Result<i64> {
    let seconds = match value {
        RawBsonRef::Double(v) if v.is_finite() => Some(v as i64),
        other => whole_number(other),
    };
    match seconds {
        Some(n) if (0..=MAX_EXPIRE_SECONDS).contains(&n) => Ok(n),
        Some(n) if n < 0 => {
            Err(cannot("TTL index 'expireAfterSeconds' option cannot be less than 0"))
        }
        Some(_) => Err(cannot(&format!(
            "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a \
             different number than {}",
            bsonval::show::value(value)
        ))),
        None => Err(cannot(&format!(
            "TTL index 'expireAfterSeconds' option must be numeric, but received a type of {}",
            type_name(value)
        ))),
    }
}

fn partial_filter(value: RawBsonRef<'_>) -> Result<PartialFilter> {
    let document = value.as_document().ok_or_else(|| {
        Error::type_mismatch("The field 'partialFilterExpression' must be an object")
    })?;
    let filter = Filter::parse(document, &ParseContext::default())?;
    check_partial(document, 0)?;
    Ok(PartialFilter { document: document.to_owned(), filter })
}

/// The operators a partial index may use: those the planner can reason about.
fn check_partial(document: &RawDocument, depth: usize) -> Result<()> {
    const ALLOWED: [&str; 10] =
        ["$eq", "$gt", "$gte", "$lt", "$lte", "$exists", "$type", "$and", "$or", "$in"];
    let refused = || cannot("Expression not supported in partial index");
    if depth > 20 {
        return Err(refused());
    }
    for element in document {
        let (key, value) = element?;
        if key.as_str().starts_with('$') && !ALLOWED.contains(&key.as_str()) {
            return Err(refused());
        }
        match (key.as_str(), value) {
            ("$and" | "$or", RawBsonRef::Array(branches)) => {
                for branch in branches {
                    let branch = branch?;
                    check_partial(branch.as_document().ok_or_else(refused)?, depth + 1)?;
                }
            }
            ("$exists", value) if !truth(value) => return Err(refused()),
            (path, RawBsonRef::Document(inner))
                if !path.starts_with('$')
                    && inner
                        .iter()
                        .flatten()
                        .next()
                        .is_some_and(|(k, _)| k.as_str().starts_with('$')) =>
            {
                check_partial(inner, depth + 1)?;
            }
            (_, RawBsonRef::RegularExpression(_)) => return Err(refused()),
            _ => {}
        }
    }
    Ok(())
}

/// The specification without what no index takes, for clients that ask to have that ignored.
pub fn known_options(spec: &RawDocument) -> Result<RawDocumentBuf> {
    const KNOWN: [&str; 27] = [
        "key",
        "name",
        "v",
        "ns",
        "unique",
        "prepareUnique",
        "sparse",
        "hidden",
        "background",
        "dropDups",
        "expireAfterSeconds",
        "partialFilterExpression",
        "collation",
        "wildcardProjection",
        "storageEngine",
        "clustering",
        "weights",
        "default_language",
        "language_override",
        "textIndexVersion",
        "2dsphereIndexVersion",
        "bits",
        "min",
        "max",
        "bucketSize",
        "columnstoreProjection",
        "clustered",
    ];
    let mut known = RawDocumentBuf::new();
    for element in spec {
        let (name, value) = element?;
        let option = name.as_str();
        if KNOWN.contains(&option) || STORAGE_OPTIONS.contains(&option) {
            known.append(name, value);
        }
    }
    Ok(known)
}

fn not_valid(name: &str, what: &str, spec: &RawDocument) -> Error {
    Error::new(
        Code::INVALID_INDEX_SPECIFICATION_OPTION,
        format!(
            "The field '{name}' is not valid for {what}. Specification: {}",
            document_text(spec)
        ),
    )
}

fn cannot(message: &str) -> Error {
    Error::new(Code::CANNOT_CREATE_INDEX, message)
}
