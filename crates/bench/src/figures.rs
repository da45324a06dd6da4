//! What a run comes to: rows of seconds, a line for each phase, and all of it as JSON.

use crate::meter::Tally;
use crate::phase::{Phase, Point};
use crate::status::Status;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;

mod rounds;
pub(crate) use rounds::median;

/// A second of a server's life.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Second {
    pub(crate) server: &'static str,
    pub(crate) phase: String,
    /// Seconds since the start in which this server was at work; turns of the other are left out.
    pub(crate) at_s: f64,
    pub(crate) length_s: f64,
    pub(crate) units: u64,
    pub(crate) operations: u64,
    pub(crate) units_per_s: f64,
    pub(crate) p50_us: Option<u64>,
    pub(crate) p95_us: Option<u64>,
    pub(crate) p99_us: Option<u64>,
    pub(crate) max_us: Option<u64>,
    /// Processors' worth of time that the server used.
    pub(crate) cpu_cores: Option<f64>,
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) cache_bytes: Option<u64>,
    pub(crate) cache_misses: Option<u64>,
    pub(crate) read_bytes: Option<u64>,
    pub(crate) written_bytes: Option<u64>,
    pub(crate) disk_bytes: Option<u64>,
    /// Checkpoints that ended in it.
    pub(crate) checkpoints: Option<u64>,
    pub(crate) threads: Option<u64>,
    /// The share of the clients' machine that its hypervisor gave to others.
    pub(crate) stolen: f64,
}

/// Latencies of one kind of operation.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) operations: u64,
    pub(crate) units: u64,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: u64,
    pub(crate) p95_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) max_us: u64,
}

impl Latency {
    pub(crate) fn of(micros: &Histogram<u64>, units: u64) -> Self {
        Self {
            operations: micros.len(),
            units,
            mean_us: micros.mean(),
            p50_us: micros.value_at_quantile(0.5),
            p95_us: micros.value_at_quantile(0.95),
            p99_us: micros.value_at_quantile(0.99),
            max_us: micros.max(),
        }
    }
}

/// A phase on one server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PhaseFigures {
    pub(crate) phase: String,
    /// What is counted.
    pub(crate) unit: &'static str,
    pub(crate) clients: usize,
    pub(crate) shown: bool,
    pub(crate) seconds: f64,
    pub(crate) units: u64,
    pub(crate) units_per_s: f64,
    /// Of the counted operations.
    pub(crate) latency: Latency,
    /// Of every kind of operation.
    pub(crate) operations: BTreeMap<&'static str, Latency>,
    pub(crate) steadiness: Steadiness,
    /// The server's processor time per unit, background work included.
    pub(crate) cpu_us_per_unit: Option<f64>,
    pub(crate) read_bytes_per_unit: Option<f64>,
    pub(crate) written_bytes_per_unit: Option<f64>,
    pub(crate) cache_misses_per_unit: Option<f64>,
    /// The most that was seen.
    pub(crate) resident_bytes: Option<u64>,
    /// At its end.
    pub(crate) disk_bytes: Option<u64>,
    /// What it grew by; absent where it shrank.
    pub(crate) disk_bytes_per_unit: Option<f64>,
    pub(crate) checkpoints: Option<u64>,
    /// The most that were seen.
    pub(crate) threads: Option<u64>,
    /// What the process grew by; absent where it shrank.
    pub(crate) resident_bytes_per_unit: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) point: Option<Point>,
}

/// How even the rate was, from whole seconds after the warm-up that was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Steadiness {
    /// Units per second in the median second.
    pub(crate) median_second: Option<f64>,
    /// Units per second in the slowest one.
    pub(crate) worst_second: Option<f64>,
    /// The same of the seconds that the hypervisor left alone; absent where those are not the most.
    pub(crate) undisturbed_median_second: Option<f64>,
    pub(crate) undisturbed_worst_second: Option<f64>,
    /// The rate of the first tenth of the seconds; without a warm-up, after a twentieth of them.
    pub(crate) first_tenth: Option<f64>,
    pub(crate) last_tenth: Option<f64>,
    /// The rate over the last twentieth of the units: iiBench's exit throughput.
    pub(crate) exit: Option<f64>,
}

/// Rates of seconds that were too short to tell one are left out.
const SHORTEST_S: f64 = 0.5;
/// Seconds with a larger share of steal time say nothing of the server and are left out.
const MAX_STEAL_SHARE: f64 = 0.05;

