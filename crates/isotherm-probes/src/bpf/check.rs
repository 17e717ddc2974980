//! A test of the whole probe on this process's own memory.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AccessProbe, AddrRange, Layout, Mapping, Observation, PAGE_SIZE, Sample, TargetId, TargetSpace, chain,
};

use super::{BpfError, BpfProbe};
use isotherm_kernel::Scratch;

const PAGES: u64 = 64;

/// How many times the test is repeated while some pages cannot be observed. A page that was touched for the first time
/// may wait on another processor before it is put on a reclaim list, and can be cleared only after that.
const ATTEMPTS: u32 = 20;

impl BpfProbe {
    /// Opens the probe and tests it on this process's own memory.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), and [`BpfError::Trial`] if the probe's answers are wrong.
    pub fn check() -> Result<(), BpfError> {
        check(Self::open()?)
    }
}

/// Touches pages, clears them, touches half of them again, and compares the answers of `probe`.
fn check(probe: BpfProbe) -> Result<(), BpfError> {
    let mut probe = probe.with_sweeps(false);
    let scratch = Scratch::new(PAGES * PAGE_SIZE)?;
    // This fails on a kernel without huge pages, which is harmless.
    let _ = scratch.huge(false);
    let id = TargetId::process(std::process::id(), Duration::ZERO);
    let range = AddrRange::new(scratch.start(), scratch.start() + PAGES * PAGE_SIZE);
    let mapping = range.map(Mapping::anonymous);
    let mappings: Arc<[Mapping]> = mapping.into_iter().collect();
    let samples: Vec<_> =
        (0..PAGES).map(|page| Sample { target: id, addr: scratch.start() + page * PAGE_SIZE }).collect();
    let mut answers = vec![Observation::Idle; samples.len()];

    probe.update(&[TargetSpace { id, layout: Layout::Process, mappings }]).map_err(|e| failed("finding", &*e))?;
    let mut observed = 0;
    for _ in 0..ATTEMPTS {
        (0..PAGES).for_each(|page| scratch.touch(page * PAGE_SIZE));
        probe.read(&samples, &mut answers).map_err(|e| failed("reading", &*e))?;
        expect(&answers, |_| Observation::Accessed, "touched pages")?;

        probe.clear(&samples).map_err(|e| failed("clearing", &*e))?;
        probe.read(&samples, &mut answers).map_err(|e| failed("reading", &*e))?;
        expect(&answers, |_| Observation::Idle, "cleared pages")?;

        (0..PAGES).step_by(2).for_each(|page| scratch.touch(page * PAGE_SIZE));
        probe.read(&samples, &mut answers).map_err(|e| failed("reading", &*e))?;
        let every_second = |page| if page % 2 == 0 { Observation::Accessed } else { Observation::Idle };
        observed = expect(&answers, every_second, "pages of which every second was touched")?;
        if observed == answers.len() {
            break;
        }
    }
    if observed == 0 {
        return Err(BpfError::Trial("none of its own pages could be observed".into()));
    }
    Ok(())
}

/// Returns the number of pages that could be observed, or an error if one of them is not as `truth` says.
fn expect(
    answers: &[Observation],
    truth: impl Fn(usize) -> Observation,
    what: &'static str,
) -> Result<usize, BpfError> {
    let observed = || answers.iter().enumerate().filter(|&(_, &answer)| answer != Observation::Unobservable);
    let wrong = observed().filter(|&(page, &answer)| answer != truth(page)).count();
    if wrong > 0 {
        return Err(BpfError::Trial(format!("{wrong} of {} {what} were reported wrongly", answers.len())));
    }
    Ok(observed().count())
}

fn failed(step: &str, e: &(dyn std::error::Error + 'static)) -> BpfError {
    BpfError::Trial(format!("{step} its own pages failed: {}", chain(e)))
}
