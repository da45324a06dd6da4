//! Counting instructions: what some examples say to `cargo xtask instructions`,
//! which runs them under callgrind.
//!
//! Callgrind counts inside [`measured`] alone, and writes what it has counted at each of its ends.
//! What is always true: the rows are printed in the order of those ends, one line each.

/// The rows that one process counts.
#[derive(Default)]
pub struct Instructions {
    /// Of the command line: only rows whose name begins so; empty is all.
    wanted: Vec<String>,
}

impl Instructions {
    /// The rows that the command line names.
    pub fn of_arguments() -> Self {
        Self { wanted: std::env::args().skip(1).collect() }
    }

    /// Counts `work`, called with 0, 1, 2 … `times` times, as a row; a call does `operations` of what
    /// the row counts. It is called once before with `times`, uncounted, so that what is made at the
    /// first use is there.
    #[expect(clippy::print_stdout, reason = "how the row is told to xtask")]
    pub fn row(&self, name: &str, times: u32, operations: u32, mut work: impl FnMut(u32)) {
        if !self.wanted.is_empty() && !self.wanted.iter().any(|wanted| name.starts_with(wanted)) {
            return;
        }
        work(times);
        measured(times, &mut work);
        println!("{name}\t{}", u64::from(times) * u64::from(operations));
    }
}

/// What callgrind counts. It is found by its name.
#[inline(never)]
fn measured(times: u32, work: &mut dyn FnMut(u32)) {
    for number in 0..times {
        work(number);
    }
}
