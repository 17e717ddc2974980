//! Makes, configures and removes the kdamond of isotherm.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use isotherm_core::{AddrRange, Attributes, IntervalsGoal};

use super::claim::Claim;
use super::frames::ActedOnFrames;
use super::settings::{Scope, Settings};
use super::thread::Thread;
use super::{DamonError, DamonPaths, files};

/// A kdamond that isotherm has made. Dropping it turns the kdamond off and removes it.
#[derive(Debug)]
pub struct Kdamond {
    places: DamonPaths,
    claim: Claim,
    thread: Option<Thread>,
}

/// A region of `tried_regions`: address range, access count, age.
pub(super) type Tried = (AddrRange, u32, u32);

impl Kdamond {
    /// Claims the kernel's DAMON and makes a kdamond, which is off and has no settings.
    ///
    /// # Errors
    /// Returns [`DamonError::Busy`] or [`DamonError::Claimed`] if DAMON is in use, and [`DamonError::NoSysfs`] if the
    /// kernel has no DAMON. Fails also if a file cannot be read or written.
    pub fn claim(places: DamonPaths) -> Result<Self, DamonError> {
        let claim = Claim::take(&places)?;
        let kdamond = Self { places, claim, thread: None };
        files::write(&kdamond.path("contexts/nr_contexts"), "1")?;
        Ok(kdamond)
    }

    /// The available operations: some of `vaddr`, `fvaddr`, `paddr`.
    ///
    /// Kernels before 5.19 do not list them. All three are returned then.
    pub fn operations(&self) -> Vec<String> {
        match files::read(&self.context("avail_operations")) {
            Ok(available) => available.split_ascii_whitespace().map(str::to_owned).collect(),
            Err(_) => ["vaddr", "fvaddr", "paddr"].map(str::to_owned).into(),
        }
    }

    /// Checks that the kernel has these operations. A run checks this before it starts a command.
    ///
    /// # Errors
    /// Returns [`DamonError::Operations`] if the kernel does not have them.
    pub fn can_watch(&self, operations: &'static str) -> Result<(), DamonError> {
        has(&self.operations(), operations)
    }

    /// Writes the settings. With `tried`, a scheme without effect is added, for which the kernel keeps `tried_regions`.
    ///
    /// # Errors
    /// Fails if the settings are invalid or the kernel rejects a value.
    pub fn set_up(&mut self, settings: &Settings, tried: bool) -> Result<(), DamonError> {
        settings.check()?;
        let scope = &settings.scope;
        self.can_watch(scope.operations())?;
        let micros = |interval: Duration| interval.as_micros().to_string();
        let attributes = &settings.attributes;
        self.write("operations", scope.operations())?;
        self.write("monitoring_attrs/intervals/sample_us", &micros(attributes.sampling()))?;
        self.write("monitoring_attrs/intervals/aggr_us", &micros(attributes.aggregation()))?;
        self.write("monitoring_attrs/intervals/update_us", &micros(attributes.update()))?;
        if let Some(goal) = &settings.goal {
            self.set_up_goal(goal, attributes)?;
        }
        // The kernel compares the minimum with the maximum only when the kdamond is turned on.
        self.write("monitoring_attrs/nr_regions/min", &attributes.min_regions().to_string())?;
        self.write("monitoring_attrs/nr_regions/max", &attributes.max_regions().to_string())?;

        let targets = scope.targets();
        self.write("targets/nr_targets", &targets.len().to_string())?;
        if !matches!(scope, Scope::Physical(_)) {
            for (index, pid) in targets.iter().enumerate() {
                self.write(&format!("targets/{index}/pid_target"), &pid.to_string())?;
            }
        }
        let ranges = scope.ranges();
        if !ranges.is_empty() {
            self.write("targets/0/regions/nr_regions", &ranges.len().to_string())?;
            for (index, range) in ranges.iter().enumerate() {
                self.write(&format!("targets/0/regions/{index}/start"), &range.start().to_string())?;
                self.write(&format!("targets/0/regions/{index}/end"), &range.end().to_string())?;
            }
        }
        if tried {
            self.set_up_tried()?;
        }
        Ok(())
    }

