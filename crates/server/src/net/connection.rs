//! One connection with a worker: frames in, requests run, replies out.
//!
//! What is always true:
//! 1. A request is answered by exactly one reply, unless it said "more to come" (none) or allowed
//!    several (exhaust).
//! 2. A reply looks like its request: OP_REPLY to OP_QUERY, packed if it was packed, with a
//!    checksum if it had one.
//! 3. A panic below becomes an `InternalError` reply; the connection and the server go on.
//! 4. A message of more than [`LARGE_BYTES`], packed or unpacked, is read and run only after it was let
//!    into the account with its whole length.
//! 5. A worker waits for the rest of a half message only while it comes fast.

use crate::legacy;
use crate::net::inbox::{Inbox, Partial};
use crate::net::pool::{NetOptions, NetStats};
use crate::net::stream::Stream;
use crate::service::Service;
use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use dispatch::{OpKind, Reply, Request};
use errors::Code;
use limits::{Charge, LARGE_BYTES, Part};
use os::Clock;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::{Codec, Compressor, Header, Message, MsgFlags, OpMsg};

mod old;

/// People point browsers and health checks at the port.
const TO_A_BROWSER: &[u8] = b"HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\n\
    Content-Length: 92\r\n\r\n\
    This is FernDB. It speaks MongoDB's wire protocol here, not HTTP: use mongosh or a driver.\r\n";

/// Bytes a second below which a client is slow: its half message waits without a worker, and it makes way
/// where others wait for the memory that it holds.
pub(crate) const SLOW_BYTES_PER_SECOND: u64 = 64 << 10;

/// What a client has for a start before it is called slow in sending or in taking.
const SENDING_GRACE: Duration = Duration::from_millis(10);
const TAKING_GRACE: Duration = Duration::from_secs(5);

/// A larger reply is sent from where it was made.
const COPIED_REPLY: usize = 4 * 1024;

/// A connection, wherever it is.
pub(crate) struct Connection<S: Service> {
    pub(crate) id: u64,
    pub(crate) stream: Arc<Stream>,
    pub(crate) state: Arc<S::Connection>,
    /// A half message while parked; empty while with a worker.
    pub(crate) partial: Partial,
    /// When the message that is being received began to come, and when it went on last.
    pub(crate) began: Option<Duration>,
    pub(crate) went_on: Duration,
    /// For the large message that is being received or run.
    pub(crate) room: Option<Charge>,
    /// A request that waits.
    pub(crate) deferred: Option<Deferred>,
    /// Numbers our messages to this client.
    pub(crate) next_reply: i32,
}

/// A request that is to be run again.
pub(crate) struct Deferred {
    /// It as a plain message.
    frame: Vec<u8>,
    packed: Option<Compressor>,
    /// Server time.
    pub(crate) until: Duration,
}

/// What becomes of a connection after a worker served it for a while.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ServeOutcome {
    /// Nothing came for a while.
    Park,
    /// Its next message needs so many bytes, for which there is no room now.
    AwaitRoom(usize),
    /// Its request waits ([`Connection::deferred`]).
    Defer,
    /// It is over, for a reason worth logging or none.
    Close(Option<String>),
}

/// What a worker keeps from request to request and from connection to connection.
pub(crate) struct WorkerBuffers {
    inbox: Inbox,
    outbox: Vec<u8>,
    /// Replies before they are packed.
    plain: Vec<u8>,
    codec: Codec,
}

impl WorkerBuffers {
    /// `charge` is for the receive buffer.
    pub(crate) fn new(charge: Charge) -> Self {
        let (outbox, plain) = (Vec::new(), Vec::new());
        Self { inbox: Inbox::new(charge), outbox, plain, codec: Codec::new() }
    }

    fn outgoing(&mut self) -> Outgoing<'_> {
        Outgoing { outbox: &mut self.outbox, plain: &mut self.plain, codec: &mut self.codec }
    }
}

/// What connections are served with.
pub(crate) struct Serving<'s, S: Service> {
    pub(crate) service: &'s S,
    pub(crate) clock: &'s dyn Clock,
    pub(crate) options: &'s NetOptions,
    pub(crate) stats: &'s NetStats,
    pub(crate) stopping: &'s AtomicBool,
    /// Others wait for room already.
    pub(crate) crowded: &'s AtomicBool,
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

/// Why serving pauses.
enum Pause {
    /// There is no whole message.
    Incomplete,
    Room(usize),
    Deferred,
    Stopping,
}

/// Serves a connection until it has been silent for the read timeout, has to wait, or is over.
pub(crate) fn serve<S: Service>(
    serving: &Serving<'_, S>,
    connection: &mut Connection<S>,
    buffers: &mut WorkerBuffers,
) -> ServeOutcome {
    buffers.inbox.load(std::mem::take(&mut connection.partial));
    if let Some(room) = &mut connection.room {
        room.move_to(Part::Requests);
    }
    let outcome = match serve_until(serving, connection, buffers) {
        Ok(outcome) => outcome,
        Err(Ended(reason)) => ServeOutcome::Close(reason),
    };
    // The next connection must not find this one's bytes.
    let partial = buffers.inbox.unload();
    if !matches!(outcome, ServeOutcome::Close(_)) {
        connection.partial = partial;
        if let Some(room) = &mut connection.room {
            room.move_to(Part::PartialRequests);
        }
    }
    outcome
}

