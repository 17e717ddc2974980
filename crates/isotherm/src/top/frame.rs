//! A frame: the access rates of one target in one span of time, in a compact form.

use std::time::Duration;

use isotherm_core::rate::share_over;
use isotherm_record::Row;
use isotherm_report::{Share, pieces};

use super::shares::Shares;

/// A range of memory with one access rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Strip {
    pub start: u64,
    pub end: u64,
    /// The share of its samples that could be observed, the share that found it accessed, and the share of its unknown
    /// memory, as in [`Share`].
    pub observed: f32,
    pub accessed: f32,
    pub unknown: f32,
}

impl Strip {
    fn rate(self) -> f32 {
        if self.observed > 0.0 { self.accessed / self.observed } else { 0.0 }
    }

    /// The share that samples over the interval `longer` would find accessed, if this strip has that of samples over
    /// `sampling`.
    pub fn accessed_over(self, sampling: Duration, longer: Duration) -> f32 {
        self.observed * share_over(self.rate().into(), sampling, longer) as f32
    }
}

/// The access rates of one target in one span of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Start of the span.
    pub since: Duration,
    /// End of the span.
    pub time: Duration,
    /// The sampling interval, over which the shares are. Zero without samples.
    pub sampling: Duration,
    /// The mapped memory, sorted and disjoint.
    pub strips: Box<[Strip]>,
    /// Bytes of regions that were accessed at least once.
    pub working_set: u64,
}

impl Frame {
    /// Makes a frame of at most `most` strips from a snapshot.
    pub fn new(row: &Row, since: Duration, most: usize) -> Self {
        let mut strips = vec![];
        let shares = Shares::new(row);
        for piece in pieces(row, None) {
            let Share { observed, accessed, unknown } = shares.of(piece.region);
            let (start, end) = (piece.range.start(), piece.range.end());
            let [observed, accessed, unknown] = [observed, accessed, unknown].map(|share| share as f32);
            push(&mut strips, Strip { start, end, observed, accessed, unknown });
        }
        let strips = coarsened(strips, most);
        Self { since, time: row.time, sampling: shares.sampling(), strips, working_set: row.target.working_set() }
    }

    /// Merges two consecutive frames into one of at most `most` strips, weighted by their time. Shares are over the
    /// longer of their sampling intervals.
    pub fn merged(a: &Self, b: &Self, most: usize) -> Self {
        let length = |frame: &Self| frame.time.saturating_sub(frame.since).as_secs_f64().max(1e-9);
        let share = length(b) / (length(a) + length(b));
        let mean = |x: f64, y: f64| x + (y - x) * share;
        let sampling = a.sampling.max(b.sampling);
        let [over_a, over_b] = [a, b].map(|frame| move |strip: &Strip| strip.accessed_over(frame.sampling, sampling));
        let (mut i, mut j, mut at) = (0, 0, 0);
        let mut strips = vec![];
        loop {
            while a.strips.get(i).is_some_and(|strip| strip.end <= at) {
                i += 1;
            }
            while b.strips.get(j).is_some_and(|strip| strip.end <= at) {
                j += 1;
            }
            let next = [a.strips.get(i), b.strips.get(j)];
            let Some(start) = next.iter().flatten().map(|strip| strip.start.max(at)).min() else { break };
            let border = |strip: &Strip| if strip.start <= start { strip.end } else { strip.start };
            at = next.iter().copied().flatten().map(border).min().unwrap_or(start + 1);
            let (observed, accessed, unknown) = match next.map(|strip| strip.filter(|strip| strip.start <= start)) {
                [Some(x), Some(y)] => {
                    let mean = |x: f32, y: f32| mean(x.into(), y.into()) as f32;
                    (mean(x.observed, y.observed), mean(over_a(x), over_b(y)), mean(x.unknown, y.unknown))
                }
                [Some(x), None] => (x.observed, over_a(x), x.unknown),
                [None, Some(y)] => (y.observed, over_b(y), y.unknown),
                [None, None] => continue,
            };
            push(&mut strips, Strip { start, end: at, observed, accessed, unknown });
        }
        let working_set = mean(a.working_set as f64, b.working_set as f64) as u64;
        Self { since: a.since, time: b.time, sampling, strips: coarsened(strips, most), working_set }
    }
}

