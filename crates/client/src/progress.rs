//! How far a task is: a bar with the time left at a terminal, a line now and then elsewhere. What has no known end has no time left.

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use os::Os;
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::Duration;

/// How often a line is written where nobody watches a bar.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// What is shown to whoever waits. All of it goes to standard error.
pub(crate) struct Progress {
    os: Os,
    bar: ProgressBar,
    is_terminal: bool,
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    total: u64,
    done: u64,
    /// Of an earlier run: no measure of how fast this one is.
    before: u64,
    began: Duration,
    last: Duration,
    is_endless: bool,
    message: String,
}

impl Progress {
    pub(crate) fn new(os: &Os) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        Self { os: os.clone(), bar, is_terminal, lines: Mutex::default() }
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A stage of so many bytes begins; 0 for as many as come.
    pub(crate) fn begin(&self, stage: &str, total: u64, before: u64) {
        let now = self.os.clock.monotonic();
        let is_endless = total == 0;
        *self.lines() = Lines {
            total,
            done: before,
            before,
            began: now,
            last: now,
            is_endless,
            message: String::new(),
        };
        if !self.is_terminal {
            let amount = if is_endless {
                String::new()
            } else {
                format!(": {} of {}", HumanBytes(before), HumanBytes(total))
            };
            self.say(&format!("{stage}{amount}"));
            return;
        }
        let style = if is_endless {
            "{prefix:>10} {bytes}  {bytes_per_sec}  {msg}"
        } else {
            "{prefix:>10} {wide_bar} {bytes} of {total_bytes}  {bytes_per_sec}  {msg}  {eta} left"
        };
        let style = ProgressStyle::with_template(style);
        self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        self.bar.reset();
        self.bar.set_length(total);
        self.bar.set_position(before);
        self.bar.reset_eta();
        self.bar.set_prefix(stage.to_owned());
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
    }

    /// So many bytes more, of this collection.
    pub(crate) fn add(&self, bytes: u64, message: &str) {
        let mut lines = self.lines();
        lines.done += bytes;
        // What a server says of sizes is an estimate.
        lines.total = lines.total.max(lines.done);
        message.clone_into(&mut lines.message);
        if self.is_terminal {
            self.bar.set_length(lines.total);
            self.bar.set_position(lines.done);
            self.bar.set_message(message.to_owned());
            return;
        }
        let now = self.os.clock.monotonic();
        if now.saturating_sub(lines.last) >= LINE_INTERVAL {
            lines.last = now;
            let text = line(&lines, now.saturating_sub(lines.began));
            drop(lines);
            self.say(&text);
        }
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
    }

    /// A line of its own.
    pub(crate) fn say(&self, text: &str) {
        self.bar.suspend(|| {
            // Who closes standard error does not want to be told.
            let _closed = writeln!(std::io::stderr(), "{text}");
        });
    }
}

fn line(lines: &Lines, elapsed: Duration) -> String {
    let rate = (lines.done - lines.before) as f64 / elapsed.as_secs_f64().max(0.001);
    if lines.is_endless {
        return format!(
            "{}  {}/s  {}",
            HumanBytes(lines.done),
            HumanBytes(rate as u64),
            lines.message
        );
    }
    let left = (lines.total - lines.done) as f64 / rate.max(1.0);
    let left = Duration::from_secs(left.round() as u64);
    format!(
        "{} of {}  {}/s  {} left  {}",
        HumanBytes(lines.done),
        HumanBytes(lines.total),
        HumanBytes(rate as u64),
        indicatif::FormattedDuration(left),
        lines.message
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_how_long_the_rest_takes() {
        let lines = Lines {
            total: 5 << 20,
            done: 3 << 20,
            before: 1 << 20,
            message: "a.b".to_owned(),
            ..Lines::default()
        };
        let expected = "3.00 MiB of 5.00 MiB  1.00 MiB/s  00:00:02 left  a.b";
        assert_eq!(line(&lines, Duration::from_secs(2)), expected);
        let endless = Lines { is_endless: true, ..lines };
        assert_eq!(line(&endless, Duration::from_secs(2)), "3.00 MiB  1.00 MiB/s  a.b");
    }
}
