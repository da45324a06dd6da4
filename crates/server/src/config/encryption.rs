//! The options of encryption at rest, by MongoDB's and Percona's spelling.

use crate::config::ConfigError;
use crate::config::settings::GivenOptions;
use crypt::Permissions;
use std::path::PathBuf;

/// The one cipher: nothing is given that is not authenticated.
const CIPHER: &str = "AES256-GCM";

/// With which key the data directory is encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptionSettings {
    /// Where the master key comes from.
    pub source: KeySource,
}

/// Where a master key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A file, and who may read it.
    File {
        /// Its path.
        path: PathBuf,
        /// Who else may read it.
        permissions: Permissions,
    },
    /// The output of a program: its words.
    Command(Vec<String>),
}

impl GivenOptions {
    pub(super) fn encryption(&self) -> Result<Option<EncryptionSettings>, ConfigError> {
        let refuse = |line: String| Err(ConfigError::new(line));
        if !self.switch("enableEncryption", false) {
            let others = ["encryptionKeyFile", "encryptionKeyCommand", "encryptionCipherMode"];
            return match others.iter().find(|flag| self.text(flag).is_some()) {
                Some(flag) => refuse(format!("option {flag} needs --enableEncryption")),
                None => Ok(None),
            };
        }
        match self.text("encryptionCipherMode") {
            None | Some(CIPHER) => {}
            Some(other) => {
                return refuse(format!(
                    "option encryptionCipherMode: '{other}' is not supported, only {CIPHER}"
                ));
            }
        }
        let path = match (self.path("encryptionKeyFile"), self.text("encryptionKeyCommand")) {
            (Some(path), None) => path,
            (None, Some(text)) => {
                let words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
                if !words.first().is_some_and(|program| program.starts_with('/')) {
                    return refuse(format!(
                        "option encryptionKeyCommand: '{text}' has to begin with the whole path of a program"
                    ));
                }
                return Ok(Some(EncryptionSettings { source: KeySource::Command(words) }));
            }
            (Some(_), Some(_)) => {
                return refuse(
                    "options encryptionKeyFile and encryptionKeyCommand name two keys: leave one out"
                        .to_owned(),
                );
            }
            (None, None) => {
                return refuse(
                    "option enableEncryption needs --encryptionKeyFile or --encryptionKeyCommand"
                        .to_owned(),
                );
            }
        };
        let permissions = if self.switch("relaxPermChecks", false) {
            Permissions::GroupOfRoot
        } else {
            Permissions::OwnerAlone
        };
        Ok(Some(EncryptionSettings { source: KeySource::File { path, permissions } }))
    }
}
