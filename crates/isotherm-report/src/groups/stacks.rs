//! Groups of memory by call stack.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{BlockSums, PageSums};
use isotherm_core::{AddrRange, CallStack, Mapping, StackId, TargetId};

use super::{Frame, Group};
use crate::stacks::{NAMED, OwnerMaps, Owners, Stacks, UNKNOWN, divide, is_anonymous, name};

/// Which group the memory at an address belongs to, at any time.
#[derive(Debug)]
pub(crate) struct StackGroups {
    owners: Arc<Owners>,
    of_stack: HashMap<StackId, usize>,
    /// The group of memory that no recorded call mapped.
    unknown: usize,
    /// The group of memory with a name.
    named: usize,
}

impl StackGroups {
    /// The groups of these stacks: those of one name are one group. The last two groups are those of other memory.
    /// `targets` is the number of targets.
    pub(super) fn new(stacks: &Stacks, targets: usize) -> (Self, Vec<Group>) {
        let mut groups: Vec<Group> = Vec::new();
        let (mut known, mut of_stack) = (HashMap::new(), HashMap::new());
        let mut members: Vec<HashSet<TargetId>> = Vec::new();
        // In the order of the numbers, so that the same recording has the same groups.
        let mut users: Vec<(StackId, TargetId)> = stacks.targets().map(|(target, stack)| (stack, target)).collect();
        users.sort_unstable();
        for (id, target) in users {
            let Some(frames) = stacks.of_id.get(&id) else { continue };
            let name = name(frames);
            let nth = *known.entry(name.clone()).or_insert(groups.len());
            if nth == groups.len() {
                groups.push(Group { name, frames: Some(shown(frames)), ..Group::default() });
                members.push(HashSet::new());
            }
            of_stack.insert(id, nth);
            members[nth].insert(target);
        }
        groups.iter_mut().zip(&members).for_each(|(group, members)| group.processes = members.len());
        let (unknown, named) = (groups.len(), groups.len() + 1);
        let other = |name: &str| Group { name: name.into(), processes: targets, ..Group::default() };
        groups.extend([other(UNKNOWN), other(NAMED)]);
        (Self { owners: Arc::clone(&stacks.owners), of_stack, unknown, named }, groups)
    }

    fn of(&self, stack: Option<StackId>) -> usize {
        stack.and_then(|stack| self.of_stack.get(&stack).copied()).unwrap_or(self.unknown)
    }
}

fn shown(frames: &CallStack) -> Vec<Frame> {
    let frame = |frame: &isotherm_core::StackFrame| Frame {
        function: frame.function.clone(),
        module: frame.module.clone(),
        offset: frame.offset,
    };
    frames.iter().map(frame).collect()
}

/// Divides memory among the groups of stacks, on a walk forward in time.
#[derive(Debug)]
pub(crate) struct StackShares {
    groups: Arc<StackGroups>,
    maps: OwnerMaps,
}

impl StackShares {
    pub(crate) fn new(groups: &Arc<StackGroups>) -> Self {
        Self { groups: Arc::clone(groups), maps: OwnerMaps::new(&groups.owners) }
    }

    /// How many bytes of a part of a mapping belong to each group. A group may come more than once.
    pub(crate) fn sizes(
        &mut self,
        target: TargetId,
        time: Duration,
        mapping: &Mapping,
        range: AddrRange,
    ) -> Vec<(usize, u64)> {
        if !is_anonymous(mapping) {
            return vec![(self.groups.named, range.size())];
        }
        let parts = self.maps.at(target, time).parts(range).into_iter();
        parts.map(|(part, stack)| (self.groups.of(stack), part.size())).collect()
    }

    /// The sums of each group in a part of a mapping, which `sums` are about. `blocks` are those of the target.
    pub(crate) fn sums(
        &mut self,
        target: TargetId,
        time: Duration,
        mapping: &Mapping,
        range: AddrRange,
        sums: &PageSums,
        blocks: &[BlockSums],
    ) -> Vec<(usize, PageSums)> {
        if !is_anonymous(mapping) {
            return vec![(self.groups.named, *sums)];
        }
        let divided = divide(sums, range, blocks, self.maps.at(target, time)).into_iter();
        divided.map(|(stack, sums)| (self.groups.of(stack), sums)).collect()
    }
}
