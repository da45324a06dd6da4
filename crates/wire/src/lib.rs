//! Bytes to messages and back: OP_MSG, OP_COMPRESSED, OP_QUERY; no sockets.
//!
//! The server reads a frame (header and all) into a buffer; [`decode`] turns it into a
//! [`Message`] that borrows from that buffer. A reply is appended to an output buffer by
//! [`encode_msg`] or [`encode_reply`]. What is always true:
//! 1. Every document inside a decoded [`Message`] has been walked by [`validate`]: whoever holds
//!    it may unwrap nothing and still never be surprised by its bytes.
//! 2. No length found in the bytes is believed before that many bytes are really there, and no
//!    allocation is larger than a small multiple of what was received.
//! 3. An [`Error`] says whether the connection can go on: [`Error::Close`] or [`Error::Answer`].
#![forbid(unsafe_code)]

mod compress;
mod error;
mod header;
mod legacy;
mod message;
mod op_msg;
mod op_query;
mod reader;
mod validate;

pub use compress::{Codec, Compressor, peek_compressor};
pub use error::{Error, Result};
pub use header::{HEADER_SIZE, Header, MAX_MESSAGE_SIZE, opcode};
pub use legacy::{Delete, GetMore, Insert, KillCursors, Update};
pub use message::{Message, decode};
pub use op_msg::{
    MsgFlags, OpMsg, Sequence, encode_msg, encode_msg_head, encode_msg_with_sequences,
    peek_msg_flags,
};
pub use op_query::{OpQuery, OpReply, QueryFlags, ReplyFlags, encode_query, encode_reply};
pub use validate::{MAX_DEPTH, MAX_DOCUMENT_SIZE, MAX_INTERNAL_DOCUMENT_SIZE, validate};
