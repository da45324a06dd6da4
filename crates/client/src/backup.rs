//! `fern backup`: a hot backup of a running server, and how far it is.
//!
//! Always true: the server writes it, into a directory of its own machine; this program asks and shows. One that is
//! ended leaves the server to finish: `killOp` stops it.

use crate::server::connect;
use anyhow::{Context, Result, anyhow};
use bench::Login;
use bson::{Bson, Document, doc};
use mongodb::sync::Database;
use os::Os;
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How `fern backup` was called.
#[derive(Debug, clap::Args)]
pub struct BackupOptions {
    /// The server, if not that of the environment variable `FERN_URI`, which is better where there is a password in
    /// it; and the directory, empty and on the server's machine, below its --backupRoot.
    #[arg(required = true, num_args = 1..=2, value_names = ["URI", "DIRECTORY"])]
    pub place: Vec<String>,
    /// As whom to log in.
    #[command(flatten)]
    pub login: Login,
    /// Bytes a second that backups may copy from now on, as 10MB; 0 for as fast as it goes.
    #[arg(long, value_name = "RATE")]
    pub throttle: Option<String>,
    /// An earlier backup on the server's machine, below its --backupRoot: only what that one does not have is written.
    /// `fern restore` puts both together.
    #[arg(long, value_name = "EARLIER")]
    pub since: Option<String>,
}

/// How often the status of the backup is asked for.
const STATUS_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Where the output is no terminal, one poll in this many is printed.
const POLLS_PER_LOG_LINE: u32 = 20;

/// Has a backup written.
///
/// # Errors
/// What the server refuses, or why it cannot be asked.
pub fn run(os: &Os, asked: &BackupOptions) -> Result<()> {
    let (uri, directory) = match &asked.place[..] {
        [directory] => (None, directory.clone()),
        [uri, directory, ..] => (Some(uri.as_str()), directory.clone()),
        [] => return Err(anyhow!("no directory is named")),
    };
    let (client, shown_uri) = connect(uri, &asked.login)?;
    let server = client.database("admin");
    if let Some(rate) = &asked.throttle {
        let throttled = server.run_command(doc! { "backupThrottle": rate }).run();
        throttled.with_context(|| shown_uri.clone())?;
    }
    let (sender, done) = channel();
    let copier = server.clone();
    let mut command = doc! { "backupStart": &directory };
    command.extend(asked.since.as_ref().map(|earlier| ("since".to_owned(), earlier.into())));
    let job = move || {
        // Who waits for it is there, or the program ends.
        let _gone = sender.send(copier.run_command(command).run());
    };
    let _runs_by_itself = os.spawner.spawn("backup", Box::new(job))?;
    let began = os.clock.monotonic();
    let written = wait(os, &server, &done)?.with_context(|| shown_uri)?;
    let time = os.clock.monotonic().saturating_sub(began);
    let line = ended(number(&written, "bytes"), time);
    let rest = match &asked.since {
        Some(earlier) => {
            format!("; {} more are in {earlier}", bytes(number(&written, "bytesSince")))
        }
        None => String::new(),
    };
    writeln!(std::io::stdout(), "{directory}: {line}{rest}")?;
    Ok(())
}

type Answer = mongodb::error::Result<Document>;

/// Shows how far it is until it is answered.
fn wait(os: &Os, server: &Database, done: &Receiver<Answer>) -> Result<Answer> {
    let began = os.clock.monotonic();
    let redraws = std::io::stderr().is_terminal();
    let mut count = 0;
    loop {
        match done.recv_timeout(STATUS_POLL_INTERVAL) {
            Ok(answer) => {
                if redraws {
                    write!(std::io::stderr(), "\r\x1b[K")?;
                }
                return Ok(answer);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(anyhow!("the request ended without a reply"));
            }
        }
        // It may not have begun, or be over by now.
        let Ok(status) = server.run_command(doc! { "backupStatus": 1 }).run() else { continue };
        let line = line(&status, os.clock.monotonic().saturating_sub(began));
        if redraws {
            write!(std::io::stderr(), "\r\x1b[K{line}")?;
        } else if count % POLLS_PER_LOG_LINE == 0 {
            writeln!(std::io::stderr(), "{line}")?;
        }
        count += 1;
    }
}

fn number(document: &Document, name: &str) -> f64 {
    match document.get(name) {
        Some(Bson::Int32(number)) => f64::from(*number),
        Some(Bson::Int64(number)) => *number as f64,
        Some(Bson::Double(number)) => *number,
        _ => 0.0,
    }
}

/// How far it is, how fast it goes, and how long that will take.
fn line(status: &Document, time: Duration) -> String {
    let (done, total) = (number(status, "bytesDone"), number(status, "bytesTotal"));
    let rate = done / time.as_secs_f64().max(0.001);
    let left = if rate > 0.0 { ((total - done) / rate).max(0.0) } else { 0.0 };
    format!(
        "{:5.1} %  {} of {}  {}/s  {} left",
        number(status, "percent"),
        bytes(done),
        bytes(total),
        bytes(rate),
        clock(left)
    )
}

fn ended(copied: f64, time: Duration) -> String {
    let seconds = time.as_secs_f64().max(0.001);
    format!("{} in {} ({}/s)", bytes(copied), clock(seconds), bytes(copied / seconds))
}

fn bytes(count: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut shown = count;
    while shown >= 1024.0 && unit + 1 < units.len() {
        (shown, unit) = (shown / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{shown:.0} B") } else { format!("{shown:.1} {}", units[unit]) }
}

fn clock(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is_and_how_long_it_takes() {
        let status = doc! { "percent": 25.0, "bytesDone": 1_i64 << 30, "bytesTotal": 4_i64 << 30 };
        let expected = " 25.0 %  1.0 GiB of 4.0 GiB  102.4 MiB/s  0:30 left";
        assert_eq!(line(&status, Duration::from_secs(10)), expected);
        assert_eq!(line(&Document::new(), Duration::ZERO), "  0.0 %  0 B of 0 B  0 B/s  0:00 left");
        assert_eq!(ended(2048.0, Duration::from_secs(3700)), "2.0 KiB in 1:01:40 (1 B/s)");
    }
}
