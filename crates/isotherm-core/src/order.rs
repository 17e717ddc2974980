//! A fixed order of the pages or blocks of a target, of which a panel is the first part.
//!
//! The place of number *n* in the order is the fractional part of *n* times the golden ratio, from a start that differs
//! between targets. It depends on nothing else, so that a run has the same result whatever built isotherm.

use crate::{CgroupId, FileId, TargetId};

/// The fractional part of the golden ratio, in units of 2⁻⁶⁴.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The place of number 0 of a target, in units of 2⁻⁶⁴.
pub(crate) fn first_place(target: TargetId) -> u64 {
    match target {
        TargetId::PhysicalMemory => mix(0, 0),
        TargetId::Process(process) => mix(process.pid.into(), process.start.as_nanos() as u64 | 1),
        TargetId::Cgroup(CgroupId(id)) => mix(id, 2),
        TargetId::PageCache => mix(0, 6),
    }
}

/// The place of number 0 of a file. It is the same in all targets that map the file.
pub(crate) fn file_place(FileId { device: (major, minor), inode }: FileId) -> u64 {
    mix(inode, ((u64::from(major) << 32 | u64::from(minor)) << 3) | 4)
}

/// Spreads numbers evenly (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014: SplitMix64).
fn mix(number: u64, kind: u64) -> u64 {
    let spread = |state: u64| {
        let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^ (state >> 31)
    };
    spread(spread(kind.wrapping_add(GOLDEN)) ^ number.wrapping_mul(GOLDEN))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_order_of_a_target_is_the_same_with_every_toolchain() {
        const PLACES: [u64; 3] = [5_197_578_548_964_807_871, 665_502_515_697_842_800, 9_361_201_217_434_090_993];
        let targets =
            [TargetId::PhysicalMemory, TargetId::process(7, Duration::from_secs(1)), TargetId::Cgroup(CgroupId(7))];
        assert_eq!(targets.map(first_place), PLACES);
    }
}
