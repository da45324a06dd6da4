//! The list of accumulators, and how those are parsed that share their states.

use crate::accumulator::state::State;
use crate::accumulator::{AccumulatorSpec, ranked, window};
use crate::agg::{Expression, Merger, ParseContext, Spread, parse_fields};
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument};
use bsonval::number::Sum;
use bsonval::sort::SortPattern;
use errors::{Error, Result};
use keystring::Direction;
use ranked::Ranked;
use std::cmp::Ordering;
use std::collections::VecDeque;
use window::{Pick, WindowSum};

/// An accumulator's row.
#[derive(Debug)]
pub(crate) struct Operator {
    pub(crate) name: &'static str,
    /// Whether windows have it too.
    pub(crate) in_windows: bool,
    pub(crate) feed: Feed,
    /// Reads what stands behind the name.
    pub(crate) parse: Parse,
    /// The states it shares with others; `None` where its parser gives it its own.
    pub(crate) shared: Option<Shared>,
}

type Parse = fn(&'static Operator, RawBsonRef<'_>, &ParseContext) -> Result<AccumulatorSpec>;

/// What an accumulator takes in of each document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Feed {
    /// The value of its input.
    Value,
    /// Each element of that, which must be a list.
    Elements,
}

/// How the states of a group and of a window begin, for so many values as are kept.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) start: fn(usize) -> State,
    pub(crate) start_window: fn(usize) -> window::State,
}

const fn row(
    name: &'static str,
    parse: Parse,
    start: fn(usize) -> State,
    start_window: fn(usize) -> window::State,
) -> Operator {
    let shared = Some(Shared { start, start_window });
    Operator { name, in_windows: true, feed: Feed::Value, parse, shared }
}

const fn of_elements(mut row: Operator) -> Operator {
    row.feed = Feed::Elements;
    row
}

/// What `$count` and `$sortByCount` are made of, too.
pub(crate) static SUM: Operator = SUM_ROW;

const SUM_ROW: Operator = row(
    "$sum",
    parse_operand,
    |_| State::Sum(Sum::default()),
    |_| window::State::Sum(WindowSum::default(), VecDeque::new()),
);

/// Every accumulator there is.
pub(crate) static OPERATORS: &[Operator] = &[
    SUM_ROW,
    row(
        "$avg",
        parse_operand,
        |_| State::Avg(Sum::default(), 0),
        |_| window::State::Avg(WindowSum::default(), VecDeque::new()),
    ),
    row(
        "$min",
        parse_operand,
        |_| State::Extreme(Ordering::Less, None),
        |_| window::ranked_by_value(Direction::Ascending, Pick::First),
    ),
    row(
        "$max",
        parse_operand,
        |_| State::Extreme(Ordering::Greater, None),
        |_| window::ranked_by_value(Direction::Descending, Pick::First),
    ),
    row("$first", parse_operand, |_| State::First(None), |_| window::list(Pick::First)),
    row("$last", parse_operand, |_| State::Last(None), |_| window::list(Pick::Last)),
    row("$push", parse_operand, |_| State::Push(RawArrayBuf::new()), |_| window::list(Pick::All)),
    of_elements(row(
        "$concatArrays",
        parse_operand,
        |_| State::Push(RawArrayBuf::new()),
        |_| window::list(Pick::Joined),
    )),
    row("$addToSet", parse_operand, |_| State::set(), |_| window::set()),
    of_elements(row("$setUnion", parse_operand, |_| State::set(), |_| window::set())),
    row(
        "$stdDevPop",
        parse_operand,
        |_| State::StdDev(Spread::default(), 0),
        |_| window::deviation(0),
    ),
    row(
        "$stdDevSamp",
        parse_operand,
        |_| State::StdDev(Spread::default(), 1),
        |_| window::deviation(1),
    ),
    row("$count", parse_count, |_| State::Count(0), |_| window::State::Count(0)),
    row(
        "$mergeObjects",
        parse_operand,
        |_| State::Merge(Merger::default()),
        |_| window::list(Pick::Merged),
    ),
    row("$firstN", parse_n, |n| State::FirstN(n, Vec::new(), 0), |n| window::list(Pick::FirstN(n))),
    row(
        "$lastN",
        parse_n,
        |n| State::LastN(n, VecDeque::new(), 0),
        |n| window::list(Pick::LastN(n)),
    ),
    row(
        "$minN",
        parse_n,
        |n| State::RankedByValue(Ranked::new(n, false), Direction::Ascending),
        |n| window::ranked_by_value(Direction::Ascending, Pick::FirstN(n)),
    ),
    row(
        "$maxN",
        parse_n,
        |n| State::RankedByValue(Ranked::new(n, false), Direction::Descending),
        |n| window::ranked_by_value(Direction::Descending, Pick::FirstN(n)),
    ),
    row(
        "$top",
        parse_sorted,
        |_| State::Ranked(Ranked::new(1, false), false),
        |_| window::ranked(Pick::First),
    ),
    row(
        "$bottom",
        parse_sorted,
        |_| State::Ranked(Ranked::new(1, true), false),
        |_| window::ranked(Pick::Last),
    ),
    row(
        "$topN",
        parse_sorted,
        |n| State::Ranked(Ranked::new(n, false), true),
        |n| window::ranked(Pick::FirstN(n)),
    ),
    row(
        "$bottomN",
        parse_sorted,
        |n| State::Ranked(Ranked::new(n, true), true),
        |n| window::ranked(Pick::LastN(n)),
    ),
    super::percentile::MEDIAN,
    super::percentile::PERCENTILE,
    super::scripted::ACCUMULATOR,
];

