//! Calls `process_madvise(2)`, which gives advice on the memory of another process.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use isotherm_core::AddrRange;
use rustix::io::Errno;

use crate::HUGE;
use crate::hold::{LONGEST_HOLD, held};

/// The maximum number of ranges in one call.
///
/// The kernel holds the lock of the target's memory map during a call, about 5 µs per range. Meanwhile `mmap(2)` waits
/// in the target, and the results of earlier checks become stale. A call itself takes about 2 µs.
pub const RANGES_A_CALL: usize = 32;

/// Advice that a process may give on the memory of another one. No advice changes the content of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Clears the accessed bits and moves the pages to the inactive list.
    Cold,
    /// Reclaims the pages.
    PageOut,
    /// The same, without splitting huge pages: a huge page of a file that is split is unmapped, and not reclaimed.
    PageOutWhole,
    /// Reads the pages in from swap or from their file.
    WillNeed,
    /// Collapses the pages into transparent huge pages.
    Collapse,
}

impl Advice {
    fn piece(self) -> &'static Piece {
        let [cold, page_out, page_out_whole, will_need, collapse] = &PIECES;
        match self {
            Self::Cold => cold,
            Self::PageOut => page_out,
            Self::PageOutWhole => page_out_whole,
            Self::WillNeed => will_need,
            Self::Collapse => collapse,
        }
    }

    fn number(self) -> libc::c_int {
        match self {
            Self::Cold => libc::MADV_COLD,
            Self::PageOut | Self::PageOutWhole => libc::MADV_PAGEOUT,
            Self::WillNeed => libc::MADV_WILLNEED,
            Self::Collapse => libc::MADV_COLLAPSE,
        }
    }

    /// The name of the constant in `madvise(2)`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "MADV_COLD",
            Self::PageOut | Self::PageOutWhole => "MADV_PAGEOUT",
            Self::WillNeed => "MADV_WILLNEED",
            Self::Collapse => "MADV_COLLAPSE",
        }
    }
}

/// How many bytes the next call gets, so that it holds the memory map of the target for no longer than
/// [`LONGEST_HOLD`].
#[derive(Debug)]
struct Piece {
    bytes: AtomicU64,
    /// No call gets more. A machine takes up to 1 µs for a page of memory that is in use, and next to nothing for idle
    /// memory, so that the times of calls before do not allow more.
    most: u64,
    /// All pieces are multiples of this. Others than those of a huge page would split huge pages, which only reclaim of
    /// anonymous memory, as it is slow, may do. (`MADV_WILLNEED` splits none.)
    least: u64,
}

impl Piece {
    const fn new(most: u64, least: u64) -> Self {
        Self { bytes: AtomicU64::new(most), most, least }
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Takes in how long a call took that got so many bytes. The pieces after a call that took too long are smaller at
    /// once. They become larger by an eighth with each call that got a whole piece and took less than half of the time.
    fn took(&self, bytes: u64, took: Duration) {
        let now = self.bytes();
        let next = if took > LONGEST_HOLD {
            let share = LONGEST_HOLD.as_secs_f64() / took.as_secs_f64();
            (bytes.min(now) as f64 * share) as u64
        } else if took < LONGEST_HOLD / 2 && bytes >= now {
            now + (now / 8).max(self.least)
        } else {
            return;
        };
        self.bytes.store((next - next % self.least).clamp(self.least, self.most), Ordering::Relaxed);
    }
}

/// The pieces of each advice.
static PIECES: [Piece; 5] = [
    Piece::new(4 << 20, HUGE),
    Piece::new(1 << 20, 256 << 10),
    Piece::new(HUGE, HUGE),
    Piece::new(1 << 20, 256 << 10),
    Piece::new(HUGE, HUGE),
];

/// A `struct iovec` whose address belongs to another process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    start: usize,
    length: usize,
}

impl Span {
    fn new(range: AddrRange) -> Self {
        Self { start: range.start() as usize, length: range.size() as usize }
    }
}

/// The first part of these spans for one call: at most [`RANGES_A_CALL`] of them, and at most so many bytes, or one
/// span up to the next multiple of that size. Returns how many spans it has, the last of them maybe cut.
fn first_part(spans: &[Span], piece: usize, part: &mut [Span; RANGES_A_CALL]) -> usize {
    let (mut count, mut left) = (0, piece);
    for &span in spans.iter().take(RANGES_A_CALL) {
        if span.length > left && count > 0 {
            break;
        }
        let whole = span.length <= left;
        let length = if whole { span.length } else { (piece - span.start % piece).min(span.length) };
        part[count] = Span { length, ..span };
        count += 1;
        left = left.saturating_sub(length);
        if !whole {
            break;
        }
    }
    count
}

