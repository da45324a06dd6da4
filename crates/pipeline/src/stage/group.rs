//! `$group`: a hash table of groups; past the memory limit the partial states are spilled as runs
//! sorted by key and merged at the end.
//!
//! In memory, groups come out in the order they were first seen; spilled, in key order. MongoDB
//! promises neither.

use crate::memory::StageMemory;
use crate::parse::PipelineContext;
use crate::source::DocumentSource;
use crate::spill::{Merged, Record, Runs, document_from};
use crate::stage::{
    Output, Part, PipelineStage, StageInput, StageSpec, check_document_size, object,
};
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::raw::Writer;
use errors::{Code, Error, Result};
use expr::accumulator::{Accumulator, AccumulatorSpec};
use expr::agg::{Expression, Variables};
use keystring::{Collation, Direction, KeyBuilder};
use limits::{KeyMap, LARGE_BYTES};
use std::sync::Arc;

/// A parsed group.
#[derive(Clone, Debug)]
pub struct Group {
    /// The key.
    pub id: Expression,
    /// The fields and what they gather.
    pub fields: Vec<(String, AccumulatorSpec)>,
    /// The argument, for explain.
    pub spec: RawBson,
}

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    let spec = object(value, |_| {
        Error::location(15947, "a group's fields must be specified in an object")
    })?;
    let (mut id, mut fields) = (None, Vec::new());
    for element in spec.iter_elements() {
        let element = element?;
        let (name, value) = (element.key().as_str(), element.value()?);
        if name == "_id" {
            if id.is_some() {
                return Err(Error::location(15948, "a group's _id may only be specified once"));
            }
            id = Some(Expression::parse(value, &ctx.parse.names)?.optimize());
        } else if name == "$doingMerge" {
            return Err(Error::location(17030, "$doingMerge should be true if present"));
        } else {
            fields.push(parse_field(name, value, ctx)?);
        }
    }
    let id =
        id.ok_or_else(|| Error::location(15955, "a group specification must include an _id"))?;
    Ok(PipelineStage::other(Group { id, fields, spec: value.into() }))
}

impl StageSpec for Group {
    fn name(&self) -> &'static str {
        "$group"
    }

    fn argument(&self) -> RawBson {
        self.spec.clone()
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let fields = self.fields.iter().flat_map(|(_, spec)| {
            let sorted_by = spec.sort_paths().into_iter().map(Part::Field);
            [Part::Expression(spec.input())].into_iter().chain(sorted_by)
        });
        [Part::Expression(&self.id)].into_iter().chain(fields).collect()
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(GroupSource::new(run, self)))
    }

    fn output(&self) -> Output {
        Output::Gathered
    }
}

/// One `name: {$accumulator: …}`.
pub(crate) fn parse_field(
    name: &str,
    value: RawBsonRef<'_>,
    ctx: &PipelineContext,
) -> Result<(String, AccumulatorSpec)> {
    if name.starts_with('$') {
        return Err(Error::location(
            40236,
            format!("The field name '{name}' cannot be an operator name"),
        ));
    }
    if name.contains('.') {
        return Err(Error::location(40235, format!("The field name '{name}' cannot contain '.'")));
    }
    let spec = object(value, |_| {
        Error::location(40234, format!("The field '{name}' must be an accumulator object"))
    })?;
    let mut elements = spec.iter_elements();
    match (elements.next().transpose()?, elements.next()) {
        (Some(only), None) => {
            let spec =
                AccumulatorSpec::parse(only.key().as_str(), only.value()?, &ctx.parse.names)?;
            Ok((name.to_owned(), spec))
        }
        (None, _) => {
            Err(Error::location(40234, format!("The field '{name}' must be an accumulator object")))
        }
        (Some(_), Some(_)) => {
            Err(Error::location(40238, format!("The field '{name}' must specify one accumulator")))
        }
    }
}

/// The bytes that tell groups apart: values equal in a collation, equal bytes.
pub(crate) fn key_bytes(
    value: RawBsonRef<'_>,
    under: Option<&Collation>,
    buffer: Vec<u8>,
) -> Result<Vec<u8>> {
    let mut key = KeyBuilder::reusing(buffer);
    key.append_under(value, Direction::Ascending, under)
        .map_err(|error| Error::new(Code::BAD_VALUE, error.to_string()))?;
    Ok(key.into_bytes())
}

