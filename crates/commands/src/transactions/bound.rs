//! TokuMX's transactions: bound to a connection, without numbers.
//!
//! | from | to | by |
//! |---|---|---|
//! | none | live | `beginTransaction` |
//! | live | in a request's hands, and back | [`enter`], [`leave`] |
//! | live | gone | `commitTransaction`, `rollbackTransaction`, the connection's end, the server's |
//!
//! What is always true:
//! 1. A command that fails undoes itself and nothing else; the transaction stays live.
//! 2. No time ends it: it lives as long as its connection, as in TokuMX (ADR 12).
//! 3. A cursor that was opened in it ends with it.

use super::{is_end, load};

use crate::context::Context;
use bson::RawBsonRef;
use catalog::DEADLOCK;
use dispatch::arguments::Arguments;
use dispatch::rules::Class;
use errors::{Code, Error, Result};
use serverstate::{Connection, Phase, Running, ServerState, SessionState};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What changes more than documents, and cannot be undone with them.
const REFUSED: [&str; 29] = [
    "addPartition",
    "autoCompact",
    "backupStart",
    "checkpoint",
    "cloneCollectionAsCapped",
    "collMod",
    "compact",
    "convertToCapped",
    "dropPartition",
    "emptycapped",
    "endSessions",
    "fsync",
    "killAllSessions",
    "killAllSessionsByPattern",
    "killSessions",
    "profile",
    "reIndex",
    "replAddPartition",
    "replSetExpireOplog",
    "replSetFreeze",
    "replSetInitiate",
    "replSetMaintenance",
    "replSetReconfig",
    "replSetResizeOplog",
    "replSetStepDown",
    "replSetSyncFrom",
    "replTrimOplog",
    "setDefaultRWConcern",
    "validate",
];

/// Gives the request the connection's transaction, where there is one and the command works in
/// it. Refuses what must not run beside it.
pub(crate) fn enter(context: &mut Context<'_>) -> Result<()> {
    if !context.connection.has_bound() {
        return Ok(());
    }
    let name = context.command.name;
    if name == "dropDatabase" {
        let text = "Cannot dropDatabase in a multi-statement transaction.";
        return Err(Error::location(16777, text));
    }
    if REFUSED.contains(&name) {
        let text = "cannot run command inside of multi statement transaction";
        return Err(Error::location(16786, text));
    }
    if name == "find" && matches!(context.body.get("tailable"), Ok(Some(RawBsonRef::Boolean(true))))
    {
        let text = "a tailable cursor cannot be opened in a multi-statement transaction";
        return Err(Error::location(16812, text));
    }
    if is_end(context.command) || !works_inside(context) {
        return Ok(());
    }
    if context.read_state.is_some() {
        return Err(Error::new(
            Code::INVALID_OPTIONS,
            "a transaction of the connection reads its own state: no readConcern chooses one",
        ));
    }
    let Some(mut bound) = context.connection.bound.lock().take() else { return Ok(()) };
    let first = context.body.iter().next().and_then(Result::ok);
    if let Some((_, RawBsonRef::String(named))) = first
        && let Err(error) = load::refuse(&bound.txn, name, named, context.request.database)
    {
        *context.connection.bound.lock() = Some(bound);
        return Err(error);
    }
    bound.txn.begin_statement(lock_timeout(context.service, context.connection));
    let savepoint = Some(bound.txn.savepoint());
    context.bound = Some(Running { bound, savepoint });
    Ok(())
}

