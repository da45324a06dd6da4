//! Parameters that all members share and that outlive a restart.
//!
//! What is always true: a value is stored in `config.clusterParameters` before it holds; a parameter
//! that was never set has its default and the time 0. `defaultMaxTimeMS` limits reads that name no limit
//! themselves; the others are about change streams and migrations, which there are none of to follow them yet.

use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf, Timestamp, doc};
use catalog::{Catalog, Namespace};
use dispatch::fields::{Field, as_i64, type_name};
use errors::{Code, Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a field of a parameter holds.
#[derive(Clone, Copy)]
enum Shape {
    /// A whole number, at least and by default.
    Whole(i64, i64),
    /// Yes or no; no by default.
    Switch,
    /// `{expireAfterSeconds: "off" | <seconds>}`, and it must be given.
    Images,
}

/// A parameter; each has one field.
pub struct ClusterParameter {
    /// What clients call it.
    pub name: &'static str,
    field: &'static str,
    shape: Shape,
}

/// Every parameter there is.
pub const CLUSTER_PARAMETERS: &[ClusterParameter] = &[
    row("changeStreamOptions", "preAndPostImages", Shape::Images),
    row("changeStreams", "expireAfterSeconds", Shape::Whole(1, 3600)),
    row(DEFAULT_MAX_TIME, "readOperations", Shape::Whole(0, 0)),
    row("pauseMigrationsDuringMultiUpdates", "enabled", Shape::Switch),
];

/// The parameter whose value limits reads.
const DEFAULT_MAX_TIME: &str = "defaultMaxTimeMS";

const fn row(name: &'static str, field: &'static str, shape: Shape) -> ClusterParameter {
    ClusterParameter { name, field, shape }
}

impl ClusterParameter {
    fn default(&self) -> Bson {
        match self.shape {
            Shape::Whole(_, default) => Bson::Int64(default),
            Shape::Switch => Bson::Boolean(false),
            Shape::Images => Bson::Document(doc! { "expireAfterSeconds": "off" }),
        }
    }

    /// The value that a client gives it; the default where the document does not name the field.
    pub fn parse(&self, given: &RawDocument) -> Result<Bson> {
        Ok(self.parse_field(given, false)?.unwrap_or_else(|| self.default()))
    }

    /// The value of the one field; `None` where it is not given. What is stored has fields of its own
    /// beside it.
    fn parse_field(&self, document: &RawDocument, stored: bool) -> Result<Option<Bson>> {
        let Self { name, field, shape } = *self;
        let mut found = None;
        for element in document {
            let (key, value) = element?;
            match key.as_str() {
                "_id" | "clusterParameterTime" if stored => {}
                key if key == field => {
                    let place = Field { place: name, name: field, value };
                    found = parse_value(&place, shape)?;
                }
                key if key.starts_with('$') => {
                    return Err(Error::new(
                        Code::DOLLAR_PREFIXED_FIELD_NAME,
                        format!("The dollar ($) prefixed field '{key}' is not valid in {name}"),
                    ));
                }
                key => return Err(Error::bad_value(format!("Unknown field {key} of {name}"))),
            }
        }
        if found.is_none() && matches!(shape, Shape::Images) {
            return Err(Error::bad_value(format!("{name} needs the field {field}")));
        }
        Ok(found)
    }
}

/// A value and when it was set.
#[derive(Clone)]
struct Set {
    value: Bson,
    time: Timestamp,
}

/// The values that were set, by their parameter.
#[derive(Clone, Default)]
pub struct ClusterParameters(BTreeMap<&'static str, Set>);

impl ClusterParameters {
    /// A parameter as clients see it.
    pub fn shown(&self, parameter: &ClusterParameter) -> Document {
        let set = self.0.get(parameter.name).cloned();
        let Set { value, time } = set.unwrap_or_else(|| Set {
            value: parameter.default(),
            time: Timestamp { time: 0, increment: 0 },
        });
        doc! { "_id": parameter.name, "clusterParameterTime": time, parameter.field: value }
    }

    /// Reads what is stored.
    pub fn load(catalog: &Catalog) -> Result<Self> {
        let mut all = Self::default();
        for stored in catalog.system_documents(&namespace()?)? {
            for parameter in CLUSTER_PARAMETERS {
                if !stored.get_str("_id").is_ok_and(|id| id == parameter.name) {
                    continue;
                }
                // One that this version would refuse leaves the default.
                if let Ok(Some(value)) = parameter.parse_field(&stored, true) {
                    let time = stored.get_timestamp("clusterParameterTime");
                    let time = time.unwrap_or(Timestamp { time: 1, increment: 1 });
                    all.0.insert(parameter.name, Set { value, time });
                }
            }
        }
        Ok(all)
    }

    /// Stores a value as set `now`, or right after it was set last, then lets it hold. Waits for the
    /// disk.
    pub fn store(
        &mut self,
        catalog: &Arc<Catalog>,
        parameter: &'static ClusterParameter,
        value: Bson,
        now: Timestamp,
    ) -> Result<()> {
        let ClusterParameter { name, field, .. } = *parameter;
        let before = self.0.get(name);
        if before.is_some_and(|set| set.value == value) {
            return Ok(());
        }
        let time = match before.map(|set| set.time) {
            Some(before) if (now.time, now.increment) <= (before.time, before.increment) => {
                Timestamp { time: before.time, increment: before.increment.saturating_add(1) }
            }
            _ => now,
        };
        let stored = doc! { "_id": name, "clusterParameterTime": time, field: value.clone() };
        catalog.put_system_document(&namespace()?, &RawDocumentBuf::try_from(&stored)?)?;
        self.0.insert(name, Set { value, time });
        Ok(())
    }

    /// The limit for reads that name none, in milliseconds; 0: none.
    pub fn default_max_time_ms(&self) -> u64 {
        let set = self.0.get(DEFAULT_MAX_TIME).and_then(|set| set.value.as_i64());
        set.and_then(|millis| u64::try_from(millis).ok()).unwrap_or(0)
    }
}

fn namespace() -> Result<Namespace> {
    Namespace::parse(Namespace::CLUSTER_PARAMETERS)
}

fn parse_value(field: &Field<'_>, shape: Shape) -> Result<Option<Bson>> {
    match (shape, field.value) {
        (Shape::Images, RawBsonRef::Document(images)) => {
            parse_images(field.place, images).map(Some)
        }
        (Shape::Images, other) => Err(Error::bad_value(format!(
            "{}.{} must be an object, not of type {}",
            field.place,
            field.name,
            type_name(other)
        ))),
        (_, RawBsonRef::Null) => Ok(None),
        (Shape::Switch, _) => Ok(Some(Bson::Boolean(field.strict_bool()?))),
        (Shape::Whole(least, _), _) => {
            let number = field.i64()?;
            if number < least {
                return Err(Error::bad_value(format!(
                    "BSON field '{}' value must be >= {least}, actual value '{number}'",
                    field.name
                )));
            }
            Ok(Some(Bson::Int64(number)))
        }
    }
}

fn parse_images(name: &str, images: &RawDocument) -> Result<Bson> {
    let mut expiry = None;
    for element in images {
        let (key, value) = element?;
        expiry = Some(match (key.as_str(), value) {
            ("expireAfterSeconds", RawBsonRef::String("off")) => Bson::from("off"),
            ("expireAfterSeconds", RawBsonRef::Boolean(_) | RawBsonRef::String(_)) => {
                return Err(Error::bad_value(format!(
                    "{name}: expireAfterSeconds is 'off' or a number of seconds"
                )));
            }
            ("expireAfterSeconds", value) => match as_i64(value) {
                Some(seconds) if seconds > 0 => Bson::Int64(seconds),
                _ => {
                    return Err(Error::bad_value(format!(
                        "{name}: expireAfterSeconds is 'off' or a number of seconds above 0"
                    )));
                }
            },
            (key, _) => return Err(Error::bad_value(format!("Unknown field {key} of {name}"))),
        });
    }
    let expiry = expiry.ok_or_else(|| {
        Error::bad_value(format!("{name} needs preAndPostImages.expireAfterSeconds"))
    })?;
    Ok(Bson::Document(doc! { "expireAfterSeconds": expiry }))
}
