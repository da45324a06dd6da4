//! One request answered: a frame decoded, the request run, the replies sent.
//!
//! What is always true:
//! 1. A request is answered by exactly one reply, unless it said "more to come" (none) or allowed
//!    several (exhaust).
//! 2. A reply looks like its request: OP_REPLY to OP_QUERY, packed if it was packed, with a
//!    checksum if it had one.
//! 3. A panic below becomes an `InternalError` reply; the connection and the server go on.
//! 4. Nothing here waits for the client: what it does not take of a reply stays in
//!    [`Progress::unsent`], and nothing more is sent until that is gone.

use crate::connection::{Behind, Connection, Deferred, DeferredWork, Progress, Unsent};
use crate::envelope::{Envelope, Form, SentAs};
use crate::legacy;
use crate::pool::Worker;
use crate::service::Service;
use crate::settings::{NetOptions, NetStats};
use crate::unauthenticated::Unauthenticated;
use bson::RawDocumentBuf;
use bson::raw::cstr;
use dispatch::writer::keep_room;
use dispatch::{MakeWaker, OpKind, Reply, Request, Unfinished};
use errors::Code;
use limits::{Charge, LARGE_BYTES, Part};
use os::Clock;
use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::{Codec, Compressor, Header, Message, MsgFlags, OpMsg};

mod old;

/// Bytes a second below which a client is slow: it makes way where others wait for the memory that it
/// holds.
const SLOW_BYTES_PER_SECOND: u64 = 64 << 10;

/// Whether so many bytes in this time are few.
pub(crate) fn is_slow(bytes: usize, time: Duration) -> bool {
    (bytes as u128) < time.as_millis() * u128::from(SLOW_BYTES_PER_SECOND) / 1000
}

/// A larger reply is sent from where it was made.
const COPIED_REPLY: usize = 4 * 1024;

/// What connections are served with, by one worker.
pub(crate) struct Serving<'s, S: Service> {
    pub(crate) service: &'s S,
    pub(crate) clock: &'s dyn Clock,
    pub(crate) options: &'s NetOptions,
    pub(crate) worker: &'s Worker,
    pub(crate) stopping: &'s AtomicBool,
    /// Of the connection that is served.
    pub(crate) waker: MakeWaker<'s>,
    pub(crate) stats: &'s NetStats,
    /// Others wait for room already.
    pub(crate) is_short_of_room: &'s AtomicBool,
    pub(crate) unauthenticated: &'s Mutex<Unauthenticated<S>>,
}

/// Why a connection cannot go on: a reason to log, or none where the client just left.
pub(crate) struct Ended(pub(crate) Option<String>);

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted => Self(None),
            _ => Self(Some(error.to_string())),
        }
    }
}

/// Buffers and packers for replies, kept from request to request.
pub(crate) struct Outgoing {
    outbox: Vec<u8>,
    /// Replies before they are packed.
    plain: Vec<u8>,
    codec: Codec,
    /// For both buffers.
    charge: Charge,
}

impl Outgoing {
    /// Empty ones; `charge` is for them.
    pub(crate) fn new(charge: Charge) -> Self {
        Self { outbox: Vec::new(), plain: Vec::new(), codec: Codec::new(), charge }
    }

    /// Charges what the buffers take.
    fn recharge(&mut self) {
        let kept = (self.outbox.capacity() + self.plain.capacity()) as u64;
        if kept != self.charge.bytes() {
            self.charge.set(kept);
        }
    }

    /// Gives large buffers back.
    fn shrink(&mut self) {
        for buffer in [&mut self.outbox, &mut self.plain] {
            if buffer.capacity() > LARGE_BYTES {
                *buffer = Vec::new();
            }
        }
        self.recharge();
    }
}

/// One request being answered: the connection and the worker's tools.
pub(crate) struct Exchange<'s, S: Service> {
    pub(crate) serving: &'s Serving<'s, S>,
    pub(crate) connection: &'s Connection<S>,
    pub(crate) progress: &'s mut Progress,
    /// The request; unpacked by [`Self::answer`].
    pub(crate) frame: &'s [u8],
    /// It was to wait until then, and is run again.
    pub(crate) waited_until: Option<Duration>,
    pub(crate) out: &'s mut Outgoing,
}

