//! What a run did: a hash of all of it, and the last lines for the report.

use std::collections::VecDeque;
use xxhash_rust::xxh3::Xxh3Default;

/// Lines kept for the report of a failure.
const KEPT: usize = 60;

/// Every step of a run in one line.
pub(crate) struct Trace {
    hash: Xxh3Default,
    tail: VecDeque<String>,
    /// Print lines as they come.
    pub(crate) is_verbose: bool,
}

impl Trace {
    pub(crate) fn new(is_verbose: bool) -> Self {
        Self { hash: Xxh3Default::new(), tail: VecDeque::new(), is_verbose }
    }

    #[expect(clippy::print_stdout, reason = "asked for with --trace")]
    pub(crate) fn line(&mut self, line: String) {
        if self.is_verbose {
            println!("{line}");
        }
        self.hash.update(line.as_bytes());
        self.hash.update(b"\n");
        if self.tail.len() == KEPT {
            self.tail.pop_front();
        }
        self.tail.push_back(line);
    }

    /// Takes part in the hash and in nothing else.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.digest()
    }

    pub(crate) fn tail(&self) -> Vec<String> {
        self.tail.iter().cloned().collect()
    }
}
