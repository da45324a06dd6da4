//! `setClusterParameter` and `getClusterParameter`: parameters that all members share and that outlive a
//! restart.
//!
//! What is always true: a value is stored in `config.clusterParameters` before it holds; a parameter
//! that was never set has its default and the time 0. `defaultMaxTimeMS` limits reads that name no limit
//! themselves; the others are about change streams and migrations, which there are none of to follow them yet.

use crate::command::Command;
use crate::context::Context;
use crate::service::Service;
use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf, Timestamp, doc};
use catalog::{Catalog, Namespace};
use dispatch::fields::{Field, as_i64, missing, type_name};
use errors::{Code, Error, Result};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

pub(crate) const SET_CLUSTER_PARAMETER: Command =
    Command::new("setClusterParameter", "Changes a parameter of all members, for good.", set)
        .admin_only()
        .durable();

pub(crate) const GET_CLUSTER_PARAMETER: Command =
    Command::new("getClusterParameter", "Reads parameters of all members.", get).admin_only();

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

impl Shape {
    fn default(self) -> Bson {
        match self {
            Self::Whole(_, default) => Bson::Int64(default),
            Self::Switch => Bson::Boolean(false),
            Self::Images => Bson::Document(doc! { "expireAfterSeconds": "off" }),
        }
    }
}

/// Each parameter has one field.
const PARAMETERS: [(&str, &str, Shape); 4] = [
    ("changeStreamOptions", "preAndPostImages", Shape::Images),
    ("changeStreams", "expireAfterSeconds", Shape::Whole(1, 3600)),
    ("defaultMaxTimeMS", "readOperations", Shape::Whole(0, 0)),
    ("pauseMigrationsDuringMultiUpdates", "enabled", Shape::Switch),
];

/// The parameter whose value limits reads.
const DEFAULT_MAX_TIME: &str = "defaultMaxTimeMS";

/// A value and when it was set.
#[derive(Clone)]
struct Set {
    value: Bson,
    time: Timestamp,
}

