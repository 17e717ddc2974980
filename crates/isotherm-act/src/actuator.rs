//! The actuator: what schemes order is done to the processes of a run.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use isotherm_core::scheme::{Action, Actuator, Outcome, PageKind, ProcessFacts, Work};
use isotherm_core::{AddrRange, BoxError, TargetId};
use procfs::process::MemoryMap;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::check::check;
use super::dense::dense;
use super::facts::facts;
use super::inside::{Inside, InsideCall, InsideError};
use super::outside::{Memory, advise_ranges, cut_at_mappings};
use super::pages::{Huge, OpenProbe, Young};
use super::way::Way;
use isotherm_kernel::Roster;
use isotherm_kernel::madvise::{Advice, Span, advise};

/// Acts on the processes of a roster.
#[derive(Debug)]
pub struct ProcessActuator {
    roster: Roster,
    open_probe: OpenProbe,
    root: PathBuf,
    inside: Inside,
    young: Option<Young>,
    huge: Option<Huge>,
    spent: Duration,
    /// Set when no more is to be done.
    over: Arc<AtomicBool>,
    /// Why no call could be made inside a target, the last time that was so.
    refusals: HashMap<TargetId, InsideError>,
}

impl ProcessActuator {
    /// An actuator for these processes, which asks the probe that `open_probe` opens which pages are young. Nothing is opened or
    /// started before it is needed.
    pub fn new(roster: Roster, open_probe: OpenProbe) -> Self {
        Self {
            roster,
            open_probe,
            root: "/".into(),
            inside: Inside::new(),
            young: None,
            huge: None,
            spent: Duration::ZERO,
            over: Arc::default(),
            refusals: HashMap::new(),
        }
    }

    /// Acts on the processes of this roster from here on: those that have been acted on so far are no more.
    pub fn act_on(&mut self, roster: Roster) {
        self.roster = roster;
    }

    /// Whoever sets this brings all work to its end: what has begun is finished, and the next [`apply`](Actuator::apply) fails.
    pub fn over(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.over)
    }

    /// Why no call could be made inside targets, in words, since this was last asked: the last reason of each.
    pub fn take_refusals(&mut self) -> impl Iterator<Item = (TargetId, InsideError)> {
        std::mem::take(&mut self.refusals).into_iter()
    }

    /// For how long targets have stood still for calls made inside them.
    pub fn stopped(&self) -> Duration {
        self.inside.stopped()
    }

    /// A hold on the process, which does not keep the roster from others meanwhile.
    fn hold(&self, target: TargetId) -> Option<Held> {
        let members = self.roster.members();
        Some(Held { pid: target.0, pidfd: members.get(&target)?.process.pidfd() })
    }

    /// Makes huge pages of what is in use enough; the rest is neither applied nor refused.
    fn back_with_huge_pages(&self, held: &mut Held, ranges: &[AddrRange], outcomes: &mut [Outcome]) {
        let dense = match dense(&self.root, held.pid, ranges) {
            // Its ID may have been another's while its pages were looked at.
            Ok(_) | Err(Errno::NOENT) if held.has_ended() => {
                return refuse_all(ranges, outcomes, Errno::SRCH.raw_os_error());
            }
            Ok(dense) => dense,
            Err(errno) => return refuse_all(ranges, outcomes, errno.raw_os_error()),
        };
        let blocks: Vec<AddrRange> = dense.iter().map(|(_, block)| *block).collect();
        let mut made = vec![Outcome::default(); blocks.len()];
        advise_ranges(held, Advice::Collapse, &blocks, &mut made);
        for ((of, _), made) in dense.into_iter().zip(made) {
            let outcome = &mut outcomes[of];
            outcome.applied += made.applied;
            outcome.refused += made.refused;
            if outcome.errno == 0 {
                outcome.errno = made.errno;
            }
        }
    }

    fn apply_inside(&mut self, held: &Held, call: InsideCall, ranges: &[AddrRange], outcomes: &mut [Outcome]) {
        let mapped = match held.mapped() {
            Ok(mapped) => mapped,
            Err(errno) => return refuse_all(ranges, outcomes, errno.raw_os_error()),
        };
        let mut pieces = Vec::new();
        for ((of, range), outcome) in ranges.iter().enumerate().zip(outcomes.iter_mut()) {
            let parts = cut_at_mappings(*range, &mapped, |hole| {
                outcome.refused += hole.size();
                outcome.errno = Errno::NOMEM.raw_os_error();
            });
            for part in parts {
                let mut start = part.start();
                while let Some(piece) = AddrRange::new(start, part.end().min(start.saturating_add(call.most_bytes()))) {
                    pieces.push((of, piece));
                    start = piece.end();
                }
            }
        }
        let calls: Vec<AddrRange> = pieces.iter().map(|(_, piece)| *piece).collect();
        let mut results = Vec::with_capacity(calls.len());
        let made = self.inside.make(held.pid, call, &calls, &mut results);
        let rest = made.as_ref().map_or_else(InsideError::errno, |()| Errno::IO.raw_os_error());
        for (i, (of, piece)) in pieces.into_iter().enumerate() {
            let outcome = &mut outcomes[of];
            match results.get(i) {
                Some(Ok(())) => outcome.applied += piece.size(),
                refused => {
                    outcome.refused += piece.size();
                    outcome.errno = refused.map_or(rest, |result| result.map_or_else(Errno::raw_os_error, |()| 0));
                }
            }
        }
        if let Err(error) = made {
            self.refusals.insert(TargetId(held.pid), error);
        }
    }
}

