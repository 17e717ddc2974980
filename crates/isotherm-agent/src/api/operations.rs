//! The table of operations, and what each does.

use std::collections::BTreeMap;

use isotherm_core::survey::WINDOWS;
use isotherm_core::units;
use isotherm_report::{Format, GroupBy, Kind, Measure, Options, SelectedTarget, Selection, SummarySort};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::answer::{ARROW, EVENTS, HTML, JSON, SVG};
use super::page::{self, PAGE};
use super::{Answer, Call, Make, Operation, Problem};
use crate::advice::Advice;
use crate::config::{AttributeSettings, Group, GroupSettings, Time};
use crate::daemon::Daemon;
use crate::overview::{Overview, Trend};
use crate::view::{self, FedGoal, GroupStatus, Health, SchemeStatus, SnapshotView, TargetView, Version};

/// The name of a moment.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MarkRequest {
    /// The text.
    pub text: String,
}

/// A recording that is to be made.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordingRequest {
    /// Its name: letters, digits, `-`, `_` and `.`.
    pub name: String,
}

/// A recording of a group.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct RecordingView {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub path: String,
}

/// Schemes that are to be put in force, as in a scheme file.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SchemesRequest {
    /// The schemes.
    pub schemes: Vec<serde_json::Value>,
}

/// A value of a metric.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FeedRequest {
    /// The value.
    pub value: f64,
    /// For how long it is valid, such as `30s`. Without it, until another one is fed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_for: Option<Time>,
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const fn json(schema: Make) -> Option<(&'static str, Option<Make>)> {
    Some((JSON, Some(schema)))
}

const GET: Operation = Operation {
    method: "GET",
    path: "",
    about: "",
    query: &[],
    body: None,
    answer: None,
    is_logged: true,
    run: |_, _| Ok(Answer::Done),
};
const POST: Operation = Operation { method: "POST", ..GET };
const PUT: Operation = Operation { method: "PUT", ..GET };
const DELETE: Operation = Operation { method: "DELETE", ..GET };

/// The media type of metrics.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The media type of metrics in the older format.
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

const LAST: (&str, &str) = ("last", "The length of the time that it is on, such as 1h. Without it, all that is kept.");
const FROM: (&str, &str) = ("from", "The begin of that time, in milliseconds since the Unix epoch.");
const TO: (&str, &str) = ("to", "The end of that time, in milliseconds since the Unix epoch. Without it, now.");

