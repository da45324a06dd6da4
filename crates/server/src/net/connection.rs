//! One connection with a worker: frames in, requests run, replies out.
//!
//! What is always true:
//! 1. A request is answered by exactly one reply, unless it said "more to come" (none) or allowed
//!    several (exhaust).
//! 2. A reply looks like its request: OP_REPLY to OP_QUERY, packed if it was packed, with a
//!    checksum if it had one.
//! 3. A panic below becomes an `InternalError` reply; the connection and the server go on.

use crate::legacy;
use crate::net::inbox::Inbox;
use crate::net::pool::NetStats;
use crate::net::stream::Stream;
use crate::service::{Reply, Request, Service, Via};
use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use errors::Code;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::{Codec, Compressor, Header, Message, MsgFlags, OpMsg};

mod old;

/// People point browsers and health checks at the port.
const TO_A_BROWSER: &[u8] = b"HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\n\
    Content-Length: 92\r\n\r\n\
    This is FernDB. It speaks MongoDB's wire protocol here, not HTTP: use mongosh or a driver.\r\n";

/// A reply buffer this large is given back when it was sent.
const LARGE_REPLY: usize = 256 * 1024;

/// A larger reply is sent from where it was made.
const COPIED_REPLY: usize = 4 * 1024;

/// A connection, wherever it is.
pub(crate) struct Connection<S: Service> {
    pub(crate) id: u64,
    pub(crate) stream: Arc<Stream>,
    pub(crate) state: Arc<S::Connection>,
    /// The bytes of a half message while parked; empty while with a worker.
    pub(crate) partial: Vec<u8>,
    /// Numbers our messages to this client.
    pub(crate) next_reply: i32,
}

/// What becomes of a connection after a worker served it for a while.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing came for a while.
    Park,
    /// It is over, for a reason worth logging or none.
    Close(Option<String>),
}

/// What a worker keeps from request to request and from connection to connection.
pub(crate) struct Desk {
    inbox: Inbox,
    outbox: Vec<u8>,
    /// Replies before they are packed.
    plain: Vec<u8>,
    codec: Codec,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self { inbox: Inbox::new(), outbox: Vec::new(), plain: Vec::new(), codec: Codec::new() }
    }
}

/// Why a connection cannot go on: a reason to log, or none where the client just left.
struct Ended(Option<String>);

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted => Self(None),
            io::ErrorKind::WouldBlock => Self(Some("the client stopped reading".to_owned())),
            _ => Self(Some(error.to_string())),
        }
    }
}

/// How the reply to a request is to be sent.
#[derive(Clone, Copy)]
struct Envelope {
    response_to: i32,
    checksum: bool,
    packed: Option<Compressor>,
}

/// Serves a connection until it has been silent for the read timeout, or is over.
pub(crate) fn serve<S: Service>(
    service: &S,
    connection: &mut Connection<S>,
    desk: &mut Desk,
    stats: &NetStats,
    stopping: &AtomicBool,
) -> Outcome {
    desk.inbox.load(&connection.partial);
    connection.partial = Vec::new();
    loop {
        match serve_arrived(service, connection, desk, stats, stopping) {
            Ok(()) => {}
            Err(Ended(reason)) => return leave(desk, Outcome::Close(reason)),
        }
        if stopping.load(Ordering::Relaxed) {
            return leave(desk, Outcome::Close(None));
        }
        match desk.inbox.fill(|into| connection.stream.read(into)) {
            Ok(0) => return leave(desk, Outcome::Close(None)),
            Ok(received) => stats.received(received),
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    connection.partial = desk.inbox.unload();
                    return Outcome::Park;
                }
                _ => return leave(desk, Outcome::Close(Ended::from(error).0)),
            },
        }
    }
}

/// The next connection must not find this one's bytes.
fn leave(desk: &mut Desk, outcome: Outcome) -> Outcome {
    drop(desk.inbox.unload());
    outcome
}