impl<S: Service> Exchange<'_, S> {
    /// Answers a frame as it came.
    pub(crate) fn answer(mut self) -> Result<(), Ended> {
        self.serving.worker.requested();
        if self.frame[12..16] != wire::opcode::COMPRESSED.to_le_bytes() {
            return self.answer_plain(None);
        }
        let closed = |error: wire::Error| Ended(Some(error.to_string()));
        let compressor = wire::peek_compressor(self.frame).map_err(closed)?;
        if !self.serving.service.agreed(&self.connection.state, compressor) {
            let name = compressor.name();
            return Err(Ended(Some(format!(
                "packed by {name}, which was not agreed in the handshake"
            ))));
        }
        let (plain, compressor) = self.out.codec.decompress(self.frame).map_err(closed)?;
        let Self { serving, connection, progress, out, waited_until, .. } = self;
        let mut unpacked =
            Exchange { serving, connection, progress, frame: &plain, waited_until, out };
        unpacked.answer_plain(Some(compressor))
    }

    /// Answers a plain frame, with replies packed or not.
    pub(crate) fn answer_plain(&mut self, packed: Option<Compressor>) -> Result<(), Ended> {
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
        self.send_error(envelope, error)
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
        let database = match msg.database() {
            Ok(database) => database,
            Err(_) if silent => return Ok(()),
            Err(error) => {
                return self.send_error(envelope, &error);
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
            // It is run once where nobody is answered.
            waker: (!silent).then_some(self.serving.waker),
            finisher: Some(self.serving.waker),
        };
        let mut reply = self.run(&request);
        if reply.hang_up {
            return Err(Ended(None));
        }
        if let Some(take) = reply.hand_over.take() {
            if silent {
                let reason = "a link begins with a message that is answered";
                return Err(Ended(Some(reason.to_owned())));
            }
            self.send(envelope, MsgFlags::NONE, reply.document, reply.memory)?;
            self.progress.hand_over = Some(take);
            return Ok(());
        }
        if let Some(unfinished) = reply.unfinished.take() {
            let sent_as = (!silent).then_some(SentAs { envelope, form: Form::Message });
            self.defer_answer(unfinished, sent_as, reply.wait);
            return Ok(());
        }
        if let (Some(until), false) = (reply.wait, silent) {
            self.defer(self.frame.to_vec(), packed, Some(until));
            return Ok(());
        }
        if silent {
            return if reply.is_last { Err(Ended(None)) } else { Ok(()) };
        }
        // Each further reply answers the one before it, as if the client had asked in between.
        while let Some(next) = reply.exhaust.take().filter(|_| request.exhaust_allowed) {
            let Reply { document, memory, .. } = reply;
            envelope.response_to = self.send(envelope, MsgFlags::MORE_TO_COME, document, memory)?;
            if self.serving.stopping.load(Ordering::Relaxed) {
                return Err(Ended(None));
            }
            request.request_id = envelope.response_to;
            request.sequences = &[];
            request.waited_until = None;
            // One of a stream is answered as it is run.
            request.finisher = None;
            // As if the client had asked it in a message of its own.
            let as_message = || {
                let flags = msg.flags.with(MsgFlags::EXHAUST_ALLOWED);
                let mut frame = Vec::new();
                wire::encode_msg(&mut frame, envelope.response_to, 0, flags, &next);
                frame
            };
            if self.progress.unsent.is_some() {
                self.defer(as_message(), packed, None);
                return Ok(());
            }
            reply = self.run(&Request { body: &next, ..request });
            if let Some(until) = reply.wait {
                self.defer(as_message(), packed, Some(until));
                return Ok(());
            }
        }
        let Reply { document, memory, is_last, until_sent, .. } = reply;
        self.send(envelope, MsgFlags::NONE, document, memory)?;
        if let Some(unsent) = &mut self.progress.unsent {
            unsent.until_sent = until_sent;
        }
        // What the client has not taken by now it does not get.
        if is_last { Err(Ended(None)) } else { Ok(()) }
    }

    fn run(&self, request: &Request<'_>) -> Reply {
        let state = &*self.connection.state;
        self.connection.woken.store(false, Ordering::SeqCst);
        or_bug(|| self.serving.service.run(state, request))
    }

    /// Goes on with the answer to a request that was done before.
    pub(crate) fn go_on(
        mut self,
        unfinished: Box<dyn Unfinished>,
        sent_as: Option<SentAs>,
    ) -> Result<(), Ended> {
        self.connection.woken.store(false, Ordering::SeqCst);
        let mut reply = or_bug(|| unfinished.go_on(self.serving.waker));
        if let Some(unfinished) = reply.unfinished.take() {
            self.defer_answer(unfinished, sent_as, reply.wait);
            return Ok(());
        }
        let Reply { document, memory, hang_up, is_last, .. } = reply;
        if hang_up {
            return Err(Ended(None));
        }
        if let Some(SentAs { envelope, form }) = sent_as {
            match form {
                Form::Message => {
                    self.send(envelope, MsgFlags::NONE, document, memory)?;
                }
                Form::Reply(answer) => self.send_translated(envelope, answer, &document)?,
            }
        }
        if is_last { Err(Ended(None)) } else { Ok(()) }
    }

    fn defer(&mut self, frame: Vec<u8>, packed: Option<Compressor>, until: Option<Duration>) {
        let bytes = frame.capacity();
        self.lay_down(DeferredWork::Run { frame, packed }, until, bytes);
    }

    fn defer_answer(
        &mut self,
        unfinished: Box<dyn Unfinished>,
        sent_as: Option<SentAs>,
        until: Option<Duration>,
    ) {
        let bytes = unfinished.bytes();
        self.lay_down(DeferredWork::Answer { unfinished, sent_as }, until, bytes);
    }

    fn lay_down(&mut self, what: DeferredWork, until: Option<Duration>, bytes: usize) {
        let memory = &self.serving.options.memory;
        let memory = memory.charge_regardless(Part::PartialRequests, bytes as u64);
        self.progress.deferred = Some(Deferred { what, until, memory });
    }

    /// Sends an error, without having run anything.
    fn send_error(&mut self, envelope: Envelope, error: &errors::Error) -> Result<(), Ended> {
        self.send(envelope, MsgFlags::NONE, error_document(error), None).map(drop)
    }

    /// Sends one reply, or begins to; returns its number. `memory` is for the document.
    fn send(
        &mut self,
        envelope: Envelope,
        flags: MsgFlags,
        document: RawDocumentBuf,
        memory: Option<Charge>,
    ) -> Result<i32, Ended> {
        let checksum = if envelope.checksum { MsgFlags::CHECKSUM_PRESENT } else { MsgFlags::NONE };
        let (to, flags) = (envelope.response_to, flags.with(checksum));
        let apart = document.as_bytes().len() > COPIED_REPLY
            && envelope.packed.is_none()
            && !envelope.checksum;
        if apart {
            let length = document.as_bytes().len();
            self.send_with(None, Some(Behind { document, memory }), |out, number| {
                wire::encode_msg_head(out, number, to, flags, length);
            })
        } else {
            let number = self.send_with(envelope.packed, None, |out, number| {
                wire::encode_msg(out, number, to, flags, &document);
            })?;
            keep_room(document);
            Ok(number)
        }
    }

    /// Sends what `encode` makes of the reply's number, and behind it a document that is not packed.
    fn send_with(
        &mut self,
        packed: Option<Compressor>,
        behind: Option<Behind>,
        encode: impl FnOnce(&mut Vec<u8>, i32),
    ) -> Result<i32, Ended> {
        debug_assert!(self.progress.unsent.is_none(), "one reply at a time");
        let number = self.progress.replies.checked_add(1).unwrap_or(1);
        self.progress.replies = number;
        let Outgoing { outbox, plain, codec, .. } = &mut *self.out;
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
        let document = behind.as_ref().map_or(&[][..], |behind| behind.document.as_bytes());
        let length = outbox.len() + document.len();
        self.serving.worker.sent(length);
        let sent =
            (self.progress.channel).write_both(&self.connection.stream, outbox, document, 0)?;
        if sent < length {
            let now = self.serving.clock.monotonic();
            let head = std::mem::take(outbox);
            let uncharged = behind.as_ref().filter(|behind| behind.memory.is_none());
            let uncharged = uncharged.map_or(0, |behind| behind.document.as_bytes().len());
            let encrypted = self.progress.channel.most_unsent_bytes();
            let charge = (self.serving.options.memory)
                .charge_regardless(Part::Replies, (head.capacity() + uncharged + encrypted) as u64);
            self.progress.unsent = Some(Unsent {
                head,
                behind,
                sent,
                began: now,
                went_on: now,
                until_sent: None,
                _memory: charge,
            });
        }
        self.out.shrink();
        Ok(number)
    }
}

/// Runs what the service does for a reply; a reply that tells of a bug where it met one.
fn or_bug(run: impl FnOnce() -> Reply) -> Reply {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        // The panic hook has logged where and why.
        let error = errors::Error::new(Code::INTERNAL_ERROR, "the command failed by a bug");
        error_document(&error).into()
    })
}

fn error_document(error: &errors::Error) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("ok"), 0.0);
    document.append(cstr!("errmsg"), error.message());
    document.append(cstr!("code"), error.code().0);
    document.append(cstr!("codeName"), error.code().name().as_ref());
    document
}
