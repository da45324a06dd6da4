//! PCRE2 for clients' patterns: with limits, and stopped with the operation.
//!
//! A match can take very long: PCRE2's match limit starts anew at each start offset, and one step
//! of it can scan the whole subject. So a [`Regex`] is compiled with a callout in front, which
//! polls at each start offset, and is allowed few steps there, fewer the longer the text is. What
//! needs more is compiled again with a callout before every item of the pattern, and polls all the
//! time; that is slower, and has the library's own limit. A short text is tried without callouts
//! first, with steps so few that all start offsets together take no longer.
//!
//! Always true:
//! 1. Between two polls lie some milliseconds of work, whatever the pattern and the text.
//! 2. Over a limit is an error, never "no match". A pattern can lower the limits for itself by
//!    `(*LIMIT_MATCH=…)` and its kin, but not raise them.
//! 3. A compiled pattern is charged to the operation's memory.
//! 4. All unsafe code is in `code.rs`: a compiled pattern is not changed after it was made, a text is
//!    valid UTF-8 and matched from the start of a character.

mod code;

use code::{CalloutMode, Code, MatchFailure};
use errors::Error;
use limits::{Charge, Part};
use std::sync::{Arc, OnceLock};

pub use code::Captures;

/// The longest pattern, as MongoDB's.
pub const MAX_PATTERN_BYTES: usize = 32_764;

/// Counted steps of the library at one start offset.
const MATCH_LIMIT: u32 = 1_000_000;

/// Characters that may be gone over between two polls: some milliseconds.
const STEPS_BETWEEN_POLLS: usize = 16 << 20;

/// A text so short is tried without callouts first: 250 steps at least at each start offset.
const SHORT_BYTES: usize = 256;

/// Fewer steps are not worth a try without callouts.
const LEAST_STEPS: usize = 8;

/// Start offsets that are tried at a time, where the pattern has no room for a callout. Such a
/// pattern is as long as patterns may be, and may be compared as a whole at each of them.
const WINDOW: usize = 1024;

/// How a pattern is read: MongoDB's `i`, `m`, `s` and `x`.
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Letters match in both cases.
    pub caseless: bool,
    /// `^` and `$` match at lines.
    pub multi_line: bool,
    /// `.` matches the end of a line too.
    pub dotall: bool,
    /// White space and comments are left out.
    pub extended: bool,
}

/// Reads the letters of `imsxu`; gives back one that is none of them.
pub fn read_options(letters: &str) -> Result<Options, char> {
    let mut options = Options::default();
    for letter in letters.chars() {
        match letter {
            'i' => options.caseless = true,
            'm' => options.multi_line = true,
            's' => options.dotall = true,
            'x' => options.extended = true,
            'u' => {}
            other => return Err(other),
        }
    }
    Ok(options)
}

/// Why a pattern could not be compiled.
#[derive(Debug)]
pub enum CompileError {
    /// What is wrong with it.
    Pattern(String),
    /// The operation was stopped or has no memory.
    Operation(Error),
}

/// Why a match could not be found out.
#[derive(Debug)]
pub enum MatchError {
    /// The library's reason: most often a limit.
    Match(String),
    /// The operation was stopped.
    Operation(Error),
}

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct Regex {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    pattern: Box<str>,
    options: Options,
    /// Calls out nowhere: for short strings.
    plain: Code,
    /// Calls out where a match is tried. `None`: does not compile, being too large with the callout; a match
    /// is tried at some places at a time, without.
    fast: OnceLock<Option<Code>>,
    /// Calls out before every item. `None`: does not compile, being too large with the callouts.
    thorough: OnceLock<Option<Code>>,
    _memory: Charge,
}

impl Regex {
    /// Compiles a pattern.
    pub fn new(pattern: &str, options: Options) -> Result<Self, CompileError> {
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(CompileError::Pattern("regular expression is too large".to_owned()));
        }
        limits::poll_work(1 + pattern.len()).map_err(CompileError::Operation)?;
        let plain =
            Code::compile(pattern, options, CalloutMode::None).map_err(CompileError::Pattern)?;
        // Twice: most strings are short, but for one that is not it is compiled once more.
        let memory = limits::charge(Part::Values, pattern.len() + 2 * plain.bytes());
        let memory = memory.map_err(CompileError::Operation)?;
        let (fast, thorough) = (OnceLock::new(), OnceLock::new());
        let pattern = pattern.into();
        let inner = Inner { pattern, options, plain, fast, thorough, _memory: memory };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Room for the places of a match and its groups.
    pub fn captures(&self) -> Captures {
        Captures::default()
    }

    /// Whether the pattern matches somewhere in the text.
    pub fn is_match(&self, text: &str) -> Result<bool, MatchError> {
        self.find(text, 0, None)
    }

