//! A group: some processes, or other memory, that is watched, how it is watched, and what is done to it.

use std::path::PathBuf;
use std::time::Duration;

use isotherm_core::scheme::{self, Scheme};
use isotherm_core::{AttributeOptions, Budget, Granularity};
use isotherm_report::right_size::WINDOW;
use isotherm_run::{
    Allowance, Glob, IntervalsChoice, LeastLimits, ProbeChoice, RunConfig, Scheduling, SchemeLimits, SchemeOptions,
    SchemeSource, Selection, Selector, Source, SurveyChoice, Targets, WatchedFiles,
};
use isotherm_scheme::Diagnostics;
use isotherm_scheme::form::{self, Node};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quantity::{Regions, Share, Size, Time};
use super::select::Selectors;

/// What a configuration says of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupSettings {
    /// The name: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// The processes, those that run and those that appear later.
    #[serde(default, skip_serializing_if = "is_none")]
    pub select: Selectors,
    /// Whether physical memory of the machine is watched in place of processes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub physical: bool,
    /// Files, and directories with the files below them, whose page cache is watched in place of processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PathBuf>,
    /// Of these, the ones that are left out.
    #[serde(default, skip_serializing_if = "is_none")]
    pub exclude: Selectors,
    /// A process joins when it has so much resident memory. Processes that are named by their ID join at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rss: Option<Size>,
    /// Whether the descendants of the processes join, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub children: bool,
    /// Metrics name cgroups that have at least so much memory of the group. The others are added up.
    #[serde(default = "tens_of_mebibytes")]
    pub cgroups_above: Size,
    /// Each cgroup with at least so much memory of the group is a group, too, named after its unit or container. It is
    /// watched in the same manner, and nothing is done to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each_cgroup_above: Option<Size>,
    /// How accessed pages are found.
    #[serde(default)]
    pub probe: ProbeName,
    /// How often all pages are read: `auto`, `off`, or a time of at least 100 ms.
    #[serde(default = "auto")]
    pub survey: String,
    /// The monitoring attributes. What is left out follows from what is observed and from the budget.
    #[serde(default)]
    pub attributes: AttributeSettings,
    /// The share of one CPU that the processes may lose because they set accessed bits again. Without it, the group has
    /// its part of that of all groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_budget: Option<Share>,
    /// Whether schemes may change memory. Without it, only schemes with the action `stat` are allowed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub act: bool,
    /// Whether each cgroup of the group is limited to its right size: `memory.high` is let down to what it has needed
    /// over a day and a margin, and becomes what it was when the cgroup waits for memory. Needs `act: true`, processes
    /// that are selected by cgroup, unit or container, and a history.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub right_size: bool,
    /// Schemes, as in a scheme file: a list of objects, or its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schemes: Option<serde_json::Value>,
    /// A file of schemes, which is read again when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme_file: Option<PathBuf>,
    /// What all schemes together may do at most, those of a file and of requests, too.
    #[serde(default)]
    pub limits: Limits,
    /// A recording that is made as long as the group is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<PathBuf>,
}

/// The monitoring attributes of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttributeSettings {
    /// The sampling interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Time>,
    /// The aggregation interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<Time>,
    /// The update interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Time>,
    /// The number of regions of all processes of the group together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regions: Option<Regions>,
}

/// What the schemes of a group may do at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// The bytes that all schemes together act on in a second, on the mean. No more than that is done at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<Size>,
    /// The most bytes that may be out: what the processes have in swap, whoever has put it there, and what `pageout`
    /// has taken from them that is neither in swap nor in their memory again, as memory of files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_out: Option<Size>,
}

impl Limits {
    /// Both, where each may lack a bound.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let least = |one: Option<Size>, other: Option<Size>| match (one, other) {
            (Some(Size(one)), Some(Size(other))) => Some(Size(one.min(other))),
            (one, other) => one.or(other),
        };
        Self {
            bytes_per_second: least(self.bytes_per_second, other.bytes_per_second),
            most_out: least(self.most_out, other.most_out),
        }
    }
}

impl From<Limits> for scheme::Limits {
    fn from(Limits { bytes_per_second, most_out }: Limits) -> Self {
        let bytes = |size: Option<Size>| size.map(|Size(bytes)| bytes);
        Self { bytes_per_second: bytes(bytes_per_second), most_out: bytes(most_out) }
    }
}

