//! Whether the certificate of a client, or of another member, is taken.
//!
//! Always true: that the other side has the key of the certificate it shows is checked, whatever else is let pass.

use crate::failure::note_refused;
use crate::member_rule::MemberRule;
use crate::subject::subject;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use std::sync::Arc;

/// Judges clients' certificates, and notes whose it refuses.
#[derive(Debug)]
pub(crate) struct OfClients {
    pub(crate) chain: Arc<dyn ClientCertVerifier>,
    /// Any is taken; whether it is a good one is asked of `chain` once the connection lives.
    pub(crate) takes_any: bool,
}

impl ClientCertVerifier for OfClients {
    fn offer_client_auth(&self) -> bool {
        self.chain.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.chain.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.takes_any {
            return Ok(ClientCertVerified::assertion());
        }
        let judged = self.chain.verify_client_cert(end_entity, intermediates, now);
        if judged.is_err() {
            note_refused(subject(end_entity));
        }
        judged
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// Judges the certificates of the members that this server connects to.
#[derive(Debug)]
pub(crate) struct OfMembers {
    /// By what they are judged; nothing where any is taken.
    pub(crate) chain: Option<Arc<WebPkiServerVerifier>>,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
    /// A good certificate may be of another host.
    pub(crate) any_name: bool,
    /// By what a certificate is a member's; nothing where that is not looked at.
    pub(crate) rules: Option<Vec<MemberRule>>,
}

impl ServerCertVerifier for OfMembers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let fits = |rules: &Vec<MemberRule>| rules.iter().any(|rule| rule.fits(end_entity));
        if self.rules.as_ref().is_some_and(|rules| !fits(rules)) {
            return Err(Error::General(
                "the certificate has not what members' have (O, OU and DC of this member's own, or what clusterAuthX509 \
                 says): it is no member's"
                    .to_owned(),
            ));
        }
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        let judged =
            chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match judged {
            // The name is looked at last, so that all else was found good.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.any_name => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
