//! `configureFailPoint`: makes commands fail on purpose, on servers started for tests.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::{Document, RawBsonRef};
use dispatch::fields::{Field, inner};
use errors::{Code, Error, Result};
use serverstate::ServerState;
use serverstate::fail_point::{FailPoint, Kind, Mode};
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) const CONFIGURE_FAIL_POINT: Command = Command::new(
    "configureFailPoint",
    "Makes commands fail on purpose; only with `enableTestCommands`.",
    Needs::Cluster(&[Action::SetParameter]),
    run,
)
.admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let service = context.service;
    if !service.test_commands.load(Ordering::Relaxed) {
        return Err(Error::new(
            Code::COMMAND_NOT_FOUND,
            format!("no such command: '{}'", context.command.name),
        ));
    }
    let name = fields[0].str()?;
    let kind = match name {
        "failCommand" => Kind::Command,
        "failGetMoreAfterCursorCheckout" => Kind::GetMore,
        "onPrimaryTransactionalWrite" => Kind::BeforeCommit,
        "maxTimeAlwaysTimeOut" => Kind::TimeOut,
        "maxTimeNeverTimeOut" => Kind::NoTimeOut,
        "stopReplProducer" => Kind::NoEntries,
        _ => {
            return Err(Error::new(
                Code::FAIL_POINT_SET_FAILED,
                format!("Failpoint '{name}' not found"),
            ));
        }
    };
    let mut point = FailPoint::new(kind);
    point.random = service.os.entropy.next_u64();
    let mut mode = None;
    for field in &fields[1..] {
        match field.name {
            "mode" => mode = Some(parse_mode(field)?),
            "data" => parse_data(&mut point, field)?,
            _ => return Err(field.unknown()),
        }
    }
    point.mode = mode.ok_or_else(|| {
        Error::new(Code::ILLEGAL_OPERATION, "When setting a failpoint, you must supply a 'mode'")
    })?;
    if point.blocks && point.block.is_none() {
        return Err(Error::new(
            Code::INVALID_OPTIONS,
            "'blockTimeMS' must be specified if 'blockConnection' is true",
        ));
    }
    if kind == Kind::NoEntries {
        take_entries(service, &point, fields)?;
    }
    let met = service.fail_points.set(point);
    context.reply.long("count", met);
    Ok(())
}

/// `stopReplProducer`: it is on or off, and knows nothing else.
fn take_entries(service: &ServerState, point: &FailPoint, fields: &[Field<'_>]) -> Result<()> {
    if !matches!(point.mode, Mode::Off | Mode::Always) {
        return Err(Error::bad_value("'stopReplProducer' is 'alwaysOn' or 'off'"));
    }
    if let Some(data) = fields.iter().find(|field| field.name == "data") {
        return Err(data.unknown());
    }
    let membership = service.replication.membership().ok_or_else(|| {
        let text = "'stopReplProducer' is for members of a replica set of several";
        Error::new(Code::NO_REPLICATION_ENABLED, text)
    })?;
    membership.set_takes_entries(point.mode == Mode::Off);
    Ok(())
}

fn parse_mode(field: &Field<'_>) -> Result<Mode> {
    let mode = match field.value {
        RawBsonRef::String("off") => return Ok(Mode::Off),
        RawBsonRef::String("alwaysOn") => return Ok(Mode::Always),
        RawBsonRef::String(other) => {
            return Err(Error::bad_value(format!("unknown mode: {other}")));
        }
        RawBsonRef::Document(mode) => mode,
        _ => return Err(Error::type_mismatch("'mode' must be a string or JSON object")),
    };
    for part in inner(mode, "configureFailPoint.mode") {
        let part = part?;
        match part.name {
            "times" => return count(&part).map(Mode::Times),
            "skip" => return count(&part).map(Mode::Skip),
            "activationProbability" => {
                let RawBsonRef::Double(probability) = part.value else {
                    return Err(Error::type_mismatch(
                        "the 'activationProbability' option to 'mode' must be a double between 0 and 1",
                    ));
                };
                if !(0.0..=1.0).contains(&probability) {
                    return Err(Error::bad_value(format!(
                        "activationProbability must be between 0.0 and 1.0; found {probability}"
                    )));
                }
                return Ok(Mode::Sometimes(probability));
            }
            _ => {}
        }
    }
    Err(Error::bad_value(
        "'mode' must be one of 'off', 'alwaysOn', 'times', 'skip' and 'activationProbability'",
    ))
}

fn count(field: &Field<'_>) -> Result<u64> {
    let number = field.i64()?;
    u64::try_from(number).map_err(|_| {
        Error::bad_value(format!("'{}' option to 'mode' must be positive", field.name))
    })
}

fn parse_data(point: &mut FailPoint, field: &Field<'_>) -> Result<()> {
    for part in inner(field.document()?, "configureFailPoint.data") {
        let part = part?;
        match part.name {
            "failCommands" => point.commands = strings(&part)?,
            "errorCode" | "failBeforeCommitExceptionCode" => {
                point.code = Some(part.i64()? as i32);
            }
            "errorLabels" => point.labels = Some(strings(&part)?),
            "closeConnection" => {
                point.hang_up = part.bool()?;
                point.close_by_default = false;
            }
            "blockConnection" => point.blocks = part.bool()?,
            "blockTimeMS" => point.block = Some(Duration::from_millis(part.non_negative()?)),
            "appName" => point.application = Some(part.str()?.to_owned()),
            "namespace" => point.namespace = Some(part.str()?.to_owned()),
            "writeConcernError" => {
                point.write_concern_error = Some(Document::try_from(part.document()?)?);
            }
            "errorExtraInfo" => point.extra = Some(Document::try_from(part.document()?)?),
            "failAllCommands" => point.all_commands = part.bool()?,
            "threadName" => point.connection = Some(part.str()?.to_owned()),
            // Those of other members and routers, which do not connect here yet, and of the server
            // itself, which sends itself none: clients' commands fail in any case.
            "failInternalCommands" | "failLocalClients" => {
                part.bool()?;
            }
            _ => return Err(part.unknown()),
        }
    }
    Ok(())
}

fn strings(field: &Field<'_>) -> Result<Vec<String>> {
    let mut list = Vec::new();
    for value in field.array()? {
        match value? {
            RawBsonRef::String(text) => list.push(text.to_owned()),
            _ => return Err(field.wrong_type("string")),
        }
    }
    Ok(list)
}
