//! Batching: places in a file that are near each other are read or written with one call.

use std::ops::Range;

/// Cuts `places`, which are sorted, into runs for one call each: neighbours in a run are no more than `reach` apart, and a run
/// spans `most` entries at most. Each item says which of the places are in the run.
///
/// `most` is at least 1; places may be equal.
pub(super) fn runs(places: &[u64], reach: u64, most: u64) -> impl Iterator<Item = Range<usize>> {
    debug_assert!(places.is_sorted() && most > 0);
    let mut start = 0;
    std::iter::from_fn(move || {
        let first = *places.get(start)?;
        let near = places[start..].windows(2).take_while(|pair| pair[1] - pair[0] <= reach && pair[1] - first < most);
        let run = start..start + 1 + near.count();
        start = run.end;
        Some(run)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_place_is_in_one_run_and_no_run_is_too_long_or_has_a_hole(
            mut places in prop::collection::vec(0_u64..2000, 0..200),
            reach in 0_u64..70,
            most in 1_u64..300,
        ) {
            places.sort_unstable();
            let mut next = 0;
            let mut before: Option<(u64, u64)> = None;
            for run in runs(&places, reach, most) {
                prop_assert_eq!(run.start, next);
                prop_assert!(!run.is_empty());
                next = run.end;
                let inside = &places[run];
                let (first, last) = (inside[0], inside[inside.len() - 1]);
                prop_assert!(last - first < most);
                prop_assert!(inside.windows(2).all(|pair| pair[1] - pair[0] <= reach));
                // Two runs are two only where they must be.
                if let Some((end, start)) = before {
                    prop_assert!(first - end > reach || first - start >= most);
                }
                before = Some((last, first));
            }
            prop_assert_eq!(next, places.len());
        }
    }
}
