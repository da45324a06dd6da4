//! `cargo xtask replica up`: a replica set on this machine, to be tried out and to be broken.
//!
//! Every member is a `fernd` of its own with a directory of its own. The set is initiated, its primary
//! waited for, and from then on each change of a member's role is told, whoever made it: a member may be
//! killed and started again from another terminal. The servers end with this process, however it ends.

use crate::drivers::{Build, programs};
use crate::run::target;
use crate::servers::call;
use crate::tools;
use anyhow::{Context, Result, bail, ensure};
use bson::{Bson, doc};
use clap::{Args, Subcommand};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SET: &str = "rs";

/// Where ports are looked for: the one that clients try by themselves, and those above it.
const FIRST_PORT: u16 = 27017;

/// Between two looks at the members.
const LOOK: Duration = Duration::from_millis(200);

/// Looks until a member must listen, and until one must be primary: half a minute.
const MAX_LOOKS: u32 = 150;

/// What a member says of itself it says at once.
const MAX_HELLO_WAIT: Duration = Duration::from_secs(2);

/// Who initiates a set asks all others first.
const MAX_INITIATE_WAIT: Duration = Duration::from_mins(1);

/// How many members may vote.
const MAX_MEMBERS: i64 = 7;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Starts members, initiates the set, tells who is primary; Ctrl-C stops all.
    Up(Up),
}

#[derive(Args)]
struct Up {
    /// How many.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=MAX_MEMBERS))]
    members: u16,
    /// The first one's port, the others' follow; without it the first free ones from 27017 on.
    #[arg(long)]
    port: Option<u16>,
    /// Where data and logs are kept; a set that is there is started again. Without it they are under
    /// `target`, and those of the last time are removed.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Each member's cache.
    #[arg(long, default_value = "256M")]
    cache_size: String,
    /// As users get it, rather than the tests' build.
    #[arg(long)]
    release: bool,
    /// This program, and nothing is built.
    #[arg(long, value_name = "FILE")]
    fernd: Option<PathBuf>,
    /// Options of every `fernd`, behind `--`.
    #[arg(last = true, value_name = "OPTION")]
    options: Vec<String>,
}

/// A member, and what was last told of it.
struct Member {
    port: u16,
    directory: PathBuf,
    /// What starts it again.
    line: String,
    process: Child,
    has_ended: bool,
    role: Role,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Primary,
    Secondary,
    /// Neither: it starts, or finds the others.
    None,
    DoesNotAnswer,
}

pub(crate) fn replica(options: Options) -> Result<()> {
    let Task::Up(options) = options.task;
    tools::require(&[("setpriv", "so that no server outlives its task (of util-linux)")])?;
    let fernd = if let Some(fernd) = &options.fernd {
        std::path::absolute(fernd)?
    } else {
        let build = if options.release { Build::Release } else { Build::Alone };
        programs(build, &["server"])?.join("fernd")
    };
    let directory = if let Some(directory) = &options.directory {
        std::path::absolute(directory)?
    } else {
        emptied(target().join("replica"))?
    };
    let (ports, is_new) = ports(&options, &directory)?;
    let mut given = vec!["--cacheSize".to_owned(), options.cache_size];
    given.extend(options.options);
    let mut members = Vec::new();
    for (at, port) in ports.iter().enumerate() {
        members.push(Member::start(&fernd, directory.join(at.to_string()), *port, &given)?);
    }
    for member in &mut members {
        member.wait_until_it_listens()?;
    }
    if is_new {
        initiate(&ports)?;
        // Only now: a set that could not be initiated is not one to be started again.
        let lines: Vec<String> = ports.iter().map(u16::to_string).collect();
        std::fs::write(ports_file(&directory), lines.join("\n"))?;
    }
    wait_for_primary(&mut members)?;
    introduce(&members);
    watch(&mut members)
}

/// A directory without what the last time left.
fn emptied(directory: PathBuf) -> Result<PathBuf> {
    if directory.exists() {
        std::fs::remove_dir_all(&directory)?;
    }
    Ok(directory)
}

/// Which ports the set of a directory has: members know each other by them.
fn ports_file(directory: &Path) -> PathBuf {
    directory.join("ports")
}

/// Each member's port, and whether the set is a new one.
fn ports(options: &Up, directory: &Path) -> Result<(Vec<u16>, bool)> {
    if let Ok(text) = std::fs::read_to_string(ports_file(directory)) {
        let ports = text.lines().map(str::parse).collect::<Result<Vec<u16>, _>>();
        return Ok((ports.with_context(|| ports_file(directory).display().to_string())?, false));
    }
    let run = |first: u16| -> Option<Vec<u16>> {
        let last = first.checked_add(options.members - 1)?;
        Some((first..=last).collect())
    };
    if let Some(first) = options.port {
        return Ok((run(first).context("there are no such ports")?, true));
    }
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let found = (FIRST_PORT..).map_while(run).find(|ports| ports.iter().all(is_free));
    Ok((found.context("no ports are free")?, true))
}

