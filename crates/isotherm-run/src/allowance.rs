//! One budget that several runs share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use isotherm_core::Shares;

/// Shares of one CPU for several runs together, such as the groups of the daemon: what they take, and what their
/// targets lose.
///
/// Each run says how much it would take at its shortest intervals. A run that needs less than an equal part gets what
/// it needs, and the others have what it leaves. What nobody needs is spread equally. The sum is never more than the
/// whole. What is [kept back](Allowance::keep_back) for other work is taken off the whole first.
#[derive(Clone, Debug)]
pub struct Allowance(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    whole: Shares,
    /// The CPU time that other work takes of the whole.
    kept_back: f64,
    next: u64,
    members: BTreeMap<u64, Needs>,
}

/// How much a member needs.
#[derive(Debug)]
struct Needs {
    cpu: f64,
    /// `None` if its targets lose what the run says, whatever others do.
    targets: Option<f64>,
}

/// A member counts as needing this part of an equal part of the targets' time at least. With nothing it would clear
/// nothing, and not find that its targets use their memory again.
const LEAST: f64 = 0.1;

impl Allowance {
    /// One of these shares, above 0.
    pub fn new(whole: Shares) -> Self {
        Self(Arc::new(Mutex::new(State { whole, kept_back: 0.0, next: 0, members: BTreeMap::new() })))
    }

    /// The whole.
    pub fn whole(&self) -> Shares {
        self.lock().whole
    }

    /// Changes the whole. Members have their part of it when they ask next.
    pub fn set_whole(&self, whole: Shares) {
        self.lock().whole = whole;
    }

    /// Keeps so much CPU time back for work that is no member's, such as the requests to the daemon. Members have half
    /// of the whole in any case.
    pub fn keep_back(&self, cpu: f64) {
        self.lock().kept_back = cpu;
    }

    /// A further member, until it is dropped. If its targets may lose a share of its own, they have no part of that of
    /// the others.
    pub fn join(&self, own_targets: Option<f64>) -> Member {
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        let targets = own_targets.is_none().then_some(f64::INFINITY);
        state.members.insert(id, Needs { cpu: f64::INFINITY, targets });
        Member { allowance: self.clone(), id, own_targets }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment, so a panic of another thread does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The part of a member of `whole`, which those divide that have such a need.
    fn part(&self, id: u64, whole: f64, need: impl Fn(&Needs) -> Option<f64>) -> f64 {
        let (members, needs): (Vec<u64>, Vec<f64>) =
            self.members.iter().filter_map(|(&member, needs)| Some((member, need(needs)?))).unzip();
        let nth = members.iter().position(|&member| member == id);
        nth.and_then(|nth| divide(whole, &needs).get(nth).copied()).unwrap_or(whole)
    }
}

/// A member of an [`Allowance`].
#[derive(Debug)]
pub struct Member {
    allowance: Allowance,
    id: u64,
    own_targets: Option<f64>,
}

impl Member {
    /// The parts of the whole for this member, which needs so much.
    pub fn part(&self, need: Shares) -> Shares {
        let clean = |need: f64| if need.is_nan() { f64::INFINITY } else { need.max(0.0) };
        let mut state = self.allowance.lock();
        let Shares { cpu, targets } = state.whole;
        let least = targets * LEAST / state.members.len().max(1) as f64;
        let needed = self.own_targets.is_none().then_some(clean(need.targets).max(least));
        state.members.insert(self.id, Needs { cpu: clean(need.cpu), targets: needed });
        let cpu = cpu - state.kept_back.clamp(0.0, cpu / 2.0);
        Shares {
            cpu: state.part(self.id, cpu, |needs| Some(needs.cpu)),
            targets: self.own_targets.unwrap_or_else(|| state.part(self.id, targets, |needs| needs.targets)),
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.allowance.lock().members.remove(&self.id);
    }
}

/// Divides `whole` among members with these needs.
fn divide(whole: f64, needs: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..needs.len()).collect();
    order.sort_by(|&a, &b| needs[a].total_cmp(&needs[b]));
    let mut parts = vec![0.0; needs.len()];
    let mut left = whole;
    for (nth, &member) in order.iter().enumerate() {
        let part = needs[member].min(left / (needs.len() - nth) as f64);
        parts[member] = part;
        left -= part;
    }
    let spare = left.max(0.0) / needs.len().max(1) as f64;
    parts.iter().map(|part| part + spare).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(parts: &[f64]) -> f64 {
        parts.iter().sum()
    }

    #[test]
    fn who_needs_little_gets_it_and_the_others_share_what_is_left() {
        let parts = divide(1.0, &[f64::INFINITY, 0.1, f64::INFINITY]);
        assert_eq!(parts[1], 0.1);
        assert!((parts[0] - 0.45).abs() < 1e-9 && (sum(&parts) - 1.0).abs() < 1e-9, "{parts:?}");
        let parts = divide(1.0, &[0.1, 0.3]);
        assert!((parts[0] - 0.4).abs() < 1e-9 && (parts[1] - 0.6).abs() < 1e-9, "what nobody needs: {parts:?}");
        assert_eq!(divide(1.0, &[]), [] as [f64; 0]);
    }

    #[test]
    fn members_come_and_go_and_never_have_more_than_the_whole() {
        const ALL: Shares = Shares { cpu: f64::INFINITY, targets: f64::INFINITY };
        let allowance = Allowance::new(Shares { cpu: 0.01, targets: 0.004 });
        let (one, other) = (allowance.join(None), allowance.join(None));
        assert_eq!(one.part(ALL), Shares { cpu: 0.005, targets: 0.002 });
        let small = other.part(Shares { cpu: 0.001, targets: 0.0 });
        assert!((small.cpu - 0.001).abs() < 1e-9, "{small:?}");
        assert!((small.targets - 0.0002).abs() < 1e-9, "a tenth of an equal part in any case: {small:?}");
        let unknown = one.part(Shares { cpu: f64::NAN, ..ALL });
        assert!((unknown.cpu - 0.009).abs() < 1e-9 && (unknown.targets - 0.0038).abs() < 1e-9, "{unknown:?}");
        drop(other);
        assert_eq!(one.part(ALL), allowance.whole());
        let whole = Shares { cpu: 0.02, targets: 0.01 };
        allowance.set_whole(whole);
        assert_eq!((allowance.whole(), one.part(ALL)), (whole, whole));
        allowance.keep_back(0.005);
        assert!((one.part(ALL).cpu - 0.015).abs() < 1e-9);
        allowance.keep_back(1.0);
        assert_eq!((allowance.whole(), one.part(ALL).cpu), (whole, 0.01), "half is left in any case");
        let apart = allowance.join(Some(0.03));
        assert_eq!((apart.part(ALL).targets, one.part(ALL).targets), (0.03, 0.01), "a share of its own");
    }
}
