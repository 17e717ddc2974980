//! Activities as a column.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int32Array, StructArray, UInt64Array};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, Fields};
use isotherm_core::scheme::{ActedRegion, Application, RefusalCount, Report, Statistics};
use isotherm_core::{MemoryUse, SystemMemory, TargetId};

use super::fields;
use crate::Activity;
use crate::arrays::{list, strings, u32s, u64s};
use crate::compat::pid_column;
use crate::time::nanoseconds;

/// About how many bytes an activity takes, uncompressed.
pub(crate) fn bytes(activity: &Activity) -> usize {
    let scheme =
        |report: &Report| 128 + report.name.len() + report.total.refusals.len() * 20 + report.last.regions.len() * 28;
    64 + activity.schemes.iter().map(scheme).sum::<usize>() + activity.memory.len() * 28
}

/// The column of these rows.
///
/// # Errors
/// When there is more in them than Arrow can count.
pub(crate) fn array(rows: &[Option<Activity>]) -> Result<ArrayRef, ArrowError> {
    let set = rows.iter().map(Option::is_some).collect::<Vec<_>>();
    let some = || rows.iter().flatten();
    // A row without one has an entry in each field all the same, an empty one.
    let lengths = |count: fn(&Activity) -> usize| rows.iter().map(|row| row.as_ref().map_or(0, count)).collect();
    let systems: Vec<SystemMemory> =
        rows.iter().map(|row| row.as_ref().map_or_else(Default::default, |a| a.system)).collect();
    let columns = vec![
        u64s(rows.iter().map(|row| row.as_ref().map_or(0, |activity| nanoseconds(activity.time))).collect()),
        schemes(&some().flat_map(|activity| &activity.schemes).collect::<Vec<_>>(), lengths(|a| a.schemes.len()))?,
        memory(&some().flat_map(|activity| &activity.memory).collect::<Vec<_>>(), lengths(|a| a.memory.len()))?,
        system(&systems)?,
    ];
    Ok(Arc::new(StructArray::try_new(fields::fields(), columns, Some(NullBuffer::from(set)))?))
}

fn schemes(reports: &[&Report], lengths: Vec<usize>) -> Result<ArrayRef, ArrowError> {
    let columns: Vec<ArrayRef> = vec![
        strings(&reports.iter().map(|report| &report.name).collect::<Vec<_>>()),
        strings(&reports.iter().map(|report| report.action.kind().name()).collect::<Vec<_>>()),
        Arc::new(BooleanArray::from(reports.iter().map(|report| report.awake).collect::<Vec<_>>())),
        Arc::new(UInt64Array::from(reports.iter().map(|report| report.quota).collect::<Vec<_>>())),
        // A score that is no number says nothing.
        Arc::new(Float64Array::from_iter(
            reports.iter().map(|report| report.goal_score.filter(|score| score.is_finite())),
        )),
        totals(&reports.iter().map(|report| &report.total).collect::<Vec<_>>())?,
        applications(&reports.iter().map(|report| &report.last).collect::<Vec<_>>())?,
    ];
    list(fields::scheme(), columns, lengths, None)
}

fn totals(totals: &[&Statistics]) -> Result<ArrayRef, ArrowError> {
    let wide = |part: fn(&Statistics) -> u64| u64s(totals.iter().map(|total| part(total)).collect());
    let refusals: Vec<&RefusalCount> = totals.iter().flat_map(|total| &total.refusals).collect();
    structs(
        fields::total(),
        vec![
            wide(|total| total.applications),
            wide(|total| total.tried_regions),
            wide(|total| total.tried_bytes),
            wide(|total| total.passed_bytes),
            wide(|total| total.applied_regions),
            wide(|total| total.applied_bytes),
            wide(|total| total.rejected_bytes),
            list(
                fields::refusal(),
                vec![
                    Arc::new(Int32Array::from_iter_values(
                        refusals.iter().map(|count| count.refusal.code.unwrap_or(0)),
                    )),
                    u64s(refusals.iter().map(|refusal| refusal.regions).collect()),
                    u64s(refusals.iter().map(|refusal| refusal.bytes).collect()),
                ],
                totals.iter().map(|total| total.refusals.len()).collect(),
                None,
            )?,
            wide(|total| total.quota_exceeded),
            wide(|total| nanoseconds(total.time)),
        ],
    )
}

fn applications(applications: &[&Application]) -> Result<ArrayRef, ArrowError> {
    let wide = |part: fn(&Application) -> u64| u64s(applications.iter().map(|last| part(last)).collect());
    let regions: Vec<&ActedRegion> = applications.iter().flat_map(|last| &last.regions).collect();
    structs(
        fields::last(),
        vec![
            wide(|last| nanoseconds(last.time)),
            wide(|last| last.held_back_bytes),
            wide(|last| last.unobservable_bytes),
            list(
                fields::acted(),
                vec![
                    u32s(regions.iter().map(|region| pid_column(region.target)).collect()),
                    u64s(regions.iter().map(|region| region.range.start()).collect()),
                    u64s(regions.iter().map(|region| region.range.end()).collect()),
                    u64s(regions.iter().map(|region| region.applied).collect()),
                ],
                applications.iter().map(|last| last.regions.len()).collect(),
                None,
            )?,
        ],
    )
}

fn memory(targets: &[&(TargetId, MemoryUse)], lengths: Vec<usize>) -> Result<ArrayRef, ArrowError> {
    let wide = |part: fn(&MemoryUse) -> u64| u64s(targets.iter().map(|(_, used)| part(used)).collect());
    let columns = vec![
        u32s(targets.iter().map(|(target, _)| pid_column(*target)).collect()),
        wide(|used| used.resident),
        wide(|used| used.proportional),
        wide(|used| used.swapped),
    ];
    list(fields::memory(), columns, lengths, None)
}

fn system(systems: &[SystemMemory]) -> Result<ArrayRef, ArrowError> {
    let wide = |part: fn(&SystemMemory) -> u64| u64s(systems.iter().map(part).collect());
    let stalled = |system: &SystemMemory| system.stalled.map(|time: Duration| nanoseconds(time));
    structs(
        fields::system(),
        vec![
            wide(|system| system.total),
            wide(|system| system.free),
            wide(|system| system.available),
            wide(|system| system.swap_total),
            wide(|system| system.swap_free),
            Arc::new(UInt64Array::from_iter(systems.iter().map(stalled))),
        ],
    )
}

fn structs(fields: Fields, columns: Vec<ArrayRef>) -> Result<ArrayRef, ArrowError> {
    Ok(Arc::new(StructArray::try_new(fields, columns, None)?))
}
