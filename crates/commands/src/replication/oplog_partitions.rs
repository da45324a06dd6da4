//! `replAddPartition`, `replTrimOplog` and `recoverToPoint` (TokuMX): refused, for the oplog is the log itself. It has no
//! partitions, it is cut by its age and length alone, and what it holds is not played onto older data.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::{Code, Error, Result};

pub(crate) const REPL_ADD_PARTITION: Command = Command::new(
    "replAddPartition",
    "Refused: the oplog has no partitions (TokuMX).",
    Needs::Cluster(&[Action::ReplSetResizeOplog]),
    refuse,
)
.admin_only();

pub(crate) const REPL_TRIM_OPLOG: Command = Command::new(
    "replTrimOplog",
    "Refused: the oplog goes by its age and length (TokuMX).",
    Needs::Cluster(&[Action::ReplSetResizeOplog]),
    refuse,
)
.admin_only();

pub(crate) const RECOVER_TO_POINT: Command = Command::new(
    "recoverToPoint",
    "Refused: `fern restore --to` makes the state of a moment from a backup and the log archive (TokuMX).",
    Needs::Cluster(&[Action::RecoverToPoint]),
    refuse,
)
.admin_only();

fn refuse(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let name = context.command.name;
    for field in fields.get(1..).unwrap_or_default() {
        if !matches!(field.name, "ts" | "gtid") {
            return Err(field.unknown());
        }
    }
    let instead = match name {
        "recoverToPoint" => {
            "`fern restore --to` makes the state of a moment, in a new directory, from a backup and the log archive \
                             (--logArchiveDir)"
        }
        _ => "the oplog has no partitions; replSetExpireOplog says how old it gets",
    };
    Err(Error::new(
        Code::NOT_IMPLEMENTED,
        format!("{name} is not supported by this version of FernDB: {instead}"),
    ))
}
