//! What an error of a server means to a task: to be tried again, or told in a line that says what to do.

use anyhow::{Error, Result, anyhow};
use mongodb::error::{Error as DriverError, ErrorKind};
use os::Os;
use std::fmt;
use std::time::Duration;

/// How long what has failed for the moment is tried again, and how long is waited between. An election takes seconds, a
/// restart of a large server a minute.
const RETRY_TIME: Duration = Duration::from_mins(3);
pub(crate) const RETRY_WAIT: Duration = Duration::from_secs(1);

/// Codes of what passes: elections, lost cursors, shutdowns, conflicts.
const PASSING: &[i32] = &[
    6, 7, 24, 43, 64, 89, 91, 112, 134, 189, 234, 237, 246, 262, 9001, 10107, 11600, 11602, 13435,
    13436,
];

/// What a write of documents met that is not about any of them: a full disk, a member that steps down.
#[derive(Debug)]
pub(crate) struct WriteFailure {
    pub(crate) code: i32,
    pub(crate) message: String,
}

impl fmt::Display for WriteFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.message, self.code)
    }
}

impl std::error::Error for WriteFailure {}

/// Codes below 10,000 by which a server judges a document, and not itself.
const ABOUT_DOCUMENTS: &[i32] =
    &[2, 9, 14, 15, 16, 22, 28, 40, 52, 53, 54, 55, 56, 57, 66, 67, 121, 146, 171, 197, 359];
/// Codes from there on by which it does not: no primary, no space, going down, no rights.
const NOT_ABOUT_DOCUMENTS: &[i32] =
    &[10058, 10107, 11600, 11601, 11602, 13388, 13435, 13436, 14031, 16550];
/// From here on codes are those of single checks, most of them of what a client sends.
const FIRST_OF_CHECKS: i32 = 10_000;

/// Whether an error of a write is about the document, which then is refused however often it is sent.
pub(crate) fn is_about_document(code: i32) -> bool {
    ABOUT_DOCUMENTS.contains(&code)
        || (code >= FIRST_OF_CHECKS && !NOT_ABOUT_DOCUMENTS.contains(&code))
}

/// MongoDB's code, where a server has answered.
pub(crate) fn code(error: &DriverError) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(command) => Some(command.code),
        _ => None,
    }
}

/// Whether the same may succeed a moment later.
pub(crate) fn is_passing(error: &Error) -> bool {
    if error.downcast_ref::<std::io::Error>().is_some() {
        return true;
    }
    if let Some(failure) = error.downcast_ref::<WriteFailure>() {
        return PASSING.contains(&failure.code);
    }
    let Some(error) = error.downcast_ref::<DriverError>() else { return false };
    match &*error.kind {
        ErrorKind::Io(_)
        | ErrorKind::ConnectionPoolCleared { .. }
        | ErrorKind::ServerSelection { .. } => true,
        ErrorKind::Command(command) => PASSING.contains(&command.code),
        _ => false,
    }
}

/// Does something until it succeeds, or fails in a way that does not pass.
pub(crate) fn retried<T>(os: &Os, mut work: impl FnMut() -> Result<T>) -> Result<T> {
    let until = os.clock.monotonic() + RETRY_TIME;
    loop {
        match work() {
            Err(error) if os.clock.monotonic() < until && is_passing(&error) => {
                os.clock.sleep(RETRY_WAIT);
            }
            result => return result,
        }
    }
}

/// The codes that say what a user lacks.
const UNAUTHORIZED: i32 = 13;
const AUTHENTICATION_FAILED: i32 = 18;

/// An error in one line, with what to do about it. `role` is what a user needs for it.
pub(crate) fn explained(error: &DriverError, shown: &str, role: &str) -> Error {
    let told = match &*error.kind {
        ErrorKind::Command(command) => format!("{} (code {})", command.message, command.code),
        ErrorKind::ServerSelection { message, .. } => message.clone(),
        // Without the driver's labels.
        kind => kind.to_string(),
    };
    let told = told.split(['\n', '\r']).next().unwrap_or_default().to_owned();
    match (&*error.kind, code(error)) {
        (ErrorKind::ServerSelection { .. } | ErrorKind::Io(_), _) => {
            anyhow!(
                "{shown}: it cannot be reached; is it running, and is the address right? ({told})"
            )
        }
        (ErrorKind::Authentication { .. }, _) | (_, Some(AUTHENTICATION_FAILED)) => {
            anyhow!(
                "{shown}: the login failed; look at the user, the password and authSource ({told})"
            )
        }
        (_, Some(UNAUTHORIZED)) => {
            anyhow!("{shown}: the user may not do that; it needs the role {role} ({told})")
        }
        _ => anyhow!("{shown}: {told}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_about_a_document_refuses_it() {
        for code in [11000, 121, 2, 10334, 17280, 171, 16755] {
            assert!(is_about_document(code), "{code}");
        }
        for code in PASSING.iter().chain(&[14031, 1, 13, 50, 64, 10058, 11601]) {
            assert!(!is_about_document(*code), "{code}");
        }
        let failure = |code| Error::from(WriteFailure { code, message: String::new() });
        assert!(is_passing(&failure(91)) && !is_passing(&failure(14031)));
    }

    #[test]
    fn what_passes_is_tried_again() {
        let lost = Error::from(std::io::Error::other("lost"));
        assert!(is_passing(&lost) && is_passing(&lost.context("reading")));
        assert!(!is_passing(&anyhow!("refused")));
        let mut tries = 0;
        let done: Result<()> = retried(&Os::real(), || {
            tries += 1;
            Err(anyhow!("refused"))
        });
        assert!(done.is_err() && tries == 1);
    }
}
