//! What files hold: certificates, roots, lists of revoked certificates; read from PEM and checked.
//!
//! Always true: a file that is let in can be used at the time it was looked at, and who is refused is told in one
//! sentence what to do.

use crate::subject::subject_of;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate, X509Version};

/// Which file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The server's certificate and its key.
    CertificateKey,
    /// The certificates that clients' have to come from.
    Authorities,
    /// The revoked ones.
    Revoked,
}

impl Part {
    /// The option that names the file.
    pub fn option(self) -> &'static str {
        match self {
            Self::CertificateKey => "tlsCertificateKeyFile",
            Self::Authorities => "tlsCAFile",
            Self::Revoked => "tlsCRLFile",
        }
    }
}

/// Why a file cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Flaw {
    /// The file.
    pub part: Part,
    /// What is wrong with it, and what to do.
    pub text: String,
}

impl Flaw {
    pub(crate) fn new(part: Part, text: impl Into<String>) -> Self {
        Self { part, text: text.into() }
    }
}

/// What is known of the server's own certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Own {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) subject: String,
    /// Seconds since 1970.
    pub(crate) not_before: i64,
    pub(crate) not_after: i64,
}

fn certificates(part: Part, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Flaw> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| Flaw::new(part, format!("it is not PEM: {error}")))?;
    if all.is_empty() {
        return Err(Flaw::new(
            part,
            "it holds no certificate: it has to be PEM, with lines from -----BEGIN CERTIFICATE-----",
        ));
    }
    Ok(all)
}

fn parse(part: Part, der: &[u8]) -> Result<X509Certificate<'_>, Flaw> {
    let parsed = X509Certificate::from_der(der);
    let parsed = parsed
        .map_err(|error| Flaw::new(part, format!("its certificate cannot be read: {error}")))?;
    Ok(parsed.1)
}

/// The server's certificate and those between it and its root.
pub(crate) fn own(pem: &[u8], now: i64) -> Result<Own, Flaw> {
    let part = Part::CertificateKey;
    let flaw = |text: String| Err(Flaw::new(part, text));
    let chain = certificates(part, pem)?;
    let Some(first) = chain.first() else { return flaw("it holds no certificate".to_owned()) };
    let certificate = parse(part, first)?;
    let subject = subject_of(&certificate);
    let validity = certificate.validity();
    let (not_before, not_after) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    if not_after < now {
        return flaw(format!(
            "its certificate ({subject}) has expired on {}: have a new one made",
            validity.not_after
        ));
    }
    if not_before > now {
        return flaw(format!(
            "its certificate ({subject}) is not valid before {}: set the clock right, or wait",
            validity.not_before
        ));
    }
    if certificate.version() != X509Version::V3 {
        return flaw(format!(
            "its certificate ({subject}) is of X.509 version 1, which clients refuse: make it with openssl x509 -req \
             -extfile, with subjectAltName in that file"
        ));
    }
    let names = certificate.subject_alternative_name();
    if !names.is_ok_and(|names| names.is_some_and(|names| !names.value.general_names.is_empty())) {
        return flaw(format!(
            "its certificate ({subject}) names no host in subjectAltName, and clients refuse it: make it with \
             subjectAltName=DNS:the.host.name"
        ));
    }
    Ok(Own { subject, not_before, not_after, chain: chain.clone() })
}

/// The certificates that clients' have to come from, without those whose time is over.
pub(crate) fn authorities(pem: &[u8], now: i64) -> Result<RootCertStore, Flaw> {
    let part = Part::Authorities;
    let mut roots = RootCertStore::empty();
    for der in certificates(part, pem)? {
        let certificate = parse(part, &der)?;
        if certificate.validity().not_after.timestamp() < now {
            continue;
        }
        let subject = subject_of(&certificate);
        roots.add(der.clone()).map_err(|error| {
            Flaw::new(part, format!("its certificate ({subject}) cannot be a root: {error}"))
        })?;
    }
    if roots.is_empty() {
        return Err(Flaw::new(part, "every certificate in it has expired: have a new one made"));
    }
    Ok(roots)
}

/// The lists of revoked certificates, none of them outdated.
pub(crate) fn revoked(
    pem: &[u8],
    now: i64,
) -> Result<Vec<CertificateRevocationListDer<'static>>, Flaw> {
    let part = Part::Revoked;
    let flaw = |text: String| Flaw::new(part, text);
    let all: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(pem).collect();
    let all: Vec<CertificateRevocationListDer<'static>> =
        all.map_err(|error| flaw(format!("it is not PEM: {error}")))?;
    if all.is_empty() {
        return Err(flaw(
            "it holds no list of revoked certificates: it has to be PEM, with lines from -----BEGIN X509 CRL-----".to_owned(),
        ));
    }
    for list in &all {
        let parsed = CertificateRevocationList::from_der(list.as_ref());
        let (_, parsed) =
            parsed.map_err(|error| flaw(format!("its list cannot be read: {error}")))?;
        match parsed.next_update() {
            None => return Err(flaw("its list does not say when the next one comes".to_owned())),
            Some(next) if next.timestamp() < now => {
                return Err(flaw(format!(
                    "its list was to be replaced by {next}: get the newest from the authority (openssl ca -gencrl)"
                )));
            }
            Some(_) => {}
        }
    }
    Ok(all)
}
