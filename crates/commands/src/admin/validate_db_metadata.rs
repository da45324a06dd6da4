//! `validateDBMetadata`: what is stored that API version 1 would refuse, collection by collection.
//!
//! Always true: nothing is opened or changed; a database or collection that is not there has nothing to
//! be refused.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use crate::security::asks;
use bson::{RawBsonRef, doc};
use dispatch::fields::{Field, inner, missing};
use errors::{Code, Result};

pub(crate) const VALIDATE_DB_METADATA: Command = Command::new(
    "validateDBMetadata",
    "Names what is stored that API version 1 does not have.",
    Needs::Computed(asks::validate_db_metadata),
    run,
);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let (mut strict, mut database, mut collection) = (None, None, None);
    for field in fields[1..].iter().filter(|field| !field.is_null()) {
        match field.name {
            "apiParameters" => strict = Some(parse_api(field)?),
            "db" => {
                let name = field.str()?;
                catalog::check_database(name)?;
                database = Some(name);
            }
            "collection" => collection = Some(field.str()?),
            _ => return Err(field.unknown()),
        }
    }
    let strict = strict.ok_or_else(|| missing("validateDBMetadata", "apiParameters"))?;
    let catalog = &context.service.catalog;
    let mut errors = Vec::new();
    let databases = if strict { catalog.databases() } else { Vec::new() };
    for name in databases.iter().filter(|name| database.is_none_or(|wanted| wanted == **name)) {
        for found in catalog.collections(name) {
            let namespace = found.namespace();
            if found.is_view() || collection.is_some_and(|wanted| wanted != namespace.collection())
            {
                continue;
            }
            for index in found.indexes() {
                let shown = &index.spec().shown;
                let is_text = shown.get_document("key").is_ok_and(|key| {
                    key.iter().flatten().any(|(_, kind)| matches!(kind, RawBsonRef::String("text")))
                });
                let is_sparse = shown.get_bool("sparse").unwrap_or(false);
                if is_text || is_sparse {
                    errors.push(doc! {
                        "ns": namespace.as_str(),
                        "code": Code::API_STRICT_ERROR.0,
                        "codeName": Code::API_STRICT_ERROR.name().into_owned(),
                        "errmsg": format!(
                            "The index with name {} is not allowed in API version 1.",
                            shown.get_str("name").unwrap_or_default()
                        ),
                    });
                }
            }
        }
    }
    let list = context.reply.begin_array("apiVersionErrors");
    for (at, error) in errors.iter().enumerate() {
        let one = context.reply.begin_element(at);
        context.reply.fields_of(error);
        context.reply.end(one);
    }
    context.reply.end(list);
    Ok(())
}

/// Whether the strict form of version 1 is asked about; other versions refuse nothing.
fn parse_api(field: &Field<'_>) -> Result<bool> {
    let (mut version, mut strict) = (None, false);
    for part in inner(field.document()?, "validateDBMetadata.apiParameters") {
        let part = part?;
        match part.name {
            _ if part.is_null() => {}
            "version" => version = Some(part.str()?),
            "strict" => strict = part.bool()?,
            // Nothing of version 1 is deprecated.
            "deprecationErrors" => {
                part.bool()?;
            }
            _ => return Err(part.unknown()),
        }
    }
    let version = version.ok_or_else(|| missing("validateDBMetadata.apiParameters", "version"))?;
    Ok(strict && version == "1")
}
