//! One budget of CPU time that several runs share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A share of one CPU for several runs together, such as the groups of the daemon.
///
/// Each run says how much it would take at its shortest intervals. A run that needs less than an equal part gets what
/// it needs, and the others have what it leaves. What nobody needs is spread equally. The sum is never more than the
/// whole. What is [kept back](Allowance::keep_back) for other work is taken off the whole first.
#[derive(Clone, Debug)]
pub struct Allowance(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// The whole.
    cpu: f64,
    /// What other work takes of the whole.
    kept_back: f64,
    next: u64,
    /// How much each member needs.
    needs: BTreeMap<u64, f64>,
}

impl Allowance {
    /// A share of one CPU, above 0.
    pub fn new(cpu: f64) -> Self {
        Self(Arc::new(Mutex::new(State { cpu, kept_back: 0.0, next: 0, needs: BTreeMap::new() })))
    }

    /// The whole.
    pub fn cpu(&self) -> f64 {
        self.lock().cpu
    }

    /// Changes the whole. Members have their part of it when they ask next.
    pub fn set_cpu(&self, cpu: f64) {
        self.lock().cpu = cpu;
    }

    /// Keeps so much of the whole back for work that is no member's, such as the requests to the daemon. Members have
    /// half of the whole in any case.
    pub fn keep_back(&self, cpu: f64) {
        self.lock().kept_back = cpu;
    }

    /// A further member, until it is dropped.
    pub fn join(&self) -> Member {
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        state.needs.insert(id, f64::INFINITY);
        Member { allowance: self.clone(), id }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment, so a panic of another thread does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A member of an [`Allowance`].
#[derive(Debug)]
pub struct Member {
    allowance: Allowance,
    id: u64,
}

impl Member {
    /// The part of the whole for this member, which needs so much of one CPU.
    pub fn part(&self, need: f64) -> f64 {
        let mut state = self.allowance.lock();
        let need = if need.is_nan() { f64::INFINITY } else { need.max(0.0) };
        state.needs.insert(self.id, need);
        let needs: Vec<f64> = state.needs.values().copied().collect();
        let nth = state.needs.range(..self.id).count();
        let whole = state.cpu - state.kept_back.clamp(0.0, state.cpu / 2.0);
        divide(whole, &needs).get(nth).copied().unwrap_or(whole)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.allowance.lock().needs.remove(&self.id);
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
        let allowance = Allowance::new(0.01);
        let (one, other) = (allowance.join(), allowance.join());
        assert_eq!(one.part(f64::INFINITY), 0.005);
        assert!((other.part(0.001) - 0.001).abs() < 1e-9);
        assert!((one.part(f64::NAN) - 0.009).abs() < 1e-9);
        drop(other);
        assert_eq!(one.part(f64::INFINITY), 0.01);
        allowance.set_cpu(0.02);
        assert_eq!((allowance.cpu(), one.part(f64::INFINITY)), (0.02, 0.02));
        allowance.keep_back(0.005);
        assert!((one.part(f64::INFINITY) - 0.015).abs() < 1e-9);
        allowance.keep_back(1.0);
        assert_eq!((allowance.cpu(), one.part(f64::INFINITY)), (0.02, 0.01), "half is left in any case");
    }
}
