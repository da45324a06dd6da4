//! Which plan runs: by score, by what the collection remembers of queries of this shape, or by a
//! trial among those that the score cannot tell apart.
//!
//! A trial runs each plan under one budget, small at first: who ends, or finds as much as a first
//! batch holds, has won, and the cheapest of them where several do. What a trial reads is read
//! again by the run: a trial is short.
//!
//! Always true: a trial changes nothing and nobody sees its rows. Inside a transaction there is
//! none: what it read would count as read by the transaction.

use crate::canonical::Canonical;
use crate::context::{Interrupt, OpContext};
use crate::examined::{set_examined, take_examined};
use crate::exec::{Budget, ExecContext, PlanStage, Report, Row};
use crate::plan::{Access, AccessPath, Decision, Shape};
use crate::plan_cache::{Choice, PlanCache, Shown};
use bson::{DateTime, Document};
use catalog::Catalog;
use engine::Snapshot;
use errors::Result;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// What each plan may cost, round after round.
const ROUNDS: [u64; 3] = [100, 1000, 10_000];
/// As many rows are as good as all of them: what a first batch holds.
const ENOUGH_ROWS: usize = 101;
/// A remembered plan may cost so many times what it cost in its trial before it is doubted.
const DOUBT: u64 = 10;
/// A rival takes the place of the plan with the best score only where it is this much cheaper: the
/// unit of cost is not that exact.
const MARGIN: f64 = 1.2;
/// The same where the plan with the best score reads the whole collection in its order.
const MARGIN_OF_SCAN: f64 = 2.0;

/// Makes the stages of a query from one of its plans.
pub(crate) type Maker = fn(&Canonical, &Arc<Catalog>, &Access) -> Result<Box<dyn PlanStage>>;

/// A plan that is to run.
#[derive(Debug)]
pub(crate) struct ChosenPlan {
    pub(crate) access: Access,
    watch: Option<Box<Watch>>,
}

/// Of a remembered plan: when it is to be doubted, and what else there is.
#[derive(Debug)]
struct Watch {
    allowance: u64,
    /// So many rows are looked at before the plan is trusted.
    rows: usize,
    shape: Shape,
    decision: Decision,
}

/// How a plan did in a trial.
pub(crate) struct Tried {
    pub(crate) rows: u64,
    pub(crate) cost: u64,
    /// It ended, or found enough.
    pub(crate) finished: bool,
    /// It cannot answer: a sort that may not spill, say.
    failed: bool,
    pub(crate) report: Report,
}

impl Tried {
    /// Rows a unit of cost, as MongoDB counts its productivity.
    pub(crate) fn score(&self) -> f64 {
        1.0 + self.rows as f64 / self.cost.max(1) as f64 + f64::from(u8::from(self.finished))
    }
}

/// What a trial found: the best plan, and how each did.
pub(crate) struct Trial {
    pub(crate) best: usize,
    pub(crate) tried: Vec<Tried>,
}

/// A decision as `explain` shows it.
pub(crate) struct ExplainedChoice {
    pub(crate) decision: Decision,
    /// How the winner and its rivals did, where there was a trial.
    pub(crate) tried: Vec<Tried>,
    pub(crate) shape: Shape,
}

/// Whether what a trial reads is nobody's business: not inside a transaction.
fn may_try(ctx: &OpContext<'_>) -> bool {
    ctx.txn.is_none() && ctx.snapshot.is_none()
}

/// What trials run in.
#[derive(Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub(crate) catalog: &'a Arc<Catalog>,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) interrupt: &'a dyn Interrupt,
}

impl Canonical {
    /// Decides which plan runs; `fields` are those needed beside filter and sort, `None` all.
    pub(crate) fn choose_plan(
        &self,
        ctx: &OpContext<'_>,
        fields: Option<&BTreeSet<String>>,
        make: Maker,
    ) -> Result<ChosenPlan> {
        let mut decision = self.decide(fields)?;
        let Some(collection) = self.collection.as_ref().filter(|_| !decision.rivals.is_empty())
        else {
            return Ok(ChosenPlan { access: decision.winner, watch: None });
        };
        let shape = self.query_shape(fields).limited(self.limit > 0);
        let cache = PlanCache::of(collection);
        if let Some(known) = cache.find(&shape, collection)
            && decision.prefer(|access| access.route() == known.route)
        {
            let access = decision.winner.clone();
            let allowance = known.works.saturating_mul(DOUBT).max(ROUNDS[0]);
            let watch = may_try(ctx).then(|| {
                let rows = ENOUGH_ROWS;
                Box::new(Watch { allowance, rows, shape, decision })
            });
            return Ok(ChosenPlan { access, watch });
        }
        // A trial that cannot be remembered would come with every query.
        if !may_try(ctx) || !cache.has_room_for(&shape) {
            return Ok(ChosenPlan { access: decision.winner, watch: None });
        }
        let access = self.try_and_note(self.ground(ctx), decision, shape, make)?;
        Ok(ChosenPlan { access, watch: None })
    }

