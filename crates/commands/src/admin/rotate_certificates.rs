//! `rotateCertificates`: the files of TLS are read again.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::{Document, doc};
use dispatch::fields::Field;
use errors::{Code, Error, Result};
use serverstate::{LogEvent, ServerState, Severity};

pub(crate) const ROTATE_CERTIFICATES: Command = Command::new(
    "rotateCertificates",
    "Loads the files of TLS again, for connections from then on.",
    Needs::Cluster(&[Action::RotateCertificates]),
    run,
)
.admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut note = "";
    for field in &fields[1..] {
        match field.name {
            "message" => note = field.str()?,
            _ => return Err(field.unknown()),
        }
    }
    rotate(context.service, &format!("conn{}", context.connection.id()), note)
}

/// The program was sent the signal that asks for it. The log says what came of it.
pub(crate) fn on_signal(service: &ServerState) {
    let context = "signals";
    if service.host.certificate().is_some() {
        let _is_in_the_log = rotate(service, context, "SIGUSR2");
        return;
    }
    service.host.log(&LogEvent {
        severity: Severity::Warning,
        component: "NETWORK",
        id: 4_913_401,
        context,
        message: "SIGUSR2 asks to rotate X509 certificates, and there are none: TLS is off",
        attributes: Document::new(),
    });
}

/// Loads them, and says in the log what came of it. `context` is who asked.
fn rotate(service: &ServerState, context: &str, note: &str) -> Result<()> {
    let host = &service.host;
    if host.certificate().is_none() {
        return Err(Error::new(
            Code::ILLEGAL_OPERATION,
            "there are no certificates to load again: TLS is off (tlsMode is disabled)",
        ));
    }
    let loaded = host.rotate_certificates();
    let mut attributes = doc! { "message": note };
    if let Err(text) = &loaded {
        attributes.insert("error", text);
    }
    let (severity, message) = match &loaded {
        Ok(()) => (Severity::Info, "Successfully rotated X509 certificates."),
        Err(_) => {
            (Severity::Error, "Failed to rotate X509 certificates; those that were loaded stay")
        }
    };
    host.log(&LogEvent {
        severity,
        component: "NETWORK",
        id: 4_913_400,
        context,
        message,
        attributes,
    });
    loaded.map_err(|text| Error::new(Code::INVALID_SSL_CONFIGURATION, text))
}
