//! The tables of operators and stages: one a family, a row for each name that a parser's registry
//! has or that MongoDB's manual names.
//!
//! Always true: "yes" stands only at names of the registry that the parser itself looks into; a
//! name that is not there is given to the parser, and the row shows the code it answers.

use super::line;
use bson::doc;
use bson::raw::{RawArray, RawBsonRef, RawDocumentBuf};
use errors::{Code, Error, Result};
use expr::agg::{Expression, ParseContext};
use matcher::Filter;
use pipeline::{CollectionName, Pipeline, PipelineContext};
use std::collections::BTreeMap;
use update::Update;

/// What the manual names beside the registries: of servers with Queryable Encryption, Atlas,
/// sharding, or later versions.
mod manual {
    pub(super) const EXPRESSIONS: &[&str] =
        &["$encStrContains", "$encStrEndsWith", "$encStrNormalizedEq", "$encStrStartsWith"];
    pub(super) const STAGES: &[&str] = &[
        "$listClusterCatalog",
        "$listSampledQueries",
        "$querySettings",
        "$queryStats",
        "$searchMeta",
        "$shardedDataDistribution",
    ];
    pub(super) const QUERY_FIELD: &[&str] = &["$natural", "$rand"];
    pub(super) const UPDATE: &[&str] = &["$pushAll"];
}

/// Writes all tables.
pub(super) fn tables(text: &mut String) {
    line(text, "## Operators and stages\n");
    line(
        text,
        "`yes`: the parser knows the name. A number: it is refused with this code, as it is here. \
         An expression may also stand in a projection, in `$expr`, and wherever else MongoDB takes \
         one.\n",
    );
    family(text, "Stages", stages());
    family(
        text,
        "Aggregation expressions",
        of(&expr::agg::operator_names(), manual::EXPRESSIONS, expression),
    );
    let accumulators = expr::accumulator::operator_names(false);
    family(text, "Accumulators", of(&accumulators, &[], |_| Ok(())));
    let functions = pipeline::stage::window::names();
    family(text, "Window functions", of(&functions, &[], |_| Ok(())));
    let [top, under_field] = matcher::operator_names();
    family(text, "Query operators in place of a field", of(top, &[], |_| Ok(())));
    family(text, "Query operators of a field", of(under_field, manual::QUERY_FIELD, query_field));
    let updates: Vec<_> = update::operator_names().collect();
    family(text, "Update operators", of(&updates, manual::UPDATE, update));
    let mut projections = update::projection::operator_names().to_vec();
    // The positional operator is part of a path, `a.$`.
    projections.push("$");
    family(text, "Projection operators", of(&projections, &[], |_| Ok(())));
}

/// What a name answers: the code that refuses it, or nothing.
type Rows = BTreeMap<&'static str, Option<Code>>;

fn family(text: &mut String, title: &str, rows: Rows) {
    line(text, &format!("### {title}\n"));
    line(text, "| Name | Status |");
    line(text, "|---|---|");
    for (name, refusal) in rows {
        let status = match refusal {
            None => "yes".to_owned(),
            Some(code) => format!("refused: {} {}", code.0, code.name()),
        };
        line(text, &format!("| `{name}` | {status} |"));
    }
    text.push('\n');
}

fn of(registry: &[&'static str], manual: &[&'static str], ask: fn(&str) -> Result<()>) -> Rows {
    let mut rows: Rows = registry.iter().map(|name| (*name, None)).collect();
    for name in manual {
        rows.entry(name).or_insert_with(|| ask(name).err().map(|error| error.code()));
    }
    rows
}

fn stages() -> Rows {
    let mut rows: Rows =
        pipeline::stage::names().map(|(name, code)| (name, code.map(Code::location))).collect();
    for name in manual::STAGES {
        rows.entry(name).or_insert_with(|| stage(name).err().map(|error| error.code()));
    }
    rows
}

fn spec(name: &str) -> Result<RawDocumentBuf> {
    RawDocumentBuf::try_from(&doc! { name: {} })
        .map_err(|error| Error::bad_value(error.to_string()))
}

fn stage(name: &str) -> Result<()> {
    let place = CollectionName { database: "test".to_owned(), collection: "c".to_owned() };
    let context = PipelineContext::new(&place, filter_context());
    Pipeline::parse_documents(&[&spec(name)?], &context).map(drop)
}

fn expression(name: &str) -> Result<()> {
    Expression::parse(RawBsonRef::Document(&spec(name)?), &ParseContext::new()).map(drop)
}

fn query_field(name: &str) -> Result<()> {
    let whole = RawDocumentBuf::try_from(&doc! { "a": { name: {} } })
        .map_err(|error| Error::bad_value(error.to_string()))?;
    Filter::parse(&whole, &filter_context()).map(drop)
}

fn update(name: &str) -> Result<()> {
    let update = spec(name)?;
    let no_pipeline = |_: &RawArray| Err(Error::bad_value("no pipeline here"));
    Update::parse(RawBsonRef::Document(&update), None, &filter_context(), &no_pipeline).map(drop)
}

/// No variables but the system's.
fn filter_context() -> matcher::ParseContext {
    matcher::ParseContext { text: true, ..matcher::ParseContext::default() }
}
