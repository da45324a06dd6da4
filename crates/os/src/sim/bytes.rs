//! A sparse byte string: the content of one simulated file.
//!
//! What is always true: a missing page reads as zeros and takes no space, a page without memory
//! reads as zeros and takes space, and no page holds a byte at or past `len` that is not zero.

use std::collections::BTreeMap;

const PAGE: u64 = 4096;

/// Bytes of a file, kept in 4 KiB pages that have memory only where something was written.
#[derive(Clone, Default)]
pub(super) struct Bytes {
    len: u64,
    pages: BTreeMap<u64, Option<Box<[u8; PAGE as usize]>>>,
}

impl Bytes {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn allocated(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    /// Bytes that writing `[offset, offset + len)` would newly allocate.
    pub(super) fn would_allocate(&self, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let (first, last) = (offset / PAGE, (offset + len - 1) / PAGE);
        (last - first + 1 - self.pages.range(first..=last).count() as u64) * PAGE
    }

    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let available = self.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        for_pages(offset, available, |page, within, range| match self.pages.get(&page) {
            Some(Some(bytes)) => {
                let len = range.len();
                buf[range].copy_from_slice(&bytes[within..within + len]);
            }
            Some(None) | None => buf[range].fill(0),
        });
        available
    }

    /// Writes and extends.
    pub(super) fn write(&mut self, data: &[u8], offset: u64) {
        for_pages(offset, data.len(), |page, within, range| {
            let len = range.len();
            self.page_mut(page)[within..within + len].copy_from_slice(&data[range]);
        });
        self.len = self.len.max(offset + data.len() as u64);
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.zero(len, self.len - len);
        }
        self.len = len;
    }

    /// Makes pages real, as fallocate does.
    pub(super) fn allocate(&mut self, offset: u64, len: u64) {
        for_pages(offset, len as usize, |page, _, _| {
            self.pages.entry(page).or_default();
        });
        self.len = self.len.max(offset + len);
    }

    /// Zeros a range without changing the length; whole pages are dropped.
    pub(super) fn zero(&mut self, offset: u64, len: u64) {
        for_pages(offset, len as usize, |page, within, range| {
            if range.len() as u64 == PAGE {
                self.pages.remove(&page);
            } else if let Some(Some(bytes)) = self.pages.get_mut(&page) {
                bytes[within..within + range.len()].fill(0);
            }
        });
    }

    fn page_mut(&mut self, page: u64) -> &mut [u8; PAGE as usize] {
        self.pages.entry(page).or_default().get_or_insert_with(|| Box::new([0; PAGE as usize]))
    }
}

/// Calls `f(page, offset in page, range of the buffer)` for every page of a range.
fn for_pages(offset: u64, len: usize, mut f: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let within = (at % PAGE) as usize;
        let step = (PAGE as usize - within).min(len - done);
        f(at / PAGE, within, done..done + step);
        done += step;
    }
}
