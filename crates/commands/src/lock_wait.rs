//! Requests that wait for a lock on no thread: they have done nothing, are laid down, and are run again from their
//! beginning when the lock was granted, when its time or theirs is over, or when they are killed.
//!
//! Always true: it is one operation all the while, which `currentOp` shows and `killOp` ends; its place in the lock's
//! queue stays, and what was granted stays granted until it was run again. Where its connection ends, it does.

use crate::context::Context;
use dispatch::{MakeWaker, Reply};
use serverstate::{Connection, LockWaiting};
use std::sync::Arc;
use std::time::Duration;

/// The commands whose first lock may be waited for so: each of their statements is a transaction of its own, and what
/// they have done before the first lock is forgotten.
const COMMANDS: [&str; 4] = ["delete", "findAndModify", "insert", "update"];

/// Whether a request may wait for its first lock on no thread. One in a transaction holds locks; one that nobody hears
/// the answer of must not be lost with its connection; and the audit log tells of each run.
pub(crate) fn may_wait_without_thread(context: &Context<'_>) -> bool {
    context.request.waker.is_some()
        && !context.inside
        && !context.service.audits
        && COMMANDS.contains(&context.command.name)
}

/// Lays a request down.
pub(crate) fn park(connection: &Connection, waiting: LockWaiting, waker: MakeWaker<'_>) -> Reply {
    let call = (waker.0)();
    let until = waiting.wait.until().unwrap_or_default();
    let slot = &connection.operation;
    let until = slot.deadline().map_or(until, |deadline| deadline.min(until));
    slot.when_killed(Arc::clone(&call));
    waiting.wait.call_when_settled(Arc::clone(&call));
    *connection.lock_waiting.lock() = Some(Box::new(waiting));
    // A kill, or the server's end, that came before somebody was to be called.
    if slot.check_wait(|| Duration::ZERO).is_err() {
        call();
    }
    Reply { wait: Some(until), ..Reply::default() }
}