fn serve_until<S: Service>(
    serving: &Serving<'_, S>,
    connection: &mut Connection<S>,
    buffers: &mut WorkerBuffers,
) -> Result<ServeOutcome, Ended> {
    if let Some(deferred) = connection.deferred.take() {
        let out = &mut buffers.outgoing();
        let (frame, waited_until) = (&deferred.frame[..], Some(deferred.until));
        let mut exchange = Exchange { serving, connection, frame, waited_until, out };
        exchange.answer_plain(deferred.packed)?;
        if connection.deferred.is_some() {
            return Ok(ServeOutcome::Defer);
        }
    }
    loop {
        match serve_arrived(serving, connection, buffers)? {
            Pause::Room(needed) => return Ok(ServeOutcome::AwaitRoom(needed)),
            Pause::Deferred => return Ok(ServeOutcome::Defer),
            Pause::Stopping => return Ok(ServeOutcome::Close(None)),
            Pause::Incomplete if serving.stopping.load(Ordering::Relaxed) => {
                return Ok(ServeOutcome::Close(None));
            }
            Pause::Incomplete => {}
        }
        if !buffers.inbox.held().is_empty() && !is_worth_waiting(serving, connection, buffers)? {
            return Ok(ServeOutcome::Park);
        }
        match buffers.inbox.fill(|into| connection.stream.read(into)) {
            Ok(0) => return Ok(ServeOutcome::Close(None)),
            Ok(received) => serving.stats.received(received),
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    return Ok(ServeOutcome::Park);
                }
                _ => return Err(error.into()),
            },
        }
    }
}

/// Whether the rest of a half message is there, or will be soon. Fails where it took too long.
fn is_worth_waiting<S: Service>(
    serving: &Serving<'_, S>,
    connection: &mut Connection<S>,
    buffers: &WorkerBuffers,
) -> Result<bool, Ended> {
    let now = serving.clock.monotonic();
    let began = *connection.began.get_or_insert(now);
    connection.went_on = now;
    let time = now.saturating_sub(began);
    if time >= serving.options.message_timeout {
        return Err(Ended(Some("a message did not arrive in time".to_owned())));
    }
    Ok(!is_slow(buffers.inbox.held().len(), time + SENDING_GRACE)
        || connection.stream.is_readable()?)
}

/// Whether so many bytes in this time are few.
pub(crate) fn is_slow(bytes: usize, time: Duration) -> bool {
    (bytes as u128) < time.as_millis() * u128::from(SLOW_BYTES_PER_SECOND) / 1000
}

/// Runs every request that has arrived whole and for which there is room.
fn serve_arrived<S: Service>(
    serving: &Serving<'_, S>,
    connection: &mut Connection<S>,
    buffers: &mut WorkerBuffers,
) -> Result<Pause, Ended> {
    loop {
        let needed = buffers.inbox.needed();
        let needed = needed.map_err(|error| lost(&error, &buffers.inbox, &connection.stream))?;
        let Some(message) = needed else { return Ok(Pause::Incomplete) };
        // The largest document of it is copied while it runs.
        let needed = message + message.min(wire::MAX_DOCUMENT_SIZE);
        if needed > LARGE_BYTES && connection.room.is_none() {
            let crowded = serving.crowded.load(Ordering::Relaxed);
            let admit = || serving.options.memory.try_admit(Part::Requests, needed as u64);
            connection.room = if crowded { None } else { admit() };
            if connection.room.is_none() {
                return Ok(Pause::Room(needed));
            }
        }
        let frame = buffers.inbox.frame();
        let frame = frame.map_err(|error| lost(&error, &buffers.inbox, &connection.stream))?;
        let Some(range) = frame else { return Ok(Pause::Incomplete) };
        connection.began = None;
        let WorkerBuffers { inbox, outbox, plain, codec } = &mut *buffers;
        let bytes = inbox.bytes(range.clone());
        answer(serving, connection, bytes, &mut Outgoing { outbox, plain, codec })?;
        buffers.inbox.consume(&range);
        connection.room = None;
        if connection.deferred.is_some() {
            return Ok(Pause::Deferred);
        }
        if serving.stopping.load(Ordering::Relaxed) {
            return Ok(Pause::Stopping);
        }
    }
}

/// The end of a stream whose next header makes no sense.
fn lost(error: &wire::Error, inbox: &Inbox, stream: &Stream) -> Ended {
    if inbox.held().starts_with(b"GET ") {
        // Best effort: the connection is over either way.
        let _lost = stream.write_both(TO_A_BROWSER, &[], |_, _| true);
    }
    Ended(Some(error.to_string()))
}

/// Buffers and packers for replies.
struct Outgoing<'s> {
    outbox: &'s mut Vec<u8>,
    plain: &'s mut Vec<u8>,
    codec: &'s mut Codec,
}

