//! One compiled pattern: the calls of PCRE2, and its calls back.

use crate::Options;
use errors::Error;
use libc::{c_int, c_void};
use pcre2_sys as sys;
use std::cell::Cell;
use std::ops::Range;
use std::ptr;

/// KiB of heap for a match without compiled machine code.
const HEAP_LIMIT_KIB: u32 = 20_000;

// The bindings leave out what has to do with callouts.
#[repr(C)]
struct CalloutBlock {
    version: u32,
    callout_number: u32,
    capture_top: u32,
    capture_last: u32,
    offset_vector: *mut usize,
    mark: *const u8,
    subject: *const u8,
    subject_length: usize,
    start_match: usize,
    current_position: usize,
}

type Callout = unsafe extern "C" fn(*mut CalloutBlock, *mut c_void) -> c_int;

unsafe extern "C" {
    fn pcre2_set_callout_8(
        context: *mut sys::pcre2_match_context_8,
        callout: Option<Callout>,
        data: *mut c_void,
    ) -> c_int;
}

/// What a match and its calls back share.
struct RunningMatch {
    /// Where in the text the last call was.
    position: usize,
    /// Why the operation ends.
    stopped: Option<Error>,
}

/// PCRE2 asks whether to go on.
///
/// # Safety
/// `block` is the library's, `running` is the one that [`Code::find`] gave it; both outlive the call.
unsafe extern "C" fn on_callout(block: *mut CalloutBlock, running: *mut c_void) -> c_int {
    // SAFETY: as above; nobody else reads or writes them while the library runs.
    let (block, running) = unsafe { (&*block, &mut *running.cast::<RunningMatch>()) };
    let distance = block.current_position.abs_diff(running.position);
    running.position = block.current_position;
    match limits::poll_work(1 + distance / limits::BYTES_PER_UNIT) {
        Ok(()) => 0,
        Err(error) => {
            running.stopped = Some(error);
            sys::PCRE2_ERROR_CALLOUT
        }
    }
}

/// Byte ranges of a match and its groups; the match is group 0.
#[derive(Clone, Debug, Default)]
pub struct Captures {
    ranges: Vec<(usize, usize)>,
}

impl Captures {
    /// How many groups the pattern has, the match itself among them.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether nothing was looked for yet.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Where a group matched; `None` where it took no part.
    pub fn get(&self, group: usize) -> Option<(usize, usize)> {
        self.ranges.get(group).copied().filter(|(start, _)| *start != usize::MAX)
    }
}

/// Why a match could not be found out.
pub(crate) enum MatchFailure {
    Stopped(Error),
    /// More steps than allowed.
    Limit,
    Other(String),
}

/// Where a match calls out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CalloutMode {
    /// Where the pattern says so.
    AsWritten,
    /// Before each item of the pattern.
    EveryItem,
    /// Nowhere; a match can be told the last place to be tried at.
    None,
}

/// A compiled pattern.
pub(crate) struct Code {
    inner: ptr::NonNull<sys::pcre2_code_8>,
    /// Places of the match and its groups.
    pairs: u32,
    /// It was compiled further, to machine code.
    is_native: bool,
}

// SAFETY: PCRE2 writes to a compiled pattern only while it compiles it, which `compile` has finished
// before anybody has the value; what a match writes to is the match's own.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: made by pcre2_compile, freed once.
        unsafe { sys::pcre2_code_free_8(self.inner.as_ptr()) }
    }
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Code")
    }
}

