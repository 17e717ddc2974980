//! `isotherm ctl`: asks and steers a running daemon.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use isotherm_agent::advice::{Advice, LimitsInForce};
use isotherm_agent::api::encoded;
use isotherm_agent::view::{FedGoal, GroupStatus, Health, InUse, Memory, SchemeStatus, State, TargetView};
use isotherm_agent::{Client, ClientError};
use isotherm_core::units::{bounded, bytes, duration, percent};
use isotherm_core::{sanitise, sanitise_lines};
use isotherm_output::standard_output;
use isotherm_report::{Format, Kind, shown_command, wrap};
use serde_json::{Value, json};

use crate::WrongCall;
use crate::cli::{Ctl, CtlCommand, CtlReport, CtlSet};
use crate::report::Destination;

/// The width of text that is wrapped.
const WIDTH: usize = 100;

/// The largest processes that a status lists.
const SHOWN: usize = 20;

pub fn run(options: &Ctl) -> Result<ExitCode> {
    let ctl = Connection { client: Client::new(&options.socket)?, json: options.json };
    match &options.command {
        CtlCommand::Status { group: None } => ctl.status()?,
        CtlCommand::Status { group: Some(group) } => ctl.status_of(group)?,
        CtlCommand::Groups => ctl.groups()?,
        CtlCommand::Add { file } => ctl.done("POST", "/v1/groups", Some(isotherm_scheme::read_text(file)?))?,
        CtlCommand::Change { file } => ctl.change(file)?,
        CtlCommand::Pause { group } => ctl.done("POST", &format!("{}/pause", of(group)), None)?,
        CtlCommand::Resume { group } => ctl.done("POST", &format!("{}/resume", of(group)), None)?,
        CtlCommand::Delete { group } => ctl.done("DELETE", &of(group), None)?,
        CtlCommand::Set(set) => ctl.set(set)?,
        CtlCommand::Feed { group, metric, value, valid_for } => {
            let valid_for = valid_for.map(|time| format!("{}ns", time.as_nanos()));
            let body = json!({ "value": value, "valid_for": valid_for }).to_string();
            ctl.done("PUT", &format!("{}/fed/{}", of(group), encoded(metric)), Some(body))?;
        }
        CtlCommand::Snapshot { group } => ctl.print(&format!("{}/snapshot", of(group)))?,
        CtlCommand::Stream { group, count } => ctl.stream(group, *count)?,
        CtlCommand::Record { group, name, stop: false } => {
            let made: Value = ctl.send("POST", &format!("{}/recordings", of(group)), json!({ "name": name }))?;
            say(made["path"].as_str().unwrap_or_default())?;
        }
        CtlCommand::Record { group, name, stop: true } => {
            ctl.done("DELETE", &format!("{}/recordings/{}", of(group), encoded(name)), None)?;
        }
        CtlCommand::Report(report) => ctl.report(report)?,
        CtlCommand::Advice { group } => ctl.advice(group.as_deref())?,
        CtlCommand::Mark { group, text } => {
            ctl.done("POST", &format!("{}/marks", of(group)), Some(json!({ "text": text }).to_string()))?;
        }
        CtlCommand::Reload => match ctl.client.ask("POST", "/v1/reload", None) {
            Err(ClientError::Refused(problem)) if !problem.errors.is_empty() => {
                problem.errors.iter().for_each(crate::tell);
                return Ok(ExitCode::FAILURE);
            }
            answer => drop(answer?),
        },
        CtlCommand::Health => return ctl.health(),
        CtlCommand::Metrics => standard_output().write_all(&ctl.client.ask("GET", "/metrics", None)?)?,
        CtlCommand::Openapi => ctl.print("/v1/openapi.json")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The path of a group.
fn of(group: &str) -> String {
    format!("/v1/groups/{}", encoded(group))
}

fn say(line: &str) -> Result<()> {
    Ok(writeln!(standard_output(), "{}", sanitise(line))?)
}

struct Connection {
    client: Client,
    json: bool,
}

impl Connection {
    fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T> {
        let bytes = self.client.ask("GET", path, None)?;
        serde_json::from_slice(&bytes).context("the daemon has another version; restart it")
    }

    fn send<T: serde::de::DeserializeOwned>(&self, method: &str, path: &str, body: Value) -> Result<T> {
        let bytes = self.client.ask(method, path, Some(body.to_string()))?;
        serde_json::from_slice(&bytes).context("the daemon has another version; restart it")
    }

    /// Prints a document as it is.
    fn print(&self, path: &str) -> Result<()> {
        let document: Value = self.get(path)?;
        Ok(writeln!(standard_output(), "{}", serde_json::to_string_pretty(&document)?)?)
    }

    fn status(&self) -> Result<()> {
        if self.json {
            return self.print("/v1/groups");
        }
        let groups: Vec<GroupStatus> = self.get("/v1/groups")?;
        if groups.is_empty() {
            return say("no group is watched (add one with `isotherm ctl add FILE`)");
        }
        let width = groups.iter().map(|group| group.name.chars().count()).max().unwrap_or(0);
        groups.iter().try_for_each(|group| say(&format!("{:width$}  {}", group.name, line(group))))
    }

    fn status_of(&self, group: &str) -> Result<()> {
        if self.json {
            return self.print(&of(group));
        }
        let status: GroupStatus = self.get(&of(group))?;
        say(&format!("{}  {}", status.name, line(&status)))?;
        if let Some(pace) = &status.pace {
            let every = |ns: u64| duration(Duration::from_nanos(ns));
            let mut parts = vec![format!("{} of one CPU", percent(pace.cpu))];
            parts.extend(pace.survey_interval_ns.map(|ns| format!("a survey each {}", every(ns))));
            parts.extend(pace.sampling_interval_ns.map(|ns| format!("samples each {}", every(ns))));
            say(&format!("  {}", parts.join(", ")))?;
        }
        status.recordings.iter().try_for_each(|name| say(&format!("  recording {name}")))?;
        for notice in status.notices.iter().rev().take(3) {
            say(&format!("  {}", notice.text))?;
        }
        status.schemes.iter().try_for_each(|scheme| say(&format!("  {}", scheme_line(scheme))))?;
        status.fed_goals.iter().try_for_each(|goal| say(&format!("  {}", goal_line(goal))))?;
        if let (Some(out), Some(most)) = (status.out_bytes, status.limits.most_out) {
            say(&format!("  {} out of memory, at most {}", bytes(out), bytes(most.0)))?;
        }
        let mut targets: Vec<TargetView> = self.get(&format!("{}/targets", of(group)))?;
        let resident = |target: &TargetView| target.memory.as_ref().map_or(0, |memory| memory.resident);
        targets.sort_by_key(|target| std::cmp::Reverse(resident(target)));
        for target in targets.iter().take(SHOWN) {
            let memory = target.memory.as_ref().map_or_else(|| "not known yet".into(), memory_line);
            let command: String = shown_command(&target.command).chars().take(40).collect();
            say(&format!("  {:>8}  {command:40}  {memory}", target.pid))?;
        }
        match targets.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => say(&format!("  and {more} smaller processes")),
        }
    }

    /// A request that has no more to say than that it was done.
    fn done(&self, method: &str, path: &str, body: Option<String>) -> Result<()> {
        self.client.ask(method, path, body)?;
        Ok(())
    }

    fn groups(&self) -> Result<()> {
        let groups: Vec<GroupStatus> = self.get("/v1/groups")?;
        groups.iter().try_for_each(|group| say(&group.name))
    }

    fn change(&self, file: &Path) -> Result<()> {
        let text = isotherm_scheme::read_text(file)?;
        let group = isotherm_agent::config::Group::parse(&file.display().to_string(), &text)?;
        self.done("PUT", &of(&group.settings.name), Some(text))
    }

    fn set(&self, set: &CtlSet) -> Result<()> {
        let mut wanted = serde_json::Map::new();
        let time = |time: Duration| Value::from(format!("{}ns", time.as_nanos()));
        wanted.extend(set.sample.map(|sample| ("sample".into(), time(sample))));
        wanted.extend(set.aggr.map(|aggr| ("aggregate".into(), time(aggr))));
        wanted.extend(set.update.map(|update| ("update".into(), time(update))));
        wanted.extend(set.regions.as_ref().map(|regions| ("regions".into(), regions.as_str().into())));
        if wanted.is_empty() && set.schemes.is_none() {
            return Err(
                WrongCall::new("ctl set", "there is nothing to set; give --sample or --schemes, for example").into()
            );
        }
        if !wanted.is_empty() {
            let body = Value::from(wanted).to_string();
            self.done("PUT", &format!("{}/attributes", of(&set.group)), Some(body))?;
        }
        if let Some(path) = &set.schemes {
            let text = isotherm_scheme::read_text(path)?;
            self.done("PUT", &format!("{}/schemes", of(&set.group)), Some(text))?;
        }
        Ok(())
    }

    fn stream(&self, group: &str, count: Option<u64>) -> Result<()> {
        let (mut pending, mut left, mut failed) = (Vec::new(), count.unwrap_or(u64::MAX), None);
        self.client.stream(&format!("{}/events", of(group)), |bytes| {
            pending.extend_from_slice(bytes);
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                let Some(data) = line.strip_prefix(b"data: ") else { continue };
                let mut out = standard_output();
                if let Err(error) = out.write_all(data).and_then(|()| out.flush()) {
                    failed = Some(error);
                    return false;
                }
                left -= 1;
                if left == 0 {
                    return false;
                }
            }
            true
        })?;
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn report(&self, report: &CtlReport) -> Result<()> {
        let CtlReport { group, kind, last, format, output } = report;
        let format = format.or(self.json.then_some(Format::Json));
        let to = Destination::new("ctl report", format, output.as_deref(), kind.formats())?;
        let mut path = format!("{}/reports/{}?format={}", of(group), Kind::name(*kind), to.format.name());
        if let Some(last) = last {
            path += &format!("&last={}ns", last.as_nanos());
        }
        let bytes = self.client.ask("GET", &path, None)?;
        let no_inputs: [&Path; 0] = [];
        to.write(&no_inputs, |out| Ok(out.write_all(&bytes)?))?;
        Ok(())
    }

    fn advice(&self, group: Option<&str>) -> Result<()> {
        let path = group.map_or_else(|| "/v1/advice".into(), |group| format!("{}/advice", of(group)));
        if self.json {
            return self.print(&path);
        }
        let all: Vec<Advice> = self.get(&path)?;
        if all.is_empty() {
            return say("there is nothing to advise on: no cgroup has a history");
        }
        all.iter().flat_map(advice_lines).try_for_each(|line| say(&line))
    }

    fn health(&self) -> Result<ExitCode> {
        let health: Health = self.get("/v1/health")?;
        match (self.json, health.ok) {
            (true, _) => self.print("/v1/health")?,
            (false, true) => say("all is well")?,
            (false, false) => bail!("{}", sanitise_lines(&health.problems.join("\n"))),
        }
        Ok(if health.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Advice on a cgroup, in lines.
pub fn advice_lines(advice: &Advice) -> Vec<String> {
    let names = [&advice.namespace, &advice.pod, &advice.container].into_iter().flatten();
    let names = names.map(String::as_str).collect::<Vec<_>>().join("/");
    let cgroup = advice.cgroup.as_deref().unwrap_or_default();
    let named = [&*advice.group, &*names, cgroup].into_iter().filter(|name| !name.is_empty());
    let mut lines = vec![named.collect::<Vec<_>>().join("  ")];
    let mut add = |text: &str| {
        lines.extend(wrap(text, WIDTH - 2, 0).lines().map(|line| format!("  {line}")));
    };
    let memory = |of: &BTreeMap<String, String>| of.get("memory").cloned().unwrap_or_default();
    if let Some(resources) = &advice.resources {
        add(&format!(
            "requests.memory: {}   limits.memory: {}",
            memory(&resources.requests),
            memory(&resources.limits)
        ));
    }
    if advice.now != LimitsInForce::default() {
        add(&format!("now: {}", in_force(&advice.now)));
    }
    if let Some(size) = &advice.size {
        add(&size.reason);
        add(&format!("Confidence: {}.", size.confidence));
        size.unknown.iter().for_each(|text| add(text));
    }
    if let Some(why) = &advice.withheld {
        add(&format!("no advice: {why}"));
    }
    lines
}

/// What a cgroup has and may have, in words.
fn in_force(now: &LimitsInForce) -> String {
    let limit = |limit: Option<u64>| limit.map_or_else(|| "max".into(), bytes);
    let max = if now.version == Some(1) { "memory.limit_in_bytes" } else { "memory.max" };
    let mut parts =
        vec![now.current_bytes.map_or_else(|| "usage unknown".into(), |used| format!("{} used", bytes(used)))];
    if now.version.is_some() {
        parts.extend((now.version == Some(2)).then(|| format!("memory.high {}", limit(now.high_bytes))));
        parts.push(format!("{max} {}", limit(now.max_bytes)));
    }
    if let Some(lowest) = now.lowest_bytes.filter(|lowest| now.max_bytes.is_none_or(|max| *lowest < max)) {
        parts.push(format!("{} by a cgroup above it", bytes(lowest)));
    }
    parts.join(", ")
}

/// A group in a line, after its name.
fn line(group: &GroupStatus) -> String {
    let state = match group.state {
        State::Watching => "watching",
        State::Paused => "paused",
        State::Ended => "ended",
        State::Failed => "failed",
    };
    let mut parts = vec![format!("{state:8}")];
    if let Some(why) = group.why.as_ref().filter(|_| group.state == State::Failed) {
        parts.push(why.clone());
        return parts.join("  ");
    }
    parts.push(match (group.settings.is_of_processes(), group.processes) {
        (false, _) => group.settings.watched().into(),
        (true, 1) => "1 process".into(),
        (true, count) => format!("{count} processes"),
    });
    parts.push(match (&group.memory, &group.in_use) {
        (Some(memory), _) => memory_line(memory),
        (None, Some(InUse { window, likely, least, most })) => {
            format!("not surveyed yet, touched within {window}: {}", bounded(*likely, *least, *most))
        }
        (None, None) => "not surveyed yet".into(),
    });
    parts.join("  ")
}

/// Memory in a line.
fn memory_line(memory: &Memory) -> String {
    let mut parts = vec![format!("{} in memory", bytes(memory.resident))];
    if memory.unknown + memory.unobservable < memory.resident {
        let touched = memory.touched_within.get("1m").copied().unwrap_or(0);
        parts.push(format!("{} touched within 1m", bytes(touched)));
        parts.push(format!("{} idle", bytes(memory.idle)));
    }
    if memory.unknown > 0 {
        parts.push(format!("{} not known yet", bytes(memory.unknown)));
    }
    if let Some(swapped) = memory.swapped.filter(|swapped| *swapped > 0) {
        parts.push(format!("{} in swap", bytes(swapped)));
    }
    if memory.unobservable > 0 {
        parts.push(format!("{} unobservable", bytes(memory.unobservable)));
    }
    parts.join(", ")
}

/// A goal about a metric that programs feed, in a line.
fn goal_line(goal: &FedGoal) -> String {
    let FedGoal { scheme, metric, target, value, age_ns } = goal;
    let now = match value.zip(*age_ns) {
        Some((value, age)) => format!("is {value}, fed {} ago", duration(Duration::from_nanos(age))),
        None => "has no value; isotherm ctl feed gives it one".into(),
    };
    format!("scheme {scheme}: the metric {metric} is to be {target}, and {now}")
}

/// A scheme in a line.
fn scheme_line(scheme: &SchemeStatus) -> String {
    let asleep = if scheme.awake == Some(false) { ", asleep" } else { "" };
    let (tried, applied) = (bytes(scheme.tried_bytes), bytes(scheme.applied_bytes));
    format!("scheme {}: {}{asleep}, applied to {applied} of {tried}", scheme.name, scheme.action)
}
