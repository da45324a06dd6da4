//! `fernd`, the database server.
//!
//! The allocator is jemalloc: it can be measured, and it gives back what ten thousand parked
//! connections do not need. Its settings stand in `.cargo/config.toml`.

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    let argv: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    server::run::main(&argv)
}
