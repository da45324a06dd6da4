//! That members of a set do not speak TLS to each other yet, where the server was told that they are to.
//!
//! Always true: no link is opened or let in that would be plain against what the operator said.

use crate::state::ServerState;
use errors::{Code, Error, Result};

/// Why a mode of TLS does not go with a set of several members, and what to do.
pub fn members_speak_no_tls(mode: &str) -> String {
    format!(
        "tlsMode {mode} wants TLS between the members of a replica set, which is not supported yet: what they say to \
         each other would be plain. Use allowTLS for a set of several members whose network is trusted, or a set of \
         one"
    )
}

impl ServerState {
    /// Refuses what makes this server a member of a set of several, where members would have to speak TLS.
    pub fn check_members_without_tls(&self) -> Result<()> {
        match self.info.members_need_tls {
            None => Ok(()),
            Some(mode) => Err(Error::new(Code::INVALID_OPTIONS, members_speak_no_tls(mode))),
        }
    }
}
