//! `timeseries`: a collection of measurements.
//!
//! MongoDB packs measurements into buckets behind a view. Here each is a document of its own, and
//! what buckets are for (small data, scans by time) comes from compressed pages and two indexes
//! that the collection is made with: on the time, which is the server's own and not shown, and on
//! the meta field with the time, which MongoDB makes too.
//!
//! Always true: every document has a date in the time field. Different from MongoDB: `_id` is
//! unique, as everywhere.

use super::{invalid, invalid_type};
use crate::index::{INTERNAL_TIME_INDEX, IndexSpec};
use bson::raw::{CStr, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use errors::{Code, Error, Result};

/// The longest span a bucket may be given, in seconds: a year.
const MAX_SPAN_SECONDS: i64 = 31_536_000;

/// What the option says.
#[derive(Clone, PartialEq, Debug)]
pub struct TimeSeries {
    /// The field with the date.
    pub time_field: String,
    /// The field that names the source, where there is one.
    pub meta_field: Option<String>,
    granularity: Granularity,
}

/// How close the measurements of a source are; it is kept and shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Granularity {
    Seconds,
    Minutes,
    Hours,
    /// `bucketMaxSpanSeconds`, which `bucketRoundingSeconds` equals.
    Span(i64),
}

impl Granularity {
    fn read(text: Option<&str>) -> Option<Self> {
        Some(match text? {
            "seconds" => Self::Seconds,
            "minutes" => Self::Minutes,
            "hours" => Self::Hours,
            _ => return None,
        })
    }

    fn span_seconds(self) -> i64 {
        match self {
            Self::Seconds => 3600,
            Self::Minutes => 86_400,
            Self::Hours => 2_592_000,
            Self::Span(seconds) => seconds,
        }
    }
}

impl TimeSeries {
    /// Reads the option of `create`.
    pub(super) fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        let document = value.as_document().ok_or_else(|| {
            Error::type_mismatch(
                "BSON field 'create.timeseries' is the wrong type, expected type 'object'",
            )
        })?;
        let (mut time_field, mut meta_field) = (None, None);
        let mut pace = Pace::default();
        for element in document {
            let (name, value) = element?;
            match name.as_str() {
                _ if matches!(value, RawBsonRef::Null | RawBsonRef::Undefined) => {}
                "timeField" => time_field = Some(field_name(name, value)?),
                "metaField" => meta_field = Some(field_name(name, value)?),
                name if pace.take("create", name, value)? => {}
                other => {
                    return Err(Error::location(
                        40415,
                        format!("BSON field 'create.timeseries.{other}' is an unknown field."),
                    ));
                }
            }
        }
        let time_field = time_field.ok_or_else(|| {
            Error::location(
                40414,
                "BSON field 'create.timeseries.timeField' is missing but a required field",
            )
        })?;
        if time_field == "_id" {
            return Err(invalid("The 'timeField' cannot be \"_id\""));
        }
        if let Some(meta) = &meta_field {
            if meta == "_id" {
                return Err(invalid("The 'metaField' cannot be \"_id\""));
            }
            if *meta == time_field {
                return Err(invalid(
                    "The 'metaField' cannot be the same as the time-series 'timeField'",
                ));
            }
        }
        let granularity = pace.settle()?.unwrap_or(Granularity::Seconds);
        Ok(Self { time_field, meta_field, granularity })
    }

    /// The same with another pace, as `collMod` gives it: it may only become coarser.
    pub(super) fn changed(&self, change: &RawDocument) -> Result<Self> {
        let mut pace = Pace::default();
        for element in change {
            let (name, value) = element?;
            if !pace.take("collMod", name.as_str(), value)? {
                return Err(Error::location(
                    40415,
                    format!(
                        "BSON field 'collMod.timeseries.{}' is an unknown field.",
                        name.as_str()
                    ),
                ));
            }
        }
        let granularity = pace.settle()?.unwrap_or(self.granularity);
        if granularity.span_seconds() < self.granularity.span_seconds() {
            return Err(invalid(
                "Invalid transition for timeseries.granularity. Can only transition from 'seconds' \
                 to 'minutes' or 'minutes' to 'hours'.",
            ));
        }
        Ok(Self { granularity, ..self.clone() })
    }

    /// As `listCollections` shows it.
    pub(super) fn shown(&self) -> RawDocumentBuf {
        let mut shown = RawDocumentBuf::new();
        shown.append(cstr!("timeField"), self.time_field.as_str());
        if let Some(meta) = &self.meta_field {
            shown.append(cstr!("metaField"), meta.as_str());
        }
        let span = self.granularity.span_seconds() as i32;
        let name = match self.granularity {
            Granularity::Seconds => "seconds",
            Granularity::Minutes => "minutes",
            Granularity::Hours => "hours",
            Granularity::Span(_) => {
                shown.append(cstr!("bucketRoundingSeconds"), span);
                shown.append(cstr!("bucketMaxSpanSeconds"), span);
                return shown;
            }
        };
        shown.append(cstr!("granularity"), name);
        shown.append(cstr!("bucketMaxSpanSeconds"), span);
        shown
    }

    /// Refuses a document without a date in the time field.
    pub(crate) fn check_document(&self, document: &RawDocument) -> Result<()> {
        if matches!(document.get(&self.time_field)?, Some(RawBsonRef::DateTime(_))) {
            return Ok(());
        }
        Err(Error::bad_value(format!(
            "'{}' must be present and contain a valid BSON UTC datetime value",
            self.time_field
        )))
    }

    /// Refuses an index that such a collection cannot have.
    pub(crate) fn check_index(index: &IndexSpec) -> Result<()> {
        let kind = match index {
            _ if index.unique || index.prepare_unique => "Unique",
            _ if index.expire_after_seconds.is_some() => "TTL",
            _ if index.is_hashed() => "Hashed",
            _ if index.wildcard.is_some() => "Wildcard",
            _ if index.text.is_some() => "Text",
            _ => return Ok(()),
        };
        Err(invalid(&format!("{kind} indexes are not supported on time-series collections")))
    }

    /// The indexes that the collection is made with, as `createIndexes` takes them.
    pub fn first_indexes(&self) -> Vec<RawDocumentBuf> {
        let by_time = (Some(INTERNAL_TIME_INDEX), vec![&self.time_field]);
        let by_source = self.meta_field.as_ref().map(|meta| (None, vec![meta, &self.time_field]));
        let keys = std::iter::once(by_time).chain(by_source);
        keys.filter_map(|(name, paths)| {
            let mut key = RawDocumentBuf::new();
            for path in paths {
                key.append(<&CStr>::try_from(path.as_str()).ok()?, 1);
            }
            let mut index = RawDocumentBuf::new();
            let usual = crate::index::default_index_name(&key);
            index.append(cstr!("name"), name.map_or(usual, str::to_owned));
            index.append(cstr!("key"), key);
            Some(index)
        })
        .collect()
    }
}