    /// Looks for a match from the character that begins at byte `from` on, and tells its places.
    pub fn captures_at(
        &self,
        text: &str,
        from: usize,
        captures: &mut Captures,
    ) -> Result<bool, MatchError> {
        self.find(text, from, Some(captures))
    }

    fn find(
        &self,
        text: &str,
        from: usize,
        mut captures: Option<&mut Captures>,
    ) -> Result<bool, MatchError> {
        limits::poll().map_err(MatchError::Operation)?;
        let inner = &*self.inner;
        if text.len() <= SHORT_BYTES {
            let offsets_and_steps = (text.len() + 1) * (text.len() + 1);
            let steps = (STEPS_BETWEEN_POLLS / offsets_and_steps).min(MATCH_LIMIT as usize) as u32;
            match inner.plain.find(text, from..text.len(), steps, captures.as_deref_mut()) {
                Err(MatchFailure::Limit) => {}
                done => return done.map_err(failure),
            }
        }
        let steps =
            (STEPS_BETWEEN_POLLS / (text.len() + 1)).clamp(LEAST_STEPS, MATCH_LIMIT as usize);
        match inner.find_fast(text, from, steps as u32, captures.as_deref_mut()) {
            Err(MatchFailure::Limit) => {}
            done => return done.map_err(failure),
        }
        let compile = || Code::compile(&inner.pattern, inner.options, CalloutMode::EveryItem).ok();
        match inner.thorough.get_or_init(compile) {
            Some(thorough) => {
                thorough.find(text, from..text.len(), MATCH_LIMIT, captures).map_err(failure)
            }
            None => Err(failure(MatchFailure::Limit)),
        }
    }
}

impl Inner {
    fn find_fast(
        &self,
        text: &str,
        mut from: usize,
        steps: u32,
        mut captures: Option<&mut Captures>,
    ) -> Result<bool, MatchFailure> {
        let fast = self.fast.get_or_init(|| match with_callout(&self.pattern, self.options) {
            Some(called) => Code::compile(&called, self.options, CalloutMode::AsWritten).ok(),
            None => Code::compile(&self.pattern, self.options, CalloutMode::EveryItem).ok(),
        });
        loop {
            let (code, last) = match fast {
                Some(fast) => (fast, text.len()),
                None => (&self.plain, from.saturating_add(WINDOW)),
            };
            let found = code.find(text, from..last, steps, captures.as_deref_mut())?;
            if found || last >= text.len() {
                return Ok(found);
            }
            limits::poll_work(WINDOW).map_err(MatchFailure::Stopped)?;
            from = last + 1;
            while !text.is_char_boundary(from) {
                from += 1;
            }
        }
    }
}

fn failure(failure: MatchFailure) -> MatchError {
    match failure {
        MatchFailure::Stopped(error) => MatchError::Operation(error),
        MatchFailure::Limit => MatchError::Match("match limit exceeded".to_owned()),
        MatchFailure::Other(text) => MatchError::Match(text),
    }
}

const CALLOUT: &str = "(?C)";

/// The pattern with a callout in front, behind the settings that must come first. `None` where it
/// begins with what would then repeat the callout.
fn with_callout(pattern: &str, options: Options) -> Option<String> {
    let settings = pattern.len() - without_settings(pattern).len();
    let (settings, rest) = pattern.split_at(settings);
    let first = if options.extended { rest.trim_start() } else { rest };
    if first.starts_with(['*', '+', '?', '{', '#']) {
        return None;
    }
    Some(format!("{settings}{CALLOUT}{rest}"))
}

/// Settings that PCRE2 takes at the very beginning only.
const SETTINGS: &[&str] = &[
    "ANY",
    "ANYCRLF",
    "BSR_ANYCRLF",
    "BSR_UNICODE",
    "CASELESS_RESTRICT",
    "CR",
    "CRLF",
    "LF",
    "LIMIT_DEPTH",
    "LIMIT_HEAP",
    "LIMIT_MATCH",
    "LIMIT_RECURSION",
    "NOTEMPTY",
    "NOTEMPTY_ATSTART",
    "NO_AUTO_POSSESS",
    "NO_DOTSTAR_ANCHOR",
    "NO_JIT",
    "NO_START_OPT",
    "NUL",
    "TURKISH_CASING",
    "UCP",
    "UTF",
];

fn without_settings(pattern: &str) -> &str {
    let mut rest = pattern;
    while let Some((setting, after)) = rest.strip_prefix("(*").and_then(|s| s.split_once(')')) {
        let name = setting.split_once('=').map_or(setting, |(name, _)| name);
        if !SETTINGS.contains(&name) {
            break;
        }
        rest = after;
    }
    rest
}

#[cfg(test)]
mod tests;
