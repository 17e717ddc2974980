//! The time for which memory has been idle, in a few bands.

use super::IdleFigures;

/// The starts of the bands, in intervals: 1, 2, 4, …, or 1, 4, 16, … if that makes more than `most`. The last band
/// holds the longest time of `figures`.
pub(super) fn bands<'a>(figures: impl Iterator<Item = &'a IdleFigures>, most: usize) -> Vec<u32> {
    let ages = figures.filter_map(|figures| figures.idle_by_intervals.as_deref()).flatten();
    let longest = ages.map(|age| age.intervals).max().unwrap_or(0);
    let by = |factor: u32| -> Vec<u32> {
        std::iter::successors(Some(1_u32), |band| band.checked_mul(factor))
            .take_while(|&band| band <= longest)
            .collect()
    };
    let fit = [2, 4, 16].into_iter().map(by).find(|bands| bands.len() <= most.max(1));
    fit.unwrap_or_else(|| vec![1])
}

/// The bytes in each of the bands.
pub(super) fn spread(figures: &IdleFigures, bands: &[u32]) -> Vec<u64> {
    let mut bytes = vec![0; bands.len()];
    for age in figures.idle_by_intervals.iter().flatten() {
        let band = bands.partition_point(|&band| band <= age.intervals);
        if let Some(bytes) = band.checked_sub(1).and_then(|band| bytes.get_mut(band)) {
            *bytes += age.bytes;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::Age;
    use super::*;

    #[test]
    fn bands_are_as_fine_as_there_is_room_for_and_lose_nothing() {
        let ages = (1..=40).map(|intervals| Age { intervals, bytes: 1 }).collect();
        let figures = IdleFigures { idle_by_intervals: Some(ages), ..IdleFigures::default() };
        let figures = [figures];
        assert_eq!(bands(figures.iter(), 6), [1, 2, 4, 8, 16, 32]);
        assert_eq!(spread(&figures[0], &[1, 2, 4, 8, 16, 32]), [1, 2, 4, 8, 16, 9]);
        assert_eq!(bands(figures.iter(), 5), [1, 4, 16]);
        assert_eq!(spread(&figures[0], &[1, 4, 16]), [3, 12, 25]);
        assert_eq!(bands(figures.iter(), 0), [1]);
    }
}
