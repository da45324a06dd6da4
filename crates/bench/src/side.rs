//! One server under test: its clients, its seconds, its phases.
//!
//! | from | to | by |
//! |---|---|---|
//! | connected | in a phase | [`Side::begin`] |
//! | in a phase | in it, a turn further | [`Side::turn`] |
//! | in a phase | connected, the phase's line written | [`Side::finish`] |

use crate::DATABASE;
use crate::experiments::Experiment;
use crate::figures::{Latency, Measured, PhaseFigures, Second, ServerFigures};
use crate::login::NAMED_TWICE;
use crate::meter::{Tally, now};
use crate::options::Options;
use crate::phase::{Client, End, Phase, Room};
use crate::progress::Progress;
use crate::status::{Process, Status};
use anyhow::{Context, Result, ensure};
use mongodb::bson::{Document, doc};
use mongodb::options::{ClientOptions, Credential, ServerAddress};
use mongodb::{Client as Driver, Database};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How often a server is looked at.
const SAMPLE: Duration = Duration::from_secs(1);
/// The size on disk is asked for once in so many samples: some servers count documents for it.
const SAMPLES_PER_SIZE: u64 = 5;
/// How often a server that is to rest is looked at, and how many times at most.
const CALM_LOOK: Duration = Duration::from_millis(250);
const MAX_CALM_LOOKS: u32 = 40;
/// A server that uses less than this part of a processor rests.
const CALM_SHARE: f64 = 0.1;
/// Connections beside the clients' own, for the status.
const SPARE_CONNECTIONS: u32 = 4;

pub(crate) struct Side {
    pub(crate) name: &'static str,
    admin: Database,
    room: Room,
    process: Process,
    hosts: String,
    product: String,
    /// Seconds at work, in all phases.
    worked: f64,
    samples: u64,
    /// Whether the size on disk is asked for: with many collections that costs as much as many operations.
    is_sized: bool,
    last: Status,
    /// What the hypervisor had taken when the last second ended.
    stolen: Duration,
    seconds: Vec<Second>,
    phases: Vec<PhaseFigures>,
    current: Option<Current>,
}

/// A phase under way.
struct Current {
    /// With their numbers; those that are done are gone.
    clients: Vec<(usize, Box<dyn Client>)>,
    active_s: f64,
    tally: Tally,
    first_second: usize,
    before: Status,
}

impl Side {
    /// Connects, and drops what an earlier run left.
    pub(crate) async fn connect(
        name: &'static str,
        (uri, login): (&str, Option<&Credential>),
        pid: Option<u32>,
        clients: usize,
        options: &Options,
    ) -> Result<Self> {
        let mut settings = settings(uri, login).await?;
        let hosts: Vec<String> = settings.hosts.iter().map(ToString::to_string).collect();
        let process = Process { pid, is_here: settings.hosts.iter().all(is_here) };
        let hosts = hosts.join(",");
        settings.max_pool_size = Some(clients as u32 + SPARE_CONNECTIONS);
        let driver = Driver::with_options(settings.clone())?;
        let (admin, database) = (driver.database("admin"), driver.database(DATABASE));
        let build = admin.run_command(doc! { "buildInfo": 1 }).await;
        let build = build.with_context(|| format!("no server answers at {hosts}"))?;
        database.drop().await?;
        let room = Room {
            database,
            meter: Arc::default(),
            seed: options.seed,
            repeat: 0,
            settings: Arc::new(settings),
            kept: Arc::default(),
        };
        let mut side = Self {
            name,
            room,
            process,
            hosts,
            product: product(&build),
            worked: 0.0,
            samples: 0,
            is_sized: options.experiment != Experiment::Curves,
            last: Status::default(),
            stolen: os::stolen(),
            seconds: Vec::new(),
            phases: Vec::new(),
            current: None,
            admin,
        };
        side.last = side.status().await?;
        Ok(side)
    }

    /// The phases that follow have been run so often.
    pub(crate) fn repeat(&mut self, times: u64) {
        self.room.repeat = times;
    }

    /// Runs the phase's commands and makes its clients.
    pub(crate) async fn begin(&mut self, phase: &Phase) -> Result<()> {
        for command in &phase.commands {
            self.command(command).await?;
        }
        if phase.is_calm {
            self.rest().await?;
        }
        let all = 0..phase.clients + phase.beside;
        let clients = all.map(|number| (number, (phase.client)(&self.room, number))).collect();
        let before = self.status().await?;
        self.last = before;
        let (tally, first_second) = (Tally::default(), self.seconds.len());
        self.current = Some(Current { clients, active_s: 0.0, tally, first_second, before });
        Ok(())
    }

