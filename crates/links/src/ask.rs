//! Commands that one server asks of another, over a connection of their own: what is said before there are links, and
//! beside them.
//!
//! Always true: a command is answered, or given up, within its time; a connection on which one was given up is asked
//! nothing more. What answers another command than the oldest one without an answer is no answer.

use crate::address::HostAndPort;
use crate::dial::{DialError, DialLimits, WaitContext, read_message, send_message};
use crate::dialer::Dialer;
use crate::hello::{MAX_ANSWER, any_body_of, body_of, is_done};
use crate::signal::Signal;
use crate::stream::Stream;
use bson::{RawDocument, RawDocumentBuf};
use std::time::Duration;
use wire::{Header, MsgFlags};

/// A connection to another server, on which this one asks.
pub struct Connection {
    dialer: Dialer,
    stream: Stream,
    signal: Signal,
    /// The number of the last command that was sent, and of the last one that was answered.
    sent: i32,
    answered: i32,
}

fn said(error: DialError) -> String {
    match error {
        DialError::Refused => "nobody listens there".to_owned(),
        DialError::Ended => "it was not waited for".to_owned(),
        DialError::Failed(why) | DialError::Removed { cause: why, .. } => why,
    }
}

impl Connection {
    /// Connects, and says who this member is where it has a key. `ended` says whether nobody waits any more: it is
    /// asked several times a second.
    ///
    /// # Errors
    /// Why there is no connection, in one line.
    pub fn open(
        dialer: &Dialer,
        to: &HostAndPort,
        limit: Duration,
        ended: &dyn Fn() -> bool,
    ) -> Result<Self, String> {
        let signal = Signal::new().map_err(|error| error.to_string())?;
        let waiting = WaitContext { signal: &signal, clock: &*dialer.os.clock, ended };
        let limits = DialLimits { connect: limit, hello: limit };
        let stream = dialer.open(to, limits, waiting).map_err(said)?;
        Ok(Self { dialer: dialer.clone(), stream, signal, sent: 0, answered: 0 })
    }

    /// Asks a command, which names its database under `$db`, and takes an answer of at most so many bytes.
    ///
    /// # Errors
    /// Why there is no answer, or what the other server refuses, in one line.
    pub fn ask(
        &mut self,
        command: &RawDocument,
        limit: Duration,
        most_bytes: usize,
        ended: &dyn Fn() -> bool,
    ) -> Result<RawDocumentBuf, String> {
        self.send(command, limit, ended)?;
        self.receive(limit, most_bytes, ended)
    }

    /// Sends a command, and does not wait for its answer: [`Connection::receive`] takes the answers in the order of
    /// the commands.
    ///
    /// # Errors
    /// Why it is not sent, in one line.
    pub fn send(
        &mut self,
        command: &RawDocument,
        limit: Duration,
        ended: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        self.sent = following(self.sent);
        let mut message = Vec::new();
        wire::encode_msg(&mut message, self.sent, 0, MsgFlags::NONE, command);
        let waiting = WaitContext { signal: &self.signal, clock: &*self.dialer.os.clock, ended };
        send_message(&mut self.stream, &message, limit, waiting).map_err(said)
    }

    /// The answer, of at most so many bytes, to the oldest command that has none yet.
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub fn receive(
        &mut self,
        limit: Duration,
        most_bytes: usize,
        ended: &dyn Fn() -> bool,
    ) -> Result<RawDocumentBuf, String> {
        let answer = self.read(limit, most_bytes, ended)?;
        body_of(&answer).map(RawDocument::to_owned)
    }

    /// As [`Connection::receive`], into memory that is used again: how much of it is the answer, of which
    /// [`crate::body_of`] gives what it says.
    ///
    /// # Errors
    /// As [`Connection::ask`], but that the other server refuses.
    pub fn receive_into(
        &mut self,
        memory: &mut Vec<u8>,
        limit: Duration,
        most_bytes: usize,
        ended: &dyn Fn() -> bool,
    ) -> Result<usize, String> {
        let waiting = WaitContext { signal: &self.signal, clock: &*self.dialer.os.clock, ended };
        let read = read_message(&mut self.stream, memory, limit, most_bytes, waiting);
        let length = read.map_err(said)?;
        self.answered = following(self.answered);
        let header = memory.first_chunk().map(Header::parse).and_then(Result::ok);
        if header.is_none_or(|header| header.response_to != self.answered) {
            return Err("it answers what was not asked by then".to_owned());
        }
        Ok(length)
    }

