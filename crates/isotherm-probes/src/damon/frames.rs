//! Actions of the kernel's DAMON (DAMOS) on page frames, whichever processes map them.
//!
//! A call makes a kdamond for physical memory whose only regions are the frames, with one scheme. The quota of the
//! scheme is the size of the frames, so that the scheme is applied to each region once: a frame that was freed and is
//! used again is left alone. A region that is accessed within a sample of [`SAMPLE`] is left alone, too.

use std::thread::sleep;
use std::time::Duration;

use isotherm_core::{AddrRange, Attributes};

use super::kdamond::Kdamond;
use super::settings::{Scope, Settings};
use super::{DamonError, DamonPaths};

/// The sampling interval, and the aggregation interval: the kernel applies the scheme after one sample.
const SAMPLE: Duration = Duration::from_millis(5);

/// A call ends after so many looks in a row that find nothing more done.
const LOOKS: u32 = 4;

/// The kernel splits regions until there are so many. It takes no less than three.
const LEAST_REGIONS: usize = 10;

/// What is done to page frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameAction {
    /// They are reclaimed.
    PageOut,
    /// They are the next to be reclaimed (Linux 6.0 and later).
    Cold,
}

impl FrameAction {
    /// Its name in sysfs.
    const fn name(self) -> &'static str {
        match self {
            Self::PageOut => "pageout",
            Self::Cold => "lru_deprio",
        }
    }
}

/// What the kernel has counted, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActedOnFrames {
    /// The scheme was applied to regions of this size.
    pub tried: u64,
    /// The action was successful on so much of that.
    pub applied: u64,
}

/// Acts on ranges of physical addresses, which are sorted and disjoint. The kernel makes a region of each, so that a
/// thousand of them are enough for a call.
///
/// # Errors
/// As [`Kdamond::claim`] if DAMON is in use. Nothing is written then. Fails also if the kernel has no DAMON for
/// physical memory or does not know the action.
pub fn act_on_frames(
    places: DamonPaths,
    action: FrameAction,
    ranges: &[AddrRange],
) -> Result<ActedOnFrames, DamonError> {
    let bytes = ranges.iter().map(|range| range.size()).sum();
    let attributes = Attributes::default().with_intervals(SAMPLE, SAMPLE);
    let attributes =
        attributes.and_then(|attributes| attributes.with_regions(LEAST_REGIONS, ranges.len().max(LEAST_REGIONS)));
    let attributes = attributes.map_err(|error| DamonError::Settings(error.to_string()))?;
    let settings = Settings { attributes, scope: Scope::Physical(ranges.to_vec()), goal: None };
    let mut kdamond = Kdamond::claim(places)?;
    kdamond.set_up(&settings, false)?;
    kdamond.set_up_action(action.name(), bytes)?;
    kdamond.turn_on(&settings)?;
    let (mut acted, mut looks) = (ActedOnFrames::default(), 0);
    while acted.tried < bytes && looks < LOOKS {
        sleep(SAMPLE);
        let now = kdamond.acted()?;
        looks = if now == acted { looks + 1 } else { 0 };
        acted = now;
    }
    kdamond.release()?;
    Ok(acted)
}
