//! `$graphLookup`: documents reachable over a field, breadth first.
//!
//! Each depth asks once for all documents whose `connectToField` is in the frontier; a document is
//! visited once, so cycles end.

use crate::Pipeline;
use crate::env::{CollectionName, LookupHint};
use crate::memory::StageMemory;
use crate::parse::PipelineContext;
use crate::source::DocumentSource;
use crate::stage::group::key_bytes;
use crate::stage::lookup::{foreign_keys, local_values};
use crate::stage::unwind::set_path;
use crate::stage::{
    Output, Part, PipelineStage, StageInput, StageSpec, all_apart, check_document_size, object,
};
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::Path;
use bsonval::number::Number;
use errors::{Code, Error, Result};
use expr::agg::{Expression, parse_fields, split_path};
use limits::{KeyMap, KeySet};
use matcher::{Filter, InSet, Leaf, Node, Predicate};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A parsed `$graphLookup`.
#[derive(Clone, Debug)]
pub struct GraphLookup {
    /// The argument as the client wrote it, for explain.
    pub source: RawBson,
    /// The collection searched.
    pub from: CollectionName,
    /// Where the result goes.
    pub as_path: Vec<String>,
    /// The first values to look for.
    pub start_with: Expression,
    connect_from: String,
    connect_to: String,
    max_depth: Option<u64>,
    depth_field: Option<Vec<String>>,
    restrict: Option<Filter>,
}

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    let spec = object(value, |kind| {
        Error::failed_to_parse(format!(
            "the $graphLookup stage specification must be an object, but found {kind}"
        ))
    })?;
    let [from, as_name, start, connect_from, connect_to, max_depth, depth_field, restrict] =
        parse_fields(
            spec,
            [
                "from",
                "as",
                "startWith",
                "connectFromField",
                "connectToField",
                "maxDepth",
                "depthField",
                "restrictSearchWithMatch",
            ],
            |name| Error::location(40104, format!("Unknown argument to $graphLookup: {name}")),
        )?;
    let text = |value: Option<RawBsonRef<'_>>, name: &str| match value {
        None => Ok(None),
        Some(RawBsonRef::String(text)) => Ok(Some(text.to_owned())),
        Some(other) => Err(Error::location(
            40103,
            format!(
                "expected string as argument for {name}, found: {}",
                bsonval::types::name_of(other)
            ),
        )),
    };
    let required = || {
        Error::location(
            40105,
            "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and \
             'connectToField' to be specified.",
        )
    };
    let from = text(from, "from")?.ok_or_else(required)?;
    let as_name = text(as_name, "as")?.ok_or_else(required)?;
    let connect_from = text(connect_from, "connectFromField")?.ok_or_else(required)?;
    let connect_to = text(connect_to, "connectToField")?.ok_or_else(required)?;
    split_path(&connect_from)?;
    split_path(&connect_to)?;
    let start = Expression::parse(start.ok_or_else(required)?, &ctx.parse.names)?.optimize();
    let restrict = match restrict {
        None => None,
        Some(RawBsonRef::Document(filter)) => Some(Filter::parse(filter, &ctx.parse)?),
        Some(other) => {
            return Err(Error::location(
                40185,
                format!(
                    "restrictSearchWithMatch must be an object, found {}",
                    bsonval::types::name_of(other)
                ),
            ));
        }
    };
    Ok(PipelineStage::other(GraphLookup {
        source: value.into(),
        from: CollectionName::new(&ctx.database, from),
        as_path: split_path(&as_name)?,
        start_with: start,
        connect_from,
        connect_to,
        max_depth: max_depth.map(read_depth).transpose()?,
        depth_field: text(depth_field, "depthField")?.map(|name| split_path(&name)).transpose()?,
        restrict,
    }))
}

