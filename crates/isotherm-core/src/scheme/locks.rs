//! Which memory schemes have locked and unlocked: each call stops the target, so that it is made once.

use std::time::Duration;

use crate::{AddrRange, TargetId};

use super::Action;
use super::history::ActionHistory;

/// Memory is locked or unlocked again after this time, as the target may have mapped other memory there.
const AGAIN: Duration = Duration::from_secs(60);

/// When memory was locked and unlocked last.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    locked: ActionHistory,
    unlocked: ActionHistory,
}

impl Locks {
    /// Takes in that an action was carried out on `range`.
    pub(crate) fn mark(&mut self, action: Action, target: TargetId, range: AddrRange, at: Duration) {
        if action == Action::MLock {
            self.locked.mark(target, range, at);
            self.unlocked.forget(target, range);
        } else if action == Action::MUnlock {
            self.unlocked.mark(target, range, at);
            self.locked.forget(target, range);
        }
    }

    /// Calls `each` with the parts of `range` that the action may be carried out on at the time `now`: with all of it
    /// for other actions than those that lock and unlock.
    pub(crate) fn pieces(
        &self,
        action: Action,
        target: TargetId,
        range: AddrRange,
        now: Duration,
        mut each: impl FnMut(AddrRange),
    ) {
        let locked = (action == Action::MLock).then_some(&self.locked);
        let unlocked = (action == Action::MUnlock).then_some(&self.unlocked);
        let Some(done) = locked.or(unlocked) else { return each(range) };
        done.pieces(target, range, |piece, at| {
            if at.is_none_or(|at| now >= at.saturating_add(AGAIN)) {
                each(piece);
            }
        });
    }

    /// Drops what has no effect any more.
    pub(crate) fn tidy(&mut self, now: Duration, lives: impl Fn(TargetId) -> bool) {
        let horizon = now.saturating_sub(AGAIN);
        self.locked.tidy(now, horizon, &lives);
        self.unlocked.tidy(now, horizon, &lives);
    }
}
