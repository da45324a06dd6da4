//! How the cost of an operation grows: with the connections, the collections, the indexes, the size of a document, the
//! open snapshots, the versions of a document, and the data beside the cache.
//!
//! A curve is a list of points. A point is a phase for each kind of operation, behind phases that bring the server
//! there: connections that are opened, collections that are made, snapshots that are held. What they leave open is in
//! [`Kept`](crate::phase::Kept).
//!
//! Always true: each point of a curve has the same operations, clients and seconds as the others, but for what the
//! curve is about.

mod collections;
mod connections;
mod data;
mod history;
mod indexes;
mod prepare;
mod size;
mod snapshots;
mod work;

use crate::options::Options;
use crate::phase::{Allowed, End, Phase, Point};
use anyhow::{Context, Result};
use clap::ValueEnum;
use mongodb::bson::{Document, doc};
use std::cell::Cell;
use work::{Make, worker};

/// One of the curves, in the order in which they are run: what leaves the most data behind comes last.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Curve {
    /// Clients that work at once, each on a connection of its own.
    Connections,
    /// Collections, each with an index.
    Collections,
    /// Indexes of a collection beside that of `_id`.
    Indexes,
    /// Bytes of a document.
    Size,
    /// Snapshots that transactions hold open.
    Snapshots,
    /// Versions of each document that an open snapshot keeps.
    History,
    /// Bytes of documents, as multiples of the server's cache.
    Data,
}

impl Curve {
    /// Its name on the command line, in files and tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Collections => "collections",
            Self::Indexes => "indexes",
            Self::Size => "size",
            Self::Snapshots => "snapshots",
            Self::History => "history",
            Self::Data => "data",
        }
    }

    /// What it counts.
    pub(crate) fn counts(self) -> String {
        let help = self.to_possible_value().and_then(|value| value.get_help().cloned());
        help.map(|help| help.to_string()).unwrap_or_default()
    }

    fn phases(self, plan: &Plan) -> Result<Vec<Phase>> {
        Ok(match self {
            Self::Connections => connections::phases(plan),
            Self::Collections => collections::phases(plan),
            Self::Indexes => indexes::phases(plan),
            Self::Size => size::phases(plan),
            Self::Snapshots => snapshots::phases(plan),
            Self::History => history::phases(plan),
            Self::Data => return data::phases(plan),
        })
    }
}

/// Clients of the points that are not about clients.
const CLIENTS: usize = 4;

/// What all points have in common.
struct Plan {
    clients: usize,
    is_quick: bool,
    cache_bytes: Option<u64>,
    /// Phases planned, which have streams of chance and `_id`s of their own.
    rounds: Cell<u64>,
}

/// All points of the curves that are asked for, each with its share of the seconds.
pub(super) fn phases(options: &Options, cache_bytes: Option<u64>) -> Result<Vec<Phase>> {
    let plan = Plan {
        clients: options.client_or(CLIENTS),
        is_quick: options.quick,
        cache_bytes,
        rounds: Cell::new(1),
    };
    let mut phases = Vec::new();
    for curve in chosen(options) {
        let points = curve.phases(&plan).with_context(|| format!("curve `{}`", curve.name()))?;
        phases.extend(points);
    }
    let timed = |phase: &Phase| matches!(phase.end, End::Seconds(_));
    let share = options.share(phases.iter().filter(|phase| timed(phase)).count());
    for phase in phases.iter_mut().filter(|phase| timed(phase)) {
        phase.end = End::Seconds(share);
    }
    Ok(phases)
}

/// The curves that are asked for, in their order.
fn chosen(options: &Options) -> impl Iterator<Item = Curve> {
    let is_asked = |curve: &Curve| options.only.is_empty() || options.only.contains(curve);
    Curve::value_variants().iter().copied().filter(is_asked)
}

impl Plan {
    /// Where a curve is measured; in a quick run not beyond a bound.
    fn points(&self, all: &[u64], most_if_quick: u64) -> Vec<u64> {
        let is_wanted = |at: &u64| !self.is_quick || *at <= most_if_quick;
        all.iter().copied().filter(is_wanted).collect()
    }

    fn round(&self) -> u64 {
        let round = self.rounds.get();
        self.rounds.set(round + 1);
        round
    }

    /// An operation at a point, by the usual number of clients.
    fn measure(&self, point: Point, make: impl Make) -> Phase {
        self.measure_with(point, self.clients, make)
    }

    fn measure_with(&self, point: Point, clients: usize, make: impl Make) -> Phase {
        let client = worker(self.round(), point.operation, make);
        // Each timed phase is given its share of the seconds when all of them are known.
        Phase::new(name(point), "operations", clients, End::Seconds(1.0), client).at(point)
    }
}

/// A phase's name.
fn name(point: Point) -> String {
    format!("{} {}: {}", point.curve, point.at, point.operation)
}

/// A point of a curve that nothing makes grow.
fn point(curve: Curve, at: u64, operation: &'static str) -> Point {
    Point { curve: curve.name(), operation, at, allowed: Allowed::Logarithm, is_held: false }
}

/// One whose operation makes something that stays.
fn held(curve: Curve, at: u64, operation: &'static str) -> Point {
    Point { is_held: true, ..point(curve, at, operation) }
}

/// One where each operation writes or reads so many bytes or keys.
fn proportional(curve: Curve, at: u64, operation: &'static str) -> Point {
    Point { allowed: Allowed::Proportion, ..point(curve, at, operation) }
}

/// Commands that make an empty collection, where an earlier point may have left one.
fn fresh(collection: &str, is_first: bool) -> Vec<Document> {
    let create = doc! { "create": collection };
    if is_first { vec![create] } else { vec![doc! { "drop": collection }, create] }
}

#[cfg(test)]
mod tests;
