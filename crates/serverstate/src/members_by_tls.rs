//! Whether this server could speak TLS to other members, where it is to.
//!
//! Always true: a member that is to speak TLS and could not judge the others' certificates is refused before it is one.

use crate::state::ServerState;
use errors::{Code, Error, Result};
use tls::Certificates;

/// Why this server cannot open links by TLS, and what to do.
///
/// # Errors
/// That sentence.
pub fn check_members_by_tls(
    certificates: Option<&Certificates>,
) -> std::result::Result<(), String> {
    match certificates {
        Some(certificates) if !certificates.now().reaches_members() => Err(
            "members of the set are to speak TLS to each other (tlsMode preferTLS or requireTLS), and nothing says whose \
             certificates are good: name the file of the authority that theirs come from with tlsCAFile"
                .to_owned(),
        ),
        _ => Ok(()),
    }
}

impl ServerState {
    /// Refuses what makes this server a member of a set of several, where it could not speak TLS to the others as it
    /// is to.
    pub fn check_members_by_tls(&self) -> Result<()> {
        let checked = check_members_by_tls(self.info.members_tls.as_deref());
        checked.map_err(|text| Error::new(Code::INVALID_OPTIONS, text))
    }
}