/// The options of pace before they are weighed against each other.
#[derive(Default)]
struct Pace {
    granularity: Option<Granularity>,
    max_span: Option<i64>,
    rounding: Option<i64>,
}

impl Pace {
    fn take(&mut self, command: &str, name: &str, value: RawBsonRef<'_>) -> Result<bool> {
        let place = || format!("{command}.timeseries.{name}");
        let seconds = |value| {
            let given = bsonval::types::option_integer(value);
            let given = given.ok_or_else(|| invalid_type(&place(), value, "int"))?;
            if (1..=MAX_SPAN_SECONDS).contains(&given) {
                return Ok(given);
            }
            Err(Error::bad_value(format!(
                "BSON field '{name}' value must be a number of seconds from 1 to \
                 {MAX_SPAN_SECONDS}"
            )))
        };
        match name {
            "granularity" => {
                let RawBsonRef::String(text) = value else {
                    return Err(invalid_type(&place(), value, "string"));
                };
                let granularity = Granularity::read(Some(text)).ok_or_else(|| {
                    Error::bad_value(format!(
                        "Enumeration value '{text}' for field '{}' is not a valid value.",
                        place()
                    ))
                })?;
                self.granularity = Some(granularity);
            }
            "bucketMaxSpanSeconds" => self.max_span = Some(seconds(value)?),
            "bucketRoundingSeconds" => self.rounding = Some(seconds(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn settle(self) -> Result<Option<Granularity>> {
        match (self.granularity, self.max_span, self.rounding) {
            (None, None, None) => Ok(None),
            (Some(granularity), None, None) => Ok(Some(granularity)),
            // As `listCollections` shows it.
            (Some(granularity), Some(span), None) if span == granularity.span_seconds() => {
                Ok(Some(granularity))
            }
            (None, Some(span), Some(rounding)) if span == rounding => {
                Ok(Some(Granularity::Span(span)))
            }
            _ => Err(invalid(
                "'bucketMaxSpanSeconds' and 'bucketRoundingSeconds' must be set together, to the \
                 same value, and without 'granularity'",
            )),
        }
    }
}

fn field_name(name: &CStr, value: RawBsonRef<'_>) -> Result<String> {
    let name = name.as_str();
    let Some(field) = value.as_str() else {
        return Err(invalid_type(&format!("create.timeseries.{name}"), value, "string"));
    };
    if field.contains('\0') {
        return Err(Error::bad_value(format!("The '{name}' cannot contain a NUL byte")));
    }
    if field.is_empty() || field.contains('.') || field.starts_with('$') {
        return Err(Error::new(
            Code::INVALID_OPTIONS,
            format!("The '{name}' must be the name of a field, not empty and without '.'"),
        ));
    }
    Ok(field.to_owned())
}