    /// The decision of a trial made for it, whatever is remembered: for `explain`.
    pub(crate) fn consider(
        &self,
        ctx: &OpContext<'_>,
        fields: Option<&BTreeSet<String>>,
        make: Maker,
    ) -> Result<ExplainedChoice> {
        let mut decision = self.decide(fields)?;
        let mut tried = Vec::new();
        if !decision.rivals.is_empty() && may_try(ctx) {
            let trial = self.compare(self.ground(ctx), &decision, make)?;
            decision.take(trial.best);
            tried = trial.tried;
            tried.swap(0, trial.best);
        }
        let shape = self.query_shape(fields);
        Ok(ExplainedChoice { decision, tried, shape })
    }

    fn ground<'a>(&'a self, ctx: &'a OpContext<'_>) -> Ground<'a> {
        Ground { catalog: ctx.catalog, snapshot: &self.snapshot, interrupt: &*ctx.interrupt }
    }

    /// What this query asks, without the values.
    pub(crate) fn query_shape(&self, fields: Option<&BTreeSet<String>>) -> Shape {
        Shape::of(&self.filter, self.sort.as_ref(), fields)
    }

    fn try_and_note(
        &self,
        ground: Ground<'_>,
        mut decision: Decision,
        shape: Shape,
        make: Maker,
    ) -> Result<Access> {
        let trial = self.compare(ground, &decision, make)?;
        let best = &trial.tried[trial.best];
        let shown = Shown {
            query: self.filter.to_document(),
            sort: self.sort.as_ref().map_or_else(Document::new, |sort| {
                Document::try_from(sort.to_document().as_ref()).unwrap_or_default()
            }),
            plan: best.report.plan_document(),
            filtered: decision.filtered,
            trial: trial
                .tried
                .iter()
                .map(|tried| (tried.report.statistics_document(), tried.score()))
                .collect(),
        };
        let works = best.cost;
        decision.take(trial.best);
        if let Some(collection) = &self.collection {
            let made = DateTime::from_millis(ground.catalog.os().clock.wall_ms());
            let choice = Choice { route: decision.winner.route(), works, made, shown };
            PlanCache::of(collection).note(shape, collection, choice);
        }
        Ok(decision.winner)
    }

    /// Tries the winner and its rivals; the best is numbered among them, the winner first.
    pub(crate) fn compare(
        &self,
        ground: Ground<'_>,
        decision: &Decision,
        make: Maker,
    ) -> Result<Trial> {
        let outside = take_examined();
        let trial = self.compare_unseen(ground, decision, make);
        set_examined(outside);
        trial
    }

    fn compare_unseen(
        &self,
        ground: Ground<'_>,
        decision: &Decision,
        make: Maker,
    ) -> Result<Trial> {
        let margin = match decision.winner.path {
            AccessPath::Collection { .. } => MARGIN_OF_SCAN,
            _ => MARGIN,
        };
        let mut trial = Trial { best: 0, tried: Vec::new() };
        let mut failure = None;
        for (round, budget) in ROUNDS.into_iter().enumerate() {
            trial = Trial { best: 0, tried: Vec::new() };
            let mut limit = budget;
            let mut best_cost = f64::INFINITY;
            for (at, access) in
                std::iter::once(&decision.winner).chain(&decision.rivals).enumerate()
            {
                // An intersection pays only where there is much to read.
                let too_early = round == 0 && matches!(access.path, AccessPath::Intersection(_));
                let budget = if too_early { 0 } else { limit };
                let tried = match self.try_one(ground, access, budget, make) {
                    Ok(tried) => tried,
                    Err(error) => {
                        ground.interrupt.check()?;
                        failure.get_or_insert(error);
                        let report = make(self, ground.catalog, access)?.report();
                        Tried { rows: 0, cost: budget, finished: false, failed: true, report }
                    }
                };
                let weight = if at == 0 { 1.0 } else { margin };
                let cost = tried.cost as f64 * weight;
                if tried.finished && cost < best_cost {
                    (best_cost, trial.best) = (cost, at);
                    // Who costs more has lost.
                    limit = limit.min(tried.cost);
                }
                trial.tried.push(tried);
            }
            if best_cost.is_finite() {
                return Ok(trial);
            }
        }
        if let Some(error) = failure.filter(|_| trial.tried.iter().all(|tried| tried.failed)) {
            return Err(error);
        }
        // None came to an end: who finds the most.
        let rate = |at: usize| {
            let weight = if at == 0 { margin } else { 1.0 };
            trial.tried[at].rows as f64 / trial.tried[at].cost.max(1) as f64 * weight
        };
        let best = (0..trial.tried.len())
            .filter(|at| !trial.tried[*at].failed)
            .max_by(|a, b| rate(*a).total_cmp(&rate(*b)).then(b.cmp(a)))
            .unwrap_or(0);
        Ok(Trial { best, ..trial })
    }

    fn try_one(
        &self,
        ground: Ground<'_>,
        access: &Access,
        budget: u64,
        make: Maker,
    ) -> Result<Tried> {
        let budget = Budget::of_trial(budget);
        let exec = ExecContext {
            budget: Some(&budget),
            ..ExecContext::new(ground.snapshot, ground.interrupt)
        };
        let mut stage = make(self, ground.catalog, access)?;
        let mut rows = 0;
        let finished = loop {
            match stage.advance(&exec) {
                Ok(true) => {
                    rows += 1;
                    if rows >= ENOUGH_ROWS as u64 {
                        break true;
                    }
                }
                Ok(false) => break true,
                Err(_) if budget.is_spent() => break false,
                Err(error) => return Err(error),
            }
        };
        Ok(Tried { rows, cost: budget.spent(), finished, failed: false, report: stage.report() })
    }
}