    /// Waits until the server has little to do, for a while at most; one that does not tell its processor time is not
    /// waited for.
    async fn rest(&mut self) -> Result<()> {
        let mut last = self.status().await?.cpu_us;
        for _ in 0..MAX_CALM_LOOKS {
            let began = now();
            tokio::time::sleep(CALM_LOOK).await;
            let cpu = self.status().await?.cpu_us;
            let Some((after, before)) = cpu.zip(last) else { return Ok(()) };
            let used_s = after.saturating_sub(before) as f64 / 1e6;
            if used_s < CALM_SHARE * began.elapsed().as_secs_f64() {
                return Ok(());
            }
            last = cpu;
        }
        Ok(())
    }

    /// A command of a phase; a server without clustering indexes makes a plain one instead.
    async fn command(&self, command: &Document) -> Result<()> {
        let Err(error) = self.room.database.run_command(command.clone()).await else {
            return Ok(());
        };
        let mut plain = command.clone();
        let mut changed = false;
        for index in plain.get_array_mut("indexes").into_iter().flatten() {
            changed |= index.as_document_mut().is_some_and(|i| i.remove("clustering").is_some());
        }
        if !changed {
            return Err(error).with_context(|| format!("{} refuses {command}", self.hosts));
        }
        self.room.database.run_command(plain).await?;
        Ok(())
    }

    /// Whether there is nothing left to do in this phase.
    pub(crate) fn is_done(&self, phase: &Phase) -> bool {
        let Some(current) = &self.current else { return true };
        let over = matches!(phase.end, End::Seconds(seconds) if current.active_s >= seconds);
        over || !current.clients.iter().any(|(number, _)| *number < phase.clients)
    }

    /// Lets the clients work, for as long as the turn or the phase lasts.
    pub(crate) async fn turn(
        &mut self,
        phase: &Phase,
        longest: Option<Duration>,
        progress: &mut Progress,
    ) -> Result<()> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        let left = match phase.end {
            End::Seconds(seconds) => Some(Duration::from_secs_f64(seconds - current.active_s)),
            End::Units(_) => None,
        };
        let began = now();
        self.stolen = os::stolen();
        let until = left.into_iter().chain(longest).min().map(|most| began + most);
        let (stop, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        let mut at_work = 0;
        for (number, mut client) in current.clients.drain(..) {
            at_work += usize::from(number < phase.clients);
            let stop = Arc::clone(&stop);
            tasks.spawn(async move {
                while !stop.load(Relaxed) {
                    if !client.step().await? {
                        return anyhow::Ok((number, None));
                    }
                }
                Ok((number, Some(client)))
            });
        }
        let mut from = began;
        while !tasks.is_empty() {
            let due = until
                .filter(|_| !stop.load(Relaxed))
                .map_or(from + SAMPLE, |until| until.min(from + SAMPLE));
            if let Ok(Some(ended)) = tokio::time::timeout_at(due.into(), tasks.join_next()).await {
                let (number, client) = ended.context("a client panicked")??;
                at_work -= usize::from(number < phase.clients && client.is_none());
                current.clients.extend(client.map(|client| (number, client)));
            }
            let time = now();
            if at_work == 0 || until.is_some_and(|until| time >= until) {
                stop.store(true, Relaxed);
            }
            if time >= from + SAMPLE {
                self.sample(phase, &mut current.tally, from, time - began).await?;
                progress.show(
                    phase,
                    self.name,
                    current.active_s + (time - began).as_secs_f64(),
                    &current.tally,
                );
                from = time;
            }
        }
        self.sample(phase, &mut current.tally, from, began.elapsed()).await?;
        let took = began.elapsed().as_secs_f64();
        current.active_s += took;
        self.worked += took;
        self.current = Some(current);
        Ok(())
    }

    /// Writes down what happened since the last time.
    async fn sample(
        &mut self,
        phase: &Phase,
        all: &mut Tally,
        from: Instant,
        in_turn: Duration,
    ) -> Result<()> {
        let length_s = from.elapsed().as_secs_f64().max(1e-6);
        let (tally, stolen) = (self.room.meter.take(), os::stolen());
        all.add(&tally);
        let status = self.status().await?;
        let grown = |what: fn(&Status) -> Option<u64>| {
            what(&status).zip(what(&self.last)).map(|(now, then)| now.saturating_sub(then))
        };
        let (units, micros) = (tally.units(phase.counted), tally.micros(phase.counted));
        let latency = (!micros.is_empty()).then(|| Latency::of(&micros, units));
        self.seconds.push(Second {
            server: self.name,
            phase: phase.name.clone(),
            at_s: self.worked + in_turn.as_secs_f64(),
            length_s,
            units,
            operations: micros.len(),
            units_per_s: units as f64 / length_s,
            p50_us: latency.as_ref().map(|latency| latency.p50_us),
            p95_us: latency.as_ref().map(|latency| latency.p95_us),
            p99_us: latency.as_ref().map(|latency| latency.p99_us),
            max_us: latency.as_ref().map(|latency| latency.max_us),
            cpu_cores: grown(|s| s.cpu_us).map(|micros| micros as f64 / 1e6 / length_s),
            resident_bytes: status.resident_bytes,
            cache_bytes: status.cache_bytes,
            cache_misses: grown(|s| s.cache_misses),
            read_bytes: grown(|s| s.read_bytes),
            written_bytes: grown(|s| s.written_bytes),
            disk_bytes: status.disk_bytes,
            checkpoints: grown(|s| s.checkpoints),
            threads: status.threads,
            stolen: (stolen.saturating_sub(self.stolen).as_secs_f64()
                / length_s
                / os::cpu_count() as f64)
                .min(1.0),
        });
        (self.last, self.stolen) = (status, stolen);
        Ok(())
    }

