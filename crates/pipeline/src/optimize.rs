//! Rearranging stages, and what they read.
//!
//! Each rule keeps the result as it is:
//! - `$match` moves before stages that do not touch what it reads, and joins a `$match` before it;
//! - `$limit` and `$skip` move before stages that make one document of one, and join their like;
//! - `$limit` (with `$skip`) after `$sort` makes it a top-k sort;
//! - `$unwind` of what a `$lookup` just made is done by the `$lookup`.

use crate::stage::lookup::Lookup;
use crate::stage::sort::Sort;
use crate::stage::{Output, Part, PipelineStage, StageSpec};
use expr::agg::{Expression, VarId};
use matcher::{Filter, Node};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) fn optimize(mut stages: Vec<PipelineStage>) -> Vec<PipelineStage> {
    stages.retain(
        |stage| !matches!(stage, PipelineStage::Match(filter) if filter.matches_everything()),
    );
    stages.retain(|stage| !matches!(stage, PipelineStage::Skip(0)));
    let mut at = 0;
    while at + 1 < stages.len() {
        if step(&mut stages, at) {
            // What changed here may now fit with what stands before.
            at = at.saturating_sub(1);
        } else {
            at += 1;
        }
    }
    limit_sorts(&mut stages);
    stages
}

/// Tries every rule on two neighbours.
fn step(stages: &mut Vec<PipelineStage>, at: usize) -> bool {
    let (first, second) = (stages[at].clone(), stages[at + 1].clone());
    match (&first, &second) {
        (PipelineStage::Match(a), PipelineStage::Match(b)) => {
            stages[at] = PipelineStage::Match(Arc::new(both(a, b)));
            stages.remove(at + 1);
            true
        }
        (_, PipelineStage::Match(filter)) => move_match(stages, at, &first, filter),
        (PipelineStage::Limit(a), PipelineStage::Limit(b)) => {
            stages[at] = PipelineStage::Limit(*a.min(b));
            stages.remove(at + 1);
            true
        }
        (PipelineStage::Skip(a), PipelineStage::Skip(b)) => {
            stages[at] = PipelineStage::Skip(a.saturating_add(*b));
            stages.remove(at + 1);
            true
        }
        (before, PipelineStage::Limit(_) | PipelineStage::Skip(_))
            if before.spec().is_one_to_one() =>
        {
            stages.swap(at, at + 1);
            true
        }
        (PipelineStage::Lookup(lookup), PipelineStage::Unwind(unwind))
            if lookup.unwind.is_none() && lookup.as_path == unwind.path =>
        {
            let mut joined = Lookup::clone(lookup);
            joined.unwind = Some(Arc::clone(unwind));
            stages[at] = PipelineStage::Lookup(Arc::new(joined));
            stages.remove(at + 1);
            true
        }
        _ => false,
    }
}

fn both(a: &Filter, b: &Filter) -> Filter {
    let root = Node::And(vec![a.root().clone(), b.root().clone()]);
    Filter::new(root, Arc::clone(a.variables()))
}

/// Moves those conjuncts of a `$match` before a stage that the stage does not concern.
fn move_match(
    stages: &mut Vec<PipelineStage>,
    at: usize,
    before: &PipelineStage,
    filter: &Filter,
) -> bool {
    let parts: Vec<Node> = match filter.root() {
        Node::And(parts) => parts.clone(),
        node => vec![node.clone()],
    };
    let spec = before.spec();
    let (ahead, behind): (Vec<Node>, Vec<Node>) =
        parts.into_iter().partition(|part| may_pass(part, filter, &*spec));
    if ahead.is_empty() {
        return false;
    }
    let make = |parts: Vec<Node>| {
        PipelineStage::Match(Arc::new(Filter::new(
            Node::And(parts),
            Arc::clone(filter.variables()),
        )))
    };
    stages[at] = make(ahead);
    stages[at + 1] = before.clone();
    if !behind.is_empty() {
        stages.insert(at + 2, make(behind));
    }
    true
}

fn may_pass(part: &Node, filter: &Filter, before: &dyn StageSpec) -> bool {
    let part = Filter::new(part.clone(), Arc::clone(filter.variables()));
    filter_paths(&part).is_some_and(|paths| before.lets_match_pass(&paths))
}

/// The paths a filter reads; `None` where it reads everything or is not the same every time.
fn filter_paths(filter: &Filter) -> Option<BTreeSet<String>> {
    if by_chance(filter.root()) {
        return None;
    }
    let mut paths: BTreeSet<String> =
        filter.paths().into_iter().map(|path| path.as_str().to_owned()).collect();
    for expression in filter.expressions() {
        let found = expression.dependencies();
        if found.whole || found.random {
            return None;
        }
        paths.extend(found.fields);
    }
    // The root path stands for the whole document.
    (!paths.contains("")).then_some(paths)
}

fn by_chance(node: &Node) -> bool {
    match node {
        Node::SampleRate(_) => true,
        Node::And(parts) | Node::Or(parts) | Node::Nor(parts) => parts.iter().any(by_chance),
        Node::Not(part) => by_chance(part),
        _ => false,
    }
}