/// What may be asked.
pub const OPERATIONS: &[Operation] = &[
    Operation {
        path: "/v1/health",
        about: "Whether the daemon does what it was told",
        answer: json(of::<Health>),
        run: |daemon, _| Answer::json(&daemon.health()),
        ..GET
    },
    Operation {
        path: "/v1/version",
        about: "Which isotherm this is",
        answer: json(of::<Version>),
        run: |_, _| {
            let recording_format = isotherm_record::FORMAT;
            Answer::json(&Version { version: env!("CARGO_PKG_VERSION").into(), recording_format })
        },
        ..GET
    },
    Operation {
        path: "/v1/openapi.json",
        about: "This description",
        answer: Some((JSON, None)),
        run: |_, _| Answer::json(&super::document()),
        ..GET
    },
    Operation {
        path: "/metrics",
        about: "Metrics, as the daemon last took them",
        query: &[("format", "openmetrics, or text for the older format of Prometheus. Without it, OpenMetrics.")],
        answer: Some((OPENMETRICS, None)),
        run: |daemon, call| metrics(daemon, call.query.get("format").map(String::as_str)),
        ..GET
    },
    Operation { path: PAGE, about: "The live page, for browsers", answer: Some((HTML, None)), run: page::page, ..GET },
    Operation {
        path: "/v1/overview",
        about: "What is known of all groups",
        answer: json(of::<Overview>),
        run: |daemon, _| Answer::json(&daemon.overviews.take(daemon)),
        ..GET
    },
    Operation {
        path: "/v1/overview/events",
        about: "The same each second, server-sent",
        answer: Some((EVENTS, None)),
        run: |daemon, _| Ok(Answer::Stream(daemon.streams.open()?, daemon.overviews.subscribe())),
        ..GET
    },
    Operation {
        path: "/v1/trends",
        about: "The memory of each group over the last hour, by the name of the group",
        answer: json(of::<BTreeMap<String, Trend>>),
        run: |daemon, _| Answer::json(&daemon.overviews.trends()),
        ..GET
    },
    Operation {
        path: "/v1/advice",
        about: "How much memory each cgroup should have that is a group of its own, and why",
        answer: json(of::<Vec<Advice>>),
        run: |daemon, _| Answer::json(&daemon.advice_on_all()?),
        ..GET
    },
    Operation {
        path: "/v1/reload",
        about: "Reads the configuration again, and puts it in force if it is right",
        run: |daemon, _| {
            daemon.reload()?;
            Ok(Answer::Done)
        },
        ..POST
    },
    Operation {
        path: "/v1/groups",
        about: "All groups",
        answer: json(of::<Vec<GroupStatus>>),
        run: |daemon, _| {
            let groups = daemon.groups.all();
            Answer::json(&groups.iter().map(|(name, group)| group.status(name)).collect::<Vec<_>>())
        },
        ..GET
    },
    Operation {
        path: "/v1/groups",
        about: "Makes a group",
        body: Some(of::<GroupSettings>),
        answer: json(of::<GroupStatus>),
        run: |daemon, call| {
            let group = Group::parse("body", &call.body)?;
            let name = group.settings.name.clone();
            Answer::json(&daemon.groups.make(group)?.status(&name))
        },
        ..POST
    },
    Operation {
        path: "/v1/groups/{group}",
        about: "A group",
        answer: json(of::<GroupStatus>),
        run: |daemon, call| Answer::json(&daemon.groups.get(call.group())?.status(call.group())),
        ..GET
    },
    Operation {
        path: "/v1/groups/{group}",
        about: "Gives a group another configuration",
        body: Some(of::<GroupSettings>),
        answer: json(of::<GroupStatus>),
        run: |daemon, call| {
            let group = Group::parse("body", &call.body)?;
            if group.settings.name != call.group() {
                return Err(Problem::new(422, "the name in the body is not that of the group"));
            }
            Answer::json(&daemon.groups.replace(group)?.status(call.group()))
        },
        ..PUT
    },
    Operation {
        path: "/v1/groups/{group}",
        about: "Ends a group. Its history stays",
        run: |daemon, call| {
            daemon.groups.delete(call.group())?;
            Ok(Answer::Done)
        },
        ..DELETE
    },
    Operation {
        path: "/v1/groups/{group}/pause",
        about: "Watches nothing of the group until it is resumed",
        run: |daemon, call| {
            daemon.groups.get(call.group())?.pause();
            Ok(Answer::Done)
        },
        ..POST
    },
    Operation {
        path: "/v1/groups/{group}/resume",
        about: "Watches a group again that is paused or has ended",
        run: |daemon, call| {
            let group = daemon.groups.get(call.group())?;
            daemon.groups.resume(&group);
            Ok(Answer::Done)
        },
        ..POST
    },
    Operation {
        path: "/v1/groups/{group}/attributes",
        about: "Changes the attributes from the next aggregation on. What is left out stays",
        body: Some(of::<AttributeSettings>),
        run: |daemon, call| {
            let group = daemon.groups.get(call.group())?;
            daemon.groups.set_attributes(&group, call.body()?)?;
            Ok(Answer::Done)
        },
        ..PUT
    },
    Operation {
        path: "/v1/groups/{group}/targets",
        about: "The processes of the group, each with its memory",
        answer: json(of::<Vec<TargetView>>),
        run: |daemon, call| Answer::json(&view::targets(&daemon.groups.get(call.group())?.hub.known())),
        ..GET
    },
    Operation {
        path: "/v1/groups/{group}/schemes",
        about: "The schemes of the group, each with what it has done",
        answer: json(of::<Vec<SchemeStatus>>),
        run: |daemon, call| Answer::json(&view::schemes(&daemon.groups.get(call.group())?.hub.known())),
        ..GET
    },
    Operation {
        path: "/v1/groups/{group}/schemes",
        about: "Puts other schemes in force, within the limits of the group",
        body: Some(of::<SchemesRequest>),
        run: |daemon, call| {
            let group = daemon.groups.get(call.group())?;
            let schemes = isotherm_scheme::parse("body", &call.body)?;
            // Lines, as in DAMON's papers, are kept as they are.
            let written = call.body::<SchemesRequest>().map(|body| body.schemes.into());
            let written = written.unwrap_or_else(|_| call.body.clone().into());
            daemon.groups.set_schemes(&group, schemes, written)?;
            Ok(Answer::Done)
        },
        ..PUT
    },
    Operation {
        path: "/v1/groups/{group}/fed",
        about: "The goals of schemes that are about metrics which programs feed, each with its value",
        answer: json(of::<Vec<FedGoal>>),
        run: |daemon, call| Answer::json(&daemon.groups.get(call.group())?.fed_goals()),
        ..GET
    },
    Operation {
        path: "/v1/groups/{group}/fed/{metric}",
        about: "Gives a metric a value that goals of schemes are about",
        body: Some(of::<FeedRequest>),
        // A program may feed it each second.
        is_logged: false,
        run: |daemon, call| {
            let FeedRequest { value, valid_for } = call.body()?;
            let metric = call.path.get(1).map(String::as_str).unwrap_or_default();
            daemon.groups.get(call.group())?.feed(metric, value, valid_for.map(|Time(time)| time))?;
            Ok(Answer::Done)
        },
        ..PUT
    },
    Operation {
        path: "/v1/groups/{group}/snapshot",
        about: "The newest snapshot, with all regions",
        answer: json(of::<SnapshotView>),
        run: |daemon, call| {
            let known = daemon.groups.get(call.group())?.hub.known();
            match &known.snapshot {
                Some(record) => Answer::json(&SnapshotView::new(record, known.started_unix_ns())),
                None => Err(Problem::new(404, "there is no snapshot yet")),
            }
        },
        ..GET
    },
    Operation {
        path: "/v1/groups/{group}/events",
        about: "Events from now on, server-sent",
        answer: Some((EVENTS, None)),
        run: |daemon, call| {
            let group = daemon.groups.get(call.group())?;
            Ok(Answer::Stream(daemon.streams.open()?, group.hub.subscribe()))
        },
        ..GET
    },
    Operation {
        path: "/v1/groups/{group}/recording",
        about: "A recording of the group from now on, as a stream",
        answer: Some((ARROW, None)),
        run: |daemon, call| {
            let group = daemon.groups.get(call.group())?;
            Ok(Answer::Recording(daemon.streams.open()?, Box::new(group.hub.follow()?)))
        },
        ..GET
    },
    Operation {
        path: "/v1/groups/{group}/marks",
        about: "Gives this moment a name",
        body: Some(of::<MarkRequest>),
        run: |daemon, call| {
            let MarkRequest { text } = call.body()?;
            daemon.groups.get(call.group())?.mark(&text)?;
            Ok(Answer::Done)
        },
        ..POST
    },
    Operation {
        path: "/v1/groups/{group}/recordings",
        about: "Starts a recording of the group, in the directory of the history",
        body: Some(of::<RecordingRequest>),
        answer: json(of::<RecordingView>),
        run: |daemon, call| {
            let RecordingRequest { name } = call.body()?;
            let path = daemon.recording(&name)?;
            daemon.groups.get(call.group())?.hub.record(&name, &path)?;
            Answer::json(&RecordingView { name, path: path.display().to_string() })
        },
        ..POST
    },
    Operation {
        path: "/v1/groups/{group}/recordings/{name}",
        about: "Ends a recording",
        run: |daemon, call| {
            let name = call.path.get(1).map(String::as_str).unwrap_or_default();
            match daemon.groups.get(call.group())?.hub.end_recording(name) {
                Ok(true) => Ok(Answer::Done),
                Ok(false) => Err(Problem::new(404, format!("no recording {name:?} is being made"))),
                Err(error) => Err(Problem::new(500, isotherm_core::chain(&*error))),
            }
        },
        ..DELETE
    },
    Operation {
        path: "/v1/groups/{group}/advice",
        about: "How much memory each cgroup of the group should have, and why",
        answer: json(of::<Vec<Advice>>),
        run: |daemon, call| Answer::json(&daemon.advice(call.group())?),
        ..GET
    },
    Operation {
        path: "/v1/groups/{group}/heatmap",
        about: "What the live page draws of the group. It may change with each version",
        query: &[LAST, FROM, TO],
        answer: Some((JSON, None)),
        run: page::heatmap,
        ..GET
    },
    Operation {
        path: "/v1/groups/{group}/live",
        about: "What the live page draws of the last time, and then each column that changes, server-sent",
        query: &[LAST],
        answer: Some((EVENTS, None)),
        run: page::live,
        ..GET
    },
    Operation {
        path: "/v1/groups/{group}/reports/{kind}",
        about: "A report on what is kept of the group",
        query: &[
            LAST,
            FROM,
            TO,
            ("format", "The format, such as json or text. Without it, JSON if the report has it."),
            ("target", "Only the target with this process ID."),
            ("hot", "How often hot memory is accessed at least, such as 10Hz."),
            ("by", "What memory is grouped by, such as process, command or cgroup."),
            ("window", "The window of the working set, such as 10s."),
            ("measure", "What a heatmap shows."),
            ("sort", "What groups and mappings of a summary are sorted by."),
        ],
        answer: Some(("*/*", None)),
        run: report,
        ..GET
    },
];

