//! `$lookup`: matching documents of another collection, as an array.
//!
//! Three ways to find the matches, fastest first:
//! - a pipeline that depends on nothing of the outer document runs once and is remembered;
//! - an equality (`localField`/`foreignField`, or a leading `$expr: {$eq: [foreign, $$variable]}`)
//!   is answered by an index, one question per document, or, without an index, by a hash table
//!   over the foreign collection, read once;
//! - anything else, or a foreign collection too large to remember, runs per document.

mod ahead;
mod table;

use crate::Pipeline;
use crate::env::{CollectionName, LookupHint};
use crate::memory::StageMemory;
use crate::parse::{Inside, PipelineContext};
use crate::source::{DocumentSource, EmptySource, SharedSource};
use crate::stage::unwind::{Unwind, set_path};
use crate::stage::{
    Output, Part, PipelineStage, StageInput, StageSpec, all_apart, check_document_size,
};
use ahead::OuterDocuments;
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bsonval::{Path, raw};
use errors::{Error, Result};
use expr::agg::{Expression, VarId, Variables, parse_fields, split_path};
use matcher::{Filter, InSet, Leaf, Node, Predicate};
use std::collections::BTreeSet;
use std::sync::Arc;
use table::Table;
pub(crate) use table::foreign_keys;

/// A parsed lookup.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// The argument as the client wrote it, for explain.
    pub source: RawBson,
    /// The other collection; none where the pipeline makes its own documents.
    pub from: Option<CollectionName>,
    /// Where the matches go.
    pub as_path: Vec<String>,
    /// The equality form: local path and foreign path.
    pub equality: Option<(String, String)>,
    /// Variables of the pipeline, from the outer document.
    pub lets: Vec<(VarId, Expression)>,
    /// What runs over the foreign documents.
    pub pipeline: Pipeline,
    /// The `$unwind` of the result that followed: matches come out one by one.
    pub unwind: Option<Arc<Unwind>>,
    /// `$expr: {$eq: [foreign side, outer side]}` that leads the pipeline.
    correlation: Option<(Expression, Expression)>,
    uncorrelated: bool,
}

impl Lookup {
    /// The argument, with the `$unwind` it has taken over.
    pub(crate) fn to_bson(&self) -> RawBson {
        let (Some(unwind), RawBson::Document(source)) = (&self.unwind, &self.source) else {
            return self.source.clone();
        };
        let mut shown = source.clone();
        shown.append(cstr!("unwinding"), unwind.to_document());
        RawBson::Document(shown)
    }
}

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    let RawBsonRef::Document(spec) = value else {
        return Err(Error::failed_to_parse(format!(
            "the $lookup stage specification must be an object, but found {}",
            bsonval::types::name_of(value)
        )));
    };
    let [from, as_name, local, foreign, lets, stages] = parse_fields(
        spec,
        ["from", "as", "localField", "foreignField", "let", "pipeline"],
        |name| Error::failed_to_parse(format!("unknown argument to $lookup: {name}")),
    )?;
    let from = from.map(|from| read_from(from, ctx)).transpose()?;
    let as_name = read_string(as_name, "as")?
        .ok_or_else(|| Error::failed_to_parse("must specify 'as' field for a $lookup"))?;
    let local = read_string(local, "localField")?;
    let foreign = read_string(foreign, "foreignField")?;
    let equality = match (local, foreign) {
        (Some(local), Some(foreign)) => {
            split_path(&local)?;
            split_path(&foreign)?;
            Some((local, foreign))
        }
        (None, None) => None,
        _ => {
            return Err(Error::failed_to_parse(
                "$lookup requires both or neither of 'localField' and 'foreignField' to be \
                 specified",
            ));
        }
    };
    if equality.is_none() && stages.is_none() {
        return Err(Error::failed_to_parse(
            "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be \
             specified",
        ));
    }
    if lets.is_some() && stages.is_none() {
        return Err(Error::failed_to_parse(
            "$lookup with a 'let' argument must also specify 'pipeline'",
        ));
    }
    let mut inner = ctx.nested(Inside::Lookup, from.as_ref().map(|ns| ns.collection.clone()))?;
    let lets = read_lets(lets, ctx, &mut inner)?;
    let pipeline = match stages {
        None => Pipeline::default(),
        Some(RawBsonRef::Array(stages)) => Pipeline::parse(stages, &inner)?.optimize(),
        Some(other) => {
            return Err(Error::type_mismatch(format!(
                "'pipeline' option must be specified as an array, found {}",
                bsonval::types::name_of(other)
            )));
        }
    };
    if from.is_none() && !pipeline.has_own_source() {
        return Err(Error::failed_to_parse(
            "must specify 'pipeline' when 'from' is empty, with $documents as its first stage",
        ));
    }
    let ids: Vec<VarId> = lets.iter().map(|(id, _)| *id).collect();
    Ok(PipelineStage::Lookup(Arc::new(Lookup {
        source: value.into(),
        correlation: find_correlation(&pipeline, &ids),
        uncorrelated: equality.is_none()
            && crate::optimize::is_independent_of(pipeline.stages(), &ids),
        from,
        as_path: split_path(&as_name)?,
        equality,
        lets,
        pipeline,
        unwind: None,
    })))
}

