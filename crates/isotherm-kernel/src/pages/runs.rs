//! Groups entries of a file that are near each other, so that one call reads or writes each group.

use std::ops::Range;

/// Divides `places`, the sorted indices of entries, into runs. One call reads or writes a run.
///
/// Neighbours in a run are at most `reach` entries apart. A run spans at most `most` entries, which must be at least 1.
/// DamonPaths may be equal. Each item is the range of indices into `places` that belong to the run.
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
        fn every_place_is_in_one_run_and_no_run_is_too_long_or_has_a_gap(
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
                // Two runs are separate only if one run cannot hold both.
                if let Some((end, start)) = before {
                    prop_assert!(first - end > reach || first - start >= most);
                }
                before = Some((last, first));
            }
            prop_assert_eq!(next, places.len());
        }
    }
}
