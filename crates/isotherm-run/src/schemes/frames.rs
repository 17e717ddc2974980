//! Acting on page frames that are not of one process, by the kernel's DAMON.

use isotherm_act::ActOnFrames;
use isotherm_core::scheme::Action;
use isotherm_core::{AddrRange, BoxError};
use isotherm_probes::damon::{DamonPaths, FrameAction, Others, act_on_frames, check_operations};

/// What acts on page frames, if the kernel's DAMON can, and nobody else uses it.
pub(super) fn by_damon() -> Option<ActOnFrames> {
    let places = DamonPaths::system();
    let features = check_operations(&places, "paddr").ok()?;
    let is_free = !features.operations.is_empty() && Others::look(&places).is_ok_and(|others| !others.any());
    is_free.then_some(act)
}

fn act(action: Action, ranges: &[AddrRange]) -> Result<u64, BoxError> {
    let action = match action {
        Action::PageOut => FrameAction::PageOut,
        Action::Cold => FrameAction::Cold,
        other => return Err(format!("{other} is no action on page frames").into()),
    };
    Ok(act_on_frames(DamonPaths::system(), action, ranges)?.applied)
}
