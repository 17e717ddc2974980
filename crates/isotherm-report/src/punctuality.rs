//! Whether the monitor got the CPU time that it needed: rounds that began late, and aggregations that took too long.

use isotherm_core::units;
use isotherm_record::Sight;

use crate::source::Visit;
use crate::summary::MANY_LATE;

/// The monitor was starved of CPU time if more than this share of its rounds was late: access rates and ages cannot be
/// relied on.
pub const STARVED: f64 = 0.25;

/// The monitor was starved of CPU time if stretched aggregations took more than this share of the time.
const MUCH_STRETCHED: f64 = 0.1;

/// An aggregation with more than this many times its rounds is stretched: a single round of it took very long, or
/// snapshots are missing before it.
const STRETCHED: f64 = 1.5;

/// The rounds of a recording, and how many of them were late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Punctuality {
    rounds: u64,
    late: u64,
    /// The time of all aggregations, and that of stretched ones, in seconds.
    time: f64,
    stretched: f64,
    /// Whether the kernel's DAMON sampled. Its rounds are not isotherm's.
    by_kernel: bool,
}

impl Punctuality {
    /// That of a recording with a probe that sees this, before its rows are added.
    pub(crate) fn new(sight: &Sight) -> Self {
        Self { by_kernel: sight.kernel_samples, ..Self::default() }
    }

    /// What cannot be relied on, and what to do. `surveyed` says whether there are surveys, which tell what was touched
    /// without samples.
    pub(crate) fn warning(&self, surveyed: bool) -> Option<String> {
        let late = self.late as f64 / self.rounds.max(1) as f64;
        let stretched = if self.time > 0.0 { self.stretched / self.time } else { 0.0 };
        let rounds = format!(
            "{} of the sampling rounds began late ({} of {})",
            units::percent(late),
            units::count(self.late),
            units::count(self.rounds)
        );
        if late > STARVED || stretched > MUCH_STRETCHED {
            let stretched = match stretched {
                0.0 => String::new(),
                _ => {
                    format!(", and {} of the time passed in aggregations that took too long", units::percent(stretched))
                }
            };
            let (figures, rest) = match surveyed {
                true => ("access rates and ages", "; what surveys found touched can be, over longer intervals"),
                false => ("access rates, ages and working sets", ""),
            };
            return Some(format!(
                "the monitor got too little CPU time: {rounds}{stretched}: {figures} cannot be relied on{rest}; give \
                 it a CPU with --cpu-affinity or a lower --nice value, or sample less often"
            ));
        }
        (late > MANY_LATE).then(|| {
            format!(
                "{rounds}: rates and ages are less sure than they look; sample less often or with fewer regions, or \
                 give isotherm a CPU with --cpu-affinity"
            )
        })
    }
}

impl Punctuality {
    /// Takes in a row.
    pub(crate) fn add(&mut self, visit: &Visit<'_>) {
        let Some(cost) = visit.row.cost.filter(|_| visit.first_of_snapshot && !self.by_kernel) else { return };
        self.rounds = self.rounds.saturating_add(cost.rounds.into());
        self.late = self.late.saturating_add(cost.late_rounds.into());
        let seconds = visit.elapsed.as_secs_f64();
        self.time += seconds;
        if f64::from(cost.rounds) > f64::from(visit.row.samples) * STRETCHED {
            self.stretched += seconds;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_starved_monitor_is_told_from_one_that_was_late_at_times() {
        let all = Punctuality { rounds: 1000, time: 10.0, ..Punctuality::default() };
        let warning = |late, stretched, surveyed| Punctuality { late, stretched, ..all }.warning(surveyed);
        assert_eq!(warning(10, 0.5, true), None);
        assert!(warning(20, 0.0, true).unwrap().starts_with("2.0 % of the sampling rounds began late (20 of 1,000): "));
        let starved = warning(540, 6.0, false).unwrap();
        assert!(starved.contains("54 % of the sampling rounds began late (540 of 1,000), and 60 % of"), "{starved}");
        assert!(
            starved.contains("access rates, ages and working sets cannot be relied on; give it a CPU"),
            "{starved}"
        );
        assert!(warning(540, 0.0, true).unwrap().contains("what surveys found touched can be"));
    }
}
