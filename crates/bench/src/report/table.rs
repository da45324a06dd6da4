//! The table for a terminal: a line for each phase and server, the ratios, the operations.

use crate::figures::{PhaseFigures, Report, ServerFigures, median};
use std::fmt::Write;

/// What is not told by a server.
const UNKNOWN: &str = "-";

/// Everything as text.
pub(crate) fn table(report: &Report) -> String {
    let mut out = format!("{}: {}\n{}\n", report.experiment, report.question, report.command);
    for server in &report.servers {
        let _ = writeln!(out, "{}: {} at {}", server.server, server.product, server.hosts);
    }
    out.push('\n');
    out += &columns(&phases(report));
    out.push('\n');
    out += &columns(&operations(report));
    if let [ours, theirs] = report.servers.as_slice() {
        let _ = writeln!(out, "\n{} against {}, as ratios:", ours.server, theirs.server);
        out += &columns(&ratios(ours, theirs));
    }
    out
}

/// A line for each phase, below the head.
pub(crate) fn phases(report: &Report) -> Vec<Vec<String>> {
    let two = report.servers.len() > 1;
    let mut rows = vec![words(
        "phase|rate /s||p50 µs|p95 µs|p99 µs|max µs|worst/median|undisturbed|last/first tenth|exit /s|\
         cpu µs each|written B each|read B each|resident MB|disk MB|disk B each",
    )];
    for at in 0..report.servers.first().map_or(0, |server| server.phases.len()) {
        for server in &report.servers {
            let Some(phase) = server.phases.get(at) else { continue };
            let name = if two {
                format!("{} ({})", phase.phase, server.server)
            } else {
                phase.phase.clone()
            };
            rows.push(line(name, phase));
        }
    }
    rows
}

fn line(name: String, phase: &PhaseFigures) -> Vec<String> {
    let (latency, steady) = (&phase.latency, phase.steadiness);
    let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    vec![
        name,
        whole(phase.units_per_s),
        phase.unit.to_owned(),
        latency.p50_us.to_string(),
        latency.p95_us.to_string(),
        latency.p99_us.to_string(),
        latency.max_us.to_string(),
        or_unknown(steady.worst(), |part| format!("{part:.2}")),
        or_unknown(steady.undisturbed_worst(), |part| format!("{part:.2}")),
        or_unknown(steady.kept(), |part| format!("{part:.2}")),
        or_unknown(steady.exit, whole),
        or_unknown(phase.cpu_us_per_unit, |micros| format!("{micros:.1}")),
        or_unknown(phase.written_bytes_per_unit, whole),
        or_unknown(phase.read_bytes_per_unit, whole),
        or_unknown(phase.resident_bytes, |bytes| (bytes >> 20).to_string()),
        or_unknown(phase.disk_bytes, megabytes),
        or_unknown(phase.disk_bytes_per_unit, |bytes| format!("{bytes:.1}")),
    ]
}

/// Every kind of operation of the shown phases that have more than one.
pub(crate) fn operations(report: &Report) -> Vec<Vec<String>> {
    let mut rows = vec![words("operation|server|times|mean µs|p50 µs|p95 µs|p99 µs|max µs")];
    for server in &report.servers {
        for phase in server.phases.iter().filter(|phase| phase.operations.len() > 1) {
            for (name, latency) in &phase.operations {
                rows.push(vec![
                    format!("{}: {name}", phase.phase),
                    server.server.to_owned(),
                    latency.operations.to_string(),
                    format!("{:.1}", latency.mean_us),
                    latency.p50_us.to_string(),
                    latency.p95_us.to_string(),
                    latency.p99_us.to_string(),
                    latency.max_us.to_string(),
                ]);
            }
        }
    }
    rows
}

/// The first server's figures divided by the second's.
pub(crate) fn ratios(ours: &ServerFigures, theirs: &ServerFigures) -> Vec<Vec<String>> {
    let mut rows = vec![words("phase|rate|p50|p99|cpu each|written each|read each|disk")];
    for (one, other) in ours.phases.iter().zip(&theirs.phases) {
        let pairs = turns(ours, one).into_iter().zip(turns(theirs, other));
        let pairs: Vec<(&PhaseFigures, &PhaseFigures)> = pairs.collect();
        let ratio = |of: fn(&PhaseFigures) -> Option<f64>| {
            let both = pairs.iter().filter_map(|(one, other)| of(one).zip(of(other)));
            let each = both.filter(|(_, other)| *other > 0.0).map(|(one, other)| one / other);
            told(each.collect())
        };
        rows.push(vec![
            one.phase.clone(),
            ratio(|p| Some(p.units_per_s)),
            ratio(|p| Some(p.latency.p50_us as f64)),
            ratio(|p| Some(p.latency.p99_us as f64)),
            ratio(|p| p.cpu_us_per_unit),
            ratio(|p| p.written_bytes_per_unit),
            ratio(|p| p.read_bytes_per_unit),
            ratio(|p| p.disk_bytes.map(|bytes| bytes as f64)),
        ]);
    }
    rows
}

/// A phase in each of its rounds.
fn turns<'a>(server: &'a ServerFigures, phase: &'a PhaseFigures) -> Vec<&'a PhaseFigures> {
    if server.rounds.is_empty() {
        return vec![phase];
    }
    server.rounds.iter().filter(|round| round.phase == phase.phase).collect()
}

/// The median of the ratios of the rounds, with the least and the most where there are several.
fn told(ratios: Vec<f64>) -> String {
    let span = ratios.iter().copied().fold(None, |span, ratio| {
        let (least, most): (f64, f64) = span.unwrap_or((ratio, ratio));
        Some((least.min(ratio), most.max(ratio)))
    });
    let spread = span.filter(|_| ratios.len() > 1);
    let spread = spread.map(|(least, most)| format!(" ({} to {})", times(least), times(most)));
    or_unknown(median(ratios), |ratio| times(ratio) + spread.as_deref().unwrap_or_default())
}

/// Two digits at the least, whatever the size.
fn times(ratio: f64) -> String {
    match ratio {
        100.0.. => whole(ratio),
        0.1.. => format!("{ratio:.2}"),
        0.01.. => format!("{ratio:.3}"),
        0.001.. => format!("{ratio:.4}"),
        _ => format!("{ratio:.1e}"),
    }
}

fn words(line: &str) -> Vec<String> {
    line.split('|').map(|word| word.trim().to_owned()).collect()
}

fn whole(number: f64) -> String {
    format!("{number:.0}")
}

pub(crate) fn or_unknown<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), show)
}

/// Columns as wide as they must be, the first aligned left. A head alone is nothing.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    if rows.len() < 2 {
        return String::new();
    }
    let mut widths = vec![0; rows.iter().map(Vec::len).max().unwrap_or(0)];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let padding = " ".repeat(width - cell.chars().count());
            let written = match at {
                0 => write!(line, "{cell}{padding}"),
                _ => write!(line, "  {padding}{cell}"),
            };
            written.expect("a String takes everything");
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_ratios_are_told_by_the_one_in_the_middle() {
        assert_eq!(told(vec![1.1, 0.9, 1.0, 7.0, 0.95]), "1.00 (0.90 to 7.00)");
        assert_eq!(told(vec![0.5]), "0.50");
        assert_eq!(told(Vec::new()), UNKNOWN);
    }

    #[test]
    fn ratios_keep_two_digits() {
        let shown = [1234.5, 7.456, 0.1, 0.0789, 0.00123, 0.0000456].map(times);
        assert_eq!(shown, ["1234", "7.46", "0.10", "0.079", "0.0012", "4.6e-5"]);
    }
}
