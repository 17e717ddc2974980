//! The placements: which bytes of which unit lie in the fast tier, for each of its sizes.

use std::cell::Cell;
use std::time::Duration;

use isotherm_core::survey::{Fading, RECENT_SURVEYS};
use isotherm_core::tiering::{
    COOL_DOWN, Fill, IDLE, LONG_IDLE, LOOKS, NEVER_ACCESSED, OFTEN, PATIENCE, RECENT, REPAID, Waiting, rank,
};

use super::place::{Part, Place, Size};

/// The time after which half of a temperature is that of newer looks. It evens out the noise of samples.
const HALF_LIFE: f64 = 5.0;

/// A part of a unit in a look, and what the look found.
pub(super) struct Looked<'a> {
    pub(super) part: &'a mut Part,
    pub(super) accesses: f64,
    /// Whether it was accessed, as far as isotherm knows at the end of the look.
    pub(super) accessed: bool,
}

impl Looked<'_> {
    fn density(&self) -> f64 {
        self.accesses / self.part.present.max(1) as f64
    }

    /// Whether so little is known of it that it is not moved.
    fn is_unknown(&self) -> bool {
        self.accesses == 0.0 && self.part.unknown * 2.0 > self.part.present as f64
    }

    /// How hot it is: how many looks have found it accessed, in steps in which that number doubles, and its
    /// temperature.
    fn heat(&self) -> (u32, f64) {
        (self.part.looks.count_ones().checked_ilog2().unwrap_or(0), self.part.temperature.unwrap_or_default())
    }

    /// Whether this look and another one of the last `recent` looks have found it accessed.
    fn is_in_use(&self, recent: u32) -> bool {
        let looks = self.part.looks & ((1 << recent) - 1);
        looks & 1 == 1 && looks.count_ones() >= LOOKS
    }

    /// The share of the last looks that have found it accessed. Shares are known in steps in which they double.
    fn share(&self, looks: u64) -> f64 {
        let doublings = |looks: u32| looks.checked_ilog2().unwrap_or(0) as i32;
        let recent = looks.min(RECENT_SURVEYS as u64) as u32;
        0.5_f64.powi(doublings(recent) - doublings(self.part.looks.count_ones()))
    }

    /// How it was used before it became idle.
    fn fading(&self, look: Look) -> Fading {
        let Part { looks, accessed_at, .. } = *self.part;
        let idle = match (looks, accessed_at) {
            (0, Some(at)) => (look.since(at) / look.length.max(1e-9)).round() as u32,
            (0, None) => 0,
            (looks, _) => looks.trailing_zeros(),
        };
        Fading::new(idle, looks.count_ones(), u32::try_from(look.nth).unwrap_or(u32::MAX))
    }
}

/// The number of a look, counted from 1, its length and its end in seconds, and whether it is in the second half of the
/// time.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub(super) nth: u64,
    pub(super) length: f64,
    pub(super) end: f64,
    pub(super) late: bool,
    /// Bytes that may be moved in a second.
    pub(super) rate: u64,
}

impl Look {
    /// How many seconds have passed since then.
    fn since(&self, then: f32) -> f64 {
        self.end - f64::from(then)
    }

    /// How many looks there are within the time in which two must find memory accessed: two at least.
    fn recent(&self) -> u32 {
        let looks = (RECENT.as_secs_f64() / self.length.max(1e-9)) as u32;
        looks.saturating_add(1).clamp(LOOKS, RECENT_SURVEYS as u32)
    }
}

