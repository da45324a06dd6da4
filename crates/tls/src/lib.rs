//! TLS of clients' connections, and of this server's own to other members: what a server shows and asks for, what a
//! client says first, the bytes of a connection, and who a certificate says the client is.
//!
//! What is always true:
//! 1. Nothing here opens a file or a socket or asks the time: PEM bytes, a socket's two directions and a clock are
//!    handed in.
//! 2. TLS 1.2 and 1.3 alone are spoken, and nothing is taken before the handshake is done (no 0-RTT).
//! 3. A subject is told of only where its certificate's chain was verified, a resumed connection's again.
#![forbid(unsafe_code)]

mod certificates;
mod failure;
mod key;
mod member_rule;
mod outgoing;
mod pem_files;
mod records;
mod roles;
mod session;
mod sniff;
mod subject;
mod suites;
#[cfg(test)]
mod tests;
mod verifier;

pub use certificates::{Certificates, Loaded, Options, Request};
pub use member_rule::MemberRule;
pub use outgoing::Outgoing;
pub use pem_files::{FileError, TlsFile};
pub use roles::roles;
pub use rustls::ServerConfig;
pub use session::{Arrived, Established, SESSION_BYTES, Session, Version};
pub use sniff::{Sniffed, sniff};
pub use subject::subject;
pub use suites::Suites;

/// Which connections to the port use TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// None.
    #[default]
    Disabled,
    /// TLS is accepted; this server connects to members without it.
    Allow,
    /// TLS is accepted; this server connects to members with it.
    Prefer,
    /// All.
    Require,
}

impl Mode {
    /// The mode of a name in the options, in its new spelling or its old one.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "disabled" => Some(Self::Disabled),
            "allowTLS" | "allowSSL" => Some(Self::Allow),
            "preferTLS" | "preferSSL" => Some(Self::Prefer),
            "requireTLS" | "requireSSL" => Some(Self::Require),
            _ => None,
        }
    }

    /// Its name in the options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Allow => "allowTLS",
            Self::Prefer => "preferTLS",
            Self::Require => "requireTLS",
        }
    }

    /// Whether members of a set are to speak TLS to each other.
    pub fn links_speak_tls(self) -> bool {
        matches!(self, Self::Prefer | Self::Require)
    }
}
