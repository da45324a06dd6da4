//! Links that other members have opened: one thread each reads frames and puts them into the inbox.
//!
//! Always true: of a member only the newest connection counts, and the older one is closed before the newer
//! is read; a connection by which anything comes that is no frame of that member is closed.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use dispatch::HandedOver;
use limits::Part;
use os::sync::Mutex;
use quorum::MemberId;
use replica::PACKING_BYTES;

use crate::causes::Causes;
use crate::dial::prepare;
use crate::frames::{FrameReader, ReadError};
use crate::hello::LinkHello;
use crate::inbox::{ConnectionGeneration, Superseded};
use crate::peer::LinkContext;

/// Small frames are read together up to so many bytes.
const TOGETHER: usize = 64 << 10;
/// Of a frame that takes long it is told that it comes on, so often at most and behind so many bytes.
const TELL_EVERY: Duration = Duration::from_millis(200);
const TELL_BYTES: usize = 4 << 10;
/// The rest of a frame comes within this time, each piece of it.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The links that others have opened.
#[derive(Default)]
pub(crate) struct Incoming {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: BTreeMap<MemberId, Open>,
    /// The newest connection of each member: the start of its process, and the number in it.
    newest: BTreeMap<MemberId, (u64, u64)>,
    causes: Causes,
    ended: bool,
}

struct Open {
    connection: ConnectionGeneration,
    /// The socket that the thread reads, to close it.
    socket: TcpStream,
}

/// What a thread reads.
pub(crate) struct Reading {
    connection: ConnectionGeneration,
    input: Box<dyn Read + Send>,
    socket: TcpStream,
    opened: Duration,
}

impl Incoming {
    /// Why that hello is not that of a newer connection than the one there is, if so.
    pub(crate) fn is_outdated(&self, hello: &LinkHello) -> bool {
        self.state.lock().is_outdated(hello)
    }

    /// A link was refused; whether that is to be logged.
    pub(crate) fn refused(&self, of: u64, cause: &str) -> bool {
        self.state.lock().causes.failed(of, cause)
    }

    /// Takes a connection in: the older one of that member is closed. What is returned is for its thread.
    pub(crate) fn begin(
        &self,
        hello: &LinkHello,
        link: HandedOver,
        context: &LinkContext,
    ) -> io::Result<Option<Reading>> {
        let HandedOver { socket, input } = link;
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(STALL_TIMEOUT))?;
        // By TLS reading may have to answer.
        socket.set_write_timeout(Some(STALL_TIMEOUT))?;
        prepare(&socket)?;
        let to_close = socket.try_clone()?;
        let mut state = self.state.lock();
        if state.ended || state.is_outdated(hello) {
            return Ok(None);
        }
        state.newest.insert(hello.from, (hello.start, hello.connection));
        if let Some(older) = state.open.remove(&hello.from) {
            close(&older.socket);
        }
        let connection = context.inbox.begin(hello.from);
        state.open.insert(hello.from, Open { connection, socket: to_close });
        if state.causes.opened(hello.from.0) {
            tracing::info!(target: "REPL", member = %hello.from, "A member has opened a link");
        }
        let opened = context.dialer.os.clock.monotonic();
        Ok(Some(Reading { connection, input, socket, opened }))
    }

    /// Reads frames until the connection is over.
    pub(crate) fn run(&self, reading: Reading, context: &LinkContext) {
        let Reading { connection, input, socket, opened } = reading;
        let cause = read_frames(connection, input, context);
        close(&socket);
        drop(socket);
        let mut state = self.state.lock();
        let is_newest =
            state.open.get(&connection.member).is_some_and(|open| open.connection == connection);
        if !is_newest {
            // It was closed here, for a newer one or none.
            return;
        }
        state.open.remove(&connection.member);
        context.inbox.end(connection.member);
        let lived = context.dialer.os.clock.monotonic().saturating_sub(opened);
        state.causes.lived(connection.member.0, lived);
        if state.causes.failed(connection.member.0, &cause) {
            drop(state);
            tracing::info!(target: "REPL", member = %connection.member, cause,
                "The link that a member had opened is closed");
        }
    }

    /// Closes the link of that member, which nobody reads.
    pub(crate) fn close(&self, member: MemberId, context: &LinkContext) {
        if let Some(open) = self.state.lock().open.remove(&member) {
            close(&open.socket);
            context.inbox.end(member);
        }
    }

    /// Closes the link of that member because of what came by it.
    pub(crate) fn hang_up(&self, member: MemberId, cause: &str, context: &LinkContext) {
        let mut state = self.state.lock();
        let Some(open) = state.open.remove(&member) else { return };
        close(&open.socket);
        context.inbox.end(member);
        if state.causes.failed(member.0, cause) {
            drop(state);
            tracing::warn!(target: "REPL", member = %member, cause,
                "The link that a member had opened is closed");
        }
    }

    /// The links of these members stay, others are closed.
    pub(crate) fn retain(&self, stays: impl Fn(MemberId) -> bool, context: &LinkContext) {
        let mut state = self.state.lock();
        state.newest.retain(|member, _| stays(*member));
        let leaving: Vec<_> = state.open.extract_if(.., |member, _| !stays(*member)).collect();
        for (member, open) in leaving {
            close(&open.socket);
            context.inbox.end(member);
        }
    }

    /// Closes everything, for ever.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        for open in std::mem::take(&mut state.open).into_values() {
            close(&open.socket);
        }
    }

    /// Whether that member has a link open to this one.
    pub(crate) fn is_open(&self, member: MemberId) -> bool {
        self.state.lock().open.contains_key(&member)
    }
}

impl State {
    fn is_outdated(&self, hello: &LinkHello) -> bool {
        self.newest.get(&hello.from).is_some_and(|(start, connection)| {
            *start == hello.start && hello.connection <= *connection
        })
    }
}

fn close(socket: &TcpStream) {
    // One that is closed already is what is wanted.
    let _already_gone = socket.shutdown(Shutdown::Both);
}

/// Reads frames into the inbox; returns why no more are.
fn read_frames(
    connection: ConnectionGeneration,
    input: impl Read,
    context: &LinkContext,
) -> String {
    let mut reader = FrameReader::new(BufReader::with_capacity(TOGETHER, input));
    let clock = &context.dialer.os.clock;
    let _unpacking = context.memory.charge_regardless(Part::Links, PACKING_BYTES);
    loop {
        let (mut told, mut untold_bytes) = (None, 0);
        let mut arriving = |count: usize| {
            untold_bytes += count;
            if untold_bytes < TELL_BYTES {
                return;
            }
            let now = clock.monotonic();
            if now.saturating_sub(*told.get_or_insert(now)) >= TELL_EVERY {
                (told, untold_bytes) = (Some(now), 0);
                context.inbox.report_arriving(connection);
            }
        };
        let mut memory = context.memory.charge_regardless(Part::Links, 0);
        let (frame, bytes) = match reader.next(&mut memory, &mut arriving) {
            Ok(next) => next,
            Err(ReadError::Io(error)) => return error.to_string(),
            Err(error) => return error.to_string(),
        };
        if frame.from() != connection.member {
            return format!("a frame of another member, {}", frame.from());
        }
        match context.inbox.put(connection, frame, bytes, memory) {
            Ok(()) => {}
            Err(Superseded) => return "it is not wanted any more".to_owned(),
        }
    }
}
