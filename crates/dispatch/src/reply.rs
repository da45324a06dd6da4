//! What goes back: a document, and for streaming clients the request to run next.

use crate::link::TakeOver;
use crate::request::MakeWaker;
use crate::writer::Writer;
use bson::RawDocumentBuf;
use errors::Error;
use limits::Charge;
use std::time::Duration;

/// The answer to one request.
#[derive(Default)]
pub struct Reply {
    /// The document to send.
    pub document: RawDocumentBuf,
    /// Where the client asked for a stream: the request to run after sending `document` with
    /// `moreToCome`.
    pub exhaust: Option<RawDocumentBuf>,
    /// Close the connection instead of answering: a fail point asked for it.
    pub hang_up: bool,
    /// Close the connection once `document` is sent.
    pub is_last: bool,
    /// No answer yet: the same request is to be run again at this server time, with
    /// [`Request::waited_until`](crate::Request), or before where the service asks for it: of all that wait
    /// ([`Wake`](crate::Wake)), or of this one ([`Request::waker`](crate::Request)). No thread need wait for that.
    pub wait: Option<Duration>,
    /// Where it waits ([`Reply::wait`]) although the command is done: what is left to do for the answer. The request
    /// is not run again then, and need not be kept.
    pub unfinished: Option<Box<dyn Unfinished>>,
    /// For the document, until it is sent.
    pub memory: Option<Charge>,
    /// The connection is a link of another member: once `document` is sent, its socket goes here.
    pub hand_over: Option<TakeOver>,
    /// Dropped once `document` is sent, or cannot be: what begins then tells so by its drop.
    pub until_sent: Option<Box<dyn Send>>,
}

/// The answer to a command that is done, and waits for something before it may be sent. Who drops it gives the
/// answer up, not what was done.
pub trait Unfinished: Send {
    /// Goes on, at its time or because it was woken: the answer, or one that waits still. `waker` makes what wakes
    /// it before its time.
    fn go_on(self: Box<Self>, waker: MakeWaker<'_>) -> Reply;

    /// Memory that it takes.
    fn bytes(&self) -> usize;
}

impl Reply {
    /// The answer that says what went wrong.
    pub fn error(error: &Error) -> Self {
        let mut writer = Writer::new();
        write_error(&mut writer, error);
        Self { document: writer.finish(), ..Self::default() }
    }
}

impl From<RawDocumentBuf> for Reply {
    fn from(document: RawDocumentBuf) -> Self {
        Self { document, ..Self::default() }
    }
}

/// Writes `{ok: 0.0, errmsg, code, codeName, …}`.
pub fn write_error(writer: &mut Writer, error: &Error) {
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
    write_labels(writer, error.labels());
}

/// Writes `errorLabels`, where there are any.
pub fn write_labels<T: AsRef<str>>(writer: &mut Writer, labels: &[T]) {
    if labels.is_empty() {
        return;
    }
    let list = writer.begin_array("errorLabels");
    for (at, label) in labels.iter().enumerate() {
        writer.element_str(at, label.as_ref());
    }
    writer.end(list);
}
