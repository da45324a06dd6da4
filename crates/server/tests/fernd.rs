//! The program itself: what it says, what it refuses and how it ends.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "support/ports.rs"]
mod ports;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use ports::free_port;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use wire::{Message, MsgFlags};

fn fernd(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fernd"));
    command.current_dir(directory).arg("--nounixsocket");
    if !arguments.contains(&"--cacheSize") {
        command.args(["--cacheSize", "64M"]);
    }
    if !arguments.contains(&"--statusPort") {
        command.args(["--statusPort", "0"]);
    }
    command.args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    fernd(directory.path(), arguments).output().unwrap()
}

/// One line on standard error, this exit code.
fn refused(arguments: &[&str], code: i32, words: &[&str]) {
    let output = run(arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    assert_eq!(text.lines().count(), 1, "{arguments:?}: {text}");
    for word in words {
        assert!(text.contains(word), "{arguments:?}: {text}");
    }
}

fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    for _ in 0..2000 {
        if let Some(done) = attempt() {
            return done;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("never happened: {what}");
}

/// Sends one command on a connection of its own; `None` where nobody listens.
fn call(port: u16, body: &RawDocument) -> Option<RawDocumentBuf> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let mut frame = Vec::new();
    wire::encode_msg(&mut frame, 1, 0, MsgFlags::NONE, body);
    stream.write_all(&frame).unwrap();
    let mut reply = vec![0; 4];
    stream.read_exact(&mut reply).unwrap();
    reply.resize(u32::from_le_bytes(reply[..4].try_into().unwrap()) as usize, 0);
    stream.read_exact(&mut reply[4..]).unwrap();
    let Ok((_, Message::Msg(msg))) = wire::decode(&reply) else { panic!("not OP_MSG") };
    Some(msg.body.to_owned())
}

fn ok(reply: &RawDocument) -> bool {
    reply.get_f64("ok").unwrap() > 0.5
}

fn ping(port: u16) -> bool {
    call(port, &rawdoc! { "ping": 1, "$db": "admin" }).is_some_and(|reply| ok(&reply))
}

/// How many of a find's first documents came.
fn found(port: u16) -> usize {
    let reply = call(port, &rawdoc! { "find": "c", "batchSize": 1000, "$db": "t" }).unwrap();
    let cursor = reply.get_document("cursor").unwrap();
    cursor.get_array("firstBatch").unwrap().into_iter().count()
}

fn insert(port: u16, id: i32) {
    let reply = call(
        port,
        &rawdoc! { "insert": "c", "documents": [{ "_id": id }], "$db": "t", "writeConcern": { "j": true } },
    );
    assert!(reply.is_some_and(|reply| ok(&reply)));
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

fn ends(mut child: Child) -> Output {
    eventually("the process ends", || child.try_wait().unwrap());
    child.wait_with_output().unwrap()
}

#[test]
fn the_code_of_a_large_server_lies_in_memory_of_its_own() {
    let kernel = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let has_huge_pages =
        cfg!(target_arch = "x86_64") && kernel.is_ok_and(|enabled| !enabled.contains("[never]"));
    for (arguments, moves) in [
        (&["--cacheSize", "512M"][..], has_huge_pages),
        (&["--cacheSize", "512M", "--setParameter", "codeInHugePages=false"], false),
        (&["--cacheSize", "256M"], false),
        (&["--cacheSize", "256M", "--setParameter", "codeInHugePages=true"], has_huge_pages),
    ] {
        if arguments.contains(&"codeInHugePages=true") && !has_huge_pages {
            refused(arguments, 2, &["codeInHugePages", "cannot be moved"]);
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        let port = free_port();
        let text = port.to_string();
        let all = [&["--port", &text, "--dbpath", "data"], arguments].concat();
        let child = fernd(directory.path(), &all).spawn().unwrap();
        eventually("it answers", || ping(port).then_some(()));
        insert(port, 1);
        assert_eq!(found(port), 1);
        let asked = rawdoc! { "getParameter": 1, "codeInHugePages": 1, "$db": "admin" };
        assert_eq!(call(port, &asked).unwrap().get_bool("codeInHugePages").unwrap(), moves);
        // Memory that is executed and no file's; pages that a system call enters the kernel by are not of the program.
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
        let is_moved = |line: &str| line.contains(" r-xp ") && line.split_whitespace().count() == 5;
        assert_eq!(maps.lines().any(is_moved), moves, "{arguments:?}: {maps}");
        signal(child.id(), "-TERM");
        let output = ends(child);
        assert!(output.status.success());
        let log = String::from_utf8(output.stdout).unwrap();
        assert_eq!(log.contains("was moved to huge pages"), moves, "{log}");
    }
}

#[test]
fn what_cannot_be_honoured_is_one_line_and_a_code() {
    refused(&["--noSuchOption", "1"], 2, &["noSuchOption"]);
    refused(&["--auth", "--replSet", "s"], 2, &["security.keyFile"]);
    refused(&["--keyFile", "/no/such/file"], 2, &["/no/such/file"]);
    refused(&["--cacheSize", "64T"], 2, &["cacheSize", "memory"]);
    refused(&["--port", "0", "--setParameter", "noSuchParameter=1"], 2, &["noSuchParameter"]);
    refused(&["--port", "0", "--logpath", "/no/such/directory/log"], 2, &["/no/such/directory"]);
    refused(&["--port", "0", "--bind_ip", "no.such.name.invalid"], 48, &["no.such.name.invalid"]);
    refused(&["--port", "0", "--dbpath", "/proc/self/x"], 100, &["/proc/self/x"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    refused(&["--port", &port], 48, &[&port, "in use"]);
}

#[test]
fn a_server_in_no_set_refuses_links_of_members_and_says_so_once() {
    let link = rawdoc! {
        "version": 1, "set": "rs", "setId": bson::oid::ObjectId::from_bytes([7; 12]),
        "from": 1_i64, "to": 2_i64, "lineage": 0_i64, "start": 9_i64, "connection": 1_i64,
    };
    for (arguments, code, why) in
        [(&[][..], 76, "without --replSet"), (&["--replSet", "rs"], 94, "replSetInitiate")]
    {
        let directory = tempfile::tempdir().unwrap();
        let port = free_port();
        let text = port.to_string();
        let child = fernd(directory.path(), &[&["--port", &text], arguments].concat()).spawn();
        let child = child.unwrap();
        eventually("it answers", || ping(port).then_some(()));
        for _ in 0..3 {
            let hello = rawdoc! { "hello": 1, "fernLink": link.clone(), "$db": "admin" };
            let reply = call(port, &hello).unwrap();
            assert_eq!(reply.get_i32("code").unwrap(), code, "{reply:?}");
            let said = reply.get_str("errmsg").unwrap();
            assert!(said.starts_with("this server takes no links") && said.contains(why), "{said}");
        }
        assert!(ok(&call(port, &rawdoc! { "hello": 1, "$db": "admin" }).unwrap()));
        signal(child.id(), "-TERM");
        let log = String::from_utf8(ends(child).stdout).unwrap();
        assert_eq!(log.matches("A link was refused").count(), 1, "{log}");
    }
}

#[test]
fn version_and_help_end_well() {
    let version = run(&["--version"]);
    assert!(version.status.success());
    assert!(String::from_utf8(version.stdout).unwrap().contains(env!("CARGO_PKG_VERSION")));
    assert!(run(&["--help"]).status.success());
}

#[test]
fn without_a_dbpath_it_makes_one_says_how_to_connect_and_sigterm_ends_it_well() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let child = fernd(directory.path(), &["--port", &port.to_string()]).spawn().unwrap();
    eventually("it answers", || ping(port).then_some(()));
    assert!(directory.path().join("fern-data").is_dir());
    signal(child.id(), "-TERM");
    let output = ends(child);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(text.contains(&format!("mongosh mongodb://127.0.0.1:{port}")), "{text}");
    assert!(text.contains("fern-data") && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn what_was_written_survives_sigterm_and_sigkill_and_keeps_a_second_server_out() {
    let directory = tempfile::tempdir().unwrap();
    for (round, how) in ["-TERM", "-KILL", "-TERM"].into_iter().enumerate() {
        let port = free_port();
        let child = fernd(directory.path(), &["--port", &port.to_string()]).spawn().unwrap();
        eventually("it answers", || ping(port).then_some(()));
        assert_eq!(found(port), round * 10, "before round {round}");
        for n in 0..10 {
            insert(port, round as i32 * 10 + n);
        }
        let second = fernd(directory.path(), &["--port", "0"]).output().unwrap();
        let text = String::from_utf8(second.stderr).unwrap();
        assert_eq!((second.status.code(), text.lines().count()), (Some(100), 1), "{text}");
        assert!(text.contains("fern-data"), "{text}");
        signal(child.id(), how);
        ends(child);
    }
}

#[test]
fn a_forked_server_outlives_its_parent_and_rotates_its_log() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let text = port.to_string();
    let arguments = ["--fork", "--logpath", "log", "--pidfilepath", "pid", "--port", &text];
    let parent = fernd(directory.path(), &arguments).output().unwrap();
    assert!(parent.status.success(), "{parent:?}");
    let pid_file = directory.path().join("pid");
    let pid: u32 = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    let said = String::from_utf8(parent.stdout).unwrap();
    assert!(said.contains(&format!("forked process: {pid}")), "{said}");
    assert!(ping(port), "it serves as soon as the parent has ended");
    signal(pid, "-USR1");
    let logs = || {
        let names = std::fs::read_dir(directory.path()).unwrap();
        names
            .filter(|n| n.as_ref().unwrap().file_name().to_str().unwrap().starts_with("log"))
            .count()
    };
    eventually("the log is rotated", || (logs() == 2).then_some(()));
    signal(pid, "-TERM");
    eventually("it ends", || (!pid_file.exists()).then_some(()));
}
