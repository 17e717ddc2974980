//! The configuration of the daemon: what is watched in which groups, what is done to it, and who may change that.
//!
//! It is YAML. Each error has its place in the file. `isotherm schema daemon` prints the JSON Schema, which is derived
//! from the types here. A group that a program makes by the control socket is read by the same code.

mod group;
mod quantity;
mod select;

use std::path::{Path, PathBuf};

use isotherm_core::Shares;
use isotherm_scheme::form::Node;
use isotherm_scheme::{Diagnostics, Document};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};

use crate::cri::path_of;

pub use group::{AttributeSettings, Group, GroupSettings, LONGEST_NAME, Limits, Manner, ProbeName, right_size_scheme};
pub use quantity::{Regions, Share, Size, Time};
pub use select::Selectors;

/// The configuration that is in force without a file.
pub const DEFAULT: &str = include_str!("default.yaml");

/// Where the configuration is unless another file is named.
pub const PATH: &str = "/etc/isotherm/isotherm.yaml";

/// What a configuration says, as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The share of one CPU that all groups together may take.
    #[serde(default = "one_percent")]
    pub cpu_budget: Share,
    /// The share of one CPU that watched processes may lose to setting accessed bits again. Groups whose
    /// `target_budget` says something else have that for themselves.
    #[serde(default = "half_a_percent")]
    pub target_budget: Share,
    /// The Unix socket of the control interface.
    #[serde(default = "socket")]
    pub socket: PathBuf,
    /// The users, besides root, who may change something by the control socket: names or user IDs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub may_change: Vec<String>,
    /// The socket of a container runtime (CRI), such as `/run/containerd/containerd.sock`, to ask for the names of pods
    /// and containers. Without it, the names are those in files of runtimes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cri: Option<PathBuf>,
    /// What the schemes of each group together may do at most, whatever the group says. Groups of requests, too.
    #[serde(default)]
    pub limits: Limits,
    /// Where metrics can be had besides the control socket.
    #[serde(default)]
    pub metrics: MetricsSettings,
    /// The live page, for browsers.
    #[serde(default)]
    pub page: PageSettings,
    /// What is kept of the past.
    #[serde(default)]
    pub history: HistorySettings,
    /// Where the history goes, by the minute, for questions about many hosts.
    #[serde(default)]
    pub fleet: FleetSettings,
    /// What is watched. Without it, what the embedded configuration watches; `[]` for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<GroupSettings>>,
}

impl Settings {
    /// What all groups together may take, and what the watched processes may lose.
    pub const fn budget(&self) -> Shares {
        Shares { cpu: self.cpu_budget.0, targets: self.target_budget.0 }
    }
}

/// Where metrics can be had besides the control socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricsSettings {
    /// A loopback address and a port, such as `127.0.0.1:9753`, for `/metrics` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// A file for the textfile collector of Prometheus's node exporter, written every 15 s. Its name ends in `.prom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub textfile: Option<PathBuf>,
    /// A directory that mirrors the paths of cgroups, with a file `memory.idle_page_stats` for each, as kidled makes
    /// them in the cgroups themselves. They are written every minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_page_stats: Option<PathBuf>,
}

/// The live page, for browsers. It changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PageSettings {
    /// An address and a port where the page can be had besides the control socket, such as `127.0.0.1:9754`. All users
    /// of the machine can read it there, unless there is a token. Any but a loopback address needs a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// A file with a token of at least 16 letters, digits and signs, which everybody has to know who reads the page by
    /// TCP. Other users may not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Names under which browsers reach the daemon, such as that of a proxy. Addresses and `localhost` need no name
    /// here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

/// What is kept of the past.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HistorySettings {
    /// The directory. There is no history if it is null.
    #[serde(default = "state_directory")]
    pub directory: Option<PathBuf>,
    /// For how long each snapshot is kept.
    #[serde(default = "an_hour")]
    pub seconds: Time,
    /// For how long a snapshot for each minute is kept.
    #[serde(default = "a_week")]
    pub minutes: Time,
    /// For how long a snapshot for each hour is kept.
    #[serde(default = "a_year")]
    pub hours: Time,
    /// The most bytes of the history of all groups together. The oldest files go first.
    #[serde(default = "a_gibibyte")]
    pub size: Size,
}

/// Where the history goes, by the minute, for questions about many hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FleetSettings {
    /// The dataset: the path of a folder, or a URL such as `s3://bucket/prefix`. Each quarter of an hour is written
    /// when it is over. Without it, none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<PathBuf>,
}

impl Default for HistorySettings {
    fn default() -> Self {
        let (seconds, minutes, hours) = (an_hour(), a_week(), a_year());
        Self { directory: state_directory(), seconds, minutes, hours, size: a_gibibyte() }
    }
}

const HOUR: u64 = 3600;

fn one_percent() -> Share {
    Share(0.01)
}

fn half_a_percent() -> Share {
    Share(0.005)
}

fn socket() -> PathBuf {
    "/run/isotherm/api.sock".into()
}

fn state_directory() -> Option<PathBuf> {
    Some("/var/lib/isotherm".into())
}

fn an_hour() -> Time {
    Time(std::time::Duration::from_secs(HOUR))
}

fn a_week() -> Time {
    Time(std::time::Duration::from_secs(7 * 24 * HOUR))
}

fn a_year() -> Time {
    Time(std::time::Duration::from_secs(365 * 24 * HOUR))
}

fn a_gibibyte() -> Size {
    Size(1 << 30)
}

/// What the groups of a daemon may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Watch, and act where they say so.
    Act,
    /// Watch.
    Watch,
}

