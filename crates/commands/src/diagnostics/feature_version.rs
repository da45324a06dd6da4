//! `setFeatureCompatibilityVersion`: which version of MongoDB the data is to stay compatible with.
//!
//! Always true: the version is stored before it is told to anybody. What this server stores is the same
//! under all of them, so that going back is always possible.

use crate::command::Command;
use crate::context::Context;
use crate::service::Service;
use crate::versions::FEATURE_VERSION;
use bson::{RawDocumentBuf, doc};
use catalog::{Catalog, Namespace};
use dispatch::fields::Field;
use errors::{Error, Result};
use std::sync::Arc;

pub(crate) const SET_FEATURE_VERSION: Command = Command::new(
    "setFeatureCompatibilityVersion",
    "Chooses the version that data is compatible with.",
    run,
)
.admin_only()
.write_concern()
.durable();

/// The versions that MongoDB's release of this version knows, the oldest first.
const VERSIONS: [&str; 3] = ["7.0", "7.3", FEATURE_VERSION];

fn namespace() -> Result<Namespace> {
    Namespace::new("admin", "system.version")
}

/// The stored version; this release's where none is.
pub(crate) fn load(catalog: &Catalog) -> Result<&'static str> {
    for stored in catalog.system_documents(&namespace()?)? {
        if matches!(stored.get_str("_id"), Ok("featureCompatibilityVersion"))
            && let Ok(version) = stored.get_str("version")
            && let Some(known) = VERSIONS.iter().find(|known| **known == version)
        {
            return Ok(known);
        }
    }
    Ok(FEATURE_VERSION)
}

fn store(catalog: &Arc<Catalog>, version: &str) -> Result<()> {
    let document = doc! { "_id": "featureCompatibilityVersion", "version": version };
    let document = RawDocumentBuf::try_from(&document)?;
    catalog.put_system_document(&namespace()?, &document)
}

impl Service {
    /// The version that data is compatible with.
    pub(crate) fn feature_version(&self) -> &'static str {
        *self.feature_version.lock()
    }
}

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let version = fields[0].str()?;
    let mut confirmed = false;
    for field in fields[1..].iter().filter(|field| !field.is_null()) {
        match field.name {
            "confirm" => confirmed = field.bool()?,
            // Of routers and upgrades of several members.
            "downgradeOnDiskChanges" | "fromConfigServer" => {
                if field.bool()? {
                    return Err(field.not_yet());
                }
            }
            _ => return Err(field.unknown()),
        }
    }
    let Some(version) = VERSIONS.iter().find(|known| **known == version) else {
        return Err(Error::location(
            4_926_900,
            format!(
                "Invalid feature compatibility version value '{version}'; expected '{}'. See \
                 https://docs.mongodb.com/master/release-notes/8.0-compatibility/#feature-compatibility.",
                VERSIONS.join("' or '")
            ),
        ));
    };
    if !confirmed {
        let change = if *version == FEATURE_VERSION { "upgraded" } else { "downgraded" };
        return Err(Error::location(
            7_369_100,
            format!(
                "Once you have {change} to {version}, you may not be able to go back without support. \
                 To continue, set 'confirm' to 'true'"
            ),
        ));
    }
    // Held while it is stored, so that two changes are stored in the order they are told in.
    let mut held = context.service.feature_version.lock();
    if *held != *version {
        store(&context.service.catalog, version)?;
        *held = version;
    }
    Ok(())
}
