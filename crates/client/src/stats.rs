//! `fern stats`: a running server's figures in the terminal, a second at a time.
//!
//! Everything is read by `serverHistory`, so that what was before the start is seen at once, and a
//! server that was restarted is drawn as it was. What is always true: what the server does not say is
//! a gap, not a zero; a server that does not answer is asked again each second. Of a member of a set the
//! screen has the set's members, too.

mod members;

use crate::server::connect;
use anyhow::{Context, Result};
use bench::Login;
use bson::{Bson, DateTime, Document, doc};
use mongodb::sync::Database;
use os::Os;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// How `fern stats` was called.
#[derive(Debug, clap::Args)]
pub struct StatsOptions {
    /// The server; where it has a password in it, better by the environment variable `FERN_URI`,
    /// which other users of the machine do not see.
    pub uri: Option<String>,
    /// As whom to log in.
    #[command(flatten)]
    pub login: Login,
    /// A line a second, as `mongostat` writes them; by itself where the output is no terminal.
    #[arg(long)]
    pub lines: bool,
    /// How far the pictures reach back, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(10..=86_400))]
    pub back: u32,
    /// End after so many seconds.
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
}

/// How a figure is made from what the history holds.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// As it is.
    Value,
    /// How much it grew in a second.
    Rate,
}

/// A line of the view: its title, unit, way, factor, and the names that are added up.
struct Figure(&'static str, &'static str, Way, f64, &'static [&'static str]);

use Way::{Rate, Value};

const FIGURES: &[(&str, &[Figure])] = &[
    (
        "operations",
        &[
            Figure("insert", "/s", Rate, 1.0, &["opcounters.insert"]),
            Figure("query", "/s", Rate, 1.0, &["opcounters.query"]),
            Figure("update", "/s", Rate, 1.0, &["opcounters.update"]),
            Figure("delete", "/s", Rate, 1.0, &["opcounters.delete"]),
            Figure("getmore", "/s", Rate, 1.0, &["opcounters.getmore"]),
            Figure("command", "/s", Rate, 1.0, &["opcounters.command"]),
            Figure("reads, 99 % below", "ms", Value, 1e-3, &["latency.reads.p99Micros"]),
            Figure("writes, 99 % below", "ms", Value, 1e-3, &["latency.writes.p99Micros"]),
        ],
    ),
    (
        "cache",
        &[
            Figure("in memory", "B", Value, 1.0, &["engine.CT_SIZE_CURRENT"]),
            Figure("hits", "/s", Rate, 1.0, &["engine.FERN_CACHE_HITS"]),
            Figure("misses", "/s", Rate, 1.0, &["engine.CT_MISS"]),
            Figure("evictions", "/s", Rate, 1.0, &["engine.CT_EVICTIONS"]),
            Figure("prefetches", "/s", Rate, 1.0, &["engine.CT_PREFETCHES"]),
        ],
    ),
    (
        "disk",
        &[
            Figure("written", "B/s", Rate, 1.0, &["engine.FERN_WRITTEN_BYTES"]),
            Figure("log", "B/s", Rate, 1.0, &["engine.LOGGER_BYTES_WRITTEN"]),
            Figure("fsyncs", "/s", Rate, 1.0, &["engine.FS_FSYNC_COUNT"]),
            Figure("flush debt", "B", Value, 1.0, &["engine.FERN_MEMTABLE_BYTES"]),
            Figure("writers slowed", "ms/s", Rate, 1e-3, &["engine.CT_WAIT_PRESSURE_TIME"]),
            Figure(
                "last checkpoint",
                "s",
                Value,
                1.0,
                &["engine.CP_TIME_CHECKPOINT_DURATION_LAST"],
            ),
        ],
    ),
    (
        "clients",
        &[
            Figure("connections", "", Value, 1.0, &["connections.current"]),
            Figure("lock waits", "", Value, 1.0, &["engine.LTM_LOCK_REQUESTS_PENDING"]),
            Figure("in", "B/s", Rate, 1.0, &["network.bytesIn"]),
            Figure("out", "B/s", Rate, 1.0, &["network.bytesOut"]),
            Figure(
                "processor",
                "%",
                Rate,
                1e-4,
                &["extra_info.user_time_us", "extra_info.system_time_us"],
            ),
            Figure("resident", "B", Value, 1_048_576.0, &["mem.resident"]),
        ],
    ),
];

