//! The events of a stream, made of commits as they are read.
//!
//! Always true: an event is given only if it stands behind the token that the stream began at, or gave
//! last; so a stream that reads a commit again gives none twice.

use super::look_up;
use crate::context::Interrupt;
use crate::cursor::InterruptSlot;
use crate::past::{PastReader, Step};
use bson::raw::RawDocumentBuf;
use catalog::{Catalog, Namespace};
use engine::History;
use errors::{Code, Error, Result};
use limits::MAX_DOCUMENT_BYTES;
use oplog::Time;
use oplog::commit::{Commit, Cursor};
use oplog::event::{self, AttachedDocument, Event, Kind, Target};
use oplog::token::Token;
use parking_lot::Mutex;
use pipeline::DocumentSource;
use pipeline::stage::change_stream::{BeforeChange, ChangeStream, FullDocument};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How long a batch looks through what is not wanted before it is given, empty as it is.
const LONGEST_LOOK: Duration = Duration::from_millis(500);
/// What an event may take beside its largest document.
const MAX_EVENT_BYTES: usize = MAX_DOCUMENT_BYTES + (16 << 10);

/// How far a stream has come, for the cursor above the client's stages.
pub(super) struct Progress {
    /// The token of the event that was made last, or that the stream began at.
    pub(super) event: Token,
    /// All up to here was looked at.
    pub(super) position: Time,
    /// Set at the end of what is there.
    pub(super) waits_for: Option<Arc<History>>,
    /// An invalidate was given: nothing follows.
    pub(super) is_over: bool,
    /// Everything before was looked at: nothing is on its way through the client's stages.
    idle: bool,
    began: Option<Duration>,
    /// The source is to go on behind this part of an event.
    pub(super) rewind: Option<Token>,
}

impl Progress {
    pub(super) fn at(token: Token) -> Self {
        Self {
            event: token,
            position: Time(0),
            waits_for: None,
            is_over: false,
            idle: false,
            began: None,
            rewind: None,
        }
    }

    /// A mark at what was looked at.
    pub(super) fn seen(&self) -> Token {
        Token::high_water_mark(self.position)
    }

    /// Whether nothing is between the source and the cursor.
    pub(super) fn is_at_end(&self) -> bool {
        self.idle
    }

    /// A new batch begins.
    pub(super) fn begin_batch(&mut self) {
        self.began = None;
    }
}

/// The source of events.
pub(super) struct EventSource {
    catalog: Arc<Catalog>,
    history: Arc<History>,
    interrupt: Arc<InterruptSlot>,
    stream: Arc<ChangeStream>,
    target: Target,
    /// Commits behind this are read…
    after: Time,
    /// …and events behind this are given.
    token: Token,
    progress: Arc<Mutex<Progress>>,
    reader: Option<PastReader>,
    commit: Option<(Box<Commit>, Cursor)>,
    /// An invalidate that follows what was given.
    next: VecDeque<(Token, RawDocumentBuf)>,
}

impl EventSource {
    pub(super) fn new(
        catalog: Arc<Catalog>,
        history: Arc<History>,
        interrupt: Arc<InterruptSlot>,
        stream: Arc<ChangeStream>,
        target: Target,
        (after, token): (Time, Token),
        progress: Arc<Mutex<Progress>>,
    ) -> Self {
        progress.lock().position = after;
        Self {
            catalog,
            history,
            interrupt,
            stream,
            target,
            after,
            token,
            progress,
            reader: None,
            commit: None,
            next: VecDeque::new(),
        }
    }

    fn reader(&mut self) -> Result<&mut PastReader> {
        let made = match self.reader.take() {
            Some(reader) => reader,
            None => PastReader::after(&self.history, self.after)?,
        };
        Ok(self.reader.insert(made))
    }