    /// Asks a command as [`Connection::ask`] does; an answer that refuses it is one, too.
    ///
    /// # Errors
    /// Why there is no answer, in one line.
    pub fn hand_on(
        &mut self,
        command: &RawDocument,
        limit: Duration,
        most_bytes: usize,
        ended: &dyn Fn() -> bool,
    ) -> Result<Answer, String> {
        self.send(command, limit, ended)?;
        let answer = self.read(limit, most_bytes, ended)?;
        let body = any_body_of(&answer)?;
        Ok(Answer { is_done: is_done(body)?, body: body.to_owned() })
    }

    fn read(
        &mut self,
        limit: Duration,
        most_bytes: usize,
        ended: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, String> {
        let mut answer = Vec::new();
        let length = self.receive_into(&mut answer, limit, most_bytes, ended)?;
        answer.truncate(length);
        Ok(answer)
    }
}

/// The number of the command behind the one with this number.
fn following(number: i32) -> i32 {
    number.checked_add(1).unwrap_or(1)
}

/// What another server answers.
pub struct Answer {
    /// It says that it has done the command.
    pub is_done: bool,
    /// All that it says.
    pub body: RawDocumentBuf,
}

/// Asks the server at a port one command.
///
/// # Errors
/// As [`Connection::open`] and [`Connection::ask`].
pub fn ask(
    dialer: &Dialer,
    to: &HostAndPort,
    command: &RawDocument,
    limit: Duration,
    ended: &dyn Fn() -> bool,
) -> Result<RawDocumentBuf, String> {
    Connection::open(dialer, to, limit, ended)?.ask(command, limit, MAX_ANSWER, ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand_in;
    use bson::rawdoc;
    use os::Os;
    use std::io::Write;
    use std::net::TcpListener;

    const TIME: Duration = Duration::from_secs(10);

    /// A server that hears so many commands, and says then these numbers, each in answer to the command of a number.
    fn server(commands: usize, answers: &'static [(i32, i32)]) -> HostAndPort {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let job = move || {
            let (mut stream, _) = listener.accept().unwrap();
            for _ in 0..commands {
                stand_in::read_message(&mut stream).unwrap();
            }
            for (number, (to, n)) in (1..).zip(answers) {
                let filler = "x".repeat(if *n == 2 { 300_000 } else { 3 });
                let body = rawdoc! { "n": *n, "filler": filler, "ok": 1 };
                let mut message = Vec::new();
                wire::encode_msg(&mut message, number, *to, MsgFlags::NONE, &body);
                // Whoever asks may have heard enough.
                let _gone = stream.write_all(&message);
            }
        };
        Os::real().spawner.spawn("stand-in", Box::new(job)).unwrap();
        HostAndPort::new("127.0.0.1", port)
    }

    fn ask_three(to: &HostAndPort) -> Connection {
        let dialer = Dialer::new(Os::real(), None, false);
        let mut connection = Connection::open(&dialer, to, TIME, &|| false).unwrap();
        for _ in 0..3 {
            connection.send(&rawdoc! { "ping": 1, "$db": "admin" }, TIME, &|| false).unwrap();
        }
        connection
    }

    fn next(connection: &mut Connection, memory: &mut Vec<u8>) -> Result<i32, String> {
        let length = connection.receive_into(memory, TIME, 1 << 20, &|| false)?;
        Ok(body_of(&memory[..length])?.get_i32("n").unwrap())
    }

    #[test]
    fn answers_to_commands_that_were_sent_ahead_come_in_order_into_one_memory() {
        let mut connection = ask_three(&server(3, &[(1, 1), (2, 2), (3, 3)]));
        let mut memory = Vec::new();
        for expected in 1..=3 {
            assert_eq!(next(&mut connection, &mut memory), Ok(expected));
        }
        assert!(memory.len() > 300_000, "the third left what the second needed");
    }

    #[test]
    fn what_answers_another_command_is_no_answer() {
        let mut connection = ask_three(&server(3, &[(1, 1), (3, 3), (2, 2)]));
        let mut memory = Vec::new();
        assert_eq!(next(&mut connection, &mut memory), Ok(1));
        let why = next(&mut connection, &mut memory).unwrap_err();
        assert!(why.contains("answers what was not asked"), "{why}");
    }

    #[test]
    fn connection_that_ends_with_commands_under_way_gives_what_came() {
        let mut connection = ask_three(&server(3, &[(1, 1)]));
        let mut memory = Vec::new();
        assert_eq!(next(&mut connection, &mut memory), Ok(1));
        assert!(next(&mut connection, &mut memory).unwrap_err().contains("without an answer"));
    }
}
