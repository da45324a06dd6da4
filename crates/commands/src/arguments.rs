//! The arguments every command takes: session, concerns, time limit, API version.
//!
//! Always true: whatever is accepted here is honoured, or means nothing on a server of its own
//! (a standalone); everything else is refused with the standalone's own error.

use crate::fields::{Field, as_i64, inner, type_name};
use crate::registry::Command;
use bson::{RawBsonRef, RawDocument};
use errors::{Code, Error, Result};
use session::SessionId;
use smallvec::SmallVec;

/// The fields of a command that are its own.
pub(crate) type Fields<'a> = SmallVec<[Field<'a>; 12]>;

/// How sure a write must be before it is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteConcern {
    /// The client waits for no answer.
    pub(crate) unacknowledged: bool,
    /// The log must be on stable storage: `j: true`, `fsync: true` or `w: "majority"`.
    pub(crate) synced: bool,
}

/// The generic arguments of one request.
#[derive(Default)]
pub(crate) struct Arguments<'a> {
    pub(crate) session: Option<SessionId>,
    pub(crate) max_time_ms: Option<u64>,
    pub(crate) comment: Option<RawBsonRef<'a>>,
    pub(crate) write_concern: WriteConcern,
    txn_number: Option<i64>,
    autocommit: Option<bool>,
    start_transaction: bool,
    read_concern: Option<&'a RawDocument>,
    api_version: Option<&'a str>,
    api_strict: Option<bool>,
    api_deprecation_errors: Option<bool>,
}

impl<'a> Arguments<'a> {
    /// Divides a command's fields into its own and the generic ones.
    pub(crate) fn parse(command: &Command, body: &'a RawDocument) -> Result<(Self, Fields<'a>)> {
        let mut arguments = Self::default();
        let mut own = Fields::new();
        for element in body {
            let (name, value) = element?;
            let field = Field { place: command.name, name: name.as_str(), value };
            if own.is_empty() {
                own.push(field);
            } else if !arguments.take(command, &field)? {
                if own.len() < 64 && own.iter().any(|other| other.name == field.name) {
                    return Err(Error::location(
                        40413,
                        format!("BSON field '{}.{}' is a duplicate field", field.place, field.name),
                    ));
                }
                own.push(field);
            }
        }
        arguments.check(command)?;
        Ok((arguments, own))
    }

