//! A history in, anomalies out.

use crate::graph::{Cycles, Graph, Step, Why};
use crate::history::{Anomaly, Level, Op, RecordedTxn, TxnOutcome};
use crate::versions::Versions;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// One anomaly, and who is in it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its kind.
    pub anomaly: Anomaly,
    /// The transactions, by their place in the history.
    pub txns: Vec<usize>,
    /// What was seen, for a reader.
    pub text: String,
}

/// What a check found.
#[derive(Debug, Default)]
pub struct Report {
    /// Transactions that are known to have happened.
    pub happened: usize,
    /// Those that were taken back.
    pub aborted: usize,
    /// Those nobody knows of, and nobody saw.
    pub unknown: usize,
    /// Reads and writes in those that happened.
    pub operations: usize,
    /// Everything odd, whether the promised level forbids it or not.
    pub findings: Vec<Finding>,
}

impl Report {
    /// What the promised level forbids.
    pub fn forbidden(&self, level: Level) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| level.forbids(finding.anomaly))
    }

    /// How often each anomaly was found.
    pub fn counts(&self) -> BTreeMap<Anomaly, usize> {
        let mut counts = BTreeMap::new();
        for finding in &self.findings {
            *counts.entry(finding.anomaly).or_default() += 1;
        }
        counts
    }
}

/// Checks a history.
///
/// # Panics
/// Where two operations write one value to one key: the history's maker is wrong.
pub fn check(history: &[RecordedTxn]) -> Report {
    let mut versions = Versions::of(history);
    let graph = Graph::of(history, &versions);
    let mut findings = std::mem::take(&mut versions.findings);
    let mut known: BTreeSet<Vec<usize>> = BTreeSet::new();
    for kind in [Cycles::WithoutRw, Cycles::WithoutAdjacentRw, Cycles::All] {
        for cycle in graph.cycles(kind) {
            let txns: Vec<usize> = cycle.iter().map(|(from, ..)| *from).collect();
            let mut sorted = txns.clone();
            sorted.sort_unstable();
            if known.insert(sorted) {
                let text = explain(history, &cycle);
                findings.push(Finding { anomaly: name(&cycle), txns, text });
            }
        }
    }
    let happened = versions.happened.iter().filter(|happened| **happened).count();
    let aborted = history.iter().filter(|txn| txn.outcome == TxnOutcome::Aborted).count();
    let of_happened = history.iter().zip(&versions.happened).filter(|(_, happened)| **happened);
    Report {
        happened,
        aborted,
        unknown: history.len() - happened - aborted,
        operations: of_happened.map(|(txn, _)| txn.ops.len()).sum(),
        findings,
    }
}

fn name(cycle: &[Step]) -> Anomaly {
    let rw = cycle.iter().filter(|(_, why, _)| why.is_rw()).count();
    let after = cycle.iter().cycle().skip(1);
    let adjacent =
        cycle.iter().zip(after).any(|((_, one, _), (_, two, _))| one.is_rw() && two.is_rw());
    match rw {
        0 if cycle.iter().all(|(_, why, _)| matches!(why, Why::Ww(_))) => Anomaly::WriteCycle,
        0 => Anomaly::CircularInformationFlow,
        1 => Anomaly::ReadSkew,
        _ if adjacent => Anomaly::WriteSkew,
        _ => Anomaly::NonAdjacent,
    }
}

fn explain(history: &[RecordedTxn], cycle: &[Step]) -> String {
    let mut text = String::new();
    for (from, why, to) in cycle {
        let _ = match why {
            Why::Ww(object) => writeln!(text, "T{to} wrote {object:?} right after T{from}"),
            Why::Wr(object) => writeln!(text, "T{to} read of {object:?} what T{from} wrote"),
            Why::Rw(object) => writeln!(text, "T{to} replaced of {object:?} what T{from} read"),
            Why::Time => writeln!(text, "T{to} began after T{from} had ended"),
        };
    }
    for (at, ..) in cycle {
        let RecordedTxn { client, begin, end, outcome, ops } = &history[*at];
        let _ = writeln!(text, "T{at}: client {client}, {begin}..{end} us, {outcome:?}");
        for op in ops {
            let _ = match op {
                Op::ReadList { key, seen } if seen.len() > 8 => {
                    let tail = &seen[seen.len() - 8..];
                    writeln!(text, "    ReadList {key}: {} values, …{tail:?}", seen.len())
                }
                op => writeln!(text, "    {op:?}"),
            };
        }
    }
    text
}

#[cfg(test)]
mod tests;
