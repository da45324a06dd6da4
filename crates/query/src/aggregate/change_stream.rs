//! Change streams: an `aggregate` whose documents are what happens from now on, or from a token on.
//!
//! From → to: [`open`] checks what may be asked, and lays the client's stages over a source
//! ([`source`]) that makes events of commits; the cursor stays open at the end, and each batch tells
//! from where another stream would go on.
//!
//! Always true:
//! 1. Every event comes once, in order, and only once it is durable.
//! 2. The token of a batch is never ahead of the events that were given.
//! 3. Between two requests a stream holds no memory of the log and no file.

mod source;
mod split;

use super::QueryEnv;
use crate::context::OpContext;
use crate::cursor::{QueryCursor, Rows};
use crate::past::lost;
use crate::request::AggregateTarget;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use catalog::Namespace;
use engine::History;
use errors::{Code, Error, Result};
use oplog::Time;
use oplog::event::Target;
use oplog::token::Token;
use parking_lot::Mutex;
use pipeline::stage::change_stream::{ChangeStream, SPLIT, Start};
use pipeline::{DocumentSource, Pipeline, PipelineStage};
use source::{EventSource, Progress, is_too_large, too_large};
use split::SplitSource;
use std::sync::Arc;

/// What may stand behind `$changeStream`.
const ALLOWED: [&str; 9] = [
    "$match",
    "$project",
    "$addFields",
    "$set",
    "$unset",
    "$replaceRoot",
    "$replaceWith",
    "$redact",
    SPLIT,
];

/// The stream that a pipeline asks for.
pub(crate) fn of(pipeline: &Pipeline) -> Option<Arc<ChangeStream>> {
    match pipeline.stages().first() {
        Some(PipelineStage::ChangeStream(stream)) => Some(Arc::clone(stream)),
        _ => None,
    }
}

/// Refuses what cannot be asked of a stream, or cannot be asked here.
pub(crate) fn check(
    ctx: &OpContext<'_>,
    stream: &ChangeStream,
    pipeline: &Pipeline,
    target: &AggregateTarget,
) -> Result<Target> {
    if !ctx.catalog.engine().keeps_history() {
        return Err(Error::location(
            40573,
            "The $changeStream stage is only supported on replica sets",
        ));
    }
    if ctx.txn.is_some() {
        return Err(Error::new(
            Code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
            "Stage not supported inside of a multi-document transaction: $changeStream",
        ));
    }
    if ctx.snapshot.is_some() {
        return Err(Error::new(
            Code::INVALID_OPTIONS,
            "$changeStream cannot run with a readConcern other than 'majority'",
        ));
    }
    let last = pipeline.stages().len().saturating_sub(1);
    for (at, stage) in pipeline.stages().iter().enumerate().skip(1) {
        let name = stage.name();
        if !ALLOWED.contains(&name) {
            return Err(Error::new(
                Code::ILLEGAL_OPERATION,
                format!("{name} is not permitted in a $changeStream pipeline"),
            ));
        }
        if name == SPLIT && at != last {
            return Err(Error::location(
                7_182_802,
                format!("{SPLIT} must be the last stage in the pipeline"),
            ));
        }
    }
    target_of(ctx, stream, target)
}

fn target_of(
    ctx: &OpContext<'_>,
    stream: &ChangeStream,
    target: &AggregateTarget,
) -> Result<Target> {
    let internal = |what: &str| {
        Error::new(
            Code::INVALID_NAMESPACE,
            format!("$changeStream may not be opened on the internal {what}"),
        )
    };
    match target {
        AggregateTarget::Database(database) if stream.whole_cluster && database == "admin" => {
            Ok(Target::Cluster)
        }
        _ if stream.whole_cluster => Err(Error::new(
            Code::INVALID_OPTIONS,
            "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' \
             database, and with no collection name.",
        )),
        AggregateTarget::Database(database) => {
            if matches!(database.as_str(), "admin" | "local" | "config") {
                return Err(internal(&format!("{database} database")));
            }
            Ok(Target::Database(database.clone()))
        }
        AggregateTarget::Collection(ns) => {
            if matches!(ns.database(), "admin" | "local" | "config") {
                return Err(internal(&format!("{} database", ns.database())));
            }
            if ns.is_system() {
                return Err(internal(&format!("{ns} collection")));
            }
            let found = ctx.catalog.collection(ns);
            if found.is_some_and(|c| c.is_view() || c.options().time_series.is_some()) {
                return Err(Error::new(
                    Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
                    format!("Namespace {ns} is a view, not a collection"),
                ));
            }
            Ok(Target::Collection(ns.as_str().to_owned()))
        }
    }
}

/// Where a stream begins: the time behind which commits are read, and the token behind which events
/// are given.
fn start_of(history: &History, stream: &ChangeStream) -> Result<(Time, Token)> {
    let before = |time: Time| Time(time.0.saturating_sub(1));
    let token = match &stream.start {
        None => {
            let newest = Time(history.newest().1);
            return Ok((newest, Token::high_water_mark(Time(newest.0.saturating_add(1)))));
        }
        Some(Start::AtTime(time)) => Token::high_water_mark(Time::from(*time)),
        Some(Start::StartAfter(token)) => Token::from_document(token)?,
        Some(Start::ResumeAfter(token)) => {
            let token = Token::from_document(token)?;
            if token.from_invalidate {
                return Err(Error::new(
                    Code::INVALID_RESUME_TOKEN,
                    "Attempting to resume a change stream using 'resumeAfter' is not allowed from \
                     an invalidate notification.",
                ));
            }
            token
        }
    };
    Ok((before(token.time), token))
}

