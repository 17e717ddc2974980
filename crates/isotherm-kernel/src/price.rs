//! The cost of accessed bits: for the process that clears them, and for the process that sets them again.

use std::time::{Duration, Instant};

use isotherm_core::{AddrRange, PAGE_SIZE};

use crate::madvise::{Advice, advise};
use crate::{Pidfd, Scratch};

/// The memory on which the prices are measured, in bytes. It is more than the TLB of a processor covers, which is 2,048
/// to 4,096 pages (2026).
const SIZE: u64 = 20 << 20;

/// The memory of one measurement, in bytes. The TLB covers it.
const PART: u64 = 4 << 20;

/// Plausible prices. A lower one is a failed measurement; a higher one comes from a busy machine.
const LEAST: Duration = Duration::from_nanos(20);
const MOST: Duration = Duration::from_micros(4);

/// How often the price of few pages is measured.
const TIMES: usize = 5;

/// What the accessed bit of a page of 4 KiB costs, as [`bit_prices`] measures it: 20 ns to 4 µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitPrices {
    /// How long it takes a process to set it again, with the miss of the TLB that comes with it.
    pub set_again: Duration,
    /// How long it takes if the process has accessed so few other pages that the TLB covers them: on virtual machines a
    /// third to a half of `set_again` (235 ns of 510 to 850 ns, November 2026).
    pub set_again_of_few: Duration,
    /// How long it takes to clear it by `process_madvise(MADV_COLD)`, where the pages around it are cleared too.
    pub clear: Duration,
}

/// Measures what accessed bits cost, on memory of this process. That takes 10 to 30 milliseconds. `None` if it cannot
/// be measured here.
pub fn bit_prices() -> Option<BitPrices> {
    let scratch = Scratch::new(SIZE).ok()?;
    // A huge page has one accessed bit.
    scratch.huge(false).ok()?;
    let own = Pidfd::open(std::process::id()).ok()?;
    let starts = || (0..SIZE).step_by(PART as usize);
    let touch =
        |start: u64| timed(|| (start..start + PART).step_by(PAGE_SIZE as usize).for_each(|at| scratch.touch(at)));
    let clear = |start: u64| {
        let part = AddrRange::new(scratch.start() + start, scratch.start() + start + PART)?;
        let mut done = Ok(0);
        let took = timed(|| done = advise(&own, [part], Advice::Cold));
        done.ok().map(|_| took)
    };
    starts().for_each(|start| _ = touch(start));
    let cleared: Vec<Duration> = starts().map(clear).collect::<Option<_>>()?;
    let set: Vec<Duration> = starts().map(touch).collect();
    let is_set: Vec<Duration> = starts().map(touch).collect();
    let set_again = set.iter().zip(is_set).map(|(set, is_set)| set.saturating_sub(is_set)).collect();
    let of_few = (0..TIMES).map(|_| clear(0).map(|_| touch(0).saturating_sub(touch(0))));
    Some(BitPrices {
        set_again: of_page(set_again),
        set_again_of_few: of_page(of_few.collect::<Option<_>>()?),
        clear: of_page(cleared),
    })
}

fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

/// The price of a page, from measurements of a part each. What else the machine does makes some of the times longer.
fn of_page(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    (median / (PART / PAGE_SIZE) as u32).clamp(LEAST, MOST)
}
