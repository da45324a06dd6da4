//! What a read must have seen.
//!
//! On a set of one, `local`, `available`, `majority` and `linearizable` all read the newest
//! commit: there is no other member that could have a newer one, or undo ours. `snapshot` reads
//! one state, which can be asked for again by its time.

use bson::Timestamp;
use dispatch::read_concern::{Level, ReadConcern};
use dispatch::rules::Rules;
use engine::Snapshot;
use errors::{Code, Error, Result};
use serverstate::replication::Replication;

/// What can read one state again and again.
const SNAPSHOTS: [&str; 3] = ["aggregate", "distinct", "find"];

/// Refuses what this server or the command cannot do, and waits for what was asked to be seen:
/// on one node that is always there already.
/// The first statement of a transaction speaks for all of it, whatever it is.
pub(crate) fn check(
    concern: &ReadConcern,
    command: &Rules,
    starts_transaction: bool,
    replication: &Replication,
) -> Result<()> {
    let level = concern.level.unwrap_or_default();
    if !starts_transaction {
        if !command.read_concern && level != Level::Local {
            return Err(unsupported(command, level));
        }
        if level == Level::Snapshot && !SNAPSHOTS.contains(&command.name) {
            return Err(unsupported(command, level));
        }
    }
    if replication.is_member() {
        if let Some(after) = concern.after {
            replication.clock.check_reached("afterClusterTime", after)?;
        }
        return Ok(());
    }
    for (name, time) in [("afterClusterTime", concern.after), ("atClusterTime", concern.at)] {
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
pub(crate) fn state(
    concern: &ReadConcern,
    replication: &Replication,
) -> Result<Option<(Timestamp, Snapshot)>> {
    if concern.level != Some(Level::Snapshot) || !replication.keeps_time() {
        return Ok(None);
    }
    Ok(Some(match concern.at {
        Some(time) => (time, replication.clock.state_at(time)?),
        None => replication.clock.pin_newest(),
    }))
}

fn unsupported(command: &Rules, level: Level) -> Error {
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
