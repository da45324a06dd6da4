//! `$reduce`, without copying what has been gathered at every step.
//!
//! A body such as `{$concatArrays: ["$$value", ...]}`, also below `$cond`, adds to the value that
//! it was given. It is read once per `$reduce` into [`Step`]s, and the value then grows in place:
//! a list or a text at its end, a set and a merged document in a form that finds members fast.
//!
//! Always true: the result, and which error comes, are those of evaluating the body afresh.

use crate::agg::array::append_arrays;
use crate::agg::eval::{Frame, Scope};
use crate::agg::object::{Merger, merge_input};
use crate::agg::parse::Node;
use crate::agg::path::Base;
use crate::agg::set::Union;
use crate::agg::string::append_texts;
use crate::agg::variables::VarId;
use crate::agg::{Value, check_size, value_to_string};
use errors::{Error, Result};

/// A parsed `$reduce`.
#[derive(Clone, Debug)]
pub(crate) struct Reduce {
    pub(crate) input: Node,
    pub(crate) initial: Node,
    pub(crate) value: VarId,
    pub(crate) this: VarId,
    pub(crate) body: Node,
}

/// What a body does with the value.
enum Step<'a> {
    /// `"$$value"`
    Keep,
    /// Adds these to it.
    Grow(AccumulatorKind, &'a [Node]),
    /// `$cond`
    Choose { test: &'a Node, then: Box<Step<'a>>, otherwise: Box<Step<'a>> },
    /// Anything else.
    Any(&'a Node),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AccumulatorKind {
    Array,
    Text,
    Set,
    Document,
}

/// What has been gathered.
enum Gathered<'a> {
    Value(Value<'a>),
    Set(Union<'a, 'a>),
    Document(Box<Merger>),
}

impl<'a> Gathered<'a> {
    fn into_value(self) -> Result<Value<'a>> {
        match self {
            Self::Value(value) => Ok(value),
            Self::Set(union) => union.into_value(),
            Self::Document(merger) => {
                check_size(merger.bytes())?;
                Ok(merger.to_document().into())
            }
        }
    }
}

impl Reduce {
    pub(crate) fn evaluate<'a>(&'a self, scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
        let input = self.input.evaluate(scope)?;
        if input.is_nullish() {
            return Ok(Value::NULL);
        }
        let Some(elements) = input.elements() else {
            return Err(Error::location(
                40080,
                format!(
                    "$reduce requires that 'input' be an array, found: {}",
                    value_to_string(input.bson())
                ),
            ));
        };
        let step = self.step(&self.body);
        let mut gathered = Gathered::Value(self.initial.evaluate(scope)?);
        for element in elements {
            let this = Frame::new(scope, self.this, element?);
            gathered = self.take(&step, gathered, &scope.with_frame(&this))?;
        }
        gathered.into_value()
    }

    fn step<'a>(&'a self, body: &'a Node) -> Step<'a> {
        match body {
            node if self.is_value(node) => Step::Keep,
            Node::Call(function, args) => match (growth_of(function.name), args.as_slice()) {
                (Some(growth), [first, more @ ..]) if !more.is_empty() && self.is_value(first) => {
                    // The value is wanted as a value while the others are found: no gain here.
                    let wanted = more.iter().any(|node| self.reads_value(node));
                    if wanted && matches!(growth, AccumulatorKind::Set | AccumulatorKind::Document)
                    {
                        Step::Any(body)
                    } else {
                        Step::Grow(growth, more)
                    }
                }
                _ => Step::Any(body),
            },
            Node::Cond(parts) => {
                let [test, then, otherwise] = &**parts;
                let (then, otherwise) = (self.step(then), self.step(otherwise));
                Step::Choose { test, then: Box::new(then), otherwise: Box::new(otherwise) }
            }
            _ => Step::Any(body),
        }
    }

    fn is_value(&self, node: &Node) -> bool {
        matches!(node, Node::Path(path) if path.base == Base::User(self.value) && path.names.is_empty())
    }

    fn reads_value(&self, node: &Node) -> bool {
        match node {
            Node::Path(path) => path.base == Base::User(self.value),
            node => node.children().into_iter().any(|child| self.reads_value(child)),
        }
    }

    fn take<'a>(
        &'a self,
        step: &Step<'a>,
        gathered: Gathered<'a>,
        scope: &Scope<'_, 'a>,
    ) -> Result<Gathered<'a>> {
        match step {
            Step::Keep => Ok(gathered),
            Step::Any(body) => {
                let frame = Frame::new(scope, self.value, gathered.into_value()?);
                body.evaluate(&scope.with_frame(&frame)).map(Gathered::Value)
            }
            Step::Choose { test, then, otherwise } => {
                let (gathered, tested) = if self.reads_value(test) {
                    let frame = Frame::new(scope, self.value, gathered.into_value()?);
                    let tested = test.evaluate(&scope.with_frame(&frame))?.is_truthy();
                    (Gathered::Value(frame.into_value()), tested)
                } else {
                    (gathered, test.evaluate(scope)?.is_truthy())
                };
                self.take(if tested { then } else { otherwise }, gathered, scope)
            }
            Step::Grow(growth, more) => {
                let mut values = Vec::with_capacity(more.len());
                if !more.iter().any(|node| self.reads_value(node)) {
                    for node in *more {
                        values.push(node.evaluate(scope)?);
                    }
                    return grow(*growth, gathered, &values, scope);
                }
                let frame = Frame::new(scope, self.value, gathered.into_value()?);
                for node in *more {
                    values.push(node.evaluate(&scope.with_frame(&frame))?);
                }
                grow(*growth, Gathered::Value(frame.into_value()), &values, scope)
            }
        }
    }
}

fn growth_of(name: &str) -> Option<AccumulatorKind> {
    Some(match name {
        "$concatArrays" => AccumulatorKind::Array,
        "$concat" => AccumulatorKind::Text,
        "$setUnion" => AccumulatorKind::Set,
        "$mergeObjects" => AccumulatorKind::Document,
        _ => return None,
    })
}

fn grow<'a>(
    growth: AccumulatorKind,
    gathered: Gathered<'a>,
    more: &[Value<'a>],
    scope: &Scope<'_, 'a>,
) -> Result<Gathered<'a>> {
    match growth {
        AccumulatorKind::Array => append_arrays(gathered.into_value()?, more).map(Gathered::Value),
        AccumulatorKind::Text => append_texts(gathered.into_value()?, more).map(Gathered::Value),
        AccumulatorKind::Set => {
            let mut union = match gathered {
                Gathered::Set(union) => union,
                other => {
                    let mut union = Union::new(scope.variables.collation());
                    if !union.add(&other.into_value()?)? {
                        return Ok(Gathered::Value(Value::NULL));
                    }
                    union
                }
            };
            for value in more {
                if !union.add(value)? {
                    return Ok(Gathered::Value(Value::NULL));
                }
            }
            Ok(Gathered::Set(union))
        }
        AccumulatorKind::Document => {
            let mut merger = match gathered {
                Gathered::Document(merger) => merger,
                other => {
                    let mut merger = Box::<Merger>::default();
                    let before = other.into_value()?;
                    if !before.is_nullish() {
                        merger.merge(merge_input(&before)?)?;
                    }
                    merger
                }
            };
            for value in more.iter().filter(|value| !value.is_nullish()) {
                merger.merge(merge_input(value)?)?;
            }
            check_size(merger.bytes())?;
            Ok(Gathered::Document(merger))
        }
    }
}
