//! One frame, decoded: which operation it is and what it borrows from the frame.

use crate::error::{Error, Result};
use crate::header::{Header, opcode};
use crate::legacy::{Delete, GetMore, Insert, KillCursors, Update};
use crate::op_msg::OpMsg;
use crate::op_query::{OpQuery, OpReply};

/// A decoded message. Everything in it points into the frame.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Message<'a> {
    /// OP_MSG.
    Msg(OpMsg<'a>),
    /// OP_QUERY.
    Query(OpQuery<'a>),
    /// OP_REPLY, which only clients receive.
    Reply(OpReply<'a>),
    /// Legacy OP_GET_MORE.
    GetMore(GetMore<'a>),
    /// Legacy OP_KILL_CURSORS.
    KillCursors(KillCursors),
    /// Legacy OP_INSERT.
    Insert(Insert<'a>),
    /// Legacy OP_UPDATE.
    Update(Update<'a>),
    /// Legacy OP_DELETE.
    Delete(Delete<'a>),
}

/// Decodes a whole, uncompressed frame. An OP_COMPRESSED frame goes through
/// [`crate::Codec::decompress`] first; here it is refused, which also keeps it from nesting.
///
/// # Errors
/// [`Error::Close`] for a frame that lies about its length, an unknown opcode or a wrong
/// checksum; [`Error::Answer`] for contents that are refused.
pub fn decode(frame: &[u8]) -> Result<(Header, Message<'_>)> {
    let header = Header::of_frame(frame)?;
    let message = match header.opcode {
        opcode::MSG => Message::Msg(OpMsg::decode(frame)?),
        opcode::QUERY => Message::Query(OpQuery::decode(frame)?),
        opcode::REPLY => Message::Reply(OpReply::decode(frame)?),
        opcode::GET_MORE => Message::GetMore(GetMore::decode(frame)?),
        opcode::KILL_CURSORS => Message::KillCursors(KillCursors::decode(frame)?),
        opcode::INSERT => Message::Insert(Insert::decode(frame)?),
        opcode::UPDATE => Message::Update(Update::decode(frame)?),
        opcode::DELETE => Message::Delete(Delete::decode(frame)?),
        opcode::COMPRESSED => return Err(Error::close("OP_COMPRESSED inside OP_COMPRESSED")),
        other => return Err(Error::close(format!("unknown opcode {other}"))),
    };
    Ok((header, message))
}
