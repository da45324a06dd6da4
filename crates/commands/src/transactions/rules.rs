//! Which commands may carry a transaction number, and what may stand beside it.

use dispatch::arguments::Arguments;
use dispatch::read_concern::Level;
use dispatch::rules::Rules;
use errors::{Code, Error, Result};

/// What may run in a transaction.
const IN_TRANSACTION: [&str; 14] = [
    "abortTransaction",
    "aggregate",
    "bulkWrite",
    "commitTransaction",
    "create",
    "createIndexes",
    "delete",
    "distinct",
    "find",
    "findAndModify",
    "getMore",
    "insert",
    "killCursors",
    "update",
];

/// What can be sent twice under one number without a transaction.
const RETRYABLE: [&str; 5] = ["bulkWrite", "delete", "findAndModify", "insert", "update"];

/// Whether a command ends a transaction.
pub(crate) fn is_end(command: &Rules) -> bool {
    matches!(command.name, "commitTransaction" | "abortTransaction")
}

/// Refuses what may not be numbered, before the session is asked.
pub(crate) fn check(command: &Rules, arguments: &Arguments<'_>, database: &str) -> Result<()> {
    let Some(numbered) = arguments.numbered else { return Ok(()) };
    if !numbered.in_transaction {
        if RETRYABLE.contains(&command.name) {
            return Ok(());
        }
        return Err(Error::location(
            50768,
            format!(
                "txnNumber may only be provided for multi-document transactions and retryable \
                 write commands. autocommit:false was not provided, and {} is not a retryable \
                 write command.",
                command.name
            ),
        ));
    }
    let refused =
        |text: String| Err(Error::new(Code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION, text));
    if command.name == "count" {
        return refused(
            "Cannot run 'count' in a multi-document transaction. Please see \
             http://dochub.mongodb.org/core/transaction-count for a recommended alternative."
                .to_owned(),
        );
    }
    if !IN_TRANSACTION.contains(&command.name) {
        return refused(format!("Cannot run '{}' in a multi-document transaction.", command.name));
    }
    let ends = is_end(command);
    // It names its collections itself, and checks them.
    let names_others = command.name == "bulkWrite";
    if !ends && !names_others && matches!(database, "admin" | "config" | "local") {
        return refused(format!(
            "Cannot run command against the '{database}' database in a transaction."
        ));
    }
    let invalid = |text: &str| Err(Error::new(Code::INVALID_OPTIONS, text));
    if ends && numbered.starts {
        return refused(format!("Cannot start a transaction with {}", command.name));
    }
    if !ends && arguments.write_concern_given {
        return invalid("writeConcern is not allowed within a multi-statement transaction");
    }
    let concern = &arguments.read_concern;
    if concern.given && !numbered.starts {
        return invalid("Only the first command in a transaction may specify a readConcern");
    }
    match concern.level.unwrap_or_default() {
        Level::Local | Level::Majority | Level::Snapshot => Ok(()),
        Level::Available | Level::Linearizable => invalid(
            "The readConcern level must be either 'local' (default), 'majority' or 'snapshot' in \
             order to run in a transaction",
        ),
    }
}
