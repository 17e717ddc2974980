//! Which code mapped memory: the call stack that each address belongs to, and how stacks are named.

mod divide;
mod first;
mod name;
mod owners;

use std::collections::HashMap;
use std::sync::Arc;

use first::FirstStacks;
use isotherm_core::{CallStack, Mapping, StackId, TargetId};
use isotherm_record::{Event, Needs};

use crate::ReportError;
use crate::source::{self, Selection, Source};

pub(crate) use divide::divide;
pub(crate) use name::{brief, functions_of, name};
pub(crate) use owners::{OwnerMap, OwnerMaps, Owners};

/// The name of memory that no recorded call mapped.
pub(crate) const UNKNOWN: &str = "(mapped before, or stack not recorded)";
/// The name of memory that has a name of its own: files, shared memory, the stack of the main thread.
pub(crate) const NAMED: &str = "(files and other memory with a name)";

/// The most bytes that the calls of a recording take: about three million calls.
const MOST_BYTES: usize = 128 << 20;

/// The calls of a recording that mapped memory, and their stacks.
#[derive(Clone, Debug)]
pub(crate) struct Stacks {
    pub(crate) owners: Arc<Owners>,
    /// The stacks that are told apart. A call with another one has none.
    pub(crate) of_id: HashMap<StackId, CallStack>,
}

impl Stacks {
    /// Reads the calls of the selected targets.
    ///
    /// # Errors
    /// If the source cannot be read, has no calls, or has more of the selected targets than are kept.
    pub(crate) fn read(source: &dyn Source, selection: &Selection) -> Result<Self, ReportError> {
        let (mut owners, mut known, mut some) = (Owners::default(), FirstStacks::default(), false);
        let calls = |event| if let Event::Allocations(found) = event { Some(found) } else { None };
        for found in source::only(source, Needs::ALLOCATIONS, calls)? {
            let found = found?;
            some = true;
            known.add(found.stacks);
            for call in found.calls.iter().filter(|call| selection.holds_target(call.target)) {
                owners.add(call);
            }
            if owners.bytes() > MOST_BYTES {
                return Err(ReportError::TooManyCalls { most: MOST_BYTES });
            }
        }
        let (owners, of_id) = (Arc::new(owners), known.into_stacks());
        if some { Ok(Self { owners, of_id }) } else { Err(ReportError::NoStacks) }
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
