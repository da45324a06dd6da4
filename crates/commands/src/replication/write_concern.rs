//! How sure a write must be before it is acknowledged.
//!
//! Always true: a standalone refuses what needs other members before it runs anything; a member
//! runs the command and then says in `writeConcernError` what can never be.

use super::Replication;
use crate::fields::{Field, as_i64, inner, type_name};
use crate::registry::Command;
use crate::writer::Writer;
use bson::RawBsonRef;
use errors::{Code, Error, Result};
use std::sync::atomic::Ordering;

/// A client's write concern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "what a client said, independently")]
pub(crate) struct WriteConcern<'a> {
    /// The client sent one, and it said something.
    given: bool,
    /// The client waits for no answer.
    pub(crate) unacknowledged: bool,
    /// The log must be on stable storage: `j: true`, `fsync: true` or `w: "majority"`.
    pub(crate) synced: bool,
    /// It said how many or which members.
    names_members: bool,
    /// It said, or it is the default, that a majority must have it.
    is_majority: bool,
    /// What it said of the journal.
    journal: Option<bool>,
    /// More members than one.
    nodes: i64,
    /// A mode of the configuration.
    mode: Option<&'a str>,
    /// By tags: refused on every server.
    tagged: bool,
    timeout_ms: i64,
}

/// Reads a write concern of a command that takes one.
pub(crate) fn parse<'a>(command: &Command, field: &Field<'a>) -> Result<WriteConcern<'a>> {
    let document = field.document()?;
    if !command.write_concern && !document.is_empty() {
        return Err(Error::new(Code::INVALID_OPTIONS, "Command does not support writeConcern"));
    }
    let mut concern = WriteConcern { given: !document.is_empty(), ..WriteConcern::default() };
    let (mut journal, mut fsync) = (None, None);
    for part in inner(document, "writeConcern") {
        let part = part?;
        match part.name {
            "w" => {
                concern.names_members = true;
                match part.value {
                    RawBsonRef::String("majority") => concern.is_majority = true,
                    RawBsonRef::String(mode) => concern.mode = Some(mode),
                    RawBsonRef::Document(_) => concern.tagged = true,
                    value => concern.nodes = parse_nodes(value)?,
                }
                concern.unacknowledged =
                    as_i64(part.value) == Some(0) && concern.mode.is_none() && !concern.tagged;
            }
            "j" => journal = Some(part.bool()?),
            "fsync" => fsync = Some(part.bool()?),
            // Nobody to wait for; only the type matters, and the error says it again.
            "wtimeout" => concern.timeout_ms = part.i64()?,
            "provenance" => super::read_concern::check_provenance(&part)?,
            "getLastError" | "wElectionId" | "wOpTime" => {}
            _ => return Err(part.unknown()),
        }
    }
    if journal == Some(true) && fsync == Some(true) {
        return Err(Error::failed_to_parse("fsync and j options cannot be used together"));
    }
    concern.journal = journal.or(fsync.filter(|sync| *sync));
    concern.synced = concern.journal.unwrap_or(concern.is_majority);
    Ok(concern)
}

fn parse_nodes(value: RawBsonRef<'_>) -> Result<i64> {
    let Some(nodes) = as_i64(value) else {
        return Err(Error::failed_to_parse(format!(
            "w has to be a number, string, or object; found: {}",
            type_name(value)
        )));
    };
    if !(0..=50).contains(&nodes) {
        return Err(Error::failed_to_parse(format!(
            "w has to be a non-negative number and not greater than 50; found: {nodes}"
        )));
    }
    Ok(nodes)
}

impl WriteConcern<'_> {
    /// Settles it on this server: the default where the client named no members, the refusal of
    /// what a standalone cannot do.
    pub(crate) fn settle(&mut self, replication: &Replication) -> Result<()> {
        let member = replication.is_member();
        if let (false, Some(mode)) = (member, self.mode) {
            return Err(Error::bad_value(format!(
                "cannot use non-majority 'w' mode {mode} when a host is not a member of a replica \
                 set"
            )));
        }
        if self.tagged {
            return Err(Error::bad_value(
                "cannot use non-majority 'w' mode when a host is not a member of a replica set",
            ));
        }
        if !member && self.nodes > 1 {
            return Err(Error::bad_value("cannot use 'w' > 1 when a host is not replicated"));
        }
        if member && !self.names_members && replication.default_is_majority.load(Ordering::Relaxed)
        {
            self.is_majority = true;
            self.synced = true;
        }
        Ok(())
    }

    /// Writes `writeConcernError` where what was done is not as sure as was asked for: the wait for
    /// the disk `failed`, or this set can never give it.
    pub(crate) fn write_error(
        &self,
        replication: &Replication,
        failed: Option<&Error>,
        reply: &mut Writer,
    ) {
        let failed = failed.map(|error| (error.code(), error.message().to_owned()));
        let Some((code, message)) = failed.or_else(|| self.unsatisfied(replication)) else {
            return;
        };
        let error = reply.begin_document("writeConcernError");
        reply.i32("code", code.0);
        reply.str("codeName", &code.name());
        reply.str("errmsg", &message);
        let info = reply.begin_document("errInfo");
        let concern = reply.begin_document("writeConcern");
        match self.mode {
            Some(mode) => reply.str("w", mode),
            None if self.is_majority => reply.str("w", "majority"),
            None if self.names_members => reply.i32("w", self.nodes as i32),
            None => reply.i32("w", 1),
        }
        if let Some(journal) = self.journal {
            reply.bool("j", journal);
        }
        reply.i32("wtimeout", i32::try_from(self.timeout_ms).unwrap_or(i32::MAX));
        reply.str("provenance", if self.given { "clientSupplied" } else { "implicitDefault" });
        reply.end(concern);
        reply.end(info);
        reply.end(error);
    }

    /// Whether this set can never give what was asked for.
    pub(crate) fn fails(&self, replication: &Replication) -> bool {
        self.unsatisfied(replication).is_some()
    }

    fn unsatisfied(&self, replication: &Replication) -> Option<(Code, String)> {
        if self.nodes > 1 {
            let text = "Not enough data-bearing nodes".to_owned();
            return Some((Code::UNSATISFIABLE_WRITE_CONCERN, text));
        }
        let mode = self.mode?;
        let config = replication.config()?;
        // A mode that the configuration has was checked to be one the member satisfies.
        if config.modes.contains_key(mode) {
            return None;
        }
        Some((
            Code::UNKNOWN_REPL_WRITE_CONCERN,
            format!("No write concern mode named '{mode}' found in replica set configuration"),
        ))
    }
}
