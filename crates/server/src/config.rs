//! Configuration: what was asked for, on the command line and in a file, as one [`Settings`].
//!
//! One table, [`options::OPTIONS`], names every option once: its flag, its place in a YAML file,
//! its kind and the setting it becomes. The command line, `key = value` files of the 2.4 era, YAML files and
//! `getCmdLineOpts` are all read through it. The command line wins over the file.

mod audit;
mod encryption;
mod file;
mod foreign;
#[cfg(test)]
mod man;
#[cfg(test)]
mod manual;
mod options;
mod parse;
mod settings;
mod size;
mod start_parameters;
mod tls;

pub use audit::{AuditDestination, AuditFormat, AuditSettings};
pub use encryption::{EncryptionSettings, KeySource};
pub use options::Settings;
pub use parse::{CommandLine, parse};
pub use size::parse_size;
pub(crate) use size::parse_switch;
pub use tls::{KeyPassword, TlsSettings};

#[cfg(test)]
mod tests;

/// Why the configuration is refused: one line, ready for the operator.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl ConfigError {
    pub(crate) fn new(line: impl Into<String>) -> Self {
        Self(line.into())
    }
}
