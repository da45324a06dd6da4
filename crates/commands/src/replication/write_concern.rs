//! How sure a write must be before it is acknowledged.
//!
//! On a member of a set of several every write waits until a majority has it on disk, whatever was asked for, and
//! for what is asked for beyond that: see [`super::acknowledgement`].
//!
//! Always true: a standalone refuses what needs other members before it runs anything; a member
//! runs the command and then says in `writeConcernError` what can never be.

use crate::context::Context;
use dispatch::write_concern::WriteConcern;
use dispatch::writer::Writer;
use errors::{Code, Error, Result};
use membership::{Membership, View};
use serverstate::ServerState;
use serverstate::replication::Replication;
use serverstate::replication::config::Config;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Settles it on this server: the default where the client named no members, the refusal of
/// what a standalone cannot do.
pub(crate) fn settle(concern: &mut WriteConcern<'_>, replication: &Replication) -> Result<()> {
    let member = replication.is_member();
    if let (false, Some(mode)) = (member, concern.mode) {
        return Err(Error::bad_value(format!(
            "cannot use non-majority 'w' mode {mode} when a host is not a member of a replica \
             set"
        )));
    }
    if concern.tagged {
        return Err(Error::bad_value(
            "cannot use non-majority 'w' mode when a host is not a member of a replica set",
        ));
    }
    if !member && concern.nodes > 1 {
        return Err(Error::bad_value("cannot use 'w' > 1 when a host is not replicated"));
    }
    if member && !concern.names_members && replication.default_is_majority.load(Ordering::Relaxed) {
        concern.is_majority = true;
        concern.synced = true;
    }
    Ok(())
}

/// Writes `writeConcernError` where what was done is not as sure as was asked for: the wait for
/// the disk `failed`, or this set can never give it.
pub(crate) fn write_error(
    concern: &WriteConcern<'_>,
    replication: &Replication,
    failed: Option<&Error>,
    reply: &mut Writer,
) {
    let failed = failed.map(|error| (error.code(), error.message().to_owned()));
    let Some((code, message)) = failed.or_else(|| unsatisfied(concern, replication)) else {
        return;
    };
    let error = reply.begin_document("writeConcernError");
    reply.i32("code", code.0);
    reply.str("codeName", &code.name());
    reply.str("errmsg", &message);
    let info = reply.begin_document("errInfo");
    if code == Code::WRITE_CONCERN_TIMEOUT {
        reply.bool("wtimeout", true);
    }
    let shown = reply.begin_document("writeConcern");
    match concern.mode {
        Some(mode) => reply.str("w", mode),
        None if concern.is_majority => reply.str("w", "majority"),
        None if concern.names_members => reply.i32("w", concern.nodes as i32),
        None => reply.i32("w", 1),
    }
    if let Some(journal) = concern.journal {
        reply.bool("j", journal);
    }
    reply.i32("wtimeout", i32::try_from(concern.timeout_ms).unwrap_or(i32::MAX));
    reply.str("provenance", if concern.given { "clientSupplied" } else { "implicitDefault" });
    reply.end(shown);
    reply.end(info);
    reply.end(error);
}

/// Whether this set can never give what was asked for.
pub(crate) fn fails(concern: &WriteConcern<'_>, replication: &Replication) -> bool {
    unsatisfied(concern, replication).is_some()
}

/// Whether as many members as a concern asks for, or those of its tags, have an entry on disk. Asked on a member of a
/// set of several, whose leader alone knows.
pub(crate) fn members_have(
    state: &ServerState,
    concern: &WriteConcern<'_>,
    index: u64,
) -> Result<bool> {
    let replication = &state.replication;
    let (Some(membership), Some(config)) = (replication.membership(), replication.config()) else {
        return Ok(true);
    };
    let view = membership.view();
    if view.leads() {
        return Ok(is_held(concern, &config, membership, &view, index));
    }
    Err(Error::new(
        Code::PRIMARY_STEPPED_DOWN,
        "Primary stepped down while waiting for replication",
    ))
}

/// Until when `wtimeout` lets a command's answer wait.
pub(crate) fn deadline(context: &Context<'_>) -> Option<Duration> {
    let concern = &context.arguments.write_concern;
    let millis = u64::try_from(concern.timeout_ms).unwrap_or(0);
    (millis > 0).then(|| context.now().saturating_add(Duration::from_millis(millis)))
}

/// What was asked for has not come in the time that was given.
pub(crate) fn timed_out() -> Error {
    Error::new(Code::WRITE_CONCERN_TIMEOUT, "waiting for replication timed out")
}

/// Whether the members of a concern have an entry.
fn is_held(
    concern: &WriteConcern<'_>,
    config: &Config,
    membership: &Membership,
    view: &View,
    index: u64,
) -> bool {
    let document = membership.document();
    let ids: Vec<i32> =
        view.holders_of(index).filter_map(|holder| document.id_of(holder)).collect();
    let holders: Vec<_> = config.data_bearing().filter(|member| ids.contains(&member.id)).collect();
    match concern.mode {
        Some(mode) => config.modes.is_reached(mode, &holders) != Some(false),
        None => holders.len() as i64 >= concern.nodes,
    }
}

fn unsatisfied(concern: &WriteConcern<'_>, replication: &Replication) -> Option<(Code, String)> {
    let config = replication.config();
    // Before there is a set there is one node.
    let holders = config.as_ref().map_or(1, |config| config.data_bearing().count() as i64);
    if concern.nodes > holders {
        let text = "Not enough data-bearing nodes".to_owned();
        return Some((Code::UNSATISFIABLE_WRITE_CONCERN, text));
    }
    let (mode, config) = (concern.mode?, config?);
    let everybody: Vec<_> = config.data_bearing().collect();
    // A mode that the configuration has was checked to be one that all members satisfy together.
    if config.modes.is_reached(mode, &everybody).is_some() {
        return None;
    }
    Some((
        Code::UNKNOWN_REPL_WRITE_CONCERN,
        format!("No write concern mode named '{mode}' found in replica set configuration"),
    ))
}