    async fn status(&mut self) -> Result<Status> {
        let mut status = Status::read(&self.admin, self.process).await?;
        if self.is_sized && self.samples.is_multiple_of(SAMPLES_PER_SIZE) {
            status = status.with_disk(&self.room.database).await;
        } else {
            status.disk_bytes = self.last.disk_bytes;
        }
        self.samples += 1;
        Ok(status)
    }

    /// Ends the phase and writes its line.
    pub(crate) async fn finish(&mut self, phase: &Phase, options: &Options) -> Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        if !phase.only_reads {
            self.settle().await;
        }
        self.samples = 0;
        let after = self.status().await?;
        let measured = Measured {
            tally: &current.tally,
            seconds: &self.seconds[current.first_second..],
            active_s: current.active_s,
            warm_up_s: match phase.end {
                End::Seconds(_) => options.warm_up as f64,
                End::Units(_) => 0.0,
            },
            before: current.before,
            after,
        };
        self.phases.push(PhaseFigures::of(phase, &measured));
        Ok(())
    }

    /// Lets the server put on disk what the phase left in memory, so that it counts for this phase.
    async fn settle(&self) {
        // TokuMX's command, else MongoDB's; a server with neither is measured as it is
        if self.admin.run_command(doc! { "checkpoint": 1 }).await.is_err() {
            let _refused = self.admin.run_command(doc! { "fsync": 1 }).await;
        }
    }

    /// Everything that was measured; the data is dropped unless it is to be kept.
    pub(crate) async fn end(self, keep: bool) -> Result<ServerFigures> {
        if !keep {
            self.room.database.drop().await?;
        }
        Ok(ServerFigures {
            server: self.name,
            hosts: self.hosts,
            product: self.product,
            cache_limit_bytes: self.last.cache_limit_bytes,
            phases: self.phases,
            rounds: Vec::new(),
            seconds: self.seconds,
        })
    }
}

/// How a server is reached.
async fn settings(uri: &str, login: Option<&Credential>) -> Result<ClientOptions> {
    let mut settings = ClientOptions::parse(uri).await.context("the connection string")?;
    if let Some(login) = login {
        ensure!(settings.credential.is_none(), NAMED_TWICE);
        settings.credential = Some(login.clone());
    }
    settings.app_name.get_or_insert_with(|| "fern bench".to_owned());
    settings.server_selection_timeout.get_or_insert(Duration::from_secs(10));
    Ok(settings)
}

/// Whether an address is of this machine.
fn is_here(address: &ServerAddress) -> bool {
    match address {
        ServerAddress::Tcp { host, .. } => {
            matches!(host.as_str(), "localhost" | "127.0.0.1" | "::1" | "[::1]")
        }
        ServerAddress::Unix { .. } => true,
        _ => false,
    }
}

/// The size of a server's cache, where it tells it.
pub(crate) async fn cache_limit(uri: &str, login: Option<&Credential>) -> Result<Option<u64>> {
    let driver = Driver::with_options(settings(uri, login).await?)?;
    let status = Status::read(&driver.database("admin"), Process::default()).await;
    let limit = status.context("no server answers")?.cache_limit_bytes;
    driver.shutdown().await;
    Ok(limit)
}

/// Who answers, as far as it says.
fn product(build: &Document) -> String {
    let version = build.get_str("version").unwrap_or("?");
    if let Ok(ferret) = build.get_document("ferretdb") {
        return format!("FerretDB {}", ferret.get_str("version").unwrap_or(version));
    }
    // its version 1
    if let Ok(ferret) = build.get_str("ferretdbVersion") {
        return format!("FerretDB {}", ferret.trim_start_matches('v'));
    }
    if let Ok(fern) = build.get_str("ferndb") {
        return format!("FernDB {fern}");
    }
    format!("MongoDB's protocol {version}")
}