/// How accessed pages are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProbeName {
    /// The best that works here: `idle`, then `bpf`, then `refs`.
    #[default]
    Auto,
    /// Idle page tracking.
    Idle,
    /// Page tables, read by eBPF.
    Bpf,
    /// `/proc/PID/clear_refs` and `smaps`: whole mappings.
    Refs,
}

fn is_none(selectors: &Selectors) -> bool {
    *selectors == Selectors::default()
}

fn tens_of_mebibytes() -> Size {
    Size(64 << 20)
}

fn auto() -> String {
    "auto".into()
}

/// The longest name of a group.
pub const LONGEST_NAME: usize = 64;

/// In which manner a group is watched. Groups with the same one share a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Manner {
    attributes: AttributeSettings,
    probe: ProbeName,
    survey: String,
    target_budget: Option<Share>,
    /// Whether its schemes compare access rates, so that the sampling interval stays as they need it.
    pub compares_rates: bool,
}

impl GroupSettings {
    /// Whether the group watches processes, and not other memory.
    pub fn is_of_processes(&self) -> bool {
        !self.physical && self.files.is_empty()
    }

    /// What the group watches: `processes`, `physical memory` or `files`.
    pub fn watched(&self) -> &'static str {
        match (self.physical, self.files.is_empty()) {
            (true, _) => "physical memory",
            (false, true) => "processes",
            (false, false) => "files",
        }
    }

    /// The first field that is given and about processes.
    fn field_of_processes(&self) -> Option<&'static str> {
        let fields = [
            ("select", !is_none(&self.select)),
            ("exclude", !is_none(&self.exclude)),
            ("min_rss", self.min_rss.is_some()),
            ("children", self.children),
            ("each_cgroup_above", self.each_cgroup_above.is_some()),
            ("right_size", self.right_size),
        ];
        fields.into_iter().find(|(_, is_given)| *is_given).map(|(field, _)| field)
    }
}

/// A group that was checked.
#[derive(Clone, Debug)]
pub struct Group {
    /// What its configuration says.
    pub settings: GroupSettings,
    selection: Selection,
    survey: SurveyChoice,
    schemes: Vec<Scheme>,
}

impl Group {
    /// Checks what a configuration says of a group, which is in `node`.
    pub(super) fn new(settings: GroupSettings, node: &Node, diagnostics: &mut Diagnostics) -> Option<Self> {
        let at = |field: &str| node.get(field).unwrap_or(node).position;
        let name = &settings.name;
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > LONGEST_NAME || name.starts_with('.') || !name.chars().all(is_allowed) {
            let message = format!("{name:?} is no name of a group; use up to 64 letters, digits, - _ and .");
            return diagnostics.fail(at("name"), message);
        }
        if settings.physical && !settings.files.is_empty() {
            return diagnostics.fail(at("files"), "a group watches physical memory or files; make two groups");
        }
        if let Some(field) = settings.field_of_processes().filter(|_| !settings.is_of_processes()) {
            let message = format!("the group watches {}, and no processes; leave out {field}", settings.watched());
            return diagnostics.fail(at(field), message);
        }
        let is_of_processes = settings.is_of_processes();
        let any = match settings.select.resolve() {
            Ok(any) if any.is_empty() && is_of_processes => {
                let message =
                    "the group selects nothing; write all: true, name processes, or say physical: true or files";
                return diagnostics.fail(at("select"), message);
            }
            Ok(any) => any,
            Err(why) => return diagnostics.fail(at("select"), why),
        };
        let except = match settings.exclude.resolve() {
            Ok(except) => except,
            Err(why) => return diagnostics.fail(at("exclude"), why),
        };
        let survey = match &*settings.survey {
            "auto" => SurveyChoice::Auto,
            "off" => SurveyChoice::Off,
            time => match isotherm_core::units::parse_duration(time) {
                Ok(time) => SurveyChoice::Every(time),
                Err(error) => return diagnostics.fail(at("survey"), error.to_string()),
            },
        };
        let schemes = match (node.get("schemes"), &settings.schemes) {
            (Some(node), Some(serde_json::Value::String(text))) => match isotherm_scheme::parse("schemes", text) {
                Ok(schemes) => schemes,
                Err(why) => return diagnostics.fail(node.position, why.to_string()),
            },
            (Some(node), Some(_)) => form::schemes(node, diagnostics),
            _ => Vec::new(),
        };
        if settings.schemes.is_some() && settings.scheme_file.is_some() {
            return diagnostics.fail(at("scheme_file"), "the group has schemes and a scheme file; leave one out");
        }
        if settings.scheme_file.is_some() && !settings.act {
            return diagnostics.fail(at("scheme_file"), "a scheme file may change memory; add act: true to the group");
        }
        if settings.right_size && !settings.act {
            return diagnostics.fail(at("right_size"), "right_size sets limits of cgroups; add act: true to the group");
        }
        if settings.right_size && settings.scheme_file.is_some() {
            return diagnostics.fail(at("scheme_file"), "right_size and a scheme file exclude each other; use schemes");
        }
        if settings.right_size && settings.min_rss.is_some() {
            return diagnostics.fail(at("min_rss"), "right_size needs all processes of the cgroups; leave out min_rss");
        }
        let schemes = with_limit(&settings, schemes);
        let least_resident = settings.min_rss.map_or(0, |size| size.0);
        let selection = Selection { any, except, least_resident, children: settings.children, ..Selection::default() };
        let group = Self { settings, selection, survey, schemes };
        if group.settings.right_size
            && let Err(why) = group.selection.names_cgroups()
        {
            return diagnostics.fail(at("right_size"), why.to_string());
        }
        if let Err(why) = group.check_schemes(&group.schemes) {
            return diagnostics.fail(at("schemes"), why);
        }
        match group.run(None).validate() {
            Ok(()) => Some(group),
            Err(error) => diagnostics.fail(node.position, error.to_string()),
        }
    }

