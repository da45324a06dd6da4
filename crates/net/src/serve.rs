//! A connection with a worker: what has arrived is run, until nothing is left to do without waiting.
//!
//! What is always true:
//! 1. Nothing here waits for the client, for room or for a time: the connection is parked instead, with
//!    an [`Outcome`] that says for what.
//! 2. A message of more than [`LARGE_BYTES`], packed or unpacked, is read and run only after it was let
//!    into the account with its whole length.
//! 3. While a reply is not taken, nothing more is read or run.

use crate::connection::{Connection, DeferredWork, Progress, Unsent};
use crate::exchange::{Ended, Exchange, Outgoing, Serving};
use crate::inbox::Inbox;
use crate::service::Service;
use limits::{Account, BeforeLogin, LARGE_BYTES, Part};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tls::Arrived;

/// People point browsers and health checks at the port.
const TO_A_BROWSER: &[u8] = b"HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\n\
    Content-Length: 92\r\n\r\n\
    This is FernDB. It speaks MongoDB's wire protocol here, not HTTP: use mongosh or a driver.\r\n";

/// Requests of one connection until others get a turn: a client may send many without waiting for replies.
const TURN: usize = 64;

/// Reads of a TLS connection that bring nothing to run until others get a turn.
const FRUITLESS_READS: usize = 64;

/// What becomes of a connection after a worker served it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing is left to do until its socket has news.
    Quiet,
    /// More is there, but it is the others' turn.
    Again,
    /// Its next message needs so many bytes, for which there is no room now.
    AwaitRoom(usize),
    /// Its request waits ([`Progress::deferred`]).
    Defer,
    /// Its last request was answered, and its socket is to go on elsewhere ([`Progress::hand_over`]).
    HandOver,
    /// It is over, for a reason worth logging or none.
    Close(Option<String>),
}

/// What a worker keeps from request to request and from connection to connection.
pub(crate) struct WorkerBuffers {
    inbox: Inbox,
    out: Outgoing,
}

impl WorkerBuffers {
    /// Empty ones, charged to the account.
    pub(crate) fn new(account: &Arc<Account>) -> Self {
        Self {
            inbox: Inbox::new(account.charge_regardless(Part::Requests, 0)),
            out: Outgoing::new(account.charge_regardless(Part::Replies, 0)),
        }
    }
}

/// Why serving pauses.
enum Pause {
    /// There is no whole message.
    Incomplete,
    Room(usize),
    Deferred,
    Unsent,
    HandOver,
    Stopping,
    Turn,
}

/// Serves a connection as far as it goes.
pub(crate) fn serve<S: Service>(
    serving: &Serving<'_, S>,
    connection: &Connection<S>,
    progress: &mut Progress,
    buffers: &mut WorkerBuffers,
) -> Outcome {
    if !progress.partial.is_empty() {
        buffers.inbox.load(std::mem::take(&mut progress.partial));
    }
    if let Some(room) = &mut progress.room {
        room.move_to(Part::Requests);
    }
    let outcome = match serve_until(serving, connection, progress, buffers) {
        Ok(outcome) => outcome,
        Err(Ended(reason)) => Outcome::Close(reason),
    };
    // The next connection must not find this one's bytes.
    if !buffers.inbox.held().is_empty() {
        progress.partial = buffers.inbox.unload();
    }
    if let Some(room) = &mut progress.room {
        room.move_to(Part::PartialRequests);
    }
    outcome
}