impl ChosenPlan {
    /// The stages of the plan.
    pub(crate) fn stages(
        self,
        query: &Arc<Canonical>,
        catalog: &Arc<Catalog>,
        make: Maker,
    ) -> Result<Box<dyn PlanStage>> {
        let stage = make(query, catalog, &self.access)?;
        Ok(match self.watch {
            None => stage,
            Some(watch) => Box::new(WatchedStage {
                stage,
                watch: Some(watch),
                query: Arc::clone(query),
                catalog: Arc::clone(catalog),
                make,
                ahead: VecDeque::new(),
                row: None,
            }),
        })
    }

    /// Whoever takes the rows may want only the first: a plan is trusted once it has found that.
    pub(crate) fn for_first(mut self) -> Self {
        if let Some(watch) = &mut self.watch {
            watch.rows = 1;
        }
        self
    }

    /// Only plans that are sorted, or are not, as this one is may take its place.
    pub(crate) fn keep_order(&mut self) {
        let sorted = self.access.sorted;
        if let Some(watch) = &mut self.watch {
            watch.decision.rivals.retain(|rival| rival.sorted == sorted);
        }
    }
}

/// A remembered plan at work: its first rows are kept until it is known to cost about what it did
/// in its trial; where it costs much more there is a new trial, and the rows are those of the plan
/// that it chooses.
struct WatchedStage {
    stage: Box<dyn PlanStage>,
    /// `None` once the plan is no longer in doubt.
    watch: Option<Box<Watch>>,
    query: Arc<Canonical>,
    catalog: Arc<Catalog>,
    make: Maker,
    ahead: VecDeque<Row>,
    /// The row that came from those kept.
    row: Option<Row>,
}

impl WatchedStage {
    fn look_ahead(&mut self, watch: Box<Watch>, exec: &ExecContext<'_>) -> Result<()> {
        let budget = Budget::of_run(watch.allowance);
        let watched = ExecContext { budget: Some(&budget), ..*exec };
        let mut bytes = 0;
        while self.ahead.len() < watch.rows {
            match self.stage.advance(&watched) {
                Ok(true) => {
                    let row = self.stage.row();
                    bytes += row.record_key.len() + row.document.len();
                    self.ahead.push_back(row.clone());
                    self.stage.release_row();
                    // Large documents are not gathered to find out whether another plan is better.
                    if bytes > limits::LARGE_BYTES {
                        return Ok(());
                    }
                }
                Ok(false) => return Ok(()),
                Err(_) if budget.is_spent() => return self.choose_again(watch, exec),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn choose_again(&mut self, watch: Box<Watch>, exec: &ExecContext<'_>) -> Result<()> {
        self.ahead.clear();
        let Watch { shape, decision, .. } = *watch;
        if let Some(collection) = &self.query.collection {
            PlanCache::of(collection).doubt(&shape);
        }
        let ground =
            Ground { catalog: &self.catalog, snapshot: exec.snapshot, interrupt: exec.interrupt };
        let access = self.query.try_and_note(ground, decision, shape, self.make)?;
        self.stage = (self.make)(&self.query, &self.catalog, &access)?;
        Ok(())
    }
}

impl PlanStage for WatchedStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        if let Some(watch) = self.watch.take() {
            self.look_ahead(watch, exec)?;
        }
        self.row = self.ahead.pop_front();
        if self.row.is_some() { Ok(true) } else { self.stage.advance(exec) }
    }

    fn row(&self) -> &Row {
        self.row.as_ref().unwrap_or_else(|| self.stage.row())
    }

    fn release_row(&mut self) {
        if let Some(row) = &mut self.row {
            row.release();
        }
        self.stage.release_row();
    }

    fn park(&mut self) {
        self.stage.park();
    }

    fn report(&self) -> Report {
        self.stage.report()
    }
}