    /// The next commit that the stream may want; `None` where the batch is to end.
    fn next_commit(&mut self) -> Result<bool> {
        let clock = Arc::clone(&self.catalog.os().clock);
        let began = *self.progress.lock().began.get_or_insert_with(|| clock.monotonic());
        loop {
            let (interrupt, target) = (Arc::clone(&self.interrupt), self.target.clone());
            let reader = self.reader()?;
            let step = reader.next(&*interrupt, &move |name| target.wants(name))?;
            let position = reader.position();
            match step {
                Step::Commit(commit) => {
                    self.commit = Some((commit, Cursor::default()));
                    return Ok(true);
                }
                Step::End => {
                    self.after = self.after.max(position);
                    let mut progress = self.progress.lock();
                    progress.position = progress.position.max(position);
                    progress.waits_for = Some(Arc::clone(&self.history));
                    progress.idle = true;
                    return Ok(false);
                }
                Step::Passed => {
                    self.after = self.after.max(position);
                    let mut progress = self.progress.lock();
                    progress.position = progress.position.max(position);
                    if clock.monotonic().saturating_sub(began) > LONGEST_LOOK {
                        progress.idle = true;
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// The next event of the commit at hand, and the invalidate behind it.
    fn next_of_commit(&mut self) -> Result<()> {
        let Some((commit, cursor)) = &mut self.commit else { return Ok(()) };
        let target = &self.target;
        while let Some(operation) = cursor.next(commit, &|name| target.wants(name))? {
            self.interrupt.check()?;
            let Some(event) =
                event::change_event(commit, &operation, target, self.stream.expanded)?
            else {
                continue;
            };
            // A part of an event that was given stands behind the event: the event is made again.
            let is_given = event.token.place() < self.token.place()
                || event.token.place() == self.token.place()
                    && self.token.fragment_of(&event.token).is_none();
            if !is_given {
                let document = build(&self.catalog, &self.stream, &event)?;
                self.next.push_back((event.token.clone(), document));
            }
            if event.invalidates {
                let (token, document) = event.invalidate()?;
                if token.place() > self.token.place() {
                    self.next.push_back((token, document));
                }
            }
            if !self.next.is_empty() {
                return Ok(());
            }
        }
        // Everything of it was given or passed.
        let last = commit.head().last();
        self.commit = None;
        self.after = self.after.max(last);
        let mut progress = self.progress.lock();
        progress.position = progress.position.max(last);
        Ok(())
    }
}

impl DocumentSource for EventSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        {
            let mut progress = self.progress.lock();
            progress.waits_for = None;
            progress.idle = false;
            if progress.is_over {
                progress.idle = true;
                return Ok(None);
            }
        }
        loop {
            if let Some((token, event)) = self.next.pop_front() {
                self.token = token.clone();
                let mut progress = self.progress.lock();
                progress.is_over = token.from_invalidate;
                progress.event = token;
                return Ok(Some(event));
            }
            if self.commit.is_some() {
                self.next_of_commit()?;
            } else if !self.next_commit()? {
                return Ok(None);
            }
        }
    }

    fn park(&mut self) {
        // What is left of a commit is read again: its events stand behind the token.
        let rewind = self.progress.lock().rewind.take();
        let is_amid = self.commit.take().is_some() || !self.next.is_empty() || rewind.is_some();
        if let Some(part) = rewind {
            self.token = part;
        }
        if is_amid {
            self.next.clear();
            self.reader = None;
        }
        if let Some(reader) = &mut self.reader {
            reader.park();
        }
    }
}

/// The event, with the documents that the client asked for.
fn build(catalog: &Catalog, stream: &ChangeStream, event: &Event<'_>) -> Result<RawDocumentBuf> {
    let image = match event.before() {
        Some(image) if !image_has_expired(catalog, event)? => Some(image),
        _ => None,
    };
    let full = full_document(catalog, stream, event, image.is_some())?;
    let before = before_change(stream, event, image)?;
    event.document(&full, &before)
}

/// Whether the images of an event are older than the cluster's parameter lets them be.
fn image_has_expired(catalog: &Catalog, event: &Event<'_>) -> Result<bool> {
    let parameters = Namespace::parse(Namespace::CLUSTER_PARAMETERS)?;
    for parameter in catalog.system_documents(&parameters)? {
        if parameter.get_str("_id").ok() == Some("changeStreamOptions")
            && let Ok(images) = parameter.get_document("preAndPostImages")
            && let Ok(seconds) = images.get_i64("expireAfterSeconds")
        {
            return Ok(is_older(event.token.time, seconds, catalog.os().clock.wall_ms() / 1000));
        }
    }
    Ok(false)
}

/// Whether a time is more than so many seconds before the present one.
fn is_older(time: Time, seconds: i64, now: i64) -> bool {
    let of_time = i64::try_from(time.0 >> 32).unwrap_or(i64::MAX);
    of_time.saturating_add(seconds) < now
}

/// Whether the event is too large for one document.
pub(super) fn is_too_large(event: &RawDocumentBuf) -> bool {
    event.as_bytes().len() > MAX_EVENT_BYTES
}

/// The error of an event that is.
pub(super) fn too_large(event: &RawDocumentBuf) -> Error {
    let bytes = event.as_bytes().len();
    Error::new(
        Code::BSON_OBJECT_TOO_LARGE,
        format!(
            "BSONObj size: {bytes} (0x{bytes:X}) is invalid. Size must be between 0 and \
             {MAX_EVENT_BYTES}(16MB)"
        ),
    )
    .with_label("NonResumableChangeStreamError")
}

/// `has_images` where the collection keeps images, and those of this event are still there.
fn full_document(
    catalog: &Catalog,
    stream: &ChangeStream,
    event: &Event<'_>,
    has_images: bool,
) -> Result<AttachedDocument> {
    let kept = || event.after().filter(|_| has_images).cloned();
    match (event.kind, stream.full_document) {
        (Kind::Insert | Kind::Replace, _) => {
            Ok(event.after().cloned().map_or(AttachedDocument::Null, AttachedDocument::Document))
        }
        (Kind::Update, FullDocument::UpdateLookup) => {
            let Some(id) = event.id() else { return Ok(AttachedDocument::Null) };
            let found = look_up(catalog, event.ns(), event.uuid(), id)?;
            Ok(found.map_or(AttachedDocument::Null, AttachedDocument::Document))
        }
        (Kind::Update, FullDocument::WhenAvailable) => {
            Ok(kept().map_or(AttachedDocument::Null, AttachedDocument::Document))
        }
        (Kind::Update, FullDocument::Required) => match kept() {
            Some(document) => Ok(AttachedDocument::Document(document)),
            None => Err(missing(event, "post-image", "update")),
        },
        _ => Ok(AttachedDocument::Absent),
    }
}

fn before_change(
    stream: &ChangeStream,
    event: &Event<'_>,
    image: Option<&RawDocumentBuf>,
) -> Result<AttachedDocument> {
    if !matches!(event.kind, Kind::Update | Kind::Replace | Kind::Delete) {
        return Ok(AttachedDocument::Absent);
    }
    match (stream.before_change, image) {
        (BeforeChange::Off, _) => Ok(AttachedDocument::Absent),
        (_, Some(document)) => Ok(AttachedDocument::Document(document.clone())),
        (BeforeChange::WhenAvailable, None) => Ok(AttachedDocument::Null),
        (BeforeChange::Required, None) => {
            Err(missing(event, "pre-image", "update, delete and replace"))
        }
    }
}

fn missing(event: &Event<'_>, what: &str, of: &str) -> Error {
    Error::new(
        Code::NO_MATCHING_DOCUMENT,
        format!(
            "Change stream was configured to require a {what} for all {of} events, but the {what} \
             was not found for event: {{ _id: {{ _data: \"{}\" }}, operationType: \"{}\" }}",
            event.token.to_text(),
            event.kind.name()
        ),
    )
    .with_label("NonResumableChangeStreamError")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_older_than_they_may_be_one_second_behind_their_time() {
        let at = |second: u64| Time(second << 32 | 7);
        for (time, seconds, now, expected) in [
            (at(100), 10, 109, false),
            (at(100), 10, 110, false),
            (at(100), 10, 111, true),
            (at(100), i64::MAX, i64::MAX, false),
            (at(200), 10, 100, false),
            (Time(u64::MAX), 1, 100, false),
        ] {
            assert_eq!(is_older(time, seconds, now), expected, "{time:?} {seconds} {now}");
        }
    }
}
