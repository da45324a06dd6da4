//! How an answer is sent: kept with a request whose answer waits.

use crate::legacy::Answer;
use wire::Compressor;

/// How the reply to a request is to be sent.
#[derive(Clone, Copy)]
pub(crate) struct Envelope {
    pub(crate) response_to: i32,
    pub(crate) checksum: bool,
    pub(crate) packed: Option<Compressor>,
}

/// How the answer to a request is sent that waits for it.
#[derive(Clone, Copy)]
pub(crate) struct SentAs {
    pub(crate) envelope: Envelope,
    pub(crate) form: Form,
}

/// What a client is sent an answer in.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    /// OP_MSG.
    Message,
    /// OP_REPLY.
    Reply(Answer),
}
