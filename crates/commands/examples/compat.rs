//! Prints `docs/COMPAT.md`.
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

fn main() {
    print!("{}", commands::compatibility_page());
}
