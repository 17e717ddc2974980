//! Finds out which actions work on this machine by trying each of them on this process.

use std::path::Path;
use std::{fmt, fs};

use isotherm_core::scheme::{Action, First, Reclaim};
use isotherm_core::{AddrRange, PAGE_SIZE, chain};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use serde::Serialize;

use super::call_method::CallMethod;
use super::error::{ActError, THP_ENABLED};
use super::inside::{Inside, InsideCall};
use super::migration::Migration;
use isotherm_kernel::cgroup::{CgroupMemory, Hierarchy, NoMemoryCgroup};
use isotherm_kernel::madvise::{Advice, advise};
use isotherm_kernel::{HUGE, Pidfd, Scratch};

const SWAPS: &str = "/proc/swaps";

/// An action, and one way to carry it out.
#[derive(Clone, Debug, Serialize)]
pub struct Capability {
    /// The name of the action in scheme files.
    pub action: &'static str,
    /// Whether the action needs a call inside the target, which the scheme must allow.
    pub inside: bool,
    /// The system call that carries out the action.
    pub by: &'static str,
    /// Whether the action works on this machine, for this user. The target may still refuse it.
    pub works: bool,
    /// What failed, why, and how to fix it. `None` if the action works.
    pub why_not: Option<String>,
    /// The memory that the action is limited to on this machine. `None` if it is not limited, or does not work.
    pub limit: Option<&'static str>,
}

/// Tries every action that does something, in each way to carry it out. The main thread of this process is stopped for
/// less than a millisecond per action that is made inside a target.
pub fn capabilities() -> Vec<Capability> {
    let mut inside = Inside::new();
    let mut migration = Migration::new(Path::new("/"));
    let ways = Action::ALL.into_iter().flat_map(|action| [(action, false), (action, true)]);
    let mut found: Vec<Capability> = Vec::new();
    for (action, may_be_inside) in ways {
        let Ok(method) = CallMethod::of(action, may_be_inside) else {
            continue;
        };
        let is_inside = matches!(method, CallMethod::Inside(_));
        // An action that is made from outside although a call inside is allowed has been listed already.
        if method.call_name().is_empty() || is_inside != may_be_inside {
            continue;
        }
        let why_not = check(action, method, &mut inside, &mut migration).err().map(|error| chain(&error));
        let works = why_not.is_none();
        found.push(Capability {
            action: action.name(),
            inside: is_inside,
            by: method.call_name(),
            works,
            why_not,
            limit: limit(method),
        });
    }
    found
}

/// The memory that `method` is limited to on this machine.
fn limit(method: CallMethod) -> Option<&'static str> {
    // The first line of the file is a heading.
    let no_swap = || fs::read_to_string(SWAPS).is_ok_and(|swaps| swaps.lines().count() <= 1);
    (method == CallMethod::Outside(Advice::PageOut) && no_swap()).then_some("without swap, memory of files only")
}

/// Tries an action on this process.
pub(super) fn check(
    action: Action,
    method: CallMethod,
    inside: &mut Inside,
    migration: &mut Migration,
) -> Result<(), ActError> {
    match method {
        CallMethod::Nothing => Ok(()),
        CallMethod::Outside(advice) => outside(action, advice),
        CallMethod::Inside(call) => inside_self(action, call, inside),
        CallMethod::Migration => between_nodes(action, migration),
        CallMethod::Cgroup(how) | CallMethod::Limit(how) => cgroup(action, how),
    }
}

/// Checks that memory can be moved between nodes as `action` says.
pub(super) fn between_nodes(action: Action, migration: &mut Migration) -> Result<(), ActError> {
    migration.check(action).map_err(|source| ActError::Migration { action, source: source.into() })
}

/// Checks that the kernel can be asked to reclaim memory of cgroups, and what is done to idle pages before. Nothing is
/// reclaimed of a cgroup.
fn cgroup(action: Action, how: Reclaim) -> Result<(), ActError> {
    let hierarchy = Hierarchy::find(Path::new("/")).map_err(NoMemoryCgroup::from);
    hierarchy
        .and_then(|hierarchy| CgroupMemory::check(&hierarchy))
        .map_err(|source| ActError::Cgroup { action, source })?;
    advice(how).map_or(Ok(()), |advice| outside(action, advice))
}

