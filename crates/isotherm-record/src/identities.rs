//! The targets that identities without a start mean.

use std::collections::HashMap;

use isotherm_core::TargetId;

use crate::TargetInfo;
use crate::decode::Rows;
use crate::id::StoredId;

/// The targets that rows have described so far, by identities that are not complete.
///
/// An activity has the identity only. Without a start, it means the last target that had it.
#[derive(Debug, Default)]
pub(crate) struct Identities(HashMap<StoredId, TargetId>);

impl Identities {
    /// Takes in what row `index` says of its target, if it has one.
    pub(crate) fn take(&mut self, rows: &Rows, index: usize) -> Result<(), &'static str> {
        if let (Some(id), Some(target)) = rows.target(index)
            && let Some(id @ StoredId::Process { start_ns: None, .. }) = StoredId::read(&id)?
        {
            self.0.insert(id, id.target(&TargetInfo::from(target)));
        }
        Ok(())
    }

    /// The target with this identity; a process whose start is zero, if no row has described it.
    pub(crate) fn target(&self, id: StoredId) -> TargetId {
        let unknown = || id.target(&TargetInfo::default());
        self.0.get(&id).copied().unwrap_or_else(unknown)
    }
}