impl StageSpec for Lookup {
    fn name(&self) -> &'static str {
        "$lookup"
    }

    fn argument(&self) -> RawBson {
        self.to_bson()
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let lets = self.lets.iter().map(|(_, expression)| Part::Expression(expression));
        let local = self.equality.iter().map(|(local, _)| Part::Field(local.clone()));
        let from = self.from.iter().map(Part::Collection);
        lets.chain(local).chain(from).chain([Part::OtherPipeline(&self.pipeline)]).collect()
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(LookupSource::new(run, self)))
    }

    fn output(&self) -> Output {
        Output::Passing
    }

    fn is_one_to_one(&self) -> bool {
        self.unwind.is_none()
    }

    fn lets_match_pass(&self, paths: &BTreeSet<String>) -> bool {
        let index = self.unwind.as_ref().and_then(|unwind| unwind.index.as_ref());
        all_apart(paths, &self.as_path.join("."))
            && index.is_none_or(|index| all_apart(paths, &index.join(".")))
    }
}

fn read_string(value: Option<RawBsonRef<'_>>, name: &str) -> Result<Option<String>> {
    match value {
        None => Ok(None),
        Some(RawBsonRef::String(text)) => Ok(Some(text.to_owned())),
        Some(other) => Err(Error::failed_to_parse(format!(
            "$lookup argument '{name}' must be a string, found {name}: {} of type {}",
            expr::agg::value_to_string(other),
            bsonval::types::name_of(other)
        ))),
    }
}

