//! What a live run measures, from what is asked for and what its probe can do.

use std::time::Duration;

use isotherm_core::{
    AttributeOptions, Attributes, Budget, Granularity, IntervalsGoal, PaceOptions, Start, SurveyInterval,
};
use isotherm_record::Sight;

use crate::config::check_duration;
use crate::probe::OpenLook;
use crate::properties::Properties;
use crate::sight::Scene;
use crate::{ConfigError, IntervalsChoice, SurveyChoice};

/// The update interval of a run with surveys of processes, if none is asked for: processes and memory that are new are
/// seen soon. The budget may make it longer.
const SHORT_UPDATE: Duration = Duration::from_millis(200);

/// A run of a given length has at least this many snapshots, however long its intervals become.
const LEAST_SNAPSHOTS: u32 = 10;

/// What a probe can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capabilities {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it sees.
    pub(crate) sight: fn(Scene) -> Sight,
    /// The smallest piece of memory that one answer speaks for.
    pub(crate) granularity: Granularity,
    /// Whether pages can be sampled.
    pub(crate) samples: bool,
    /// Whether all pages can be surveyed.
    pub(crate) surveys: bool,
    /// Whether the run keeps a budget. The kernel paces its own DAMON.
    pub(crate) is_paced: bool,
    /// Whether the intervals can follow from what is observed.
    pub(crate) tunes: bool,
    /// Opens what finds before an action which pages were accessed since the last survey. `None` if page tables are
    /// read for that.
    pub(crate) look: Option<OpenLook>,
}

impl Capabilities {
    /// What opens the look of schemes. Without surveys most pages were never marked as idle, so that the bitmap says
    /// nothing of them.
    pub(crate) fn look(&self, surveys: bool) -> Option<OpenLook> {
        self.look.filter(|_| surveys)
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    pub(crate) attributes: AttributeOptions,
    /// Whether pages are to be sampled.
    pub(crate) sampling: bool,
    pub(crate) survey: SurveyChoice,
    /// Whether a budget is asked for.
    pub(crate) has_budget: bool,
    /// That budget, or the default one.
    pub(crate) budget: Budget,
    pub(crate) start: Start,
    pub(crate) intervals: IntervalsChoice,
    pub(crate) intervals_goal: Option<IntervalsGoal>,
    pub(crate) duration: Option<Duration>,
    /// Whether the targets are processes, and not physical memory or files.
    pub(crate) is_of_processes: bool,
}

/// What schemes need of the intervals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchemeNeeds {
    /// Whether they compare access rates: these depend on the sampling interval.
    pub(crate) compares_rates: bool,
    /// The longest aggregation interval with which all of them act in time.
    pub(crate) longest: Duration,
}

/// What a run measures, how often, and what that may cost.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) attributes: Attributes,
    pub(crate) pace: PaceOptions,
    pub(crate) properties: Properties,
}

impl Wishes {
    /// Whether a probe that sees whole mappings only is to survey them. It samples them otherwise.
    pub(crate) fn surveys_mappings(&self, has_schemes: bool) -> bool {
        let wants_samples = self.attributes.sampling.is_some() || self.attributes.aggregation.is_some() || has_schemes;
        self.survey != SurveyChoice::Off && !wants_samples
    }

    /// How often to survey. `None` if there is to be no survey.
    ///
    /// # Errors
    /// If surveys are asked for and the probe has none, or if they are not wanted and the probe has nothing else.
    pub(crate) fn survey(&self, can: Capabilities) -> Result<Option<SurveyInterval>, ConfigError> {
        match self.survey {
            SurveyChoice::Off if !can.samples => Err(ConfigError::SurveyNeeded),
            SurveyChoice::Every(_) if !can.surveys => Err(ConfigError::NoSurvey(can.name)),
            SurveyChoice::Auto if !can.surveys && !self.sampling => Err(ConfigError::NoSurvey(can.name)),
            SurveyChoice::Every(interval) => Ok(Some(SurveyInterval::Fixed(interval))),
            SurveyChoice::Auto if can.surveys => Ok(Some(SurveyInterval::Auto)),
            SurveyChoice::Auto | SurveyChoice::Off => Ok(None),
        }
    }
}

