//! The row of figures that the history keeps of each second.
//!
//! Always true: names are those of `serverStatus` with dots, and `engine.` before the keys of
//! `engineStatus`; `latency.*` are of the commands that ended since the row before. Taking a row
//! counts as no command.

use super::engine_status::{Facts, Figure};
use super::server_status::{self, Shape};
use crate::service::Service;
use bson::{RawBsonRef, RawDocument};
use dispatch::writer::Writer;
use history::Number;
use serverstate::metrics::CLASSES;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use telemetry::{Histogram, HistogramSnapshot};

/// Takes a row a second.
pub struct Sampler {
    service: Arc<Service>,
    before: [HistogramSnapshot; 3],
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler").finish_non_exhaustive()
    }
}

impl Sampler {
    /// Latencies count from now.
    pub fn new(service: &Arc<Service>) -> Self {
        let before = service.metrics.latencies.each_ref().map(Histogram::snapshot);
        Self { service: Arc::clone(service), before }
    }

    /// The figures now.
    pub fn take(&mut self) -> Vec<(String, Number)> {
        let mut row = Vec::with_capacity(400);
        let mut writer = Writer::new();
        // `ft` says again what stands under the engine's keys.
        let wants = |name: &str| (name == "ft").then_some(false);
        server_status::write(&self.service, &mut writer, wants, Shape::default(), 1);
        let mut place = String::new();
        flatten(&writer.finish(), &mut place, &mut row);
        for (key, figure) in Facts::gather(&self.service).all() {
            let number = match figure {
                Figure::Count(n) | Figure::Bytes(n) => Number::Whole(n as i64),
                Figure::Seconds(n) | Figure::Ratio(n) => Number::Real(n),
                Figure::Moment(at) => Number::Whole(at),
                Figure::Text(_) => continue,
            };
            row.push((format!("engine.{key}"), number));
        }
        for runs in &self.service.metrics.runs {
            let total = runs.total.load(Relaxed);
            if total > 0 {
                let name = format!("metrics.commands.{}.total", runs.command);
                row.push((name, Number::Whole(total as i64)));
            }
        }
        self.latencies(&mut row);
        row
    }

    fn latencies(&mut self, row: &mut Vec<(String, Number)>) {
        let now = self.service.metrics.latencies.each_ref().map(Histogram::snapshot);
        for ((class, now), before) in CLASSES.iter().zip(&now).zip(&self.before) {
            let since = now.since(before);
            for (name, value) in [
                ("count", since.count),
                ("p50Micros", since.p50),
                ("p99Micros", since.p99),
                ("maxMicros", since.max),
            ] {
                row.push((format!("latency.{class}.{name}"), Number::Whole(value as i64)));
            }
        }
        self.before = now;
    }
}

/// The numbers of a document under dotted names.
fn flatten(document: &RawDocument, place: &mut String, row: &mut Vec<(String, Number)>) {
    for (key, value) in document.iter().map_while(Result::ok) {
        // Most commands are never used; those that are come by themselves.
        if place == "metrics" && key.as_str() == "commands" {
            continue;
        }
        let length = place.len();
        if !place.is_empty() {
            place.push('.');
        }
        place.push_str(key.as_str());
        let number = match value {
            RawBsonRef::Document(inner) => {
                flatten(inner, place, row);
                None
            }
            RawBsonRef::Int32(n) => Some(Number::Whole(i64::from(n))),
            RawBsonRef::Int64(n) => Some(Number::Whole(n)),
            RawBsonRef::Double(n) => Some(Number::Real(n)),
            _ => None,
        };
        row.extend(number.map(|number| (place.clone(), number)));
        place.truncate(length);
    }
}
