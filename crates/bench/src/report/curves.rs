//! Curves: a table of each for the terminal, a file of JSON and a picture of each, and a page of them all in Markdown.
//!
//! Always true: the page shows every curve that the directory has a file of, so that one curve can be measured again,
//! or on a server with another cache, without the others.

mod growth;
mod picture;

use super::table::{columns, or_unknown};
use crate::experiments::Curve;
use crate::figures::{Machine, PhaseFigures, Report};
use crate::phase::Allowed;
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

/// The shape of a curve's file.
const FORMAT: u32 = 1;

/// Fewer operations than this tell no processor time: what asks for it costs as much.
const MIN_UNITS: u64 = 100;
/// And no p99.
const MIN_TIMES: u64 = 20;

/// One curve; `NAME.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CurveFigures {
    format: u32,
    curve: String,
    /// What it counts.
    counts: String,
    /// When the run began, in UTC.
    started: String,
    command: String,
    machine: String,
    product: String,
    cache_bytes: Option<u64>,
    operations: Vec<Line>,
}

/// One kind of operation along a curve.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    operation: String,
    allowed: Allowed,
    points: Vec<LinePoint>,
}

#[derive(Debug, Serialize, Deserialize)]
struct LinePoint {
    at: u64,
    clients: usize,
    units: u64,
    units_per_s: f64,
    /// The server's processor time for one.
    cpu_us: Option<f64>,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
    /// Threads of the server while it was measured.
    threads: Option<u64>,
    /// What the server's memory grew by for one that stays open.
    held_bytes: Option<f64>,
}

/// The curves that were measured.
pub(crate) fn of(report: &Report) -> Vec<CurveFigures> {
    let Some(server) = report.servers.first() else { return Vec::new() };
    let Machine { processor, cores, memory_bytes } = &report.machine;
    let mut curves: Vec<CurveFigures> = Vec::new();
    for phase in &server.phases {
        let Some(point) = phase.point else { continue };
        if curves.last().is_none_or(|curve| curve.curve != point.curve) {
            let known = Curve::value_variants().iter().find(|known| known.name() == point.curve);
            curves.push(CurveFigures {
                format: FORMAT,
                curve: point.curve.to_owned(),
                counts: known.map(|known| known.counts()).unwrap_or_default(),
                started: report.started.clone(),
                command: report.command.clone(),
                machine: format!("{processor}, {cores} cores, {} GB", memory_bytes / 1_000_000_000),
                product: server.product.clone(),
                cache_bytes: server.cache_limit_bytes,
                operations: Vec::new(),
            });
        }
        let Some(curve) = curves.last_mut() else { continue };
        curve.line(point.operation, point.allowed).points.push(LinePoint::of(phase, point.at));
    }
    // The largest may have been measured first.
    for line in curves.iter_mut().flat_map(|curve| &mut curve.operations) {
        line.points.sort_by_key(|point| point.at);
    }
    curves
}

impl CurveFigures {
    fn line(&mut self, operation: &str, allowed: Allowed) -> &mut Line {
        let known = self.operations.iter().position(|line| line.operation == operation);
        let at = known.unwrap_or_else(|| {
            let (operation, points) = (operation.to_owned(), Vec::new());
            self.operations.push(Line { operation, allowed, points });
            self.operations.len() - 1
        });
        &mut self.operations[at]
    }

    /// The places of all points, ascending.
    fn places(&self) -> Vec<u64> {
        let points = self.operations.iter().flat_map(|line| &line.points);
        points.map(|point| point.at).collect::<BTreeSet<u64>>().into_iter().collect()
    }

    fn about(&self) -> String {
        let cache = self.cache_bytes.map(|bytes| format!(", a cache of {} MB", bytes >> 20));
        let cache = cache.unwrap_or_default();
        format!("{} UTC, {}{cache}, clients on {}", self.started, self.product, self.machine)
    }

    /// A row for each kind of operation and what is told of it, below the head.
    fn rows(&self) -> Vec<Vec<String>> {
        let places = self.places();
        let mut head = vec![self.curve.clone()];
        head.extend(places.iter().map(|at| thousands(*at)));
        head.extend(["grows as".to_owned(), String::new()]);
        let mut rows = vec![head];
        let mut add = |name: String, values: Vec<Option<String>>, ends: [String; 2]| {
            if values.iter().any(Option::is_some) {
                let cells = values.into_iter().map(|value| value.unwrap_or_else(unknown));
                rows.push([name].into_iter().chain(cells).chain(ends).collect());
            }
        };
        for line in &self.operations {
            let exponent = line.growth(|point| point.cpu_us);
            let ends = [or_unknown(exponent, power), line.judgement(exponent).to_owned()];
            let cpu = line.cells(&places, |point| point.cpu_us.map(tenth));
            add(format!("{}: CPU µs", line.operation), cpu, ends);
        }
        for line in &self.operations {
            let exponent = line.growth(|point| point.p99_us.map(|us| us as f64));
            let ends = [or_unknown(exponent, power), String::new()];
            let p99 = line.cells(&places, |point| point.p99_us.map(thousands));
            add(format!("{}: p99 µs", line.operation), p99, ends);
        }
        for line in &self.operations {
            let held = |point: &LinePoint| point.held_bytes.map(|bytes| thousands(bytes as u64));
            let held = line.cells(&places, held);
            add(format!("{}: memory B", line.operation), held, [String::new(), String::new()]);
        }
        let threads = |at: &u64| {
            let points = self.operations.iter().flat_map(|line| &line.points);
            points.filter(|point| point.at == *at).filter_map(|point| point.threads).max()
        };
        let threads = places.iter().map(|at| threads(at).map(thousands)).collect();
        add("threads of the server".to_owned(), threads, [String::new(), String::new()]);
        rows
    }
}

