//! The functions over windows, and how each moves from document to document.

use super::bounds::{Bounds, WindowRange};
use super::partition::Partition;
use crate::memory::StageMemory;
use bson::raw::{RawBson, RawBsonRef, RawDocument};
use bsonval::SortPattern;
use bsonval::decimal::Decimal;
use bsonval::number::Number;
use errors::{Error, Result};
use expr::accumulator::{AccumulatorSpec, WindowAccumulator, WindowSum};
use expr::agg::{Expression, Variables};
use std::collections::VecDeque;

/// What one output computes.
#[derive(Clone, Debug)]
pub(super) enum Function {
    /// An accumulator over the window.
    Over(AccumulatorSpec, Bounds),
    /// `$first`, `$last`: the document at one end.
    Edge { input: Expression, last: bool, bounds: Bounds },
    /// Change between the window's ends, per unit of the sort field.
    Derivative { input: Expression, unit_ms: Option<i64>, bounds: Bounds },
    /// Area under the window, by trapezoids.
    Integral { input: Expression, unit_ms: Option<i64>, bounds: Bounds },
    /// Covariance of pairs; of a sample or of a population.
    Covariance { pair: Box<[Expression; 2]>, sample: bool, bounds: Bounds },
    /// The value's place between the window's least and greatest, from `low` to `high`.
    Scale { specs: Box<[AccumulatorSpec; 2]>, low: Number, high: Number, bounds: Bounds },
    /// Position in the partition.
    Rank(Rank),
    /// The value of another document.
    Shift { output: Expression, by: i64, default: RawBson },
    /// Exponential moving average with this weight of the newest.
    ExpMovingAvg { input: Expression, alpha: Number },
    /// Gaps on the straight line between their neighbours.
    LinearFill(Expression),
    /// Gaps with what was there last.
    Locf(Expression),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    Sparse,
    Dense,
    Number,
}

impl Function {
    pub(super) fn expressions(&self) -> Vec<&Expression> {
        match self {
            Self::Over(spec, _) => vec![spec.input()],
            Self::Scale { specs, .. } => vec![specs[0].input()],
            Self::Edge { input, .. }
            | Self::Derivative { input, .. }
            | Self::Integral { input, .. }
            | Self::ExpMovingAvg { input, .. }
            | Self::LinearFill(input)
            | Self::Locf(input) => vec![input],
            Self::Covariance { pair, .. } => pair.iter().collect(),
            Self::Shift { output, .. } => vec![output],
            Self::Rank(_) => Vec::new(),
        }
    }
}

impl Function {
    pub(super) fn sort_paths(&self) -> Vec<String> {
        match self {
            Self::Over(spec, _) => spec.sort_paths(),
            _ => Vec::new(),
        }
    }
}

/// Where a function looks.
pub(super) struct Scene<'s> {
    pub(super) partition: &'s mut Partition,
    pub(super) variables: &'s Variables,
    pub(super) sort_key: Option<&'s Expression>,
    pub(super) sort_by: Option<&'s SortPattern>,
}

impl Scene<'_> {
    fn evaluate(&mut self, expression: &Expression, at: usize) -> Result<Option<RawBson>> {
        let document = self.partition.get(at)?;
        Ok(expression.evaluate(&document, self.variables)?.into_owned())
    }

    /// The one value a document is sorted by.
    pub(super) fn sort_value(&mut self, at: usize) -> Result<Option<RawBson>> {
        match self.sort_key {
            Some(key) => self.evaluate(key, at),
            None => Ok(None),
        }
    }

    /// The sort value on the number line: dates by their milliseconds.
    fn place(&mut self, at: usize) -> Result<(Option<Number>, bool)> {
        Ok(match self.sort_value(at)? {
            Some(RawBson::DateTime(date)) => (Some(Number::Long(date.timestamp_millis())), true),
            Some(value) => (Number::from_bson(value.as_raw_bson_ref()), false),
            None => (None, false),
        })
    }
}

/// The state of one function in one partition.
pub(super) struct Runner {
    slide: WindowRange,
    held: StageMemory,
    state: State,
}

enum State {
    Over(WindowAccumulator, Option<RawBson>),
    /// The least and the greatest.
    Scale(Box<[WindowAccumulator; 2]>),
    Area {
        points: VecDeque<(Number, Number)>,
        parts: VecDeque<Number>,
        sum: WindowSum,
        seen: VecDeque<bool>,
    },
    Pairs {
        queue: VecDeque<Option<(Number, Number)>>,
        pairs: Box<Pairs>,
    },
    Rank {
        key: Option<Vec<u8>>,
        rank: i64,
        dense: i64,
    },
    Average(Option<Number>),
    Line {
        left: Option<(Number, Number)>,
        right: Option<(usize, Number, Number)>,
        ended: bool,
    },
    Last(RawBson),
    None,
}

