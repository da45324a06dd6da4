//! The server under test: a process of its own in a temporary directory, killed and started again
//! on the same port.

use anyhow::{Context, Result, bail};
use mongodb::bson::{Document, doc};
use mongodb::options::ClientOptions;
use mongodb::sync::Client;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Which server, and how it is treated.
#[derive(clap::Args, Clone)]
pub(crate) struct ServerOptions {
    /// The server's program.
    #[arg(long, default_value = "target/fast/fernd")]
    fernd: PathBuf,
    /// Seconds between kills (kill -9), on average; 0 for none.
    #[arg(long, default_value_t = 0.0)]
    kill_every: f64,
    /// More arguments for the server, separated by spaces.
    #[arg(long, default_value = "")]
    server_arguments: String,
}

/// A running server.
pub(crate) struct Server {
    options: ServerOptions,
    replica_set: bool,
    port: u16,
    directory: tempfile::TempDir,
    process: Mutex<Option<Child>>,
    kills: AtomicU64,
}

/// The only clock of these programs.
#[expect(clippy::disallowed_methods, reason = "a tool for people, never simulated")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Rests for so long.
pub(crate) fn rest(time: Duration) {
    std::thread::sleep(time);
}

impl Server {
    /// Starts one on a free port, as a standalone or as a replica set of one.
    pub(crate) fn start(options: &ServerOptions, replica_set: bool) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let server = Self {
            options: options.clone(),
            replica_set,
            port,
            directory: tempfile::tempdir()?,
            process: Mutex::default(),
            kills: AtomicU64::new(0),
        };
        server.run()?;
        if replica_set {
            let client = server.client("directConnection=true")?;
            client.database("admin").run_command(doc! { "replSetInitiate": {} }).run()?;
        }
        Ok(server)
    }

    /// Starts the process and waits until it answers.
    fn run(&self) -> Result<()> {
        let mut command = Command::new(&self.options.fernd);
        command.arg("--dbpath").arg(self.directory.path());
        command.args(["--port", &self.port.to_string(), "--nounixsocket", "--statusPort", "0"]);
        command.args(["--cacheSize", "128M"]);
        if self.replica_set {
            command.args(["--replSet", "rs0"]);
        }
        command.args(self.options.server_arguments.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().with_context(|| format!("{}", self.options.fernd.display()))?;
        *self.process() = Some(child);
        let started = now();
        while started.elapsed() < Duration::from_mins(1) {
            let client = self.client("directConnection=true&serverSelectionTimeoutMS=500")?;
            if client.database("admin").run_command(doc! { "ping": 1 }).run().is_ok() {
                return Ok(());
            }
            if let Some(status) =
                self.process().as_mut().map(Child::try_wait).transpose()?.flatten()
            {
                bail!("the server ended by itself: {status}");
            }
            rest(Duration::from_millis(20));
        }
        bail!("the server does not answer")
    }

    fn process(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client of its own for each who asks: `parameters` as in a connection string.
    pub(crate) fn client(&self, parameters: &str) -> Result<Client> {
        let uri = format!("mongodb://127.0.0.1:{}/?{parameters}", self.port);
        let mut options = ClientOptions::parse(uri).run()?;
        options.server_selection_timeout.get_or_insert(Duration::from_secs(20));
        // An outage here is short: look again soon.
        options.heartbeat_freq = Some(Duration::from_millis(500));
        Ok(Client::with_options(options)?)
    }

    /// How often it was killed so far; counted before it dies, so that who finds the number as it
    /// was had the same process all the time.
    pub(crate) fn kills(&self) -> u64 {
        self.kills.load(Ordering::SeqCst)
    }

    fn kill(&self) -> Result<()> {
        self.kills.fetch_add(1, Ordering::SeqCst);
        if let Some(mut child) = self.process().take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Kills and restarts it now and then until `stop`; returns how often.
    pub(crate) fn torment(&self, stop: &AtomicBool) -> Result<u64> {
        let (mut next, mut since) = (self.pause(), now());
        while !stop.load(Ordering::Relaxed) {
            rest(Duration::from_millis(20));
            if next.is_some_and(|pause| since.elapsed() >= pause) {
                self.kill()?;
                self.run()?;
                (next, since) = (self.pause(), now());
            }
        }
        Ok(self.kills())
    }

    fn pause(&self) -> Option<Duration> {
        let every = self.options.kill_every;
        (every > 0.0).then(|| Duration::from_secs_f64(every * rand::random_range(0.5..1.5)))
    }

    /// CPU the process has used, in microseconds.
    pub(crate) fn cpu_micros(&self) -> Result<u64> {
        let pid = self.process().as_ref().context("the server is down")?.id();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let fields: Vec<&str> =
            stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        let user_and_system = ticks(11).zip(ticks(12)).context("an odd /proc")?;
        Ok((user_and_system.0 + user_and_system.1) * 10_000)
    }

    /// Checks the collections' structure; anything odd is an error.
    pub(crate) fn validate(&self, collections: &[&str]) -> Result<()> {
        let client = self.client("directConnection=true")?;
        for collection in collections {
            let command = doc! { "validate": *collection, "full": true };
            let reply: Document = client.database("test").run_command(command).run()?;
            if !reply.get_bool("valid").unwrap_or(false) {
                bail!("validate of {collection}: {reply}");
            }
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _killed = self.kill();
    }
}
