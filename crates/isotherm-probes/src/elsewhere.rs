//! Memory of a process that others access where a probe does not see it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_core::survey::{BLOCK_SIZE, PageBits, Unseen};
use isotherm_core::{AddrRange, Mapping, TargetId};
use isotherm_kernel::Elsewhere;

/// How often it is found out who accesses the memory of a process.
const LOOK: Duration = Duration::from_secs(5);

/// The memory of a target that guests of KVM, devices, or io_uring access, so that no accessed bit tells whether it is
/// in use.
#[derive(Debug, Default)]
pub(crate) struct AccessedElsewhere {
    sees_guests: bool,
    who: Elsewhere,
    looked: Option<Instant>,
    mappings: Arc<[Mapping]>,
    /// Sorted and disjoint.
    ranges: Vec<(AddrRange, Unseen)>,
}

impl AccessedElsewhere {
    /// For a probe that sees the accesses of all guests.
    pub(crate) fn but_guests() -> Self {
        Self { sees_guests: true, ..Self::default() }
    }

    /// Finds out who accesses memory of the target, if that was not done a short time ago, and which of these mappings
    /// it is. `root` stands for `/`. A process that has ended, or whose files may not be listed, keeps what is known,
    /// and so does one that has not run since. Returns whether it was found out.
    pub(crate) fn update(&mut self, root: &Path, target: TargetId, mappings: &Arc<[Mapping]>, has_run: bool) -> bool {
        let Some(pid) = target.pid() else { return false };
        let is_due = has_run && self.looked.is_none_or(|before| before.elapsed() >= LOOK);
        if !is_due && Arc::ptr_eq(&self.mappings, mappings) {
            return false;
        }
        if is_due {
            self.looked = Some(Instant::now());
            if let Ok(who) = Elsewhere::of_process(root, pid) {
                self.who = who;
            }
        }
        self.mappings = Arc::clone(mappings);
        self.find();
        is_due
    }

    /// Finds the memory. It is not known which memory of the process a guest or a device accesses, so it is all that
    /// they can write to for others: private memory, and files and shared memory that are mapped to be shared.
    fn find(&mut self) {
        let Elsewhere { guest, device, buffers } = &self.who;
        let all = match (*guest && !self.sees_guests, *device) {
            (true, _) => Some(Unseen::Guest),
            (false, true) => Some(Unseen::Device),
            (false, false) => None,
        };
        self.ranges.clear();
        if all.is_none() && buffers.is_empty() {
            return;
        }
        for mapping in self.mappings.iter() {
            let of_a_file = mapping.name.starts_with('/') && !mapping.permissions.shared;
            if let Some(why) = all.filter(|_| mapping.permissions.write && !of_a_file) {
                self.ranges.push((mapping.range, why));
            } else {
                let first = buffers.partition_point(|buffer| buffer.end() <= mapping.range.start());
                let inside = buffers[first..].iter().map_while(|buffer| buffer.intersection(mapping.range));
                self.ranges.extend(inside.map(|buffer| (buffer, Unseen::IoUring)));
            }
        }
    }

    /// Whether devices or the kernel may access memory of the process while it does not run.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn is_accessed_at_rest(&self) -> bool {
        self.who.device || !self.who.buffers.is_empty()
    }

    /// The parts of `range` that others access, and who, in the order of addresses.
    pub(crate) fn within(&self, range: AddrRange) -> impl Iterator<Item = (AddrRange, Unseen)> {
        let first = self.ranges.partition_point(|(known, _)| known.end() <= range.start());
        self.ranges[first..].iter().map_while(move |(known, why)| Some((known.intersection(range)?, *why)))
    }

    /// All of it, in the order of addresses.
    pub(crate) fn ranges(&self) -> &[(AddrRange, Unseen)] {
        &self.ranges
    }

    /// The pages of the block that begins at `start`.
    pub(crate) fn pages(&self, start: u64) -> PageBits {
        let block = AddrRange::new(start, start.saturating_add(BLOCK_SIZE));
        let parts = block.into_iter().flat_map(|block| self.within(block));
        parts.fold(PageBits::NONE, |pages, (part, _)| pages | PageBits::within(start, part))
    }

    /// Whether others access the page at `addr`.
    pub(crate) fn contains(&self, addr: u64) -> bool {
        let next = self.ranges.partition_point(|(range, _)| range.end() <= addr);
        self.ranges.get(next).is_some_and(|(range, _)| range.contains(addr))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start, end).unwrap()
    }

    #[test]
    fn what_a_guest_or_io_uring_may_access_is_marked_with_its_reason() {
        let [code, heap] = [range(0x1000, 0x5000), range(0x5000, 0x9000)].map(Mapping::anonymous);
        let code = Mapping { name: "/bin/x".into(), ..code };
        let buffers = vec![range(0x2000, 0x3000), range(0x8000, 0xa000)];
        let of = |who: Elsewhere, sees_guests| {
            let mappings: Arc<[Mapping]> = [code.clone(), heap.clone()].into();
            let mut of = AccessedElsewhere { sees_guests, who, mappings, ..AccessedElsewhere::default() };
            of.find();
            of
        };
        let io_uring = of(Elsewhere { buffers: buffers.clone(), ..Elsewhere::default() }, false);
        let expected = [(0x2000, 0x3000), (0x8000, 0x9000)].map(|(from, to)| (range(from, to), Unseen::IoUring));
        assert_eq!(io_uring.ranges(), expected);
        assert!(io_uring.contains(0x2fff) && !io_uring.contains(0x3000) && !io_uring.contains(0x9000));
        assert_eq!(io_uring.pages(0).iter().collect::<Vec<_>>(), [2, 8]);
        assert_eq!(
            io_uring.within(range(0x2800, 0x8000)).collect::<Vec<_>>(),
            [(range(0x2800, 0x3000), Unseen::IoUring)]
        );

        let all = Elsewhere { guest: true, device: true, buffers };
        let guest = of(all.clone(), false);
        assert_eq!(guest.ranges(), [(range(0x2000, 0x3000), Unseen::IoUring), (heap.range, Unseen::Guest)]);
        assert_eq!(of(all, true).ranges()[1], (heap.range, Unseen::Device), "the guest is seen");
        assert!(of(Elsewhere { guest: true, ..Elsewhere::default() }, true).ranges().is_empty());
    }
}
