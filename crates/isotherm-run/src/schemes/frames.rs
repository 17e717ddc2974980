//! Acting on page frames that are not of one process, by the kernel's DAMON.

use isotherm_act::ActOnFrames;
use isotherm_core::{AddrRange, BoxError};
use isotherm_kernel::madvise::Advice;
use isotherm_probes::damon::{DamonPaths, FrameAction, act_on_frames, check_operations};

/// What acts on page frames, if the kernel has DAMON for physical memory. If somebody else uses it, the first call says
/// so, and writes nothing.
pub(super) fn by_damon() -> Option<ActOnFrames> {
    let features = check_operations(&DamonPaths::system(), "paddr").ok()?;
    (!features.operations.is_empty()).then_some(act)
}

fn act(advice: Advice, ranges: &[AddrRange]) -> Result<u64, BoxError> {
    let action = match advice {
        Advice::PageOut | Advice::PageOutWhole => FrameAction::PageOut,
        Advice::Cold => FrameAction::Cold,
        Advice::WillNeed | Advice::Collapse => {
            return Err(format!("{} is no advice on page frames", advice.name()).into());
        }
    };
    Ok(act_on_frames(DamonPaths::system(), action, ranges)?.applied)
}
