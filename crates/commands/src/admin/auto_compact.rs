//! `autoCompact`: compaction in the background, of all collections in turn.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::{Error, Result};
use serverstate::auto_compact::CompactionRequest;

pub(crate) const AUTO_COMPACT: Command = Command::new(
    "autoCompact",
    "Compacts all collections in the background, or stops that.",
    Needs::Cluster(&[Action::Compact]),
    run,
)
.admin_only();

/// What a collection could give back at least before it is compacted, unless the client says
/// otherwise.
const FREE_SPACE_MB: i64 = 20;

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let enable = fields[0].bool()?;
    let mut wanted = CompactionRequest { free_space_mb: FREE_SPACE_MB, once: false };
    for field in fields[1..].iter().filter(|field| !field.is_null()) {
        match field.name {
            "freeSpaceTargetMB" => wanted.free_space_mb = free_space_target(field)?,
            "runOnce" => wanted.once = field.bool()?,
            _ => return Err(field.unknown()),
        }
    }
    let service = context.service;
    if enable {
        service.auto_compact.enable(&service.os, &service.catalog, wanted)
    } else {
        service.auto_compact.disable();
        Ok(())
    }
}

/// What must be free at least for a collection to be compacted, in megabytes.
pub(super) fn free_space_target(field: &Field<'_>) -> Result<i64> {
    match whole(field)? {
        target if target >= 1 => Ok(target),
        target => Err(Error::bad_value(format!(
            "BSON field 'freeSpaceTargetMB' value must be >= 1, actual value '{target}'"
        ))),
    }
}

/// Doubles are cut towards zero; decimals are rounded, a half to the even number.
fn whole(field: &Field<'_>) -> Result<i64> {
    if let bson::RawBsonRef::Decimal128(number) = field.value
        && let Ok(number) = number.to_string().parse::<f64>()
    {
        return Ok(number.round_ties_even() as i64);
    }
    field.i64()
}