impl Plan {
    /// The plan of a run with such a probe, and with schemes, if there are any.
    ///
    /// # Errors
    /// If the probe cannot do what is asked for, or the run is too short for its intervals.
    pub(crate) fn resolve(
        wishes: &Wishes,
        can: Capabilities,
        schemes: Option<SchemeNeeds>,
    ) -> Result<Self, ConfigError> {
        let survey = wishes.survey(can)?;
        // Without sampling, the sampling interval only says how often there is a snapshot.
        if wishes.sampling && !can.samples && wishes.attributes.sampling.is_some() {
            return Err(ConfigError::NoSamples);
        }
        let samples = wishes.sampling && can.samples;
        let attributes =
            if wishes.sampling && !samples { wishes.attributes.without_samples() } else { wishes.attributes };
        // Without a budget of their own, users who ask for an interval get it, and users who turn surveys off get
        // DAMON's method.
        let asks_for_samples = wishes.attributes.sampling.is_some() || wishes.survey == SurveyChoice::Off;
        let bounds_samples = wishes.has_budget || !asks_for_samples;
        let adapts = bounds_samples
            && attributes.sampling.is_none()
            && attributes.aggregation.is_none()
            && can.granularity == Granularity::Page
            && can.tunes
            && wishes.intervals != IntervalsChoice::Fixed;
        // A scheme that compares access rates needs the sampling interval that it was written for.
        let tunes = adapts && !schemes.is_some_and(|schemes| schemes.compares_rates);
        if wishes.intervals_goal.is_some() && !tunes {
            return Err(ConfigError::GoalOfFixedIntervals);
        }
        let most = match wishes.intervals {
            IntervalsChoice::Within(most) => most,
            IntervalsChoice::Auto | IntervalsChoice::Fixed => Duration::MAX,
        };
        let of_run = wishes.duration.map_or(Duration::MAX, |duration| duration / LEAST_SNAPSHOTS);
        let most = most.min(of_run).min(schemes.map_or(Duration::MAX, |schemes| schemes.longest));
        let goal = tunes.then(|| {
            let goal = wishes.intervals_goal.unwrap_or_default();
            // A kernel that samples itself reads each sample once.
            let goal = if can.is_paced { goal.by_lengths() } else { goal };
            IntervalsGoal { most_aggregation: most.min(goal.most_aggregation), ..goal }
        });
        let budget = wishes.budget;
        let has_budget = can.is_paced && (bounds_samples || !samples);
        let longest_aggregation = (adapts && !tunes).then_some(most);
        let pace = PaceOptions {
            budget,
            start: wishes.start,
            has_budget,
            bounds_samples,
            samples,
            survey,
            goal,
            longest_aggregation,
        };
        let follows = survey.is_some() && wishes.is_of_processes;
        let update = attributes.update.or(follows.then_some(SHORT_UPDATE));
        let attributes = AttributeOptions { update, ..attributes }.resolve(can.granularity)?;
        check_duration(wishes.duration, attributes)?;
        let properties = Properties {
            probe: can.name.into(),
            sight: (can.sight)(Scene { is_physical: !wishes.is_of_processes, surveys: survey.is_some() }),
            granularity: can.granularity,
            attributes: Some(attributes),
            samples,
            surveys: survey.is_some(),
            budget: has_budget.then_some(budget),
            tunes_intervals: Some(tunes && samples),
            look: can.look(survey.is_some()),
        };
        Ok(Self { attributes, pace, properties })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;
    use crate::sight;

    const BPF: Capabilities = Capabilities {
        name: "bpf",
        sight: sight::bpf,
        granularity: Granularity::Page,
        samples: true,
        surveys: true,
        is_paced: true,
        tunes: true,
        look: None,
    };
    const DAMON: Capabilities =
        Capabilities { name: "damon", sight: sight::damon, surveys: false, is_paced: false, tunes: false, ..BPF };
    const REFS: Capabilities =
        Capabilities { name: "refs", sight: sight::refs, granularity: Granularity::Mapping, samples: false, ..BPF };
    const REFS_SAMPLES: Capabilities = Capabilities { samples: true, surveys: false, ..REFS };
    const SECOND: Duration = Duration::from_secs(1);

    fn wishes() -> Wishes {
        Wishes {
            attributes: AttributeOptions::default(),
            sampling: true,
            survey: SurveyChoice::Auto,
            has_budget: false,
            budget: Budget::default(),
            start: Start::Quick,
            intervals: IntervalsChoice::Auto,
            intervals_goal: None,
            duration: None,
            is_of_processes: true,
        }
    }

    fn every(sampling: Duration) -> AttributeOptions {
        AttributeOptions { sampling: Some(sampling), ..AttributeOptions::default() }
    }

    #[test]
    fn what_the_probe_cannot_do_is_refused() {
        let goal = Some(IntervalsGoal::default());
        let fixed = SurveyChoice::Every(SECOND);
        let off = SurveyChoice::Off;
        let rates = Some(SchemeNeeds { compares_rates: true, longest: SECOND });
        let refusals: [(Wishes, Capabilities, Option<SchemeNeeds>, &str); 9] = [
            (Wishes { survey: fixed, ..wishes() }, DAMON, None, "NoSurvey(\"damon\")"),
            (Wishes { sampling: false, ..wishes() }, DAMON, None, "NoSurvey(\"damon\")"),
            (Wishes { survey: off, ..wishes() }, REFS, None, "SurveyNeeded"),
            (Wishes { attributes: every(SECOND / 10), ..wishes() }, REFS, None, "NoSamples"),
            (Wishes { intervals_goal: goal, ..wishes() }, DAMON, None, "GoalOfFixedIntervals"),
            (Wishes { intervals_goal: goal, ..wishes() }, REFS_SAMPLES, None, "GoalOfFixedIntervals"),
            (Wishes { intervals_goal: goal, ..wishes() }, BPF, rates, "GoalOfFixedIntervals"),
            (Wishes { intervals_goal: goal, survey: off, ..wishes() }, BPF, None, "GoalOfFixedIntervals"),
            (Wishes { duration: Some(SECOND / 20), ..wishes() }, BPF, None, "DurationTooShort"),
        ];
        for (wishes, can, schemes, expected) in refusals {
            let error = Plan::resolve(&wishes, can, schemes).unwrap_err();
            assert!(format!("{error:?}").starts_with(expected), "{wishes:?} of {}: {error:?}", can.name);
        }
    }

    #[test]
    fn a_sampling_interval_begins_within_what_its_goal_allows() {
        // A kernel refuses another one.
        let damon = Capabilities { tunes: true, ..DAMON };
        for (wishes, can) in [(wishes(), damon), (Wishes { duration: Some(SECOND), ..wishes() }, damon)] {
            let plan = Plan::resolve(&wishes, can, None).unwrap();
            let (goal, sampling) = (plan.pace.goal.unwrap(), plan.attributes.sampling());
            assert!((goal.least..=goal.most).contains(&sampling), "{sampling:?} of {goal:?}");
        }
    }

    #[test]
    fn what_is_asked_for_decides_what_is_measured_and_what_it_may_cost() {
        let rates = Some(SchemeNeeds { compares_rates: true, longest: SECOND / 2 });
        let ages = Some(SchemeNeeds { compares_rates: false, longest: SECOND / 2 });
        let short = Wishes { duration: Some(SECOND * 4), ..wishes() };
        let (surveys, auto) = (Some(SurveyInterval::Auto), Some(SurveyInterval::Auto));
        let some = |most: Duration| (Some(most.min(IntervalsGoal::default().most_aggregation)), None);
        // The survey; whether there are samples, a budget, and a budget of the samples; the longest aggregation of a
        // tuned sampling interval and of a fixed one.
        let plans = [
            (wishes(), BPF, None, (auto, true, true, true), some(Duration::MAX)),
            (short, BPF, None, (auto, true, true, true), some(SECOND * 4 / 10)),
            (wishes(), BPF, ages, (auto, true, true, true), some(SECOND / 2)),
            (wishes(), BPF, rates, (auto, true, true, true), (None, Some(SECOND / 2))),
            (
                Wishes { attributes: every(SECOND / 100), ..wishes() },
                BPF,
                None,
                (auto, true, false, false),
                (None, None),
            ),
            (Wishes { survey: SurveyChoice::Off, ..wishes() }, BPF, None, (None, true, false, false), (None, None)),
            (Wishes { sampling: false, ..wishes() }, BPF, None, (surveys, false, true, true), some(Duration::MAX)),
            (wishes(), DAMON, None, (None, true, false, true), (None, None)),
            (wishes(), REFS, None, (auto, false, true, true), (None, None)),
            (wishes(), REFS_SAMPLES, None, (None, true, true, true), (None, None)),
        ];
        for (wishes, can, schemes, (survey, samples, has_budget, bounds_samples), longest) in plans {
            let pace = Plan::resolve(&wishes, can, schemes).unwrap().pace;
            let found = (pace.survey, pace.samples, pace.has_budget, pace.bounds_samples);
            assert_eq!(found, (survey, samples, has_budget, bounds_samples), "{wishes:?} of {}", can.name);
            let tuned = pace.goal.map(|goal| goal.most_aggregation);
            assert_eq!((tuned, pace.longest_aggregation), longest, "{wishes:?} of {}", can.name);
        }
    }
}
