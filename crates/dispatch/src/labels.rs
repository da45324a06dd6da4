//! Error labels: what a driver may do about an error, by its code.

use errors::{Code, Error};

/// The command may be sent again.
pub const RETRYABLE_WRITE: &str = "RetryableWriteError";
/// The transaction may be tried again from its start.
pub const TRANSIENT_TRANSACTION: &str = "TransientTransactionError";
/// Beside the one above: this attempt changed nothing, so an earlier attempt's error tells more.
pub const NO_WRITES: &str = "NoWritesPerformed";

/// Every label that an error may carry.
pub const ALL: [&str; 8] = [
    RETRYABLE_WRITE,
    TRANSIENT_TRANSACTION,
    "UnknownTransactionCommitResult",
    "ResumableChangeStreamError",
    "NonResumableChangeStreamError",
    NO_WRITES,
    "RetryableError",
    "SystemOverloadedError",
];

/// The error with those of `labels` that are known: others cannot be laid on an error.
#[must_use]
pub fn labelled<T: AsRef<str>>(error: Error, labels: &[T]) -> Error {
    let is_given = |known: &&str| labels.iter().any(|label| label.as_ref() == *known);
    ALL.into_iter().filter(is_given).fold(error, Error::with_label)
}

/// The connection or the role changed: the same command may work elsewhere, or again.
pub fn is_retryable(code: Code) -> bool {
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
pub fn is_conflict(code: Code) -> bool {
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
pub fn labels_of(code: Code) -> Vec<&'static str> {
    let retryable = is_retryable(code);
    let transient = retryable || is_conflict(code) || code == Code::NO_SUCH_TRANSACTION;
    let transient = transient.then_some(TRANSIENT_TRANSACTION);
    transient.into_iter().chain(retryable.then_some(RETRYABLE_WRITE)).collect()
}