impl Rights {
    /// Whether a group may be what it is.
    ///
    /// # Errors
    /// Why it may not.
    pub fn allow(self, group: &GroupSettings) -> Result<(), String> {
        if self == Self::Act || !group.act {
            return Ok(());
        }
        Err("this daemon only watches (--watch-only); leave out act: true, or start the one that acts: \
             systemctl enable --now isotherm-act"
            .into())
    }
}

/// A configuration that was checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// What it says.
    pub settings: Settings,
    /// The groups, in the order of the file. No two have one name.
    pub groups: Vec<Group>,
    /// The IDs of the users, besides root, who may change something.
    pub may_change: Vec<u32>,
}

impl Config {
    /// Reads the file at `path`, or the embedded configuration.
    ///
    /// # Errors
    /// If the file cannot be read, and as [`Config::parse`].
    pub fn read(path: Option<&Path>, rights: Rights) -> Result<Self, Diagnostics> {
        match path {
            Some(path) => Self::parse(&path.display().to_string(), &isotherm_scheme::read_text(path)?, rights),
            None => Self::parse("default.yaml", DEFAULT, rights),
        }
    }

    /// Reads a configuration. `file` is its name in messages.
    ///
    /// # Errors
    /// What is wrong in the text, with its place; a group that acts, without the right to.
    pub fn parse(file: &str, text: &str, rights: Rights) -> Result<Self, Diagnostics> {
        tree(file, text, |root, diagnostics| {
            let settings: Settings = root.typed(diagnostics)?;
            let nodes = settings.groups.as_ref().and(root.get("groups"));
            let nodes = nodes.and_then(|node| node.items("groups", diagnostics)).unwrap_or_default();
            let mut groups: Vec<Group> = Vec::new();
            if settings.groups.is_none() {
                groups.extend(Self::read(None, rights).map(|default| default.groups).unwrap_or_default());
            }
            for (group, node) in settings.groups.iter().flatten().zip(nodes) {
                if groups.iter().any(|known| known.settings.name == group.name) {
                    let message = format!("two groups have the name {:?}", group.name);
                    return diagnostics.fail(node.position, message);
                }
                if let Err(why) = rights.allow(group) {
                    return diagnostics.fail(node.get("act").unwrap_or(node).position, why);
                }
                if group.right_size && settings.history.directory.is_none() {
                    let at = node.get("right_size").unwrap_or(node).position;
                    return diagnostics.fail(at, "right_size needs a history; set history.directory");
                }
                groups.extend(Group::new(group.clone(), node, diagnostics));
            }
            if let Some(to) = &settings.fleet.to {
                let node = root.get("fleet").and_then(|node| node.get("to")).unwrap_or(root);
                if settings.history.directory.is_none() {
                    return diagnostics.fail(node.position, "fleet needs a history; set history.directory");
                }
                if to.is_relative() && !to.to_string_lossy().contains("://") {
                    let message = format!("{to:?} is neither an absolute path nor a URL such as s3://bucket/prefix");
                    return diagnostics.fail(node.position, message);
                }
            }
            if let Some(socket) = settings.cri.as_ref().filter(|socket| !path_of(socket).is_absolute()) {
                let message = format!("{socket:?} is no absolute path, such as /run/containerd/containerd.sock");
                return diagnostics.fail(root.get("cri").unwrap_or(root).position, message);
            }
            if let Some(address) = &settings.metrics.listen {
                let node = root.get("metrics").and_then(|node| node.get("listen")).unwrap_or(root);
                let parsed = address.parse::<std::net::SocketAddr>();
                if !parsed.is_ok_and(|address| address.ip().is_loopback()) {
                    let message = format!("{address:?} is no loopback address with a port, such as 127.0.0.1:9753");
                    return diagnostics.fail(node.position, message);
                }
            }
            if let Some(address) = &settings.page.listen {
                let node = root.get("page").and_then(|node| node.get("listen")).unwrap_or(root);
                let message = match address.parse::<std::net::SocketAddr>() {
                    Ok(address) if address.ip().is_loopback() || settings.page.token_file.is_some() => None,
                    Ok(_) => Some(format!("{address:?} is no loopback address; that needs a token_file")),
                    Err(_) => Some(format!("{address:?} is no address with a port, such as 127.0.0.1:9754")),
                };
                if let Some(message) = message {
                    return diagnostics.fail(node.position, message);
                }
            }
            let names = root.get("may_change").and_then(|node| node.items("users", diagnostics)).unwrap_or_default();
            let mut may_change = Vec::new();
            for (name, node) in settings.may_change.iter().zip(names) {
                may_change.extend(select::user_id(name).map_or_else(|why| diagnostics.fail(node.position, why), Some));
            }
            Some(Self { settings, groups, may_change })
        })
    }
}

impl Group {
    /// Reads one group, such as one that a program makes. `file` is its name in messages.
    ///
    /// # Errors
    /// What is wrong in the text, with its place.
    pub fn parse(file: &str, text: &str) -> Result<Self, Diagnostics> {
        tree(file, text, |root, diagnostics| {
            let settings: GroupSettings = root.typed(diagnostics)?;
            Self::new(settings, root, diagnostics)
        })
    }
}

/// What `read` makes of the tree of values in a text.
fn tree<T>(file: &str, text: &str, read: impl FnOnce(&Node, &mut Diagnostics) -> Option<T>) -> Result<T, Diagnostics> {
    let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let text = if text.lines().all(is_blank) { "{}" } else { text };
    Document::parse(file, text)?.read_root("a map with fields such as groups", read)
}

/// The JSON Schema of a configuration.
pub fn schema() -> serde_json::Value {
    let settings = SchemaSettings::draft2020_12();
    let mut schema = settings.into_generator().into_root_schema_for::<Settings>();
    schema.insert("title".into(), "The configuration of isotherm daemon".into());
    schema.to_value()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests;
