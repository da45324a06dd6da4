//! Which error labels a request's error carries.

use super::is_end;
use crate::context::Context;
use crate::replication::write_concern;
use dispatch::labels::{
    NO_WRITES, RETRYABLE_WRITE, TRANSIENT_TRANSACTION, is_conflict, is_retryable,
};
use errors::{Code, Error};

/// The label that an error of this request's carries by its code.
pub(crate) fn label_of(context: &Context<'_>, code: Code) -> Option<&'static str> {
    let numbered = context.arguments.numbered?;
    if numbered.in_transaction {
        let ends = is_end(context.command);
        // Where other members were to know of the end, one of them may have committed it.
        let unsure = || {
            ends && write_concern::fails(
                &context.arguments.write_concern,
                &context.service.replication,
            )
        };
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
