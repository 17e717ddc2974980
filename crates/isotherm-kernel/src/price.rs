//! The cost of accessed bits: for the process that clears them, and for the process that sets them again.

use std::time::{Duration, Instant};

use isotherm_core::{AddrRange, PAGE_SIZE};

use crate::madvise::{Advice, advise};
use crate::{Pidfd, Scratch};

/// The memory on which the prices are measured, in bytes.
const SIZE: u64 = 4 << 20;

/// The bounds of what is believed. Less is a measurement that went wrong, more is that of a machine with much else to
/// do.
const LEAST: Duration = Duration::from_nanos(20);
const MOST: Duration = Duration::from_micros(4);

/// How often they are measured.
const TIMES: usize = 5;

/// What the accessed bit of a page of 4 KiB costs, as [`bit_prices`] measures it: 20 ns to 4 µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitPrices {
    /// How long it takes a process to set it again, with the miss of the TLB that comes with it.
    pub set_again: Duration,
    /// How long it takes to clear it by `process_madvise(MADV_COLD)`, where the pages around it are cleared too.
    pub clear: Duration,
}

/// Measures what accessed bits cost, on memory of this process. That takes about a millisecond. `None` if it cannot be
/// measured here.
pub fn bit_prices() -> Option<BitPrices> {
    let scratch = Scratch::new(SIZE).ok()?;
    // A huge page has one accessed bit.
    scratch.huge(false).ok()?;
    let own = Pidfd::open(std::process::id()).ok()?;
    let all = AddrRange::new(scratch.start(), scratch.start() + SIZE)?;
    let pages = (0..SIZE / PAGE_SIZE).map(|page| page * PAGE_SIZE);
    let touch = || timed(|| pages.clone().for_each(|offset| scratch.touch(offset)));
    touch();
    let (mut set_again, mut clear) = ([Duration::ZERO; TIMES], [Duration::ZERO; TIMES]);
    for (set_again, clear) in set_again.iter_mut().zip(&mut clear) {
        let mut done = Ok(0);
        *clear = timed(|| done = advise(&own, [all], Advice::Cold));
        done.ok()?;
        let cleared = touch();
        *set_again = cleared.saturating_sub(touch());
    }
    Some(BitPrices { set_again: of_page(set_again), clear: of_page(clear) })
}

fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

/// The price of a page. What else the machine does makes some of the times longer.
fn of_page(mut times: [Duration; TIMES]) -> Duration {
    times.sort_unstable();
    (times[TIMES / 2] / (SIZE / PAGE_SIZE) as u32).clamp(LEAST, MOST)
}
