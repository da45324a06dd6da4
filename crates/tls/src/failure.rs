//! Why a handshake failed, in words that say whose certificate it was about and what to do.
//!
//! Always true: what a client sent comes into a text only as the subject of a certificate, whose control characters are
//! escaped.

use rustls::{AlertDescription, CertificateError, Error};
use std::cell::RefCell;

thread_local! {
    /// The subject of the last client's certificate that this thread refused. The library's error does not have it,
    /// and the certificate is thrown away with the connection; both are met in the same call of it.
    static REFUSED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Notes whose certificate is refused.
pub(crate) fn note_refused(subject: Option<String>) {
    REFUSED.with_borrow_mut(|refused| *refused = subject);
}

/// What is told of a connection that ends by this error.
pub(crate) fn text(error: &Error) -> String {
    of(error, REFUSED.take().as_deref())
}

/// `subject` is that of the client's certificate, where it was refused.
fn of(error: &Error, subject: Option<&str>) -> String {
    let whose = subject.map(|subject| format!(" ({subject})")).unwrap_or_default();
    let client = |what: &str| format!("TLS: {error}: the client's certificate{whose} {what}");
    match error {
        Error::NoCertificatesPresented => format!(
            "TLS: {error}: the client shows no certificate, which tlsCAFile asks for: it needs \
             tlsCertificateKeyFile, or the server tlsAllowConnectionsWithoutCertificates"
        ),
        Error::InvalidCertificate(reason) => match reason {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                client("has ended: have a new one made")
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                client("is not valid yet: compare the clocks")
            }
            CertificateError::Revoked => client("is revoked by tlsCRLFile"),
            CertificateError::UnknownIssuer => client("is of no authority that tlsCAFile names"),
            _ => client("is not taken"),
        },
        Error::AlertReceived(alert) => {
            let server = |what: &str| {
                format!("TLS: {error}: the client does not take the server's certificate: {what}")
            };
            match alert {
                AlertDescription::UnknownCA => {
                    server("it does not know its authority, and needs tlsCAFile")
                }
                AlertDescription::CertificateExpired => {
                    server("it has ended, or the clocks differ")
                }
                AlertDescription::CertificateRevoked => server("it is revoked"),
                AlertDescription::BadCertificate
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnsupportedCertificate => server(
                    "it may be of another host, or of an authority that is not in its tlsCAFile",
                ),
                _ => format!("TLS: {error}"),
            }
        }
        _ => format!("TLS: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{note_refused, of, text};
    use rustls::{AlertDescription, CertificateError, Error};

    #[test]
    fn it_says_whose_certificate_and_what_to_do() {
        let refused = |reason| Error::InvalidCertificate(reason);
        for (error, subject, words) in [
            (
                refused(CertificateError::Expired),
                "CN=late",
                &["(CN=late) has ended", "Expired"][..],
            ),
            (refused(CertificateError::NotValidYet), "CN=early", &["(CN=early)", "the clocks"]),
            (refused(CertificateError::Revoked), "CN=a", &["(CN=a)", "tlsCRLFile"]),
            (refused(CertificateError::UnknownIssuer), "CN=a", &["(CN=a)", "tlsCAFile"]),
            (refused(CertificateError::BadEncoding), "CN=a", &["(CN=a) is not taken"]),
            (Error::NoCertificatesPresented, "", &["tlsAllowConnectionsWithoutCertificates"]),
            (Error::AlertReceived(AlertDescription::UnknownCA), "", &["needs tlsCAFile"]),
            (
                Error::AlertReceived(AlertDescription::CertificateExpired),
                "",
                &["server's", "ended"],
            ),
            (Error::AlertReceived(AlertDescription::BadCertificate), "", &["another host"]),
            (Error::AlertReceived(AlertDescription::HandshakeFailure), "", &["HandshakeFailure"]),
        ] {
            let subject = (!subject.is_empty()).then_some(subject);
            let told = of(&error, subject);
            for word in words {
                assert!(told.contains(word), "{told}");
            }
        }
    }

    #[test]
    fn a_subject_is_told_once() {
        note_refused(Some("CN=late".to_owned()));
        let error = Error::InvalidCertificate(CertificateError::Expired);
        assert!(text(&error).contains("CN=late"));
        assert!(!text(&error).contains("CN=late"));
    }
}
