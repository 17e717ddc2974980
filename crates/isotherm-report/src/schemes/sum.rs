//! Computes the sums and the moments from the recorded activities.

use std::time::Duration;

use isotherm_core::scheme::{RefusalCount, Report, Statistics};
use isotherm_core::{SystemMemory, units};
use isotherm_record::{Activity, pid_column};

use super::{
    ActedRegion, Application, Moment, Refusal, Scheme, SchemeInterval, Schemes, System, TargetMemory, Total, errno,
};
use crate::ReportError;
use crate::source::{self, SelectedTarget, Selection, Source};

impl Schemes {
    /// What schemes did in the selected part of `source`.
    ///
    /// # Errors
    /// If the recording cannot be read, has no activity of schemes, or none in the selection.
    pub fn new(source: &dyn Source, selection: &Selection) -> Result<Self, ReportError> {
        let cut_short = source.cut_short();
        let (schemes, over_time) = (vec![], vec![]);
        let mut made = Self {
            from_ns: 0,
            to_ns: 0,
            cut_short,
            major_faults: None,
            compressed_growth_bytes: None,
            net_freed_bytes: None,
            schemes,
            over_time,
        };
        let (mut before, mut first): (Option<Activity>, Option<Duration>) = (None, None);
        let mut any = false;
        let mut ids = vec![];
        for activity in source::activities(source)? {
            let activity = activity?;
            first = first.or(Some(activity.time));
            any |= !activity.schemes.is_empty();
            if selection.holds_time(activity.time) {
                let since = before.as_ref().map_or(Duration::ZERO, |before| before.time);
                let elapsed = source.header().recorded(since, activity.time);
                made.add(&activity, before.as_ref(), elapsed, selection);
                ids.extend(activity.memory.iter().map(|&(id, _)| id));
                ids.sort_unstable();
                ids.dedup();
            }
            before = Some(activity);
        }
        // Recordings of runs without schemes have activities that tell of memory in use alone.
        let (Some(first), Some(last), true) = (first, before, any) else { return Err(ReportError::NoSchemes) };
        let known = |target: SelectedTarget| ids.is_empty() || ids.iter().any(|&id| target.holds(id));
        if made.over_time.is_empty() || !selection.target.is_none_or(known) {
            let ids: Vec<String> = ids.iter().take(20).map(|&id| pid_column(id).to_string()).collect();
            let mut holds =
                format!("what schemes did from {} to {}", units::duration(first), units::duration(last.time));
            if !ids.is_empty() {
                holds += &format!(", and the memory of {}", ids.join(", "));
            }
            return Err(ReportError::NothingMatches { asked: selection.describe(), holds });
        }
        made.finish();
        Ok(made)
    }