impl Steadiness {
    pub(crate) fn of(seconds: &[Second], warm_up_s: f64) -> Self {
        let mut passed_s = 0.0;
        let warm = seconds.iter().filter(|second| {
            passed_s += second.length_s;
            passed_s - second.length_s >= warm_up_s
        });
        let whole: Vec<&Second> = warm.filter(|s| s.length_s >= SHORTEST_S).collect();
        if whole.is_empty() {
            return Self::default();
        }
        let rates: Vec<f64> = whole.iter().map(|s| s.units_per_s).collect();
        let tenth = (rates.len() / 10).max(1);
        let cold = if warm_up_s > 0.0 { 0 } else { (rates.len() / 20).min(rates.len() - tenth) };
        let mean = |part: &[f64]| Some(part.iter().sum::<f64>() / part.len() as f64);
        let (first, last) = (mean(&rates[cold..cold + tenth]), mean(&rates[rates.len() - tenth..]));
        let all: u64 = whole.iter().map(|s| s.units).sum();
        let (mut units, mut time) = (0, 0.0);
        for second in whole.iter().rev() {
            if units * 20 >= all && time > 0.0 {
                break;
            }
            units += second.units;
            time += second.length_s;
        }
        let own = whole.iter().filter(|s| s.stolen <= MAX_STEAL_SHARE).map(|s| s.units_per_s);
        let undisturbed = Some(median_and_worst(own.collect()));
        let undisturbed = undisturbed.filter(|(count, ..)| *count * 2 > whole.len());
        let (_, median, worst) = median_and_worst(rates);
        Self {
            median_second: Some(median),
            worst_second: Some(worst),
            undisturbed_median_second: undisturbed.map(|(_, median, _)| median),
            undisturbed_worst_second: undisturbed.map(|(.., worst)| worst),
            first_tenth: first,
            last_tenth: last,
            exit: Some(units as f64 / time),
        }
    }

    /// The worst second as a part of the median one.
    pub(crate) fn worst(&self) -> Option<f64> {
        part_of(self.worst_second, self.median_second)
    }

    /// The same of the seconds that the hypervisor left alone.
    pub(crate) fn undisturbed_worst(&self) -> Option<f64> {
        part_of(self.undisturbed_worst_second, self.undisturbed_median_second)
    }

    /// What is left of the rate at the end.
    pub(crate) fn kept(&self) -> Option<f64> {
        part_of(self.last_tenth, self.first_tenth)
    }
}

/// Absent where there was no whole.
fn part_of(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    part.zip(whole).filter(|(_, whole)| *whole > 0.0).map(|(part, whole)| part / whole)
}

/// How many rates there are, the one in the middle, the least.
fn median_and_worst(mut rates: Vec<f64>) -> (usize, f64, f64) {
    rates.sort_by(f64::total_cmp);
    let at = |place: usize| rates.get(place).copied().unwrap_or_default();
    (rates.len(), at(rates.len() / 2), at(0))
}

/// What a phase's line is made of.
pub(crate) struct Measured<'a> {
    pub(crate) tally: &'a Tally,
    pub(crate) seconds: &'a [Second],
    pub(crate) active_s: f64,
    pub(crate) warm_up_s: f64,
    pub(crate) before: Status,
    pub(crate) after: Status,
}

impl PhaseFigures {
    pub(crate) fn of(phase: &Phase, measured: &Measured<'_>) -> Self {
        let Measured { tally, seconds, active_s, warm_up_s, before, after } = measured;
        let units = tally.units(phase.counted);
        let grown = |what: fn(&Status) -> Option<u64>| {
            what(after).zip(what(before)).map(|(after, before)| after.saturating_sub(before))
        };
        let per_unit = |what: fn(&Status) -> Option<u64>| {
            grown(what).filter(|_| units > 0).map(|grown| grown as f64 / units as f64)
        };
        let latencies = tally
            .classes
            .iter()
            .map(|(name, class)| (*name, Latency::of(&class.micros, class.units)))
            .collect();
        Self {
            phase: phase.name.clone(),
            unit: phase.unit,
            clients: phase.clients,
            shown: phase.shown,
            seconds: *active_s,
            units,
            units_per_s: units as f64 / active_s.max(1e-9),
            latency: Latency::of(&tally.micros(phase.counted), units),
            operations: latencies,
            steadiness: Steadiness::of(seconds, *warm_up_s),
            cpu_us_per_unit: per_unit(|status| status.cpu_us),
            read_bytes_per_unit: per_unit(|status| status.read_bytes),
            written_bytes_per_unit: per_unit(|status| status.written_bytes),
            cache_misses_per_unit: per_unit(|status| status.cache_misses),
            resident_bytes: seconds.iter().filter_map(|s| s.resident_bytes).max(),
            disk_bytes: after.disk_bytes,
            disk_bytes_per_unit: per_unit(|status| status.disk_bytes).filter(|bytes| *bytes > 0.0),
            checkpoints: grown(|status| status.checkpoints),
            threads: seconds.iter().filter_map(|s| s.threads).max(),
            resident_bytes_per_unit: per_unit(|status| status.resident_bytes)
                .filter(|bytes| *bytes > 0.0),
            point: phase.point,
        }
    }
}

