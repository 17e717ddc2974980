//! What schemes did, as sums over several recordings.

use std::collections::HashMap;
use std::sync::Arc;

use isotherm_core::scheme::{RefusalCount, Statistics};

use crate::Activity;

/// An activity of one recording, with what happened since the one before it in that recording.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) activity: Activity,
    /// What each of its schemes did, in their order.
    pub(super) schemes: Vec<Statistics>,
    pub(super) major_faults: Option<u64>,
    /// By how much compressed swap has grown.
    growth: i64,
}

impl Step {
    /// Those of `activity` after `before`.
    pub(super) fn since(before: Option<&Activity>, activity: Activity) -> Self {
        let earlier = |name: &Arc<str>| {
            let scheme = before?.schemes.iter().find(|scheme| scheme.name == *name)?;
            Some(&scheme.total)
        };
        let schemes = activity.schemes.iter().map(|scheme| match earlier(&scheme.name) {
            // The sums begin anew where schemes are changed.
            Some(before) if before.applications <= scheme.total.applications => difference(&scheme.total, before),
            _ => scheme.total.clone(),
        });
        let faults = before.and_then(|before| before.major_faults).unwrap_or(0);
        let major_faults = activity.major_faults.map(|now| now.saturating_sub(faults));
        let grown = |activity: &Activity| activity.compressed_growth.unwrap_or(0).cast_signed();
        let growth = grown(&activity).wrapping_sub(before.map_or(0, grown));
        Self { schemes: schemes.collect(), major_faults, growth, activity }
    }
}

/// The sums of all recordings so far.
#[derive(Debug, Default)]
pub(super) struct Sums {
    schemes: HashMap<Arc<str>, Statistics>,
    major_faults: u64,
    growth: i64,
}

impl Sums {
    /// Adds what happened in a recording. It must be added once.
    pub(super) fn add(&mut self, step: &Step) {
        for (scheme, more) in step.activity.schemes.iter().zip(&step.schemes) {
            add(self.schemes.entry(Arc::clone(&scheme.name)).or_default(), more);
        }
        self.major_faults = self.major_faults.saturating_add(step.major_faults.unwrap_or(0));
        self.growth = self.growth.saturating_add(step.growth);
    }

    /// What the scheme of this name has done.
    pub(super) fn of(&self, scheme: &str) -> Statistics {
        self.schemes.get(scheme).cloned().unwrap_or_default()
    }

    pub(super) fn major_faults(&self) -> u64 {
        self.major_faults
    }

    pub(super) fn compressed_growth(&self) -> u64 {
        self.growth.max(0).cast_unsigned()
    }
}

fn add(sum: &mut Statistics, more: &Statistics) {
    combine(sum, more, u64::saturating_add);
    sum.time = sum.time.saturating_add(more.time);
    for count in &more.refusals {
        match sum.refusals.iter_mut().find(|known| is_of_reason(known, count)) {
            Some(known) => {
                known.regions = known.regions.saturating_add(count.regions);
                known.bytes = known.bytes.saturating_add(count.bytes);
            }
            None => sum.refusals.push(count.clone()),
        }
    }
}

fn difference(now: &Statistics, before: &Statistics) -> Statistics {
    let mut more = now.clone();
    combine(&mut more, before, u64::saturating_sub);
    more.time = more.time.saturating_sub(before.time);
    for count in &mut more.refusals {
        if let Some(earlier) = before.refusals.iter().find(|earlier| is_of_reason(earlier, count)) {
            count.regions = count.regions.saturating_sub(earlier.regions);
            count.bytes = count.bytes.saturating_sub(earlier.bytes);
        }
    }
    more
}

fn is_of_reason(one: &RefusalCount, other: &RefusalCount) -> bool {
    (&one.refusal, &one.unknown_reason) == (&other.refusal, &other.unknown_reason)
}

/// Makes each count of `sum` what `of` makes of both.
fn combine(sum: &mut Statistics, other: &Statistics, of: fn(u64, u64) -> u64) {
    let Statistics {
        applications,
        tried_regions,
        tried_bytes,
        passed_bytes,
        applied_regions,
        applied_bytes,
        unmapped_bytes,
        watched_bytes,
        returned_bytes,
        rejected_bytes,
        quota_exceeded,
        refusals: _,
        time: _,
    } = sum;
    let counts = [
        (applications, other.applications),
        (tried_regions, other.tried_regions),
        (tried_bytes, other.tried_bytes),
        (passed_bytes, other.passed_bytes),
        (applied_regions, other.applied_regions),
        (applied_bytes, other.applied_bytes),
        (unmapped_bytes, other.unmapped_bytes),
        (watched_bytes, other.watched_bytes),
        (returned_bytes, other.returned_bytes),
        (rejected_bytes, other.rejected_bytes),
        (quota_exceeded, other.quota_exceeded),
    ];
    for (count, other) in counts {
        *count = of(*count, other);
    }
}