/// Counts the accesses of a look, then moves memory as isotherm would.
pub(super) fn look(parts: &mut [Looked<'_>], sizes: &mut [Size], look: Look) {
    parts.sort_by(|a, b| b.density().total_cmp(&a.density()));
    for (nth, size) in sizes.iter_mut().enumerate() {
        let mut room = size.bytes;
        for looked in &*parts {
            let present = looked.part.present;
            let slow = |fast: u64| looked.accesses * (present - fast) as f64 / present.max(1) as f64;
            let fast = present.min(room);
            room -= fast;
            let Place { first, moved, .. } = looked.part.places[nth];
            size.best.add(slow(fast), look.late);
            size.first.add(slow(first), look.late);
            size.moved.add(slow(moved), look.late);
        }
    }
    let kept = 0.5_f64.powf(look.length / HALF_LIFE);
    for looked in &mut *parts {
        let (accessed, now) = (looked.accessed, looked.density() / look.length.max(1e-9));
        let part = &mut *looked.part;
        part.temperature = Some(part.temperature.map_or(now, |old| old * kept + now * (1.0 - kept)));
        part.looks = (part.looks << 1 | u16::from(accessed)) & ((1 << RECENT_SURVEYS) - 1);
        part.never_accessed = !accessed && (look.nth == 1 || part.never_accessed);
        if accessed || part.accessed_at.is_none() {
            part.accessed_at = Some(look.end as f32);
        }
    }
    let hotter = |a: &Looked<'_>, b: &Looked<'_>| {
        let (a, b) = (a.heat(), b.heat());
        b.0.cmp(&a.0).then(b.1.total_cmp(&a.1))
    };
    parts.sort_by(hotter);
    let accessed_at = |index: &usize| parts[*index].part.accessed_at.unwrap_or_default();
    let mut coldest: Vec<usize> = (0..parts.len()).collect();
    coldest.sort_by(|a, b| accessed_at(a).total_cmp(&accessed_at(b)));
    for (nth, size) in sizes.iter_mut().enumerate() {
        migrate(parts, &coldest, nth, size, look);
    }
}

/// Parts that wait to be moved in one direction, in order.
struct Queue<I> {
    waiting: I,
    /// The part that is being moved.
    moving: Option<usize>,
}

impl<I: Iterator<Item = usize> + Clone> Queue<I> {
    const fn new(waiting: I) -> Self {
        Self { waiting, moving: None }
    }

    /// The parts that are left.
    fn left(&self) -> impl Iterator<Item = usize> + use<I> {
        self.moving.into_iter().chain(self.waiting.clone())
    }

    /// Moves parts for which `may_move` holds, and returns how many bytes moved: at most `most`. `step` moves at most
    /// so many bytes of a part, and returns how many moved.
    fn advance(
        &mut self,
        parts: &mut [Looked<'_>],
        mut most: u64,
        may_move: impl Fn(&Looked<'_>) -> bool,
        mut step: impl FnMut(&mut Part, u64) -> u64,
    ) -> u64 {
        let all = most;
        while most > 0 {
            self.moving = self.moving.filter(|&index| may_move(&parts[index]));
            self.moving = self.moving.or_else(|| self.waiting.find(|&index| may_move(&parts[index])));
            let Some(index) = self.moving else { break };
            most -= step(parts[index].part, most);
        }
        all - most
    }
}

/// Moves memory with one size of the fast tier, second by second: memory in use is promoted, the hottest first, as long
/// as there is room, and idle memory is demoted, the coldest first, as long as too little is free, or as makes room for
/// hotter memory that waits. With what that leaves of the rate, the same is done for memory that one look has found
/// accessed, and for memory that was idle for long; it leaves a little more free.
///
/// `parts` are in the order of their heat, and `coldest` has their indices in the order of their idle times.
fn migrate(parts: &mut [Looked<'_>], coldest: &[usize], nth: usize, size: &mut Size, look: Look) {
    let each = look.rate / 2;
    let idle_order = coldest;
    let fills = {
        let fill = Fill::of(size.bytes, 0, each);
        [fill, fill.before_it()]
    };
    let of_all = |share: f64, size: &Size| (size.bytes as f64 * share) as u64;
    let recent = look.recent();
    let within = |at: f32, time: Duration| look.since(at) < time.as_secs_f64();
    let at = look.end as f32;
    // Bytes that are moved within a minute after they were moved in the other direction. What was promoted, and is
    // demoted, counts only if it was idle for at least half of the time.
    let back = Cell::new(0);
    let comes_back = |moved_at: f32, bytes: u64| {
        if within(moved_at, REPAID) {
            back.set(back.get() + bytes);
        }
    };
    let demote = |part: &mut Part, most: u64| {
        let place = &mut part.places[nth];
        let bytes = most.min(place.moved);
        let idle = part.accessed_at.map_or(f64::INFINITY, |at| look.since(at));
        if idle * 2.0 >= look.since(place.promoted_at) {
            comes_back(place.promoted_at, bytes);
        }
        (place.moved, place.demoted_at) = (place.moved - bytes, at);
        bytes
    };
    let mut hottest = [0, 1].map(|_| Queue::new(0..parts.len()));
    let mut coldest = [0, 1].map(|_| Queue::new(coldest.iter().copied()));
    let mut left = look.length;
    while left > 0.0 {
        let in_this_second = (each as f64 * left.min(1.0)) as u64;
        left -= 1.0;
        let before = size.promoted + size.demoted;
        let mut most = in_this_second;
        let mut waiting = Waiting::default();
        for (class, (queue, fill)) in hottest.iter_mut().zip(fills).enumerate() {
            let may_move = |looked: &Looked<'_>| {
                let place = &looked.part.places[nth];
                let is_hot = if class == 0 { looked.is_in_use(recent) } else { looked.part.looks & 1 == 1 };
                let is_sure = !within(place.demoted_at, REPAID) || looked.share(look.nth) >= OFTEN;
                place.moved < looked.part.present && is_hot && is_sure && !within(place.demoted_at, COOL_DOWN)
            };
            let room = of_all(fill.used, size).saturating_sub(size.moved_used);
            let moved = queue.advance(parts, most.min(room), may_move, |part, most| {
                let bytes = most.min(part.present - part.places[nth].moved);
                let place = &mut part.places[nth];
                comes_back(place.demoted_at, bytes);
                (place.moved, place.promoted_at) = (place.moved + bytes, at);
                bytes
            });
            (size.moved_used, size.promoted) = (size.moved_used + moved, size.promoted + moved);
            most -= moved;
            if class == 0 {
                for index in queue.left().filter(|&index| may_move(&parts[index])) {
                    let part = &parts[index].part;
                    waiting.add(rank(parts[index].share(look.nth)), part.present - part.places[nth].moved);
                    if waiting.bytes() >= each {
                        break;
                    }
                }
                waiting.serve(of_all(fill.used, size).saturating_sub(size.moved_used));
            }
        }
        let mut most = in_this_second;
        let patience = size.patience.factor();
        for (class, (queue, fill)) in coldest.iter_mut().zip(fills).enumerate() {
            let may_move = |looked: &Looked<'_>| {
                let place = &looked.part.places[nth];
                let idle = match class {
                    0 if looked.part.never_accessed => NEVER_ACCESSED,
                    0 => IDLE.mul_f64(patience),
                    _ => LONG_IDLE,
                };
                let idle = if within(place.promoted_at, REPAID) { idle * PATIENCE } else { idle };
                let is_idle = looked.part.accessed_at.is_some_and(|at| !within(at, idle));
                place.moved > 0 && is_idle && !looked.is_unknown() && !within(place.promoted_at, COOL_DOWN)
            };
            let missing = of_all(fill.free, size).saturating_sub(size.bytes - size.moved_used);
            let moved = queue.advance(parts, most.min(missing), may_move, demote);
            (size.moved_used, size.demoted) = (size.moved_used - moved, size.demoted + moved);
            waiting.serve(moved);
            most -= moved;
        }
        for &index in idle_order {
            if waiting.left(0) == 0 || most == 0 {
                break;
            }
            let looked = &mut parts[index];
            let place = &looked.part.places[nth];
            if place.moved == 0 || looked.is_unknown() || within(place.promoted_at, COOL_DOWN) {
                continue;
            }
            let soon = within(place.promoted_at, REPAID);
            let Some(least) = looked.fading(look).makes_room_for(patience, soon) else { continue };
            let moved = demote(looked.part, most.min(waiting.left(least)));
            (size.moved_used, size.demoted) = (size.moved_used - moved, size.demoted + moved);
            waiting.serve(moved);
            most -= moved;
        }
        let now = Duration::try_from_secs_f64(look.end - left.max(0.0)).unwrap_or_default();
        size.patience.take(now, size.promoted + size.demoted - before, back.take());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::place::{resize, transfer};
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Half of this rate is a hundredth of a tier of 100 MiB: 1 % of it is to be free, and 99.75 % used.
    const RATE: u64 = 2 * MIB;

    fn parts(present: &[u64], sizes: &mut [Size]) -> Vec<Part> {
        let part = |present: &u64| {
            let mut part = Part::new(sizes.len());
            resize(&mut part, *present, sizes);
            part
        };
        present.iter().map(part).collect()
    }

    fn run(parts: &mut [Part], sizes: &mut [Size], nth: u32, rate: u64, accesses: impl Fn(usize) -> f64) {
        let looked = |(nth, part)| {
            let accesses = accesses(nth);
            Looked { part, accesses, accessed: accesses > 0.0 }
        };
        let mut looked: Vec<_> = parts.iter_mut().enumerate().map(looked).collect();
        look(&mut looked, sizes, Look { nth: u64::from(nth), length: 1.0, end: f64::from(nth), late: nth > 10, rate });
    }

    fn moved(parts: &[Part]) -> Vec<u64> {
        parts.iter().map(|part| part.places[0].moved / MIB).collect()
    }

    #[test]
    fn what_was_accessed_is_promoted_where_there_is_room() {
        let mut sizes = [Size { bytes: 100 * MIB, ..Size::default() }];
        let mut parts = parts(&[60 * MIB, 60 * MIB], &mut sizes);
        // 20 MiB of the second part lie slow. Memory that goes makes room.
        resize(&mut parts[0], 0, &mut sizes);
        run(&mut parts, &mut sizes, 1, RATE, |nth| [0.0, 50.0][nth]);
        assert_eq!(sizes[0].promoted, MIB, "half of the rate");
        for nth in 2..40 {
            run(&mut parts, &mut sizes, nth, RATE, |nth| [0.0, 50.0][nth]);
        }
        assert_eq!((sizes[0].promoted, sizes[0].demoted), (20 * MIB, 0));
    }

    #[test]
    fn the_last_room_is_for_what_two_looks_have_found_accessed() {
        let mut sizes = [Size { bytes: 100 * MIB, ..Size::default() }];
        let mut parts = parts(&[100 * MIB, 60 * MIB], &mut sizes);
        resize(&mut parts[0], 99 * MIB, &mut sizes);
        run(&mut parts, &mut sizes, 1, RATE, |nth| [0.0, 50.0][nth]);
        run(&mut parts, &mut sizes, 2, RATE, |_| 0.0);
        assert_eq!(sizes[0].promoted, 0, "one look");
        run(&mut parts, &mut sizes, 3, RATE, |nth| [0.0, 50.0][nth]);
        assert_eq!(sizes[0].promoted, MIB * 3 / 4, "up to what is to be used");
    }

    #[test]
    fn what_is_accessed_once_in_a_while_takes_the_place_of_what_is_not_accessed_at_all() {
        let mut sizes = [Size { bytes: 100 * MIB, ..Size::default() }];
        let mut parts = parts(&[100 * MIB, 40 * MIB], &mut sizes);
        let mut run_until = |from: u32, to: u32, parts: &mut Vec<Part>, accessed: [bool; 2]| {
            let mut after = Vec::new();
            for nth in from..to {
                let found = |part: usize| f64::from(u8::from(nth.is_multiple_of(20) && accessed[part]));
                run(parts, &mut sizes, nth, RATE, found);
                after.push(sizes[0].promoted);
            }
            (after, sizes[0])
        };
        let (promoted, _) = run_until(1, 120, &mut parts, [false, true]);
        assert_eq!(promoted.last(), Some(&0), "nothing was idle for long");
        let (_, size) = run_until(120, 2000, &mut parts, [false, true]);
        assert_eq!(moved(&parts)[1], 40);
        // Both are accessed once in a while: none makes way for the other.
        let (_, after) = run_until(2000, 2400, &mut parts, [true, true]);
        assert_eq!(after.demoted, size.demoted);
        assert!(after.promoted - size.promoted < MIB, "no more than what was free");
    }

    #[test]
    fn memory_is_demoted_after_ten_seconds_where_nothing_waits() {
        let mut sizes = [Size { bytes: 100 * MIB, ..Size::default() }];
        let mut parts = parts(&[50 * MIB, 50 * MIB, 50 * MIB], &mut sizes);
        for nth in 1..=30 {
            run(&mut parts, &mut sizes, nth, RATE, |part| [f64::from(u8::from(nth < 10)), 5.0, 0.0][part]);
            assert_eq!(sizes[0].demoted > 0, nth >= 19, "{nth}");
        }
        assert_eq!(sizes[0].demoted, MIB, "what is to be free");
    }

    #[test]
    fn idle_memory_makes_room_at_once_where_hot_memory_waits_and_memory_in_use_stays() {
        let mut sizes = [Size { bytes: 100 * MIB, ..Size::default() }];
        let mut parts = parts(&[50 * MIB, 50 * MIB, 50 * MIB], &mut sizes);
        assert_eq!(moved(&parts), [50, 50, 0]);
        let accesses = |nth| [0.0, 5.0, 100.0][nth];
        for nth in 1..=10 {
            run(&mut parts, &mut sizes, nth, RATE, |_| 1.0);
        }
        run(&mut parts, &mut sizes, 11, RATE, accesses);
        assert_eq!((sizes[0].promoted, sizes[0].demoted), (0, 0), "one look has found it idle");
        run(&mut parts, &mut sizes, 12, RATE, accesses);
        assert_eq!(sizes[0].demoted, MIB, "half of the rate");
        for nth in 13..100 {
            run(&mut parts, &mut sizes, nth, RATE, accesses);
        }
        assert_eq!(moved(&parts), [0, 50, 49], "but for what is to be free");
        let free = 100 * MIB - sizes[0].moved_used;
        assert!((MIB / 4..=MIB).contains(&free), "{free}");
        // All three are in use: none makes way for another.
        let before = sizes[0].demoted;
        for nth in 100..150 {
            run(&mut parts, &mut sizes, nth, RATE, |_| 50.0);
        }
        assert_eq!(sizes[0].demoted, before);
    }

    #[test]
    fn memory_in_which_no_look_has_found_an_access_makes_room_first() {
        let mut sizes = [Size { bytes: 100 * MIB, ..Size::default() }];
        let mut parts = parts(&[50 * MIB, 50 * MIB, 50 * MIB], &mut sizes);
        for nth in 1..100 {
            // The second part is accessed once.
            run(&mut parts, &mut sizes, nth, RATE, |part| [0.0, f64::from(u8::from(nth == 5)), 100.0][part]);
            assert_eq!(sizes[0].demoted > 0, nth >= 3, "{nth}");
            assert!(nth >= 15 || moved(&parts)[1] == 50, "{nth}");
        }
    }

    #[test]
    fn memory_that_was_moved_is_not_moved_back_for_ten_seconds() {
        let mut sizes = [Size { bytes: 100 * MIB, ..Size::default() }];
        let mut parts = parts(&[100 * MIB], &mut sizes);
        let mut demoted = 0;
        for nth in 1..100 {
            run(&mut parts, &mut sizes, nth, RATE, |_| f64::from(u8::from(nth == 1 || nth > 12)));
            demoted = demoted.max(sizes[0].demoted);
            if nth < 21 {
                assert_eq!(sizes[0].promoted, 0, "{nth}");
            }
        }
        assert!(demoted > 0 && sizes[0].promoted > 0, "{sizes:?}");
    }

    proptest! {
        #[test]
        fn no_placement_beats_the_best_one_and_the_fast_tier_holds_no_more_than_its_size(
            present in prop::collection::vec(1..3 * MIB, 2..20),
            looks in prop::collection::vec(prop::collection::vec(0.0..100.0_f64, 20), 1..30),
            grown in prop::collection::vec(0..3 * MIB, 20),
            bytes in prop::collection::vec(0..40 * MIB, 1..4),
            rate in 0..64 * MIB,
        ) {
            let mut sizes: Vec<Size> = bytes.iter().map(|&bytes| Size { bytes, ..Size::default() }).collect();
            sizes.sort_by_key(|size| size.bytes);
            let mut parts = parts(&present, &mut sizes);
            for (nth, accesses) in looks.iter().enumerate() {
                let count = parts.len();
                resize(&mut parts[nth % count], grown[nth % grown.len()], &mut sizes);
                if let [from, to, ..] = &mut parts[..] {
                    let bytes = from.present / 3;
                    transfer(from, to, bytes);
                }
                let of = |part: usize| accesses[part] * f64::from(u8::from(accesses[part] > 50.0));
                run(&mut parts, &mut sizes, nth as u32, rate, of);
                for (nth, size) in sizes.iter().enumerate() {
                    let sum = |of: fn(&Place) -> u64| parts.iter().map(|part| of(&part.places[nth])).sum::<u64>();
                    let used = (sum(|place| place.first), sum(|place| place.moved));
                    prop_assert_eq!(used, (size.first_used, size.moved_used));
                    prop_assert!(size.first_used <= size.bytes && size.moved_used <= size.bytes);
                    let within = |part: &Part| part.places[nth].first.max(part.places[nth].moved) <= part.present;
                    prop_assert!(parts.iter().all(within));
                    let least = size.best.all * (1.0 - 1e-9) - 1e-9;
                    prop_assert!(size.first.all >= least && size.moved.all >= least, "{:?}", size);
                }
                prop_assert!(sizes.windows(2).all(|pair| pair[1].best.all <= pair[0].best.all + 1e-6));
            }
            // What is moved in each direction is no more than half of the rate.
            let most = rate / 2 * looks.len() as u64;
            prop_assert!(sizes.iter().all(|size| size.promoted.max(size.demoted) <= most));
        }
    }
}
