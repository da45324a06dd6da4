//! `setFeatureCompatibilityVersion`: which version of MongoDB the data is to stay compatible with.
//!
//! Always true: the version is stored before it is told to anybody. What this server stores is the same
//! under all of them, so that going back is always possible.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::{Error, Result};
use serverstate::feature_version::FEATURE_VERSIONS;
use serverstate::versions::FEATURE_VERSION;

pub(crate) const SET_FEATURE_VERSION: Command = Command::new(
    "setFeatureCompatibilityVersion",
    "Chooses the version that data is compatible with.",
    Needs::Cluster(&[Action::SetFeatureCompatibilityVersion]),
    run,
)
.admin_only()
.write_concern()
.durable();

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
    let Some(version) = FEATURE_VERSIONS.iter().find(|known| **known == version) else {
        return Err(Error::location(
            4_926_900,
            format!(
                "Invalid feature compatibility version value '{version}'; expected '{}'. See \
                 https://docs.mongodb.com/master/release-notes/8.0-compatibility/#feature-compatibility.",
                FEATURE_VERSIONS.join("' or '")
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
    context.service.store_feature_version(version)
}
