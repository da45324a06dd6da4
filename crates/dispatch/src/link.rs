//! A connection that leaves the commands: another member of the replica set has said in its `hello`
//! (`fernLink`) that what follows are frames between members.
//!
//! Who serves `hello` asks the [`LinkAcceptor`], answers, and puts what takes the socket into the reply
//! ([`Reply::hand_over`](crate::Reply)); who has the socket sends the reply and hands the socket over.
//!
//! Always true: who is handed a socket is the only one that has it.

use crate::request::ConnectionInfo;
use bson::{RawDocument, RawDocumentBuf};
use errors::Result;
use std::io::Read;
use std::net::TcpStream;

/// A connection that is no client's any more.
pub struct HandedOver {
    /// Its socket. Nobody else closes it or sets how it reads and writes, which do not wait.
    pub socket: TcpStream,
    /// What comes by it: what was read behind the `hello`, and then what the socket gives; plain, however it is sent.
    pub input: Box<dyn Read + Send>,
}

impl std::fmt::Debug for HandedOver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HandedOver").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// Takes a connection over. Called once the reply is on its way, by a thread that must not wait.
pub type TakeOver = Box<dyn FnOnce(HandedOver) + Send>;

/// A link that was let in.
pub struct AcceptedLink {
    /// What is answered under `fernLink`.
    pub answer: RawDocumentBuf,
    /// What is answered under `fernFrames`: the newest version of frames that is read.
    pub frames: i32,
    /// Takes the connection.
    pub take: TakeOver,
}

impl std::fmt::Debug for AcceptedLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AcceptedLink").field("answer", &self.answer).finish_non_exhaustive()
    }
}

/// Lets links of other members in.
pub trait LinkAcceptor: Send + Sync {
    /// Looks at what a member says of itself under `fernLink`. Does not wait.
    ///
    /// # Errors
    /// Where it is not let in: one line for its log.
    fn accept(&self, hello: &RawDocument, peer: &ConnectionInfo) -> Result<AcceptedLink>;
}