/// Tells every sort how many documents are wanted of it.
fn limit_sorts(stages: &mut [PipelineStage]) {
    for at in 0..stages.len() {
        let PipelineStage::Sort(sort) = &stages[at] else { continue };
        let mut skipped = 0_u64;
        let mut wanted = None;
        for after in &stages[at + 1..] {
            match after {
                PipelineStage::Skip(skip) => skipped = skipped.saturating_add(*skip),
                PipelineStage::Limit(limit) => {
                    wanted = Some(skipped.saturating_add(*limit));
                    break;
                }
                _ => break,
            }
        }
        if let Some(wanted) = wanted {
            let limit = Some(sort.limit.map_or(wanted, |known| known.min(wanted)));
            stages[at] = PipelineStage::Sort(Arc::new(Sort { limit, ..Sort::clone(sort) }));
        }
    }
}

/// What a stage reads of its input.
struct Reads {
    /// `None`: everything.
    fields: Option<BTreeSet<String>>,
    /// Nothing but these fields (or what is computed from them) goes on.
    exhaustive: bool,
}

fn reads(stage: &dyn StageSpec) -> Reads {
    let fields = match stage.output() {
        Output::Whole => None,
        _ => fields_of(&stage.parts()),
    };
    Reads { fields, exhaustive: stage.output() != Output::Passing }
}

/// The fields of the documents that come in which these parts read; `None` where one wants the whole
/// document.
fn fields_of(parts: &[Part<'_>]) -> Option<BTreeSet<String>> {
    let mut fields = BTreeSet::new();
    for part in parts {
        match part {
            Part::Expression(expression) => {
                let found = expression.dependencies();
                if found.whole {
                    return None;
                }
                fields.extend(found.fields);
            }
            Part::Field(path) => {
                fields.insert(path.clone());
            }
            Part::Filter(filter) => fields.extend(match_fields(filter)?),
            Part::Pipeline(pipeline) => fields.extend(needed_fields(pipeline.stages())?),
            Part::OtherFilter(_) | Part::OtherPipeline(_) | Part::Collection(_) | Part::Chance => {}
        }
    }
    Some(fields)
}

fn match_fields(filter: &Filter) -> Option<BTreeSet<String>> {
    let mut paths: BTreeSet<String> =
        filter.paths().into_iter().map(|path| path.as_str().to_owned()).collect();
    for expression in filter.expressions() {
        let found = expression.dependencies();
        if found.whole {
            return None;
        }
        paths.extend(found.fields);
    }
    (!paths.contains("")).then_some(paths)
}

/// The fields of the input that matter to a list of stages; `None` is all.
pub(crate) fn needed_fields(stages: &[PipelineStage]) -> Option<BTreeSet<String>> {
    let mut needed = BTreeSet::new();
    for stage in stages {
        let reads = reads(&*stage.spec());
        needed.extend(reads.fields?);
        if reads.exhaustive {
            return Some(needed);
        }
    }
    None
}

/// Calls back for every expression of the stages, also in pipelines inside them.
fn visit(stages: &[PipelineStage], callback: &mut dyn FnMut(&Expression)) {
    for stage in stages {
        for part in stage.spec().parts() {
            match part {
                Part::Expression(expression) => callback(expression),
                Part::Filter(filter) | Part::OtherFilter(filter) => {
                    filter.expressions().into_iter().for_each(&mut *callback);
                }
                Part::Pipeline(pipeline) | Part::OtherPipeline(pipeline) => {
                    visit(pipeline.stages(), callback);
                }
                Part::Field(_) | Part::Collection(_) | Part::Chance => {}
            }
        }
    }
}

/// Whether an expression of the stages reads one of these fields of the documents.
pub(crate) fn read_one_of(stages: &[PipelineStage], names: &[&str]) -> bool {
    let mut found = false;
    visit(stages, &mut |expression| {
        found |= names.iter().any(|name| expression.dependencies().fields.contains(*name));
    });
    found
}

/// Whether the stages yield the same whatever values these variables have.
pub(crate) fn is_independent_of(stages: &[PipelineStage], ids: &[VarId]) -> bool {
    let mut independent = !has_chance(stages);
    visit(stages, &mut |expression| {
        let found = expression.dependencies();
        independent &= !found.random && !ids.iter().any(|id| found.variables.contains(id));
    });
    independent
}

/// Whether the stages read no variable and nothing by chance.
pub(crate) fn is_uncorrelated(stages: &[PipelineStage]) -> bool {
    let mut uncorrelated = !has_chance(stages);
    visit(stages, &mut |expression| {
        let found = expression.dependencies();
        uncorrelated &= !found.random && !found.context && found.variables.is_empty();
    });
    uncorrelated
}

fn has_chance(stages: &[PipelineStage]) -> bool {
    stages.iter().any(|stage| {
        stage.spec().parts().iter().any(|part| match part {
            Part::Chance => true,
            Part::Filter(filter) | Part::OtherFilter(filter) => by_chance(filter.root()),
            Part::Pipeline(pipeline) | Part::OtherPipeline(pipeline) => {
                has_chance(pipeline.stages())
            }
            Part::Expression(_) | Part::Field(_) | Part::Collection(_) => false,
        })
    })
}
