//! The PEM files of certificates, CA certificates and lists of revoked certificates: read and
//! checked.
//!
//! Always true: a file that was accepted is usable at the time of the check; a refusal says in one
//! sentence what to do.

use crate::subject::subject_of;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate, X509Version};

/// Which file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsFile {
    /// The server's certificate and its key.
    CertificateKey,
    /// What this server shows to other members, where that is another certificate.
    ClusterCertificateKey,
    /// The CA certificates that the certificates of clients and members are verified against.
    Authorities,
    /// Those that the operating system has, in the place of the operator's.
    SystemAuthorities,
    /// The CA certificates for clients, where those differ from the members'.
    ClusterAuthorities,
    /// The revoked ones.
    Revoked,
}

impl TlsFile {
    /// The option that names the file.
    pub fn option(self) -> &'static str {
        match self {
            Self::CertificateKey => "tlsCertificateKeyFile",
            Self::ClusterCertificateKey => "tlsClusterFile",
            Self::Authorities => "tlsCAFile",
            Self::SystemAuthorities => "tlsUseSystemCA",
            Self::ClusterAuthorities => "tlsClusterCAFile",
            Self::Revoked => "tlsCRLFile",
        }
    }

    /// The option that says what the key in the file is encrypted with.
    pub(crate) fn password_option(self) -> &'static str {
        match self {
            Self::ClusterCertificateKey => "tlsClusterPassword",
            _ => "tlsCertificateKeyFilePassword",
        }
    }
}

/// Why a file cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text}")]
pub struct FileError {
    /// The file.
    pub file: TlsFile,
    /// What is wrong with it, and what to do.
    pub text: String,
}

impl FileError {
    pub(crate) fn new(file: TlsFile, text: impl Into<String>) -> Self {
        Self { file, text: text.into() }
    }
}

/// What is known of the server's own certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OwnCertificate {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) subject: String,
    /// Seconds since 1970.
    pub(crate) not_before: i64,
    pub(crate) not_after: i64,
}

fn certificates(file: TlsFile, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| FileError::new(file, format!("it is not PEM: {error}")))?;
    if all.is_empty() {
        return Err(FileError::new(
            file,
            "it holds no certificate: it has to be PEM, with lines from -----BEGIN CERTIFICATE-----",
        ));
    }
    Ok(all)
}

fn parse(file: TlsFile, der: &[u8]) -> Result<X509Certificate<'_>, FileError> {
    let parsed = X509Certificate::from_der(der);
    let parsed = parsed.map_err(|error| {
        FileError::new(file, format!("its certificate cannot be read: {error}"))
    })?;
    Ok(parsed.1)
}

/// The server's certificate and those between it and its root.
pub(crate) fn own(file: TlsFile, pem: &[u8], now: i64) -> Result<OwnCertificate, FileError> {
    let file_error = |text: String| Err(FileError::new(file, text));
    let chain = certificates(file, pem)?;
    let Some(first) = chain.first() else {
        return file_error("it holds no certificate".to_owned());
    };
    let certificate = parse(file, first)?;
    let subject = subject_of(&certificate);
    let validity = certificate.validity();
    let (not_before, not_after) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    if not_after < now {
        return file_error(format!(
            "its certificate ({subject}) has expired on {}: have a new one made",
            validity.not_after
        ));
    }
    if not_before > now {
        return file_error(format!(
            "its certificate ({subject}) is not valid before {}: set the clock right, or wait",
            validity.not_before
        ));
    }
    if certificate.version() != X509Version::V3 {
        return file_error(format!(
            "its certificate ({subject}) is of X.509 version 1, which clients refuse: make it with openssl x509 -req \
             -extfile, with subjectAltName in that file"
        ));
    }
    let names = certificate.subject_alternative_name();
    // Nobody connects to this server by the name in what it shows as a client.
    if file == TlsFile::CertificateKey
        && !names
            .is_ok_and(|names| names.is_some_and(|names| !names.value.general_names.is_empty()))
    {
        return file_error(format!(
            "its certificate ({subject}) names no host in subjectAltName, and clients refuse it: make it with \
             subjectAltName=DNS:the.host.name"
        ));
    }
    Ok(OwnCertificate { subject, not_before, not_after, chain: chain.clone() })
}

/// The certificates that others' have to come from, without those whose time is over.
pub(crate) fn authorities(file: TlsFile, pem: &[u8], now: i64) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    let all = certificates(file, pem)?;
    if file == TlsFile::SystemAuthorities {
        // Others put together what it holds, and what is not understood there is nobody's mistake here.
        let (_, _not_understood) = roots.add_parsable_certificates(all);
        if roots.is_empty() {
            return Err(FileError::new(file, "no certificate in it can be a root"));
        }
        return Ok(roots);
    }
    for der in all {
        let certificate = parse(file, &der)?;
        if certificate.validity().not_after.timestamp() < now {
            continue;
        }
        let subject = subject_of(&certificate);
        roots.add(der.clone()).map_err(|error| {
            FileError::new(file, format!("its certificate ({subject}) cannot be a root: {error}"))
        })?;
    }
    if roots.is_empty() {
        return Err(FileError::new(
            file,
            "every certificate in it has expired: have a new one made",
        ));
    }
    Ok(roots)
}

/// The lists of revoked certificates, none of them outdated.
pub(crate) fn revoked(
    pem: &[u8],
    now: i64,
) -> Result<Vec<CertificateRevocationListDer<'static>>, FileError> {
    let file = TlsFile::Revoked;
    let file_error = |text: String| FileError::new(file, text);
    let all: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(pem).collect();
    let all: Vec<CertificateRevocationListDer<'static>> =
        all.map_err(|error| file_error(format!("it is not PEM: {error}")))?;
    if all.is_empty() {
        return Err(file_error(
            "it holds no list of revoked certificates: it has to be PEM, with lines from -----BEGIN X509 CRL-----".to_owned(),
        ));
    }
    for list in &all {
        let parsed = CertificateRevocationList::from_der(list.as_ref());
        let (_, parsed) =
            parsed.map_err(|error| file_error(format!("its list cannot be read: {error}")))?;
        match parsed.next_update() {
            None => {
                return Err(file_error("its list does not say when the next one comes".to_owned()));
            }
            Some(next) if next.timestamp() < now => {
                return Err(file_error(format!(
                    "its list was to be replaced by {next}: get the newest from the authority (openssl ca -gencrl)"
                )));
            }
            Some(_) => {}
        }
    }
    Ok(all)
}