impl Runner {
    pub(super) fn start(function: &Function, variables: &Variables) -> Result<Self> {
        let state = match function {
            Function::Over(spec, bounds) => {
                State::Over(spec.start_window(bounds.slides(), variables)?, None)
            }
            Function::Scale { specs, bounds, .. } => {
                let start = |spec: &AccumulatorSpec| spec.start_window(bounds.slides(), variables);
                State::Scale(Box::new([start(&specs[0])?, start(&specs[1])?]))
            }
            Function::Integral { .. } => State::Area {
                points: VecDeque::new(),
                parts: VecDeque::new(),
                sum: WindowSum::default(),
                seen: VecDeque::new(),
            },
            Function::Covariance { .. } => {
                State::Pairs { queue: VecDeque::new(), pairs: Box::default() }
            }
            Function::Rank(_) => State::Rank { key: None, rank: 0, dense: 0 },
            Function::ExpMovingAvg { .. } => State::Average(None),
            Function::LinearFill(_) => State::Line { left: None, right: None, ended: false },
            Function::Locf(_) => State::Last(RawBson::Null),
            Function::Edge { .. } | Function::Derivative { .. } | Function::Shift { .. } => {
                State::None
            }
        };
        Ok(Self { slide: WindowRange::default(), held: StageMemory::within(usize::MAX), state })
    }

    /// Roughly the memory held.
    pub(super) fn bytes(&self) -> usize {
        match &self.state {
            State::Over(window, _) => window.bytes(),
            State::Scale(windows) => windows.iter().map(WindowAccumulator::bytes).sum(),
            State::Area { points, parts, seen, .. } => {
                points.len() * 96 + parts.len() * 48 + seen.len()
            }
            State::Pairs { queue, .. } => queue.len() * 96,
            _ => 64,
        }
    }