/// Counts all as refused, but what has been counted already.
fn refuse_all(ranges: &[AddrRange], outcomes: &mut [Outcome], errno: i32) {
    for (range, outcome) in ranges.iter().zip(outcomes) {
        *outcome = Outcome::refused(*range, errno);
    }
}

impl Actuator for ProcessActuator {
    fn supports(&mut self, action: Action, inside: bool) -> Result<(), BoxError> {
        let way = Way::of(action, inside)?;
        Ok(check(action, way, &mut self.inside)?)
    }

    fn tells(&mut self, kind: PageKind) -> Result<(), BoxError> {
        match kind {
            PageKind::Young if self.young.is_none() => self.young = Some(Young::open(self.open_probe)?),
            PageKind::Huge if self.huge.is_none() => self.huge = Some(Huge::open(&self.root)?),
            PageKind::Young | PageKind::Huge => {}
            kind => return Err(format!("pages that are {} cannot be told; leave that filter out", kind.name()).into()),
        }
        Ok(())
    }

    fn process(&mut self, target: TargetId) -> Option<ProcessFacts> {
        let held = self.hold(target)?;
        facts(&self.root, target.0).filter(|_| !held.has_ended())
    }

    fn pages(
        &mut self,
        target: TargetId,
        range: AddrRange,
        kind: PageKind,
        found: &mut Vec<AddrRange>,
    ) -> Result<(), i32> {
        let began = Instant::now();
        let held = self.hold(target).ok_or(Errno::SRCH.raw_os_error())?;
        self.tells(kind).map_err(|_| Errno::PERM.raw_os_error())?;
        let told = match (kind, &mut self.young, &mut self.huge) {
            (PageKind::Young, Some(young), _) => young.find(target, range, found),
            (PageKind::Huge, _, Some(huge)) => huge.find(target, range, found),
            _ => Err(Errno::OPNOTSUPP),
        };
        self.spent += began.elapsed();
        // Its ID may have been another's while the pages were looked at.
        let told = if held.has_ended() { Err(Errno::SRCH) } else { told };
        told.map_err(Errno::raw_os_error)
    }

    fn apply(&mut self, work: &Work<'_>, outcomes: &mut [Outcome]) -> Result<(), BoxError> {
        if self.over.load(Ordering::Relaxed) {
            return Err("the run is over".into());
        }
        let began = Instant::now();
        let way = Way::of(work.action, work.inside)?;
        match (self.hold(work.target).filter(|held| !held.has_ended()), way) {
            (None, _) => refuse_all(work.ranges, outcomes, Errno::SRCH.raw_os_error()),
            (Some(_), Way::Nothing) => {
                work.ranges.iter().zip(outcomes).for_each(|(range, outcome)| *outcome = Outcome::all(*range));
            }
            (Some(mut held), Way::Outside(Advice::Collapse)) if work.action == Action::HugePage => {
                self.back_with_huge_pages(&mut held, work.ranges, outcomes);
            }
            (Some(mut held), Way::Outside(advice)) => advise_ranges(&mut held, advice, work.ranges, outcomes),
            (Some(held), Way::Inside(call)) => self.apply_inside(&held, call, work.ranges, outcomes),
        }
        self.spent += began.elapsed();
        Ok(())
    }

    fn time_spent(&self) -> Duration {
        self.spent
    }
}

/// A process that is held, so that what is done to it is done to no other.
#[derive(Debug)]
struct Held {
    pid: u32,
    pidfd: Arc<OwnedFd>,
}

impl Held {
    fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }

    fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    fn mapped(&self) -> Result<Vec<AddrRange>, Errno> {
        let maps = procfs::process::Process::new(self.pid.cast_signed()).and_then(|process| process.maps());
        let maps = maps.map_err(|_| Errno::SRCH)?;
        if self.has_ended() {
            return Err(Errno::SRCH);
        }
        let range = |map: &MemoryMap| AddrRange::new(map.address.0, map.address.1);
        Ok(maps.iter().filter_map(range).collect())
    }
}

impl Memory for Held {
    fn advise(&mut self, ranges: &[AddrRange], advice: Advice) -> Result<usize, Errno> {
        let mut spans = [Span::default(); isotherm_kernel::madvise::RANGES_A_CALL];
        for (span, range) in spans.iter_mut().zip(ranges) {
            *span = (*range).into();
        }
        advise(self.pidfd(), &spans[..ranges.len().min(spans.len())], advice)
    }

    fn mapped(&mut self) -> Result<Vec<AddrRange>, Errno> {
        Held::mapped(self)
    }
}
