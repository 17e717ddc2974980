//! What it costs a process to set accessed bits again.

use std::time::{Duration, Instant};

use isotherm_core::{AddrRange, PAGE_SIZE};

use crate::madvise::{Advice, advise};
use crate::{Pidfd, Scratch};

/// The memory on which the price is measured, in bytes.
const SIZE: u64 = 4 << 20;

/// The bounds of what is believed. Less is a measurement that went wrong, more is that of a machine with much else to
/// do.
const LEAST: Duration = Duration::from_nanos(50);
const MOST: Duration = Duration::from_micros(4);

/// How often it is measured.
const TIMES: usize = 5;

/// How long it takes to set the accessed bit of a page of 4 KiB again, with the miss of the TLB that comes with it. It
/// is measured on memory of this process, which takes about a millisecond. `None` if it cannot be measured here.
pub fn set_again_price() -> Option<Duration> {
    let scratch = Scratch::new(SIZE).ok()?;
    // A huge page has one accessed bit.
    scratch.huge(false).ok()?;
    let own = Pidfd::open(std::process::id()).ok()?;
    let all = AddrRange::new(scratch.start(), scratch.start() + SIZE)?;
    let pages = (0..SIZE / PAGE_SIZE).map(|page| page * PAGE_SIZE);
    let touch = || {
        let began = Instant::now();
        pages.clone().for_each(|offset| scratch.touch(offset));
        began.elapsed()
    };
    touch();
    let mut prices = [Duration::ZERO; TIMES];
    for price in &mut prices {
        advise(&own, [all], Advice::Cold).ok()?;
        let cleared = touch();
        *price = cleared.saturating_sub(touch());
    }
    prices.sort_unstable();
    // What else the machine does makes some of them longer.
    let price = prices[TIMES / 2] / (SIZE / PAGE_SIZE) as u32;
    Some(price.clamp(LEAST, MOST))
}
