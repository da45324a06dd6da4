//! Phases that were run several times: their medians.
//!
//! Always true: each figure is a median by itself, so that a disturbed round moves none of them. What is no figure
//! (the operations by their kinds, the evenness) is of the round whose rate is the median.

use super::{Latency, PhaseFigures, ServerFigures};

impl ServerFigures {
    /// With the medians as its phases, and the phases as its rounds.
    pub(crate) fn of_rounds(mut self) -> Self {
        let rounds = std::mem::take(&mut self.phases);
        let mut names: Vec<&str> = Vec::new();
        for phase in &rounds {
            if !names.contains(&phase.phase.as_str()) {
                names.push(&phase.phase);
            }
        }
        let of = |name: &&str| {
            let of: Vec<&PhaseFigures> = rounds.iter().filter(|p| p.phase == *name).collect();
            PhaseFigures::median_of(&of)
        };
        self.phases = names.iter().filter_map(of).collect();
        self.rounds = rounds;
        self
    }
}

impl PhaseFigures {
    /// The medians of one phase; none of no rounds.
    fn median_of(rounds: &[&Self]) -> Option<Self> {
        let mut sorted = rounds.to_vec();
        sorted.sort_by(|one, other| one.units_per_s.total_cmp(&other.units_per_s));
        let middle = (*sorted.get(sorted.len() / 2)?).clone();
        let part = |of: fn(&Self) -> Option<f64>| {
            median(rounds.iter().filter_map(|round| of(round)).collect())
        };
        let whole = |of: fn(&Self) -> Option<u64>| {
            let told = rounds.iter().filter_map(|round| of(round)).map(|figure| figure as f64);
            median(told.collect()).map(|figure| figure as u64)
        };
        let micros = |of: fn(&Latency) -> u64| {
            let told = rounds.iter().map(|round| of(&round.latency) as f64);
            median(told.collect()).map_or(0, |figure| figure as u64)
        };
        Some(Self {
            latency: Latency {
                mean_us: part(|round| Some(round.latency.mean_us)).unwrap_or_default(),
                p50_us: micros(|latency| latency.p50_us),
                p95_us: micros(|latency| latency.p95_us),
                p99_us: micros(|latency| latency.p99_us),
                max_us: micros(|latency| latency.max_us),
                ..middle.latency
            },
            cpu_us_per_unit: part(|round| round.cpu_us_per_unit),
            read_bytes_per_unit: part(|round| round.read_bytes_per_unit),
            written_bytes_per_unit: part(|round| round.written_bytes_per_unit),
            cache_misses_per_unit: part(|round| round.cache_misses_per_unit),
            resident_bytes: whole(|round| round.resident_bytes),
            disk_bytes: whole(|round| round.disk_bytes),
            disk_bytes_per_unit: part(|round| round.disk_bytes_per_unit),
            checkpoints: whole(|round| round.checkpoints),
            threads: whole(|round| round.threads),
            resident_bytes_per_unit: part(|round| round.resident_bytes_per_unit),
            ..middle
        })
    }
}

/// The one in the middle; of an even number, the higher of the two.
pub(crate) fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Steadiness;
    use std::collections::BTreeMap;

    fn round(name: &str, rate: f64, cpu_us: f64, p99_us: u64) -> PhaseFigures {
        PhaseFigures {
            phase: name.to_owned(),
            unit: "operations",
            clients: 1,
            shown: true,
            seconds: 1.0,
            units: rate as u64,
            units_per_s: rate,
            latency: Latency {
                operations: 10,
                units: 10,
                mean_us: 5.0,
                p50_us: 4,
                p95_us: 6,
                p99_us,
                max_us: 9,
            },
            operations: BTreeMap::new(),
            steadiness: Steadiness::default(),
            cpu_us_per_unit: Some(cpu_us),
            read_bytes_per_unit: None,
            written_bytes_per_unit: None,
            cache_misses_per_unit: None,
            resident_bytes: Some(7),
            disk_bytes: None,
            disk_bytes_per_unit: None,
            checkpoints: None,
            threads: None,
            resident_bytes_per_unit: None,
            point: None,
        }
    }

    #[test]
    fn each_figure_is_the_median_of_its_rounds() {
        let server = ServerFigures {
            server: "server",
            hosts: String::new(),
            product: String::new(),
            cache_limit_bytes: None,
            phases: vec![
                round("load", 1.0, 1.0, 1),
                round("ping", 100.0, 20.0, 900),
                round("find", 50.0, 40.0, 50),
                round("ping", 300.0, 10.0, 500),
                round("find", 60.0, 41.0, 60),
                round("ping", 200.0, 90.0, 700),
                round("find", 10.0, 99.0, 70),
            ],
            rounds: Vec::new(),
            seconds: Vec::new(),
        };
        let told = server.of_rounds();
        let line = |phase: &PhaseFigures| {
            let (cpu_us, p99_us) = (phase.cpu_us_per_unit, phase.latency.p99_us);
            (phase.phase.clone(), phase.units_per_s, cpu_us, p99_us)
        };
        let lines: Vec<_> = told.phases.iter().map(line).collect();
        assert_eq!(
            lines,
            [
                ("load".to_owned(), 1.0, Some(1.0), 1),
                ("ping".to_owned(), 200.0, Some(20.0), 700),
                ("find".to_owned(), 50.0, Some(41.0), 60)
            ]
        );
        assert_eq!(told.rounds.len(), 7);
        assert_eq!(told.phases[1].resident_bytes, Some(7));
    }
}
