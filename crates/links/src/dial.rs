//! Opening a link: a connection to a member's port, the handshake of TLS, the hello and its answer.
//!
//! Always true: nothing here takes longer than its limit, but for the system's resolver; and each wait ends
//! when the link is no longer wanted.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use os::Clock;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt;
use socket2::{Domain, Protocol, Socket, Type};

use crate::address::HostAndPort;
use crate::hello::{LinkHello, MAX_ANSWER, answer_length, read_answer, set_of_refusal};
use crate::signal::{Signal, Wake};
use crate::stream::{Stream, is_to_be_waited_for};
use wire::HEADER_SIZE;

/// Nothing of what was sent is acknowledged for so long: the other side, or the way to it, is gone.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);
/// A silent connection is asked after so long whether it is there, then each second, so many times.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 5;
/// How often a wait looks whether it is still wanted, where nothing is said to it.
const LOOK: Duration = Duration::from_millis(100);

/// Why there is no link.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DialError {
    /// Nobody listens at that port of a machine that answers.
    Refused,
    /// The link is not wanted any more.
    Ended,
    /// The other side knows a newer configuration, which does not have this member.
    Removed {
        /// In one line.
        cause: String,
        /// Its document.
        document: Vec<u8>,
    },
    /// Anything else, in one line.
    Failed(String),
}

/// Time limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DialLimits {
    /// For one address.
    pub(crate) connect: Duration,
    /// For the hello and its answer.
    pub(crate) hello: Duration,
}

/// What the threads of a link need to wait.
#[derive(Clone, Copy)]
pub(crate) struct WaitContext<'a> {
    pub(crate) signal: &'a Signal,
    pub(crate) clock: &'a dyn Clock,
    /// Whether the link is not wanted any more.
    pub(crate) ended: &'a dyn Fn() -> bool,
}

/// Connects to the first address that answers.
pub(crate) fn connect(
    to: &HostAndPort,
    limits: DialLimits,
    waiting: WaitContext<'_>,
) -> Result<TcpStream, DialError> {
    let failed = |error: io::Error| DialError::Failed(error.to_string());
    let mut last = None;
    let mut all_refused = true;
    for address in to.resolve().map_err(failed)? {
        match connect_to(address, limits.connect, waiting) {
            Ok(socket) => return Ok(socket),
            Err(DialError::Ended) => return Err(DialError::Ended),
            Err(DialError::Refused) => {}
            Err(other) => {
                all_refused = false;
                last = Some(other);
            }
        }
    }
    match last {
        Some(error) if !all_refused => Err(error),
        _ => Err(DialError::Refused),
    }
}

fn connect_to(
    address: SocketAddr,
    limit: Duration,
    waiting: WaitContext<'_>,
) -> Result<TcpStream, DialError> {
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::ConnectionRefused => DialError::Refused,
        _ => DialError::Failed(error.to_string()),
    };
    let made = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP));
    let socket = made.map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    let until = waiting.clock.monotonic().saturating_add(limit);
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {
            wait(&socket, PollFlags::OUT, until, waiting, "it does not answer")?;
            if let Some(error) = socket.take_error().map_err(failed)? {
                return Err(failed(error));
            }
        }
        Err(error) => return Err(failed(error)),
    }
    let stream = TcpStream::from(socket);
    prepare(&stream).map_err(failed)?;
    Ok(stream)
}

/// Sets what both ends of a link want of their sockets: no waiting for more to send, and a word where the
/// other side is gone without one.
pub(crate) fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(socket, ACK_TIMEOUT.as_millis() as u32)?;
    Ok(())
}

/// Waits until the socket is ready, or the time is over.
fn wait(
    socket: &impl std::os::fd::AsFd,
    wanted: PollFlags,
    until: Duration,
    waiting: WaitContext<'_>,
    late: &str,
) -> Result<(), DialError> {
    loop {
        if (waiting.ended)() {
            return Err(DialError::Ended);
        }
        let left = until.saturating_sub(waiting.clock.monotonic());
        if left.is_zero() {
            return Err(DialError::Failed(late.to_owned()));
        }
        match waiting.signal.wait(Some((socket.as_fd(), wanted)), Some(left.min(LOOK))) {
            Ok(Wake { ready: true, .. }) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(DialError::Failed(error.to_string())),
        }
    }
}

