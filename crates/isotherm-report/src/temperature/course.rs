//! Memory over time, in a bounded number of moments.

use std::time::Duration;

use super::Areas;

/// The most moments. Where there are more snapshots, a moment is the mean of several.
const MOST: usize = 1 << 13;

/// The memory at each moment.
#[derive(Default)]
pub(super) struct Course {
    moments: Vec<Moment>,
    /// How many snapshots a moment has, as a power of two.
    doublings: u32,
}

/// Snapshots one after another.
pub(super) struct Moment {
    /// The time of the last of them.
    pub(super) time: Duration,
    /// Their number.
    pub(super) snapshots: u32,
    /// Their memory together, with weights in bytes.
    pub(super) areas: Areas,
}

impl Course {
    /// Begins a snapshot at `time`, unless it has begun. Returns whether it is new.
    pub(super) fn begin(&mut self, time: Duration) -> bool {
        let is_full = self.moments.len() >= MOST;
        match self.moments.last_mut() {
            Some(last) if last.time == time => return false,
            Some(last) if last.snapshots < 1 << self.doublings => {
                (last.time, last.snapshots) = (time, last.snapshots + 1);
                return true;
            }
            Some(_) if is_full => self.halve(),
            Some(_) | None => {}
        }
        self.moments.push(Moment { time, snapshots: 1, areas: Areas::default() });
        true
    }

    /// The memory of the snapshot that has begun.
    pub(super) fn now(&mut self) -> Option<&mut Areas> {
        self.moments.last_mut().map(|moment| &mut moment.areas)
    }

    pub(super) fn moments(&self) -> &[Moment] {
        &self.moments
    }

    /// Makes one moment of each two.
    fn halve(&mut self) {
        let mut moments = std::mem::take(&mut self.moments).into_iter();
        while let Some(mut moment) = moments.next() {
            if let Some(next) = moments.next() {
                (moment.time, moment.snapshots) = (next.time, moment.snapshots + next.snapshots);
                moment.areas.join(&next.areas, 1.0);
            }
            self.moments.push(moment);
        }
        self.doublings += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_course_has_few_moments_with_all_snapshots() {
        let mut course = Course::default();
        let count = MOST as u32 * 5 + 3;
        for nth in 1..=count {
            assert!(course.begin(Duration::from_secs(nth.into())));
            assert!(!course.begin(Duration::from_secs(nth.into())));
            if let Some(areas) = course.now() {
                areas.unknown += 1.0;
            }
        }
        let moments = course.moments();
        assert!((MOST / 2..=MOST).contains(&moments.len()));
        assert!(moments.is_sorted_by(|a, b| a.time < b.time));
        assert!(moments.iter().all(|moment| moment.areas.unknown == f64::from(moment.snapshots)));
        assert_eq!(moments.iter().map(|moment| moment.snapshots).sum::<u32>(), count);
        assert_eq!(moments.last().map(|moment| moment.time), Some(Duration::from_secs(count.into())));
    }
}
