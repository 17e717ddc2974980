//! Which actions this kernel and these rights allow, found out by trying each on own memory.

use std::{fmt, fs};

use isotherm_core::scheme::{Action, ActionKind};
use isotherm_core::{AddrRange, PAGE_SIZE};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use serde::Serialize;

use super::call_method::CallMethod;
use super::error::{ActError, THP_ENABLED};
use super::inside::{Inside, InsideCall};
use isotherm_kernel::madvise::{Advice, advise};
use isotherm_kernel::{HUGE, Pidfd, Scratch};

const SWAPS: &str = "/proc/swaps";

/// One action, in one of the ways to carry it out.
#[derive(Clone, Debug, Serialize)]
pub struct Capability {
    /// The action's name in scheme files.
    pub action: &'static str,
    /// Whether it is made by a call inside the target, which a scheme has to allow.
    pub inside: bool,
    /// The call that does it.
    pub by: &'static str,
    /// Whether it works here, for this user, as far as that does not depend on the target.
    pub works: bool,
    /// If it does not: what failed, why, and what would mend it.
    pub why_not: Option<String>,
    /// If it works: what it does not reach here.
    pub limit: Option<&'static str>,
}

/// Tries every action that does something.
pub fn capabilities() -> Vec<Capability> {
    let mut inside = Inside::new();
    let ways = ActionKind::ALL.into_iter().map(Action::from).flat_map(|action| [(action, false), (action, true)]);
    let mut found: Vec<Capability> = Vec::new();
    for (action, may_be_inside) in ways {
        let Ok(method) = CallMethod::of(action, may_be_inside) else {
            continue;
        };
        let is_inside = matches!(method, CallMethod::Inside(_));
        // What is allowed to be inside but is not, has been listed.
        if method.by().is_empty() || is_inside != may_be_inside {
            continue;
        }
        let tried = check(action, method, &mut inside);
        let why_not = tried.err().map(|error| error.to_string());
        let works = why_not.is_none();
        found.push(Capability {
            action: action.kind().name(),
            inside: is_inside,
            by: method.by(),
            works,
            why_not,
            limit: limit(method),
        });
    }
    found
}

/// What a way does not reach on this machine.
fn limit(method: CallMethod) -> Option<&'static str> {
    // The first line is a heading.
    let no_swap = || fs::read_to_string(SWAPS).is_ok_and(|swaps| swaps.lines().count() <= 1);
    (method == CallMethod::Outside(Advice::PageOut) && no_swap()).then_some("without swap, memory of files only")
}

/// Tries one on own memory.
pub(super) fn check(action: Action, method: CallMethod, inside: &mut Inside) -> Result<(), ActError> {
    match method {
        CallMethod::Nothing => Ok(()),
        CallMethod::Outside(advice) => outside(action, advice),
        CallMethod::Inside(call) => inside_this(action, call, inside),
    }
}

fn outside(action: Action, advice: Advice) -> Result<(), ActError> {
    let failed = |errno: Errno| ActError::Advice {
        action,
        advice: advice.name(),
        source: errno.into(),
        mend: mend(errno, advice),
    };
    let scratch = Scratch::new(HUGE)?;
    (0..HUGE / PAGE_SIZE).for_each(|page| scratch.touch(page * PAGE_SIZE));
    let own = Pidfd::open(std::process::id()).map_err(failed)?;
    let range = AddrRange::new(scratch.start(), scratch.start() + HUGE);
    match advise(own, range, advice) {
        // A huge page could not be had at this moment.
        Err(Errno::NOMEM | Errno::AGAIN | Errno::BUSY) if advice == Advice::Collapse => {}
        result => drop(result.map_err(failed)?),
    }
    // Newer kernels allow it for one's own memory to everyone.
    let allowed =
        rustix::thread::capabilities(None).map_or(true, |sets| sets.effective.contains(CapabilitySet::SYS_NICE));
    if allowed { Ok(()) } else { Err(failed(Errno::PERM)) }
}

fn mend(errno: Errno, advice: Advice) -> &'static str {
    match (errno, advice) {
        (Errno::PERM, _) => {
            "run isotherm as root, or with CAP_SYS_NICE; in a container, its seccomp filter must allow \
             process_madvise()"
        }
        (Errno::NOSYS, _) => "Linux 5.10 or later is needed, and a seccomp filter must not hide process_madvise()",
        (Errno::INVAL, Advice::Collapse) => "Linux 6.1 or later with CONFIG_TRANSPARENT_HUGEPAGE is needed",
        (Errno::INVAL | Errno::BADF, Advice::WillNeed) => "a kernel with CONFIG_SWAP is needed",
        _ => "this is not expected of any kernel: please report it",
    }
}

fn huge_pages_are_off() -> bool {
    fs::read_to_string(THP_ENABLED).is_ok_and(|choice| choice.contains("[never]"))
}

/// The helper traces this very process, whose main thread stops for a moment.
fn inside_this(action: Action, call: InsideCall, inside: &mut Inside) -> Result<(), ActError> {
    let scratch = Scratch::new(PAGE_SIZE)?;
    let range = AddrRange::new(scratch.start(), scratch.start() + PAGE_SIZE);
    let ranges: Vec<AddrRange> = range.into_iter().collect();
    let mut results = Vec::new();
    let made = inside.make(std::process::id(), call, &ranges, &mut results);
    made.map_err(|source| ActError::Inside { action, source })?;
    match results.first() {
        // How much a process may lock is a limit of that process's own.
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
    fn every_action_is_told_of_with_a_reason_if_it_does_not_work() {
        let found = capabilities();
        for action in ActionKind::ALL.into_iter().map(Action::from).filter(|action| *action != Action::Stat) {
            assert!(found.iter().any(|capability| capability.action == action.kind().name()), "{action}");
        }
        assert_eq!(found.iter().filter(|capability| capability.action == "hugepage").count(), 2, "from both sides");
        for capability in found {
            assert_eq!(capability.works, capability.why_not.is_none());
            assert!(capability.why_not.is_none_or(|why| why.contains(';')), "with a mend");
        }
    }
}
