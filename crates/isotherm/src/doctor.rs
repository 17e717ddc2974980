//! `isotherm doctor`: reports which probes and which actions of schemes work on this machine.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use isotherm_act::{self as act, Capability};
use isotherm_core::{Tiers, chain};
use isotherm_kernel::{Host, confinement};
use isotherm_output::standard_output;
use isotherm_probes::doctor;
use isotherm_probes::stacks::StackTracer;
use serde_json::json;

use crate::cli::{Doctor, PlainFormat};
use crate::tier;

pub fn run(options: &Doctor) -> Result<ExitCode> {
    let host = Host::read();
    let findings = doctor::examine();
    let mut chosen = findings.iter().filter(|finding| finding.works && finding.auto);
    let best = chosen.clone().next().map(|finding| finding.probe);
    let best_physical = chosen.find(|finding| finding.physical).map(|finding| finding.probe);
    let actions = act::capabilities();
    let disturbance = doctor::disturbance();
    let stacks = StackTracer::open().map(|tracer| tracer.slows_all_calls()).map_err(|error| chain(&error));
    let tiers = tiers(&actions);
    let container = confinement("/".as_ref());
    let mut out = standard_output();
    match options.format {
        PlainFormat::Json => {
            let document = json!({
                "kernel": host.kernel,
                "architecture": host.architecture,
                "probes": findings,
                "auto": best,
                "auto_physical": best_physical,
                "actions": actions,
                "stacks": {
                    "works": stacks.is_ok(),
                    "why_not": stacks.as_ref().err(),
                    "slows_all_calls": stacks.as_ref().ok(),
                },
                "tiers": {
                    "works": tiers.is_ok(),
                    "why_not": tiers.as_ref().err(),
                    "nodes": tiers.as_ref().ok().map(numbers),
                },
                "disturbance": disturbance,
                "container": container,
            });
            serde_json::to_writer_pretty(&mut out, &document).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
        PlainFormat::Text => {
            writeln!(out, "Linux {} on {}\n", host.kernel, host.architecture)?;
            for finding in &findings {
                let mark = if finding.works { "works" } else { "does not work" };
                writeln!(out, "{:<5} {mark}: {}", finding.probe, finding.about)?;
                if let Some(why_not) = &finding.why_not {
                    writeln!(out, "      {why_not}")?;
                }
                if let Some(features) = &finding.features {
                    writeln!(out, "      {features}")?;
                }
            }
            match (best, best_physical) {
                (Some(probe), Some(physical)) => {
                    writeln!(out, "\n`isotherm record` uses {probe} here, and with --physical {physical}.")?;
                }
                (Some(probe), None) => {
                    writeln!(out, "\n`isotherm record` uses {probe} here. No probe for --physical works.")?;
                }
                (None, _) => writeln!(out, "\n`isotherm record` does not work here, because no probe does.")?,
            }
            if let Some(disturbance) = &disturbance {
                writeln!(out, "! {disturbance}.")?;
            }
            if !container.is_empty() {
                writeln!(out, "\nWhat this container keeps from isotherm (docs/containers.md):")?;
                container.iter().try_for_each(|line| writeln!(out, "      {line}"))?;
            }
            let about = match stacks {
                Ok(true) => "which code maps memory; here, each system call of the machine is slower meanwhile",
                Ok(false) | Err(_) => "which code maps memory",
            };
            write_command(&mut out, "record --stacks", about, stacks.map(drop))?;
            let about = match &tiers {
                Ok(tiers) => format!("hot memory to fast nodes, cold memory to slow ones; the tiers are {tiers}"),
                Err(_) => "hot memory to fast nodes, cold memory to slow ones".into(),
            };
            write_command(&mut out, "tier run", &about, tiers.map(|_| ()))?;
            writeln!(out, "\nActions of schemes:")?;
            write_actions(&mut out, &actions)?;
        }
    }
    Ok(if best.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The tiers between which memory can be moved here, or why it cannot.
fn tiers(actions: &[Capability]) -> Result<Tiers, String> {
    let tiers = tier::found()?;
    let used = |capability: &&Capability| matches!(capability.action, "migrate_hot" | "migrate_cold");
    match actions.iter().filter(used).find_map(|capability| capability.why_not.clone()) {
        Some(why_not) => Err(why_not),
        None => Ok(tiers),
    }
}

/// The numbers of the nodes of each tier.
fn numbers(tiers: &Tiers) -> Vec<Vec<u32>> {
    tiers.tiers().iter().map(|tier| tier.iter().map(|node| node.0).collect()).collect()
}

/// Writes whether a command, or one with this option, works.
fn write_command(out: &mut impl Write, command: &str, about: &str, tried: Result<(), String>) -> std::io::Result<()> {
    match tried {
        Ok(()) => writeln!(out, "\n`isotherm {command}` works: {about}."),
        Err(why_not) => writeln!(out, "\n`isotherm {command}` does not work: {about}.\n      {why_not}"),
    }
}

/// Writes the actions that work, and then those that do not, with the reason.
fn write_actions(out: &mut impl Write, actions: &[Capability]) -> std::io::Result<()> {
    for capability in actions.iter().filter(|capability| capability.works) {
        let limit = capability.limit.map(|limit| format!(" ({limit})")).unwrap_or_default();
        writeln!(out, "{:<19} works: {}{limit}", capability.to_string(), capability.by)?;
    }
    for capability in actions {
        if let Some(why_not) = &capability.why_not {
            writeln!(out, "{:<19} does not work: {}", capability.to_string(), capability.by)?;
            writeln!(out, "      {why_not}")?;
        }
    }
    Ok(())
}