    /// Lets the kernel tune the intervals. The aggregation interval stays in proportion to the sampling interval.
    fn set_up_goal(&self, goal: &IntervalsGoal, attributes: &Attributes) -> Result<(), DamonError> {
        let most = goal.most.min(goal.most_aggregation / attributes.samples().max(1)).max(goal.least);
        // In hundredths of a per cent.
        let share = (goal.accesses * 10_000.0).round();
        for (file, value) in [
            ("access_bp", share.to_string()),
            ("aggrs", goal.aggregations.to_string()),
            ("min_sample_us", goal.least.as_micros().to_string()),
            ("max_sample_us", most.as_micros().to_string()),
        ] {
            self.write(&format!("monitoring_attrs/intervals/intervals_goal/{file}"), &value)?;
        }
        Ok(())
    }

    /// Adds a scheme with the action `stat` that applies to every region.
    fn set_up_tried(&self) -> Result<(), DamonError> {
        self.set_up_scheme("stat", u32::MAX)
    }

    /// Adds a scheme that applies once to regions that are not accessed, `bytes` in all.
    ///
    /// # Errors
    /// Fails if the kernel does not know the action or rejects a value.
    pub(super) fn set_up_action(&self, action: &str, bytes: u64) -> Result<(), DamonError> {
        self.set_up_scheme(action, 0)?;
        self.write("schemes/0/quotas/bytes", &bytes.to_string())?;
        // Longer than a call takes.
        self.write("schemes/0/quotas/reset_interval_ms", "3600000")
    }

    /// Adds a scheme for regions of any size and age that have at most so many accesses.
    fn set_up_scheme(&self, action: &str, accesses: u32) -> Result<(), DamonError> {
        self.write("schemes/nr_schemes", "1")?;
        self.write("schemes/0/action", action)?;
        for (what, max) in [("sz", u64::MAX), ("nr_accesses", u64::from(accesses)), ("age", u64::from(u32::MAX))] {
            self.write(&format!("schemes/0/access_pattern/{what}/min"), "0")?;
            self.write(&format!("schemes/0/access_pattern/{what}/max"), &max.to_string())?;
        }
        Ok(())
    }

    /// What the scheme has done so far.
    ///
    /// # Errors
    /// Fails if the kdamond is off or a file cannot be read.
    pub(super) fn acted(&self) -> Result<ActedOnFrames, DamonError> {
        files::write(&self.path("state"), "update_schemes_stats")?;
        let stat = |name: &str| files::read_number(&self.context(&format!("schemes/0/stats/{name}")));
        Ok(ActedOnFrames { tried: stat("sz_tried")?, applied: stat("sz_applied")? })
    }

    /// Turns the kdamond on.
    ///
    /// # Errors
    /// Fails if the kernel refuses, for example because a target has ended or another kdamond was started meanwhile.
    /// Returns [`DamonError::Overtaken`] if another program has changed the settings.
    pub fn turn_on(&mut self, settings: &Settings) -> Result<Thread, DamonError> {
        let scope = &settings.scope;
        // Another program may have replaced the directory while the settings were written.
        self.check("operations", scope.operations())?;
        if !matches!(scope, Scope::Physical(_)) {
            for (index, pid) in scope.targets().iter().enumerate() {
                self.check(&format!("targets/{index}/pid_target"), &pid.to_string())?;
            }
        }
        self.claim.note_what_runs(scope.operations(), &scope.targets())?;
        files::write(&self.path("state"), "on")?;
        let pid: u32 = files::read_number(&self.path("pid")).map_err(|error| match error {
            // The file contains -1 if the kdamond is off again, because its targets have ended.
            DamonError::Number { .. } => DamonError::TurnedOff,
            error => error,
        })?;
        let thread = Thread::find(&self.places.proc, pid).ok_or(DamonError::TurnedOff)?;
        self.claim.note_thread(thread)?;
        self.thread = Some(thread);
        Ok(thread)
    }

