//! Activities out of a column.

use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{Array, StructArray};
use isotherm_core::scheme::{ActedRegion, ActionKind, Application, RefusalCount, Report, Statistics};
use isotherm_core::{MemoryUse, SystemMemory, TargetId};

use super::Identities;
use crate::Activity;
use crate::arrays::{range_from, u32_at, u64_at};
use crate::compat;

/// The activity in row `index` of the column, in which it is not null.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn at(column: &StructArray, index: usize, identities: &Identities) -> Result<Activity, &'static str> {
    Ok(Activity {
        time: time_at(column.column(0), index),
        schemes: entries(column.column(1), index, |schemes, i| scheme(schemes, i, identities))?,
        memory: entries(column.column(2), index, |targets, i| Ok(memory(targets, i, identities)))?,
        system: system(column.column(3).as_struct(), index),
    })
}

fn scheme(schemes: &StructArray, index: usize, identities: &Identities) -> Result<Report, &'static str> {
    let action = schemes.column(1).as_string::<i32>().value(index);
    let (quota, score) = (schemes.column(3), schemes.column(4));
    let goal_score = score.is_valid(index).then(|| score.as_primitive::<Float64Type>().value(index));
    if goal_score.is_some_and(|score| !score.is_finite()) {
        return Err("the score of a scheme's goals is not a number");
    }
    Ok(Report {
        name: schemes.column(0).as_string::<i32>().value(index).into(),
        action: ActionKind::named(action).ok_or("a scheme has an action that the format does not know")?.into(),
        awake: schemes.column(2).as_boolean().value(index),
        quota: quota.is_valid(index).then(|| u64_at(quota, index)),
        goal_score,
        total: statistics(schemes.column(5).as_struct(), index)?,
        last: application(schemes.column(6).as_struct(), index, identities)?,
    })
}

fn statistics(totals: &StructArray, index: usize) -> Result<Statistics, &'static str> {
    Ok(Statistics {
        applications: u64_at(totals.column(0), index),
        tried_regions: u64_at(totals.column(1), index),
        tried_bytes: u64_at(totals.column(2), index),
        passed_bytes: u64_at(totals.column(3), index),
        applied_regions: u64_at(totals.column(4), index),
        applied_bytes: u64_at(totals.column(5), index),
        rejected_bytes: u64_at(totals.column(6), index),
        refusals: entries(totals.column(7), index, refusal)?,
        quota_exceeded: u64_at(totals.column(8), index),
        time: time_at(totals.column(9), index),
    })
}

fn refusal(refusals: &StructArray, index: usize) -> Result<RefusalCount, &'static str> {
    Ok(RefusalCount {
        refusal: compat::refusal(refusals.column(0).as_primitive::<Int32Type>().value(index)),
        regions: u64_at(refusals.column(1), index),
        bytes: u64_at(refusals.column(2), index),
    })
}

fn application(applications: &StructArray, index: usize, identities: &Identities) -> Result<Application, &'static str> {
    Ok(Application {
        time: time_at(applications.column(0), index),
        held_back_bytes: u64_at(applications.column(1), index),
        unobservable_bytes: u64_at(applications.column(2), index),
        regions: entries(applications.column(3), index, |regions, i| acted(regions, i, identities))?,
    })
}

fn acted(regions: &StructArray, index: usize, identities: &Identities) -> Result<ActedRegion, &'static str> {
    Ok(ActedRegion {
        target: identities.of(u32_at(regions.column(0), index)),
        range: range_from(regions, 1, index)?,
        applied: u64_at(regions.column(3), index),
    })
}

fn memory(targets: &StructArray, index: usize, identities: &Identities) -> (TargetId, MemoryUse) {
    let used = MemoryUse {
        resident: u64_at(targets.column(1), index),
        proportional: u64_at(targets.column(2), index),
        swapped: u64_at(targets.column(3), index),
    };
    (identities.of(u32_at(targets.column(0), index)), used)
}

fn system(systems: &StructArray, index: usize) -> SystemMemory {
    let stalled = systems.column(5);
    SystemMemory {
        total: u64_at(systems.column(0), index),
        free: u64_at(systems.column(1), index),
        available: u64_at(systems.column(2), index),
        swap_total: u64_at(systems.column(3), index),
        swap_free: u64_at(systems.column(4), index),
        stalled: stalled.is_valid(index).then(|| time_at(stalled, index)),
    }
}

/// The entries of the list in row `index`, each read by `read`.
fn entries<T>(
    lists: &dyn Array,
    index: usize,
    read: impl Fn(&StructArray, usize) -> Result<T, &'static str>,
) -> Result<Vec<T>, &'static str> {
    let entries = lists.as_list::<i32>().value(index);
    let entries = entries.as_struct();
    (0..entries.len()).map(|i| read(entries, i)).collect()
}

fn time_at(column: &dyn Array, index: usize) -> Duration {
    Duration::from_nanos(u64_at(column, index))
}