fn read_from(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<CollectionName> {
    match value {
        RawBsonRef::String(name) if !name.is_empty() => {
            Ok(CollectionName::new(&ctx.database, name))
        }
        RawBsonRef::String(_) => Err(Error::new(
            errors::Code::INVALID_NAMESPACE,
            format!("Invalid namespace specified '{}.'", ctx.database),
        )),
        other => Err(Error::failed_to_parse(format!(
            "$lookup argument 'from' must be a string, but found {}",
            bsonval::types::name_of(other)
        ))),
    }
}

fn read_lets(
    value: Option<RawBsonRef<'_>>,
    outer: &PipelineContext,
    inner: &mut PipelineContext,
) -> Result<Vec<(VarId, Expression)>> {
    let mut lets = Vec::new();
    let document = match value {
        None => return Ok(lets),
        Some(RawBsonRef::Document(document)) => document,
        Some(other) => {
            return Err(Error::failed_to_parse(format!(
                "$lookup argument 'let' must be an object, but found {}",
                bsonval::types::name_of(other)
            )));
        }
    };
    for element in document.iter_elements() {
        let element = element?;
        let expression = Expression::parse(element.value()?, &outer.parse.names)?.optimize();
        lets.push((inner.parse.names.define(element.key().as_str())?, expression));
    }
    Ok(lets)
}

/// Finds a leading equality between something of the foreign document and something of the outer.
fn find_correlation(pipeline: &Pipeline, lets: &[VarId]) -> Option<(Expression, Expression)> {
    let Some(PipelineStage::Match(filter)) = pipeline.stages().first() else { return None };
    let parts = match filter.root() {
        Node::And(parts) => parts.as_slice(),
        node => std::slice::from_ref(node),
    };
    let mut conjuncts = Vec::new();
    for part in parts {
        if let Node::Expr(node) = part {
            match node.expression.as_and() {
                Some(inner) => conjuncts.extend(inner),
                None => conjuncts.push(node.expression.clone()),
            }
        }
    }
    conjuncts.iter().find_map(|conjunct| {
        let ("$eq", left, right) = conjunct.as_comparison()? else { return None };
        let of_foreign = |side: &Expression| {
            let found = side.dependencies();
            !found.random && !found.is_document_free() && found.variables.is_empty()
        };
        let of_outer = |side: &Expression| {
            let found = side.dependencies();
            !found.random
                && found.is_document_free()
                && found.variables.iter().any(|id| lets.contains(id))
        };
        if of_foreign(&left) && of_outer(&right) {
            Some((left, right))
        } else if of_foreign(&right) && of_outer(&left) {
            Some((right, left))
        } else {
            None
        }
    })
}

pub(crate) struct LookupSource {
    run: StageInput,
    lookup: Arc<Lookup>,
    strategy: Strategy,
    outer: OuterDocuments,
    /// The outer document whose matches are being unwound, the matches and the next index.
    open: Option<(RawDocumentBuf, Box<dyn DocumentSource>, i64)>,
}

enum Strategy {
    Undecided,
    /// The whole result, the same for every document.
    Cached {
        documents: Arc<[RawDocumentBuf]>,
        _held: StageMemory,
    },
    Table(Arc<Table>),
    /// Ask per document.
    PerDocument,
}

impl LookupSource {
    pub(crate) fn new(run: StageInput, lookup: Arc<Lookup>) -> Self {
        Self {
            run,
            lookup,
            strategy: Strategy::Undecided,
            outer: OuterDocuments::default(),
            open: None,
        }
    }

    fn decide(&mut self) -> Result<()> {
        let StageInput { env, variables, .. } = &self.run;
        let lookup = &*self.lookup;
        self.strategy = Strategy::PerDocument;
        if lookup.uncorrelated {
            let mut source = self.open_pipeline(&lookup.pipeline, variables)?;
            // Without room for it the pipeline runs for each document.
            let mut held = StageMemory::within(env.options().memory_limit_bytes);
            let (mut documents, mut bytes) = (Vec::new(), 0);
            while let Some(document) = source.next()? {
                bytes += document.as_bytes().len() + 64;
                if !held.fits(bytes, 0).unwrap_or(false) {
                    return Ok(());
                }
                documents.push(document);
            }
            self.strategy = Strategy::Cached { documents: documents.into(), _held: held };
            return Ok(());
        }
        let Some(from) = &lookup.from else { return Ok(()) };
        let hint = match (&lookup.equality, &lookup.correlation) {
            (Some((_, foreign)), _) => env.lookup_hint(from, foreign, variables.collation()),
            (None, Some((foreign, _))) => match foreign.as_field_path() {
                Some(path) => env.lookup_hint(from, &path, variables.collation()),
                None => LookupHint::Hash,
            },
            (None, None) => LookupHint::Index,
        };
        if hint == LookupHint::Hash
            && let Some(table) = Table::build(lookup, from, env, variables)?
        {
            self.strategy = Strategy::Table(Arc::new(table));
        }
        Ok(())
    }

    fn next_outer(&mut self) -> Result<Option<RawDocumentBuf>> {
        let asks_for_each = matches!(self.strategy, Strategy::PerDocument);
        self.outer.next(&mut self.run, &self.lookup, asks_for_each)
    }

    fn open_pipeline(
        &self,
        pipeline: &Pipeline,
        variables: &Arc<Variables>,
    ) -> Result<Box<dyn DocumentSource>> {
        match &self.lookup.from {
            Some(from) => self.run.env.aggregate(from, pipeline, variables),
            None => pipeline.execute(Box::new(EmptySource), &self.run.env, variables),
        }
    }

    /// The matches of one outer document.
    fn matches(&mut self, document: &RawDocument) -> Result<Box<dyn DocumentSource>> {
        if matches!(self.strategy, Strategy::Undecided) {
            self.decide()?;
        }
        let lookup = Arc::clone(&self.lookup);
        let variables = if lookup.lets.is_empty() {
            Arc::clone(&self.run.variables)
        } else {
            let mut inner = Variables::clone(&self.run.variables);
            for (id, expression) in &lookup.lets {
                inner.set(*id, expression.evaluate(document, &self.run.variables)?.into_owned());
            }
            Arc::new(inner)
        };
        match &self.strategy {
            Strategy::Cached { documents, .. } => {
                Ok(Box::new(SharedSource::new(Arc::clone(documents))))
            }
            Strategy::Table(table) => {
                let input = Box::new(table.find(&lookup, document, &variables)?);
                lookup.pipeline.execute(input, &self.run.env, &variables)
            }
            Strategy::PerDocument | Strategy::Undecided => {
                let mut stages = Vec::new();
                if let Some(filter) = leading_filter(&lookup, document, &variables)? {
                    stages.push(PipelineStage::Match(Arc::new(filter)));
                }
                if stages.is_empty() {
                    return self.open_pipeline(&lookup.pipeline, &variables);
                }
                stages.extend_from_slice(lookup.pipeline.stages());
                self.open_pipeline(&Pipeline::from_stages(stages), &variables)
            }
        }
    }

    fn gathered(&mut self, document: &RawDocument) -> Result<RawDocumentBuf> {
        let mut matches = self.matches(document)?;
        let mut list = RawArrayBuf::new();
        while let Some(found) = matches.next()? {
            check_document_size(list.as_bytes().len() + found.as_bytes().len())?;
            list.push(&*found);
        }
        set_path(document, &self.lookup.as_path, Some(RawBsonRef::Array(&list)))
    }

    fn next_unwound(&mut self, unwind: &Unwind) -> Result<Option<RawDocumentBuf>> {
        loop {
            if let Some((outer, matches, index)) = &mut self.open {
                if let Some(found) = matches.next()? {
                    let at = *index;
                    *index += 1;
                    let value = Some(RawBsonRef::Document(&found));
                    let made = set_path(outer, &self.lookup.as_path, value)?;
                    return with_index(made, unwind, RawBsonRef::Int64(at)).map(Some);
                }
                let Some((outer, _, count)) = self.open.take() else { continue };
                if count == 0 && unwind.preserve {
                    let made = set_path(&outer, &self.lookup.as_path, None)?;
                    return with_index(made, unwind, RawBsonRef::Null).map(Some);
                }
            }
            self.run.env.check_interrupt()?;
            let Some(outer) = self.next_outer()? else { return Ok(None) };
            let matches = self.matches(&outer)?;
            self.open = Some((outer, matches, 0));
        }
    }
}

fn with_index(
    document: RawDocumentBuf,
    unwind: &Unwind,
    index: RawBsonRef<'_>,
) -> Result<RawDocumentBuf> {
    match &unwind.index {
        Some(path) => set_path(&document, path, Some(index)),
        None => Ok(document),
    }
}

impl DocumentSource for LookupSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        if let Some(unwind) = self.lookup.unwind.clone() {
            return self.next_unwound(&unwind);
        }
        self.run.env.check_interrupt()?;
        match self.next_outer()? {
            Some(document) => self.gathered(&document).map(Some),
            None => Ok(None),
        }
    }

    fn park(&mut self) {
        self.run.input.park();
        if let Some((_, matches, _)) = &mut self.open {
            matches.park();
        }
    }
}