struct Entry {
    id: RawBson,
    states: Vec<Accumulator>,
}

impl Group {
    fn start(&self, id: RawBsonRef<'_>, variables: &Variables) -> Result<Vec<Accumulator>> {
        self.fields.iter().map(|(_, spec)| spec.start(id, variables)).collect()
    }

    fn finish(&self, id: RawBsonRef<'_>, states: Vec<Accumulator>) -> Result<RawDocumentBuf> {
        let mut out = Writer::with_capacity(written_bytes(&states));
        let open = out.begin();
        out.value("_id", id);
        for ((name, _), state) in self.fields.iter().zip(states) {
            let value = state.finish()?;
            check_document_size(out.len().saturating_add(bsonval::raw::size_of(&value)))?;
            out.value(name, value.as_raw_bson_ref());
        }
        out.end(open);
        check_document_size(out.len())?;
        out.finish()
    }

    /// `{"": id, "": partial, …}`: how a group is spilled.
    fn partial(entry: &Entry) -> Result<RawDocumentBuf> {
        let mut out = Writer::with_capacity(written_bytes(&entry.states));
        let open = out.begin();
        out.value("", entry.id.as_raw_bson_ref());
        for state in &entry.states {
            state.write_partial(&mut out);
        }
        out.end(open);
        out.finish()
    }

    fn merge(&self, states: &mut [Accumulator], partial: &RawDocument) -> Result<()> {
        let mut parts = partial.iter_elements().skip(1);
        for ((_, spec), state) in self.fields.iter().zip(states) {
            let part = parts.next().ok_or_else(|| {
                Error::new(Code::INTERNAL_ERROR, "a spilled group lacks a field")
            })??;
            spec.merge(state, part.value()?)?;
        }
        Ok(())
    }
}

/// Room for the states of a group where they are written to: one that is large is not copied again and
/// again as what it is written to grows.
fn written_bytes(states: &[Accumulator]) -> usize {
    const BESIDE: usize = 512;
    let gathered: usize = states.iter().map(Accumulator::bytes).sum();
    if gathered < LARGE_BYTES { 0 } else { gathered.saturating_add(BESIDE) }
}

pub(crate) struct GroupSource {
    run: StageInput,
    group: Arc<Group>,
    state: State,
    held: StageMemory,
}

enum State {
    Waiting,
    Memory(std::vec::IntoIter<Entry>),
    Merging(Merged, Option<Record>),
    Done,
}

/// The groups being gathered.
struct Table {
    places: KeyMap<Vec<u8>, usize>,
    entries: Vec<Entry>,
    bytes: usize,
}

impl Table {
    fn new() -> Self {
        Self { places: KeyMap::default(), entries: Vec::new(), bytes: 0 }
    }
}

impl GroupSource {
    pub(crate) fn new(run: StageInput, group: Arc<Group>) -> Self {
        let held = StageMemory::within(run.env.options().memory_limit_bytes);
        Self { run, group, state: State::Waiting, held }
    }

    fn gather(&mut self) -> Result<State> {
        let options = self.run.env.options();
        let mut table = Table::new();
        let mut runs: Option<Runs> = None;
        let mut seen = 0_u64;
        let mut buffer = Vec::new();
        while let Some(document) = self.run.input.next()? {
            if seen.is_multiple_of(128) {
                self.run.env.check_interrupt()?;
            }
            seen += 1;
            buffer = self.add(&mut table, &document, buffer)?;
            // Twice: what is gathered is written once more, to its document or to disk.
            if !self.held.fits(table.bytes, table.bytes)? {
                if !options.allow_disk_use {
                    return Err(Error::new(
                        Code::QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED,
                        format!(
                            "Exceeded memory limit for $group, but didn't allow external spilling; \
                             pass allowDiskUse:true to opt in. Memory limit: {} bytes",
                            options.memory_limit_bytes
                        ),
                    ));
                }
                if runs.is_none() {
                    runs = Some(Runs::create(&*self.run.env)?);
                }
                if let Some(runs) = &mut runs {
                    spill(runs, &mut table)?;
                    self.held.release();
                }
            }
        }
        match runs {
            None => Ok(State::Memory(table.entries.into_iter())),
            Some(mut runs) => {
                spill(&mut runs, &mut table)?;
                self.held.release();
                let mut merged = runs.merge(&*self.run.env)?;
                self.held.must_fit(merged.next_len())?;
                let first = merged.next()?;
                Ok(State::Merging(merged, first))
            }
        }
    }