    /// As [`Schemes::new`], but `None` if the selection has no activity of schemes.
    pub(crate) fn if_any(source: &dyn Source, selection: &Selection) -> Result<Option<Self>, ReportError> {
        match Self::new(source, selection) {
            Ok(schemes) => Ok(Some(schemes)),
            Err(ReportError::NoSchemes | ReportError::NothingMatches { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds an activity. `elapsed` is the recorded time since the one before.
    fn add(&mut self, activity: &Activity, before: Option<&Activity>, elapsed: Duration, selection: &Selection) {
        let since = before.map_or(Duration::ZERO, |before| before.time);
        if self.over_time.is_empty() {
            self.from_ns = nanoseconds(since);
        }
        self.to_ns = nanoseconds(activity.time);
        self.schemes.iter_mut().for_each(|scheme| scheme.in_force = false);
        let mut did = vec![];
        for report in &activity.schemes {
            let earlier = before.and_then(|before| before.schemes.iter().find(|earlier| earlier.name == report.name));
            let total = Total::between(earlier.map(|earlier| &earlier.total), &report.total);
            did.push(SchemeInterval {
                name: report.name.clone(),
                passed_bytes: total.passed_bytes,
                applied_bytes: total.applied_bytes,
                refused_bytes: total.refused_bytes(),
                rejected_bytes: total.rejected_bytes,
                held_back_bytes: report.last.held_back_bytes,
                quota_bytes: report.quota,
                goal_score: report.goal_score,
                awake: report.awake,
            });
            self.scheme(report).add(report, &total, elapsed, selection);
        }
        let faults_before = before.and_then(|before| before.major_faults).unwrap_or(0);
        let major_faults = activity.major_faults.map(|faults| faults.saturating_sub(faults_before));
        if let Some(faults) = major_faults {
            self.major_faults = Some(self.major_faults.unwrap_or(0).saturating_add(faults));
        }
        if let Some(grown) = activity.compressed_growth {
            let grown_before = before.and_then(|before| before.compressed_growth).unwrap_or(0);
            let grown = grown.cast_signed().wrapping_sub(grown_before.cast_signed());
            self.compressed_growth_bytes = Some(self.compressed_growth_bytes.unwrap_or(0).saturating_add(grown));
        }
        let stalled = before.and_then(|before| before.system.stalled).zip(activity.system.stalled);
        self.over_time.push(Moment {
            time_ns: nanoseconds(activity.time),
            schemes: did,
            memory: (activity.memory.iter().filter(|(id, _)| selection.holds_target(*id)))
                .map(|&(id, used)| TargetMemory {
                    pid: pid_column(id),
                    resident_bytes: used.resident,
                    proportional_bytes: used.proportional,
                    swapped_bytes: used.swapped,
                })
                .collect(),
            system: System::new(&activity.system, stalled, elapsed),
            major_faults,
            elapsed,
        });
    }

    /// The scheme that a report is about.
    fn scheme(&mut self, report: &Report) -> &mut Scheme {
        let known = self.schemes.iter().position(|scheme| scheme.name == report.name);
        let index = known.unwrap_or_else(|| {
            self.schemes.push(Scheme::new(report));
            self.schemes.len() - 1
        });
        &mut self.schemes[index]
    }

    fn finish(&mut self) {
        let freed = self.schemes.iter().filter(|scheme| scheme.frees()).map(|scheme| scheme.total.applied_bytes);
        let freed = freed.fold(0, u64::saturating_add).cast_signed();
        self.net_freed_bytes = self.compressed_growth_bytes.map(|grown| freed.saturating_sub(grown));
        for scheme in &mut self.schemes {
            let share = scheme.awake_time.as_secs_f64() / scheme.time.as_secs_f64();
            scheme.awake_share = if share.is_finite() { share } else { f64::from(u8::from(scheme.awake)) };
            scheme.total.refusals.sort_by_key(|refusal| std::cmp::Reverse(refusal.bytes));
        }
    }
}

impl Scheme {
    fn new(report: &Report) -> Self {
        Self {
            name: report.name.clone(),
            action: report.action.name.clone(),
            in_force: true,
            awake: report.awake,
            awake_share: 0.0,
            quota_bytes: None,
            goal_score: None,
            quota_share: None,
            total: Total::default(),
            last: None,
            last_acting: None,
            awake_time: Duration::ZERO,
            time: Duration::ZERO,
        }
    }

    fn add(&mut self, report: &Report, total: &Total, elapsed: Duration, selection: &Selection) {
        self.action = report.action.name.clone();
        (self.in_force, self.awake) = (true, report.awake);
        (self.quota_bytes, self.goal_score) = (report.quota, report.goal_score);
        self.quota_share = report.quota_share;
        self.time += elapsed;
        self.awake_time += if report.awake { elapsed } else { Duration::ZERO };
        self.total.add(total);
        if report.total.applications == 0 {
            return;
        }
        let regions = report.last.regions.iter().filter_map(|acted| {
            let range = selection.address.map_or(Some(acted.range), |wanted| wanted.intersection(acted.range))?;
            let chosen = selection.holds_target(acted.target);
            let applied_bytes = acted.applied.min(range.size());
            chosen.then_some(ActedRegion {
                pid: pid_column(acted.target),
                start: range.start(),
                end: range.end(),
                applied_bytes,
            })
        });
        let last = Application {
            time_ns: nanoseconds(report.last.time),
            held_back_bytes: report.last.held_back_bytes,
            unobservable_bytes: report.last.unobservable_bytes,
            regions: regions.collect(),
        };
        if !last.regions.is_empty() {
            self.last_acting = Some(last.clone());
        }
        self.last = Some(last);
    }
}

impl Total {
    /// The difference of two totals. It is all of `now` if the scheme was restarted in between.
    fn between(before: Option<&Statistics>, now: &Statistics) -> Self {
        let nothing = Statistics::default();
        let before = before.filter(|before| before.applications <= now.applications).unwrap_or(&nothing);
        let more = |part: fn(&Statistics) -> u64| part(now).saturating_sub(part(before));
        let refusals = now.refusals.iter().map(|count| {
            let same = |earlier: &&RefusalCount| {
                (&earlier.refusal, &earlier.unknown_reason) == (&count.refusal, &count.unknown_reason)
            };
            let earlier = before.refusals.iter().find(same);
            let (regions, bytes) = earlier.map_or((0, 0), |earlier| (earlier.regions, earlier.bytes));
            Refusal {
                why: count.refusal,
                unknown_reason: count.unknown_reason.clone(),
                errno: count.refusal.code,
                name: count.refusal.code.and_then(errno::name),
                regions: count.regions.saturating_sub(regions),
                bytes: count.bytes.saturating_sub(bytes),
            }
        });
        Self {
            applications: more(|s| s.applications),
            tried_regions: more(|s| s.tried_regions),
            tried_bytes: more(|s| s.tried_bytes),
            passed_bytes: more(|s| s.passed_bytes),
            applied_regions: more(|s| s.applied_regions),
            applied_bytes: more(|s| s.applied_bytes),
            unmapped_bytes: more(|s| s.unmapped_bytes),
            watched_bytes: more(|s| s.watched_bytes),
            returned_bytes: more(|s| s.returned_bytes),
            rejected_bytes: more(|s| s.rejected_bytes),
            refusals: refusals.filter(|refusal| refusal.regions > 0).collect(),
            quota_exceeded: more(|s| s.quota_exceeded),
            spent_ns: nanoseconds(now.time.saturating_sub(before.time)),
        }
    }

    fn add(&mut self, more: &Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.applications, more.applications);
        add(&mut self.tried_regions, more.tried_regions);
        add(&mut self.tried_bytes, more.tried_bytes);
        add(&mut self.passed_bytes, more.passed_bytes);
        add(&mut self.applied_regions, more.applied_regions);
        add(&mut self.applied_bytes, more.applied_bytes);
        add(&mut self.unmapped_bytes, more.unmapped_bytes);
        add(&mut self.watched_bytes, more.watched_bytes);
        add(&mut self.returned_bytes, more.returned_bytes);
        add(&mut self.rejected_bytes, more.rejected_bytes);
        add(&mut self.quota_exceeded, more.quota_exceeded);
        add(&mut self.spent_ns, more.spent_ns);
        for refusal in &more.refusals {
            match self.refusals.iter_mut().find(|known| known.is_for_the_reason_of(refusal)) {
                Some(known) => {
                    add(&mut known.regions, refusal.regions);
                    add(&mut known.bytes, refusal.bytes);
                }
                None => self.refusals.push(refusal.clone()),
            }
        }
    }
}

impl System {
    fn new(system: &SystemMemory, stalled: Option<(Duration, Duration)>, elapsed: Duration) -> Self {
        let share = stalled.map(|(before, now)| now.saturating_sub(before).as_secs_f64() / elapsed.as_secs_f64());
        Self {
            total_bytes: system.total,
            free_bytes: system.free,
            available_bytes: system.available,
            swap_total_bytes: system.swap_total,
            swap_free_bytes: system.swap_free,
            stalled_share: share.filter(|share| share.is_finite()).map(|share| share.clamp(0.0, 1.0)),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
