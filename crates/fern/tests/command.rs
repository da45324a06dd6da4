//! The binary: what it prints, and its exit status. In a file of its own, because a child that is
//! being started holds its parent's locks for a moment.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use engine::{Background, DictionaryId, Durability, Engine, Options, TxnOptions};
use os::Os;
use telemetry::Registry;

fn run(arguments: &[&str], path: &Path) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fern"));
    let out = command.arg(arguments[0]).arg(path).args(&arguments[1..]).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    (out.status.code().unwrap(), text, String::from_utf8(out.stderr).unwrap())
}

/// Both programs lie in one folder; `fern-client` is another package's, so a script stands for it.
#[test]
fn what_needs_a_server_is_handed_on_with_all_its_words() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let fern = dir.path().join("fern");
    fs::copy(env!("CARGO_BIN_EXE_fern"), &fern).unwrap();
    let run = |words: &[&str]| Command::new(&fern).args(words).output().unwrap();
    let out = run(&["stats", "--seconds", "1"]);
    let error = String::from_utf8(out.stderr).unwrap();
    assert!(error.contains("`fern stats` needs") && error.contains("fern-client"), "{error}");
    assert_eq!((out.status.code(), error.lines().count()), (Some(2), 1), "{error}");

    let client = dir.path().join("fern-client");
    fs::write(&client, "#!/bin/sh\necho \"$FERN_VERSION $@\"\nexit 7\n").unwrap();
    fs::set_permissions(&client, fs::Permissions::from_mode(0o755)).unwrap();
    let handed_on = |words: &[&str]| format!("{} {}", env!("CARGO_PKG_VERSION"), words.join(" "));
    for words in [&["bench", "--help"][..], &["bench", "read", "--docs", "5", "-h"], &["stats"]] {
        let out = run(words);
        assert_eq!(String::from_utf8(out.stdout).unwrap().trim_end(), handed_on(words));
        assert_eq!(out.status.code(), Some(7));
    }
}

#[test]
fn exit_status_tells_clean_damaged_and_impossible_apart() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::new(dir.path());
    options.background = Background::Manual;
    options.fs_redzone_percent = 0;
    options.sizes.log_segment_bytes = 1 << 20;
    let engine = Engine::open(Os::real(), Arc::new(Registry::new()), options).unwrap();
    let mut txn = engine.begin(TxnOptions::default());
    for key in 0..2000_u32 {
        txn.put(DictionaryId::ROOT, &key.to_be_bytes(), b"a value of some length").unwrap();
    }
    txn.commit(Durability::Synced).unwrap().durable().unwrap();

    let (code, _, error) = run(&["check"], dir.path());
    assert!(code == 2 && error.lines().count() == 1, "{error}");
    assert!(error.contains("a server is running"), "{error}");

    engine.close().unwrap();
    drop(engine);
    let (code, text, _) = run(&["check"], dir.path());
    assert!(code == 0 && text.lines().last().unwrap().starts_with("clean: "), "{text}");
    for section in [&["inspect"][..], &["inspect", "segments"], &["inspect", "tree", "1"]] {
        let (code, text, _) = run(section, dir.path());
        assert!(code == 0 && text.lines().count() > 2, "{section:?}: {text}");
    }
    let (code, text, _) = run(&["inspect", "--json", "trees"], dir.path());
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, json["trees"][0]["entries"].as_u64()), (0, Some(2000)));

    // the segment that comes first in the file
    let (_, text, _) = run(&["inspect", "segments", "--json"], dir.path());
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let offset = json["segments"][0]["offset"].as_u64().unwrap();
    let path = dir.path().join("fern.data");
    let mut bytes = fs::read(&path).unwrap();
    bytes[offset as usize + 30] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (code, text, _) = run(&["check"], dir.path());
    assert_eq!(code, 1, "{text}");
    assert!(text.starts_with("damage: ") && text.contains("page 0: page checksum differs"));
    assert!(text.lines().last().unwrap().starts_with("DAMAGED"), "{text}");

    let (code, _, error) = run(&["check"], Path::new("no/such/place"));
    assert!(code == 2 && error.lines().count() == 1, "{error}");
}
