//! The monitor on simulated memory, whose clock goes as fast as the machine can.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::Scheme;
use isotherm_core::survey::{SurveySettings, SurveySnapshot};
use isotherm_core::{AddressSpace, Attributes, BoxError, Monitor, Next, Sink, Snapshot};
use isotherm_kernel::monitor_cpu_time;
use isotherm_record::{Cost, SnapshotRecord, SurveyRecord, TargetInfo, TargetInfos};
use isotherm_sim::{Costs, Pattern, SimActuator, SimClock, SimMemory};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::{Outlet, Source};
use crate::schemes::InlineSchemes;
use crate::{EndReason, RunError};

/// Watches simulated memory through all phases of its pattern. Schemes act on the simulated machine.
pub(crate) struct SimulationSource {
    pub(crate) pattern: Pattern,
    pub(crate) attributes: Attributes,
    /// The survey interval. `None` without surveys.
    pub(crate) survey: Option<Duration>,
    pub(crate) seed: u64,
    pub(crate) schemes: Option<Vec<Scheme>>,
}

impl Source for SimulationSource {
    fn run(self: Box<Self>, outlet: &mut Outlet) -> Result<EndReason, RunError> {
        let Self { pattern, attributes, survey, seed, schemes } = *self;
        let control = outlet.control.clone();
        let whole = pattern.time();
        let end = outlet.duration.map_or(whole, |duration| duration.min(whole));
        let clock = SimClock::default();
        let mut memory = SimMemory::new(pattern, clock.clone(), seed);
        let infos = infos(&mut memory)?;
        let machine = SimActuator::new(memory.clone(), clock.clone(), Costs::default());
        let mut schemes = schemes
            .map(|schemes| InlineSchemes::new(schemes, machine.clone(), machine.clone(), machine, outlet))
            .transpose()?;

        let mut monitor =
            Monitor::new(attributes, Pcg64Mcg::seed_from_u64(seed), memory.clone(), memory, Keep::default());
        if let Some(interval) = survey {
            monitor.set_survey(SurveySettings { interval, ..SurveySettings::default() });
        }
        let mut in_force = attributes;
        outlet.attributes(in_force);
        let mut next = monitor.start()?;
        let mut cpu = monitor_cpu_time();
        while let Next::Step { after } = next
            && clock.now() < end
        {
            let commands = control.take();
            if commands.stop {
                return Ok(EndReason::Stopped);
            }
            if let Some(attributes) = commands.attributes {
                monitor.set_attributes(attributes);
            }
            if commands.update {
                monitor.ask_for_update();
            }
            next = monitor.step(clock.pass(after))?;
            if let Some(survey) = monitor.sink_mut().survey.take() {
                outlet.survey(SurveyRecord { survey, infos: Arc::clone(&infos), ..SurveyRecord::default() });
            }
            let Some(snapshot) = monitor.sink_mut().snapshot.take() else { continue };
            let now = monitor_cpu_time();
            let cost = Cost {
                rounds: snapshot.rounds,
                sampled_rounds: Some(snapshot.sampled_rounds),
                reads: snapshot.reads,
                max_reads: snapshot.max_reads,
                clears: snapshot.clears,
                cpu_ns: (now - std::mem::replace(&mut cpu, now)).as_nanos() as u64,
                ..Cost::default()
            };
            let record = Arc::new(SnapshotRecord {
                snapshot,
                cost: Some(cost),
                infos: Arc::clone(&infos),
                ..SnapshotRecord::default()
            });
            outlet.snapshot(Arc::clone(&record));
            // Attributes change at the end of an aggregation: its snapshot was still made with the old ones.
            if monitor.attributes() != in_force {
                in_force = monitor.attributes();
                outlet.attributes(in_force);
            }
            if let Some(schemes) = &mut schemes {
                schemes.apply(&record.snapshot, outlet)?;
                let mut slept = false;
                while let Some(until) = schemes.sleeps_until()
                    && clock.now() < end
                {
                    schemes.look(clock.pass(until.min(end).saturating_sub(clock.now())));
                    slept = true;
                }
                if slept {
                    next = monitor.resume(clock.now())?;
                }
            }
        }
        monitor.end()?;
        Ok(if end < whole { EndReason::DurationOver } else { EndReason::Finished })
    }
}

/// Keeps what the monitor found in its last step.
#[derive(Default)]
struct Keep {
    snapshot: Option<Snapshot>,
    survey: Option<SurveySnapshot>,
}

impl Sink for Keep {
    fn aggregated(&mut self, snapshot: &Snapshot) -> Result<(), BoxError> {
        self.snapshot = Some(snapshot.clone());
        Ok(())
    }

    fn surveyed(&mut self, survey: &SurveySnapshot) -> Result<(), BoxError> {
        self.survey = Some(survey.clone());
        Ok(())
    }
}

fn infos(memory: &mut SimMemory) -> Result<TargetInfos, RunError> {
    let info = Arc::new(TargetInfo { command: "simulated memory".into(), ..TargetInfo::default() });
    let spaces = memory.read_targets().map_err(RunError::Space)?;
    Ok(spaces.iter().map(|space| (space.id, Arc::clone(&info))).collect())
}
