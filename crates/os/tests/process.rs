//! Signals and the way to the background, each in a process of its own: this program starts itself
//! with `FERN_ROLE` set. It runs without the test harness, whose threads would catch the signals.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the roles talk to their parent by standard output")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use os::{Os, Signal, daemonize, on_signals};
use rustix::process::{Pid, Signal as Kill, kill_process};

fn main() {
    match std::env::var("FERN_ROLE").as_deref() {
        Ok("signals") => role_signals(),
        Ok("daemon") => role_daemon(),
        Ok("private") => role_private(),
        Ok("failing-daemon") => role_failing_daemon(),
        _ => {
            signals_become_calls_on_a_thread();
            what_is_private_leaves_no_core();
            a_programs_output_is_read_and_no_more_than_is_asked_for();
            caller_waits_until_the_daemon_is_ready();
            daemon_that_dies_early_fails_its_caller();
        }
    }
}

fn start_as(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("FERN_ROLE", role).stdout(Stdio::piped());
    command
}

fn role_signals() {
    let os = Os::real();
    let handler = |signal| {
        println!("{signal:?}");
        if signal == Signal::Terminate {
            std::process::exit(7);
        }
    };
    let thread = on_signals(&*os.spawner, handler).unwrap();
    let other = os.spawner.spawn("other", Box::new(|| println!("ready"))).unwrap();
    other.join().unwrap();
    thread.join().unwrap();
}

fn signals_become_calls_on_a_thread() {
    let mut child = start_as("signals").spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut expect = |line: &str| assert_eq!(lines.next().unwrap().unwrap(), line);
    expect("ready");
    for (kill, line) in [
        (Kill::HUP, "HangUp"),
        (Kill::USR1, "User1"),
        (Kill::USR2, "User2"),
        (Kill::INT, "Interrupt"),
        (Kill::TERM, "Terminate"),
    ] {
        kill_process(pid, kill).unwrap();
        expect(line);
    }
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

fn role_private() {
    os::keep_memory_private().unwrap();
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let cores = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    println!("{:?}", cores.split_whitespace().skip(4).collect::<Vec<_>>());
    println!("{:?}", rustix::process::dumpable_behavior().unwrap());
}

fn what_is_private_leaves_no_core() {
    let output = start_as("private").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "[\"0\", \"0\", \"bytes\"]\nNotDumpable\n");
}

fn a_programs_output_is_read_and_no_more_than_is_asked_for() {
    let os = Os::real();
    let run = |words: &[&str], time: u64| {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let time = std::time::Duration::from_millis(time);
        os::output_of(&*os.clock, &words, 100, time).map_err(|error| error.to_string())
    };
    assert_eq!(run(&["/bin/echo", "one  two", "$HOME"], 60_000), Ok(b"one  two $HOME\n".to_vec()));
    for (words, time, word) in [
        (&["/bin/sh", "-c", "echo x; exit 3"][..], 60_000, "status: 3"),
        (&["/bin/sh", "-c", "while :; do echo 0123456789; done"], 60_000, "more than 100"),
        (&["/bin/sleep", "600"], 50, "too long"),
        // It closes its output and goes on.
        (&["/bin/sh", "-c", "exec >&-; exec sleep 600"], 50, "too long"),
        (&["/no/such/program"], 60_000, "No such file"),
        (&[], 60_000, "no program"),
    ] {
        let refused = run(words, time).unwrap_err();
        assert!(refused.contains(word), "{words:?}: {refused}");
    }
}

fn role_daemon() {
    let pid_file = std::env::var("FERN_PID_FILE").unwrap();
    let daemon = daemonize().unwrap();
    std::fs::write(&pid_file, std::process::id().to_string()).unwrap();
    daemon.ready().unwrap();
    // the caller's pipe must close although this process lives on
    let session = rustix::process::getsid(None).unwrap();
    assert_eq!(session, rustix::process::getpid());
    Os::real().clock.sleep(std::time::Duration::from_secs(1));
    std::fs::write(Path::new(&pid_file).with_extension("done"), "").unwrap();
}

fn caller_waits_until_the_daemon_is_ready() {
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("pid");
    let output = start_as("daemon").env("FERN_PID_FILE", &pid_file).output().unwrap();
    assert!(output.status.success());
    let pid: u32 = std::fs::read_to_string(&pid_file).unwrap().parse().unwrap();
    assert_ne!(pid, std::process::id());
    let done = pid_file.with_extension("done");
    assert!(!done.exists(), "the caller came back while the daemon lives");
    let os = Os::real();
    while !done.exists() {
        assert!(os.clock.monotonic().as_secs() < 20, "the daemon lives on and ends well");
        os.clock.sleep(std::time::Duration::from_millis(20));
    }
}

fn role_failing_daemon() {
    let _daemon = daemonize().unwrap();
    std::process::exit(3);
}

fn daemon_that_dies_early_fails_its_caller() {
    let output = start_as("failing-daemon").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}
