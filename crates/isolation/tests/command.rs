//! The program's own command line.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::process::Command;

#[test]
fn server_that_cannot_be_started_is_named() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isolation"));
    let output = command.args(["histories", "--fernd", "/no/such/program"]).output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("/no/such/program"), "{text}");
}
