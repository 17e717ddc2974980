//! The frames of one target: a bounded number, coarser the older they are.
//!
//! The newest frames are kept as they are. When a tier is full, its two oldest frames become one frame of the
//! next tier. So each tier reaches twice as far back as the one before. Eight tiers of 240 frames reach back
//! 61,200 snapshots (102 minutes of 100 ms) with 1,920 frames, and no frame is longer than a 120th of the
//! time that a picture must show to reach it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::frame::Frame;

/// Frames in a tier.
const FRAMES: usize = 240;
const TIERS: usize = 8;

/// The frames of one target. A copy shares them.
#[derive(Clone, Default)]
pub struct History {
    /// The newest tier first; in each tier the oldest frame first.
    tiers: Vec<VecDeque<Arc<Frame>>>,
}

impl History {
    /// Adds the newest frame. Merged frames have at most `most` strips.
    pub fn push(&mut self, frame: Frame, most: usize) {
        self.tiers.resize_with(TIERS, VecDeque::new);
        let mut carried = Arc::new(frame);
        for tier in &mut self.tiers {
            tier.push_back(carried);
            if tier.len() <= FRAMES {
                return;
            }
            let (Some(a), Some(b)) = (tier.pop_front(), tier.pop_front()) else { return };
            carried = Arc::new(Frame::merged(&a, &b, most));
        }
    }

    /// The frames that overlap this time, the oldest first.
    pub fn frames(&self, from: Duration, to: Duration) -> impl Iterator<Item = &Frame> {
        let all = self.tiers.iter().rev().flatten().map(|frame| &**frame);
        all.skip_while(move |frame| frame.time <= from).take_while(move |frame| frame.since < to)
    }

    /// The start of the oldest frame.
    pub fn start(&self) -> Option<Duration> {
        self.tiers.iter().rev().flatten().next().map(|frame| frame.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(snapshots: u64) -> History {
        let mut history = History::default();
        for i in 0..snapshots {
            let (since, time) = (Duration::from_secs(i), Duration::from_secs(i + 1));
            history.push(Frame { since, time, sampled: true, strips: [].into(), working_set: 8 * i }, 1);
        }
        history
    }

    #[test]
    fn frames_are_contiguous_and_bounded() {
        for snapshots in [1, 240, 241, 1000, 200_000] {
            let history = after(snapshots);
            let frames: Vec<&Frame> = history.frames(Duration::ZERO, Duration::MAX).collect();
            assert!(frames.len() <= FRAMES * TIERS, "{}", frames.len());
            assert!(frames.windows(2).all(|pair| pair[0].time == pair[1].since));
            assert_eq!(frames.last().unwrap().time, Duration::from_secs(snapshots));
            let reach = snapshots - history.start().unwrap().as_secs();
            assert!(reach == snapshots || reach > 60_000, "{snapshots} snapshots, {reach} kept");
        }
    }

    #[test]
    fn frames_are_selected_by_time() {
        let history = after(10);
        let times: Vec<u64> = (history.frames(Duration::from_secs(3), Duration::from_secs(6)))
            .map(|frame| frame.time.as_secs())
            .collect();
        assert_eq!(times, [4, 5, 6]);
    }
}
