//! `$out`, and the source that drives both writing stages.

use crate::env::{CollectionName, OutWriter};
use crate::parse::PipelineContext;
use crate::source::DocumentSource;
use crate::stage::merge::Merge;
use crate::stage::window::{missing, unknown, wrong_type};
use crate::stage::{Part, PipelineStage, Place, StageInput, StageSpec};
use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};
use bsonval::raw::Writer;
use errors::{Code, Error, Result};
use expr::agg::parse_fields;
use std::sync::Arc;

/// A parsed `$out`.
#[derive(Clone, Debug)]
pub struct Out {
    /// The collection replaced.
    pub target: CollectionName,
    /// The `timeseries` options of the collection made.
    pub time_series: Option<RawDocumentBuf>,
}

impl Out {
    /// The target, as explain shows it.
    pub(crate) fn to_document(&self) -> RawDocumentBuf {
        let mut out = Writer::default();
        let open = out.begin();
        out.value("db", RawBsonRef::String(&self.target.database));
        out.value("coll", RawBsonRef::String(&self.target.collection));
        if let Some(series) = &self.time_series {
            out.value("timeseries", RawBsonRef::Document(series));
        }
        out.end(open);
        out.finish().expect("a document just written is well formed")
    }
}

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    let (target, time_series) = match value {
        RawBsonRef::String(name) => (CollectionName::new(&ctx.database, name), None),
        RawBsonRef::Document(spec) => {
            let [db, coll, series] =
                parse_fields(spec, ["db", "coll", "timeseries"], |name| unknown("$out", name))?;
            let text = |value: Option<RawBsonRef<'_>>, name: &str| match value {
                Some(RawBsonRef::String(text)) => Ok(text.to_owned()),
                Some(other) => Err(wrong_type(&format!("$out.{name}"), other, "string")),
                None => Err(missing("$out", name)),
            };
            let series = match series {
                None => None,
                Some(RawBsonRef::Document(series)) => Some(series.to_owned()),
                Some(other) => return Err(wrong_type("$out.timeseries", other, "object")),
            };
            (CollectionName::new(text(db, "db")?, text(coll, "coll")?), series)
        }
        other => {
            return Err(Error::location(
                16990,
                format!(
                    "$out only supports a string or object argument, but found {}",
                    bsonval::types::name_of(other)
                ),
            ));
        }
    };
    check_target(&target, "$out")?;
    Ok(PipelineStage::Out(Arc::new(Out { target, time_series })))
}

impl StageSpec for Out {
    fn name(&self) -> &'static str {
        "$out"
    }

    fn argument(&self) -> RawBson {
        RawBson::Document(self.to_document())
    }

    fn parts(&self) -> Vec<Part<'_>> {
        Vec::new()
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(WriteSource::new(run, Target::Out(self))))
    }

    fn place(&self) -> Place {
        Place::Last
    }
}

/// Refuses targets that no pipeline may write to.
pub(crate) fn check_target(target: &CollectionName, name: &str) -> Result<()> {
    if target.collection.is_empty() || target.database.is_empty() {
        return Err(Error::new(
            Code::INVALID_NAMESPACE,
            format!("Invalid {name} target namespace, '{target}'"),
        ));
    }
    // The two stages have the same refusals under different numbers.
    let (special, internal) = if name == "$merge" { (31319, 31320) } else { (17385, 31321) };
    if target.collection.starts_with("system.") {
        return Err(Error::location(
            special,
            format!("Can't {name} to special collection: {}", target.collection),
        ));
    }
    if matches!(target.database.as_str(), "admin" | "local" | "config") {
        return Err(Error::location(
            internal,
            format!("Can't {name} to internal database: {}", target.database),
        ));
    }
    Ok(())
}

/// Where documents are written.
pub(crate) enum Target {
    Out(Arc<Out>),
    Merge(Arc<Merge>),
}

pub(crate) struct WriteSource {
    run: StageInput,
    target: Target,
    done: bool,
}

impl WriteSource {
    pub(crate) fn new(run: StageInput, target: Target) -> Self {
        Self { run, target, done: false }
    }

    fn open(&self) -> Result<Box<dyn OutWriter>> {
        let StageInput { env, variables, .. } = &self.run;
        match &self.target {
            Target::Out(out) => env.out(out),
            Target::Merge(merge) => env.merge(&merge.spec, variables),
        }
    }
}

impl DocumentSource for WriteSource {
    /// Writes everything at the first pull; yields nothing.
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        if std::mem::replace(&mut self.done, true) {
            return Ok(None);
        }
        let mut writer = self.open()?;
        while let Some(document) = self.run.input.next()? {
            self.run.env.check_interrupt()?;
            writer.write(document)?;
        }
        writer.finish()?;
        Ok(None)
    }

    fn park(&mut self) {
        self.run.input.park();
    }
}
