//! A day of trade candles, as one of the seeds' users tested: about 270 bytes each, one simple index
//! and two compound ones; queries on 200 random tickers, 10 random intervals of time over all
//! tickers, and the whole day. Each class is a phase of its own, so that its CPU and the bytes it
//! reads are its own.

use super::find::{Ask, Finds};
use super::load::Load;
use super::{EPOCH_MS, indexes, text};
use crate::options::Options;
use crate::phase::{End, Phase};
use mongodb::bson::{DateTime, Document, RawDocumentBuf, doc, rawdoc};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

const COLLECTION: &str = "candles";
/// Candles of a ticker in the day: one every five minutes for eight hours and twenty minutes.
const DAY: u64 = 100;
const STEP_MS: i64 = 5 * 60 * 1000;
/// Tickers that are asked for, and intervals.
const ASKED: u64 = 200;
const INTERVALS: u64 = 10;

pub(super) fn phases(options: &Options) -> Vec<Phase> {
    let docs = options.docs_or(200_000);
    let tickers = docs.div_ceil(DAY);
    let load = Load {
        collection: COLLECTION,
        docs,
        batch: options.batch_or(1000),
        loaders: options.client_or(1),
        make: Arc::new(move |n, rng| candle(n, tickers, rng)),
    };
    let keys = [
        doc! { "time": 1 },
        doc! { "ticker": 1, "time": 1 },
        doc! { "exchange": 1, "ticker": 1, "time": -1 },
    ];
    let mut phases = vec![load.phase().after(vec![indexes(COLLECTION, &keys)])];
    let classes: [(&'static str, &'static str, AskOf); 5] = [
        ("last candle", "queries", last),
        ("ticker's hour", "queries", hour),
        ("ticker's day", "queries", day),
        ("interval", "queries", interval),
        ("whole day", "documents", whole),
    ];
    let share = options.share(classes.len());
    for (class, unit, ask) in classes {
        let seed = options.seed;
        let asked = TickData { docs, tickers, seed };
        let finds = Finds {
            collection: COLLECTION,
            class,
            round: phases.len() as u64,
            count_documents: unit == "documents",
            ask: Arc::new(move |rng| ask(asked, rng)),
        };
        let end = End::Seconds(share);
        phases.push(Phase::new(class, unit, options.client_or(1), end, finds.client()));
    }
    phases
}

type AskOf = fn(TickData, &mut ChaCha8Rng) -> Ask;

/// The data that the queries ask for.
#[derive(Clone, Copy)]
struct TickData {
    docs: u64,
    tickers: u64,
    seed: u64,
}

impl TickData {
    /// One of the 200 tickers of this seed.
    fn ticker(self, rng: &mut ChaCha8Rng) -> u64 {
        let one = rng.random_range(0..ASKED);
        let mut chosen = crate::phase::chance(self.seed, u64::MAX - one);
        chosen.random_range(0..self.tickers)
    }

    /// Candles a ticker has.
    fn candles(self, ticker: u64) -> u64 {
        self.docs / self.tickers + u64::from(ticker < self.docs % self.tickers)
    }
}

fn at(step: u64) -> DateTime {
    DateTime::from_millis(EPOCH_MS + step as i64 * STEP_MS)
}

fn name(ticker: u64) -> String {
    format!("T{ticker:05}")
}

fn between(from: u64, to: u64) -> Document {
    doc! { "$gte": at(from), "$lt": at(to) }
}

fn last(asked: TickData, rng: &mut ChaCha8Rng) -> Ask {
    let filter = doc! { "ticker": name(asked.ticker(rng)) };
    Ask { filter, sort: Some(doc! { "time": -1 }), limit: Some(1), at_least: 1 }
}

fn hour(asked: TickData, rng: &mut ChaCha8Rng) -> Ask {
    let ticker = asked.ticker(rng);
    let candles = asked.candles(ticker);
    let from = rng.random_range(0..candles.saturating_sub(12).max(1));
    let filter = doc! { "ticker": name(ticker), "time": between(from, from + 12) };
    Ask { filter, sort: Some(doc! { "time": 1 }), at_least: candles.min(12), ..Ask::default() }
}

fn day(asked: TickData, rng: &mut ChaCha8Rng) -> Ask {
    let ticker = asked.ticker(rng);
    let filter = doc! { "ticker": name(ticker), "time": between(0, DAY) };
    Ask { filter, at_least: asked.candles(ticker), ..Ask::default() }
}

/// Ten minutes of every ticker, at one of ten moments.
fn interval(asked: TickData, rng: &mut ChaCha8Rng) -> Ask {
    let one = rng.random_range(0..INTERVALS);
    let mut chosen = crate::phase::chance(asked.seed, u64::MAX - ASKED - one);
    let from = chosen.random_range(0..(asked.docs / asked.tickers).saturating_sub(2).max(1));
    let at_least = asked.docs.min(asked.tickers);
    Ask { filter: doc! { "time": between(from, from + 2) }, at_least, ..Ask::default() }
}

fn whole(asked: TickData, _rng: &mut ChaCha8Rng) -> Ask {
    Ask { at_least: asked.docs, ..Ask::default() }
}

/// Candle `n`: the tickers in turn, then the next moment.
pub(super) fn candle(n: u64, tickers: u64, rng: &mut ChaCha8Rng) -> RawDocumentBuf {
    let (ticker, step) = (n % tickers, n / tickers);
    let open = f64::from(rng.random_range(100..100_000)) / 100.0;
    let mut near = || (open * f64::from(rng.random_range(980..1020)) / 10.0).round() / 100.0;
    let (high, low, close, average) = (near(), near(), near(), near());
    rawdoc! {
        "_id": n as i64,
        "ticker": name(ticker),
        "exchange": format!("X{}", ticker % 7),
        "time": at(step),
        "open": open,
        "high": high,
        "low": low,
        "close": close,
        "average": average,
        "volume": rng.random_range(1..1_000_000_i64),
        "trades": rng.random_range(1..5000),
        "seconds": STEP_MS as i32 / 1000,
        "source": text(rng, 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candle_has_the_size_of_the_seeds() {
        let candle = candle(123_456, 14_000, &mut crate::phase::chance(1, 1));
        let bytes = candle.as_bytes().len();
        assert!((240..=280).contains(&bytes), "{bytes}");
    }

    #[test]
    fn what_is_asked_for_is_there() {
        let asked = TickData { docs: 1000, tickers: 10, seed: 1 };
        let mut rng = crate::phase::chance(1, 7);
        for _ in 0..1000 {
            assert!(asked.ticker(&mut rng) < 10);
            assert_eq!(hour(asked, &mut rng).at_least, 12);
            assert_eq!(interval(asked, &mut rng).at_least, 10);
        }
    }
}