/// The figures of the form with a line a second, by their titles.
const LINE: &[&str] = &[
    "insert",
    "query",
    "update",
    "delete",
    "getmore",
    "command",
    "misses",
    "written",
    "fsyncs",
    "connections",
    "lock waits",
    "processor",
    "resident",
];

/// Shows figures until it is stopped.
///
/// # Errors
/// Where the address is none, or the output cannot be written.
pub fn run(os: &Os, asked: &StatsOptions) -> Result<()> {
    let (client, shown_uri) = connect(asked.uri.as_deref(), &asked.login)?;
    let server = client.database("admin");
    let lines = asked.lines || !std::io::stdout().is_terminal();
    let mut shown = 0;
    loop {
        let text = match read(&server, asked.back) {
            Ok(history) if lines => history.line(shown % 20 == 0),
            Ok(history) => history.screen(&shown_uri) + &members::screen(&server),
            Err(error) if lines => format!("no answer: {error:#}\n"),
            Err(error) => format!("\x1b[H\x1b[2J{shown_uri}: no answer: {error:#}\n"),
        };
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // A reader that closes the pipe has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            result => result?,
        }
        drop(out);
        shown += 1;
        if asked.seconds.is_some_and(|seconds| shown >= seconds) {
            return Ok(());
        }
        os.clock.sleep(Duration::from_secs(1));
    }
}

fn read(server: &Database, back: u32) -> Result<History> {
    let names: Vec<&str> = FIGURES
        .iter()
        .flat_map(|(_, figures)| figures.iter())
        .flat_map(|figure| figure.4.iter().copied())
        .collect();
    let newest = server.run_command(doc! { "serverHistory": 1 }).run()?;
    let newest = newest.get_datetime("newest").context("the server has no history yet")?;
    let back_ms = i64::from(back) * 1000;
    let from = DateTime::from_millis(newest.timestamp_millis() - back_ms);
    let step = i64::from(back.div_ceil(WIDTH as u32));
    let reply = server
        .run_command(doc! { "serverHistory": 1, "from": from, "step": step, "names": names })
        .run()?;
    History::of(&reply).context("the server's answer is not understood")
}

/// Columns of the pictures.
const WIDTH: usize = 60;

/// What was read.
struct History {
    times: Vec<i64>,
    columns: BTreeMap<String, Vec<Option<f64>>>,
}

impl History {
    fn of(reply: &Document) -> Option<Self> {
        let times = reply.get_array("times").ok()?.iter();
        let times = times.map(|at| Some(at.as_datetime()?.timestamp_millis()));
        let column = |(name, values): (&String, &Bson)| {
            let values = values.as_array()?.iter().map(Bson::as_f64).collect();
            Some((name.clone(), values))
        };
        let columns = reply.get_document("series").ok()?.iter().map(column);
        Some(Self {
            times: times.collect::<Option<_>>()?,
            columns: columns.collect::<Option<_>>()?,
        })
    }

    /// A figure at each time but the first.
    fn values(&self, Figure(_, _, way, factor, names): &Figure) -> Vec<Option<f64>> {
        let one = |name: &str, at: usize| -> Option<f64> {
            let column = self.columns.get(name)?;
            let now = (*column.get(at)?)?;
            if *way == Value {
                return Some(now);
            }
            let more = now - (*column.get(at - 1)?)?;
            let seconds = (self.times[at] - self.times[at - 1]) as f64 / 1000.0;
            // A counter that went back is a server that was started again.
            (more >= 0.0 && seconds > 0.0).then(|| more / seconds)
        };
        (1..self.times.len())
            .map(|at| {
                let sum = names.iter().map(|name| one(name, at)).sum::<Option<f64>>();
                sum.map(|value| value * factor)
            })
            .collect()
    }

    fn screen(&self, uri: &str) -> String {
        let mut text = format!("\x1b[H\x1b[2Jfern stats  {uri}  {}  Ctrl-C ends\n", self.now());
        for (title, figures) in FIGURES {
            let _never_fails = writeln!(text, "\n{title}");
            for figure in *figures {
                let values = self.values(figure);
                let newest = show(values.last().copied().flatten(), figure.1);
                let most = values.iter().flatten().copied().fold(0.0, f64::max);
                let picture = picture(&values, most);
                let most = show((!values.is_empty()).then_some(most), figure.1);
                let _never_fails =
                    writeln!(text, "  {:<20}{newest:>12}  {picture}  most {most}", figure.0);
            }
        }
        text
    }