    /// The function's value for the document at `at`; documents are asked about in order.
    pub(super) fn value(
        &mut self,
        function: &Function,
        at: usize,
        scene: &mut Scene<'_>,
    ) -> Result<Option<RawBson>> {
        match (function, &mut self.state) {
            (Function::Over(spec, bounds), State::Over(window, last)) => {
                let target = self.slide.range_for(bounds, at, scene)?;
                let moved = target.from > self.slide.from || target.to > self.slide.to;
                while self.slide.to < target.to {
                    let document = scene.partition.get(self.slide.to)?;
                    spec.add_to_window(window, &document, scene.variables)?;
                    self.slide.to += 1;
                    self.held.must_fit(COPIES * window.bytes())?;
                }
                while self.slide.from < target.from {
                    window.remove_first();
                    self.slide.from += 1;
                }
                if moved || last.is_none() {
                    limits::poll_work(1 + window.value_bytes() / limits::BYTES_PER_UNIT)?;
                    // Not both at once: either may be megabytes.
                    *last = None;
                    *last = Some(window.value());
                }
                Ok(last.clone())
            }
            (Function::Scale { specs, low, high, bounds }, State::Scale(windows)) => {
                let target = self.slide.range_for(bounds, at, scene)?;
                while self.slide.to < target.to {
                    let document = scene.partition.get(self.slide.to)?;
                    scaled_number(specs[0].input(), &document, scene.variables)?;
                    for (spec, window) in specs.iter().zip(windows.iter_mut()) {
                        spec.add_to_window(window, &document, scene.variables)?;
                    }
                    self.slide.to += 1;
                }
                while self.slide.from < target.from {
                    windows.iter_mut().for_each(WindowAccumulator::remove_first);
                    self.slide.from += 1;
                }
                let document = scene.partition.get(at)?;
                let value = scaled_number(specs[0].input(), &document, scene.variables)?;
                let [least, greatest] = [&windows[0], &windows[1]].map(|window| {
                    Number::from_bson(window.value().as_raw_bson_ref()).unwrap_or(value)
                });
                let range = greatest.sub(least);
                if range.is_zero() {
                    return Ok(Some(low.to_bson()));
                }
                let share = divide(value.sub(least), range);
                Ok(Some(share.mul(high.sub(*low)).add(*low).to_bson()))
            }
            (Function::Edge { input, last, bounds }, _) => {
                self.slide = self.slide.range_for(bounds, at, scene)?;
                let WindowRange { from, to } = self.slide;
                if from == to {
                    return Ok(Some(RawBson::Null));
                }
                let value = scene.evaluate(input, if *last { to - 1 } else { from })?;
                Ok(Some(value.unwrap_or(RawBson::Null)))
            }
            (Function::Derivative { input, unit_ms, bounds }, _) => {
                self.slide = self.slide.range_for(bounds, at, scene)?;
                derivative(input, *unit_ms, self.slide, scene).map(Some)
            }
            (
                Function::Integral { input, unit_ms, bounds },
                State::Area { points, parts, sum, seen },
            ) => {
                let target = self.slide.range_for(bounds, at, scene)?;
                while self.slide.to < target.to {
                    let point = point(input, *unit_ms, self.slide.to, scene)?;
                    seen.push_back(point.is_some());
                    if let Some(point) = point {
                        if let Some(before) = points.back() {
                            let part = trapezoid(*before, point, *unit_ms);
                            sum.add(part);
                            parts.push_back(part);
                        }
                        points.push_back(point);
                    }
                    self.slide.to += 1;
                }
                while self.slide.from < target.from {
                    if seen.pop_front() == Some(true) {
                        points.pop_front();
                        if let Some(part) = parts.pop_front() {
                            sum.remove(part);
                        }
                    }
                    self.slide.from += 1;
                }
                let empty = points.is_empty();
                Ok(Some(if empty { RawBson::Null } else { sum.total().to_bson() }))
            }
            (Function::Covariance { pair, sample, bounds }, State::Pairs { queue, pairs }) => {
                let target = self.slide.range_for(bounds, at, scene)?;
                while self.slide.to < target.to {
                    let document = scene.partition.get(self.slide.to)?;
                    let found = read_pair(pair, &document, scene.variables)?;
                    if let Some(pair) = found {
                        pairs.add(pair);
                    }
                    queue.push_back(found);
                    self.slide.to += 1;
                }
                while self.slide.from < target.from {
                    if let Some(pair) = queue.pop_front().flatten() {
                        pairs.remove(pair);
                    }
                    self.slide.from += 1;
                }
                Ok(Some(pairs.covariance(*sample).map_or(RawBson::Null, Number::to_bson)))
            }
            (Function::Rank(kind), State::Rank { key, rank, dense }) => {
                let document = scene.partition.get(at)?;
                let now = scene
                    .sort_by
                    .map(|sort| sort.key(&document, scene.variables.collation()))
                    .transpose()?;
                let number = i64::try_from(at).unwrap_or(i64::MAX).saturating_add(1);
                if *rank == 0 || *key != now {
                    *rank = number;
                    *dense += 1;
                    *key = now;
                }
                let found = match kind {
                    Rank::Sparse => *rank,
                    Rank::Dense => *dense,
                    Rank::Number => number,
                };
                Ok(Some(i32::try_from(found).map_or(RawBson::Int64(found), RawBson::Int32)))
            }
            (Function::Shift { output, by, default }, _) => {
                let place = i64::try_from(at).ok().and_then(|at| at.checked_add(*by));
                let place = place.and_then(|place| usize::try_from(place).ok());
                match place.filter(|place| *place < scene.partition.len()) {
                    Some(place) => {
                        Ok(Some(scene.evaluate(output, place)?.unwrap_or(RawBson::Null)))
                    }
                    None => Ok(Some(default.clone())),
                }
            }
            (Function::ExpMovingAvg { input, alpha }, State::Average(average)) => {
                let value = scene.evaluate(input, at)?;
                let number = value.and_then(|value| Number::from_bson(value.as_raw_bson_ref()));
                if let Some(number) = number {
                    *average = Some(match *average {
                        None => number,
                        Some(before) => moving(before, number, *alpha),
                    });
                }
                Ok(Some(average.map_or(RawBson::Null, Number::to_bson)))
            }
            (Function::LinearFill(input), State::Line { left, right, ended }) => {
                linear(input, at, left, right, ended, scene).map(Some)
            }
            (Function::Locf(input), State::Last(last)) => {
                let value = scene.evaluate(input, at)?;
                if let Some(value) =
                    value.filter(|value| !matches!(value, RawBson::Null | RawBson::Undefined))
                {
                    *last = value;
                }
                Ok(Some(last.clone()))
            }
            _ => Ok(None),
        }
    }
}

