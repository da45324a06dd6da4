//! What a collection is made with: storage shape and view definition.
//!
//! Always true: an option that cannot be honoured was refused when it was parsed; what is kept is
//! shown by `listCollections` as it was given.

mod clustered;
mod encrypted;
mod id_index;
mod partitioning;
mod time_series;

pub use clustered::Clustered;
pub use partitioning::PartitionEvery;
pub use time_series::TimeSeries;

use crate::metadata::cap::Cap;
use crate::metadata::validation::Validation;
use bson::raw::{CStr, RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::types::{option_bool, option_integer};
use errors::{Code, Error, Result};
use indexkeys::values::truth;
use indexkeys::{PrimaryKey, STORAGE_OPTIONS, StorageOptions};
use keystring::Collation;
use std::sync::Arc;

/// The largest pipeline of a view: as much as a document may hold.
const MAX_VIEW_BYTES: usize = 16 << 20;

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
    /// The storage shape, of the documents and of indexes that have none of their own.
    pub storage: StorageOptions,
    /// `indexOptionDefaults`: the shape of indexes that have none of their own, before `storage`.
    pub index_storage: StorageOptions,
    /// Set for a view.
    pub view: Option<View>,
    /// How much it may hold, where that is limited.
    pub capped: Option<Cap>,
    /// The fields that documents are clustered by, where `_id` is not the only one.
    pub primary_key: Option<Arc<PrimaryKey>>,
    /// Whether documents stand in partitions, ranges of the primary key.
    pub partitioned: bool,
    /// When the server ends the last partition, if it does.
    pub partition_every: Option<PartitionEvery>,
    /// Set where the order of `_id` was asked for by name.
    pub clustered: Option<Clustered>,
    /// Set for a collection of measurements.
    pub time_series: Option<TimeSeries>,
    /// How long documents live: by the time field of measurements, by the ends of partitions, else by `_id`.
    pub expire_after_seconds: Option<i64>,
    /// What is demanded of documents.
    pub validation: Validation,
    /// `changeStreamPreAndPostImages`: change streams can tell documents before and after a change.
    pub images: bool,
    /// The collation, where an operation or an index does not say; `None` compares
    /// bytes.
    pub collation: Option<Collation>,
    /// The options as given, for `listCollections`.
    pub shown: RawDocumentBuf,
}

impl CollectionOptions {
    /// Reads the options among the fields of a `create` command. Fields that are not options of
    /// a collection (`create`, `comment`, …) are left to the caller.
    pub fn parse(command: &RawDocument) -> Result<Self> {
        let mut options = Self::default();
        let mut given = Given::default();
        for element in command {
            let (key, value) = element?;
            let null = matches!(value, RawBsonRef::Null | RawBsonRef::Undefined);
            // It may be of several types, of which null is none.
            if !null || key.as_str() == "clusteredIndex" {
                options.take(key, value, &mut given)?;
            }
        }
        options.settle(&given)?;
        Ok(options)
    }