/// Agrees on TLS, where that is spoken.
pub(crate) fn shake_hands(
    stream: &mut Stream,
    limit: Duration,
    waiting: WaitContext<'_>,
) -> Result<(), DialError> {
    let until = waiting.clock.monotonic().saturating_add(limit);
    loop {
        match stream.shake_hands() {
            Ok(()) => return Ok(()),
            Err(error) => {
                let wanted = if stream.has_unsent() { PollFlags::OUT } else { PollFlags::IN };
                again(&error, stream, wanted, until, waiting, "it does not agree on TLS")?;
            }
        }
    }
}

/// Says the hello and reads what is answered to it, and the version of frames that both sides know.
pub(crate) fn exchange(
    stream: &mut Stream,
    hello: &LinkHello,
    limit: Duration,
    waiting: WaitContext<'_>,
) -> Result<(LinkHello, u8), DialError> {
    let answer = converse(stream, &hello.message(), limit, MAX_ANSWER, waiting)?;
    read_answer(&answer).map_err(|cause| match set_of_refusal(&answer) {
        Some(document) => DialError::Removed { cause, document: document.to_vec() },
        None => DialError::Failed(cause),
    })
}

/// What is given to a peer that takes or says nothing.
const SILENT: &str = "it does not answer";
/// Memory that an answer takes before its first bytes are here.
const FIRST_BYTES: usize = 64 << 10;

/// Sends a message and reads the one that answers it, which has at most so many bytes.
pub(crate) fn converse(
    stream: &mut Stream,
    message: &[u8],
    limit: Duration,
    most_bytes: usize,
    waiting: WaitContext<'_>,
) -> Result<Vec<u8>, DialError> {
    send_message(stream, message, limit, waiting)?;
    let mut answer = Vec::new();
    let length = read_message(stream, &mut answer, limit, most_bytes, waiting)?;
    answer.truncate(length);
    Ok(answer)
}

/// Sends a message.
pub(crate) fn send_message(
    stream: &mut Stream,
    message: &[u8],
    limit: Duration,
    waiting: WaitContext<'_>,
) -> Result<(), DialError> {
    let until = waiting.clock.monotonic().saturating_add(limit);
    let mut left = message;
    while !left.is_empty() {
        match stream.write(left) {
            Ok(0) => return Err(DialError::Failed("it takes no message".to_owned())),
            Ok(count) => left = left.get(count..).unwrap_or_default(),
            Err(error) => again(&error, stream, PollFlags::OUT, until, waiting, SILENT)?,
        }
    }
    while let Err(error) = stream.flush() {
        again(&error, stream, PollFlags::OUT, until, waiting, SILENT)?;
    }
    Ok(())
}

/// Reads one message of at most so many bytes, and nothing of what follows it, into memory that may be longer already.
/// Returns how long it is.
pub(crate) fn read_message(
    stream: &mut Stream,
    memory: &mut Vec<u8>,
    limit: Duration,
    most_bytes: usize,
    waiting: WaitContext<'_>,
) -> Result<usize, DialError> {
    let until = waiting.clock.monotonic().saturating_add(limit);
    let mut filled = 0;
    let mut wanted = HEADER_SIZE;
    loop {
        if memory.len() < wanted {
            memory.resize(wanted, 0);
        }
        while let Some(space) = memory.get_mut(filled..wanted).filter(|space| !space.is_empty()) {
            match stream.read(space) {
                Ok(0) => {
                    return Err(DialError::Failed("it closes without an answer".to_owned()));
                }
                Ok(count) => filled += count,
                Err(error) => again(&error, stream, PollFlags::IN, until, waiting, SILENT)?,
            }
        }
        let received = memory.get(..filled).unwrap_or_default();
        let length = answer_length(received, most_bytes).map_err(DialError::Failed)?;
        let length = length.unwrap_or(HEADER_SIZE);
        if filled >= length {
            return Ok(length);
        }
        // Memory grows with what has come, whatever length the header claims.
        wanted = length.min(memory.len().max(FIRST_BYTES).max(2 * filled));
    }
}

/// After an error of a read or write: waits where that is all there is to do.
fn again(
    error: &io::Error,
    stream: &Stream,
    wanted: PollFlags,
    until: Duration,
    waiting: WaitContext<'_>,
    late: &str,
) -> Result<(), DialError> {
    match error.kind() {
        ErrorKind::Interrupted => Ok(()),
        _ if is_to_be_waited_for(error) => wait(stream, wanted, until, waiting, late),
        _ => Err(DialError::Failed(error.to_string())),
    }
}
