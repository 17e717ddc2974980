//! Actions on page frames of physical memory.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use isotherm_core::scheme::{Outcome, RefusalReason};
use isotherm_core::{AddrRange, TargetId};
use isotherm_kernel::madvise::Advice;
use rustix::io::Errno;

use super::{ProcessActuator, refuse_all};
use crate::held::Held;
use crate::physical::{FrameOwners, OfProcess, joined};
use crate::refusal::refusal;

/// The most ranges that [`ActOnFrames`](super::ActOnFrames) gets.
const MOST_FRAMES: usize = 1000;

/// For so long, an application acts on page frames that are not of one process. A call takes some 20 ms.
const LONGEST_ON_FRAMES: Duration = Duration::from_secs(1);

impl ProcessActuator {
    /// Who maps page frames, if the target is physical memory.
    pub(super) fn physical(&self, target: TargetId) -> Option<FrameOwners> {
        self.owners.clone().filter(|_| target == TargetId::PhysicalMemory)
    }

    /// Gives advice on page frames to the processes that map them. The kernel takes none on pages that several
    /// processes map.
    pub(super) fn advise_frames(
        &mut self,
        owners: &FrameOwners,
        advice: Advice,
        ranges: &[AddrRange],
        outcomes: &mut [Outcome],
    ) {
        let found = match owners.find(ranges) {
            Ok(found) => found,
            Err(errno) => return refuse_all(ranges, outcomes, refusal(errno)),
        };
        if !self.act_on_unowned(advice, &found.unowned, outcomes) {
            let refused = found.shared.into_iter().zip(found.unmapped);
            for (outcome, (shared, unmapped)) in outcomes.iter_mut().zip(refused) {
                for (bytes, why) in [(shared, RefusalReason::Unsuitable), (unmapped, RefusalReason::NotMapped)] {
                    if bytes > 0 {
                        outcome.refuse(bytes, why.into());
                    }
                }
            }
        }
        for OfProcess { process, pages } in found.by_process {
            let parts = joined(&pages);
            let virtual_ranges: Vec<AddrRange> = parts.iter().map(|(_, part)| *part).collect();
            let mut of_parts = vec![Outcome::default(); parts.len()];
            let mut held = Held::of(&process);
            if held.has_ended() || self.interrupt.load(Ordering::Relaxed) {
                refuse_all(&virtual_ranges, &mut of_parts, refusal(Errno::SRCH));
            } else {
                self.advise(&mut held, advice, &virtual_ranges, &mut of_parts);
            }
            for ((index, _), of_part) in parts.into_iter().zip(of_parts) {
                outcomes[index].add(&of_part);
            }
        }
    }

    /// Acts on page frames that are not of one process, if something can; for [`LONGEST_ON_FRAMES`] at most. It says on
    /// how much it was successful, and not where, so that this counts for the first ranges.
    fn act_on_unowned(&mut self, advice: Advice, unowned: &[(AddrRange, usize)], outcomes: &mut [Outcome]) -> bool {
        let began = Instant::now();
        for (nth, some) in unowned.chunks(MOST_FRAMES).enumerate() {
            let Some(frames) = self.frames else { return false };
            let ranges: Vec<AddrRange> = some.iter().map(|(range, _)| *range).collect();
            let is_over = self.interrupt.load(Ordering::Relaxed) || began.elapsed() > LONGEST_ON_FRAMES;
            let done = if is_over { Ok(0) } else { frames(advice, &ranges) };
            if nth == 0 && done.is_err() {
                // Another program uses it. Nothing else can.
                self.frames = None;
                return false;
            }
            let mut done = done.unwrap_or(0);
            for (range, index) in some {
                let applied = done.min(range.size());
                done -= applied;
                let outcome = &mut outcomes[*index];
                outcome.applied += applied;
                if applied < range.size() {
                    outcome.refuse(range.size() - applied, RefusalReason::Busy.into());
                }
            }
        }
        self.frames.is_some()
    }
}
