//! The files of TLS: read at the start, and again when a client asks for that.
//!
//! Always true: what is loaded was read and checked as a whole; where one file is not good, nothing of what is loaded
//! changes, and the text says which.

use crate::config::TlsSettings;
use crate::startup::{ExitCode, StartError};
use os::{FilePermissions, OpenOptions, Os};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tls::{Certificates, FileError, Loaded, Mode, Request, TlsFile};
use zeroize::Zeroizing;

/// The longest file; lists of revoked certificates are the long ones.
const MOST_BYTES: u64 = 16 << 20;
/// Whoever has an account on the machine may read a file.
const OTHERS: u32 = 0o007;
/// Seconds of a day.
const DAY: i64 = 24 * 60 * 60;
/// Where systems have the authorities that they trust, in one file: Debian, Red Hat, SUSE, Alpine.
const OF_SYSTEMS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// The variable that names another such file, as OpenSSL and what is built on it have it.
const SYSTEM_FILE: &str = "SSL_CERT_FILE";

/// The files, and what of them is loaded.
pub(crate) struct TlsFiles {
    os: Os,
    settings: TlsSettings,
    certificates: Arc<Certificates>,
}

impl TlsFiles {
    /// Loads them; nothing where TLS is off.
    ///
    /// # Errors
    /// Which file is not good, in one line that says what to do.
    pub(crate) fn load(os: &Os, settings: &TlsSettings) -> Result<Option<Self>, StartError> {
        if settings.mode == Mode::Disabled {
            return Ok(None);
        }
        let loaded =
            load(os, settings).map_err(|text| StartError::new(ExitCode::BadOptions, text))?;
        let certificates = Arc::new(Certificates::new(loaded));
        Ok(Some(Self { os: os.clone(), settings: settings.clone(), certificates }))
    }

    /// Loads them again. New connections get what is in them then.
    ///
    /// # Errors
    /// Which file is not good; what was loaded stays.
    pub(crate) fn load_again(&self) -> Result<(), String> {
        self.certificates.exchange(load(&self.os, &self.settings)?);
        Ok(())
    }

    /// What is loaded.
    pub(crate) fn certificates(&self) -> &Arc<Certificates> {
        &self.certificates
    }

    /// What is not wrong, and what the operator should know, with the numbers that tools look for. A certificate that
    /// ends within so many days is told of.
    pub(crate) fn warnings(&self, days: i64) -> Vec<(u32, String)> {
        let mut all = Vec::new();
        let loaded = self.certificates.now();
        let now = self.os.clock.wall_ms() / 1000;
        for (file, subject, not_after) in loaded.ends() {
            let left = not_after - now;
            if left < days.saturating_mul(DAY) {
                all.push((
                    23_221,
                    format!(
                        "The server's certificate ({subject}, {}) ends in {} days: have a new one made, and load it \
                         with rotateCertificates",
                        file.option(),
                        left / DAY
                    ),
                ));
            }
        }
        if !loaded.asks_for_certificates() {
            all.push((
                22_132,
                "No certificates of clients are looked at, for there is no tlsCAFile: who connects is known by a \
                 password only"
                    .to_owned(),
            ));
        }
        if self.settings.options.allow_invalid_certificates {
            all.push((
                22_133,
                "tlsAllowInvalidCertificates is set: clients with any certificate are let in, as nobody".to_owned(),
            ));
        }
        all
    }
}