/// Runs every request that has arrived whole.
fn serve_arrived<S: Service>(
    service: &S,
    connection: &mut Connection<S>,
    desk: &mut Desk,
    stats: &NetStats,
    stopping: &AtomicBool,
) -> Result<(), Ended> {
    let Desk { inbox, outbox, plain, codec } = desk;
    while let Some(range) =
        inbox.frame().map_err(|error| lost(&error, inbox, &connection.stream))?
    {
        let mut exchange = Exchange { service, connection, outbox, plain, codec, stats, stopping };
        exchange.answer(inbox.bytes(range.clone()))?;
        inbox.consume(&range);
        if stopping.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
    Ok(())
}

/// The end of a stream whose next header makes no sense.
fn lost(error: &wire::Error, inbox: &Inbox, stream: &Stream) -> Ended {
    if inbox.held().starts_with(b"GET ") {
        // Best effort: the connection is over either way.
        let _lost = stream.write_all(TO_A_BROWSER);
    }
    Ended(Some(error.to_string()))
}

/// One request being answered: the connection and the worker's tools.
struct Exchange<'s, S: Service> {
    service: &'s S,
    connection: &'s mut Connection<S>,
    outbox: &'s mut Vec<u8>,
    plain: &'s mut Vec<u8>,
    codec: &'s mut Codec,
    stats: &'s NetStats,
    stopping: &'s AtomicBool,
}

