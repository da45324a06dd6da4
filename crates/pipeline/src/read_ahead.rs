//! When documents are looked at before they are needed, so that their pages are read several at a time and not one after
//! the other.
//!
//! Always true: a window is closed while nothing had to be read from the disk.

/// Documents taken at a time after the first one that was not in memory, and at most; each time four times as many.
const FIRST: usize = 8;
const MOST: usize = 128;
/// What is kept for that takes about so many bytes at most.
pub const MOST_BYTES_AHEAD: usize = 64 << 10;

/// Documents that had to be read, one after the other, until it is tried again, where the system had those of a
/// batch in memory: its file cache may hold all of them.
const UNTIL_TRIED_AGAIN: usize = 64;

/// How many are looked at ahead at a time; 0 while that gains nothing.
#[derive(Default)]
pub struct ReadAheadWindow {
    size: usize,
    /// Misses that do not count yet.
    ignored: usize,
}

impl ReadAheadWindow {
    /// How many are to be taken next.
    pub fn size(&self) -> usize {
        self.size
    }

    /// A document was not in memory.
    pub fn missed(&mut self) {
        match self.ignored.checked_sub(1) {
            Some(left) => self.ignored = left,
            None => self.size = self.size.max(FIRST),
        }
    }

    /// For as many as it is so many pages were waited for.
    pub fn read(&mut self, waited: usize) {
        (self.size, self.ignored) =
            if waited > 0 { ((4 * self.size).min(MOST), 0) } else { (0, UNTIL_TRIED_AGAIN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_while_the_disk_is_waited_for_and_rests_where_it_is_not() {
        let mut window = ReadAheadWindow::default();
        window.missed();
        let mut sizes = vec![window.size];
        for waited in [3, 1, 128, 0] {
            window.read(waited);
            sizes.push(window.size);
        }
        assert_eq!(sizes, [8, 32, 128, 128, 0]);
        let tried_again = (1..1000).find(|_| {
            window.missed();
            window.size > 0
        });
        assert_eq!(tried_again, Some(UNTIL_TRIED_AGAIN + 1));
    }
}
