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
    /// The file with the master key.
    pub key_file: PathBuf,
    /// Who may read it.
    pub permissions: Permissions,
}

impl GivenOptions {
    pub(super) fn encryption(&self) -> Result<Option<EncryptionSettings>, ConfigError> {
        let refuse = |line: String| Err(ConfigError::new(line));
        if !self.switch("enableEncryption", false) {
            let others = ["encryptionKeyFile", "encryptionCipherMode"];
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
        let Some(key_file) = self.path("encryptionKeyFile") else {
            return refuse("option enableEncryption needs --encryptionKeyFile".to_owned());
        };
        let permissions = if self.switch("relaxPermChecks", false) {
            Permissions::GroupOfRoot
        } else {
            Permissions::OwnerAlone
        };
        Ok(Some(EncryptionSettings { key_file, permissions }))
    }
}