impl StageSpec for GraphLookup {
    fn name(&self) -> &'static str {
        "$graphLookup"
    }

    fn argument(&self) -> RawBson {
        self.source.clone()
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let restriction = self.restrict.iter().map(Part::OtherFilter);
        let parts = [Part::Expression(&self.start_with), Part::Collection(&self.from)];
        parts.into_iter().chain(restriction).collect()
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(GraphLookupSource::new(run, self)))
    }

    fn output(&self) -> Output {
        Output::Passing
    }

    fn is_one_to_one(&self) -> bool {
        true
    }

    fn lets_match_pass(&self, paths: &BTreeSet<String>) -> bool {
        all_apart(paths, &self.as_path.join("."))
    }
}

fn read_depth(value: RawBsonRef<'_>) -> Result<u64> {
    let number = Number::from_bson(value).ok_or_else(|| {
        Error::location(
            40100,
            format!(
                "maxDepth requires a numeric argument, found: {}",
                bsonval::types::name_of(value)
            ),
        )
    })?;
    let whole = number.to_exact_i64().ok_or_else(|| {
        Error::location(
            40102,
            format!(
                "maxDepth could not be represented as a long long: {}",
                expr::agg::value_to_string(value)
            ),
        )
    })?;
    u64::try_from(whole).map_err(|_| {
        Error::location(40101, format!("maxDepth requires a nonnegative argument, found: {whole}"))
    })
}

pub(crate) struct GraphLookupSource {
    run: StageInput,
    lookup: Arc<GraphLookup>,
    /// The collection in memory, where it fits and no index answers; read at first need.
    nodes: Searched,
}

/// How neighbours are found.
enum Searched {
    Undecided,
    Memory(Box<Nodes>),
    /// Ask per depth.
    Collection,
}

/// The searched collection by the values of `connectToField`.
struct Nodes {
    documents: Vec<RawDocumentBuf>,
    places: KeyMap<Vec<u8>, Vec<usize>>,
    held: StageMemory,
}

impl GraphLookupSource {
    pub(crate) fn new(run: StageInput, lookup: Arc<GraphLookup>) -> Self {
        Self { run, lookup, nodes: Searched::Undecided }
    }

    fn load(&self) -> Result<Option<Nodes>> {
        let StageInput { env, variables, .. } = &self.run;
        let lookup = &*self.lookup;
        if env.lookup_hint(&lookup.from, &lookup.connect_to, variables.collation())
            == LookupHint::Index
        {
            return Ok(None);
        }
        let held = StageMemory::within(env.options().memory_limit_bytes);
        let path = [Path::new(&lookup.connect_to)];
        let pipeline = Pipeline::from_stages(self.restriction());
        let mut source = env.aggregate(&lookup.from, &pipeline, variables)?;
        let mut nodes = Nodes { documents: Vec::new(), places: KeyMap::default(), held };
        let mut bytes = 0;
        while let Some(document) = source.next()? {
            env.check_interrupt()?;
            let Some(keys) = foreign_keys(&document, &path, variables.collation())? else {
                return Ok(None);
            };
            bytes += document.as_bytes().len() + 64;
            for key in keys {
                bytes += key.len() + 64;
                nodes.places.entry(key).or_default().push(nodes.documents.len());
            }
            if !nodes.held.fits(bytes, 0).unwrap_or(false) {
                return Ok(None);
            }
            nodes.documents.push(document);
        }
        Ok(Some(nodes))
    }

    fn restriction(&self) -> Vec<PipelineStage> {
        self.lookup
            .restrict
            .iter()
            .map(|filter| PipelineStage::Match(Arc::new(filter.clone())))
            .collect()
    }

