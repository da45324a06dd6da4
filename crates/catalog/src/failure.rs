//! The engine's failures in the client's words.
//!
//! Always true: [`is_retryable`] recognises exactly what a statement may simply repeat.

use engine::Oversized;
use errors::{Code, Error};

/// TokuMX's number for a lock that two transactions would have waited for in a circle.
pub const DEADLOCK: Code = Code::location(16760);

/// A statement waits for a lock on no thread, and is run again ([`engine::Deferring`]); no client hears of it.
pub const QUEUED: Code = Code::location(9_016_799);

/// What a failed engine call means to a client.
pub fn from_engine(error: engine::Error) -> Error {
    use engine::Error as E;
    match error {
        E::WriteConflict => Error::new(
            Code::WRITE_CONFLICT,
            "Caused by :: Write conflict during plan execution and yielding is disabled. :: \
             Please retry your operation or multi-document transaction.",
        ),
        E::Deadlock => Error::new(
            DEADLOCK,
            "Deadlock detected during lock acquisition. Try restarting the transaction.",
        ),
        E::Queued => Error::new(QUEUED, "the statement waits for a lock, and is to be run again"),
        E::LockTimeout { waited_ms } => Error::new(
            Code::LOCK_TIMEOUT,
            format!("Lock not granted within {waited_ms} ms. Try restarting the transaction."),
        ),
        E::NoSuchDictionary(_) => snapshot_unavailable(),
        E::TooLarge { what, size, limit } => Error::new(
            match what {
                Oversized::Key | Oversized::Value | Oversized::Note => Code::BSON_OBJECT_TOO_LARGE,
                Oversized::Transaction | Oversized::LockSet => Code::TRANSACTION_TOO_LARGE,
            },
            format!("{what} of {size} bytes exceeds the limit of {limit} bytes"),
        ),
        // Where a wait was ended, the operation says why.
        E::Interrupted => limits::check_wait()
            .err()
            .unwrap_or_else(|| Error::new(Code::INTERRUPTED, "operation was interrupted")),
        // Another member is the primary by now, or may be.
        E::Overwritten => Error::new(
            Code::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE,
            "operation was interrupted: another member's writes have taken the place of its own",
        ),
        E::NotLeader => Error::new(Code::NOT_WRITABLE_PRIMARY, "not primary"),
        E::Undecided => limits::check_wait().err().unwrap_or_else(|| {
            Error::new(
                Code::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE,
                "operation was interrupted: it is not known whether a majority has its writes",
            )
        }),
        E::NotInTime => {
            Error::new(Code::WRITE_CONCERN_TIMEOUT, "waiting for replication timed out")
        }
        E::NoSpace(text) => Error::new(Code::OUT_OF_DISK_SPACE, format!("No space left: {text}")),
        E::Stopped(text) => {
            Error::new(Code::SHUTDOWN_IN_PROGRESS, format!("The storage engine stopped: {text}"))
        }
        other => Error::new(Code::INTERNAL_ERROR, other.to_string()),
    }
}

/// A collection that was looked up is not the one of the state that is read: it was created or
/// dropped in between.
pub fn snapshot_unavailable() -> Error {
    Error::new(
        Code::SNAPSHOT_UNAVAILABLE,
        "Unable to read from a snapshot due to pending collection catalog changes; please retry \
         the operation.",
    )
}

/// Whether a single statement that failed so may start over: nothing of it was kept. One that has
/// waited for a lock as long as it may has not: it would wait again for whoever holds it, as long as
/// that lives.
pub fn is_retryable(error: &Error) -> bool {
    matches!(error.code(), Code::WRITE_CONFLICT | DEADLOCK)
}
