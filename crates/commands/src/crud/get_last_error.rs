//! `getLastError` and `resetError`: what became of the write before, for clients of the time when
//! writes had no replies.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::replication::write_concern;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use dispatch::fields::Field;
use errors::{Error, Result};
use serverstate::last_write::LastWrite;

pub(crate) const GET_LAST_ERROR: Command =
    Command::new("getLastError", "What became of the old-style write before.", Needs::Login, run)
        .aliases(&["getlasterror"])
        .write_concern()
        .legacy();

pub(crate) const RESET_ERROR: Command = Command::new(
    "resetError",
    "Forgets what became of the old-style write before.",
    Needs::Login,
    reset,
)
.aliases(&["reseterror"])
.legacy();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut last = match context.connection.last_write.get() {
        Some(last) => last.lock().clone(),
        None => LastWrite::default(),
    };
    let concern = asked(&fields[1..])?;
    let parsed = dispatch::write_concern::parse(
        context.command,
        &Field {
            place: "getLastError",
            name: "writeConcern",
            value: RawBsonRef::Document(&concern),
        },
    );
    let settled = parsed.and_then(|mut concern| {
        write_concern::settle(&mut concern, &context.service.replication)?;
        Ok(concern)
    });
    let synced = match settled {
        Ok(concern) => concern.synced,
        Err(error) => return Err(bad_concern(&error, &concern)),
    };
    if synced
        && last.error.is_none()
        && let Err(error) = context.service.catalog.sync()
    {
        // The write happened; that it is not durable is told where old clients look for it.
        last.error = Some((error.code().0, error.message().to_owned()));
    }
    write(context, &last);
    Ok(())
}

/// The write concern's parts stand among the command's own fields.
fn asked(fields: &[Field<'_>]) -> Result<RawDocumentBuf> {
    let mut concern = RawDocumentBuf::new();
    for field in fields {
        match field.name {
            _ if field.is_null() => {}
            "w" => concern.append(bson::raw::cstr!("w"), field.value),
            "wtimeout" => concern.append(bson::raw::cstr!("wtimeout"), field.value),
            "j" => concern.append(bson::raw::cstr!("j"), field.value),
            "fsync" => concern.append(bson::raw::cstr!("fsync"), field.value),
            "wOpTime" | "wElectionId" => {}
            // TokuMX's: transactions have times here, and no such number.
            "wgtid" => return Err(field.not_yet()),
            _ => return Err(field.unknown()),
        }
    }
    Ok(concern)
}

/// The write happened; only the waiting for it is refused, and old clients look for this field.
fn bad_concern(error: &Error, concern: &RawDocument) -> Error {
    let mut extra = bson::Document::new();
    if let Ok(concern) = bson::Document::try_from(concern) {
        extra.insert("badGLE", concern);
    }
    Error::new(error.code(), error.message()).with_extra(extra)
}

fn write(context: &mut Context<'_>, last: &LastWrite) {
    let reply = &mut context.reply;
    reply.i64("connectionId", context.connection.id() as i64);
    if let Some(updated) = last.updated_existing {
        reply.bool("updatedExisting", updated);
    }
    reply.i32("n", i32::try_from(last.n).unwrap_or(i32::MAX));
    if let Some(id) = &last.upserted {
        reply.value("upserted", id.as_raw_bson_ref());
    }
    match &last.error {
        None => {
            reply.i32("syncMillis", 0);
            reply.value("writtenTo", RawBsonRef::Null);
            reply.value("err", RawBsonRef::Null);
        }
        Some((code, message)) => {
            reply.str("err", message);
            reply.i32("code", *code);
            reply.str("codeName", &errors::Code(*code).name());
        }
    }
}

fn reset(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    if let Some(last) = context.connection.last_write.get() {
        *last.lock() = LastWrite::default();
    }
    Ok(())
}