    fn line(&self, head: bool) -> String {
        let figures = LINE.iter().filter_map(|title| {
            FIGURES.iter().flat_map(|(_, all)| all.iter()).find(|figure| figure.0 == *title)
        });
        let (mut titles, mut text) = (format!("{:>8}", "time"), format!("{:>8}", self.now()));
        for figure in figures {
            let value = show(self.values(figure).last().copied().flatten(), figure.1);
            let _never_fails = write!(titles, " {:>12}", figure.0);
            let _never_fails = write!(text, " {value:>12}");
        }
        if head { format!("{titles}\n{text}\n") } else { format!("{text}\n") }
    }

    /// The newest time, in the server's UTC.
    fn now(&self) -> String {
        let seconds = self.times.last().copied().unwrap_or_default().div_euclid(1000);
        let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
        format!("{hours:02}:{minutes:02}:{:02}", seconds % 60)
    }
}

/// The newest values as a line of blocks, the highest for the most.
fn picture(values: &[Option<f64>], most: f64) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = &values[values.len().saturating_sub(WIDTH)..];
    let block = |value: &Option<f64>| match value {
        None => ' ',
        Some(value) if most <= 0.0 || *value <= 0.0 => BLOCKS[0],
        Some(value) => BLOCKS[((value / most * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    let empty = std::iter::repeat_n(' ', WIDTH - shown.len());
    empty.chain(shown.iter().map(block)).collect()
}

/// A number with its unit, three digits long.
fn show(value: Option<f64>, unit: &str) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let binary = unit.starts_with('B');
    let base = if binary { 1024.0 } else { 1000.0 };
    let (mut rest, mut power) = (value.abs(), 0);
    while rest >= base && power < 5 {
        rest /= base;
        power += 1;
    }
    let digits = match rest {
        _ if rest.fract() == 0.0 || rest >= 100.0 => 0,
        _ if rest >= 10.0 => 1,
        _ => 2,
    };
    let prefix =
        if binary { ["", "Ki", "Mi", "Gi", "Ti", "Pi"] } else { ["", "k", "M", "G", "T", "P"] };
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{rest:.digits$} {}{unit}", prefix[power]).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(values: &[Option<f64>]) -> History {
        let times: Vec<Bson> = (0..values.len() as i64)
            .map(|at| Bson::DateTime(DateTime::from_millis(1_000_000 + at * 2000)))
            .collect();
        let values: Vec<Bson> =
            values.iter().map(|value| value.map_or(Bson::Null, Bson::Double)).collect();
        History::of(&doc! { "times": times, "series": { "opcounters.insert": values } }).unwrap()
    }

    #[test]
    fn rates_have_gaps_where_the_server_was_started_or_said_nothing() {
        let values = [Some(0.0), Some(20.0), None, Some(5.0), Some(15.0), Some(1.0)];
        let insert = &FIGURES[0].1[0];
        assert_eq!(history(&values).values(insert), [Some(10.0), None, None, Some(5.0), None]);
    }

    #[test]
    fn pictures_are_as_high_as_the_most() {
        let picture = picture(&[Some(0.0), Some(4.0), None, Some(8.0)], 8.0);
        assert_eq!(picture.chars().count(), WIDTH);
        assert!(picture.ends_with("▁▄ █"), "{picture}");
    }

    #[test]
    fn numbers_are_three_digits_long() {
        for (value, unit, expected) in [
            (0.0, "/s", "0 /s"),
            (12_345.0, "/s", "12.3 k/s"),
            (1_536.0, "B", "1.50 KiB"),
            (3.0, "", "3"),
            (0.25, "ms", "0.25 ms"),
        ] {
            assert_eq!(show(Some(value), unit), expected);
        }
        assert_eq!(show(None, "B"), "-");
    }
    #[test]
    fn a_line_has_every_figure_it_names() {
        let line = history(&[Some(0.0), Some(20.0)]).line(true);
        let rows: Vec<_> = line.lines().collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].chars().count(), 8 + 13 * LINE.len());
        assert!(rows[1].contains("10 /s") && rows[1].starts_with("00:16:42"), "{}", rows[1]);
    }
}
