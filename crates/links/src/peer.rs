//! What is sent to one member: a queue, and a thread that keeps a connection and empties the queue into it.
//!
//! | from | event | then |
//! |---|---|---|
//! | no connection | one is opened, its hello answered as it should | up is told; frames go out |
//! | no connection | nobody listens there | the queue is lost; refused is told, once until there is news of the member |
//! | no connection | anything else fails | the queue is lost, and told so |
//! | connection | it breaks, or takes nothing for a while | the queue is lost, and told so |
//! | pause | the member opened a link to us | the next try comes at once |
//!
//! A small frame that finds nothing before it is written by who sends it, without waking the thread; what the socket does
//! not take of it is the thread's.
//!
//! Always true: a frame goes out whole behind those before it, on the connection of its time, or is lost and
//! told so. Who sends never waits.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use limits::{Account, Charge, LARGE_BYTES, Part};
use os::sync::Mutex;
use quorum::MemberId;
use replica::{Frame, OLDEST_FRAME_VERSION, PACKING_BYTES};
use rustix::event::PollFlags;

use crate::address::HostAndPort;
use crate::backoff::Backoff;
use crate::causes::Causes;
use crate::dial::{self, DialError, DialLimits, WaitContext};
use crate::dialer::Dialer;
use crate::frames;
use crate::hello::LinkHello;
use crate::identity::Admission;
use crate::inbox::Inbox;
use crate::queue::Queue;
use crate::signal::Signal;
use crate::stream::{Stream, is_to_be_waited_for};
use crate::tuning::Tuning;

/// Small frames are sent together up to so many bytes.
const TOGETHER: usize = 64 << 10;
/// Payloads of a frame that is written by who sends it: shorter than what is packed.
const DIRECT: usize = 4 << 10;

/// What the threads of all members share.
pub(crate) struct LinkContext {
    pub(crate) dialer: Dialer,
    pub(crate) tuning: Tuning,
    pub(crate) admission: Arc<dyn Admission>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) memory: Arc<Account>,
    /// Of this start.
    pub(crate) start: u64,
}

/// The way to one member.
pub(crate) struct Peer {
    pub(crate) member: MemberId,
    pub(crate) address: HostAndPort,
    state: Mutex<State>,
    signal: Signal,
    /// The number of its first connection, less one.
    connections_before: u64,
}

#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
struct State {
    queue: Queue,
    /// The socket of the connection, where it is plain.
    direct: Option<TcpStream>,
    /// The thread waits, and nothing is unsent: who sends may write.
    is_idle: bool,
    /// The version of frames that the other side of the connection reads.
    frame_version: u8,
    /// What the socket has not taken of a frame that was written so; the room is used again.
    rest: Vec<u8>,
    ended: bool,
    /// There is news of the member: try at once.
    retry_now: bool,
    up: bool,
    connections: u64,
}

impl Peer {
    /// A way without a connection. `connections` were made to that member before.
    pub(crate) fn new(
        member: MemberId,
        address: HostAndPort,
        connections: u64,
        context: &LinkContext,
    ) -> std::io::Result<Self> {
        let charge = context.memory.charge_regardless(Part::Links, 0);
        let state = State {
            queue: Queue::new(context.tuning.queue_bytes, charge),
            direct: None,
            is_idle: false,
            frame_version: OLDEST_FRAME_VERSION,
            rest: Vec::new(),
            ended: false,
            retry_now: false,
            up: false,
            connections,
        };
        let signal = Signal::new()?;
        Ok(Self {
            member,
            address,
            state: Mutex::new(state),
            signal,
            connections_before: connections,
        })
    }

    /// Takes a frame in; `false` where it is lost.
    pub(crate) fn push(&self, frame: Frame) -> bool {
        let mut state = self.state.lock();
        match state.write(&frame) {
            Written::Whole => return true,
            Written::Part => {
                drop(state);
                self.signal.tell();
                return true;
            }
            Written::Nothing => {}
        }
        let was_empty = state.queue.is_empty();
        let taken = !state.ended && state.queue.push(frame);
        drop(state);
        if taken && was_empty {
            self.signal.tell();
        }
        taken
    }

