//! `collMod`: changes an index's visibility or lifetime or makes it unique, what documents must be like and how long
//! they live, what a view is of, and the storage shape of what is written from now on (`reIndex`
//! changes what is stored).

use super::create::{check_expiry, check_view_pipeline};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::security::asks;
use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};
use catalog::{Collection, IndexSelector, Namespace};
use dispatch::fields::{Field, inner};
use errors::{Code, Error, Result};
use indexkeys::{IndexChange, STORAGE_OPTIONS, same_pattern};

pub(crate) const COLL_MOD: Command = Command::new(
    "collMod",
    "Changes a validator, a cap or how long documents live; hides an index, makes it unique.",
    Needs::Computed(asks::coll_mod),
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
    let mut images = None;
    let mut dry_run = false;
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
                pipeline = Some(catalog::view_pipeline(Some(field.array()?))?);
            }
            "dryRun" => dry_run = field.bool()?,
            "changeStreamPreAndPostImages" => images = Some(field.document()?),
            // A collection has no encrypted fields from the beginning, and gets none later.
            "encryptedFields" => return Err(field.not_yet()),
            _ => return Err(field.unknown()),
        }
    }
    if context.admitted.is_access_control_on && view_on.is_some() != pipeline.is_some() {
        // What the view would show then was not judged.
        return Err(invalid(
            "Must specify both 'viewOn' and 'pipeline' when modifying a view and auth is enabled",
        ));
    }
    context.at_collection(&namespace);
    context.check_uuid(&namespace)?;
    let catalog = &context.service.catalog;
    let check = || context.check_interrupt();
    let collection = catalog.require_newest(&namespace)?;
    if let Some(index) = &index {
        if collection.is_view() {
            return Err(invalid("option not supported on a view: index"));
        }
        // Nothing is changed where the index is not there.
        check_index(&collection, index.selector)?;
    }
    if let Some(RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_)) = expire_after
    {
        check_expiry(context, expire_after.and_then(bsonval::types::option_integer))?;
    }
    if collection.options().time_series.is_some() {
        // MongoDB passes over them: there is no cap to change.
        (capped_size, capped_max) = (None, None);
    }
    if dry_run {
        return match index {
            Some(Index { selector, change, unique: true, .. })
                if change.hidden.is_none() && change.expire_after_seconds.is_none() =>
            {
                catalog.make_unique(&namespace, selector, true, &check).map(drop)
            }
            _ => {
                Err(invalid("The dryRun mode is only supported when converting an index to unique"))
            }
        };
    }
    if fields.len() == 1 {
        return catalog.change_nothing(&namespace);
    }
    if !validation.is_empty() {
        catalog.change_validation(&namespace, &validation, &check)?;
    }
    if (capped_size, capped_max) != (None, None) {
        catalog.change_cap(&namespace, capped_size, capped_max, &check)?;
    }
    if view_on.is_some() || pipeline.is_some() {
        if let Some(pipeline) = &pipeline {
            check_view_pipeline(&namespace, pipeline)?;
        }
        catalog.change_view(&namespace, view_on, pipeline.as_deref(), &check)?;
    }
    if expire_after.is_some() || time_series.is_some() {
        catalog.change_layout(&namespace, expire_after, time_series, &check)?;
    }
    if let Some(images) = images {
        catalog.change_images(&namespace, images, &check)?;
    }
    if !shape.is_empty() {
        let documents = catalog.require_newest(&namespace)?;
        let documents = IndexSelector::Name(documents.primary_name());
        catalog.reshape_indexes(&namespace, documents, &shape, &check)?;
    }
    match index {
        Some(index) => change_index(context, &namespace, index),
        None => Ok(()),
    }
}