/// The values that were set, by their parameter.
#[derive(Clone, Default)]
pub(crate) struct ClusterParameters(BTreeMap<&'static str, Set>);

impl ClusterParameters {
    fn shown(&self, (name, field, shape): &(&'static str, &str, Shape)) -> Document {
        let set = self.0.get(name).cloned();
        let Set { value, time } = set.unwrap_or_else(|| Set {
            value: shape.default(),
            time: Timestamp { time: 0, increment: 0 },
        });
        doc! { "_id": *name, "clusterParameterTime": time, *field: value }
    }

    /// Reads what is stored.
    pub(crate) fn load(catalog: &Catalog) -> Result<Self> {
        let mut all = Self::default();
        for stored in catalog.system_documents(&namespace()?)? {
            for (name, field, shape) in PARAMETERS {
                if !stored.get_str("_id").is_ok_and(|id| id == name) {
                    continue;
                }
                // One that this version would refuse leaves the default.
                if let Ok(Some(value)) = parse_field(name, field, shape, &stored, true) {
                    let time = stored.get_timestamp("clusterParameterTime");
                    let time = time.unwrap_or(Timestamp { time: 1, increment: 1 });
                    all.0.insert(name, Set { value, time });
                }
            }
        }
        Ok(all)
    }

    /// The limit for reads that name none, in milliseconds; 0: none.
    pub(crate) fn default_max_time_ms(&self) -> u64 {
        let set = self.0.get(DEFAULT_MAX_TIME).and_then(|set| set.value.as_i64());
        set.and_then(|millis| u64::try_from(millis).ok()).unwrap_or(0)
    }
}

fn namespace() -> Result<Namespace> {
    Namespace::parse(Namespace::CLUSTER_PARAMETERS)
}

fn unknown(name: &str) -> Error {
    Error::new(Code::NO_SUCH_KEY, format!("Unknown server parameter: {name}"))
}

fn get(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut wanted = Vec::new();
    match fields[0].value {
        RawBsonRef::String("*") => wanted.extend(&PARAMETERS),
        RawBsonRef::String(name) => wanted.push(find(name)?),
        RawBsonRef::Array(names) => {
            for name in names {
                match name? {
                    RawBsonRef::String(name) => wanted.push(find(name)?),
                    other => {
                        return Err(Error::type_mismatch(format!(
                            "BSON field 'getClusterParameter.getClusterParameter' has an element of the \
                             wrong type '{}', expected type 'string'",
                            type_name(other)
                        )));
                    }
                }
            }
            if wanted.is_empty() {
                return Err(Error::bad_value(
                    "Must supply at least one cluster server parameter name",
                ));
            }
        }
        _ => return Err(fields[0].wrong_types("string, array")),
    }
    let parameters = context.service.cluster_parameters.lock().clone();
    let list = context.reply.begin_array("clusterParameters");
    for (at, parameter) in wanted.into_iter().enumerate() {
        let one = context.reply.begin_element(at);
        context.reply.fields_of(&parameters.shown(parameter));
        context.reply.end(one);
    }
    context.reply.end(list);
    Ok(())
}

fn find(name: &str) -> Result<&'static (&'static str, &'static str, Shape)> {
    PARAMETERS.iter().find(|(known, ..)| *known == name).ok_or_else(|| unknown(name))
}

fn set(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if fields[0].is_null() {
        return Err(missing("setClusterParameter", "setClusterParameter"));
    }
    let given: Vec<_> = fields[0].document()?.iter().collect::<Result<_, _>>()?;
    let (name, value) = match given[..] {
        [] => return Err(unknown("")),
        [(name, value)] => (name.as_str(), value),
        _ => {
            return Err(Error::new(
                Code::INVALID_OPTIONS,
                "setClusterParameter only supports setting exactly one parameter",
            ));
        }
    };
    let (name, field, shape) = *find(name)?;
    let RawBsonRef::Document(value) = value else {
        return Err(Error::bad_value(format!(
            "Cannot set cluster parameter {name} to a value of type {}: it must be an object",
            type_name(value)
        )));
    };
    let value = parse_field(name, field, shape, value, false)?;
    store(context.service, name, field, &value.unwrap_or_else(|| shape.default()))
}

/// The value of a parameter's one field; `None` where it is not given. What is stored has fields of
/// its own beside it.
fn parse_field(
    name: &str,
    field: &str,
    shape: Shape,
    document: &RawDocument,
    stored: bool,
) -> Result<Option<Bson>> {
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

/// Stores a value, then lets it hold. The list stays locked meanwhile, so that what is stored last is
/// what holds. Waits for the disk.
fn store(service: &Service, name: &'static str, field: &str, value: &Bson) -> Result<()> {
    let mut parameters = service.cluster_parameters.lock();
    if parameters.0.get(name).is_some_and(|set| set.value == *value) {
        return Ok(());
    }
    let time = next_time(service, parameters.0.get(name).map(|set| set.time));
    let stored = doc! { "_id": name, "clusterParameterTime": time, field: value.clone() };
    let stored = RawDocumentBuf::try_from(&stored)?;
    service.catalog.put_system_document(&namespace()?, &stored)?;
    parameters.0.insert(name, Set { value: value.clone(), time });
    let limit = parameters.default_max_time_ms();
    service.default_max_time_ms.store(limit, Ordering::Relaxed);
    Ok(())
}

/// The cluster's time, else the wall clock's second; later than the value before in any case.
fn next_time(service: &Service, before: Option<Timestamp>) -> Timestamp {
    let now = if service.replication.keeps_time() {
        service.replication.clock.now()
    } else {
        let seconds = service.os.clock.wall_ms() / 1000;
        Timestamp { time: u32::try_from(seconds).unwrap_or(u32::MAX), increment: 1 }
    };
    match before {
        Some(before) if (now.time, now.increment) <= (before.time, before.increment) => {
            Timestamp { time: before.time, increment: before.increment.saturating_add(1) }
        }
        _ => now,
    }
}
