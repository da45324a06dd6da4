//! What a read must have seen.
//!
//! On a set of one, `local`, `available`, `majority` and `linearizable` all read the newest
//! commit: there is no other member that could have a newer one, or undo ours. `snapshot` reads
//! one state, which can be asked for again by its time.

use super::Replication;
use crate::fields::{Field, inner};
use crate::registry::Command;
use bson::{RawBsonRef, RawDocument, Timestamp};
use engine::Snapshot;
use errors::{Code, Error, Result};

/// What can read one state again and again.
const SNAPSHOTS: [&str; 3] = ["aggregate", "distinct", "find"];

/// How much a read demands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Level {
    #[default]
    Local,
    Available,
    Majority,
    Linearizable,
    Snapshot,
}

impl Level {
    pub(crate) fn name(self) -> &'static str {
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
pub(crate) struct ReadConcern {
    /// `None`: the client named no level.
    pub(crate) level: Option<Level>,
    pub(crate) after: Option<Timestamp>,
    pub(crate) at: Option<Timestamp>,
    /// The client sent the field at all.
    pub(crate) given: bool,
}

/// Reads a read concern.
pub(crate) fn parse(concern: &RawDocument) -> Result<ReadConcern> {
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
pub(super) fn check_provenance(field: &Field<'_>) -> Result<()> {
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

impl ReadConcern {
    /// Refuses what this server or the command cannot do, and waits for what was asked to be seen:
    /// on one node that is always there already.
    /// The first statement of a transaction speaks for all of it, whatever it is.
    pub(crate) fn check(
        &self,
        command: &Command,
        starts_transaction: bool,
        replication: &Replication,
    ) -> Result<()> {
        let level = self.level.unwrap_or_default();
        if !starts_transaction {
            if !command.read_concern && level != Level::Local {
                return Err(unsupported(command, level));
            }
            if level == Level::Snapshot && !SNAPSHOTS.contains(&command.name) {
                return Err(unsupported(command, level));
            }
        }
        if replication.is_member() {
            if let Some(after) = self.after {
                replication.clock.check_reached("afterClusterTime", after)?;
            }
            return Ok(());
        }
        for (name, time) in [("afterClusterTime", self.after), ("atClusterTime", self.at)] {
            if time.is_some() {
                return Err(Error::new(
                    Code::ILLEGAL_OPERATION,
                    format!("Cannot specify '{name}' readConcern without replica set"),
                ));
            }
        }
        match level {
            // A standalone has transactions too; only their times are missing.
            Level::Snapshot if starts_transaction => Ok(()),
            Level::Linearizable => Err(Error::new(
                Code::NOT_A_REPLICA_SET,
                "node needs to be a replica set member to use read concern",
            )),
            Level::Snapshot => Err(Error::new(
                Code::NOT_A_REPLICA_SET,
                "node needs to be a replica set member to use readConcern: snapshot",
            )),
            _ => Ok(()),
        }
    }

    /// The state to read, where the client wants one that it can ask for again, with its time.
    pub(crate) fn state(&self, replication: &Replication) -> Result<Option<(Timestamp, Snapshot)>> {
        if self.level != Some(Level::Snapshot) || !replication.keeps_time() {
            return Ok(None);
        }
        Ok(Some(match self.at {
            Some(time) => (time, replication.clock.state_at(time)?),
            None => replication.clock.pin_newest(),
        }))
    }
}

fn unsupported(command: &Command, level: Level) -> Error {
    Error::new(
        Code::INVALID_OPTIONS,
        format!(
            "Command {} does not support {{ readConcern: {{ level: \"{}\", provenance: \
             \"clientSupplied\" }} }} :: caused by :: read concern not supported",
            command.name,
            level.name()
        ),
    )
}
