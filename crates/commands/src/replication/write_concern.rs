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
use serverstate::Holders;
use serverstate::replication::Replication;
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

/// Until when `wtimeout` lets a command's answer wait.
pub(crate) fn deadline(context: &Context<'_>) -> Option<Duration> {
    let concern = &context.arguments.write_concern;
    let millis = u64::try_from(concern.timeout_ms).unwrap_or(0);
    (millis > 0).then(|| context.now().saturating_add(Duration::from_millis(millis)))
}

/// How long a command with a `wtimeout` waits, in the middle of its work, until a majority has what comes before: what
/// it then has not begun it fails to do. Longer than its answer waits where that is short, as a slow majority is no
/// reason to do nothing.
pub(crate) fn limit_of_waits(context: &Context<'_>) -> Option<Duration> {
    const LEAST: Duration = Duration::from_secs(2);
    let concern = &context.arguments.write_concern;
    let millis = u64::try_from(concern.timeout_ms).unwrap_or(0);
    (millis > 0).then(|| Duration::from_millis(millis).max(LEAST))
}

/// What was asked for has not come in the time that was given.
pub(crate) fn timed_out() -> Error {
    Error::new(Code::WRITE_CONCERN_TIMEOUT, "waiting for replication timed out")
}

/// The members beyond a majority that a concern asks for, where it asks for some.
pub(crate) fn holders(concern: &WriteConcern<'_>) -> Option<Holders> {
    match concern.mode {
        Some(mode) => Some(Holders::Mode(mode.into())),
        None => (concern.nodes > 1).then_some(Holders::Count(concern.nodes)),
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