    /// All documents whose `connectToField` is one of these.
    fn neighbours(
        &mut self,
        frontier: Vec<RawBson>,
        held: &mut StageMemory,
    ) -> Result<Vec<RawDocumentBuf>> {
        if matches!(self.nodes, Searched::Undecided) {
            self.nodes = self
                .load()?
                .map_or(Searched::Collection, |nodes| Searched::Memory(Box::new(nodes)));
        }
        if let Searched::Memory(nodes) = &self.nodes {
            let mut found = Vec::new();
            for value in frontier {
                let under = self.run.variables.collation();
                let key = key_bytes(value.as_raw_bson_ref(), under, Vec::new())?;
                found.extend(nodes.places.get(&key).into_iter().flatten().copied());
            }
            found.sort_unstable();
            found.dedup();
            let documents = found.into_iter().map(|at| &nodes.documents[at]);
            let bytes = documents.clone().map(|document| document.as_bytes().len() + 64).sum();
            held.must_fit(bytes)?;
            return Ok(documents.cloned().collect());
        }
        let predicate =
            Predicate::In(InSet::new(frontier, Vec::new(), self.run.variables.collation())?);
        let leaf = Leaf { path: Path::new(&self.lookup.connect_to), predicate };
        let filter = Filter::new(Node::Leaf(leaf), Arc::clone(&self.run.variables));
        let mut stages = vec![PipelineStage::Match(Arc::new(filter))];
        stages.extend(self.restriction());
        let pipeline = Pipeline::from_stages(stages);
        let StageInput { env, variables, .. } = &self.run;
        let mut source = env.aggregate(&self.lookup.from, &pipeline, variables)?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        while let Some(document) = source.next()? {
            limits::poll()?;
            bytes += document.as_bytes().len() + 64;
            held.must_fit(bytes)?;
            found.push(document);
        }
        Ok(found)
    }

    fn search(&mut self, document: &RawDocument) -> Result<RawArrayBuf> {
        let lookup = Arc::clone(&self.lookup);
        let limit = self.run.env.options().memory_limit_bytes;
        let start = lookup.start_with.evaluate(document, &self.run.variables)?;
        let mut frontier = match start.into_owned() {
            Some(RawBson::Array(list)) => (&*list)
                .into_iter()
                .map(|value| Ok(RawBson::from(value?)))
                .collect::<Result<Vec<_>>>()?,
            Some(value) => vec![value],
            None => vec![RawBson::Null],
        };
        let mut asked: KeySet<Vec<u8>> = KeySet::default();
        let mut visited: KeySet<Vec<u8>> = KeySet::default();
        let mut result = RawArrayBuf::new();
        let mut held = StageMemory::within(limit);
        let mut bytes = 0;
        for depth in 0_u64.. {
            self.run.env.check_interrupt()?;
            // A value asked for once brings nothing new a second time.
            let mut fresh = Vec::new();
            for value in frontier {
                let under = self.run.variables.collation();
                let key = key_bytes(value.as_raw_bson_ref(), under, Vec::new())?;
                bytes += key.len() + 64;
                held.must_fit(bytes)?;
                if asked.insert(key) {
                    fresh.push(value);
                }
            }
            if fresh.is_empty() || lookup.max_depth.is_some_and(|max| depth > max) {
                break;
            }
            frontier = Vec::new();
            let mut passing = StageMemory::within(limit);
            for found in self.neighbours(fresh, &mut passing)? {
                let id = found.get("_id")?.unwrap_or(RawBsonRef::Null);
                let id = key_bytes(id, None, Vec::new())?;
                bytes += id.len() + found.as_bytes().len() + 64;
                if !visited.insert(id) {
                    continue;
                }
                if !held.fits(bytes, 0)? {
                    return Err(Error::new(
                        Code::EXCEEDED_MEMORY_LIMIT,
                        "$graphLookup reached maximum memory consumption".to_owned(),
                    ));
                }
                frontier.extend(local_values(&found, &lookup.connect_from)?);
                match &lookup.depth_field {
                    Some(path) => {
                        let depth = RawBsonRef::Int64(depth as i64);
                        result.push(&*set_path(&found, path, Some(depth))?);
                    }
                    None => result.push(&*found),
                }
                check_document_size(result.as_bytes().len())?;
            }
        }
        Ok(result)
    }
}

impl DocumentSource for GraphLookupSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        let Some(document) = self.run.input.next()? else { return Ok(None) };
        let found = self.search(&document)?;
        set_path(&document, &self.lookup.as_path, Some(RawBsonRef::Array(&found))).map(Some)
    }

    fn park(&mut self) {
        self.run.input.park();
    }
}