    /// The schemes that it has inline.
    pub fn schemes(&self) -> &[Scheme] {
        &self.schemes
    }

    /// The group with other schemes. `written` is what they are in a configuration.
    ///
    /// # Errors
    /// Those of [`Group::check_schemes`].
    pub fn with_schemes(&self, schemes: Vec<Scheme>, written: serde_json::Value) -> Result<Self, String> {
        self.check_schemes(&schemes)?;
        let settings = GroupSettings { schemes: Some(written), ..self.settings.clone() };
        let schemes = with_limit(&settings, schemes);
        Ok(Self { settings, schemes, ..self.clone() })
    }

    /// Checks that the group may have these schemes.
    ///
    /// # Errors
    /// If they change memory, and the group may not.
    pub fn check_schemes(&self, schemes: &[Scheme]) -> Result<(), String> {
        match schemes.iter().find(|scheme| scheme.action.changes_memory() && !self.settings.act) {
            Some(scheme) => Err(format!(
                "the scheme {} changes memory; add act: true to the group, or use the action stat",
                scheme.name
            )),
            None => Ok(()),
        }
    }

    /// Whether the other one watches the same in the same way, so that schemes alone may differ.
    pub fn watches_as(&self, other: &Self) -> bool {
        let plain = |of: &Self| GroupSettings {
            schemes: None,
            cgroups_above: Size(0),
            each_cgroup_above: None,
            ..of.settings.clone()
        };
        // What was prepared without schemes takes none later.
        let has_schemes = |of: &Self| (of.schemes.is_empty(), of.manner());
        plain(self) == plain(other) && has_schemes(self) == has_schemes(other)
    }

    /// In which manner it is watched, if it can share a run with other groups: not if it has descendants of processes,
    /// nor if its schemes are in a file, which may come to need other intervals, nor if it watches no processes.
    pub fn manner(&self) -> Option<Manner> {
        let settings = &self.settings;
        if !settings.is_of_processes() {
            return None;
        }
        // Whether this probe samples or surveys depends on whether there are schemes.
        let by_mapping = settings.probe == ProbeName::Refs && !self.schemes.is_empty();
        let shares = !settings.children && settings.scheme_file.is_none() && !by_mapping;
        shares.then(|| Manner {
            attributes: settings.attributes,
            probe: settings.probe,
            survey: settings.survey.clone(),
            target_budget: settings.target_budget,
            compares_rates: self.schemes.iter().any(|scheme| scheme.longest_aggregation().is_none()),
        })
    }

