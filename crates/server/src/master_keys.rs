//! Where the master key of an encrypted data directory comes from.
//!
//! Always true: a key is read at the start, and when `rotateMasterKey` asks for the one that is kept now; why there is none is one line without anything of the key.

use crate::config::{EncryptionSettings, KeySource};
use crate::startup::{ExitCode, StartError};
use crypt::{MasterKey, Permissions, read_master_key};
use os::Os;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;
use zeroize::Zeroizing;

/// The base64 of a key with white space around it is shorter.
const MOST_BYTES: usize = 1 << 10;
/// A program that has not told the key by then will not tell it.
const COMMAND_TIME: Duration = Duration::from_secs(30);

/// Whoever has the master key.
pub(crate) trait MasterKeys {
    /// Asks for it.
    ///
    /// # Errors
    /// Why there is none, in one line.
    fn master_key(&self, os: &Os) -> Result<MasterKey, StartError>;
}

/// A file of the operator's.
struct KeyFile<'s> {
    path: &'s Path,
    permissions: Permissions,
}

/// A program that writes it to its standard output: that of a key server, or of the machine's own store.
struct KeyCommand<'s> {
    words: &'s [String],
}

fn refuse(why: impl Display) -> StartError {
    StartError::new(ExitCode::BadOptions, why)
}

impl MasterKeys for KeyFile<'_> {
    fn master_key(&self, os: &Os) -> Result<MasterKey, StartError> {
        read_master_key(os, self.path, self.permissions)
            .map_err(|error| refuse(format!("encryptionKeyFile {}: {error}", self.path.display())))
    }
}

impl MasterKeys for KeyCommand<'_> {
    fn master_key(&self, os: &Os) -> Result<MasterKey, StartError> {
        let program = self.words.first().map_or("", String::as_str);
        let failed =
            |error: &dyn Display| refuse(format!("encryptionKeyCommand {program}: {error}"));
        let told = os::output_of(&*os.clock, self.words, MOST_BYTES, COMMAND_TIME);
        let text = Zeroizing::new(told.map_err(|error| failed(&error))?);
        MasterKey::parse(&text).map_err(|error| failed(&error))
    }
}

/// Who has the key by what is asked for.
pub(crate) fn of(settings: &EncryptionSettings) -> Box<dyn MasterKeys + '_> {
    match &settings.source {
        KeySource::File { path, permissions } => {
            Box::new(KeyFile { path, permissions: *permissions })
        }
        KeySource::Command(words) => Box::new(KeyCommand { words }),
    }
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::config::{EncryptionSettings, KeySource};
    use os::Os;

    #[test]
    fn a_program_tells_the_key_or_why_not() {
        let key = format!("{}=", "A".repeat(43));
        let run = |words: &[&str]| {
            let words = words.iter().map(ToString::to_string).collect();
            let settings = EncryptionSettings { source: KeySource::Command(words) };
            of(&settings).master_key(&Os::real()).map(drop).map_err(|error| error.line)
        };
        assert_eq!(run(&["/bin/echo", &key]), Ok(()));
        for (words, word) in [
            (&["/bin/echo", "MARK"][..], "base64 of 32 bytes"),
            (&["/bin/sh", "-c", "echo MARK; exit 2"], "status: 2"),
            (&["/no/such/program"], "No such file"),
        ] {
            let line = run(words).unwrap_err();
            assert!(line.contains(word) && line.contains("encryptionKeyCommand"), "{line}");
            assert!(!line.contains("MARK") && !line.contains('\n'), "{line}");
        }
    }
}
