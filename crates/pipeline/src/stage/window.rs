//! `$setWindowFields`: fields computed over windows of neighbouring documents.
//!
//! Documents are sorted by partition and `sortBy` (spilling as any sort). A partition is then
//! held as a whole, in memory as far as it may be and behind that on disk; each function slides
//! its window over it once.
//!
//! Always true: a window's two ends only move forward, so a partition of n documents costs n
//! additions and at most n removals per function.

mod bounds;
mod functions;
mod parse;
mod partition;

pub use parse::names;
pub(crate) use parse::{missing, parse, unknown, window_stage, wrong_type};

use crate::env::Env;
use crate::source::DocumentSource;
use crate::stage::group::key_bytes;
use crate::stage::sort::{Sort, SortSource};
use crate::stage::{Output, Part, StageInput, StageSpec, check_document_size};
use crate::transform::Transform;
use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf, cstr};
use bsonval::{Path, SortPattern};
use errors::{Error, Result};
use expr::agg::{Expression, VarId, Variables};
use functions::{Function, Runner};
use keystring::Direction;
use partition::Partition;
use std::sync::Arc;

/// A parsed `$setWindowFields`.
#[derive(Clone, Debug)]
pub struct SetWindowFields {
    /// The argument as the client wrote it, for explain.
    pub source: RawBson,
    partition_by: Option<Expression>,
    sort_by: Option<SortPattern>,
    /// The function of each output, and the variable its value is put into.
    outputs: Vec<(VarId, Function)>,
    /// Puts the variables' values where the outputs belong.
    place: Transform,
}

impl SetWindowFields {
    /// The one expression documents are sorted by, where it is one.
    fn sort_key(&self) -> Result<Option<Expression>> {
        match self.sort_by.as_ref().map(SortPattern::paths) {
            Some([only]) => Expression::field(only.as_str()).map(Some),
            _ => Ok(None),
        }
    }
}

impl StageSpec for SetWindowFields {
    fn name(&self) -> &'static str {
        "$setWindowFields"
    }

    fn argument(&self) -> RawBson {
        self.source.clone()
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let sorted_by = self.sort_by.iter().flat_map(SortPattern::paths);
        let outputs = self.outputs.iter().flat_map(|(_, function)| {
            let sorted_by = function.sort_paths().into_iter().map(Part::Field);
            function.expressions().into_iter().map(Part::Expression).chain(sorted_by)
        });
        let partition_by = self.partition_by.iter().map(Part::Expression);
        let sorted_by = sorted_by.map(|path| Part::Field(path.as_str().to_owned()));
        partition_by.chain(sorted_by).chain(outputs).collect()
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(WindowSource::new(run, self)?))
    }

    fn output(&self) -> Output {
        Output::Passing
    }
}

/// Wraps every document as `{k: {v: partition}, d: document}` so that both can be sorted by.
struct Keyed {
    run: StageInput,
    stage: Arc<SetWindowFields>,
}

impl DocumentSource for Keyed {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        let Some(document) = self.run.input.next()? else { return Ok(None) };
        let mut key = RawDocumentBuf::new();
        if let Some(partition) = &self.stage.partition_by {
            let value = partition.evaluate(&document, &self.run.variables)?;
            if value.as_array().is_some() {
                return Err(Error::type_mismatch(
                    "An expression used to partition cannot evaluate to value of type array",
                ));
            }
            key.append(cstr!("v"), value.get().unwrap_or(RawBsonRef::Null));
        }
        let mut wrapped = RawDocumentBuf::new();
        wrapped.append(cstr!("k"), key);
        wrapped.append(cstr!("d"), &*document);
        Ok(Some(wrapped))
    }

    fn park(&mut self) {
        self.run.input.park();
    }
}

pub(crate) struct WindowSource {
    stage: Arc<SetWindowFields>,
    env: Arc<dyn Env>,
    variables: Arc<Variables>,
    /// Holds the outputs' values while a document is put together.
    values: Variables,
    input: Box<dyn DocumentSource>,
    sort_key: Option<Expression>,
    partition: Partition,
    runners: Vec<Runner>,
    /// The document of the partition that goes out next.
    at: usize,
    /// The first document of the next partition.
    head: Option<(Vec<u8>, RawDocumentBuf)>,
    done: bool,
}

