//! What `insert`, `update` and `delete` share: their batches' bounds and their replies' errors.

use super::super::diagnostics::hello::MAX_WRITE_BATCH;
use crate::context::Context;
use bson::RawDocument;
use catalog::Namespace;
use dispatch::fields::{Documents, Field};
use errors::{Code, Error, Result};
use query::WriteError;
use std::ops::Deref;

/// What a write command brings.
pub(crate) enum Batch<'a> {
    /// In a section of its own.
    Section(&'a [&'a RawDocument]),
    /// In the body.
    Body(Documents<'a>),
}

impl<'a> Deref for Batch<'a> {
    type Target = [&'a RawDocument];

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Section(documents) => documents,
            Self::Body(documents) => documents,
        }
    }
}

/// The batch of a write command: a kind 1 section or an array in the body, one or the other.
pub(crate) fn batch<'a>(
    context: &Context<'a>,
    field: Option<&Field<'a>>,
    name: &str,
) -> Result<Batch<'a>> {
    let batch = match (context.sequence(name), field) {
        (Some(_), Some(_)) => {
            return Err(Error::location(
                40413,
                format!("BSON field '{}.{name}' is a duplicate field", context.command.name),
            ));
        }
        (Some(section), None) => Batch::Section(section),
        (None, Some(field)) => Batch::Body(field.few_documents()?),
        (None, None) => return Err(dispatch::fields::missing(context.command.name, name)),
    };
    if batch.is_empty() || batch.len() > MAX_WRITE_BATCH as usize {
        return Err(Error::new(
            Code::INVALID_LENGTH,
            format!(
                "Write batch sizes must be between 1 and {MAX_WRITE_BATCH}. Got {} operations.",
                batch.len()
            ),
        ));
    }
    Ok(batch)
}

/// The errors of statements that are for another collection than the one there: of all, or of the
/// first where the others wait for it.
pub(crate) fn wrong_collection(
    context: &mut Context<'_>,
    namespace: &Namespace,
    statements: usize,
    ordered: bool,
) -> Vec<WriteError> {
    let Err(error) = context.check_uuid(namespace) else { return Vec::new() };
    let tried = if ordered { 1 } else { statements };
    (0..tried).map(|index| WriteError { index, error: error.clone() }).collect()
}

/// Writes `writeErrors`, where there are any.
pub(crate) fn write_errors(context: &mut Context<'_>, errors: &[WriteError]) {
    if errors.is_empty() {
        return;
    }
    context.statement_failed = true;
    let reply = &mut context.reply;
    let list = reply.begin_array("writeErrors");
    for (at, failure) in errors.iter().enumerate() {
        let one = reply.begin_element(at);
        reply.i32("index", failure.index as i32);
        reply.i32("code", failure.error.code().0);
        if let Some(extra) = failure.error.extra() {
            reply.fields_of(extra);
        }
        if let Some(info) = failure.error.info() {
            reply.bson("errInfo", &bson::Bson::Document(info.clone()));
        }
        reply.str("errmsg", failure.error.message());
        reply.end(one);
    }
    reply.end(list);
}