    /// Takes an option; those that are weighed against others stay in `given`.
    fn take<'a>(&mut self, key: &CStr, value: RawBsonRef<'a>, given: &mut Given<'a>) -> Result<()> {
        if self.storage.take(key.as_str(), value)? {
            if !is_empty(value) {
                self.shown.append(key, value);
            }
            return Ok(());
        }
        match key.as_str() {
            "indexOptionDefaults" => {
                self.index_storage = index_defaults(value)?;
                if !is_empty(value) {
                    self.shown.append(key, value);
                }
            }
            "capped" => given.capped = option_bool(value).unwrap_or(false),
            "size" => given.size = option_integer(value),
            "max" => given.max = option_integer(value),
            "idIndex" => given.id_index = Some(document(key, value)?),
            "collation" => self.collation = bsonval::collation::parse(document(key, value)?)?,
            "viewOn" => given.view_on = Some(text(key, value)?),
            "pipeline" => {
                given.pipeline = Some(value.as_array().ok_or_else(|| wrong_type(key, "array"))?);
            }
            "clusteredIndex" => {
                given.clustered = true;
                self.clustered = Clustered::parse(key, value)?;
            }
            "primaryKey" => {
                let pattern = document(key, value)?;
                given.primary_key = true;
                self.primary_key = PrimaryKey::parse(pattern)?.map(Arc::new);
                self.shown.append(key, value);
            }
            "partitioned" => self.partitioned = truth(value),
            "partitionEvery" => self.partition_every = Some(PartitionEvery::parse(value)?),
            "timeseries" => self.time_series = Some(TimeSeries::parse(value)?),
            "expireAfterSeconds" => {
                self.expire_after_seconds = Some(clustered::seconds(value)?);
            }
            "changeStreamPreAndPostImages" => given.images = Some(images("create", value)?),
            "encryptedFields" => given.encrypted = Some(value),
            name if Validation::is_option(name) => {
                self.validation.take("create", name, value)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Weighs the options against each other, and shows what is left.
    fn settle(&mut self, given: &Given<'_>) -> Result<()> {
        self.check_layout(given)?;
        self.capped = match (given.capped, given.size) {
            (true, Some(size)) => Some(Cap::new(size, given.max)?),
            (true, None) => {
                return Err(invalid("the 'size' field is required when 'capped' is true"));
            }
            (false, _) if given.size.or(given.max).is_some() => {
                return Err(invalid(
                    "the 'capped' field needs to be true when either the 'size' or 'max' fields \
                     are present",
                ));
            }
            (false, _) => None,
        };
        if let Some(value) = given.encrypted {
            let view_or_series = given.view_on.is_some() || self.time_series.is_some();
            let beside = encrypted::Beside { capped: self.capped.is_some(), view_or_series };
            encrypted::refuse(value, &beside)?;
        }
        if let Some(document) = given.id_index {
            let is_clustering = self.primary_key.is_none();
            id_index::parse(document, is_clustering)?.in_collection(self.collation.as_ref())?;
            self.take_shape_of_id(document)?;
        }
        self.validation.settle(self.collation.as_ref())?;
        match (given.view_on, given.pipeline) {
            (None, None) => {}
            (None, Some(_)) => {
                return Err(invalid("'pipeline' requires 'viewOn' to also be specified"));
            }
            (Some(on), pipeline) => return self.become_view(on, pipeline),
        }
        self.images = given.images == Some(true);
        show_cap(self.capped, &mut self.shown);
        self.validation.show(&mut self.shown);
        self.show_layout();
        self.show_images();
        self.show_collation();
        if self.partitioned {
            self.shown.append(bson::raw::cstr!("partitioned"), true);
        }
        if let Some(every) = self.partition_every {
            self.shown.append(bson::raw::cstr!("partitionEvery"), every.shown());
        }
        Ok(())
    }

    /// What `idIndex` says of the shape is the collection's own where that says nothing; a primary key has to say it.
    fn take_shape_of_id(&mut self, document: &RawDocument) -> Result<()> {
        let asked = id_index::storage(document)?;
        let both = self.storage.or(asked);
        let agrees = asked.or(self.storage) == both;
        if !agrees || self.primary_key.is_some() && both != self.storage {
            return Err(Error::new(
                Code::INVALID_INDEX_SPECIFICATION_OPTION,
                "the shape that 'idIndex' names is not that of the collection, which the index on _id has",
            ));
        }
        for name in STORAGE_OPTIONS {
            if let (None, Some(value)) = (self.shown.get(name)?, document.get(name)?) {
                let value = bson::RawBson::from(value);
                self.shown.append(<&CStr>::try_from(name)?, value);
            }
        }
        self.storage = both;
        Ok(())
    }

    /// A view has a source, a pipeline and a collation; other options are checked and dropped.
    fn become_view(&mut self, on: &str, pipeline: Option<&RawArray>) -> Result<()> {
        if on.is_empty() {
            return Err(Error::bad_value("'viewOn' cannot be empty"));
        }
        let view = View { on: on.to_owned(), pipeline: view_pipeline(pipeline)? };
        let mut shown = RawDocumentBuf::new();
        shown.append(bson::raw::cstr!("viewOn"), view.on.as_str());
        shown.append(bson::raw::cstr!("pipeline"), view.pipeline.clone());
        let collation = self.collation.take();
        *self = Self { view: Some(view), collation, shown, ..Self::default() };
        self.show_collation();
        Ok(())
    }

    /// Refuses layouts that exclude each other.
    fn check_layout(&self, given: &Given<'_>) -> Result<()> {
        let is_view = given.view_on.is_some();
        for (is_given, name) in
            [(given.primary_key, "primaryKey"), (self.partitioned, "partitioned")]
        {
            if let Some(beside) = self.layout_of_its_own(given).filter(|_| is_given) {
                return Err(invalid(&format!(
                    "the '{name}' and '{beside}' options exclude each other"
                )));
            }
        }
        self.check_retention()?;
        let refused = |number: i32, text: &str| Err(Error::location(number, text));
        // Also where `clusteredIndex` is false.
        if given.clustered && given.capped {
            return refused(6_049_200, "A capped collection cannot have a clustered index");
        }
        if self.clustered.is_some() {
            if given.max.is_some() {
                return refused(6_049_204, "'max' is not allowed on a clustered collection");
            }
            if is_view {
                return refused(
                    6_026_500,
                    "The 'clusteredIndex' option is not supported with views",
                );
            }
            if self.time_series.is_some() {
                return Err(invalid(
                    "The 'clusteredIndex' option is not supported with time-series collections",
                ));
            }
            if given.id_index.is_some() {
                return Err(invalid(
                    "The 'clusteredIndex' option is not supported with the 'idIndex' option",
                ));
            }
        }
        if self.time_series.is_some() {
            let beside = match given {
                _ if is_view => "viewOn",
                _ if given.capped => "capped",
                _ if given.id_index.is_some() => "idIndex",
                _ if given.images.is_some() => "changeStreamPreAndPostImages",
                _ if !self.validation.is_empty() => "validator",
                _ => return Ok(()),
            };
            return Err(invalid(&format!(
                "the 'timeseries' and '{beside}' options exclude each other"
            )));
        }
        let expires = self.clustered.is_some() || self.partitioned;
        if self.expire_after_seconds.is_some() && (!expires || is_view) {
            return Err(invalid(
                "'expireAfterSeconds' is only supported on time-series collections or when the \
                 'clusteredIndex' or the 'partitioned' option is specified",
            ));
        }
        if is_view && given.id_index.is_some() {
            return Err(invalid("'viewOn' and 'idIndex' cannot both be specified"));
        }
        if is_view && given.images == Some(true) {
            return Err(invalid("option not supported on a view: changeStreamPreAndPostImages"));
        }
        Ok(())
    }

    /// An option that says already where documents stand.
    fn layout_of_its_own(&self, given: &Given<'_>) -> Option<&'static str> {
        match given {
            _ if given.view_on.is_some() => Some("viewOn"),
            _ if given.capped => Some("capped"),
            _ if self.time_series.is_some() => Some("timeseries"),
            _ if self.clustered.is_some() => Some("clusteredIndex"),
            _ => None,
        }
    }

    /// Refuses to end or drop partitions by a time that the primary key does not begin with.
    fn check_retention(&self) -> Result<()> {
        if self.partition_every.is_some() && !self.partitioned {
            return Err(invalid("'partitionEvery' goes with 'partitioned'"));
        }
        let by_time = matches!(self.partition_every, Some(PartitionEvery::Seconds(_)))
            || self.partitioned && self.expire_after_seconds.is_some();
        let first = self.primary_key.as_ref().and_then(|key| key.parts().first());
        if by_time && first.is_none_or(|part| part.descending) {
            return Err(invalid(
                "partitions end and expire by time where the 'primaryKey' begins with a field that \
                 ascends, and holds dates",
            ));
        }
        Ok(())
    }

    fn show_layout(&mut self) {
        if let Some(clustered) = &self.clustered {
            self.shown.append(bson::raw::cstr!("clusteredIndex"), clustered.shown());
        }
        if let Some(series) = &self.time_series {
            self.shown.append(bson::raw::cstr!("timeseries"), series.shown());
        }
        if let Some(seconds) = self.expire_after_seconds {
            self.shown.append(bson::raw::cstr!("expireAfterSeconds"), seconds);
        }
    }

    /// As an opening reads them from their record: in the order in which they are shown then, too.
    fn as_read_again(&self) -> Result<Self> {
        Self::parse(&self.shown)
    }

    /// The same options with another life of documents, or another pace of measurements, as
    /// `collMod` gives them.
    pub(crate) fn with_layout(
        &self,
        expire_after: Option<RawBsonRef<'_>>,
        time_series: Option<&RawDocument>,
    ) -> Result<Self> {
        let mut options = self.clone();
        if let Some(value) = expire_after {
            if self.clustered.is_none() && self.time_series.is_none() && !self.partitioned {
                return Err(invalid(
                    "'expireAfterSeconds' is only supported on time-series, partitioned and \
                     clustered collections",
                ));
            }
            options.expire_after_seconds = clustered::expire_after(value)?;
        }
        if let Some(change) = time_series {
            let Some(series) = &self.time_series else {
                return Err(invalid(
                    "option only supported on a time-series collection: timeseries",
                ));
            };
            options.time_series = Some(series.changed(change)?);
        }
        options.shown = RawDocumentBuf::new();
        for element in &self.shown {
            let (name, value) = element?;
            if !matches!(name.as_str(), "clusteredIndex" | "timeseries" | "expireAfterSeconds") {
                options.shown.append(name, value);
            }
        }
        options.show_layout();
        options.as_read_again()
    }

    /// The name of the order of `_id` among the indexes.
    pub fn id_index_name(&self) -> &str {
        self.clustered.as_ref().map_or("_id_", |clustered| &clustered.name)
    }

    /// The field whose date decides when a document expires, and after how long.
    /// None where partitions are dropped instead.
    pub fn expiry(&self) -> Option<(&str, i64)> {
        let seconds = self.expire_after_seconds.filter(|_| !self.partitioned)?;
        Some((self.time_series.as_ref().map_or("_id", |series| &series.time_field), seconds))
    }

    fn show_images(&mut self) {
        if self.images {
            let mut shown = RawDocumentBuf::new();
            shown.append(bson::raw::cstr!("enabled"), true);
            self.shown.append(bson::raw::cstr!("changeStreamPreAndPostImages"), shown);
        }
    }

    /// The same options with images or without, as `collMod` gives `{enabled: …}`.
    pub(crate) fn with_images(&self, change: &RawDocument) -> Result<Self> {
        let mut options = self.clone();
        options.images = images("collMod", RawBsonRef::Document(change))?;
        if self.view.is_some() || self.time_series.is_some() {
            return Err(invalid(
                "option not supported on a view or a time-series collection: \
                 changeStreamPreAndPostImages",
            ));
        }
        options.shown = RawDocumentBuf::new();
        for element in &self.shown {
            let (name, value) = element?;
            if name.as_str() != "changeStreamPreAndPostImages" {
                options.shown.append(name, value);
            }
        }
        options.show_images();
        options.as_read_again()
    }

    fn show_collation(&mut self) {
        if let Some(collation) = &self.collation {
            let shown = bsonval::collation::to_document(collation);
            self.shown.append(bson::raw::cstr!("collation"), shown);
        }
    }

    /// The same options with another storage shape, as `reIndex` and `collMod` give it.
    pub(crate) fn with_storage(&self, change: &RawDocument) -> Result<Self> {
        let mut options = self.clone();
        options.storage = StorageOptions::parse(change)?.or(self.storage);
        options.shown = indexkeys::reshaped(&self.shown, change)?;
        options.as_read_again()
    }

    /// The same options with another cap.
    pub(crate) fn with_cap(&self, cap: Option<Cap>) -> Result<Self> {
        let mut options = self.clone();
        options.capped = cap;
        options.shown = RawDocumentBuf::new();
        show_cap(cap, &mut options.shown);
        for element in &self.shown {
            let (name, value) = element?;
            if !matches!(name.as_str(), "capped" | "size" | "max") {
                options.shown.append(name, value);
            }
        }
        options.as_read_again()
    }

    /// The same options of a view with another source or pipeline, as `collMod` gives them.
    pub(crate) fn with_view(&self, on: Option<&str>, pipeline: Option<&RawArray>) -> Result<Self> {
        let Some(view) = &self.view else {
            return Err(invalid("option only supported on a view: viewOn"));
        };
        let on = on.map_or_else(|| view.on.clone(), str::to_owned);
        let pipeline = pipeline.map_or_else(|| view.pipeline.clone(), RawArray::to_owned);
        let mut options = self.clone();
        options.shown = RawDocumentBuf::new();
        for element in &self.shown {
            let (name, value) = element?;
            match name.as_str() {
                "viewOn" => options.shown.append(name, on.as_str()),
                "pipeline" => options.shown.append(name, pipeline.clone()),
                _ => options.shown.append(name, value),
            }
        }
        options.view = Some(View { on, pipeline });
        options.as_read_again()
    }

    /// The same options with others of validation, as `collMod` gives them.
    pub(crate) fn with_validation(&self, change: &RawDocument) -> Result<Self> {
        let mut options = self.clone();
        for element in change {
            let (name, value) = element?;
            options.validation.take("collMod", name.as_str(), value)?;
        }
        options.validation.settle(self.collation.as_ref())?;
        options.shown = RawDocumentBuf::new();
        for element in &self.shown {
            let (name, value) = element?;
            if !Validation::is_option(name.as_str()) {
                options.shown.append(name, value);
            }
        }
        options.validation.show(&mut options.shown);
        options.as_read_again()
    }
}

/// Options that are weighed against others before they count.
#[derive(Default)]
struct Given<'a> {
    capped: bool,
    size: Option<i64>,
    max: Option<i64>,
    /// `primaryKey` was given, be it as `{_id: 1}`.
    primary_key: bool,
    /// `clusteredIndex` was given, be it as false.
    clustered: bool,
    id_index: Option<&'a RawDocument>,
    view_on: Option<&'a str>,
    pipeline: Option<&'a RawArray>,
    images: Option<bool>,
    encrypted: Option<RawBsonRef<'a>>,
}

/// The stages of a view, without the nulls that MongoDB passes over.
pub fn view_pipeline(given: Option<&RawArray>) -> Result<RawArrayBuf> {
    let mut stages = RawArrayBuf::new();
    for stage in given.into_iter().flatten() {
        match stage? {
            RawBsonRef::Null | RawBsonRef::Undefined => {}
            stage => stages.push(stage),
        }
    }
    if stages.as_bytes().len() > MAX_VIEW_BYTES {
        return Err(Error::new(
            Code::VIEW_PIPELINE_MAX_SIZE_EXCEEDED,
            format!("View pipeline exceeds the maximum of {MAX_VIEW_BYTES} bytes"),
        ));
    }
    Ok(stages)
}

/// `{enabled: <boolean>}`.
fn images(command: &str, value: RawBsonRef<'_>) -> Result<bool> {
    let place = format!("{command}.changeStreamPreAndPostImages");
    let document = value.as_document().ok_or_else(|| invalid_type(&place, value, "object"))?;
    let mut enabled = None;
    for element in document {
        let (name, value) = element?;
        match (name.as_str(), value) {
            ("enabled", RawBsonRef::Null | RawBsonRef::Undefined) => {}
            ("enabled", RawBsonRef::Boolean(value)) => enabled = Some(value),
            ("enabled", value) => {
                return Err(invalid_type(&format!("{place}.enabled"), value, "bool"));
            }
            (other, _) => {
                return Err(Error::location(
                    40415,
                    format!("BSON field '{place}.{other}' is an unknown field."),
                ));
            }
        }
    }
    enabled.ok_or_else(|| {
        Error::location(
            40414,
            format!("BSON field '{place}.enabled' is missing but a required field"),
        )
    })
}

fn is_empty(value: RawBsonRef<'_>) -> bool {
    value.as_document().is_some_and(RawDocument::is_empty)
}

/// Shows a cap as `listCollections` does.
fn show_cap(cap: Option<Cap>, shown: &mut RawDocumentBuf) {
    let Some(cap) = cap else { return };
    shown.append(bson::raw::cstr!("capped"), true);
    let mut number = |name: &CStr, value: u64| match i32::try_from(value) {
        Ok(small) => shown.append(name, small),
        Err(_) => shown.append(name, value as i64),
    };
    number(bson::raw::cstr!("size"), cap.bytes);
    if let Some(max) = cap.documents {
        number(bson::raw::cstr!("max"), max);
    }
}

/// `indexOptionDefaults: {storageEngine: {…}}`.
fn index_defaults(value: RawBsonRef<'_>) -> Result<StorageOptions> {
    let mut storage = StorageOptions::default();
    let document = value.as_document().ok_or_else(|| {
        Error::type_mismatch(
            "BSON field 'create.indexOptionDefaults' is the wrong type, expected type 'object'",
        )
    })?;
    for element in document {
        let (name, value) = element?;
        if name.as_str() != "storageEngine" || !storage.take(name.as_str(), value)? {
            return Err(Error::location(
                40415,
                format!(
                    "BSON field 'create.indexOptionDefaults.{}' is an unknown field.",
                    name.as_str()
                ),
            ));
        }
    }
    Ok(storage)
}

fn text<'a>(key: &CStr, value: RawBsonRef<'a>) -> Result<&'a str> {
    value.as_str().ok_or_else(|| wrong_type(key, "string"))
}