fn serve_until<S: Service>(
    serving: &Serving<'_, S>,
    connection: &Connection<S>,
    progress: &mut Progress,
    buffers: &mut WorkerBuffers,
) -> Result<Outcome, Ended> {
    if !send_rest(serving, connection, progress)? || !progress.channel.flush(&connection.stream)? {
        return Ok(Outcome::Quiet);
    }
    if let Some(deferred) = progress.deferred.take() {
        let (waited_until, out) = (deferred.until, &mut buffers.out);
        note_heard(serving, connection);
        match deferred.what {
            DeferredWork::Run { frame, packed } => {
                let frame = &frame[..];
                let mut again =
                    Exchange { serving, connection, progress, frame, waited_until, out };
                again.answer_plain(packed)?;
            }
            DeferredWork::Answer { unfinished, sent_as } => {
                let frame: &[u8] = &[];
                let rest = Exchange { serving, connection, progress, frame, waited_until, out };
                rest.go_on(unfinished, sent_as)?;
            }
        }
        note_login(serving, connection);
        if is_handed_over(serving, progress)? {
            return Ok(Outcome::HandOver);
        }
        if let Some(outcome) = parked(progress) {
            return Ok(outcome);
        }
    }
    let mut turn = TURN;
    // A read that brings less than it has room for has emptied the socket: what comes later is news. But
    // not of an end that was told of already.
    let mut emptied = false;
    let mut fruitless = 0;
    loop {
        match serve_arrived(serving, connection, progress, buffers, &mut turn)? {
            Pause::Room(needed) => return Ok(Outcome::AwaitRoom(needed)),
            Pause::Deferred => return Ok(Outcome::Defer),
            Pause::Unsent => return Ok(Outcome::Quiet),
            Pause::HandOver => return Ok(Outcome::HandOver),
            Pause::Turn => return Ok(Outcome::Again),
            Pause::Stopping => return Ok(Outcome::Close(None)),
            Pause::Incomplete if serving.stopping.load(Ordering::Relaxed) => {
                return Ok(Outcome::Close(None));
            }
            Pause::Incomplete => {}
        }
        if !buffers.inbox.held().is_empty() || progress.channel.is_half() {
            note_half(serving, connection, progress)?;
        } else {
            progress.began = None;
        }
        // With TLS there may be plain bytes although the socket has no more.
        if emptied && !progress.channel.is_tls() || progress.channel.has_unsent() {
            return Ok(Outcome::Quiet);
        }
        let filled = buffers.inbox.fill(|into| {
            let arrived = progress.channel.read(&connection.stream, into, &mut emptied)?;
            emptied &= !connection.hung_up.load(Ordering::Relaxed);
            Ok(arrived)
        });
        match filled {
            Ok(Arrived::Ended) => return Ok(Outcome::Close(None)),
            Ok(Arrived::Plain(received)) => {
                serving.worker.received(received);
                if progress.channel.decide(
                    &connection.stream,
                    &serving.options.tls,
                    buffers.inbox.held(),
                )? {
                    buffers.inbox.clear();
                    let bytes = tls::SESSION_BYTES;
                    let memory = &serving.options.memory;
                    progress.tls_memory = Some(memory.charge_regardless(Part::Tls, bytes));
                }
                tell_if_established(serving, connection, progress)?;
            }
            Ok(Arrived::Nothing) => {
                tell_if_established(serving, connection, progress)?;
                fruitless += 1;
                if fruitless >= FRUITLESS_READS {
                    return Ok(Outcome::Again);
                }
            }
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => return Ok(Outcome::Quiet),
                _ => return Err(error.into()),
            },
        }
    }
}

/// Tells the service once a handshake is done.
fn tell_if_established<S: Service>(
    serving: &Serving<'_, S>,
    connection: &Connection<S>,
    progress: &mut Progress,
) -> Result<(), Ended> {
    if let Some(established) = progress.channel.established()? {
        serving.stats.established(established.version);
        serving.service.secured(&connection.state, &established);
    }
    Ok(())
}

/// Why nothing more may be run now, if so.
fn parked(progress: &Progress) -> Option<Outcome> {
    if progress.unsent.is_some() {
        return Some(Outcome::Quiet);
    }
    progress.deferred.is_some().then_some(Outcome::Defer)
}

/// Whether the socket is to go on elsewhere. Fails where that cannot be: the short reply before it was not
/// taken at once, or the server ends.
fn is_handed_over<S: Service>(
    serving: &Serving<'_, S>,
    progress: &Progress,
) -> Result<bool, Ended> {
    if progress.hand_over.is_none() {
        return Ok(false);
    }
    if serving.stopping.load(Ordering::Relaxed) {
        return Err(Ended(None));
    }
    if progress.awaits_room_to_send() {
        return Err(Ended(Some("a member that opens a link does not take its answer".to_owned())));
    }
    Ok(true)
}

/// Sends what the client takes of a reply; whether nothing is left of it.
fn send_rest<S: Service>(
    serving: &Serving<'_, S>,
    connection: &Connection<S>,
    progress: &mut Progress,
) -> Result<bool, Ended> {
    let Some(Unsent { head, behind, sent, went_on, .. }) = &mut progress.unsent else {
        return Ok(true);
    };
    let document = behind.as_ref().map_or(&[][..], |behind| behind.document.as_bytes());
    let now_sent = progress.channel.write_both(&connection.stream, head, document, *sent)?;
    if now_sent > *sent {
        (*sent, *went_on) = (now_sent, serving.clock.monotonic());
    }
    let done = *sent == head.len() + document.len();
    if done {
        progress.unsent = None;
    }
    Ok(done)
}