/// Whether a numbered commit or abort means the connection's transaction. Node's driver and mongosh number each of them,
/// whatever began the transaction, by the last number that their session has used, which is 0 where there was none. The
/// end of a session's transaction that was not begun here, as [`refuse_numbered`] says, has a number of its own.
pub(crate) fn is_meant(context: &Context<'_>, arguments: &Arguments<'_>) -> Result<bool> {
    let (Some(numbered), Some(session)) = (arguments.numbered, arguments.session) else {
        return Ok(false);
    };
    // Drivers end their sessions' transactions in `admin`: who asks elsewhere is told that the connection has none.
    if !context.connection.has_bound() && context.request.database == "admin" {
        return Ok(false);
    }
    let service = context.service;
    let known = |state: &SessionState| (state.number, matches!(state.phase, Phase::Open(_)));
    let (number, is_open) = match service.numbered.peek(session, known) {
        Some(known) => known,
        None => known(&SessionState::load(&service.session_records, session)?),
    };
    Ok(!is_open && (numbered.number == 0 || numbered.number == number))
}

/// Whether the connection has a transaction whose commit would store something.
pub(crate) fn has_written(connection: &Connection) -> bool {
    connection.bound.lock().as_ref().is_some_and(|bound| bound.txn.has_writes())
}

/// Refuses what a session does by number where the connection has a transaction of its own: one of
/// the two would not be in it.
pub(crate) fn refuse_numbered(context: &Context<'_>) -> Result<()> {
    let Some(numbered) = context.arguments.numbered.filter(|_| context.connection.has_bound())
    else {
        return Ok(());
    };
    let what = if numbered.in_transaction {
        "A statement of a session's transaction"
    } else {
        "A retryable write"
    };
    Err(Error::new(
        Code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
        format!(
            "{what} (txnNumber {}) cannot run on a connection that has begun a transaction with \
             beginTransaction",
            numbered.number
        ),
    ))
}

fn works_inside(context: &Context<'_>) -> bool {
    const OTHERS: [&str; 11] = [
        "abortLoad",
        "beginLoad",
        "commitLoad",
        "create",
        "createIndexes",
        "drop",
        "dropIndexes",
        "explain",
        "listCollections",
        "listIndexes",
        "renameCollection",
    ];
    context.command.class != Class::Other || OTHERS.contains(&context.command.name)
}

/// Gives the transaction back to its connection; a failed command is undone first.
pub(crate) fn leave(context: &mut Context<'_>, failed: bool) {
    let Some(Running { mut bound, savepoint }) = context.bound.take() else { return };
    if let (true, Some(savepoint)) = (failed, savepoint) {
        bound.txn.rollback_to(savepoint);
    }
    *context.connection.bound.lock() = Some(bound);
}

/// How long the connection's requests wait for locks, where `setClientLockTimeout` has said so.
pub(crate) fn own_lock_timeout(connection: &Connection) -> Option<Duration> {
    let own = connection.lock_timeout_ms.load(Ordering::Relaxed);
    u64::try_from(own).ok().map(Duration::from_millis)
}

/// How long the connection's requests wait for locks.
pub(crate) fn lock_timeout(service: &ServerState, connection: &Connection) -> Duration {
    let of_server = || service.catalog.engine().adjustable().lock_timeout();
    own_lock_timeout(connection).unwrap_or_else(of_server)
}

/// An error outside such a transaction: where the server cannot repeat a statement, a lock that
/// was lost is a conflict.
pub(crate) fn outside(error: Error) -> Error {
    if error.code() == DEADLOCK {
        return Error::new(Code::WRITE_CONFLICT, error.message());
    }
    error
}

/// An error inside, under the numbers that TokuMX's clients know.
pub(crate) fn inside(error: Error) -> Error {
    match error.code() {
        Code::LOCK_TIMEOUT => {
            Error::location(16759, "Lock not granted. Try restarting the transaction.")
        }
        Code::WRITE_CONFLICT => Error::location(
            16759,
            "Lock not granted. Try restarting the transaction. (Another transaction has changed \
             the document since this one began.)",
        ),
        Code::SNAPSHOT_UNAVAILABLE => Error::location(
            16768,
            "Accessed dictionary created after this transaction began. Try restarting the \
             transaction.",
        ),
        _ => error,
    }
}