fn document<'a>(key: &CStr, value: RawBsonRef<'a>) -> Result<&'a RawDocument> {
    value.as_document().ok_or_else(|| wrong_type(key, "object"))
}

/// The refusal of a value at a place (`create.timeseries.timeField`) for its type.
pub(crate) fn invalid_type(place: &str, value: RawBsonRef<'_>, expected: &str) -> Error {
    Error::type_mismatch(format!(
        "BSON field '{place}' is the wrong type '{}', expected type '{expected}'",
        bsonval::types::name_of(value)
    ))
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

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Document, doc};
    use indexkeys::Compression;

    fn parse(command: &Document) -> Result<CollectionOptions> {
        CollectionOptions::parse(&RawDocumentBuf::try_from(command).unwrap())
    }

    #[test]
    fn storage_options_are_kept_and_shown_as_given() {
        let command = doc! {
            "create": "c", "compression": "quicklz", "pageSize": "4MB", "fanout": 16,
            "indexOptionDefaults": { "storageEngine": { "fern": { "compression": "none" } } },
        };
        let options = parse(&command).unwrap();
        assert_eq!(options.storage.compression, Some(Compression::Lz4));
        assert_eq!(options.index_storage.compression, Some(Compression::None));
        assert_eq!(options.shown.iter().count(), 4);
        assert_eq!(CollectionOptions::parse(&options.shown).unwrap(), options);
    }

    #[test]
    fn changed_storage_reads_back_as_it_is_shown() {
        let options = parse(&doc! { "compression": "lz4", "fanout": 8 }).unwrap();
        let change = RawDocumentBuf::try_from(&doc! { "compression": "zlib", "pageSize": "64k" });
        let changed = options.with_storage(&change.unwrap()).unwrap();
        assert_eq!(changed.storage.compression, Some(Compression::Zlib(6)));
        assert_eq!((changed.storage.page_size, changed.storage.fanout), (Some(64 << 10), Some(8)));
        assert_eq!(CollectionOptions::parse(&changed.shown).unwrap(), changed);
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
    fn layouts_read_back_as_they_are_shown() {
        let series = doc! { "timeField": "t", "metaField": "m", "granularity": "minutes" };
        let key = doc! { "key": { "_id": 1 }, "unique": true };
        for (command, shown) in [
            (
                doc! { "timeseries": series, "expireAfterSeconds": 60.0 },
                doc! {
                    "timeseries": {
                        "timeField": "t", "metaField": "m", "granularity": "minutes",
                        "bucketMaxSpanSeconds": 86400,
                    },
                    "expireAfterSeconds": 60_i64,
                },
            ),
            (
                doc! { "clusteredIndex": key, "expireAfterSeconds": 5 },
                doc! {
                    "clusteredIndex": {
                        "v": 2, "key": { "_id": 1 }, "name": "_id_", "unique": true,
                    },
                    "expireAfterSeconds": 5_i64,
                },
            ),
        ] {
            let options = parse(&command).unwrap();
            assert_eq!(Document::try_from(&*options.shown).unwrap(), shown);
            assert_eq!(CollectionOptions::parse(&options.shown).unwrap(), options);
            let off = options.with_layout(Some(RawBsonRef::String("off")), None).unwrap();
            assert_eq!(off.expire_after_seconds, None);
            assert_eq!(CollectionOptions::parse(&off.shown).unwrap(), off);
        }
    }

    #[test]
    fn a_primary_key_is_shown_as_given() {
        let pattern = doc! { "b.c": -1, "a": 1.0, "_id": 1 };
        let options = parse(&doc! { "fanout": 8, "primaryKey": pattern.clone() }).unwrap();
        let shown = Document::try_from(&*options.shown).unwrap();
        assert_eq!(shown, doc! { "fanout": 8, "primaryKey": pattern });
        assert_eq!(CollectionOptions::parse(&options.shown).unwrap(), options);
        let on_id = parse(&doc! { "primaryKey": { "_id": 1 } }).unwrap();
        assert!(on_id.primary_key.is_none() && options.primary_key.is_some());
        assert!(on_id.shown.get("primaryKey").unwrap().is_some());
        let change = RawDocumentBuf::try_from(&doc! { "compression": "lz4" }).unwrap();
        assert!(options.with_storage(&change).unwrap().primary_key.is_some());
    }

    #[test]
    fn that_a_collection_is_partitioned_is_shown_where_it_is() {
        let options =
            parse(&doc! { "partitioned": 1, "primaryKey": { "a": 1, "_id": 1 } }).unwrap();
        let shown = Document::try_from(&*options.shown).unwrap();
        assert_eq!(shown, doc! { "primaryKey": { "a": 1, "_id": 1 }, "partitioned": true });
        let change = RawDocumentBuf::try_from(&doc! { "compression": "lz4" }).unwrap();
        assert!(options.with_storage(&change).unwrap().partitioned);
        let command = doc! {
            "partitioned": true, "primaryKey": { "t": 1, "_id": 1 },
            "partitionEvery": { "seconds": 3600 }, "expireAfterSeconds": 7200,
        };
        let options = parse(&command).unwrap();
        assert_eq!(CollectionOptions::parse(&options.shown).unwrap(), options);
        assert_eq!(options.expiry(), None, "no document is deleted");
        let off = options.with_layout(Some(RawBsonRef::String("off")), None).unwrap();
        assert_eq!(
            (off.expire_after_seconds, off.partition_every),
            (None, options.partition_every)
        );
        assert_eq!(CollectionOptions::parse(&off.shown).unwrap(), off);
        assert_eq!(parse(&doc! { "partitioned": false }).unwrap(), CollectionOptions::default());
    }

    #[test]
    fn the_pace_of_measurements_only_grows() {
        let options = parse(&doc! { "timeseries": { "timeField": "t", "granularity": "minutes" } });
        let options = options.unwrap();
        let changed = |granularity: &str| {
            let change = RawDocumentBuf::try_from(&doc! { "granularity": granularity }).unwrap();
            options.with_layout(None, Some(&change))
        };
        assert_eq!(changed("seconds").unwrap_err().code(), Code::INVALID_OPTIONS);
        let hours = changed("hours").unwrap();
        assert_eq!(CollectionOptions::parse(&hours.shown).unwrap(), hours);
    }

    #[test]
    fn a_changed_cap_reads_back_as_it_is_shown() {
        let options = parse(&doc! { "capped": true, "size": 100, "max": 3 }).unwrap();
        let cap = Cap { bytes: 1 << 40, documents: Some(7) };
        let changed = options.with_cap(Some(cap)).unwrap();
        let read = CollectionOptions::parse(&changed.shown).unwrap();
        assert_eq!((read.capped, changed.capped), (Some(cap), Some(cap)));
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        for (command, code) in [
            (doc! { "compression": "best" }, 16442),
            (doc! { "fanout": 2 }, 17288),
            (doc! { "capped": true }, 72),
            (doc! { "size": 100 }, 72),
            (doc! { "capped": true, "size": 0 }, 2),
            (doc! { "capped": true, "size": 100, "max": 1_i64 << 31 }, 2),
            (doc! { "capped": true, "viewOn": "b" }, 72),
            (doc! { "validator": { "a": { "$foo": 1 } } }, 2),
            (doc! { "validationLevel": "loose" }, 2),
            (doc! { "collation": { "locale": "xx" } }, 2),
            (doc! { "collation": {} }, 40414),
            (doc! { "pipeline": [] }, 72),
            (doc! { "expireAfterSeconds": 5 }, 72),
            (doc! { "clusteredIndex": true }, 5_979_703),
            (doc! { "clusteredIndex": { "key": { "_id": 1 } } }, 40414),
            (doc! { "clusteredIndex": { "unique": true } }, 40414),
            (doc! { "clusteredIndex": { "key": { "a": 1 }, "unique": true } }, 197),
            (doc! { "clusteredIndex": { "x": 1 } }, 40415),
            (doc! { "primaryKey": 1 }, 14),
            (doc! { "primaryKey": { "a": 1 } }, 17203),
            (doc! { "primaryKey": { "a": 1, "_id": 1 }, "capped": true, "size": 1 }, 72),
            (doc! { "primaryKey": { "_id": 1 }, "viewOn": "b" }, 72),
            (doc! { "primaryKey": { "t": 1, "_id": 1 }, "timeseries": { "timeField": "t" } }, 72),
            (
                doc! {
                    "primaryKey": { "_id": 1 },
                    "clusteredIndex": { "key": { "_id": 1 }, "unique": true },
                },
                72,
            ),
            (doc! { "partitioned": true, "capped": true, "size": 1 }, 72),
            (doc! { "partitioned": true, "viewOn": "b" }, 72),
            (doc! { "partitionEvery": { "bytes": 5 } }, 72),
            (doc! { "partitioned": true, "partitionEvery": 5 }, 14),
            (doc! { "partitioned": true, "partitionEvery": {} }, 72),
            (doc! { "partitioned": true, "partitionEvery": { "bytes": 0 } }, 2),
            (doc! { "partitioned": true, "partitionEvery": { "bytes": 1, "seconds": 1 } }, 72),
            (doc! { "partitioned": true, "partitionEvery": { "days": 1 } }, 40415),
            (doc! { "partitioned": true, "partitionEvery": { "seconds": 1 } }, 72),
            (doc! { "partitioned": true, "expireAfterSeconds": 1 }, 72),
            (
                doc! {
                    "partitioned": true, "expireAfterSeconds": 1,
                    "primaryKey": { "t": -1, "_id": 1 },
                },
                72,
            ),
            (doc! { "partitioned": true, "timeseries": { "timeField": "t" } }, 72),
            (
                doc! {
                    "partitioned": true,
                    "clusteredIndex": { "key": { "_id": 1 }, "unique": true },
                },
                72,
            ),
            (doc! { "timeseries": {} }, 40414),
            (doc! { "timeseries": { "timeField": "t", "metaField": "t" } }, 72),
            (doc! { "timeseries": { "timeField": "a.b" } }, 72),
            (doc! { "timeseries": { "timeField": "_id" } }, 72),
            (doc! { "timeseries": { "timeField": "t", "granularity": "days" } }, 2),
            (doc! { "timeseries": { "timeField": "t", "bucketMaxSpanSeconds": 60 } }, 72),
            (doc! { "timeseries": { "timeField": "t", "x": 1 } }, 40415),
            (doc! { "timeseries": { "timeField": "t" }, "capped": true, "size": 1 }, 72),
            (doc! { "timeseries": { "timeField": "t" }, "validator": { "a": 1 } }, 72),
            (doc! { "timeseries": { "timeField": "t" }, "expireAfterSeconds": -1 }, 72),
        ] {
            assert_eq!(parse(&command).unwrap_err().code().0, code, "{command}");
        }
        assert!(parse(&doc! { "capped": false, "collation": { "locale": "simple" } }).is_ok());
    }
}
