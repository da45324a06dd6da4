//! What a read must have seen.
//!
//! On a set of one, `local`, `available`, `majority` and `linearizable` all read the newest
//! commit: there is no other member that could have a newer one, or undo ours. In a set of several they read the
//! newest commit that a majority has, as far as this member knows it; `linearizable` first asks a majority whether
//! this member still leads. `snapshot` reads one state, which can be asked for again by its time.

use bson::Timestamp;
use dispatch::read_concern::{Level, ReadConcern};
use dispatch::rules::Rules;
use engine::Snapshot;
use errors::{Code, Error, Result};
use membership::Membership;
use serverstate::replication::Replication;
use std::time::Duration;

/// How often who waits for an answer of the majority looks whether its operation goes on.
const LOOK: Duration = Duration::from_millis(25);
/// After so many looks the question is asked again: it may have been lost.
const LOOKS: u32 = 40;

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
        if !command.takes_read_concern && level != Level::Local {
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
        if let (Level::Linearizable, Some(membership)) = (level, replication.membership()) {
            linearize(membership)?;
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

/// Returns once this member shows everything that was decided when it was called.
fn linearize(membership: &Membership) -> Result<()> {
    let not_primary = || {
        let text = "cannot satisfy linearizable read concern on non-primary node";
        Error::new(Code::NOT_WRITABLE_PRIMARY, text)
    };
    loop {
        if !membership.takes_writes() {
            return Err(not_primary());
        }
        let Some(asked) = membership.read_point() else { return Err(not_primary()) };
        for _ in 0..LOOKS {
            match asked.wait(LOOK) {
                Some(Ok(_applied)) => return Ok(()),
                // Another one leads, or the question was dropped.
                Some(Err(_)) => break,
                None => limits::check_wait()?,
            }
        }
        limits::check_wait()?;
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
