//! Error labels: what a driver may do about an error.

use super::is_end;
use crate::context::Context;
use errors::{Code, Error};

const RETRYABLE_WRITE: &str = "RetryableWriteError";
const TRANSIENT_TRANSACTION: &str = "TransientTransactionError";
/// Beside the one above: this attempt changed nothing, so an earlier attempt's error tells more.
const NO_WRITES: &str = "NoWritesPerformed";

/// The connection or the role changed: the same command may work elsewhere, or again.
fn is_retryable(code: Code) -> bool {
    matches!(
        code,
        Code::INTERRUPTED_AT_SHUTDOWN
            | Code::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE
            | Code::NOT_WRITABLE_PRIMARY
            | Code::NOT_PRIMARY_NO_SECONDARY_OK
            | Code::NOT_PRIMARY_OR_SECONDARY
            | Code::PRIMARY_STEPPED_DOWN
            | Code::SHUTDOWN_IN_PROGRESS
            | Code::HOST_NOT_FOUND
            | Code::HOST_UNREACHABLE
            | Code::NETWORK_TIMEOUT
            | Code::SOCKET_EXCEPTION
            | Code::EXCEEDED_TIME_LIMIT
    )
}

/// The transaction lost against another; from its start it may win.
fn is_conflict(code: Code) -> bool {
    matches!(
        code,
        Code::WRITE_CONFLICT
            | Code::LOCK_TIMEOUT
            | Code::SNAPSHOT_UNAVAILABLE
            | Code::SNAPSHOT_TOO_OLD
            | Code::PREPARED_TRANSACTION_IN_PROGRESS
    )
}

/// The labels that a code can carry: inside a transaction, and on a retryable write.
pub(crate) fn labels_of(code: Code) -> Vec<&'static str> {
    let retryable = is_retryable(code);
    let transient = retryable || is_conflict(code) || code == Code::NO_SUCH_TRANSACTION;
    let transient = transient.then_some(TRANSIENT_TRANSACTION);
    transient.into_iter().chain(retryable.then_some(RETRYABLE_WRITE)).collect()
}

/// The label that an error of this request's carries by its code.
pub(crate) fn label_of(context: &Context<'_>, code: Code) -> Option<&'static str> {
    let numbered = context.arguments.numbered?;
    if numbered.in_transaction {
        let ends = is_end(context.command);
        // Where other members were to know of the end, one of them may have committed it.
        let unsure = || ends && context.arguments.write_concern.fails(&context.service.replication);
        if is_conflict(code) || code == Code::NO_SUCH_TRANSACTION && !unsure() {
            return Some(TRANSIENT_TRANSACTION);
        }
        return match (is_retryable(code), ends) {
            (false, _) => None,
            (true, true) => Some(RETRYABLE_WRITE),
            (true, false) => Some(TRANSIENT_TRANSACTION),
        };
    }
    is_retryable(code).then_some(RETRYABLE_WRITE)
}

/// The label that a write concern error carries: what it is about has happened, so a transaction
/// need not start over for it.
pub(crate) fn label_of_concern(context: &Context<'_>, code: Code) -> Option<&'static str> {
    label_of(context, code).filter(|label| *label == RETRYABLE_WRITE)
}

/// Adds the labels to an error.
pub(crate) fn label(context: &Context<'_>, error: Error) -> Error {
    match label_of(context, error.code()) {
        Some(label) if !context.labels_given => {
            let error = error.with_label(label);
            let wrote = context.wrote || is_end(context.command);
            if label == RETRYABLE_WRITE && !wrote { error.with_label(NO_WRITES) } else { error }
        }
        _ => error,
    }
}
