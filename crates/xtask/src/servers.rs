//! A `fernd` of its own for a task: a free port, a temporary directory, stopped when it goes.

use crate::run::target;
use anyhow::{Context, Result, bail};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Tries of a fifth of a second.
const MAX_TRIES: u32 = 150;

/// Lines of a server's log that a failure shows.
const COMPLAINTS: usize = 20;

pub(crate) struct Server {
    process: Child,
    port: u16,
    directory: PathBuf,
}

impl Server {
    /// Starts one and waits until it listens.
    pub(crate) fn start(fernd: &Path, name: &str, options: &[&str]) -> Result<Self> {
        let directory = target().join(name);
        // what an earlier run left; there is nothing after the first
        let _left = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory)?;
        let port = free_port()?;
        let process = Command::new(fernd)
            .arg("--dbpath")
            .arg(directory.join("data"))
            .arg("--logpath")
            .arg(directory.join("fernd.log"))
            .args(["--port", &port.to_string(), "--nounixsocket", "--statusPort", "0"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", fernd.display()))?;
        let mut server = Self { process, port, directory };
        for _ in 0..MAX_TRIES {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(server);
            }
            if let Some(status) = server.process.try_wait()? {
                bail!("{} ended at once: {status}", fernd.display());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        bail!("{} does not listen", fernd.display())
    }

    pub(crate) fn uri(&self) -> String {
        format!("mongodb://127.0.0.1:{}", self.port)
    }

    /// The last of what the server has to say of warnings and errors.
    pub(crate) fn complaints(&self) -> String {
        let log = std::fs::read_to_string(self.directory.join("fernd.log")).unwrap_or_default();
        let is_bad = |line: &&str| ["W", "E", "F"].iter().any(|s| line.contains(&severity(s)));
        let mut lines: Vec<&str> = log.lines().rev().filter(is_bad).take(COMPLAINTS).collect();
        lines.reverse();
        lines.join("\n")
    }
}

/// How a line of the log says how grave it is.
fn severity(letter: &str) -> String {
    format!("\"s\":\"{letter}\"")
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing of it is kept: what fails here leaves only a directory under `target`.
        let _killed = self.process.kill();
        let _waited = self.process.wait();
        let _removed = std::fs::remove_dir_all(&self.directory);
    }
}

/// A port that nobody has at this moment.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