    /// That member opened a link to us: it is there.
    pub(crate) fn retry_now(&self) {
        let mut state = self.state.lock();
        state.retry_now = !state.up;
        drop(state);
        self.signal.tell();
    }

    /// The link is not wanted any more.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        state.queue.clear();
        drop(state);
        self.signal.tell();
    }

    /// Whether what is sent goes out now.
    pub(crate) fn is_up(&self) -> bool {
        self.state.lock().up
    }

    /// How many connections were made to that member, by this one and those before.
    pub(crate) fn connections(&self) -> u64 {
        self.state.lock().connections.max(self.connections_before)
    }

    fn is_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// The life of its thread.
    pub(crate) fn run(&self, context: &LinkContext) {
        let (tuning, clock) = (&context.tuning, &context.dialer.os.clock);
        let mut backoff = Backoff::new(tuning.least_pause, tuning.most_pause);
        let mut causes = Causes::default();
        let mut refusal_told = false;
        loop {
            let lived = match self.dial(context) {
                Ok(stream) => {
                    let opened = clock.monotonic();
                    refusal_told = false;
                    self.state.lock().retry_now = false;
                    if causes.opened(self.member.0) {
                        tracing::info!(target: "REPL", member = %self.member,
                            address = %self.address, "The link to a member is open");
                    }
                    self.state.lock().up = true;
                    context.inbox.report_up(self.member);
                    let cause = self.pump(stream, context);
                    self.lose();
                    if self.is_ended() {
                        return;
                    }
                    let lived = clock.monotonic().saturating_sub(opened);
                    causes.lived(self.member.0, lived);
                    self.log(&mut causes, &cause);
                    context.inbox.report_lost(self.member);
                    Some(lived)
                }
                Err(DialError::Ended) => return,
                Err(DialError::Refused) => {
                    self.fail("nobody listens there", &mut causes, context);
                    if !std::mem::replace(&mut refusal_told, true) {
                        context.inbox.report_port_closed(self.member);
                    }
                    None
                }
                Err(DialError::Failed(cause)) => {
                    self.fail(&cause, &mut causes, context);
                    None
                }
                Err(DialError::Removed { cause, document }) => {
                    self.fail(&cause, &mut causes, context);
                    context.admission.told_of_removal(&document);
                    None
                }
            };
            match self.pause(backoff.after(lived), context) {
                Pause::Over => {}
                Pause::Hurry => {
                    refusal_told = false;
                    backoff.reset();
                }
                Pause::Ended => return,
            }
        }
    }

    fn fail(&self, cause: &str, causes: &mut Causes, context: &LinkContext) {
        self.lose();
        self.log(causes, cause);
        context.inbox.report_lost(self.member);
    }

    fn log(&self, causes: &mut Causes, cause: &str) {
        if !self.is_ended() && causes.failed(self.member.0, cause) {
            tracing::warn!(target: "REPL", member = %self.member, address = %self.address, cause,
                "There is no link to a member; it is tried again and again");
        }
    }

    /// What is in the queue is lost; that is told afterwards, so that nothing is lost untold.
    fn lose(&self) {
        let mut state = self.state.lock();
        state.up = false;
        (state.direct, state.is_idle) = (None, false);
        state.rest.clear();
        state.queue.clear();
    }

    /// Opens a connection and makes it a link.
    fn dial(&self, context: &LinkContext) -> Result<Stream, DialError> {
        let limits = DialLimits { connect: context.tuning.connect, hello: context.tuning.hello };
        let ended = || self.is_ended();
        let waiting =
            WaitContext { signal: &self.signal, clock: &*context.dialer.os.clock, ended: &ended };
        let mut stream = context.dialer.open(&self.address, limits, waiting)?;
        let identity = context.admission.identity();
        let connection = {
            let mut state = self.state.lock();
            state.connections += 1;
            state.connections
        };
        let hello = LinkHello {
            set: identity.set.clone(),
            set_id: identity.set_id,
            from: identity.member,
            to: self.member,
            lineage: identity.lineage,
            start: context.start,
            connection,
        };
        let (answer, frame_version) = dial::exchange(&mut stream, &hello, limits.hello, waiting)?;
        // It is let in where it is who it should be.
        let known = answer.from == self.member;
        match identity.check(&answer, known) {
            Ok(()) => {
                self.state.lock().frame_version = frame_version;
                Ok(stream)
            }
            Err(mismatch) => Err(DialError::Failed(mismatch.to_string())),
        }
    }

    /// Sends what is in the queue until the connection is over; returns why it is.
    fn pump(&self, mut stream: Stream, context: &LinkContext) -> String {
        let clock = &context.dialer.os.clock;
        let mut charge = context.memory.charge_regardless(Part::Links, 0);
        let _packing = context.memory.charge_regardless(Part::Links, PACKING_BYTES);
        let (mut bytes, mut sent) = (Vec::new(), 0);
        let (mut went_on, mut taken) = (clock.monotonic(), stream.taken());
        self.state.lock().direct = stream.plain();
        loop {
            if sent == bytes.len() && !stream.has_unsent() {
                self.fill(&mut bytes, &mut charge, context);
                (sent, went_on) = (0, clock.monotonic());
            }
            let unsent = bytes.get(sent..).unwrap_or_default();
            let mut wanted = PollFlags::IN | PollFlags::RDHUP;
            let mut time = None;
            if !unsent.is_empty() || stream.has_unsent() {
                let written = if unsent.is_empty() {
                    stream.flush().map(|()| 0)
                } else {
                    stream.write(unsent)
                };
                if taken != stream.taken() {
                    (went_on, taken) = (clock.monotonic(), stream.taken());
                }
                match written {
                    Ok(0) if !unsent.is_empty() => return "it takes nothing".to_owned(),
                    Ok(count) => {
                        sent += count;
                        continue;
                    }
                    Err(error) if is_to_be_waited_for(&error) => {}
                    Err(error) => return error.to_string(),
                }
                let stands = clock.monotonic().saturating_sub(went_on);
                let left = context.tuning.stalled.saturating_sub(stands);
                if left.is_zero() {
                    return "it takes nothing any more".to_owned();
                }
                wanted |= PollFlags::OUT;
                time = Some(left);
            }
            let wake = match self.signal.wait(Some((stream.as_fd(), wanted)), time) {
                Ok(wake) => wake,
                Err(error) => return error.to_string(),
            };
            if self.is_ended() {
                return "it is not wanted any more".to_owned();
            }
            if wake.readable {
                match stream.read(&mut [0; 16]) {
                    Ok(0) => return "it was closed by the member".to_owned(),
                    Ok(_) => return "the member speaks where it is to listen".to_owned(),
                    Err(error) if is_to_be_waited_for(&error) => {}
                    Err(error) => return error.to_string(),
                }
            }
        }
    }

    /// Fills the buffer with what comes next.
    fn fill(&self, bytes: &mut Vec<u8>, charge: &mut Charge, context: &LinkContext) {
        bytes.clear();
        if bytes.capacity() > LARGE_BYTES {
            *bytes = Vec::new();
        }
        loop {
            let mut state = self.state.lock();
            if bytes.is_empty() {
                bytes.append(&mut state.rest);
            }
            let fits = |weight| bytes.is_empty() || bytes.len() + weight <= TOGETHER;
            let Some(frame) = state
                .queue
                .next_weight()
                .filter(|weight| fits(*weight))
                .and_then(|_| state.queue.pop())
            else {
                state.is_idle = bytes.is_empty();
                break;
            };
            state.is_idle = false;
            let version = state.frame_version;
            drop(state);
            if !frames::put(&frame, version, bytes) {
                tracing::error!(target: "REPL", member = %self.member,
                    "A frame is longer than frames may be, and is lost");
                context.inbox.report_lost(self.member);
            }
            charge.set(bytes.capacity() as u64);
        }
    }

    /// Waits until it is time for another try.
    fn pause(&self, time: Duration, context: &LinkContext) -> Pause {
        let clock = &context.dialer.os.clock;
        let until = clock.monotonic().saturating_add(time);
        loop {
            let mut state = self.state.lock();
            if state.ended {
                return Pause::Ended;
            }
            if std::mem::take(&mut state.retry_now) {
                return Pause::Hurry;
            }
            drop(state);
            let left = until.saturating_sub(clock.monotonic());
            if left.is_zero() {
                return Pause::Over;
            }
            if self.signal.wait(None, Some(left)).is_err() {
                clock.sleep(left);
            }
        }
    }
}