/// One request being answered: the connection and the worker's tools.
struct Exchange<'s, 'd, S: Service> {
    serving: &'s Serving<'s, S>,
    connection: &'s mut Connection<S>,
    /// The request, unpacked.
    frame: &'s [u8],
    /// It was to wait until then, and is run again.
    waited_until: Option<Duration>,
    out: &'s mut Outgoing<'d>,
}

fn answer<S: Service>(
    serving: &Serving<'_, S>,
    connection: &mut Connection<S>,
    frame: &[u8],
    out: &mut Outgoing<'_>,
) -> Result<(), Ended> {
    serving.stats.requested();
    if frame[12..16] != wire::opcode::COMPRESSED.to_le_bytes() {
        let mut exchange = Exchange { serving, connection, frame, waited_until: None, out };
        return exchange.answer_plain(None);
    }
    let closed = |error: wire::Error| Ended(Some(error.to_string()));
    let compressor = wire::peek_compressor(frame).map_err(closed)?;
    if !serving.service.agreed(&connection.state, compressor) {
        let name = compressor.name();
        return Err(Ended(Some(format!(
            "packed by {name}, which was not agreed in the handshake"
        ))));
    }
    let (plain, compressor) = out.codec.decompress(frame).map_err(closed)?;
    let mut exchange = Exchange { serving, connection, frame: &plain, waited_until: None, out };
    exchange.answer_plain(Some(compressor))
}

impl<S: Service> Exchange<'_, '_, S> {
    fn answer_plain(&mut self, packed: Option<Compressor>) -> Result<(), Ended> {
        match wire::decode(self.frame) {
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
            Err(wire::Error::Answer(error)) => self.refuse(packed, &error),
            Err(error) => Err(Ended(Some(error.to_string()))),
        }
    }

    /// Answers a frame whose contents were refused, in the way its opcode is answered.
    fn refuse(&mut self, packed: Option<Compressor>, error: &errors::Error) -> Result<(), Ended> {
        let frame = self.frame;
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
                self.serving.service.write_refused(&self.connection.state, error);
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
            op: OpKind::Msg,
            exhaust_allowed: !silent && msg.flags.contains(MsgFlags::EXHAUST_ALLOWED),
            request_id: header.request_id,
            waited_until: self.waited_until.take(),
        };
        let mut reply = self.run(&request);
        if reply.hang_up {
            return Err(Ended(None));
        }
        if let (Some(until), false) = (reply.wait, silent) {
            self.defer(self.frame.to_vec(), packed, until);
            return Ok(());
        }
        if silent {
            return Ok(());
        }
        // Each further reply answers the one before it, as if the client had asked in between.
        while let Some(next) = reply.exhaust.take().filter(|_| request.exhaust_allowed) {
            envelope.response_to = self.send(envelope, MsgFlags::MORE_TO_COME, &reply.document)?;
            if self.serving.stopping.load(Ordering::Relaxed) {
                return Err(Ended(None));
            }
            request.request_id = envelope.response_to;
            request.sequences = &[];
            request.waited_until = None;
            reply = self.run(&Request { body: &next, ..request });
            if let Some(until) = reply.wait {
                // As if the client had asked it in a message of its own.
                let flags = msg.flags.with(MsgFlags::EXHAUST_ALLOWED);
                let mut frame = Vec::new();
                wire::encode_msg(&mut frame, request.request_id, 0, flags, &next);
                self.defer(frame, packed, until);
                return Ok(());
            }
        }
        self.send(envelope, MsgFlags::NONE, &reply.document).map(drop)
    }

    fn run(&self, request: &Request<'_>) -> Reply {
        let state = &*self.connection.state;
        let run = || self.serving.service.run(state, request);
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
            // The panic hook has logged where and why.
            let error = errors::Error::new(Code::INTERNAL_ERROR, "the command failed by a bug");
            error_document(&error).into()
        })
    }

    fn defer(&mut self, frame: Vec<u8>, packed: Option<Compressor>, until: Duration) {
        self.connection.deferred = Some(Deferred { frame, packed, until });
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
        let Outgoing { outbox, plain, codec } = &mut *self.out;
        outbox.clear();
        match packed {
            None => encode(outbox, number),
            Some(compressor) => {
                plain.clear();
                encode(plain, number);
                codec
                    .compress(plain, compressor, outbox)
                    .map_err(|error| Ended(Some(error.to_string())))?;
            }
        }
        let Serving { stats, options, clock, .. } = self.serving;
        stats.sent(outbox.len() + behind.len());
        let kept = (outbox.capacity() + plain.capacity()) as u64;
        let _charge = options.memory.charge_regardless(Part::Replies, kept);
        let started = clock.monotonic();
        let mut went_on = started;
        let written = self.connection.stream.write_both(outbox, behind, |sent, more| {
            let now = clock.monotonic();
            if more {
                went_on = now;
            }
            let time = now.saturating_sub(started);
            let slow = time >= TAKING_GRACE && is_slow(sent, time);
            now.saturating_sub(went_on) >= options.write_timeout
                || slow && options.memory.is_awaited()
        });
        for buffer in [&mut **outbox, &mut **plain] {
            if buffer.capacity() > LARGE_BYTES {
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