/// What a window holds is there so many times while its row is made: gathered, as the value, as the
/// value's copy and in the document.
const COPIES: usize = 4;

/// What `$minMaxScaler` is fed: numbers only.
fn scaled_number(
    input: &Expression,
    document: &RawDocument,
    variables: &Variables,
) -> Result<Number> {
    let value = input.evaluate(document, variables)?;
    value.get().and_then(Number::from_bson).ok_or_else(|| {
        Error::location(
            10487001,
            format!(
                "'input' argument to $minMaxScaler must evaluate to a numeric type, but is {}",
                value.type_name()
            ),
        )
    })
}

/// A quotient: a decimal of decimals, else a double.
fn divide(a: Number, b: Number) -> Number {
    match (a, b) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Number::Decimal(a.to_decimal().div(b.to_decimal()))
        }
        _ => Number::Double(a.to_f64() / b.to_f64()),
    }
}

/// Where a document stands on the axis; dates where there is a unit, else numbers.
fn axis(at: usize, unit_ms: Option<i64>, name: &str, scene: &mut Scene<'_>) -> Result<Number> {
    match (scene.place(at)?, unit_ms) {
        ((Some(place), true), Some(_)) | ((Some(place), false), None) => Ok(place),
        (_, Some(_)) => Err(Error::location(
            5624900,
            format!("{name} with 'unit' expects the sortBy field to be a Date"),
        )),
        (_, None) => Err(Error::location(
            5624901,
            format!("{name} (with no 'unit') expects the sortBy field to be numeric"),
        )),
    }
}

fn height(
    input: &Expression,
    at: usize,
    refused: (i32, &str),
    scene: &mut Scene<'_>,
) -> Result<Option<Number>> {
    match scene.evaluate(input, at)? {
        None | Some(RawBson::Null | RawBson::Undefined) => Ok(None),
        Some(value) => match Number::from_bson(value.as_raw_bson_ref()) {
            Some(number) => Ok(Some(number)),
            None => Err(Error::location(refused.0, refused.1)),
        },
    }
}

fn derivative(
    input: &Expression,
    unit_ms: Option<i64>,
    window: WindowRange,
    scene: &mut Scene<'_>,
) -> Result<RawBson> {
    if window.from == window.to {
        return Ok(RawBson::Null);
    }
    let (left, right) = (window.from, window.to - 1);
    let x1 = axis(left, unit_ms, "$derivative", scene)?;
    let x2 = axis(right, unit_ms, "$derivative", scene)?;
    let refused = (5624903, "$derivative input must not evaluate to a non-numeric value");
    let y1 = height(input, left, refused, scene)?;
    let y2 = height(input, right, refused, scene)?;
    let (Some(y1), Some(y2), false) = (y1, y2, x2.sub(x1).is_zero()) else {
        return Ok(RawBson::Null);
    };
    let slope = divide(y2.sub(y1), x2.sub(x1));
    Ok(unit_ms.map_or(slope, |unit| slope.mul(Number::Long(unit))).to_bson())
}

fn point(
    input: &Expression,
    unit_ms: Option<i64>,
    at: usize,
    scene: &mut Scene<'_>,
) -> Result<Option<(Number, Number)>> {
    let refused = (5423900, "$integral input must not evaluate to a non-numeric value");
    let Some(y) = height(input, at, refused, scene)? else { return Ok(None) };
    Ok(Some((axis(at, unit_ms, "$integral", scene)?, y)))
}

fn trapezoid(a: (Number, Number), b: (Number, Number), unit_ms: Option<i64>) -> Number {
    let twice = a.1.add(b.1).mul(b.0.sub(a.0));
    let area = divide(twice, Number::Int(2));
    unit_ms.map_or(area, |unit| divide(area, Number::Long(unit)))
}

fn moving(before: Number, number: Number, alpha: Number) -> Number {
    if let (Number::Decimal(_), _) | (_, Number::Decimal(_)) = (before, number) {
        let alpha = alpha.to_decimal();
        let rest = Decimal::from_i64(1).sub(alpha);
        let sum = number.to_decimal().mul(alpha).add(before.to_decimal().mul(rest));
        return Number::Decimal(sum);
    }
    let alpha = alpha.to_f64();
    Number::Double(number.to_f64() * alpha + before.to_f64() * (1.0 - alpha))
}