/// The one operand of a plain accumulator; an array must hold exactly one.
fn parse_operand(
    operator: &'static Operator,
    value: RawBsonRef<'_>,
    ctx: &ParseContext,
) -> Result<AccumulatorSpec> {
    let plain = |input| Ok(AccumulatorSpec::plain(operator, Expression::parse(input, ctx)?));
    let RawBsonRef::Array(array) = value else {
        return plain(value);
    };
    let mut elements = array.into_iter();
    match (elements.next(), elements.next()) {
        (Some(only), None) => plain(only?),
        _ => Err(Error::location(
            40237,
            format!("The {} accumulator is a unary operator", operator.name),
        )),
    }
}

fn parse_count(
    operator: &'static Operator,
    value: RawBsonRef<'_>,
    _: &ParseContext,
) -> Result<AccumulatorSpec> {
    match value {
        RawBsonRef::Document(document) if document.is_empty() => {
            Ok(AccumulatorSpec::plain(operator, Expression::constant(RawBson::Int32(1))))
        }
        _ => Err(Error::type_mismatch("$count takes no arguments, i.e. $count:{}".to_owned())),
    }
}

/// The object that an operator with several arguments takes.
fn specification<'a>(name: &str, value: RawBsonRef<'a>, code: i32) -> Result<&'a RawDocument> {
    let RawBsonRef::Document(document) = value else {
        let found = crate::agg::value_to_string(value);
        let text = format!("specification must be an object; found {name}: {found}");
        return Err(Error::location(code, text));
    };
    Ok(document)
}

fn parse_n(
    operator: &'static Operator,
    value: RawBsonRef<'_>,
    ctx: &ParseContext,
) -> Result<AccumulatorSpec> {
    let name = operator.name;
    let document = specification(name, value, 5787900)?;
    let [n, input] = parse_fields(document, ["n", "input"], |other| {
        Error::location(5787901, format!("Unknown argument for 'n' operator: {other}"))
    })?;
    let n = n.ok_or_else(|| Error::location(5787906, "Missing value for 'n'"))?;
    let input = input.ok_or_else(|| Error::location(5787907, "Missing value for 'input'"))?;
    let mut spec = AccumulatorSpec::plain(operator, Expression::parse(input, ctx)?);
    spec.n = Some(Expression::parse(n, ctx)?.optimize());
    Ok(spec)
}

fn parse_sorted(
    operator: &'static Operator,
    value: RawBsonRef<'_>,
    ctx: &ParseContext,
) -> Result<AccumulatorSpec> {
    let name = operator.name;
    let document = specification(name, value, 5788001)?;
    let [n, sort, output] = parse_fields(document, ["n", "sortBy", "output"], |other| {
        Error::location(5788002, format!("Unknown argument to {name} '{other}'"))
    })?;
    let counted = name.ends_with('N');
    let n = match (counted, n) {
        (true, None) => return Err(Error::location(5788003, "Missing value for 'n'")),
        (false, Some(_)) => {
            return Err(Error::location(5788002, format!("Unknown argument to {name} 'n'")));
        }
        (_, n) => n,
    };
    let output = output.ok_or_else(|| Error::location(5788004, "Missing value for 'output'"))?;
    let sort = sort.ok_or_else(|| Error::location(5788005, "Missing value for 'sortBy'"))?;
    let RawBsonRef::Document(pattern) = sort else {
        return Err(Error::location(
            5788604,
            format!("expected 'sortBy' to already be an object in the arguments to {name}"),
        ));
    };
    let mut spec = AccumulatorSpec::plain(operator, Expression::parse(output, ctx)?);
    spec.sort = Some(SortPattern::parse(pattern)?);
    spec.n = n.map(|n| Expression::parse(n, ctx).map(Expression::optimize)).transpose()?;
    Ok(spec)
}
