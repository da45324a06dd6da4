//! The program, in the name of `fern`: its help and its exit status. (That the tests build it depends
//! on this file: Cargo builds a program where there is a test of it.)
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

#[test]
fn it_speaks_as_fern_and_ends_as_fern_does() {
    let run = |words: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_fern-client")).args(words).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        (out.status.code(), text, String::from_utf8(out.stderr).unwrap())
    };
    let (code, help, _) = run(&["bench", "--help"]);
    assert!(code == Some(0) && help.contains("Usage: fern bench "), "{help}");
    let (code, help, _) = run(&["stats", "--help"]);
    assert!(code == Some(0) && help.contains("Usage: fern stats "), "{help}");
    let other = ("FERN_VERSION", "0.0.9");
    let mut client = Command::new(env!("CARGO_BIN_EXE_fern-client"));
    let out = client.env(other.0, other.1).args(["bench", "--help"]).output().unwrap();
    let error = String::from_utf8(out.stderr).unwrap();
    let told = concat!("fern 0.0.9, and fern-client beside it is ", env!("CARGO_PKG_VERSION"));
    assert!(out.status.code() == Some(2) && error.contains(told), "{error}");
    let (code, _, error) = run(&["bench", "no-such-experiment"]);
    assert!(code == Some(2) && error.contains("no-such-experiment"), "{error}");
    let (code, _, error) = run(&["stats", "this is no address"]);
    assert!(
        code == Some(2) && error.starts_with("fern: ") && error.lines().count() == 1,
        "{error}"
    );
}
