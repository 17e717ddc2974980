//! What each probe sees, and what it cannot observe.

use isotherm_record::Sight;

/// What decides on what a probe sees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    /// Whether the targets are physical memory.
    pub(crate) is_physical: bool,
    /// Whether all pages are surveyed.
    pub(crate) surveys: bool,
}

fn blind_to(kinds: &str) -> Sight {
    Sight { blind_to: kinds.into(), ..Sight::default() }
}

/// Idle page tracking.
pub(crate) fn idle(scene: Scene) -> Sight {
    blind_to(match (scene.is_physical, scene.surveys) {
        (true, true) => "hugetlb memory and pages just faulted in",
        (true, false) => "memory that is free, the kernel's own, or hugetlb, without a survey",
        (false, true) => "memory of hugetlb, a device or io_uring, and pages just faulted in",
        (false, false) => {
            "memory that is hugetlb, of a device, just faulted in, or only read (the zero page), without a survey"
        }
    })
}

/// Page cache of files, by idle page tracking.
pub(crate) fn files(_: Scene) -> Sight {
    blind_to("pages that were just read in")
}

/// Page cache of files, where the kernel does not track idle pages.
pub(crate) fn files_without_ages(_: Scene) -> Sight {
    blind_to("any page cache, because this kernel does not track idle pages")
}

/// Page tables.
pub(crate) fn bpf(scene: Scene) -> Sight {
    let kinds = match scene.surveys {
        true => {
            "memory of hugetlb, a guest, a device or io_uring, pages just faulted in, and memory that is shared or \
             locked and left out by --shared or its limits"
        }
        false => {
            "memory that is shared with other processes, locked, hugetlb, of a device, just faulted in, or only read \
             (the zero page), without a survey"
        }
    };
    Sight { mapped_only: scene.is_physical, ..blind_to(kinds) }
}

/// Whole mappings, which an ordinary user can watch.
pub(crate) fn refs(_: Scene) -> Sight {
    Sight { only_by_name: true, ..blind_to("memory of hugetlb, a guest, a device or io_uring") }
}

/// The kernel's DAMON.
pub(crate) fn damon(_: Scene) -> Sight {
    Sight { only_by_name: true, kernel_samples: true, ..Sight::default() }
}
