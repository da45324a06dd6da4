//! Where a query searches texts: its text index, and what cannot stand beside a search.
//!
//! Always true: a bound filter's search is over the fields of the one text index its collection has.

use crate::canonical::Canonical;
use crate::exec::{ExecContext, PlanStage, Report, Row};
use crate::plan::hint::Hint;
use crate::plan::{Access, AccessPath, Decision};
use bsonval::text_score;
use catalog::{Collection, Index};
use engine::Timestamp;
use errors::{Code, Error, Result};
use matcher::{Filter, no_index};
use std::sync::Arc;

/// The collection's text index, where the planner may use it.
pub(crate) fn text_index(collection: &Collection, snapshot: Timestamp) -> Option<&Arc<Index>> {
    collection
        .indexes()
        .iter()
        .find(|index| index.spec().is_text() && !index.spec().hidden && index.created() <= snapshot)
}

/// The filter with its `$text` over the collection's text index. A view's stays as it is: it becomes
/// part of a pipeline.
pub(crate) fn bind(
    filter: Filter,
    collection: Option<&Collection>,
    snapshot: Timestamp,
) -> Result<Filter> {
    if filter.text().is_none() || collection.is_some_and(Collection::is_view) {
        return Ok(filter);
    }
    let index = collection.and_then(|collection| text_index(collection, snapshot));
    let index = index.ok_or_else(no_index)?;
    let text = index.spec().text.as_ref().ok_or_else(no_index)?;
    filter.bind_text(text.fields())
}

/// Refuses a hint or an order of the collection beside a search.
pub(crate) fn check_beside(filter: &Filter, hint: Option<&Hint>, natural: bool) -> Result<()> {
    if filter.text().is_none() {
        return Ok(());
    }
    if natural {
        return Err(Error::bad_value("text expression not allowed with $natural sort order"));
    }
    if hint.is_some() {
        return Err(Error::bad_value("text and hint not allowed in same query"));
    }
    Ok(())
}

/// Refuses a plan that does not answer the query's search by the index, and a text index where
/// nothing is searched.
pub(crate) fn check_plan(query: &Canonical, decision: &Decision) -> Result<()> {
    if query.filter.text().is_some() {
        return if searches(&decision.winner) { Ok(()) } else { Err(no_plan(&query.filter)) };
    }
    if query.wants_text_score() {
        return Err(text_score::unavailable());
    }
    match &query.hint {
        Some(Hint::Index(index)) if index.spec().is_text() => {
            Err(planner_error("No query solutions"))
        }
        _ => Ok(()),
    }
}

/// Whether an access plan reads a text index, or is known to be empty.
fn searches(access: &Access) -> bool {
    match &access.path {
        AccessPath::Text(_) | AccessPath::Nothing => true,
        AccessPath::Union(branches) => branches.iter().any(searches),
        AccessPath::Merge(merge) => merge.branches.iter().any(searches),
        _ => false,
    }
}

fn no_plan(filter: &Filter) -> Error {
    let at_top = crate::plan::is_conjunct_text(filter);
    planner_error(if at_top {
        "failed to use text index to satisfy $text query (if text index is compound, are equality \
         predicates given for all prefix fields?)"
    } else {
        "Failed to produce a solution for TEXT under OR - other non-TEXT clauses under OR have to be \
         indexed as well."
    })
}

fn planner_error(cause: &str) -> Error {
    Error::new(
        Code::NO_QUERY_EXECUTION_PLANS,
        format!("error processing query: planner returned error :: caused by :: {cause}"),
    )
}

/// Refuses a search by a tailable cursor.
pub(crate) fn check_tailable(filter: &Filter) -> Result<()> {
    if filter.text().is_some() {
        return Err(Error::bad_value("text and tailable cursor not allowed in same query"));
    }
    Ok(())
}

/// The rows' documents without the score they carry.
pub(crate) struct StripStage {
    input: Box<dyn PlanStage>,
    row: Row,
}

impl StripStage {
    pub(crate) fn new(input: Box<dyn PlanStage>) -> Self {
        Self { input, row: Row::default() }
    }
}

impl PlanStage for StripStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        if !self.input.advance(exec)? {
            return Ok(false);
        }
        let input = self.input.row();
        match text_score::without(input.document()?) {
            Some(plain) => self.row.take(&input.record_key, plain.into_bytes()),
            None => self.row.set(&input.record_key, &input.document),
        }
        self.input.release_row();
        Ok(true)
    }

    fn row(&self) -> &Row {
        &self.row
    }

    fn release_row(&mut self) {
        self.row.release();
        self.input.release_row();
    }

    fn park(&mut self) {
        self.input.park();
    }

    /// It is no step of its own to those who look at the plan.
    fn report(&self) -> Report {
        self.input.report()
    }
}
