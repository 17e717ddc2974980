//! The placements: which bytes of which unit lie in the fast tier, for each of its sizes.

use super::units::{Place, Unit};

/// The time after which half of a temperature is that of newer looks. It forgets a hot set that has moved within some
/// looks, and evens out the noise of samples.
pub(super) const HALF_LIFE: f64 = 5.0;

/// The number of looks, one after another, that must find memory hot before it is promoted.
pub(super) const HOT_LOOKS: u8 = 2;

/// How long memory stays where it is after a move, in seconds.
pub(super) const COOL_DOWN: f64 = 10.0;

/// Memory takes the place of other memory only if it is hotter by this factor, so that equals do not change places.
pub(super) const HOTTER: f64 = 1.25;

/// What happened with one size of the fast tier.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    /// Bytes of the fast tier.
    pub(super) bytes: u64,
    /// Of these, in use by first touch.
    pub(super) first_used: u64,
    /// Of these, in use as isotherm moves memory.
    pub(super) moved_used: u64,
    /// Accesses that the slow tier served: in all, and in the second half of the time.
    pub(super) first: Served,
    pub(super) moved: Served,
    pub(super) best: Served,
    pub(super) promoted: u64,
    pub(super) demoted: u64,
}

/// Accesses: in all, and in the second half of the time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Served {
    pub(super) all: f64,
    pub(super) late: f64,
}

impl Served {
    pub(super) fn add(&mut self, accesses: f64, late: bool) {
        self.all += accesses;
        self.late += if late { accesses } else { 0.0 };
    }
}

/// A unit in a look, and what the look found.
pub(super) struct Looked<'a> {
    pub(super) unit: &'a mut Unit,
    pub(super) accesses: f64,
}

impl Looked<'_> {
    fn density(&self) -> f64 {
        self.accesses / self.unit.present.max(1) as f64
    }

    fn temperature(&self) -> f64 {
        self.unit.temperature.unwrap_or_default()
    }

    /// Whether so little is known of it that it is not moved.
    fn is_unknown(&self) -> bool {
        self.accesses == 0.0 && self.unit.unknown * 2.0 > self.unit.present as f64
    }
}

/// Gives a unit another number of bytes in memory. New memory goes to the fast tier while there is room; memory that
/// goes was in both tiers in the shares of the unit.
pub(super) fn resize(unit: &mut Unit, present: u64, sizes: &mut [Size]) {
    let before = std::mem::replace(&mut unit.present, present);
    for (place, size) in unit.places.iter_mut().zip(sizes) {
        let bytes = size.bytes;
        for (fast, used) in [(&mut place.first, &mut size.first_used), (&mut place.moved, &mut size.moved_used)] {
            let kept = if present >= before {
                *fast + (present - before).min(bytes - *used)
            } else {
                (u128::from(*fast) * u128::from(present) / u128::from(before.max(1))) as u64
            };
            *used = *used - *fast + kept;
            *fast = kept;
        }
    }
}

/// The length and the end of a look, in seconds, and whether it is in the second half of the time.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub(super) length: f64,
    pub(super) end: f64,
    pub(super) late: bool,
    /// Bytes that may be moved in a second.
    pub(super) rate: u64,
}