/// The advice on idle pages before memory of their cgroup is reclaimed.
pub(super) const fn advice(how: Reclaim) -> Option<Advice> {
    match how.first {
        First::Nothing => None,
        First::Cold => Some(Advice::Cold),
        First::PageOut => Some(Advice::PageOut),
    }
}

fn outside(action: Action, advice: Advice) -> Result<(), ActError> {
    let failed = |errno: Errno| ActError::Advice {
        action,
        advice: advice.name(),
        source: errno.into(),
        fix: fix(errno, advice),
    };
    let scratch = Scratch::new(HUGE)?;
    (0..HUGE / PAGE_SIZE).for_each(|page| scratch.touch(page * PAGE_SIZE));
    let own = Pidfd::open(std::process::id()).map_err(failed)?;
    let range = AddrRange::new(scratch.start(), scratch.start() + HUGE);
    match advise(own, range, advice) {
        // No huge page is available at this moment.
        Err(Errno::NOMEM | Errno::AGAIN | Errno::BUSY) if advice == Advice::Collapse => {}
        result => drop(result.map_err(failed)?),
    }
    // Newer kernels allow every process to advise its own memory. Advice on other processes still needs CAP_SYS_NICE.
    let allowed =
        rustix::thread::capabilities(None).map_or(true, |sets| sets.effective.contains(CapabilitySet::SYS_NICE));
    if allowed { Ok(()) } else { Err(failed(Errno::PERM)) }
}

fn fix(errno: Errno, advice: Advice) -> &'static str {
    match (errno, advice) {
        (Errno::PERM, _) => {
            "run isotherm as root, or with CAP_SYS_NICE; the seccomp filter of a container must allow process_madvise"
        }
        (Errno::NOSYS, _) => "use Linux 5.10 or later; the seccomp filter of a container must allow process_madvise",
        (Errno::INVAL, Advice::Collapse) => "use Linux 6.1 or later with CONFIG_TRANSPARENT_HUGEPAGE",
        (Errno::INVAL | Errno::BADF, Advice::WillNeed) => "use a kernel with CONFIG_SWAP",
        _ => "no kernel is expected to do this: report it",
    }
}

fn huge_pages_are_off() -> bool {
    fs::read_to_string(THP_ENABLED).is_ok_and(|choice| choice.contains("[never]"))
}

/// Touches more of the stack than a call inside needs below the stack pointer of a main thread. The check is made in
/// the main thread, whose calls may have come near to the end of what is mapped of its stack.
#[inline(never)]
fn grow_stack() {
    std::hint::black_box([0_u8; 64 << 10]);
}

/// Makes the call inside this process. The helper traces it, and its main thread is stopped meanwhile.
fn inside_self(action: Action, call: InsideCall, inside: &mut Inside) -> Result<(), ActError> {
    let scratch = Scratch::new(PAGE_SIZE)?;
    let range = AddrRange::new(scratch.start(), scratch.start() + PAGE_SIZE);
    let ranges: Vec<AddrRange> = range.into_iter().collect();
    let mut results = Vec::new();
    grow_stack();
    let made = inside.make(std::process::id(), call, &ranges, &mut results);
    made.map_err(|source| ActError::Inside { action, source })?;
    match results.first() {
        // Each process has its own limit on locked memory. The limit of this process says nothing about a target.
        Some(Err(Errno::NOMEM | Errno::PERM | Errno::AGAIN))
            if matches!(call, InsideCall::MLock | InsideCall::MUnlock) =>
        {
            Ok(())
        }
        Some(Err(errno)) => Err(ActError::Call { action, call: call.name(), source: (*errno).into() }),
        Some(Ok(())) if call == InsideCall::HugePage && huge_pages_are_off() => Err(ActError::HugePagesOff(action)),
        Some(Ok(())) | None => Ok(()),
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.action, if self.inside { " (inside)" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_is_listed_and_one_that_does_not_work_has_a_reason_and_a_fix() {
        let found = capabilities();
        for action in Action::ALL.into_iter().filter(|action| *action != Action::Stat) {
            assert!(found.iter().any(|capability| capability.action == action.name()), "{action}");
        }
        let hugepage = found.iter().filter(|capability| capability.action == "hugepage");
        assert_eq!(hugepage.count(), 2, "from outside and from inside");
        for capability in found {
            assert_eq!(capability.works, capability.why_not.is_none());
            assert!(capability.why_not.as_ref().is_none_or(|why| why.contains(" (")), "{capability:?}");
        }
    }
}