/// Notes that a message is half here. Fails where it took too long.
fn note_half<S: Service>(
    serving: &Serving<'_, S>,
    connection: &Connection<S>,
    progress: &mut Progress,
) -> Result<(), Ended> {
    let now = serving.clock.monotonic();
    let began = *progress.began.get_or_insert(now);
    progress.went_on = now;
    let time = message_time(serving.service, connection, serving.options.message_timeout);
    if now.saturating_sub(began) >= time {
        return Err(Ended(Some("a message did not arrive in time".to_owned())));
    }
    Ok(())
}

/// How long a message of a connection may take.
pub(crate) fn message_time<S: Service>(
    service: &S,
    connection: &Connection<S>,
    usual: Duration,
) -> Duration {
    match service.before_login(&connection.state) {
        Some(limits) => usual.min(limits.message_time()),
        None => usual,
    }
}

/// A request has come: its client is not silent. Noted before it is answered, so that who has an answer is known to
/// have asked.
fn note_heard<S: Service>(serving: &Serving<'_, S>, connection: &Connection<S>) {
    if connection.unauthenticated.load(Ordering::Relaxed) {
        serving.unauthenticated.lock().record_request(connection.id, serving.clock.monotonic());
    }
}

/// A request was answered: who has logged in by it is counted among the others no longer.
fn note_login<S: Service>(serving: &Serving<'_, S>, connection: &Connection<S>) {
    if connection.unauthenticated.load(Ordering::Relaxed)
        && serving.service.before_login(&connection.state).is_none()
        && connection.unauthenticated.swap(false, Ordering::Relaxed)
    {
        serving.unauthenticated.lock().remove(connection.id);
    }
}

/// Refuses a message that is too long for who has not logged in: it is not waited for.
fn check_length<S: Service>(
    serving: &Serving<'_, S>,
    connection: &Connection<S>,
    message: usize,
) -> Result<(), Ended> {
    if message <= BeforeLogin::LEAST_MESSAGE {
        return Ok(());
    }
    match serving.service.before_login(&connection.state) {
        Some(limits) if message as u64 > limits.message_bytes.load(Ordering::Relaxed) => {
            let most = limits.message_bytes.load(Ordering::Relaxed);
            let reason =
                format!("a message of {message} bytes before a login, and {most} are allowed");
            Err(Ended(Some(reason)))
        }
        _ => Ok(()),
    }
}

/// Runs every request that has arrived whole and for which there is room, at most `turn`.
fn serve_arrived<S: Service>(
    serving: &Serving<'_, S>,
    connection: &Connection<S>,
    progress: &mut Progress,
    buffers: &mut WorkerBuffers,
    turn: &mut usize,
) -> Result<Pause, Ended> {
    let WorkerBuffers { inbox, out } = buffers;
    loop {
        let needed = inbox.needed().map_err(|error| lost(&error, inbox, connection, progress))?;
        let Some(message) = needed else { return Ok(Pause::Incomplete) };
        check_length(serving, connection, message)?;
        // The largest document of it is copied while it runs.
        let needed = message + message.min(wire::MAX_DOCUMENT_SIZE);
        if needed > LARGE_BYTES && progress.room.is_none() {
            let is_short_of_room = serving.is_short_of_room.load(Ordering::Relaxed);
            let admit = || serving.options.memory.try_admit(Part::Requests, needed as u64);
            progress.room = if is_short_of_room { None } else { admit() };
            if progress.room.is_none() {
                return Ok(Pause::Room(needed));
            }
        }
        let frame = inbox.frame().map_err(|error| lost(&error, inbox, connection, progress))?;
        let Some(range) = frame else { return Ok(Pause::Incomplete) };
        let Some(left) = turn.checked_sub(1) else { return Ok(Pause::Turn) };
        *turn = left;
        progress.began = None;
        let frame = inbox.bytes(range.clone());
        let out = &mut *out;
        let exchange = Exchange { serving, connection, progress, frame, waited_until: None, out };
        note_heard(serving, connection);
        exchange.answer()?;
        inbox.consume(&range);
        note_login(serving, connection);
        progress.room = None;
        if is_handed_over(serving, progress)? {
            return Ok(Pause::HandOver);
        }
        if progress.unsent.is_some() {
            return Ok(Pause::Unsent);
        }
        if progress.deferred.is_some() {
            return Ok(Pause::Deferred);
        }
        if serving.stopping.load(Ordering::Relaxed) {
            return Ok(Pause::Stopping);
        }
    }
}

/// The end of a stream whose next header makes no sense.
fn lost<S: Service>(
    error: &wire::Error,
    inbox: &Inbox,
    connection: &Connection<S>,
    progress: &mut Progress,
) -> Ended {
    if inbox.held().starts_with(b"GET ") {
        // Best effort: the connection is over either way.
        let _lost = progress.channel.write_both(&connection.stream, TO_A_BROWSER, &[], 0);
    }
    Ended(Some(error.to_string()))
}