/// Gives the advice on `ranges` in the address space of `process`. Only the first [`RANGES_A_CALL`] ranges are passed.
/// The kernel gets them in several calls, each of which holds the memory map for [`LONGEST_HOLD`] at most, by how long
/// the calls before took. It allocates nothing.
///
/// Returns how many ranges the kernel processed completely. It stops at the first range that fails.
///
/// # Errors
/// Returns the kernel's error if the first range fails.
pub fn advise(process: impl AsFd, ranges: impl IntoIterator<Item = AddrRange>, advice: Advice) -> Result<usize, Errno> {
    let (mut spans, mut part) = ([Span::default(); RANGES_A_CALL], [Span::default(); RANGES_A_CALL]);
    let mut count = 0;
    for range in ranges.into_iter().take(RANGES_A_CALL) {
        spans[count] = Span::new(range);
        count += 1;
    }
    let mut done = 0;
    while done < count {
        let passed = first_part(&spans[done..count], advice.piece().bytes() as usize, &mut part);
        let part = &part[..passed];
        let bytes: usize = part.iter().map(|span| span.length).sum();
        let (result, took) = held(|| call(&process, part, advice));
        advice.piece().took(bytes as u64, took);
        match result {
            Err(errno) if done == 0 => return Err(errno),
            Err(_) | Ok(0) => break,
            Ok(whole) if whole < passed => {
                done += whole;
                break;
            }
            // The call ended within a span.
            Ok(_) if part[0].length < spans[done].length => {
                let Span { start, length } = spans[done];
                spans[done] = Span { start: start + part[0].length, length: length - part[0].length };
            }
            Ok(whole) => done += whole,
        }
    }
    Ok(done)
}

/// One call. Returns how many of `spans`, which are at most [`RANGES_A_CALL`], the kernel processed completely.
fn call(process: &impl AsFd, spans: &[Span], advice: Advice) -> Result<usize, Errno> {
    // SAFETY: `spans` has the layout of an array of `struct iovec` and is borrowed for the call. Its addresses belong
    // to `process`. If that is this process, the call is still sound, because no `Advice` changes the content of
    // memory.
    let result = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.as_fd().as_raw_fd(),
            spans.as_ptr(),
            spans.len(),
            advice.number(),
            0 as libc::c_uint,
        )
    };
    let Ok(mut bytes) = usize::try_from(result) else {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    };
    let done = spans.iter().take_while(|span| {
        let whole = span.length <= bytes;
        bytes = bytes.saturating_sub(span.length);
        whole
    });
    Ok(done.count())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;
    use crate::{Pidfd, Scratch};

    const MIB: u64 = 1 << 20;

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start, end).unwrap()
    }

    #[test]
    fn no_call_gets_more_than_a_piece_and_a_long_range_is_cut_at_multiples_of_it() {
        let first = |ranges: &[AddrRange], piece: u64| {
            let spans: Vec<Span> = ranges.iter().copied().map(Span::new).collect();
            let mut part = [Span::default(); RANGES_A_CALL];
            let count = first_part(&spans, piece as usize, &mut part);
            part[..count]
                .iter()
                .map(|span| range(span.start as u64, (span.start + span.length) as u64))
                .collect::<Vec<_>>()
        };
        let (a, b, c) = (range(0, MIB), range(MIB, 2 * MIB), range(7 * MIB, 70 * MIB));
        assert_eq!(first(&[a, b, c], 2 * MIB), [a, b]);
        assert_eq!(first(&[a, b, c], MIB), [a]);
        assert_eq!(first(&[c, a], 2 * MIB), [range(7 * MIB, 8 * MIB)]);
        assert_eq!(first(&[range(8 * MIB, 70 * MIB)], 2 * MIB), [range(8 * MIB, 10 * MIB)]);
        assert_eq!(first(&vec![range(0, 4096); 100], MIB).len(), RANGES_A_CALL);
        assert_eq!(first(&[], MIB), []);
    }

    #[test]
    fn pieces_shrink_at_once_after_a_call_that_took_too_long_and_grow_slowly_to_what_they_were() {
        let piece = Piece::new(16 * MIB, HUGE);
        piece.took(16 * MIB, LONGEST_HOLD * 4);
        assert_eq!(piece.bytes(), 4 * MIB);
        piece.took(4 * MIB, LONGEST_HOLD * 100);
        assert_eq!(piece.bytes(), HUGE, "no huge page is split");
        piece.took(4096, Duration::ZERO);
        assert_eq!(piece.bytes(), HUGE, "a call of little says nothing");
        piece.took(HUGE, Duration::ZERO);
        assert_eq!(piece.bytes(), 2 * HUGE);
        (0..100).for_each(|_| piece.took(16 * MIB, Duration::ZERO));
        assert_eq!(piece.bytes(), 16 * MIB, "idle memory takes no time, and the next memory may be in use");
    }

    #[test]
    fn ranges_that_take_several_calls_are_all_processed_and_an_unmapped_one_ends_it() {
        let own = Pidfd::open(std::process::id()).unwrap();
        let memory = Scratch::new(100 * MIB).unwrap();
        let at = memory.start();
        let ranges = [range(at, at + 90 * MIB), range(at + 95 * MIB, at + 96 * MIB)];
        assert_eq!(advise(&own, ranges, Advice::Cold), Ok(2));
        assert_eq!(advise(&own, [ranges[1], range(0, 4096), ranges[0]], Advice::Cold), Ok(1));
        assert_eq!(advise(&own, [range(0, 4096), ranges[0]], Advice::Cold), Err(Errno::NOMEM));
        assert_eq!(advise(&own, [], Advice::Cold), Ok(0));
    }
}