    /// The thread of the kdamond, if it has been turned on.
    pub fn thread(&self) -> Option<Thread> {
        self.thread
    }

    /// Whether the kdamond is on. It turns off by itself when all targets have ended.
    pub fn is_on(&self) -> bool {
        self.claim.holds() && files::read(&self.path("state")).is_ok_and(|state| state == "on")
    }

    /// The CPU time that the thread has used so far.
    pub fn cpu_time(&self) -> Duration {
        self.thread.and_then(|thread| thread.cpu_time(&self.places.proc)).unwrap_or_default()
    }

    /// The paths of the kernel's files.
    pub fn places(&self) -> &DamonPaths {
        &self.places
    }

    /// Whether the kernel has `tried_regions` (Linux 6.2 and later).
    ///
    /// # Errors
    /// Fails if the kernel refuses to make a scheme.
    pub fn has_tried_regions(&self) -> Result<bool, DamonError> {
        self.write("schemes/nr_schemes", "1")?;
        let has = self.context("schemes/0/tried_regions").is_dir();
        self.write("schemes/nr_schemes", "0")?;
        Ok(has)
    }

    /// Waits for the end of the next aggregation and returns its regions, sorted by address.
    ///
    /// # Errors
    /// Fails if the kdamond is off or a file cannot be read.
    pub(super) fn tried_regions(&self) -> Result<Vec<Tried>, DamonError> {
        files::write(&self.path("state"), "update_schemes_tried_regions")?;
        let directory = self.context("schemes/0/tried_regions");
        let unreadable = |source| DamonError::Read { path: directory.clone(), source };
        let mut regions = Vec::new();
        for entry in fs::read_dir(&directory).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            // The directory also contains files, such as total_bytes.
            if !path.is_dir() {
                continue;
            }
            let number = |name: &str| files::read_number::<u64>(&path.join(name));
            let narrow = |number| u32::try_from(number).unwrap_or(u32::MAX);
            let range = AddrRange::new(number("start")?, number("end")?);
            regions.extend(range.map(|range| Ok((range, narrow(number("nr_accesses")?), narrow(number("age")?)))));
        }
        let mut regions = regions.into_iter().collect::<Result<Vec<Tried>, DamonError>>()?;
        regions.sort_unstable_by_key(|(range, ..)| *range);
        Ok(regions)
    }

    /// Turns the kdamond off and removes it.
    ///
    /// # Errors
    /// Fails if the kernel refuses. The next run tries again.
    pub fn release(mut self) -> Result<(), DamonError> {
        self.claim.release()
    }

    fn write(&self, name: &str, value: &str) -> Result<(), DamonError> {
        files::write(&self.context(name), value)
    }

    /// Checks that a file still contains the value that was written to it.
    fn check(&self, name: &str, expected: &str) -> Result<(), DamonError> {
        let path = self.context(name);
        let found = if self.claim.holds() { files::read(&path)? } else { "a file of another directory".into() };
        if found == expected {
            return Ok(());
        }
        Err(DamonError::Overtaken { path, expected: expected.into(), found })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.claim.directory().join(name)
    }

    fn context(&self, name: &str) -> PathBuf {
        self.claim.directory().join("contexts/0").join(name)
    }
}

/// Checks that `available` contains the operations `wanted`.
pub(super) fn has(available: &[String], wanted: &'static str) -> Result<(), DamonError> {
    if available.iter().any(|available| available == wanted) {
        return Ok(());
    }
    let fix = match wanted {
        "paddr" => "use a kernel built with CONFIG_DAMON_PADDR, or another probe",
        _ => "use a kernel built with CONFIG_DAMON_VADDR, or another probe; fvaddr needs Linux 5.19",
    };
    Err(DamonError::Operations { wanted, available: available.join(", "), fix })
}
