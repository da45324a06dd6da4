//! `$changeStream`: its options. Its documents come from the history, which the floors above read.
//!
//! Also `$changeStreamSplitLargeEvent`, which says that events too large for a document come in parts.

use crate::parse::{Inside, PipelineContext};
use crate::source::DocumentSource;
use crate::stage::{Part, PipelineStage, Place, StageInput, StageSpec};
use bson::Timestamp;
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::types::name_of;
use errors::{Code, Error, Result};
use std::sync::Arc;

/// What of a changed document is told as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FullDocument {
    /// What the event has by itself.
    #[default]
    Default,
    /// The document as it is when the event is read.
    UpdateLookup,
    /// The document after the change, where that was kept.
    WhenAvailable,
    /// The same; an error where it was not kept.
    Required,
}

/// What of a changed document is told as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BeforeChange {
    /// Nothing.
    #[default]
    Off,
    /// The document before the change, where that was kept.
    WhenAvailable,
    /// The same; an error where it was not kept.
    Required,
}

/// Where a stream begins, where not now.
#[derive(Clone, PartialEq, Debug)]
pub enum Start {
    /// Behind a token that is not an invalidate's.
    ResumeAfter(RawDocumentBuf),
    /// Behind a token.
    StartAfter(RawDocumentBuf),
    /// At a time.
    AtTime(Timestamp),
}

/// A parsed `$changeStream`.
#[derive(Clone, Debug)]
pub struct ChangeStream {
    spec: RawDocumentBuf,
    /// Where it begins; `None`: now.
    pub start: Option<Start>,
    /// What is told of documents as they are.
    pub full_document: FullDocument,
    /// What is told of documents as they were.
    pub before_change: BeforeChange,
    /// Also events of collections and indexes that came or changed.
    pub expanded: bool,
    /// Of all databases.
    pub whole_cluster: bool,
}

const FULL_DOCUMENT: [(&str, FullDocument); 4] = [
    ("default", FullDocument::Default),
    ("updateLookup", FullDocument::UpdateLookup),
    ("whenAvailable", FullDocument::WhenAvailable),
    ("required", FullDocument::Required),
];

const BEFORE_CHANGE: [(&str, BeforeChange); 3] = [
    ("off", BeforeChange::Off),
    ("whenAvailable", BeforeChange::WhenAvailable),
    ("required", BeforeChange::Required),
];

fn place(name: &str) -> String {
    format!("$changeStream.{name}")
}

fn wrong_type(name: &str, value: RawBsonRef<'_>, expected: &str) -> Error {
    Error::type_mismatch(format!(
        "BSON field '{}' is the wrong type '{}', expected type '{expected}'",
        place(name),
        name_of(value)
    ))
}

fn one_of<T: Copy>(name: &str, value: RawBsonRef<'_>, known: &[(&str, T)]) -> Result<T> {
    let RawBsonRef::String(text) = value else { return Err(wrong_type(name, value, "string")) };
    let found = known.iter().find(|(known, _)| *known == text);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        Error::bad_value(format!(
            "Enumeration value '{text}' for field '{}' is not a valid value.",
            place(name)
        ))
    })
}

fn boolean(name: &str, value: RawBsonRef<'_>) -> Result<bool> {
    match value {
        RawBsonRef::Boolean(value) => Ok(value),
        other => Err(wrong_type(name, other, "bool")),
    }
}

fn token(name: &str, value: RawBsonRef<'_>) -> Result<RawDocumentBuf> {
    match value {
        RawBsonRef::Document(token) => Ok(token.to_owned()),
        other => Err(wrong_type(name, other, "object")),
    }
}

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    check_place("$changeStream", ctx)?;
    let RawBsonRef::Document(spec) = value else {
        return Err(Error::location(
            50808,
            format!(
                "$changeStream stage expects a document as argument, found: {}",
                name_of(value)
            ),
        ));
    };
    Ok(PipelineStage::ChangeStream(Arc::new(ChangeStream::parse(spec)?)))
}

/// Streams are of collections as such.
fn check_place(name: &str, ctx: &PipelineContext) -> Result<()> {
    match ctx.inside {
        Inside::Nothing => Ok(()),
        inside => Err(crate::parse::not_inside(name, inside)),
    }
}