    /// The group of this name for a cgroup that has much memory of this one.
    pub fn of_cgroup(&self, name: &str, path: &str) -> Option<Self> {
        let glob = Glob::escape(path);
        let any = vec![Selector::Cgroup(Glob::new(&glob).ok()?)];
        let settings = GroupSettings {
            name: name.into(),
            select: Selectors { cgroup: vec![glob], ..Selectors::default() },
            each_cgroup_above: None,
            children: false,
            act: false,
            right_size: false,
            schemes: None,
            scheme_file: None,
            limits: Limits::default(),
            recording: None,
            ..self.settings.clone()
        };
        let selection = Selection { any, children: false, ..self.selection.clone() };
        Some(Self { settings, selection, survey: self.survey, schemes: Vec::new() })
    }

    /// The processes of the group.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Its schemes, as a run takes them.
    pub fn scheme_options(&self) -> Option<SchemeOptions> {
        let schemes = match &self.settings.scheme_file {
            Some(path) => Some(SchemeSource::File(path.clone())),
            None => (!self.schemes.is_empty()).then(|| SchemeSource::Fixed(self.schemes.clone())),
        };
        let limits = SchemeLimits::default().with(self.settings.limits.into());
        // Without sizes, no cgroup is limited.
        let least_limits = self.settings.right_size.then(LeastLimits::default);
        schemes.map(|schemes| SchemeOptions { memory_use: true, limits, least_limits, ..SchemeOptions::new(schemes) })
    }

    /// The attributes that it asks for.
    ///
    /// # Errors
    /// If they contradict each other.
    pub fn attributes(&self, granularity: Granularity) -> Result<isotherm_core::Attributes, String> {
        options(self.settings.attributes).resolve(granularity).map_err(|error| error.to_string())
    }

    /// The run that watches the group, on a budget of all groups.
    pub fn run(&self, allowance: Option<Allowance>) -> RunConfig {
        let targets = if self.settings.physical {
            Targets::Physical { ranges: Vec::new(), nodes: Vec::new(), during: None }
        } else if self.settings.files.is_empty() {
            let (selection, waits) = (self.selection.clone(), self.selection.is_open());
            Targets::Processes { selection, waits, part: isotherm_run::Part::default() }
        } else {
            Targets::Files(WatchedFiles::At(self.settings.files.clone()))
        };
        let probe = match self.settings.probe {
            ProbeName::Auto => ProbeChoice::Auto,
            ProbeName::Idle => ProbeChoice::Idle,
            ProbeName::Bpf => ProbeChoice::Bpf,
            ProbeName::Refs => ProbeChoice::Refs,
        };
        let budget = self.settings.target_budget.map(|Share(targets)| Budget { targets, ..Budget::default() });
        RunConfig {
            attributes: options(self.settings.attributes),
            survey: self.survey,
            intervals: IntervalsChoice::Auto,
            budget,
            allowance,
            start: isotherm_core::Start::Gentle,
            scheduling: Scheduling::default(),
            schemes: self.scheme_options(),
            ..RunConfig::new(Source::Live { targets, probe })
        }
    }
}

/// The scheme that limits cgroups to their right sizes, after it has reclaimed what was idle for `age`.
pub fn right_size_scheme(age: Duration) -> Vec<Scheme> {
    let text = format!("- {{name: right-size, action: limit, access_rate: 0%, age: {}s..}}\n", age.as_secs());
    isotherm_scheme::parse("right_size", &text).unwrap_or_default()
}

/// The schemes of a group, and the one that its right size needs.
fn with_limit(settings: &GroupSettings, mut schemes: Vec<Scheme>) -> Vec<Scheme> {
    if settings.right_size && schemes.iter().all(|scheme| scheme.action.limit().is_none()) {
        schemes.extend(right_size_scheme(WINDOW));
    }
    schemes
}

/// The attributes as a run takes them.
fn options(of: AttributeSettings) -> AttributeOptions {
    let time = |time: Option<Time>| -> Option<Duration> { time.map(|Time(time)| time) };
    AttributeOptions {
        sampling: time(of.sample),
        aggregation: time(of.aggregate),
        update: time(of.update),
        regions: of.regions.map(|Regions((least, most))| (least as usize, most as usize)),
    }
}