/// Adds a strip, or extends the last one if it continues with the same shares.
fn push(strips: &mut Vec<Strip>, new: Strip) {
    match strips.last_mut() {
        Some(last) if last.end == new.start && *last == (Strip { start: last.start, end: last.end, ..new }) => {
            last.end = new.end;
        }
        _ => strips.push(new),
    }
}

/// Merges strips until at most `most` are left, the most similar and nearest first.
fn coarsened(mut strips: Vec<Strip>, most: usize) -> Box<[Strip]> {
    let (mut difference, mut gap) = (0.02_f32, 0_u64);
    while strips.len() > most.max(1) {
        let mut kept: Vec<Strip> = Vec::with_capacity(strips.len());
        for strip in strips {
            match kept.last_mut() {
                Some(last) if strip.start - last.end <= gap && (strip.rate() - last.rate()).abs() <= difference => {
                    let size = |strip: &Strip| (strip.end - strip.start) as f32;
                    let share = size(&strip) / (size(&strip) + size(last));
                    last.observed += (strip.observed - last.observed) * share;
                    last.accessed += (strip.accessed - last.accessed) * share;
                    last.unknown += (strip.unknown - last.unknown) * share;
                    last.end = strip.end;
                }
                _ => kept.push(strip),
            }
        }
        strips = kept;
        difference *= 2.0;
        gap = gap.saturating_mul(8).max(4096);
    }
    strips.into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(seconds: (u64, u64), strips: &[(u64, u64, f32)]) -> Frame {
        let strip = |&(start, end, accessed)| Strip { start, end, observed: 1.0, accessed, unknown: 0.0 };
        let [since, time] = [seconds.0, seconds.1].map(Duration::from_secs);
        let sampling = Duration::from_millis(5);
        Frame { since, time, sampling, strips: strips.iter().map(strip).collect(), working_set: 100 * seconds.1 }
    }

    fn shown(frame: &Frame) -> Vec<(u64, u64, f32)> {
        frame.strips.iter().map(|strip| (strip.start, strip.end, strip.accessed)).collect()
    }

    #[test]
    fn frames_are_merged_with_the_weight_of_their_time() {
        let a = frame((0, 1), &[(0, 10, 1.0), (10, 20, 0.0), (50, 60, 0.5)]);
        let b = frame((1, 4), &[(5, 20, 0.0), (20, 30, 1.0)]);
        let merged = Frame::merged(&a, &b, 100);
        assert_eq!(shown(&merged), [(0, 5, 1.0), (5, 10, 0.25), (10, 20, 0.0), (20, 30, 1.0), (50, 60, 0.5)]);
        assert_eq!((merged.since, merged.time), (a.since, b.time));
        assert_eq!(merged.working_set, 325);
    }

    #[test]
    fn shares_of_merged_frames_are_over_the_longer_sampling_interval() {
        let short = frame((0, 1), &[(0, 10, 0.1), (10, 20, 1.0), (30, 40, 0.1)]);
        let long = Frame { sampling: Duration::from_millis(10), ..frame((1, 2), &[(0, 10, 0.19), (10, 20, 1.0)]) };
        let merged = Frame::merged(&short, &long, 100);
        assert_eq!(merged.sampling, long.sampling);
        for (found, expected) in shown(&merged).into_iter().zip([(0, 10, 0.19), (10, 20, 1.0), (30, 40, 0.19)]) {
            assert!((found.0, found.1) == (expected.0, expected.1) && (found.2 - expected.2).abs() < 1e-6, "{found:?}");
        }
        assert_eq!(Frame::merged(&long, &short, 100).sampling, long.sampling);
    }

    #[test]
    fn similar_and_near_strips_are_merged_first() {
        let strips = [(0, 4096, 1.0), (4096, 8192, 0.9), (8192, 12288, 0.1), (1 << 30, (1 << 30) + 4096, 0.1)];
        let one = frame((0, 1), &strips);
        let at_most = |most| shown(&Frame::merged(&one, &one, most));
        assert_eq!(at_most(3)[1..], strips[2..]);
        assert_eq!(at_most(3)[0].1, 8192);
        assert_eq!(at_most(1).len(), 1);
    }
}