impl WindowSource {
    pub(crate) fn new(run: StageInput, stage: Arc<SetWindowFields>) -> Result<Self> {
        let (env, variables) = (Arc::clone(&run.env), Arc::clone(&run.variables));
        let again =
            |input| StageInput { input, env: Arc::clone(&env), variables: Arc::clone(&variables) };
        let sorted =
            |input: Box<dyn DocumentSource>, pattern: SortPattern| -> Box<dyn DocumentSource> {
                let sort = Arc::new(Sort { pattern, limit: None });
                Box::new(SortSource::new(again(input), sort))
            };
        let input: Box<dyn DocumentSource> = match (&stage.partition_by, &stage.sort_by) {
            (None, None) => run.input,
            (None, Some(pattern)) => sorted(run.input, pattern.clone()),
            (Some(_), pattern) => {
                let inner = pattern.iter().flat_map(SortPattern::parts);
                let inner =
                    inner.map(|(path, direction)| (Path::new(&format!("d.{path}")), direction));
                let first = (Path::new("k"), Direction::Ascending);
                let pattern = SortPattern::new(std::iter::once(first).chain(inner));
                sorted(Box::new(Keyed { run, stage: Arc::clone(&stage) }), pattern)
            }
        };
        Ok(Self {
            values: (*variables).clone(),
            sort_key: stage.sort_key()?,
            partition: Partition::new(env.options()),
            runners: Vec::new(),
            at: 0,
            head: None,
            done: false,
            stage,
            env,
            variables,
            input,
        })
    }

    /// The next document with the bytes of its partition.
    fn row(&mut self) -> Result<Option<(Vec<u8>, RawDocumentBuf)>> {
        if let Some(head) = self.head.take() {
            return Ok(Some(head));
        }
        let Some(document) = self.input.next()? else { return Ok(None) };
        if self.stage.partition_by.is_none() {
            return Ok(Some((Vec::new(), document)));
        }
        let key = document.get("k")?.unwrap_or(RawBsonRef::Null);
        let key = key_bytes(key, self.variables.collation(), Vec::new())?;
        let inner = document.get("d")?.and_then(RawBsonRef::as_document);
        Ok(inner.map(|inner| (key, inner.to_owned())))
    }

    /// Takes in the next partition; false at the end.
    fn load(&mut self) -> Result<bool> {
        self.partition = Partition::new(self.env.options());
        self.at = 0;
        let Some((key, first)) = self.row()? else { return Ok(false) };
        self.partition.push(first, &*self.env)?;
        while let Some((other, document)) = self.row()? {
            if other != key {
                self.head = Some((other, document));
                break;
            }
            if self.partition.len().is_multiple_of(128) {
                self.env.check_interrupt()?;
            }
            self.partition.push(document, &*self.env)?;
        }
        self.partition.seal()?;
        let functions = self.stage.outputs.iter();
        self.runners = functions
            .map(|(_, function)| Runner::start(function, &self.variables))
            .collect::<Result<_>>()?;
        Ok(true)
    }

    fn compute(&mut self) -> Result<RawDocumentBuf> {
        let stage = Arc::clone(&self.stage);
        let (mut held, mut more) = (0, 0);
        for (id, _) in &stage.outputs {
            self.values.set(*id, None);
        }
        for ((id, function), runner) in stage.outputs.iter().zip(&mut self.runners) {
            let mut scene = functions::Scene {
                partition: &mut self.partition,
                variables: &self.variables,
                sort_key: self.sort_key.as_ref(),
                sort_by: stage.sort_by.as_ref(),
            };
            let value = runner.value(function, self.at, &mut scene)?;
            more += 16 + value.as_ref().map_or(0, length);
            self.values.set(*id, value);
            held += runner.bytes();
        }
        let limit = self.env.options().memory_limit_bytes;
        if held > limit {
            return Err(Error::location(
                5414201,
                format!(
                    "Exceeded memory limit in DocumentSourceSetWindowFields, used {held} bytes \
                     but max allowed is {limit}"
                ),
            ));
        }
        let document = self.partition.get(self.at)?;
        let out = stage.place.apply_with_room(&document, &self.values, more)?;
        check_document_size(out.as_bytes().len())?;
        Ok(out)
    }
}

/// Bytes of a value that may be long.
fn length(value: &RawBson) -> usize {
    match value {
        RawBson::Array(array) => array.as_bytes().len(),
        RawBson::Document(document) => document.as_bytes().len(),
        RawBson::String(text) => text.len(),
        _ => 0,
    }
}

impl DocumentSource for WindowSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        if self.done {
            return Ok(None);
        }
        if self.at >= self.partition.len() && !self.load()? {
            self.done = true;
            return Ok(None);
        }
        if self.at.is_multiple_of(128) {
            self.env.check_interrupt()?;
        }
        let out = self.compute()?;
        self.at += 1;
        Ok(Some(out))
    }

    fn park(&mut self) {
        self.input.park();
    }
}