/// The filter an index can answer: the equality form's, or what a correlation implies.
fn leading_filter(
    lookup: &Lookup,
    document: &RawDocument,
    variables: &Arc<Variables>,
) -> Result<Option<Filter>> {
    if let Some((local, foreign)) = &lookup.equality {
        let values = local_values(document, local)?;
        return equality_filter(foreign, values, variables).map(Some);
    }
    let Some((foreign, outer)) = &lookup.correlation else { return Ok(None) };
    let (Some(path), Some(value)) =
        (foreign.as_field_path(), outer.evaluate(document, variables)?.into_owned())
    else {
        return Ok(None);
    };
    // For these, a filter's equality finds all that the expression's does; the expression in the
    // pipeline then decides.
    let plain = !matches!(
        value,
        RawBson::Null | RawBson::Undefined | RawBson::Array(_) | RawBson::RegularExpression(_)
    );
    plain.then(|| equality_filter(&path, vec![value], variables)).transpose()
}

fn equality_filter(
    path: &str,
    mut values: Vec<RawBson>,
    variables: &Arc<Variables>,
) -> Result<Filter> {
    let predicate = match (values.len(), values.pop()) {
        (1, Some(only)) => Predicate::Eq(only),
        (_, last) => {
            values.extend(last);
            Predicate::In(InSet::new(values, Vec::new(), variables.collation())?)
        }
    };
    let leaf = Leaf { path: Path::new(path), predicate };
    Ok(Filter::new(Node::Leaf(leaf), Arc::clone(variables)))
}

/// The values a document is joined by: all at the path, arrays by their elements; null if none.
pub(crate) fn local_values(document: &RawDocument, path: &str) -> Result<Vec<RawBson>> {
    let names: Vec<&str> = path.split('.').collect();
    let mut found = Vec::new();
    collect(RawBsonRef::Document(document), &names, &mut found)?;
    if found.is_empty() {
        found.push(RawBson::Null);
    }
    Ok(found)
}

fn collect(value: RawBsonRef<'_>, names: &[&str], found: &mut Vec<RawBson>) -> Result<()> {
    match (value, names.split_first()) {
        (RawBsonRef::Array(array), None) => {
            for element in raw::values(array) {
                found.push(element?.into());
            }
        }
        (scalar, None) => found.push(scalar.into()),
        (RawBsonRef::Document(document), Some((first, rest))) => {
            if let Some(inner) = document.get(first)? {
                collect(inner, rest, found)?;
            }
        }
        (RawBsonRef::Array(array), Some((first, rest))) => {
            if let Some(index) = bsonval::path::array_index(first)
                && let Some(element) = array.get(index as usize)?
            {
                collect(element, rest, found)?;
            }
            for element in raw::values(array) {
                if let inner @ RawBsonRef::Document(_) = element? {
                    collect(inner, names, found)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}
