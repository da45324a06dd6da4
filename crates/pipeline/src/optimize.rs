//! Rearranging stages, and what they read.
//!
//! Each rule keeps the result as it is:
//! - `$match` moves before stages that do not touch what it reads, and joins a `$match` before it;
//! - `$limit` and `$skip` move before stages that make one document of one, and join their like;
//! - `$limit` (with `$skip`) after `$sort` makes it a top-k sort;
//! - `$unwind` of what a `$lookup` just made is done by the `$lookup`.

use crate::stage::PipelineStage;
use crate::stage::lookup::Lookup;
use crate::stage::sort::Sort;
use crate::transform::Mode;
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
        (before, PipelineStage::Limit(_) | PipelineStage::Skip(_)) if one_of_one(before) => {
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

/// Whether the stage makes exactly one document of each.
fn one_of_one(stage: &PipelineStage) -> bool {
    match stage {
        PipelineStage::Transform(_)
        | PipelineStage::ReplaceRoot(_)
        | PipelineStage::GraphLookup(_) => true,
        PipelineStage::Lookup(lookup) => lookup.unwind.is_none(),
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
    let (ahead, behind): (Vec<Node>, Vec<Node>) =
        parts.into_iter().partition(|part| may_pass(part, filter, before));
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

fn may_pass(part: &Node, filter: &Filter, before: &PipelineStage) -> bool {
    let part = Filter::new(part.clone(), Arc::clone(filter.variables()));
    let Some(paths) = filter_paths(&part) else { return false };
    let apart = |other: &str| paths.iter().all(|path| are_apart(path, other));
    match before {
        PipelineStage::Sort(sort) => sort.limit.is_none(),
        PipelineStage::Unwind(unwind) => {
            let index = unwind.index.as_ref().map(|path| path.join("."));
            apart(&unwind.dotted()) && index.is_none_or(|path| apart(&path))
        }
        PipelineStage::Lookup(lookup) => {
            let index = lookup.unwind.as_ref().and_then(|unwind| unwind.index.as_ref());
            apart(&lookup.as_path.join(".")) && index.is_none_or(|path| apart(&path.join(".")))
        }
        PipelineStage::GraphLookup(lookup) => apart(&lookup.as_path.join(".")),
        PipelineStage::Transform(stage) => {
            let changed = stage.transform.changed_paths();
            if !changed.iter().all(|path| apart(path)) {
                return false;
            }
            // Only whole top-level fields are certain to read the same after an inclusion.
            stage.transform.mode() != Mode::Include || {
                let kept = stage.transform.kept_paths();
                paths.iter().all(|path| {
                    let top = path.split('.').next().unwrap_or(path);
                    kept.contains(top)
                })
            }
        }
        _ => false,
    }
}

/// Neither path lies on the other.
fn are_apart(a: &str, b: &str) -> bool {
    let under = |long: &str, short: &str| {
        long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    !under(a, b) && !under(b, a)
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
pub(crate) struct Reads {
    /// `None`: everything.
    pub(crate) fields: Option<BTreeSet<String>>,
    /// Nothing but these fields (or what is computed from them) goes on.
    pub(crate) exhaustive: bool,
}

impl Reads {
    fn everything() -> Self {
        Self { fields: None, exhaustive: true }
    }

    fn passing(fields: Option<BTreeSet<String>>) -> Self {
        Self { fields, exhaustive: false }
    }
}

/// The fields of several expressions; `None` where one wants the whole document.
fn fields_of<'e>(
    expressions: impl IntoIterator<Item = &'e Expression>,
) -> Option<BTreeSet<String>> {
    let mut fields = BTreeSet::new();
    for expression in expressions {
        let found = expression.dependencies();
        if found.whole {
            return None;
        }
        fields.extend(found.fields);
    }
    Some(fields)
}

pub(crate) fn reads(stage: &PipelineStage) -> Reads {
    match stage {
        PipelineStage::Match(filter) => Reads::passing(match_fields(filter)),
        PipelineStage::Limit(_) | PipelineStage::Skip(_) | PipelineStage::Sample(_) => {
            Reads::passing(Some(BTreeSet::new()))
        }
        PipelineStage::Sort(sort) => Reads::passing(Some(
            sort.pattern.paths().iter().map(|path| path.as_str().to_owned()).collect(),
        )),
        PipelineStage::Unwind(unwind) => Reads::passing(Some([unwind.dotted()].into())),
        PipelineStage::Transform(stage) => {
            let mut fields = fields_of(stage.transform.expressions());
            if let Some(fields) = &mut fields {
                fields.extend(stage.transform.kept_paths());
            }
            Reads { fields, exhaustive: stage.transform.mode() == Mode::Include }
        }
        PipelineStage::Group(group) => {
            let inputs = group.fields.iter().map(|(_, spec)| spec.input());
            let mut fields = fields_of(inputs.chain([&group.id]));
            if let Some(fields) = &mut fields {
                fields.extend(group.fields.iter().flat_map(|(_, spec)| spec.sort_paths()));
            }
            Reads { fields, exhaustive: true }
        }
        PipelineStage::BucketAuto(bucket) => {
            Reads { fields: fields_of(bucket.expressions()), exhaustive: true }
        }
        PipelineStage::Window(window) => {
            let mut fields = fields_of(window.expressions());
            if let Some(fields) = &mut fields {
                fields.extend(window.sort_paths());
            }
            Reads::passing(fields)
        }
        PipelineStage::Densify(densify) => {
            Reads::passing(Some(densify.paths().into_iter().collect()))
        }
        PipelineStage::ReplaceRoot(root) => {
            Reads { fields: fields_of([&root.expression]), exhaustive: true }
        }
        PipelineStage::Lookup(lookup) => {
            let mut fields = fields_of(lookup.lets.iter().map(|(_, expression)| expression));
            if let (Some(fields), Some((local, _))) = (&mut fields, &lookup.equality) {
                fields.insert(local.clone());
            }
            Reads::passing(fields)
        }
        PipelineStage::GraphLookup(lookup) => Reads::passing(fields_of([&lookup.start_with])),
        PipelineStage::Facet(facet) => {
            let mut all = BTreeSet::new();
            for (_, pipeline) in &facet.pipelines {
                match needed_fields(pipeline.stages()) {
                    Some(fields) => all.extend(fields),
                    None => return Reads::everything(),
                }
            }
            Reads { fields: Some(all), exhaustive: true }
        }
        PipelineStage::Redact(_)
        | PipelineStage::UnionWith(_)
        | PipelineStage::Documents(_)
        | PipelineStage::Out(_)
        | PipelineStage::Merge(_)
        | PipelineStage::GeoNear(_)
        | PipelineStage::RankFusion(_)
        | PipelineStage::Metadata(_) => Reads::everything(),
    }
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
        let reads = stage.reads();
        needed.extend(reads.fields?);
        if reads.exhaustive {
            return Some(needed);
        }
    }
    None
}

/// Calls back for every expression of the stages, also in pipelines inside them.
pub(crate) fn visit(stages: &[PipelineStage], callback: &mut dyn FnMut(&Expression)) {
    for stage in stages {
        match stage {
            PipelineStage::Match(filter) => {
                filter.expressions().into_iter().for_each(&mut *callback);
            }
            PipelineStage::Transform(stage) => {
                stage.transform.expressions().into_iter().for_each(&mut *callback);
            }
            PipelineStage::Group(group) => {
                callback(&group.id);
                group.fields.iter().for_each(|(_, spec)| callback(spec.input()));
            }
            PipelineStage::BucketAuto(bucket) => {
                bucket.expressions().into_iter().for_each(&mut *callback);
            }
            PipelineStage::Window(window) => {
                window.expressions().into_iter().for_each(&mut *callback);
            }
            PipelineStage::ReplaceRoot(computed)
            | PipelineStage::Redact(computed)
            | PipelineStage::Documents(computed) => {
                callback(&computed.expression);
            }
            PipelineStage::Lookup(lookup) => {
                lookup.lets.iter().for_each(|(_, expression)| callback(expression));
                visit(lookup.pipeline.stages(), callback);
            }
            PipelineStage::GraphLookup(lookup) => {
                callback(&lookup.start_with);
                let restriction = lookup.restriction().map(Filter::expressions);
                restriction.into_iter().flatten().for_each(&mut *callback);
            }
            PipelineStage::Facet(facet) => {
                facet.pipelines.iter().for_each(|(_, p)| visit(p.stages(), callback));
            }
            PipelineStage::UnionWith(union) => visit(union.pipeline.stages(), callback),
            PipelineStage::RankFusion(fusion) => {
                fusion.inputs.iter().for_each(|input| visit(input.pipeline.stages(), callback));
            }
            PipelineStage::GeoNear(near) => {
                near.expressions().for_each(&mut *callback);
                near.query.expressions().into_iter().for_each(&mut *callback);
            }
            PipelineStage::Sort(_)
            | PipelineStage::Limit(_)
            | PipelineStage::Skip(_)
            | PipelineStage::Unwind(_)
            | PipelineStage::Sample(_)
            | PipelineStage::Densify(_)
            | PipelineStage::Out(_)
            | PipelineStage::Merge(_)
            | PipelineStage::Metadata(_) => {}
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
        uncorrelated &= !found.random && !found.clock && found.variables.is_empty();
    });
    uncorrelated
}

fn has_chance(stages: &[PipelineStage]) -> bool {
    stages.iter().any(|stage| match stage {
        PipelineStage::Sample(_) => true,
        PipelineStage::Match(filter) => by_chance(filter.root()),
        PipelineStage::GeoNear(near) => by_chance(near.query.root()),
        PipelineStage::Facet(facet) => facet.pipelines.iter().any(|(_, p)| has_chance(p.stages())),
        PipelineStage::Lookup(lookup) => has_chance(lookup.pipeline.stages()),
        PipelineStage::UnionWith(union) => has_chance(union.pipeline.stages()),
        PipelineStage::RankFusion(fusion) => {
            fusion.inputs.iter().any(|input| has_chance(input.pipeline.stages()))
        }
        _ => false,
    })
}
