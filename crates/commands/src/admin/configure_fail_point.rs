//! `configureFailPoint`: makes commands fail on purpose, on servers started for tests.

use crate::context::Context;
use crate::fail_point::{FailPoint, Kind, Mode};
use crate::fields::{Field, inner};
use crate::registry::Command;
use bson::{Document, RawBsonRef};
use errors::{Code, Error, Result};
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) const CONFIGURE_FAIL_POINT: Command = Command::new(
    "configureFailPoint",
    "Makes commands fail on purpose; only with `enableTestCommands`.",
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
        _ => {
            return Err(Error::new(
                Code::FAIL_POINT_SET_FAILED,
                format!("Failpoint '{name}' not found"),
            ));
        }
    };
    let mut point = FailPoint::new(kind);
    let mut mode = None;
    for field in &fields[1..] {
        match field.name {
            "mode" => mode = Some(parse_mode(field)?),
            "data" => parse_data(&mut point, field)?,
            _ => return Err(field.unknown()),
        }
    }
    point.mode = mode.ok_or_else(|| crate::fields::missing("configureFailPoint", "mode"))?;
    let met = service.fail_points.set(point);
    context.reply.long("count", met);
    Ok(())
}

fn parse_mode(field: &Field<'_>) -> Result<Mode> {
    match field.value {
        RawBsonRef::String("off") => return Ok(Mode::Off),
        RawBsonRef::String("alwaysOn") => return Ok(Mode::Always),
        RawBsonRef::Document(mode) => {
            if let Some(part) = inner(mode, "configureFailPoint.mode").next() {
                let part = part?;
                return match part.name {
                    "times" => Ok(Mode::Times(part.non_negative()?)),
                    "skip" => Ok(Mode::Skip(part.non_negative()?)),
                    _ => Err(part.not_yet()),
                };
            }
        }
        _ => {}
    }
    Err(Error::bad_value("unknown mode of a fail point"))
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
            "blockTimeMS" => point.block = Duration::from_millis(part.non_negative()?),
            "appName" => point.application = Some(part.str()?.to_owned()),
            "namespace" => point.namespace = Some(part.str()?.to_owned()),
            "writeConcernError" => {
                point.write_concern_error = Some(Document::try_from(part.document()?)?);
            }
            "errorExtraInfo" | "failInternalCommands" | "failAllCommands" | "threadName" => {
                return Err(part.not_yet());
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