impl Line {
    /// A cell for each place, empty where this line has no point.
    fn cells(
        &self,
        places: &[u64],
        tell: impl Fn(&LinePoint) -> Option<String>,
    ) -> Vec<Option<String>> {
        let at = |place: &u64| self.points.iter().find(|point| point.at == *place);
        places.iter().map(|place| at(place).and_then(&tell)).collect()
    }

    fn growth(&self, tell: impl Fn(&LinePoint) -> Option<f64>) -> Option<f64> {
        let points = self.points.iter().filter_map(|p| tell(p).map(|cost| (p.at as f64, cost)));
        growth::exponent(&points.collect::<Vec<_>>())
    }

    fn judgement(&self, exponent: Option<f64>) -> &'static str {
        match exponent.map(|exponent| growth::is_allowed(exponent, self.allowed)) {
            None => "",
            Some(true) => "as it may",
            Some(false) => "STEEPER",
        }
    }
}

impl LinePoint {
    fn of(phase: &PhaseFigures, at: u64) -> Self {
        let latency = &phase.latency;
        let is_timed = latency.operations >= MIN_TIMES;
        let is_held = phase.point.is_some_and(|point| point.is_held);
        let is_told = phase.units >= MIN_UNITS;
        Self {
            at,
            clients: phase.clients,
            units: phase.units,
            units_per_s: phase.units_per_s,
            cpu_us: phase.cpu_us_per_unit.filter(|_| is_told),
            p50_us: is_timed.then_some(latency.p50_us),
            p99_us: is_timed.then_some(latency.p99_us),
            threads: phase.threads,
            held_bytes: phase.resident_bytes_per_unit.filter(|_| is_held && is_told),
        }
    }
}

/// The tables of all curves.
pub(crate) fn text(curves: &[CurveFigures]) -> String {
    let mut out = String::new();
    for curve in curves {
        let _ = writeln!(out, "{}: {}\n{}", curve.curve, curve.counts, curve.about());
        out += &columns(&curve.rows());
        out.push('\n');
    }
    out
}

/// Writes a file and a picture of each curve into `out`, and the page of all that are there.
pub(crate) fn write(curves: &[CurveFigures], out: &Path) -> Result<()> {
    std::fs::create_dir_all(out)?;
    for curve in curves {
        let name = &curve.curve;
        std::fs::write(out.join(format!("{name}.json")), serde_json::to_vec_pretty(curve)?)?;
        std::fs::write(out.join(format!("{name}.svg")), picture::draw(curve)?)?;
    }
    let mut all = Vec::new();
    for known in Curve::value_variants() {
        let path = out.join(format!("{}.json", known.name()));
        if path.exists() {
            let curve = read(&path).with_context(|| path.display().to_string())?;
            all.push(curve);
        }
    }
    std::fs::write(out.join("README.md"), page(&all))?;
    Ok(())
}

fn read(path: &Path) -> Result<CurveFigures> {
    let curve: CurveFigures = serde_json::from_slice(&std::fs::read(path)?)?;
    ensure!(curve.format == FORMAT, "it has the format {}, not {FORMAT}", curve.format);
    Ok(curve)
}

const PREFACE: &str = "\
# How cost grows

Made by `fern bench curves`; how to read it is in the manual, \"How cost grows\". Processor time is the server's, with its
background work, for one operation; a p99 is what a client waited, and the clients share the server's processors.
\"Grows as\" is the power of the number in the head that the last three points follow: n^0.0 does not grow, n^1.0 grows in
proportion. STEEPER stands where n operations beside n of what the curve counts cost more than n log n, or, where every
operation has so many bytes or keys to write or read, where one costs more than in proportion to them.
";

fn page(curves: &[CurveFigures]) -> String {
    let mut out = PREFACE.to_owned();
    for curve in curves {
        let name = &curve.curve;
        let _ = write!(out, "\n## {name}\n\n{}. {}.\n\n", curve.counts, curve.about());
        let _ = write!(out, "`{}`\n\n![{name}]({name}.svg)\n\n", curve.command);
        for (at, row) in curve.rows().iter().enumerate() {
            let _ = writeln!(out, "| {} |", row.join(" | "));
            if at == 0 {
                let _ = writeln!(out, "|---{}|", "|--:".repeat(row.len() - 1));
            }
        }
    }
    out
}

fn unknown() -> String {
    or_unknown(None::<u64>, thousands)
}

fn power(exponent: f64) -> String {
    // no minus before a zero
    format!("n^{:.1}", (exponent * 10.0).round() / 10.0 + 0.0)
}

fn tenth(number: f64) -> String {
    if number < 1000.0 { format!("{number:.1}") } else { thousands(number.round() as u64) }
}

/// `10,000`.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests;
