//! A line on the terminal that says how far a run is; silent where nobody watches.

use crate::meter::Tally;
use crate::phase::{End, Phase};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};

/// Steps of the bar.
const STEPS: f64 = 1000.0;

pub(crate) struct Progress {
    bar: ProgressBar,
    servers: f64,
    finished: f64,
}

impl Progress {
    /// For a phase that runs on so many servers.
    pub(crate) fn of(phase: &Phase, servers: usize) -> Self {
        let bar = ProgressBar::new(STEPS as u64 * servers as u64);
        let style =
            ProgressStyle::with_template("{prefix:>24} {wide_bar} {percent:>3}% {msg}  {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(phase.name.clone());
        Self { bar, servers: servers as f64, finished: 0.0 }
    }

    /// Where one server is.
    pub(crate) fn show(&mut self, phase: &Phase, server: &str, seconds: f64, tally: &Tally) {
        let units = tally.units(phase.counted);
        let part = match phase.end {
            End::Seconds(all) => seconds / all,
            End::Units(all) => units as f64 / all.max(1) as f64,
        };
        // The servers go on in turns, so that one's part says about all of them.
        self.finished = self.finished.max(part.min(1.0));
        self.bar.set_position((self.finished * STEPS * self.servers) as u64);
        let rate = HumanCount((units as f64 / seconds.max(1e-6)) as u64);
        let who = if self.servers > 1.0 { format!("{server}: ") } else { String::new() };
        self.bar.set_message(format!("{who}{rate} {}/s", phase.unit));
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
