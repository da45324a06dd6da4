//! What a read must have seen, as clients say it.

use crate::fields::{Field, inner};
use bson::{RawBsonRef, RawDocument, Timestamp};
use errors::{Code, Error, Result};

/// How much a read demands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// The newest commit; the default.
    #[default]
    Local,
    /// The same, on one node.
    Available,
    /// What a majority has.
    Majority,
    /// What is newest now.
    Linearizable,
    /// One state.
    Snapshot,
}

impl Level {
    /// As clients name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Available => "available",
            Self::Majority => "majority",
            Self::Linearizable => "linearizable",
            Self::Snapshot => "snapshot",
        }
    }
}

/// A client's read concern.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadConcern {
    /// `None`: the client named no level.
    pub level: Option<Level>,
    /// `afterClusterTime`.
    pub after: Option<Timestamp>,
    /// `atClusterTime`.
    pub at: Option<Timestamp>,
    /// The client sent the field at all.
    pub given: bool,
}

/// Reads a read concern.
pub fn parse(concern: &RawDocument) -> Result<ReadConcern> {
    let mut parsed = ReadConcern { given: true, ..ReadConcern::default() };
    for part in inner(concern, "readConcern") {
        let part = part?;
        match part.name {
            "level" if part.is_null() => {}
            "level" => {
                parsed.level = Some(match part.str()? {
                    "local" => Level::Local,
                    "available" => Level::Available,
                    "majority" => Level::Majority,
                    "linearizable" => Level::Linearizable,
                    "snapshot" => Level::Snapshot,
                    other => {
                        return Err(Error::bad_value(format!(
                            "Enumeration value '{other}' for field 'readConcern.level' is not a \
                             valid value."
                        )));
                    }
                });
            }
            "afterClusterTime" => parsed.after = Some(timestamp(&part)?),
            "atClusterTime" => parsed.at = Some(timestamp(&part)?),
            "afterOpTime" => return Err(part.not_yet()),
            "provenance" => check_provenance(&part)?,
            "allowTransactionTableSnapshot" | "waitLastStableRecoveryTimestamp" => {}
            _ => return Err(part.unknown()),
        }
    }
    let invalid = |text: &str| Err(Error::new(Code::INVALID_OPTIONS, text));
    if parsed.at.is_some() && parsed.after.is_some() {
        return invalid(
            "Specifying a timestamp for readConcern level snapshot in a causally consistent \
             session is not allowed. See https://www.mongodb.com/docs/manual/core/\
             read-isolation-consistency-recency/#causal-consistency",
        );
    }
    if parsed.at.is_some() && parsed.level != Some(Level::Snapshot) {
        return invalid(
            "readConcern.atClusterTime field can be set only if level is equal to \"snapshot\"",
        );
    }
    if parsed.at.or(parsed.after).is_some_and(|time| (time.time, time.increment) == (0, 0)) {
        return invalid("readConcern time cannot be a null timestamp");
    }
    let after_level = matches!(
        parsed.level.unwrap_or_default(),
        Level::Local | Level::Majority | Level::Snapshot
    );
    if parsed.after.is_some() && !after_level {
        return invalid(
            "readConcern.afterClusterTime field can be set only if level is equal to \"majority\", \
             \"local\", or \"snapshot\"",
        );
    }
    Ok(parsed)
}

/// Where a concern came from, as routers tell members: one of MongoDB's words.
pub fn check_provenance(field: &Field<'_>) -> Result<()> {
    const WORDS: [&str; 5] = [
        "clientSupplied",
        "implicitDefault",
        "customDefault",
        "getLastErrorDefaults",
        "internalWriteDefault",
    ];
    if field.is_null() {
        return Ok(());
    }
    let word = field.str()?;
    if WORDS.contains(&word) {
        return Ok(());
    }
    Err(Error::bad_value(format!(
        "Enumeration value '{word}' for field '{}.provenance' is not a valid value.",
        field.place
    )))
}

fn timestamp(field: &Field<'_>) -> Result<Timestamp> {
    match field.value {
        RawBsonRef::Timestamp(time) => Ok(time),
        _ => Err(field.wrong_type("timestamp")),
    }
}
