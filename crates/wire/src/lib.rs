//! Bytes to messages and back: OP_MSG, OP_COMPRESSED, OP_QUERY; no sockets.
#![forbid(unsafe_code)]
