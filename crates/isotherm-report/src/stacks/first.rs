//! A bound on the call stacks that a report tells apart.
//!
//! Each batch of a recording may bring new ones, so that a small file with millions of them would take gigabytes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use isotherm_core::{CallStack, StackFrame, StackId};

use super::name::LONGEST;

/// The most stacks, which is also the most that a run records.
const MOST_STACKS: usize = 1 << 16;
/// The most bytes of these stacks, with the names in them, which the name of each stack repeats in part.
const MOST_BYTES: usize = 128 << 20;

/// The first stacks of a recording. Further ones are left out, as in a run.
#[derive(Debug, Default)]
pub(super) struct FirstStacks {
    stacks: HashMap<StackId, CallStack>,
    /// Most names are in many stacks.
    names: HashSet<Arc<str>>,
    bytes: usize,
}

impl FirstStacks {
    /// Adds the stacks of a batch.
    pub(super) fn add(&mut self, stacks: Vec<(StackId, CallStack)>) {
        for (id, frames) in stacks {
            let repeated = |frame: &StackFrame| frame.function.as_ref().map_or(0, |name| name.len().min(LONGEST));
            let bytes = size_of_val(&*frames) + frames.iter().map(repeated).sum::<usize>();
            if self.stacks.len() >= MOST_STACKS || self.bytes + bytes > MOST_BYTES {
                return;
            }
            self.bytes += bytes;
            let named = |frame: &StackFrame| StackFrame {
                function: frame.function.as_ref().map(|name| self.named(name)),
                module: frame.module.as_ref().map(|name| self.named(name)),
                offset: frame.offset,
            };
            let frames: CallStack = frames.iter().map(named).collect();
            self.stacks.insert(id, frames);
        }
    }

    /// The stacks by their numbers.
    pub(super) fn into_stacks(self) -> HashMap<StackId, CallStack> {
        self.stacks
    }

    /// The one copy of a name.
    fn named(&mut self, name: &Arc<str>) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        self.bytes += name.len();
        self.names.insert(Arc::clone(name));
        Arc::clone(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(function: &str) -> CallStack {
        [StackFrame { function: Some(function.into()), module: None, offset: 0 }].into()
    }

    #[test]
    fn stacks_have_one_copy_of_a_name() {
        let mut known = FirstStacks::default();
        known.add(vec![(1, stack("main")), (2, stack("main"))]);
        known.add(vec![(7, stack("main"))]);
        let stacks = known.into_stacks();
        let name = |id| stacks[&id][0].function.clone().unwrap();
        assert!(Arc::ptr_eq(&name(1), &name(2)) && Arc::ptr_eq(&name(1), &name(7)));
    }

    #[test]
    fn stacks_beyond_the_most_are_left_out() {
        let mut known = FirstStacks::default();
        known.add((0..70_000).map(|id| (id, stack("main"))).collect());
        assert_eq!(known.into_stacks().len(), MOST_STACKS);
        let mut known = FirstStacks::default();
        let long = "x".repeat(1 << 20);
        (0..300).for_each(|id| known.add(vec![(id, stack(&format!("{id}{long}")))]));
        assert_eq!(known.into_stacks().len(), 128);
    }
}
