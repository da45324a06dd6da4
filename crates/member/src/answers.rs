//! Answers of the member's thread, each for one who waits.
//!
//! Always true: who waits gets an answer or gives up; an [`Answer`] that goes without a word says
//! [`Refusal::Ended`].

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Why something that was asked was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The member ends, or has ended.
    #[error("the member has ended")]
    Ended,
    /// Consensus or the journal refuses.
    #[error("{0}")]
    Refused(String),
    /// Consensus does one such thing at a time: it can be asked for again soon.
    #[error("{0}")]
    NotNow(String),
    /// The other member was not ready in time; this one leads on.
    #[error("{0} did not catch up in time")]
    NotInTime(quorum::MemberId),
}

/// Where an answer goes.
pub(crate) struct ReplySender<T>(SyncSender<Result<T, Refusal>>);

/// An answer that is waited for.
#[derive(Debug)]
pub struct Pending<T>(Receiver<Result<T, Refusal>>);

pub(crate) fn pair<T>() -> (ReplySender<T>, Pending<T>) {
    let (sender, receiver) = sync_channel(1);
    (ReplySender(sender), Pending(receiver))
}

impl<T> ReplySender<T> {
    pub(crate) fn give(self, answer: Result<T, Refusal>) {
        // Who gave up wants no answer.
        let _nobody = self.0.try_send(answer);
    }
}

impl<T> Pending<T> {
    /// Waits so long; `None` where there is no answer yet.
    pub fn wait(&self, time: Duration) -> Option<Result<T, Refusal>> {
        match self.0.recv_timeout(time) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(Refusal::Ended)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pending_answer_ends() {
        let (answer, pending) = pair();
        assert_eq!(pending.wait(Duration::ZERO), None);
        answer.give(Ok(3));
        assert_eq!(pending.wait(Duration::ZERO), Some(Ok(3)));
        let (answer, pending) = pair::<u64>();
        drop(answer);
        assert_eq!(pending.wait(Duration::from_mins(1)), Some(Err(Refusal::Ended)));
        let (answer, pending) = pair();
        drop(pending);
        answer.give(Ok(1));
    }
}
