//! Activities: what schemes did and how much memory is in use, as columns and back.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{
    ActedRegion, Action, Application, Refusal, RefusalCount, RefusalReason, Report, ReportedAction, Statistics,
};
use isotherm_core::{MemoryUse, NodeId, SystemMemory, TargetId};

use crate::id::StoredId;
use crate::identities::Identities;
use crate::target::range;
use crate::time::nanoseconds;
use crate::{Activity, Surroundings, columns};

/// The columns of an activity. The start of a process that is not counted from the boot (`from_boot`) is left out.
pub(crate) fn to_columns(activity: &Activity, from_boot: bool) -> columns::Activity {
    let memory = activity.memory.iter().map(|(target, used)| columns::Memory {
        id: StoredId::new(*target, from_boot).column(),
        resident_bytes: used.resident,
        proportional_bytes: used.proportional,
        swapped_bytes: used.swapped,
    });
    let SystemMemory { total, free, available, swap_total, swap_free, stalled } = activity.system;
    columns::Activity {
        time_ns: nanoseconds(activity.time),
        schemes: activity.schemes.iter().map(|report| scheme_columns(report, from_boot)).collect(),
        memory: memory.collect(),
        system: columns::System {
            total_bytes: total,
            free_bytes: free,
            available_bytes: available,
            swap_total_bytes: swap_total,
            swap_free_bytes: swap_free,
            stalled_ns: stalled.map(nanoseconds),
        },
        major_faults: activity.major_faults,
        compressed_growth_bytes: activity.compressed_growth,
        surroundings: activity.surroundings.as_ref().and_then(Surroundings::to_json),
    }
}

fn scheme_columns(report: &Report, from_boot: bool) -> columns::Scheme {
    let regions = report.last.regions.iter().map(|acted| columns::Acted {
        id: StoredId::new(acted.target, from_boot).column(),
        start: acted.range.start(),
        end: acted.range.end(),
        applied_bytes: acted.applied,
    });
    columns::Scheme {
        name: Arc::clone(&report.name),
        action: columns::Action {
            name: Arc::from(&*report.action.name),
            target_node: report.action.target_node.map(|NodeId(node)| node),
        },
        awake: report.awake,
        quota_bytes: report.quota,
        // A score that is not a number says nothing.
        goal_score: report.goal_score.filter(|score| score.is_finite()),
        quota_share: report.quota_share.filter(|share| share.is_finite()),
        total: total_columns(&report.total),
        last: columns::Last {
            time_ns: nanoseconds(report.last.time),
            held_back_bytes: report.last.held_back_bytes,
            unobservable_bytes: report.last.unobservable_bytes,
            regions: regions.collect(),
        },
    }
}

fn total_columns(total: &Statistics) -> columns::Total {
    let refusals = total.refusals.iter().map(|count| columns::Refusal {
        reason: count.unknown_reason.clone().unwrap_or_else(|| count.refusal.reason.name().into()),
        code: count.refusal.code,
        regions: count.regions,
        bytes: count.bytes,
    });
    columns::Total {
        applications: total.applications,
        tried_regions: total.tried_regions,
        tried_bytes: total.tried_bytes,
        passed_bytes: total.passed_bytes,
        applied_regions: total.applied_regions,
        applied_bytes: total.applied_bytes,
        rejected_bytes: total.rejected_bytes,
        refusals: refusals.collect(),
        quota_exceeded: total.quota_exceeded,
        spent_ns: nanoseconds(total.time),
        watched_bytes: total.watched_bytes,
        returned_bytes: total.returned_bytes,
        unmapped_bytes: total.unmapped_bytes,
    }
}

