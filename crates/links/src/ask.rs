//! A command that one server asks of another, over a connection of its own: what is said before there are links.
//!
//! Always true: it is answered, or given up, within its time.

use crate::address::HostAndPort;
use crate::dial::{DialError, DialLimits, Waiting, connect, converse};
use crate::hello::{MAX_ANSWER, body_of};
use crate::signal::Signal;
use bson::{RawDocument, RawDocumentBuf};
use os::Os;
use std::time::Duration;
use wire::MsgFlags;

/// Asks the server at a port; the command names its database under `$db`. `ended` says whether nobody waits for the
/// answer any more: it is asked before each wait.
///
/// # Errors
/// Why there is no answer, or what the other server refuses, in one line.
pub fn ask(
    os: &Os,
    to: &HostAndPort,
    command: &RawDocument,
    limit: Duration,
    ended: &dyn Fn() -> bool,
) -> Result<RawDocumentBuf, String> {
    ask_for_much(os, to, command, limit, MAX_ANSWER, ended)
}

/// As [`ask`], for an answer that may be long, up to so many bytes.
///
/// # Errors
/// As [`ask`].
pub fn ask_for_much(
    os: &Os,
    to: &HostAndPort,
    command: &RawDocument,
    limit: Duration,
    most_bytes: usize,
    ended: &dyn Fn() -> bool,
) -> Result<RawDocumentBuf, String> {
    let signal = Signal::new().map_err(|error| error.to_string())?;
    let waiting = Waiting { signal: &signal, clock: &*os.clock, ended };
    let said = |error| match error {
        DialError::Refused => "nobody listens there".to_owned(),
        DialError::Ended => "it was not waited for".to_owned(),
        DialError::Failed(why) => why,
    };
    let limits = DialLimits { connect: limit, hello: limit };
    let socket = connect(to, limits, waiting).map_err(said)?;
    let mut message = Vec::new();
    wire::encode_msg(&mut message, 1, 0, MsgFlags::NONE, command);
    let answer = converse(&socket, &message, limit, most_bytes, waiting).map_err(said)?;
    body_of(&answer).map(RawDocument::to_owned)
}