impl<S: Service> Exchange<'_, S> {
    fn answer(&mut self, frame: &[u8]) -> Result<(), Ended> {
        self.stats.requested();
        let compressed = frame[12..16] == wire::opcode::COMPRESSED.to_le_bytes();
        if !compressed {
            return self.answer_plain(frame, None);
        }
        let (plain, compressor) =
            self.codec.decompress(frame).map_err(|error| Ended(Some(error.to_string())))?;
        self.answer_plain(&plain, Some(compressor))
    }

    fn answer_plain(&mut self, frame: &[u8], packed: Option<Compressor>) -> Result<(), Ended> {
        match wire::decode(frame) {
            Ok((header, Message::Msg(msg))) => self.answer_msg(header, &msg, packed),
            Ok((header, Message::Query(query))) => self.answer_query(header, &query, packed),
            Ok((header, Message::GetMore(more))) => self.answer_get_more(header, &more, packed),
            Ok((header, Message::Insert(insert))) => self.insert(&insert, header.request_id),
            Ok((header, Message::Update(update))) => {
                self.write(legacy::update(&update), header.request_id)
            }
            Ok((header, Message::Delete(delete))) => {
                self.write(legacy::delete(&delete), header.request_id)
            }
            Ok((header, Message::KillCursors(kill))) => {
                self.write(Ok(legacy::kill_cursors(&kill)), header.request_id)
            }
            Ok((header, _)) => {
                Err(Ended(Some(format!("operation {} is not served", header.opcode))))
            }
            Err(wire::Error::Answer(error)) => self.refuse(frame, packed, &error),
            Err(error) => Err(Ended(Some(error.to_string()))),
        }
    }

    /// Answers a frame whose contents were refused, in the way its opcode is answered.
    fn refuse(
        &mut self,
        frame: &[u8],
        packed: Option<Compressor>,
        error: &errors::Error,
    ) -> Result<(), Ended> {
        let header = frame.first_chunk().and_then(|bytes| Header::parse(bytes).ok());
        let Some(header) = header else { return Err(Ended(Some(error.to_string()))) };
        let flags = wire::peek_msg_flags(frame).unwrap_or_default();
        match header.opcode {
            wire::opcode::MSG if flags.contains(MsgFlags::MORE_TO_COME) => return Ok(()),
            wire::opcode::MSG => {}
            wire::opcode::QUERY | wire::opcode::GET_MORE => {
                let envelope = Envelope::of_query(header.request_id, packed);
                return self.send_failure(envelope, error);
            }
            wire::opcode::INSERT | wire::opcode::UPDATE | wire::opcode::DELETE => {
                self.service.write_refused(&self.connection.state, error);
                return Ok(());
            }
            _ => return Err(Ended(Some(error.to_string()))),
        }
        let checksum = flags.contains(MsgFlags::CHECKSUM_PRESENT);
        let envelope = Envelope { response_to: header.request_id, checksum, packed };
        self.send(envelope, MsgFlags::NONE, &error_document(error)).map(drop)
    }

    fn answer_msg(
        &mut self,
        header: Header,
        msg: &OpMsg<'_>,
        packed: Option<Compressor>,
    ) -> Result<(), Ended> {
        let mut envelope = Envelope {
            response_to: header.request_id,
            checksum: msg.flags.contains(MsgFlags::CHECKSUM_PRESENT),
            packed,
        };
        let silent = msg.flags.contains(MsgFlags::MORE_TO_COME);
        let database = match database_of(msg.body) {
            Ok(database) => database,
            Err(_) if silent => return Ok(()),
            Err(error) => {
                return self.send(envelope, MsgFlags::NONE, &error_document(&error)).map(drop);
            }
        };
        let mut request = Request {
            database,
            body: msg.body,
            sequences: &msg.sequences,
            via: Via::Msg,
            exhaust_allowed: !silent && msg.flags.contains(MsgFlags::EXHAUST_ALLOWED),
            request_id: header.request_id,
        };
        let mut reply = self.run(&request);
        if reply.hang_up {
            return Err(Ended(None));
        }
        if silent {
            return Ok(());
        }
        // Each further reply answers the one before it, as if the client had asked in between.
        while let Some(next) = reply.exhaust.take().filter(|_| request.exhaust_allowed) {
            envelope.response_to = self.send(envelope, MsgFlags::MORE_TO_COME, &reply.document)?;
            if self.stopping.load(Ordering::Relaxed) {
                return Err(Ended(None));
            }
            request.request_id = envelope.response_to;
            request.sequences = &[];
            reply = self.run(&Request { body: &next, ..request });
        }
        self.send(envelope, MsgFlags::NONE, &reply.document).map(drop)
    }

    fn run(&self, request: &Request<'_>) -> Reply {
        let state = &*self.connection.state;
        catch_unwind(AssertUnwindSafe(|| self.service.run(state, request))).unwrap_or_else(|_| {
            // The panic hook has logged where and why.
            let error = errors::Error::new(Code::INTERNAL_ERROR, "the command failed by a bug");
            error_document(&error).into()
        })
    }

    /// Sends one reply; returns its number.
    fn send(
        &mut self,
        envelope: Envelope,
        flags: MsgFlags,
        document: &RawDocument,
    ) -> Result<i32, Ended> {
        let checksum = if envelope.checksum { MsgFlags::CHECKSUM_PRESENT } else { MsgFlags::NONE };
        let apart = document.as_bytes().len() > COPIED_REPLY
            && envelope.packed.is_none()
            && !envelope.checksum;
        let behind = if apart { document.as_bytes() } else { &[] };
        self.send_with(envelope.packed, behind, |out, number| {
            let (to, flags) = (envelope.response_to, flags.with(checksum));
            if apart {
                wire::encode_msg_head(out, number, to, flags, behind.len());
            } else {
                wire::encode_msg(out, number, to, flags, document);
            }
        })
    }

    /// Sends what `encode` makes of the reply's number, and `behind` it what is not packed.
    fn send_with(
        &mut self,
        packed: Option<Compressor>,
        behind: &[u8],
        encode: impl FnOnce(&mut Vec<u8>, i32),
    ) -> Result<i32, Ended> {
        let number = self.connection.next_reply;
        self.connection.next_reply = number.checked_add(1).unwrap_or(1);
        self.outbox.clear();
        match packed {
            None => encode(self.outbox, number),
            Some(compressor) => {
                self.plain.clear();
                encode(self.plain, number);
                self.codec
                    .compress(self.plain, compressor, self.outbox)
                    .map_err(|error| Ended(Some(error.to_string())))?;
            }
        }
        self.stats.sent(self.outbox.len() + behind.len());
        let written = self.connection.stream.write_both(self.outbox, behind);
        for buffer in [&mut *self.outbox, &mut *self.plain] {
            if buffer.capacity() > LARGE_REPLY {
                *buffer = Vec::new();
            }
        }
        written?;
        Ok(number)
    }
}

/// The `$db` of an OP_MSG.
fn database_of(body: &RawDocument) -> errors::Result<&str> {
    match body.get("$db") {
        Ok(Some(RawBsonRef::String(database))) => Ok(database),
        Ok(Some(_)) => Err(errors::Error::type_mismatch("$db must be a string")),
        _ => Err(errors::Error::location(40571, "OP_MSG requests require a $db argument")),
    }
}

fn error_document(error: &errors::Error) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("ok"), 0.0);
    document.append(cstr!("errmsg"), error.message());
    document.append(cstr!("code"), error.code().0);
    document.append(cstr!("codeName"), error.code().name().as_ref());
    document
}