/// The activity that these columns hold. What it says of targets of a type that this version does not know is left out.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read(found: columns::Activity, identities: &Identities) -> Result<Activity, &'static str> {
    let target = |id: &columns::Id| -> Result<Option<TargetId>, &'static str> {
        Ok(StoredId::read(id)?.map(|id| identities.target(id)))
    };
    let memory = found.memory.iter().filter_map(|used| {
        let target = target(&used.id).transpose()?;
        let (resident, proportional, swapped) = (used.resident_bytes, used.proportional_bytes, used.swapped_bytes);
        Some(target.map(|target| (target, MemoryUse { resident, proportional, swapped })))
    });
    let columns::System { total_bytes, free_bytes, available_bytes, swap_total_bytes, swap_free_bytes, stalled_ns } =
        found.system;
    Ok(Activity {
        time: Duration::from_nanos(found.time_ns),
        memory: memory.collect::<Result<_, _>>()?,
        schemes: found.schemes.into_iter().map(|scheme| report(scheme, target)).collect::<Result<_, _>>()?,
        system: SystemMemory {
            total: total_bytes,
            free: free_bytes,
            available: available_bytes,
            swap_total: swap_total_bytes,
            swap_free: swap_free_bytes,
            stalled: stalled_ns.map(Duration::from_nanos),
        },
        major_faults: found.major_faults,
        compressed_growth: found.compressed_growth_bytes,
        surroundings: found.surroundings.as_deref().map(Surroundings::of_json).transpose()?,
    })
}

fn report(
    found: columns::Scheme,
    target: impl Fn(&columns::Id) -> Result<Option<TargetId>, &'static str>,
) -> Result<Report, &'static str> {
    if found.goal_score.is_some_and(|score| !score.is_finite()) {
        return Err("the score of a scheme's goals is not a number");
    }
    if found.quota_share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
        return Err("the share of a scheme's quota is not from 0 to 1");
    }
    let regions = found.last.regions.iter().filter_map(|acted| {
        let target = target(&acted.id).transpose()?;
        let acted_on =
            |target| Ok(ActedRegion { target, range: range(acted.start, acted.end)?, applied: acted.applied_bytes });
        Some(target.and_then(acted_on))
    });
    Ok(Report {
        name: found.name,
        action: action(found.action),
        awake: found.awake,
        quota: found.quota_bytes,
        goal_score: found.goal_score,
        quota_share: found.quota_share,
        total: statistics(found.total),
        last: Application {
            time: Duration::from_nanos(found.last.time_ns),
            regions: regions.collect::<Result<_, _>>()?,
            held_back_bytes: found.last.held_back_bytes,
            unobservable_bytes: found.last.unobservable_bytes,
        },
    })
}

/// The action of this name, which a later version may have written.
fn action(found: columns::Action) -> ReportedAction {
    let known = Action::named(&found.name).map(|action| Cow::Borrowed(action.name()));
    ReportedAction {
        name: known.unwrap_or_else(|| Cow::Owned(found.name.as_ref().into())),
        target_node: found.target_node.map(NodeId),
    }
}

fn statistics(found: columns::Total) -> Statistics {
    Statistics {
        applications: found.applications,
        tried_regions: found.tried_regions,
        tried_bytes: found.tried_bytes,
        passed_bytes: found.passed_bytes,
        applied_regions: found.applied_regions,
        applied_bytes: found.applied_bytes,
        unmapped_bytes: found.unmapped_bytes,
        watched_bytes: found.watched_bytes,
        returned_bytes: found.returned_bytes,
        rejected_bytes: found.rejected_bytes,
        refusals: found.refusals.into_iter().map(refusal).collect(),
        quota_exceeded: found.quota_exceeded,
        time: Duration::from_nanos(found.spent_ns),
    }
}

/// The refusal for the reason of this name, which a later version may have written.
fn refusal(found: columns::Refusal) -> RefusalCount {
    let reason = RefusalReason::named(&found.reason);
    RefusalCount {
        refusal: Refusal { reason: reason.unwrap_or(RefusalReason::Other), code: found.code },
        unknown_reason: reason.is_none().then_some(found.reason),
        regions: found.regions,
        bytes: found.bytes,
    }
}
