//! Which code mapped memory: the call stack that each address belongs to, and how stacks are named.

mod divide;
mod name;
mod owners;

use std::collections::HashMap;
use std::sync::Arc;

use isotherm_core::{CallStack, Mapping, StackId, TargetId};

use crate::ReportError;
use crate::source::{Selection, Source};

pub(crate) use divide::divide;
pub(crate) use name::{brief, functions_of, name};
pub(crate) use owners::{OwnerMap, OwnerMaps, Owners};

/// The name of memory that no recorded call mapped.
pub(crate) const UNKNOWN: &str = "(mapped before, or stack not recorded)";
/// The name of memory that has a name of its own: files, shared memory, the stack of the main thread.
pub(crate) const NAMED: &str = "(files and other memory with a name)";

/// The calls of a recording that mapped memory, and their stacks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stacks {
    pub(crate) owners: Arc<Owners>,
    pub(crate) of_id: HashMap<StackId, CallStack>,
    /// How many calls were lost.
    pub(crate) lost: u64,
}

impl Stacks {
    /// Reads the calls of the selected targets.
    ///
    /// # Errors
    /// If the source cannot be read, or has no calls.
    pub(crate) fn read(source: &dyn Source, selection: &Selection) -> Result<Self, ReportError> {
        let (mut owners, mut stacks, mut some) = (Owners::default(), Self::default(), false);
        for found in source.allocations().map_err(ReportError::Source)? {
            let found = found.map_err(ReportError::Source)?;
            some = true;
            stacks.of_id.extend(found.stacks);
            stacks.lost = stacks.lost.saturating_add(found.lost);
            found.calls.iter().filter(|call| selection.holds_target(call.target)).for_each(|call| owners.add(call));
        }
        stacks.owners = Arc::new(owners);
        if some { Ok(stacks) } else { Err(ReportError::NoStacks) }
    }

    /// The targets that have made calls, with the stacks of each.
    pub(crate) fn targets(&self) -> impl Iterator<Item = (TargetId, StackId)> {
        self.owners.stacks()
    }
}

/// Whether calls of mmap and brk tell where the memory of a mapping comes from. Files have a name that tells it.
pub(crate) fn is_anonymous(mapping: &Mapping) -> bool {
    let name = &*mapping.name;
    name.is_empty()
        || name == "[heap]"
        || name.starts_with("[anon:")
        || name.starts_with("[anon_shmem:")
        || name.starts_with("/dev/zero")
}