impl ChangeStream {
    fn parse(spec: &RawDocument) -> Result<Self> {
        let mut stream = Self {
            spec: spec.to_owned(),
            start: None,
            full_document: FullDocument::default(),
            before_change: BeforeChange::default(),
            expanded: false,
            whole_cluster: false,
        };
        for field in spec {
            let (name, value) = field?;
            let name = name.as_str();
            let start = match name {
                "resumeAfter" => Start::ResumeAfter(token(name, value)?),
                "startAfter" => Start::StartAfter(token(name, value)?),
                "startAtOperationTime" => match value {
                    RawBsonRef::Timestamp(time) => Start::AtTime(time),
                    other => return Err(wrong_type(name, other, "timestamp")),
                },
                _ => {
                    stream.take(name, value)?;
                    continue;
                }
            };
            match (&stream.start, &start) {
                (None, _) => stream.start = Some(start),
                (Some(Start::AtTime(_)), _) | (_, Start::AtTime(_)) => {
                    return Err(Error::location(
                        40674,
                        "Only one type of resume option is allowed, but multiple were found.",
                    ));
                }
                _ => {
                    return Err(Error::location(
                        50674,
                        "Do not specify both 'resumeAfter' and 'startAfter' in a $changeStream stage",
                    ));
                }
            }
        }
        Ok(stream)
    }

    fn take(&mut self, name: &str, value: RawBsonRef<'_>) -> Result<()> {
        match name {
            "fullDocument" => self.full_document = one_of(name, value, &FULL_DOCUMENT)?,
            "fullDocumentBeforeChange" => {
                self.before_change = one_of(name, value, &BEFORE_CHANGE)?;
            }
            "showExpandedEvents" => self.expanded = boolean(name, value)?,
            "allChangesForCluster" => self.whole_cluster = boolean(name, value)?,
            // What sharded clusters, and MongoDB's own tools, ask for.
            "showMigrationEvents"
            | "showSystemEvents"
            | "showRawUpdateDescription"
            | "allowToRunOnConfigDB"
            | "allowToRunOnSystemNS"
                if !boolean(name, value)? => {}
            _ => {
                return Err(Error::location(
                    40415,
                    format!("BSON field '{}' is an unknown field.", place(name)),
                ));
            }
        }
        Ok(())
    }
}

fn elsewhere<T>() -> Result<T> {
    Err(Error::new(
        Code::INTERNAL_ERROR,
        "a change stream is opened by the command that it is sent with",
    ))
}

impl StageSpec for ChangeStream {
    fn name(&self) -> &'static str {
        "$changeStream"
    }

    fn argument(&self) -> RawBson {
        RawBson::Document(self.spec.clone())
    }

    fn parts(&self) -> Vec<Part<'_>> {
        Vec::new()
    }

    fn execute(self: Arc<Self>, _: StageInput) -> Result<Box<dyn DocumentSource>> {
        elsewhere()
    }

    fn place(&self) -> Place {
        Place::Source
    }
}

/// A parsed `$changeStreamSplitLargeEvent`.
#[derive(Debug)]
struct SplitLargeEvent;

pub(crate) fn parse_split(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    check_place("$changeStreamSplitLargeEvent", ctx)?;
    match value {
        RawBsonRef::Document(spec) if spec.is_empty() => Ok(PipelineStage::other(SplitLargeEvent)),
        _ => Err(Error::location(
            7_182_800,
            "$changeStreamSplitLargeEvent spec should be an empty object",
        )),
    }
}

/// The name of the stage that cuts large events.
pub const SPLIT: &str = "$changeStreamSplitLargeEvent";

impl StageSpec for SplitLargeEvent {
    fn name(&self) -> &'static str {
        SPLIT
    }

    fn argument(&self) -> RawBson {
        RawBson::Document(RawDocumentBuf::new())
    }

    fn parts(&self) -> Vec<Part<'_>> {
        Vec::new()
    }

    fn execute(self: Arc<Self>, _: StageInput) -> Result<Box<dyn DocumentSource>> {
        Err(Error::new(
            Code::ILLEGAL_OPERATION,
            "$changeStreamSplitLargeEvent can only be used in a $changeStream pipeline",
        ))
    }
}