/// What became of a frame.
enum Written {
    Whole,
    /// The rest of it is to be sent before anything else.
    Part,
    Nothing,
}

impl State {
    /// Writes a small frame where nothing is before it. Where the socket takes nothing, for whatever reason, the thread
    /// finds out.
    fn write(&mut self, frame: &Frame) -> Written {
        let Self { queue, direct, is_idle, frame_version, rest, ended, .. } = self;
        let may = *is_idle && !*ended && queue.is_empty() && frame.payload_bytes() < DIRECT;
        let Some(mut socket) = direct.as_ref().filter(|_| may) else { return Written::Nothing };
        debug_assert!(rest.is_empty(), "an idle thread has sent everything");
        if !frames::put(frame, *frame_version, rest) {
            rest.clear();
            return Written::Nothing;
        }
        let count = socket.write(rest).unwrap_or(0);
        let whole = rest.len();
        if count == 0 {
            rest.clear();
            return Written::Nothing;
        }
        rest.drain(..count);
        *is_idle = rest.is_empty();
        if count == whole { Written::Whole } else { Written::Part }
    }
}

/// How a pause ended.
enum Pause {
    Over,
    Hurry,
    Ended,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::FrameReader;
    use replica::MemberReport;
    use std::net::{Shutdown, TcpListener};