/// Refuses an index that is not there.
fn check_index(collection: &Collection, selector: IndexSelector<'_>) -> Result<()> {
    let indexes = collection.indexes();
    let (found, shown) = match selector {
        IndexSelector::All => return Ok(()),
        IndexSelector::Name(name) => {
            let on_id = name == collection.options().id_index_name();
            let on_id = on_id || name == collection.primary_name();
            (on_id || indexes.iter().any(|index| index.spec().name == name), name.to_owned())
        }
        IndexSelector::Key(key) => {
            let on_id = matches!(key.iter().next(), Some(Ok((path, _))) if path.as_str() == "_id");
            let mut all = collection.primary_index().into_iter().chain(indexes);
            let found = all.any(|index| same_pattern(&index.spec().key, key));
            (on_id || found, bsonval::show::document(key))
        }
    };
    if found {
        return Ok(());
    }
    let namespace = collection.namespace();
    Err(Error::new(Code::INDEX_NOT_FOUND, format!("cannot find index {shown} for ns {namespace}")))
}

/// Changes an index, and says what of it is new.
fn change_index(context: &mut Context<'_>, namespace: &Namespace, index: Index<'_>) -> Result<()> {
    let Index { selector, change, unique, shape } = index;
    let catalog = &context.service.catalog;
    let check = || context.check_interrupt();
    if !shape.is_empty() {
        catalog.reshape_indexes(namespace, selector, &shape, &check)?;
    }
    let old = if changes_nothing(change) {
        IndexChange::default()
    } else {
        catalog.change_index(namespace, selector, change, &check)?
    };
    let made_unique = unique && catalog.make_unique(namespace, selector, false, &check)?;
    let reply = &mut context.reply;
    if let Some(new) = change.expire_after_seconds {
        if let Some(old) = old.expire_after_seconds {
            reply.i64("expireAfterSeconds_old", old);
        }
        reply.i64("expireAfterSeconds_new", new);
    }
    // What was so before is no change, and not told.
    if let Some(new) = change.hidden.filter(|new| old.hidden != Some(*new)) {
        reply.bool("hidden_old", !new);
        reply.bool("hidden_new", new);
    }
    if let Some(new) = change.prepare_unique.filter(|new| old.prepare_unique != Some(*new)) {
        reply.bool("prepareUnique_old", !new);
        reply.bool("prepareUnique_new", new);
    }
    if made_unique {
        reply.bool("unique_new", true);
    }
    Ok(())
}

/// What `index` asks for.
struct Index<'a> {
    selector: IndexSelector<'a>,
    change: IndexChange,
    /// Make it unique.
    unique: bool,
    /// Its storage shape from now on.
    shape: RawDocumentBuf,
}

fn changes_nothing(change: IndexChange) -> bool {
    change.hidden.is_none()
        && change.expire_after_seconds.is_none()
        && change.prepare_unique.is_none()
}

fn append(document: &mut RawDocumentBuf, field: &Field<'_>) {
    if let Ok(name) = <&bson::raw::CStr>::try_from(field.name) {
        document.append(name, field.value);
    }
}

fn parse_index<'a>(field: &Field<'a>) -> Result<Index<'a>> {
    let (mut name, mut key, mut unique) = (None, None, false);
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
            "prepareUnique" => change.prepare_unique = Some(part.bool()?),
            "unique" if part.bool()? => unique = true,
            "unique" => {
                return Err(Error::bad_value("Cannot make index non-unique"));
            }
            "forceNonUnique" => return Err(part.not_yet()),
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
    let others = unique || change.hidden.is_some() || change.expire_after_seconds.is_some();
    if change.prepare_unique.is_some() && others {
        return Err(invalid("prepareUnique cannot be combined with any other modification."));
    }
    if changes_nothing(change) && !unique && shape.is_empty() {
        return Err(invalid("no expireAfterSeconds, hidden, unique, or prepareUnique field"));
    }
    Ok(Index { selector, change, unique, shape })
}

fn invalid(text: &str) -> Error {
    Error::new(Code::INVALID_OPTIONS, text)
}