impl Code {
    /// Compiles a pattern.
    pub(crate) fn compile(
        pattern: &str,
        options: Options,
        calls: CalloutMode,
    ) -> Result<Self, String> {
        let flags = [
            (options.caseless, sys::PCRE2_CASELESS),
            (options.multi_line, sys::PCRE2_MULTILINE),
            (options.dotall, sys::PCRE2_DOTALL),
            (options.extended, sys::PCRE2_EXTENDED),
            (calls == CalloutMode::EveryItem, sys::PCRE2_AUTO_CALLOUT),
            (calls == CalloutMode::None, sys::PCRE2_USE_OFFSET_LIMIT),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set);
        let flags = flags.fold(sys::PCRE2_UTF, |all, (_, flag)| all | flag);
        let (mut error, mut offset) = (0, 0);
        // SAFETY: the pattern is read for its length, error and offset are written; a null context
        // stands for the defaults.
        let code = unsafe {
            sys::pcre2_compile_8(
                pattern.as_ptr(),
                pattern.len(),
                flags,
                &raw mut error,
                &raw mut offset,
                ptr::null_mut(),
            )
        };
        let Some(code) = ptr::NonNull::new(code) else {
            let reason = text_of(error);
            return Err(format!("PCRE2: error compiling pattern at offset {offset}: {reason}"));
        };
        let mut compiled = Self { inner: code, pairs: 1, is_native: false };
        // Where it fails (no such processor, no memory, NO_JIT in the pattern) the pattern is interpreted.
        // SAFETY: the code was just made and nobody else has it.
        let _interpreted =
            unsafe { sys::pcre2_jit_compile_8(compiled.inner.as_ptr(), sys::PCRE2_JIT_COMPLETE) };
        compiled.is_native = compiled.info(sys::PCRE2_INFO_JITSIZE) > 0;
        compiled.pairs = compiled.groups() + 1;
        Ok(compiled)
    }

    fn groups(&self) -> u32 {
        let mut groups = 0_u32;
        let what = sys::PCRE2_INFO_CAPTURECOUNT;
        // SAFETY: what is asked for is a uint32_t.
        let done = unsafe {
            sys::pcre2_pattern_info_8(self.inner.as_ptr(), what, (&raw mut groups).cast::<c_void>())
        };
        if done == 0 { groups } else { 0 }
    }

    /// What it takes in memory, machine code included.
    pub(crate) fn bytes(&self) -> usize {
        [sys::PCRE2_INFO_SIZE, sys::PCRE2_INFO_JITSIZE]
            .into_iter()
            .map(|what| self.info(what))
            .sum()
    }

    fn info(&self, what: u32) -> usize {
        let mut value = 0_usize;
        // SAFETY: both asked for are of the type size_t.
        let done = unsafe {
            sys::pcre2_pattern_info_8(self.inner.as_ptr(), what, (&raw mut value).cast::<c_void>())
        };
        if done == 0 { value } else { 0 }
    }

    /// Looks for a match that begins in `range`, with so many counted steps for each place it is tried
    /// at. Only a pattern that calls out [`Calls::Nowhere`] can end before the text does.
    pub(crate) fn find(
        &self,
        text: &str,
        range: Range<usize>,
        steps: u32,
        captures: Option<&mut Captures>,
    ) -> Result<bool, MatchFailure> {
        if !text.is_char_boundary(range.start) {
            return Err(MatchFailure::Other("bad offset value".to_owned()));
        }
        let mut running = RunningMatch { position: range.start, stopped: None };
        let mut memory =
            Match::take(self).ok_or_else(|| MatchFailure::Other("no more memory".to_owned()))?;
        let found = memory.run(self, text, range, steps, &mut running, captures);
        memory.keep_after(self);
        if let Some(error) = running.stopped {
            return Err(MatchFailure::Stopped(error));
        }
        match found {
            sys::PCRE2_ERROR_NOMATCH => Ok(false),
            sys::PCRE2_ERROR_MATCHLIMIT => Err(MatchFailure::Limit),
            0.. => Ok(true),
            error => Err(MatchFailure::Other(text_of(error))),
        }
    }
}

thread_local! {
    /// Of the last match on this thread: making it again costs as much as a match in a short text.
    static SPARE: Cell<Option<Match>> = const { Cell::new(None) };
}

/// Places that the memory of a match has room for at least.
const LEAST_PAIRS: u32 = 8;

/// Places that kept memory has room for at most.
const MOST_KEPT_PAIRS: u32 = 128;

