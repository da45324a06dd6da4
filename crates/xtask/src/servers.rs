//! A `fernd` of its own for a task: a free port, a temporary directory, stopped when it goes.

use crate::run::target;
use anyhow::{Context, Result, bail, ensure};
use bson::{Document, doc};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Tries of a fifth of a second.
const MAX_TRIES: u32 = 150;

/// The same for a server's end: it writes what it has in memory first.
const END_TRIES: u32 = 600;
/// A server that is told to end answers, or is gone, within that.
const LONGEST_ANSWER: Duration = Duration::from_mins(2);

/// Lines of a server's log that a failure shows.
const COMPLAINTS: usize = 20;

const OP_MSG: i32 = 2013;

/// Bytes before the document of an OP_MSG.
const MSG_HEADER: usize = 21;

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

    /// Ends it as an operator would, and waits for that: what it writes at its end is there.
    pub(crate) fn shut_down(mut self) -> Result<()> {
        // It may be gone before it answers.
        let _answered = call(self.port, &doc! { "shutdown": 1, "$db": "admin" }, LONGEST_ANSWER);
        for _ in 0..END_TRIES {
            if let Some(ended) = self.process.try_wait()? {
                ensure!(ended.success(), "the server ended with {ended}: {}", self.complaints());
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        bail!("the server does not end: {}", self.complaints())
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

/// A port that nobody has at this moment, below those that the kernel gives to connections that go out.
///
/// A server that is down for a while may be dialled all the time. At another port such a connection could
/// meet itself, and the port would be taken when the server comes back.
pub(crate) fn free_port() -> Result<u16> {
    for _ in 0..MAX_TRIES {
        // What the kernel gives differs from call to call.
        let given = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let port = 10_000 + given % 20_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port is free")
}

/// What a server answers within that time to a command, which names its database in `$db`. Each call has
/// a connection of its own: for a few questions about a server's state, without a driver.
pub(crate) fn call(port: u16, command: &Document, wait: Duration) -> Result<Document> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], port)), wait)?;
    stream.set_read_timeout(Some(wait))?;
    let body = command.to_vec()?;
    // OP_MSG: length, request, the request answered, opcode, flags; then a section of kind 0.
    let length = i32::try_from(MSG_HEADER + body.len())?;
    let words = [length, 1, 0, OP_MSG, 0].map(i32::to_le_bytes).concat();
    stream.write_all(&[&words[..], &[0], &body].concat())?;
    let mut head = [0; MSG_HEADER];
    stream.read_exact(&mut head)?;
    ensure!(head[12..16] == OP_MSG.to_le_bytes() && head[20] == 0, "not an OP_MSG of one document");
    Ok(Document::from_reader(stream)?)
}