    /// Takes a generic field; says whether it was one.
    fn take(&mut self, command: &Command, field: &Field<'a>) -> Result<bool> {
        match field.name {
            "lsid" => self.session = Some(parse_lsid(field)?),
            "comment" => self.comment = Some(field.value),
            "maxTimeMS" => {
                // A getMore's limit bounds a tailable cursor's wait, and it checks that itself.
                self.max_time_ms = parse_max_time(field)?;
            }
            "writeConcern" => {
                if !field.is_null() {
                    self.write_concern = parse_write_concern(command, field)?;
                }
            }
            "readConcern" => {
                if !field.is_null() {
                    self.read_concern = Some(field.document()?);
                }
            }
            "txnNumber" => self.txn_number = Some(field.long()?),
            "autocommit" => self.autocommit = Some(field.strict_bool()?),
            "startTransaction" => self.start_transaction = field.strict_bool()?,
            "apiVersion" => self.api_version = Some(field.str()?),
            "apiStrict" => self.api_strict = Some(field.strict_bool()?),
            // No command of ours is deprecated in version 1.
            "apiDeprecationErrors" => self.api_deprecation_errors = Some(field.strict_bool()?),
            "$readPreference" => check_read_preference(field)?,
            "$db"
            | "$clusterTime"
            | "$client"
            | "$audit"
            | "$configTime"
            | "$topologyTime"
            | "$queryOptions"
            | "maxTimeMSOpOnly"
            | "clientOperationKey"
            | "help"
            | "mayBypassWriteBlocking"
            | "rawData" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether only what belongs to API version 1 may be used.
    pub(crate) fn is_strict(&self) -> bool {
        self.api_strict == Some(true)
    }

    fn check(&self, command: &Command) -> Result<()> {
        self.check_api(command)?;
        self.check_transaction()?;
        if let Some(concern) = self.read_concern {
            check_read_concern(command, concern)?;
        }
        Ok(())
    }

    fn check_api(&self, command: &Command) -> Result<()> {
        let Some(version) = self.api_version else {
            if self.api_strict.or(self.api_deprecation_errors).is_some() {
                return Err(Error::location(
                    4886600,
                    "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion",
                ));
            }
            return Ok(());
        };
        if version != "1" {
            return Err(Error::new(
                Code::API_VERSION_ERROR,
                "API version must be \"1\"".to_owned(),
            ));
        }
        if self.is_strict() && !command.api_v1 {
            return Err(Error::new(
                Code::API_STRICT_ERROR,
                format!(
                    "Provided apiStrict:true, but the command {} is not in API Version 1. \
                     Information on supported commands and migrations in API Version 1 can be \
                     found at https://dochub.mongodb.org/core/manual-versioned-api",
                    command.name
                ),
            ));
        }
        Ok(())
    }

    fn check_transaction(&self) -> Result<()> {
        if self.txn_number.is_none() {
            if self.autocommit.is_some() {
                return Err(Error::new(
                    Code::INVALID_OPTIONS,
                    "'autocommit' field requires a transaction number to also be specified",
                ));
            }
            if self.start_transaction {
                return Err(Error::new(
                    Code::INVALID_OPTIONS,
                    "'startTransaction' field requires a transaction number to also be specified",
                ));
            }
            return Ok(());
        }
        if self.session.is_none() {
            return Err(Error::new(
                Code::INVALID_OPTIONS,
                "Transaction number requires a session ID to also be specified",
            ));
        }
        if self.autocommit == Some(true) {
            return Err(Error::new(
                Code::INVALID_OPTIONS,
                "Specifying autocommit=true is not allowed.",
            ));
        }
        Err(Error::new(
            Code::ILLEGAL_OPERATION,
            "Transaction numbers are only allowed on a replica set member or mongos",
        ))
    }
}

/// `{id: <UUID>}`, beside which drivers may send what only the server itself uses.
pub(crate) fn parse_lsid(field: &Field<'_>) -> Result<SessionId> {
    let document = field.document()?;
    let mut id = None;
    for part in inner(document, "OperationSessionInfo.lsid") {
        let part = part?;
        match part.name {
            "id" => id = Some(SessionId(part.uuid()?)),
            "uid" | "txnNumber" | "txnUUID" => {}
            _ => return Err(part.unknown()),
        }
    }
    id.ok_or_else(|| crate::fields::missing("OperationSessionInfo.lsid", "id"))
}

fn parse_max_time(field: &Field<'_>) -> Result<Option<u64>> {
    if field.is_null() {
        return Err(Error::bad_value("maxTimeMS must be a number"));
    }
    let millis = field.i64()?;
    if millis < 0 {
        return Err(Error::location(
            51024,
            format!("BSON field 'maxTimeMS' value must be >= 0, actual value '{millis}'"),
        ));
    }
    if let RawBsonRef::Double(number) = field.value
        && number.fract() != 0.0
    {
        return Err(Error::bad_value("maxTimeMS has non-integral value"));
    }
    if millis > i64::from(i32::MAX) {
        return Err(Error::bad_value(format!("{millis} value for maxTimeMS is out of range")));
    }
    Ok((millis > 0).then_some(millis as u64))
}

pub(crate) fn parse_write_concern(command: &Command, field: &Field<'_>) -> Result<WriteConcern> {
    let document = field.document()?;
    if !command.write_concern && !document.is_empty() {
        return Err(Error::new(Code::INVALID_OPTIONS, "Command does not support writeConcern"));
    }
    let mut concern = WriteConcern::default();
    let (mut journal, mut fsync) = (None, None);
    for part in inner(document, "writeConcern") {
        let part = part?;
        match part.name {
            "w" => match part.value {
                RawBsonRef::String("majority") => concern.synced = true,
                RawBsonRef::String(mode) => {
                    return Err(Error::bad_value(format!(
                        "cannot use non-majority 'w' mode {mode} when a host is not a member of \
                         a replica set"
                    )));
                }
                RawBsonRef::Document(_) => {
                    return Err(Error::bad_value(
                        "cannot use non-majority 'w' mode when a host is not a member of a \
                         replica set",
                    ));
                }
                value => {
                    let Some(nodes) = as_i64(value) else {
                        return Err(Error::failed_to_parse(format!(
                            "w has to be a number, string, or object; found: {}",
                            type_name(value)
                        )));
                    };
                    if !(0..=50).contains(&nodes) {
                        return Err(Error::failed_to_parse(format!(
                            "w has to be a non-negative number and not greater than 50; found: \
                             {nodes}"
                        )));
                    }
                    if nodes > 1 {
                        return Err(Error::bad_value(
                            "cannot use 'w' > 1 when a host is not replicated",
                        ));
                    }
                    concern.unacknowledged = nodes == 0;
                }
            },
            "j" => journal = Some(part.bool()?),
            "fsync" => fsync = Some(part.bool()?),
            "wtimeout" => {
                // Nobody to wait for on a standalone; only the type matters.
                part.i64()?;
            }
            "provenance" | "getLastError" | "wElectionId" | "wOpTime" => {}
            _ => return Err(part.unknown()),
        }
    }
    if journal == Some(true) && fsync == Some(true) {
        return Err(Error::failed_to_parse("fsync and j options cannot be used together"));
    }
    match journal.or(fsync.filter(|sync| *sync)) {
        Some(true) => concern.synced = true,
        Some(false) => concern.synced = false,
        None => {}
    }
    Ok(concern)
}

fn check_read_concern(command: &Command, concern: &RawDocument) -> Result<()> {
    let mut level = "local";
    for part in inner(concern, "readConcern") {
        let part = part?;
        match part.name {
            "level" => level = part.str()?,
            "afterClusterTime" | "atClusterTime" | "afterOpTime" => {
                return Err(Error::new(
                    Code::ILLEGAL_OPERATION,
                    format!("Cannot specify '{}' readConcern without replica set", part.name),
                ));
            }
            "provenance" => {}
            _ => return Err(part.unknown()),
        }
    }
    match level {
        "available" | "majority" | "linearizable" | "snapshot" if !command.read_concern => {
            Err(Error::new(
                Code::INVALID_OPTIONS,
                format!(
                    "Command {} does not support {{ readConcern: {{ level: \"{level}\", \
                     provenance: \"clientSupplied\" }} }} :: caused by :: read concern not \
                     supported",
                    command.name
                ),
            ))
        }
        "local" | "available" | "majority" => Ok(()),
        "linearizable" => Err(Error::new(
            Code::NOT_A_REPLICA_SET,
            "node needs to be a replica set member to use read concern",
        )),
        "snapshot" => Err(Error::new(
            Code::NOT_A_REPLICA_SET,
            "node needs to be a replica set member to use readConcern: snapshot",
        )),
        other => Err(Error::bad_value(format!(
            "Enumeration value '{other}' for field 'readConcern.level' is not a valid value."
        ))),
    }
}

fn check_read_preference(field: &Field<'_>) -> Result<()> {
    let RawBsonRef::Document(document) = field.value else {
        return Err(field.wrong_type("object"));
    };
    let mode = match document.get("mode")? {
        Some(RawBsonRef::String(mode)) => mode,
        Some(_) => return Err(Error::type_mismatch("mode field must be a string")),
        None => {
            return Err(Error::new(
                Code::NO_SUCH_KEY,
                "Missing expected field \"mode\"".to_owned(),
            ));
        }
    };
    match mode {
        "primary" | "primaryPreferred" | "secondary" | "secondaryPreferred" | "nearest" => Ok(()),
        other => Err(Error::bad_value(format!(
            "Enumeration value '{other}' for field '$readPreference.mode' is not a valid value."
        ))),
    }
}