/// The memory of one match.
struct Match {
    pairs: u32,
    context: ptr::NonNull<sys::pcre2_match_context_8>,
    data: ptr::NonNull<sys::pcre2_match_data_8>,
}

impl Drop for Match {
    fn drop(&mut self) {
        // SAFETY: both were made by the library, and are freed once.
        unsafe {
            sys::pcre2_match_data_free_8(self.data.as_ptr());
            sys::pcre2_match_context_free_8(self.context.as_ptr());
        }
    }
}

impl Match {
    /// The memory that the last match on this thread left, where it has enough places, or new.
    fn take(code: &Code) -> Option<Self> {
        let spare = SPARE.take().filter(|spare| spare.pairs >= code.pairs);
        spare.or_else(|| Self::new(code.pairs.max(LEAST_PAIRS)))
    }

    /// Leaves the memory to the next match, unless it is large. Where a pattern is interpreted, it has
    /// grown with the text.
    fn keep_after(self, code: &Code) {
        if code.is_native && self.pairs <= MOST_KEPT_PAIRS {
            SPARE.set(Some(self));
        }
    }

    fn new(pairs: u32) -> Option<Self> {
        // SAFETY: null stands for the usual allocator.
        let context = unsafe { sys::pcre2_match_context_create_8(ptr::null_mut()) };
        let context = ptr::NonNull::new(context)?;
        // SAFETY: null stands for the usual allocator.
        let data = unsafe { sys::pcre2_match_data_create_8(pairs, ptr::null_mut()) };
        let Some(data) = ptr::NonNull::new(data) else {
            // SAFETY: made above, freed once.
            unsafe { sys::pcre2_match_context_free_8(context.as_ptr()) };
            return None;
        };
        Some(Self { pairs, context, data })
    }

    /// The library's answer.
    fn run(
        &mut self,
        code: &Code,
        text: &str,
        range: Range<usize>,
        steps: u32,
        running: &mut RunningMatch,
        captures: Option<&mut Captures>,
    ) -> c_int {
        // The library may read where an empty text points to.
        let bytes = if text.is_empty() { "\0" } else { text };
        // SAFETY: context, data and code live. `running` lives until the match has ended, and is not
        // touched here meanwhile. The text is UTF-8, and the range begins at one of its characters or
        // at its end, so that the library need not check it.
        let found = unsafe {
            sys::pcre2_set_match_limit_8(self.context.as_ptr(), steps);
            sys::pcre2_set_heap_limit_8(self.context.as_ptr(), HEAP_LIMIT_KIB);
            let last = if range.end < text.len() { range.end } else { sys::PCRE2_UNSET };
            sys::pcre2_set_offset_limit_8(self.context.as_ptr(), last);
            let running = ptr::from_mut(running).cast::<c_void>();
            pcre2_set_callout_8(self.context.as_ptr(), Some(on_callout), running);
            sys::pcre2_match_8(
                code.inner.as_ptr(),
                bytes.as_ptr(),
                text.len(),
                range.start,
                sys::PCRE2_NO_UTF_CHECK,
                self.data.as_ptr(),
                self.context.as_ptr(),
            )
        };
        if let (true, Some(captures)) = (found >= 0, captures) {
            // SAFETY: the library's list of pairs belongs to the match's data, which was made with room
            // for so many.
            let pairs = unsafe {
                let pairs = sys::pcre2_get_ovector_pointer_8(self.data.as_ptr());
                std::slice::from_raw_parts(pairs, 2 * code.pairs as usize)
            };
            captures.ranges.clear();
            captures.ranges.extend(pairs.chunks_exact(2).map(|pair| (pair[0], pair[1])));
        }
        found
    }
}

/// The library's text for an error.
fn text_of(error: c_int) -> String {
    let mut text = [0_u8; 256];
    // SAFETY: the library writes no more than it is told there is room for.
    let len = unsafe { sys::pcre2_get_error_message_8(error, text.as_mut_ptr(), text.len()) };
    let len = usize::try_from(len).unwrap_or(0).min(text.len());
    String::from_utf8_lossy(&text[..len]).into_owned()
}