/// Opens a stream.
pub(crate) fn open(
    ctx: &OpContext<'_>,
    env: &QueryEnv,
    stream: &Arc<ChangeStream>,
    pipeline: &Pipeline,
    target: &AggregateTarget,
    variables: &Arc<expr::agg::Variables>,
) -> Result<QueryCursor> {
    let target = check(ctx, stream, pipeline, target)?;
    let history = ctx.catalog.engine().history().ok_or_else(|| {
        Error::location(40573, "The $changeStream stage is only supported on replica sets")
    })?;
    let (after, token) = start_of(&history, stream)?;
    // Where the history does not reach back so far, the client is told at once.
    if history.oldest_time().map_err(lost)? > after.0 {
        return Err(lost(engine::Error::HistoryLost));
    }
    let progress = Arc::new(Mutex::new(Progress::at(token.clone())));
    let interrupt = Arc::clone(env.interrupt());
    let events = EventSource::new(
        Arc::clone(ctx.catalog),
        Arc::clone(&history),
        Arc::clone(&interrupt),
        Arc::clone(stream),
        target,
        (after, token.clone()),
        Arc::clone(&progress),
    );
    let mut stages = pipeline.stages().to_vec();
    stages.remove(0);
    let splits = stages.last().is_some_and(|stage| stage.name() == SPLIT);
    if splits {
        stages.pop();
    }
    let rest = Pipeline::from_stages(stages);
    let source = rest.execute(Box::new(events), &env.shared(), variables)?;
    let source: Box<dyn DocumentSource> = if splits {
        Box::new(SplitSource::new(source, token.clone(), Arc::clone(&progress)))
    } else {
        source
    };
    let rows = StreamRows { source, progress, given: token.clone(), lent: token, current: None };
    Ok(QueryCursor::new(Box::new(rows), None, interrupt).following())
}

/// A stream's events as rows of a cursor.
struct StreamRows {
    source: Box<dyn DocumentSource>,
    progress: Arc<Mutex<Progress>>,
    /// The token of the event before the one that was lent last…
    given: Token,
    /// …and of that one.
    lent: Token,
    current: Option<RawDocumentBuf>,
}

impl Rows for StreamRows {
    fn next(&mut self) -> Result<Option<&RawDocument>> {
        self.current = self.source.next()?;
        let Some(event) = &self.current else { return Ok(None) };
        if is_too_large(event) {
            return Err(too_large(event));
        }
        let token = self.progress.lock().event.clone();
        let is_kept = match event.get("_id")? {
            Some(RawBsonRef::Document(id)) => id.as_bytes() == token.to_document().as_bytes(),
            _ => false,
        };
        if !is_kept {
            return Err(Error::new(
                Code::CHANGE_STREAM_FATAL_ERROR,
                "Encountered an event whose _id field, which contains the resume token, was \
                 modified by the pipeline. Modifying the _id field of an event makes it impossible \
                 to resume the stream from that point. Only transformations that retain the \
                 unmodified _id field are allowed.",
            )
            .with_label("NonResumableChangeStreamError"));
        }
        self.given = std::mem::replace(&mut self.lent, token);
        Ok(self.current.as_deref())
    }

    fn park(&mut self) {
        self.current = None;
        self.source.park();
    }

    fn refresh(&mut self) {
        self.progress.lock().begin_batch();
    }

    fn end_of_history(&self) -> Option<(Arc<History>, Time)> {
        let progress = self.progress.lock();
        progress.waits_for.clone().map(|history| (history, progress.position))
    }

    fn is_over(&self) -> bool {
        self.progress.lock().is_over
    }

    fn resume_token(&self, put_back: bool) -> Option<RawDocumentBuf> {
        if put_back {
            return Some(self.given.to_document());
        }
        let progress = self.progress.lock();
        let seen = progress.seen();
        let is_behind = seen.place() > self.lent.place() && progress.is_at_end();
        Some(if is_behind { seen.to_document() } else { self.lent.to_document() })
    }
}

/// The newest state of a document, for `updateLookup`.
fn look_up(
    catalog: &catalog::Catalog,
    ns: &str,
    uuid: Option<[u8; 16]>,
    id: &RawDocument,
) -> Result<Option<RawDocumentBuf>> {
    let Some(id) = id.get("_id")? else { return Ok(None) };
    let Some(collection) = catalog.collection(&Namespace::parse(ns)?) else { return Ok(None) };
    if collection.is_view() || uuid.is_some_and(|uuid| collection.uuid().bytes() != uuid) {
        return Ok(None);
    }
    let snapshot = catalog.snapshot();
    let found =
        crate::point::look_up(&collection, id, |from, key| match snapshot.get(from, key) {
            // Dropped a moment ago.
            Err(engine::Error::NoSuchDictionary(_)) => Ok(None),
            found => found.map_err(catalog::from_engine),
        })?;
    found.map(|bytes| Ok(RawDocument::from_bytes(&bytes[..])?.to_owned())).transpose()
}
