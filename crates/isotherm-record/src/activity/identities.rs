//! Which target a number in an activity means.

use std::collections::HashMap;

use isotherm_core::TargetId;

use crate::{TargetInfo, compat};

/// The identities of the targets that rows have told of so far. An activity holds a number only: it means the last target that
/// had it.
#[derive(Debug, Default)]
pub(crate) struct Identities(HashMap<u32, TargetId>);

impl Identities {
    /// Takes in what a row says that the target with this number is.
    pub(crate) fn insert(&mut self, pid: u32, info: &TargetInfo) {
        self.0.insert(pid, compat::identity(pid, Some(info)));
    }

    /// The target with this number; a process whose start is not known, if no row has told of it.
    pub(crate) fn of(&self, pid: u32) -> TargetId {
        self.0.get(&pid).copied().unwrap_or_else(|| compat::identity(pid, None))
    }
}