    /// Of a connection whose thread waits.
    fn idle(socket: TcpStream) -> State {
        State {
            queue: Queue::new(1 << 20, Charge::uncharged(Part::Links)),
            direct: Some(socket),
            is_idle: true,
            frame_version: OLDEST_FRAME_VERSION,
            rest: Vec::new(),
            ended: false,
            retry_now: false,
            up: true,
            connections: 1,
        }
    }

    #[test]
    fn what_the_socket_does_not_take_of_a_frame_comes_before_anything_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (input, _) = listener.accept().unwrap();
        out.set_nonblocking(true).unwrap();
        let mut state = idle(out.try_clone().unwrap());
        let report = |term| Frame::Report(MemberReport { term, ..MemberReport::default() });
        let mut sent = 0;
        loop {
            match state.write(&report(sent)) {
                Written::Whole => {}
                Written::Part => {
                    sent += 1;
                    break;
                }
                Written::Nothing => break,
            }
            sent += 1;
        }
        assert!(sent > 100, "{sent}");
        assert!(matches!(state.write(&report(sent)), Written::Nothing), "the socket is full");
        let came = std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let (mut reader, mut terms) = (FrameReader::new(input), Vec::new());
                let mut memory = Charge::uncharged(Part::Links);
                while let Ok((Frame::Report(report), _)) = reader.next(&mut memory, &mut |_| {}) {
                    terms.push(report.term);
                }
                terms
            });
            out.set_nonblocking(false).unwrap();
            out.write_all(&state.rest).unwrap();
            out.shutdown(Shutdown::Both).unwrap();
            reader.join().unwrap()
        });
        assert_eq!(came, (0..sent).collect::<Vec<_>>());
    }

    #[test]
    fn only_small_frames_are_written_directly_and_only_where_nothing_is_before_them() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut state = idle(out);
        let report = || Frame::Report(MemberReport::default());
        assert!(matches!(state.write(&report()), Written::Whole));
        state.is_idle = false;
        assert!(matches!(state.write(&report()), Written::Nothing), "the thread is sending");
        state.is_idle = true;
        state.queue.push(report());
        assert!(matches!(state.write(&report()), Written::Nothing), "another one waits");
        state.queue.clear();
        state.direct = None;
        assert!(matches!(state.write(&report()), Written::Nothing), "by TLS, or not connected");
        state.ended = true;
        assert!(matches!(state.write(&report()), Written::Nothing));
    }
}
