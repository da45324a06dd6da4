//! `collMod`: changes an index's visibility or lifetime, what documents must be like and how long
//! they live, what a view is of, and the storage shape of what is written from now on (`reIndex`
//! changes what is stored).

use crate::context::Context;
use crate::fields::{Field, inner};
use crate::registry::Command;
use bson::raw::{RawDocumentBuf, cstr};
use catalog::{IndexChange, IndexSelector, STORAGE_OPTIONS};
use errors::{Code, Error, Result};

pub(crate) const COLL_MOD: Command = Command::new(
    "collMod",
    "Changes a validator, a cap or how long documents live; hides an index.",
    run,
)
.api_v1()
.write_concern();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let namespace = context.namespace(&fields[0])?;
    let mut index = None;
    let mut validation = RawDocumentBuf::new();
    let mut shape = RawDocumentBuf::new();
    let (mut capped_size, mut capped_max) = (None, None);
    let (mut expire_after, mut time_series) = (None, None);
    let (mut view_on, mut pipeline) = (None, None);
    for field in &fields[1..] {
        match field.name {
            "index" => index = Some(parse_index(field)?),
            "validator" => {
                field.document()?;
                validation.append(cstr!("validator"), field.value);
            }
            "validationLevel" => validation.append(cstr!("validationLevel"), field.str()?),
            "validationAction" => validation.append(cstr!("validationAction"), field.str()?),
            name if STORAGE_OPTIONS.contains(&name) => append(&mut shape, field),
            "cappedSize" => capped_size = Some(field.i64()?),
            "cappedMax" => capped_max = Some(field.i64()?),
            "timeseries" => time_series = Some(field.document()?),
            "expireAfterSeconds" => expire_after = Some(field.value),
            "viewOn" => view_on = Some(field.str()?),
            "pipeline" => {
                field.documents()?;
                pipeline = Some(field.array()?);
            }
            "changeStreamPreAndPostImages" | "dryRun" => {
                return Err(field.not_yet());
            }
            _ => return Err(field.unknown()),
        }
    }
    context.at_collection(&namespace);
    let catalog = &context.service.catalog;
    let check = || context.check_interrupt();
    catalog.require(&namespace)?;
    if !validation.is_empty() {
        catalog.change_validation(&namespace, &validation, &check)?;
    }
    if (capped_size, capped_max) != (None, None) {
        catalog.change_cap(&namespace, capped_size, capped_max, &check)?;
    }
    if view_on.is_some() || pipeline.is_some() {
        catalog.change_view(&namespace, view_on, pipeline, &check)?;
    }
    if expire_after.is_some() || time_series.is_some() {
        catalog.change_layout(&namespace, expire_after, time_series, &check)?;
    }
    if !shape.is_empty() {
        catalog.reshape_indexes(&namespace, IndexSelector::Name("_id_"), &shape, &check)?;
    }
    let Some((selector, change, shape)) = index else { return Ok(()) };
    if !shape.is_empty() {
        catalog.reshape_indexes(&namespace, selector, &shape, &check)?;
    }
    if change.hidden.is_none() && change.expire_after_seconds.is_none() {
        return Ok(());
    }
    let old = catalog.change_index(&namespace, selector, change, &check)?;
    let reply = &mut context.reply;
    if let Some(new) = change.expire_after_seconds {
        if let Some(old) = old.expire_after_seconds {
            reply.i64("expireAfterSeconds_old", old);
        }
        reply.i64("expireAfterSeconds_new", new);
    }
    if let Some(new) = change.hidden {
        reply.bool("hidden_old", old.hidden.unwrap_or(false));
        reply.bool("hidden_new", new);
    }
    Ok(())
}

fn append(document: &mut RawDocumentBuf, field: &Field<'_>) {
    if let Ok(name) = <&bson::raw::CStr>::try_from(field.name) {
        document.append(name, field.value);
    }
}

/// Which index, what becomes of it, and its storage shape from now on.
fn parse_index<'a>(field: &Field<'a>) -> Result<(IndexSelector<'a>, IndexChange, RawDocumentBuf)> {
    let (mut name, mut key) = (None, None);
    let mut change = IndexChange::default();
    let mut shape = RawDocumentBuf::new();
    for part in inner(field.document()?, "collMod.index") {
        let part = part?;
        match part.name {
            "name" => name = Some(part.str()?),
            "keyPattern" => key = Some(part.document()?),
            "hidden" => change.hidden = Some(part.bool()?),
            "expireAfterSeconds" => change.expire_after_seconds = Some(part.i64()?),
            name if STORAGE_OPTIONS.contains(&name) => append(&mut shape, &part),
            "unique" | "prepareUnique" | "forceNonUnique" => return Err(part.not_yet()),
            _ => return Err(part.unknown()),
        }
    }
    let selector = match (name, key) {
        (Some(_), Some(_)) => {
            return Err(invalid("Cannot specify both key pattern and name."));
        }
        (None, None) => return Err(invalid("Must specify either index name or key pattern.")),
        (Some(name), None) => IndexSelector::Name(name),
        (None, Some(key)) => IndexSelector::Key(key),
    };
    if change.hidden.is_none() && change.expire_after_seconds.is_none() && shape.is_empty() {
        return Err(invalid("no expireAfterSeconds, hidden, unique, or prepareUnique field"));
    }
    Ok((selector, change, shape))
}

fn invalid(text: &str) -> Error {
    Error::new(Code::INVALID_OPTIONS, text)
}