/// Counts the accesses of a look, then moves memory as isotherm would.
pub(super) fn look(units: &mut [Looked<'_>], sizes: &mut [Size], look: Look) {
    units.sort_by(|a, b| b.density().total_cmp(&a.density()));
    for (nth, size) in sizes.iter_mut().enumerate() {
        let mut room = size.bytes;
        for looked in &*units {
            let present = looked.unit.present;
            let slow = |fast: u64| looked.accesses * (present - fast) as f64 / present.max(1) as f64;
            let fast = present.min(room);
            room -= fast;
            let Place { first, moved, .. } = looked.unit.places[nth];
            size.best.add(slow(fast), look.late);
            size.first.add(slow(first), look.late);
            size.moved.add(slow(moved), look.late);
        }
    }
    let kept = 0.5_f64.powf(look.length / HALF_LIFE);
    for looked in &mut *units {
        let now = looked.density() / look.length.max(1e-9);
        looked.unit.temperature = Some(looked.unit.temperature.map_or(now, |old| old * kept + now * (1.0 - kept)));
    }
    units.sort_by(|a, b| b.temperature().total_cmp(&a.temperature()));
    for (nth, size) in sizes.iter_mut().enumerate() {
        migrate(units, nth, size, look);
    }
}

/// Moves memory with one size of the fast tier: the hottest memory that fits is promoted, in its order, and takes the
/// place of the coldest.
fn migrate(units: &mut [Looked<'_>], nth: usize, size: &mut Size, look: Look) {
    let mut budget = (look.rate as f64 * look.length) as u64;
    let rests = |place: &Place| place.at.is_some_and(|at| look.end - f64::from(at) < COOL_DOWN);
    // The bytes of the units before, and the coldest unit that is still to be looked at for room.
    let mut before: u64 = 0;
    let mut coldest = units.len();
    for hot in 0..units.len() {
        let deserved = size.bytes.saturating_sub(before).min(units[hot].unit.present);
        before = before.saturating_add(units[hot].unit.present);
        let (accesses, temperature) = (units[hot].accesses, units[hot].temperature());
        let place = &mut units[hot].unit.places[nth];
        place.hot_looks = if deserved > 0 && accesses > 0.0 { place.hot_looks.saturating_add(1) } else { 0 };
        let mut wanted = deserved.saturating_sub(place.moved);
        if place.hot_looks < HOT_LOOKS || rests(place) {
            continue;
        }
        while wanted > 0 && budget > 0 {
            let free = size.bytes - size.moved_used;
            if free > 0 {
                let bytes = wanted.min(free).min(budget);
                let place = &mut units[hot].unit.places[nth];
                (place.moved, place.at) = (place.moved + bytes, Some(look.end as f32));
                (size.moved_used, size.promoted) = (size.moved_used + bytes, size.promoted + bytes);
                (wanted, budget) = (wanted - bytes, budget - bytes);
                continue;
            }
            if coldest <= hot + 1 {
                break;
            }
            let cold = &mut units[coldest - 1];
            let (unknown, colder) = (cold.is_unknown(), cold.temperature() * HOTTER <= temperature);
            let place = &mut cold.unit.places[nth];
            if !colder {
                break;
            }
            // What is demoted in this look may go on; what was moved before rests.
            let now = place.at == Some(look.end as f32);
            if place.moved == 0 || unknown || (rests(place) && !now) {
                coldest -= 1;
                continue;
            }
            // Each byte is moved, and one in its place.
            let bytes = place.moved.min(wanted).min(budget / 2);
            if bytes == 0 {
                break;
            }
            (place.moved, place.at) = (place.moved - bytes, Some(look.end as f32));
            (size.moved_used, size.demoted) = (size.moved_used - bytes, size.demoted + bytes);
            budget -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn units(present: &[u64], sizes: &mut [Size]) -> Vec<Unit> {
        let unit = |(index, present): (usize, &u64)| {
            let places = vec![Place::default(); sizes.len()].into();
            let mut unit = Unit { index: index as u64, places, ..Unit::default() };
            resize(&mut unit, *present, sizes);
            unit
        };
        present.iter().enumerate().map(unit).collect()
    }

    fn run(units: &mut [Unit], sizes: &mut [Size], nth: u32, rate: u64, accesses: impl Fn(usize) -> f64) {
        let mut looked: Vec<_> =
            units.iter_mut().enumerate().map(|(nth, unit)| Looked { accesses: accesses(nth), unit }).collect();
        look(&mut looked, sizes, Look { length: 1.0, end: f64::from(nth), late: nth > 10, rate });
    }

    #[test]
    fn a_hot_unit_is_promoted_after_two_looks_and_takes_the_place_of_the_coldest() {
        let mut sizes = [Size { bytes: 4 * MIB, ..Size::default() }];
        let mut units = units(&[2 * MIB; 4], &mut sizes);
        assert_eq!(units.iter().map(|unit| unit.places[0].first / MIB).collect::<Vec<_>>(), [2, 2, 0, 0]);
        let accesses = |nth| [0.0, 50.0, 0.0, 100.0][nth];
        run(&mut units, &mut sizes, 1, 200 * MIB, accesses);
        assert_eq!(sizes[0].promoted, 0);
        run(&mut units, &mut sizes, 2, 200 * MIB, accesses);
        assert_eq!((sizes[0].promoted, sizes[0].demoted), (2 * MIB, 2 * MIB));
        assert_eq!(units.iter().map(|unit| unit.places[0].moved / MIB).collect::<Vec<_>>(), [0, 2, 0, 2]);
        // Memory rests after a move, although it is the coldest now.
        for nth in 3..12 {
            run(&mut units, &mut sizes, nth, 200 * MIB, |nth| [100.0, 100.0, 0.0, 0.0][nth]);
            assert_eq!(sizes[0].promoted, 2 * MIB, "{nth}");
        }
        run(&mut units, &mut sizes, 12, 200 * MIB, |nth| [100.0, 100.0, 0.0, 0.0][nth]);
        assert_eq!(sizes[0].promoted, 4 * MIB);
    }

    #[test]
    fn a_limit_on_the_rate_holds_back_moves() {
        let mut sizes = [Size { bytes: 20 * MIB, ..Size::default() }];
        let mut units = units(&[2 * MIB; 20], &mut sizes);
        for nth in 1..=2 {
            run(&mut units, &mut sizes, nth, 8 * MIB, |nth| if nth >= 10 { 10.0 } else { 0.0 });
        }
        assert_eq!((sizes[0].promoted, sizes[0].demoted), (4 * MIB, 4 * MIB));
    }

    proptest! {
        #[test]
        fn no_placement_beats_the_best_one_and_the_fast_tier_holds_no_more_than_its_size(
            present in prop::collection::vec(1..3 * MIB, 1..20),
            looks in prop::collection::vec(prop::collection::vec(0.0..100.0_f64, 20), 1..30),
            grown in prop::collection::vec(0..3 * MIB, 20),
            bytes in prop::collection::vec(0..40 * MIB, 1..4),
            rate in 0..64 * MIB,
        ) {
            let mut sizes: Vec<Size> = bytes.iter().map(|&bytes| Size { bytes, ..Size::default() }).collect();
            sizes.sort_by_key(|size| size.bytes);
            let mut units = units(&present, &mut sizes);
            for (nth, accesses) in looks.iter().enumerate() {
                let count = units.len();
                resize(&mut units[nth % count], grown[nth % grown.len()], &mut sizes);
                let of = |unit: usize| accesses[unit] * f64::from(u8::from(accesses[unit] > 50.0));
                run(&mut units, &mut sizes, nth as u32, rate, of);
                for (nth, size) in sizes.iter().enumerate() {
                    let sum = |of: fn(&Place) -> u64| units.iter().map(|unit| of(&unit.places[nth])).sum::<u64>();
                    let used = (sum(|place| place.first), sum(|place| place.moved));
                    prop_assert_eq!(used, (size.first_used, size.moved_used));
                    prop_assert!(size.first_used <= size.bytes && size.moved_used <= size.bytes);
                    let within = |unit: &Unit| unit.places[nth].first.max(unit.places[nth].moved) <= unit.present;
                    prop_assert!(units.iter().all(within));
                    let least = size.best.all * (1.0 - 1e-9) - 1e-9;
                    prop_assert!(size.first.all >= least && size.moved.all >= least, "{:?}", size);
                }
                prop_assert!(sizes.windows(2).all(|pair| pair[1].best.all <= pair[0].best.all + 1e-6));
            }
            // What is moved in a look is no more than the rate, in both directions together.
            let most = rate * looks.len() as u64;
            prop_assert!(sizes.iter().all(|size| size.promoted + size.demoted <= most));
        }
    }
}