/// The metrics in this format.
pub(crate) fn metrics(daemon: &Daemon, format: Option<&str>) -> Result<Answer, Problem> {
    match format {
        None | Some("openmetrics") => Ok(Answer::bytes(OPENMETRICS, daemon.metrics().as_bytes().to_vec())),
        Some("text") => Ok(Answer::bytes(PLAIN, crate::metrics::plain(&daemon.metrics()))),
        Some(other) => Err(Problem::new(400, format!("there is no format {other:?}; there is openmetrics, text"))),
    }
}

fn report(daemon: &Daemon, call: &Call) -> Result<Answer, Problem> {
    let name = call.path.get(1).map(String::as_str).unwrap_or_default();
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
        let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        Problem::new(404, format!("there is no report {name:?}; there are {}", known.join(", ")))
    })?;
    let format = match call.query.get("format") {
        Some(name) => kind.formats().iter().copied().find(|format| format.name() == name).ok_or_else(|| {
            let known: Vec<&str> = kind.formats().iter().map(|format| format.name()).collect();
            Problem::new(400, format!("there is no format {name:?} of this report; there is {}", known.join(", ")))
        })?,
        None if kind.formats().contains(&Format::Json) => Format::Json,
        None => kind.formats().first().copied().unwrap_or(Format::Html),
    };
    let target = call.query.get("target").map(|pid| {
        pid.parse().map(SelectedTarget::Process).map_err(|_| Problem::new(400, format!("{pid:?} is no process ID")))
    });
    let kept = page::kept(daemon, call)?;
    let parameter = |name: &str| call.query.get(name).map(String::as_str);
    let window = parameter("window").map(|text| {
        let window = units::parse_duration(text).ok().filter(|window| WINDOWS.contains(window));
        window.ok_or_else(|| Problem::new(400, format!("window: {text:?} is no window; write 1m, for example")))
    });
    let hot_hz = parameter("hot")
        .map(|text| units::parse_hertz(text).map_err(|error| Problem::new(400, format!("hot: {error}"))));
    let options = Options {
        by: chosen("by", parameter("by"), &GroupBy::NAMES)?,
        measure: chosen("measure", parameter("measure"), &Measure::NAMES)?,
        summary_sort: chosen("sort", parameter("sort"), &SummarySort::NAMES)?.unwrap_or_default(),
        window: window.transpose()?,
        ..Options::default()
    };
    let (target, hot_hz) = (target.transpose()?, hot_hz.transpose()?);
    let selection = Selection { time: Some(kept.time), target, hot_hz, ..Selection::default() };
    let mut out = Vec::new();
    isotherm_report::write(kind, format, &kept.recordings, &selection, &options, &mut out)?;
    let media = match format {
        Format::Json => JSON,
        Format::Text => "text/plain; charset=utf-8",
        Format::Html => HTML,
        Format::Svg => SVG,
        Format::Png => "image/png",
    };
    Ok(Answer::bytes(media, out))
}

/// The value of this name, of a parameter that is one of some values.
fn chosen<T: Copy>(
    parameter: &str,
    name: Option<&str>,
    names: &[(T, &'static str, &'static str)],
) -> Result<Option<T>, Problem> {
    let Some(name) = name else { return Ok(None) };
    let found = names.iter().find(|(_, known, _)| *known == name).map(|(value, ..)| *value);
    found.map(Some).ok_or_else(|| {
        let known: Vec<&str> = names.iter().map(|(_, known, _)| *known).collect();
        Problem::new(400, format!("{parameter}: there is no {name:?}; there are {}", known.join(", ")))
    })
}

impl Call {
    /// The name of the group that the path has.
    pub(super) fn group(&self) -> &str {
        self.path.first().map(String::as_str).unwrap_or_default()
    }

    /// The body as a `T`.
    fn body<T: serde::de::DeserializeOwned>(&self) -> Result<T, Problem> {
        let document = isotherm_scheme::Document::parse("body", &self.body)?;
        Ok(document.read_root("an object", |root, diagnostics| root.typed(diagnostics))?)
    }
}
