//! A frame: the access rates of one target in one span of time, in a compact form.

use std::time::Duration;

use isotherm_record::Row;
use isotherm_report::{Measure, pieces};

use super::shares::Shares;

/// A range of memory with one access rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Strip {
    pub start: u64,
    pub end: u64,
    /// The share of it that could be observed, and the share that is unknown, as in [`isotherm_report::Share`].
    pub observed: f32,
    pub unknown: f32,
    /// How often a page of what was observed is accessed, in hertz; without samples, the share of it that was touched.
    pub value: f32,
}

impl Strip {
    /// The place of its value on the scale of colours.
    fn heat(self, sampled: bool) -> f32 {
        if sampled { Measure::heat_of(self.value.into()) } else { self.value }
    }

    /// The mean with another strip, of which this one has the share `1 - share`.
    fn mixed(self, other: Self, share: f32) -> Self {
        let mean = |x: f32, y: f32| x + (y - x) * share;
        let observed = mean(self.observed, other.observed);
        let values = mean(self.observed * self.value, other.observed * other.value);
        let value = if observed > 0.0 { values / observed } else { 0.0 };
        Self { observed, unknown: mean(self.unknown, other.unknown), value, ..self }
    }
}

/// The access rates of one target in one span of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Start of the span.
    pub since: Duration,
    /// End of the span.
    pub time: Duration,
    /// Whether there are samples.
    pub sampled: bool,
    /// The mapped memory, sorted and disjoint.
    pub strips: Box<[Strip]>,
    /// Bytes of regions that were accessed at least once.
    pub working_set: u64,
}

impl Frame {
    /// Makes a frame of at most `most` strips from a snapshot.
    pub fn new(row: &Row<'_>, since: Duration, most: usize) -> Self {
        let mut strips = vec![];
        let shares = Shares::new(row);
        for piece in pieces(row, None) {
            let share = shares.of(piece.region);
            let value = if shares.sampled() { share.hz } else { share.rate().unwrap_or(0.0) };
            let (start, end) = (piece.range.start(), piece.range.end());
            let [observed, unknown, value] = [share.observed, share.unknown, value].map(|value| value as f32);
            push(&mut strips, Strip { start, end, observed, unknown, value });
        }
        let strips = coarsened(strips, most, shares.sampled());
        Self { since, time: row.time, sampled: shares.sampled(), strips, working_set: row.target.working_set() }
    }

    /// Merges two consecutive frames into one of at most `most` strips, weighted by their time.
    pub fn merged(a: &Self, b: &Self, most: usize) -> Self {
        let length = |frame: &Self| frame.time.saturating_sub(frame.since).as_secs_f64().max(1e-9);
        let share = length(b) / (length(a) + length(b));
        let mean = |x: f64, y: f64| x + (y - x) * share;
        let sampled = a.sampled || b.sampled;
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
            let strip = match next.map(|strip| strip.copied().filter(|strip| strip.start <= start)) {
                [Some(x), Some(y)] => x.mixed(y, share as f32),
                [Some(one), None] | [None, Some(one)] => one,
                [None, None] => continue,
            };
            push(&mut strips, Strip { start, end: at, ..strip });
        }
        let working_set = mean(a.working_set as f64, b.working_set as f64) as u64;
        Self { since: a.since, time: b.time, sampled, strips: coarsened(strips, most, sampled), working_set }
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
fn coarsened(mut strips: Vec<Strip>, most: usize, sampled: bool) -> Box<[Strip]> {
    let (mut difference, mut gap) = (0.02_f32, 0_u64);
    while strips.len() > most.max(1) {
        let mut kept: Vec<Strip> = Vec::with_capacity(strips.len());
        for strip in strips {
            match kept.last_mut() {
                Some(last)
                    if strip.start - last.end <= gap
                        && (strip.heat(sampled) - last.heat(sampled)).abs() <= difference =>
                {
                    let size = |strip: &Strip| (strip.end - strip.start) as f32;
                    let share = size(&strip) / (size(&strip) + size(last));
                    *last = Strip { end: strip.end, ..last.mixed(strip, share) };
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
        let strip = |&(start, end, value)| Strip { start, end, observed: 1.0, value, unknown: 0.0 };
        let [since, time] = [seconds.0, seconds.1].map(Duration::from_secs);
        Frame { since, time, sampled: true, strips: strips.iter().map(strip).collect(), working_set: 100 * seconds.1 }
    }

    fn shown(frame: &Frame) -> Vec<(u64, u64, f32)> {
        frame.strips.iter().map(|strip| (strip.start, strip.end, strip.value)).collect()
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
    fn similar_and_near_strips_are_merged_first() {
        let strips = [(0, 4096, 1.0), (4096, 8192, 0.9), (8192, 12288, 0.1), (1 << 30, (1 << 30) + 4096, 0.1)];
        let one = frame((0, 1), &strips);
        let at_most = |most| shown(&Frame::merged(&one, &one, most));
        assert_eq!(at_most(3)[1..], strips[2..]);
        assert_eq!(at_most(3)[0].1, 8192);
        assert_eq!(at_most(1).len(), 1);
    }
}