impl Member {
    fn start(fernd: &Path, directory: PathBuf, port: u16, options: &[String]) -> Result<Self> {
        std::fs::create_dir_all(&directory)?;
        let mut words = vec![fernd.display().to_string(), "--dbpath".to_owned()];
        words.push(directory.join("data").display().to_string());
        words.push("--logpath".to_owned());
        words.push(directory.join("fernd.log").display().to_string());
        words.extend(["--port".to_owned(), port.to_string()]);
        words.extend(["--replSet", SET, "--bind_ip", "127.0.0.1"].map(str::to_owned));
        words.extend(["--statusPort", "0", "--nounixsocket"].map(str::to_owned));
        words.extend(options.iter().cloned());
        // The kernel tells it when this process is gone: Ctrl-C, a kill, a failed start.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "--"])
            .args(&words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", fernd.display()))?;
        let line = words.join(" ");
        Ok(Self { port, directory, line, process, has_ended: false, role: Role::DoesNotAnswer })
    }

    fn host(&self) -> String {
        host(self.port)
    }

    fn log(&self) -> PathBuf {
        self.directory.join("fernd.log")
    }

    fn wait_until_it_listens(&mut self) -> Result<()> {
        for _ in 0..MAX_LOOKS {
            // First: where the port is somebody else's, that one may answer.
            if let Some(status) = self.process.try_wait()? {
                bail!("{} ended at once: {status}; its log is {}", self.line, self.log().display());
            }
            if self.ask() != Role::DoesNotAnswer {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        bail!("{} does not answer; its log is {}", self.host(), self.log().display())
    }

    /// What it says it is.
    fn ask(&self) -> Role {
        let Ok(hello) = call(self.port, &doc! { "hello": 1, "$db": "admin" }, MAX_HELLO_WAIT)
        else {
            return Role::DoesNotAnswer;
        };
        let is = |field| hello.get_bool(field).unwrap_or(false);
        match (is("isWritablePrimary"), is("secondary")) {
            (true, _) => Role::Primary,
            (false, true) => Role::Secondary,
            (false, false) => Role::None,
        }
    }

    /// How the process that was started here ended; told once.
    fn end(&mut self) -> Result<Option<String>> {
        if self.has_ended {
            return Ok(None);
        }
        let Some(status) = self.process.try_wait()? else { return Ok(None) };
        self.has_ended = true;
        Ok(Some(match status.signal() {
            Some(signal) => format!("was killed by signal {signal}"),
            None => format!("ended with {status}"),
        }))
    }
}

fn host(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// Makes a set of the members, all of which answer and are empty.
fn initiate(ports: &[u16]) -> Result<()> {
    let member = |(id, port): (i32, &u16)| Bson::from(doc! { "_id": id, "host": host(*port) });
    let members: Vec<Bson> = (0..).zip(ports).map(member).collect();
    let configuration = doc! { "_id": SET, "members": members };
    let command = doc! { "replSetInitiate": configuration, "$db": "admin" };
    let reply = call(ports[0], &command, MAX_INITIATE_WAIT)?;
    ensure!(!reply.contains_key("code"), "the set cannot be initiated: {reply}");
    Ok(())
}

/// Returns once one is primary and all others follow it.
fn wait_for_primary(members: &mut [Member]) -> Result<()> {
    for _ in 0..MAX_LOOKS {
        for member in members.iter_mut() {
            member.role = member.ask();
        }
        let has_role = |member: &Member| matches!(member.role, Role::Primary | Role::Secondary);
        if members.iter().all(has_role) && members.iter().any(|m| m.role == Role::Primary) {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
    let logs: Vec<String> = members.iter().map(|m| m.log().display().to_string()).collect();
    bail!("no member becomes primary; their logs: {}", logs.join(" "))
}

fn introduce(members: &[Member]) {
    let hosts: Vec<String> = members.iter().map(Member::host).collect();
    println!("\n  mongodb://{}/?replicaSet={SET}\n", hosts.join(","));
    for member in members {
        let (role, process) = (describe(member.role), member.process.id());
        println!("  {}  {role:9}  process {process}  {}", member.host(), member.log().display());
    }
    println!("\nCtrl-C stops all of them.");
}

fn describe(role: Role) -> &'static str {
    match role {
        Role::Primary => "primary",
        Role::Secondary => "secondary",
        Role::None => "neither primary nor secondary",
        Role::DoesNotAnswer => "does not answer",
    }
}

/// Tells what happens to the members, until none of them is left.
fn watch(members: &mut [Member]) -> Result<()> {
    loop {
        for member in members.iter_mut() {
            if let Some(end) = member.end()? {
                println!("{} {end}; it is started again by\n  {}", member.host(), member.line);
            }
            let role = member.ask();
            if role != member.role {
                member.role = role;
                println!("{}: {}", member.host(), describe(role));
            }
        }
        if members.iter().all(|m| m.has_ended && m.role == Role::DoesNotAnswer) {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}