fn load(os: &Os, settings: &TlsSettings) -> Result<Loaded, String> {
    let own = settings.certificate_key_file.as_deref();
    let own = own.ok_or("tlsCertificateKeyFile is not given")?;
    let read = |part, path: &Path| read(os, part, path).map_err(|text| told(part, path, &text));
    let certificate_key = read(TlsFile::CertificateKey, own)?;
    let optional =
        |part, path: &Option<_>| path.as_deref().map(|path| read(part, path)).transpose();
    let cluster = optional(TlsFile::ClusterCertificateKey, &settings.cluster_file)?;
    let system = settings.uses_system_authorities && settings.authorities_file.is_none();
    let authorities_file =
        if system { Some(system_authorities(os)?) } else { settings.authorities_file.clone() };
    let part = if system { TlsFile::SystemAuthorities } else { TlsFile::Authorities };
    let authorities = optional(part, &authorities_file)?;
    let cluster_authorities =
        optional(TlsFile::ClusterAuthorities, &settings.cluster_authorities_file)?;
    let revoked = optional(TlsFile::Revoked, &settings.revoked_file)?;
    let request = Request {
        certificate_key: &certificate_key,
        password: settings.password.as_ref().map(|password| password.0.as_str()),
        cluster_certificate_key: cluster.as_ref().map(|bytes| &bytes[..]),
        cluster_password: settings.cluster_password.as_ref().map(|password| password.0.as_str()),
        authorities: authorities.as_ref().map(|bytes| &bytes[..]),
        cluster_authorities: cluster_authorities.as_ref().map(|bytes| &bytes[..]),
        of_system: system,
        member_rule: settings.member_rule.as_ref(),
        other_member_rule: settings.other_member_rule.as_ref(),
        revoked: revoked.as_ref().map(|bytes| &bytes[..]),
        options: settings.options,
    };
    let clock = Arc::clone(&os.clock);
    let now = move || u64::try_from(clock.wall_ms() / 1000).unwrap_or_default();
    Loaded::new(&request, now).map_err(|FileError { file: part, text }| {
        let path = match part {
            TlsFile::CertificateKey => Some(own),
            TlsFile::ClusterCertificateKey => settings.cluster_file.as_deref(),
            TlsFile::ClusterAuthorities => settings.cluster_authorities_file.as_deref(),
            TlsFile::Authorities | TlsFile::SystemAuthorities => authorities_file.as_deref(),
            TlsFile::Revoked => settings.revoked_file.as_deref(),
        };
        told(part, path.unwrap_or(Path::new("")), &text)
    })
}

/// The file with the authorities that this machine trusts.
fn system_authorities(os: &Os) -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os(SYSTEM_FILE).filter(|named| !named.is_empty()) {
        return Ok(named.into());
    }
    let found =
        OF_SYSTEMS.iter().map(PathBuf::from).find(|path| os.vfs.exists(path).unwrap_or(false));
    found.ok_or_else(|| {
        format!(
            "parameter tlsUseSystemCA: this machine has none of {}: install its package of certificates \
             (ca-certificates), or name a file with tlsCAFile",
            OF_SYSTEMS.join(", ")
        )
    })
}

fn told(part: TlsFile, path: &Path, text: &str) -> String {
    format!("{} {}: {text}", part.option(), path.display())
}

/// Refuses a file with a key that others may read or have written. A group may read it: systems have one for that.
fn check_permissions(permissions: FilePermissions) -> Result<(), String> {
    if permissions.mode & OTHERS != 0 {
        return Err("permissions are too open: it holds a key, and every user of this machine may read it; run \
                    chmod 600 on it"
            .to_owned());
    }
    if !permissions.is_ours_or_roots() {
        return Err(format!(
            "it belongs to the user {}, who may put another key into it; it must be the server's own or root's",
            permissions.owner
        ));
    }
    Ok(())
}

fn read(os: &Os, part: TlsFile, path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let failed = |error: std::io::Error| error.to_string();
    let file = os.vfs.open(path, OpenOptions::read_only()).map_err(failed)?;
    if matches!(part, TlsFile::CertificateKey | TlsFile::ClusterCertificateKey) {
        // Of the file that is read, whoever exchanges the name between.
        check_permissions(file.permissions().map_err(failed)?)?;
    }
    let length = file.len().map_err(failed)?;
    if length > MOST_BYTES {
        return Err("it is too long to be PEM".to_owned());
    }
    let mut bytes = Zeroizing::new(vec![0; length as usize]);
    file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::check_permissions;
    use os::FilePermissions;

    #[test]
    fn a_file_with_a_key_is_the_servers_or_roots_and_closed_to_others() {
        let own = rustix::process::geteuid().as_raw();
        for (owner, mode, word) in [
            (own, 0o600, ""),
            (0, 0o640, ""),
            (own, 0o604, "chmod 600"),
            (own, 0o602, "chmod 600"),
            (own + 1, 0o600, "belongs to the user"),
        ] {
            let outcome = check_permissions(FilePermissions { owner, mode });
            let line = outcome.err().unwrap_or_default();
            assert!(
                line.contains(word) && line.is_empty() == word.is_empty(),
                "{owner} {mode:o}: {line}"
            );
        }
    }
}
