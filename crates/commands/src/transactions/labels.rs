//! Which error labels a request's error carries.

use super::is_end;
use crate::context::Context;
use crate::replication::write_concern;
use dispatch::arguments::Numbered;
use dispatch::labels::{
    NO_WRITES, RETRYABLE_WRITE, TRANSIENT_TRANSACTION, is_conflict, is_retryable,
};
use errors::{Code, Error};

/// What of a request its labels depend on.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "what became of a request, independently")]
pub(crate) struct LabelFacts {
    numbered: Option<Numbered>,
    /// It ends a transaction.
    ends: bool,
    /// Other members were to know of the end, so one of them may have committed it.
    unsure: bool,
    /// A fail point has chosen the labels.
    given: bool,
    /// It has changed something.
    wrote: bool,
}

impl LabelFacts {
    /// Those of a request.
    pub(crate) fn of(context: &Context<'_>) -> Self {
        let (concern, replication) =
            (&context.arguments.write_concern, &context.service.replication);
        let (numbered, ends) = (context.arguments.numbered, is_end(context.command));
        let in_transaction = numbered.is_some_and(|numbered| numbered.in_transaction);
        Self {
            numbered,
            ends,
            unsure: in_transaction && ends && write_concern::fails(concern, replication),
            given: context.labels_given,
            wrote: context.wrote || ends,
        }
    }

    /// Whether the request has a number, of a transaction or a retryable write.
    pub(crate) fn is_numbered(self) -> bool {
        self.numbered.is_some()
    }

    /// The label that an error of the request's carries by its code.
    fn label_of(self, code: Code) -> Option<&'static str> {
        if self.numbered?.in_transaction {
            if is_conflict(code) || code == Code::NO_SUCH_TRANSACTION && !self.unsure {
                return Some(TRANSIENT_TRANSACTION);
            }
            return match (is_retryable(code), self.ends) {
                (false, _) => None,
                (true, true) => Some(RETRYABLE_WRITE),
                (true, false) => Some(TRANSIENT_TRANSACTION),
            };
        }
        is_retryable(code).then_some(RETRYABLE_WRITE)
    }

    /// The label that a write concern error carries: what it is about has happened, so a transaction
    /// need not start over for it.
    pub(crate) fn label_of_concern(self, code: Code) -> Option<&'static str> {
        self.label_of(code).filter(|label| *label == RETRYABLE_WRITE)
    }

    /// Adds the labels to an error.
    pub(crate) fn label(self, error: Error) -> Error {
        match self.label_of(error.code()) {
            Some(label) if !self.given => {
                let error = error.with_label(label);
                let lost = label == RETRYABLE_WRITE && !self.wrote;
                if lost { error.with_label(NO_WRITES) } else { error }
            }
            _ => error,
        }
    }
}
