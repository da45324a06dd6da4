//! What goes back: a document, and for streaming clients the request to run next.

use crate::writer::Writer;
use bson::RawDocumentBuf;
use errors::Error;

/// The answer to one request.
#[derive(Debug)]
pub struct Reply {
    /// The document to send.
    pub document: RawDocumentBuf,
    /// Where the client asked for a stream: the request to run after sending `document` with
    /// `moreToCome`.
    pub exhaust: Option<RawDocumentBuf>,
}

impl Reply {
    /// The answer that says what went wrong.
    pub fn error(error: &Error) -> Self {
        let mut writer = Writer::new();
        write_error(&mut writer, error);
        Self { document: writer.finish(), exhaust: None }
    }
}

/// Writes `{ok: 0.0, errmsg, code, codeName, …}`.
pub(crate) fn write_error(writer: &mut Writer, error: &Error) {
    writer.f64("ok", 0.0);
    writer.str("errmsg", error.message());
    writer.i32("code", error.code().0);
    writer.str("codeName", &error.code().name());
    if let Some(extra) = error.extra() {
        writer.fields_of(extra);
    }
    if let Some(info) = error.info() {
        writer.bson("errInfo", &bson::Bson::Document(info.clone()));
    }
    if !error.labels().is_empty() {
        let labels = writer.begin_array("errorLabels");
        for (at, label) in error.labels().iter().enumerate() {
            writer.element_str(at, label);
        }
        writer.end(labels);
    }
}