/// A server, and how it did.
#[derive(Debug, Serialize)]
pub(crate) struct ServerFigures {
    /// `server`, or `vs` for the second.
    pub(crate) server: &'static str,
    /// Hosts and ports; never a password.
    pub(crate) hosts: String,
    pub(crate) product: String,
    pub(crate) cache_limit_bytes: Option<u64>,
    /// Of several rounds, the medians.
    pub(crate) phases: Vec<PhaseFigures>,
    /// The phases as they were run, where there were several rounds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) rounds: Vec<PhaseFigures>,
    #[serde(skip)]
    pub(crate) seconds: Vec<Second>,
}

/// The machine the clients ran on.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
}

impl Machine {
    pub(crate) fn this() -> Self {
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
        let model =
            model.map_or(std::env::consts::ARCH, |rest| rest.trim_matches([' ', '\t', ':']));
        Self {
            processor: model.to_owned(),
            cores: os::cpu_count(),
            memory_bytes: os::memory().usable(),
        }
    }
}

/// A whole run; `report.json`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The shape of this document.
    pub(crate) format: u32,
    pub(crate) experiment: String,
    pub(crate) question: String,
    /// When it began, in UTC.
    pub(crate) started: String,
    /// The command line's words, connection strings left out.
    pub(crate) command: String,
    pub(crate) seed: u64,
    pub(crate) machine: Machine,
    pub(crate) servers: Vec<ServerFigures>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(rates: &[u64]) -> Vec<Second> {
        let one = |(at, rate): (usize, &u64)| Second {
            server: "server",
            phase: "insert".to_owned(),
            at_s: at as f64,
            length_s: 1.0,
            units: *rate,
            operations: *rate,
            units_per_s: *rate as f64,
            p50_us: None,
            p95_us: None,
            p99_us: None,
            max_us: None,
            cpu_cores: None,
            resident_bytes: None,
            cache_bytes: None,
            cache_misses: None,
            read_bytes: None,
            written_bytes: None,
            disk_bytes: None,
            checkpoints: None,
            threads: None,
            stolen: 0.0,
        };
        rates.iter().enumerate().map(one).collect()
    }

    #[test]
    fn a_rate_that_halves_shows_at_the_end() {
        let mut rates = vec![1000; 20];
        rates.extend(vec![500; 20]);
        let steady = Steadiness::of(&seconds(&rates), 0.0);
        assert_eq!(steady.first_tenth, Some(1000.0));
        assert_eq!((steady.last_tenth, steady.exit), (Some(500.0), Some(500.0)));
        assert_eq!((steady.kept(), steady.worst()), (Some(0.5), Some(0.5)));
    }

    #[test]
    fn a_warm_up_is_not_judged() {
        let mut rates = vec![4000; 4];
        rates.extend(vec![1000; 20]);
        let rows = seconds(&rates);
        assert_eq!(Steadiness::of(&rows, 0.0).kept(), Some(0.25));
        let steady = Steadiness::of(&rows, 4.0);
        assert_eq!((steady.kept(), steady.worst()), (Some(1.0), Some(1.0)));
        assert_eq!(Steadiness::of(&rows, 60.0), Steadiness::default());
    }

    #[test]
    fn a_dip_that_the_hypervisor_made_is_told_apart() {
        let mut rows = seconds(&[100, 100, 30, 80, 100]);
        rows[2].stolen = 0.4;
        let steady = Steadiness::of(&rows, 0.0);
        assert_eq!((steady.worst(), steady.undisturbed_worst()), (Some(0.3), Some(0.8)));
        for row in &mut rows {
            row.stolen = 0.1;
        }
        assert_eq!(
            Steadiness::of(&rows, 0.0).undisturbed_worst(),
            None,
            "there is nothing to go by"
        );
    }

    #[test]
    fn a_dip_is_the_worst_second_and_a_stump_of_one_is_not() {
        let mut rows = seconds(&[100, 100, 30, 100, 1]);
        rows[4].length_s = 0.01;
        let steady = Steadiness::of(&rows, 0.0);
        assert_eq!(steady.worst(), Some(0.3));
        assert_eq!(Steadiness::of(&rows[4..], 0.0), Steadiness::default());
        assert_eq!(Steadiness::of(&[], 0.0).kept(), None);
    }
}
