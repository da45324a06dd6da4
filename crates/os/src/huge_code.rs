//! The program's code in huge pages.
//!
//! A request runs through a hundred pages of code, and between two requests other programs have used the processor's
//! cache of addresses (TLB): each page's place is looked up anew, on a virtual machine by way of two tables. In pages of
//! 2 MiB the whole code has a dozen places. Most kernels make no huge pages of what is mapped from a file, so the code is
//! copied to memory of its own, which takes the place of the file's.
//!
//! Always true: at every address of the code stand the same bytes before, after and, for whoever runs them, meanwhile;
//! where a step is refused, the code stays where it was.

use std::fs::read_to_string;
use std::io;
use std::ops::Range;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const SIZE: &str = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";

/// Moves the program's code to huge pages; says how many bytes of it. To be called before the process has much to do, for
/// it copies the code, in a dozen milliseconds.
///
/// What reads the code by its file afterwards (`perf`, probes of the kernel) does not find it there any more; debuggers and
/// backtraces do.
///
/// # Errors
/// There are no huge pages here, the processor is no x86-64, the code is shorter than one of them, or memory that is executed must be of a file, as
/// some systems are set up.
pub fn move_code_to_huge_pages() -> io::Result<usize> {
    // Where code that was written as data may stand in a cache of instructions as it was before, nobody has tried it.
    if !cfg!(target_arch = "x86_64") {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "not on this kind of processor"));
    }
    let setting = read_to_string(SETTING)?;
    let size = read_to_string(SIZE)?.trim().parse::<usize>().map_err(io::Error::other)?;
    if setting.contains("[never]") || !size.is_power_of_two() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "huge pages are turned off"));
    }
    move_code(size)
}

/// Moves what of the code fits into whole pages of that size, a power of two.
fn move_code(page: usize) -> io::Result<usize> {
    let own = move_code as fn(usize) -> io::Result<usize> as usize;
    let maps = read_to_string("/proc/self/maps")?;
    let code = mapped_code(&maps, own).map(|code| whole_pages(&code, page));
    let Some(code) = code.filter(|code| !code.is_empty()) else {
        let text = "the code is shorter than a huge page";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    };
    replace(&code, page)?;
    Ok(code.len())
}

/// Where the code lies that has this address: memory of a file that is read and executed.
fn mapped_code(maps: &str, address: usize) -> Option<Range<usize>> {
    maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (first, last) = words.next()?.split_once('-')?;
        let hex = |text| usize::from_str_radix(text, 16).ok();
        let range = hex(first)?..hex(last)?;
        let is_code = words.next()?.starts_with("r-x") && words.nth(3).is_some();
        (is_code && range.contains(&address)).then_some(range)
    })
}

fn whole_pages(range: &Range<usize>, page: usize) -> Range<usize> {
    let start = range.start.next_multiple_of(page);
    start..(range.end / page * page).max(start)
}

/// A copy of the code in memory of its own, which is given back where it has not taken the code's place.
struct Reserved(Range<usize>);

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            // SAFETY: the range was mapped by `replace`, and nothing else knows of it.
            let _given_back =
                unsafe { libc::munmap(with_exposed_provenance_mut(self.0.start), self.0.len()) };
        }
    }
}

fn replace(code: &Range<usize>, page: usize) -> io::Result<()> {
    let done = |status: libc::c_int| match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    let length = code.len() + page;
    // SAFETY: new memory, anywhere.
    let mapped = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mapped = mapped.expose_provenance();
    let all = mapped..mapped + length;
    let start = mapped.next_multiple_of(page);
    let copy = start..start + code.len();
    // What is before and behind the copy is given back in any case.
    let _before = Reserved(all.start..copy.start);
    let _behind = Reserved(copy.end..all.end);
    let mut reserved = Reserved(copy.clone());
    let at = with_exposed_provenance_mut::<u8>(copy.start);
    // SAFETY: `copy` is memory of this function alone, as long as `code`, which is mapped and can be read. It can be
    // written first and executed then, never both. In the end it takes the place of memory with the same bytes, in one
    // step of the kernel: whoever executes them meanwhile waits for it, or does not notice.
    unsafe {
        // Where this is refused, pages are of the usual size, and nothing is worse.
        let _wish = libc::madvise(at.cast(), copy.len(), libc::MADV_HUGEPAGE);
        with_exposed_provenance::<u8>(code.start).copy_to_nonoverlapping(at, code.len());
        done(libc::mprotect(at.cast(), copy.len(), libc::PROT_READ | libc::PROT_EXEC))?;
        let moved = libc::mremap(
            at.cast(),
            copy.len(),
            copy.len(),
            libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
            with_exposed_provenance_mut::<libc::c_void>(code.start),
        );
        if moved == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
    }
    // It is the program's now.
    reserved.0 = 0..0;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55803a000000-55803a6c7000 r--p 00000000 fe:00 326 /usr/bin/fernd
55803a6c7000-55803bc92000 r-xp 006c6000 fe:00 326 /usr/bin/fernd
7ff419000000-7ff419010000 r-xp 00000000 00:00 0 
7ff419590000-7ff4196e6000 r-xp 00026000 fe:00 327 /usr/lib/libc.so.6
";

    #[test]
    fn the_programs_code_is_found_by_an_address_in_it() {
        let program = 0x55803a6c7000..0x55803bc92000;
        assert_eq!(mapped_code(MAPS, 0x55803a6c7000), Some(program.clone()));
        assert_eq!(mapped_code(MAPS, 0x55803a000010), None, "that is data");
        assert_eq!(mapped_code(MAPS, 0x7ff419000010), None, "that was moved already");
        assert_eq!(mapped_code("nothing\n", 1), None);
        let huge = 2 << 20;
        assert_eq!(whole_pages(&program, huge), 0x55803a800000..0x55803bc00000);
        assert!(whole_pages(&(1..huge), huge).is_empty());
        assert!(whole_pages(&(huge + 1..huge + 2), huge).is_empty());
    }

    #[test]
    fn code_that_was_moved_runs_on_and_unwinds_while_others_run_it() {
        let stops = std::sync::atomic::AtomicBool::new(false);
        let works = || {
            let text: Vec<String> = (0..50).map(|n| format!("{n:x}")).collect();
            assert_eq!(text.concat().len(), 84);
            let caught = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(7)));
            assert_eq!(caught.unwrap_err().downcast_ref::<i32>(), Some(&7));
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stops.load(std::sync::atomic::Ordering::Relaxed) {
                        works();
                    }
                });
            }
            // Pages of the usual size: a test's code may be shorter than a huge one.
            let page = rustix::param::page_size();
            let moved = move_code(page);
            works();
            stops.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(moved.unwrap() > page);
        });
        let maps = read_to_string("/proc/self/maps").unwrap();
        let own = move_code as fn(usize) -> io::Result<usize> as usize;
        assert_eq!(mapped_code(&maps, own), None, "it is no file's any more");
        let error = move_code(4096).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported, "there is nothing left to move");
        works();
    }
}
