//! The first stages that tell of the server's collections and queries: `$listClusterCatalog`,
//! `$listCatalog`, `$queryStats`, `$querySettings`.
//!
//! Always true: nothing is sharded, no statistics of queries are gathered (MongoDB's default rate
//! is none of them) and no settings of queries can be made, so the last two have no documents.

use crate::admin::list_collections::{describe, kind_of, primary_spec};
use crate::context::Context;
use bson::{RawBsonRef, RawDocumentBuf};
use catalog::Collection;
use dispatch::fields::{Field, inner};
use dispatch::read_concern::Level;
use dispatch::writer::Writer;
use errors::{Code, Error, Result};
use query::AggregateTarget;
use std::sync::Arc;

/// The documents of the stage, where it is one of these.
pub(super) fn documents(
    context: &Context<'_>,
    target: &AggregateTarget,
    field: &Field<'_>,
) -> Result<Option<Vec<RawDocumentBuf>>> {
    match field.name {
        "$listClusterCatalog" => list_cluster_catalog(context, target, field),
        "$listCatalog" => list_catalog(context, target, field),
        "$queryStats" => {
            on_admin(target, field.name)?;
            check_query_stats(field)?;
            Ok(Vec::new())
        }
        "$querySettings" => {
            on_admin(target, field.name)?;
            let RawBsonRef::Document(spec) = field.value else {
                return Err(not_an_object(7_746_800, field));
            };
            for option in inner(spec, field.name) {
                let option = option?;
                match option.name {
                    "showDebugQueryShape" if option.is_null() => {}
                    "showDebugQueryShape" => drop(option.bool()?),
                    _ => return Err(option.unknown()),
                }
            }
            Ok(Vec::new())
        }
        _ => return Ok(None),
    }
    .map(Some)
}

fn on_admin(target: &AggregateTarget, name: &str) -> Result<()> {
    match target {
        AggregateTarget::Database(database) if database == "admin" => Ok(()),
        _ => Err(Error::new(
            Code::INVALID_NAMESPACE,
            format!("{name} must be run against the 'admin' database with {{aggregate: 1}}"),
        )),
    }
}

fn not_an_object(number: i32, field: &Field<'_>) -> Error {
    Error::location(number, format!("{} must take a nested object", field.name))
}

/// The collections of a database, of all where it is `admin`.
fn collections(context: &Context<'_>, database: &str) -> Vec<Arc<Collection>> {
    let catalog = &context.service.catalog;
    if database != "admin" {
        return catalog.collections(database);
    }
    catalog.databases().iter().flat_map(|database| catalog.collections(database)).collect()
}

fn list_cluster_catalog(
    context: &Context<'_>,
    target: &AggregateTarget,
    field: &Field<'_>,
) -> Result<Vec<RawDocumentBuf>> {
    let RawBsonRef::Document(spec) = field.value else {
        return Err(not_an_object(9_621_302, field));
    };
    let mut shards = false;
    for option in inner(spec, field.name) {
        let option = option?;
        match option.name {
            "shards" => shards = option.strict_bool()?,
            "balancingConfiguration" | "tracked" => drop(option.strict_bool()?),
            _ => return Err(option.unknown()),
        }
    }
    let AggregateTarget::Database(database) = target else {
        return Err(Error::location(
            9_621_301,
            "$listClusterCatalog must be run against a database with {aggregate: 1}",
        ));
    };
    if !matches!(context.arguments.read_concern.level, None | Some(Level::Local)) {
        return Err(Error::new(
            Code::INVALID_OPTIONS,
            "Aggregation stage $listClusterCatalog can only run with a readConcern 'local'",
        ));
    }
    let list = collections(context, database);
    Ok(list
        .iter()
        .map(|collection| {
            let namespace = collection.namespace();
            let mut writer = Writer::new();
            writer.str("db", namespace.database());
            writer.str("ns", namespace.as_str());
            for (name, value) in describe(collection).iter().flatten() {
                if name.as_str() != "name" {
                    writer.value(name.as_str(), value);
                }
            }
            writer.bool("sharded", false);
            if shards {
                let list = writer.begin_array("shards");
                writer.end(list);
            }
            writer.finish()
        })
        .collect())
}

fn list_catalog(
    context: &Context<'_>,
    target: &AggregateTarget,
    field: &Field<'_>,
) -> Result<Vec<RawDocumentBuf>> {
    if field.document().map_or(true, |spec| !spec.is_empty()) {
        return Err(Error::location(
            6_200_600,
            "The $listCatalog stage specification must be an empty object",
        ));
    }
    let list = match target {
        AggregateTarget::Collection(namespace) => {
            context.service.catalog.collection(namespace).into_iter().collect()
        }
        AggregateTarget::Database(database) => {
            on_admin(target, field.name)?;
            collections(context, database)
        }
    };
    Ok(list.iter().map(|collection| catalog_entry(collection)).collect())
}

fn catalog_entry(collection: &Collection) -> RawDocumentBuf {
    let namespace = collection.namespace();
    let options = collection.options();
    let mut writer = Writer::new();
    writer.str("db", namespace.database());
    writer.str("name", namespace.collection());
    writer.str("type", kind_of(collection));
    if let Some(view) = &options.view {
        writer.str("viewOn", &view.on);
        writer.value("pipeline", RawBsonRef::Array(&view.pipeline));
        writer.str("ns", namespace.as_str());
        return writer.finish();
    }
    let md = writer.begin_document("md");
    writer.str("ns", namespace.as_str());
    let shown = writer.begin_document("options");
    writer.uuid("uuid", &collection.uuid().bytes());
    for (name, value) in options.shown.iter().flatten() {
        writer.value(name.as_str(), value);
    }
    writer.end(shown);
    let list = writer.begin_array("indexes");
    let first = writer.begin_element(0);
    writer.document("spec", &primary_spec(collection));
    writer.bool("ready", true);
    writer.end(first);
    for (at, index) in collection.indexes().iter().enumerate() {
        let one = writer.begin_element(at + 1);
        writer.document("spec", &index.spec().shown);
        writer.bool("ready", true);
        writer.end(one);
    }
    writer.end(list);
    writer.end(md);
    writer.str("ns", namespace.as_str());
    writer.finish()
}

/// `{transformIdentifiers: {algorithm: "hmac-sha-256", hmacKey: <bytes>}}`.
fn check_query_stats(field: &Field<'_>) -> Result<()> {
    let RawBsonRef::Document(spec) = field.value else {
        return Err(Error::failed_to_parse("$queryStats value must be an object."));
    };
    for option in inner(spec, field.name) {
        let option = option?;
        if option.name != "transformIdentifiers" {
            return Err(option.unknown());
        }
        if option.is_null() {
            continue;
        }
        let mut algorithm = None;
        for part in inner(option.document()?, "$queryStats.transformIdentifiers") {
            let part = part?;
            match part.name {
                "algorithm" => algorithm = Some(part.str()?),
                "hmacKey" if matches!(part.value, RawBsonRef::Binary(_)) => {}
                "hmacKey" => return Err(part.wrong_type("binData")),
                _ => return Err(part.unknown()),
            }
        }
        match algorithm {
            Some("hmac-sha-256") => {}
            Some(other) => {
                return Err(Error::bad_value(format!(
                    "Enumeration value '{other}' for field \
                     '$queryStats.transformIdentifiers.algorithm' is not a valid value."
                )));
            }
            None => {
                return Err(dispatch::fields::missing(
                    "$queryStats.transformIdentifiers",
                    "algorithm",
                ));
            }
        }
    }
    Ok(())
}