fn linear(
    input: &Expression,
    at: usize,
    left: &mut Option<(Number, Number)>,
    right: &mut Option<(usize, Number, Number)>,
    ended: &mut bool,
    scene: &mut Scene<'_>,
) -> Result<RawBson> {
    let refused = (605002, "Value to be filled must be numeric or nullish");
    let place = |at, scene: &mut Scene<'_>| -> Result<Number> {
        scene.place(at)?.0.ok_or_else(|| {
            Error::location(605003, "$linearFill expects the sortBy field to be numeric or a Date")
        })
    };
    let x = place(at, scene)?;
    if at > 0 && place(at - 1, scene)?.sub(x).is_zero() {
        return Err(Error::location(6050106, "There can be no repeated values in the sort field"));
    }
    if let Some(y) = height(input, at, refused, scene)? {
        *left = Some((x, y));
        return Ok(y.to_bson());
    }
    // The right neighbour serves every gap before it.
    if !*ended && right.is_none_or(|(known, ..)| known < at) {
        *right = None;
        for next in at + 1..scene.partition.len() {
            if let Some(y) = height(input, next, refused, scene)? {
                *right = Some((next, place(next, scene)?, y));
                break;
            }
        }
        *ended = right.is_none();
    }
    let (Some((x1, y1)), Some((_, x2, y2)), false) = (*left, *right, *ended) else {
        return Ok(RawBson::Null);
    };
    let slope = divide(y2.sub(y1), x2.sub(x1));
    Ok(y1.add(slope.mul(x.sub(x1))).to_bson())
}

fn read_pair(
    pair: &[Expression; 2],
    document: &RawDocument,
    variables: &Variables,
) -> Result<Option<(Number, Number)>> {
    let number = |expression: &Expression| -> Result<Option<Number>> {
        let value = expression.evaluate(document, variables)?;
        Ok(Number::from_bson(value.get().unwrap_or(RawBsonRef::Null)))
    };
    let [x, y] = pair;
    Ok(number(x)?.zip(number(y)?))
}

/// Means and the sum of products of deviations, updated one pair at a time.
#[derive(Default)]
struct Pairs {
    /// Pairs of finite numbers.
    count: u64,
    mean_x: WindowSum,
    mean_y: WindowSum,
    /// Of the finite pairs; for each other pair the infinity or NaN that it makes of the sum.
    products: WindowSum,
}

impl Pairs {
    fn add(&mut self, (x, y): (Number, Number)) {
        if let Some(infinite) = infinite_product(x, y) {
            self.products.add(infinite);
            return;
        }
        self.count += 1;
        let before = self.mean_x.average();
        self.mean_x.add(x);
        self.mean_y.add(y);
        if let (Some(mean_x), Some(mean_y)) = (before, self.mean_y.average()) {
            self.products.add(x.sub(mean_x).mul(y.sub(mean_y)));
        }
    }

    fn remove(&mut self, (x, y): (Number, Number)) {
        if let Some(infinite) = infinite_product(x, y) {
            self.products.remove(infinite);
            return;
        }
        self.count = self.count.saturating_sub(1);
        self.mean_x.remove(x);
        if let (Some(mean_x), Some(mean_y)) = (self.mean_x.average(), self.mean_y.average()) {
            self.products.remove(x.sub(mean_x).mul(y.sub(mean_y)));
        }
        self.mean_y.remove(y);
    }

    fn covariance(&self, sample: bool) -> Option<Number> {
        let degrees = self.count.saturating_sub(u64::from(sample));
        if degrees == 0 {
            return None;
        }
        if self.count == 1 {
            return Some(Number::Double(0.0));
        }
        Some(match self.products.total() {
            total @ Number::Decimal(_) => divide(total, Number::Double(degrees as f64)),
            total => Number::Double(total.to_f64() / degrees as f64),
        })
    }
}

/// What a pair that holds an infinity or NaN makes of a sum of products; `None` of finite pairs.
fn infinite_product(x: Number, y: Number) -> Option<Number> {
    let pair = [x, y];
    let any = |above: bool| pair.iter().any(|n| n.is_infinite() && (n.to_f64() > 0.0) == above);
    let (up, down) = (any(true), any(false));
    let result = match (pair.iter().any(|n| n.is_nan()), up, down) {
        (false, false, false) => return None,
        (false, true, false) => f64::INFINITY,
        (false, false, true) => f64::NEG_INFINITY,
        _ => f64::NAN,
    };
    let decimal = pair.iter().any(|n| matches!(n, Number::Decimal(_)));
    Some(if decimal { Number::Decimal(Decimal::from_f64(result)) } else { Number::Double(result) })
}
