//! Prints `docs/AUTHORIZATION.md`.
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

fn main() {
    print!("{}", commands::authorization_page());
}