    /// Adds one document; gives the key buffer back.
    fn add(&self, table: &mut Table, document: &RawDocument, buffer: Vec<u8>) -> Result<Vec<u8>> {
        let variables = &*self.run.variables;
        let id = self.group.id.evaluate(document, variables)?;
        let id_ref = id.get().unwrap_or(RawBsonRef::Null);
        let key = key_bytes(id_ref, variables.collation(), buffer)?;
        let (at, buffer) = if let Some(at) = table.places.get(&key) {
            (*at, key)
        } else {
            let at = table.entries.len();
            let states = self.group.start(id_ref, variables)?;
            table.bytes += key.len() * 2 + 128 + states.len() * 96;
            table.entries.push(Entry { id: id_ref.into(), states });
            table.places.insert(key, at);
            (at, Vec::new())
        };
        let states = &mut table.entries[at].states;
        for ((_, spec), state) in self.group.fields.iter().zip(states) {
            let before = state.bytes();
            spec.add(state, document, variables)?;
            table.bytes = (table.bytes + state.bytes()).saturating_sub(before);
        }
        Ok(buffer)
    }

    /// The next group of the merged runs.
    fn merge_next(&mut self) -> Result<Option<RawDocumentBuf>> {
        let State::Merging(merged, head) = &mut self.state else { return Ok(None) };
        let Some((key, bytes)) = head.take() else { return Ok(None) };
        let first = document_from(bytes)?;
        let id = first
            .iter_elements()
            .next()
            .ok_or_else(|| Error::new(Code::INTERNAL_ERROR, "a spilled group lacks its key"))??;
        let id = id.value()?;
        let mut states = self.group.start(id, &self.run.variables)?;
        // What is merged, and twice what it becomes: it grows by being copied.
        self.held.release();
        let first_bytes = first.as_bytes().len();
        self.held.must_fit(3 * first_bytes)?;
        self.group.merge(&mut states, &first)?;
        loop {
            let gathered: usize = states.iter().map(Accumulator::bytes).sum();
            let next = merged.next_len();
            self.held.must_fit(first_bytes + 2 * gathered + 3 * next)?;
            match merged.next()? {
                Some((next_key, bytes)) if next_key == key => {
                    self.group.merge(&mut states, &document_from(bytes)?)?;
                }
                other => {
                    *head = other;
                    break;
                }
            }
        }
        self.group.finish(id, states).map(Some)
    }
}

fn spill(runs: &mut Runs, table: &mut Table) -> Result<()> {
    let Table { places, entries, .. } = std::mem::replace(table, Table::new());
    let order: Vec<(Vec<u8>, usize)> = places.into_iter().collect();
    let order = limits::sort_by_key_bytes(order, |(key, _)| key, Ord::cmp)?;
    runs.write(
        order.into_iter().map(|(key, at)| {
            Group::partial(&entries[at]).map(|document| (key, document.into_bytes()))
        }),
    )
}

impl DocumentSource for GroupSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        if matches!(self.state, State::Waiting) {
            self.state = self.gather()?;
        }
        let document = match &mut self.state {
            State::Memory(entries) => match entries.next() {
                Some(entry) => Some(self.group.finish(entry.id.as_raw_bson_ref(), entry.states)?),
                None => None,
            },
            State::Merging(..) => self.merge_next()?,
            State::Waiting | State::Done => None,
        };
        if document.is_none() {
            self.state = State::Done;
            self.held.release();
        }
        Ok(document)
    }

    fn park(&mut self) {
        self.run.input.park();
    }
}
