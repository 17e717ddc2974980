//! `isotherm tier list`: the nodes and tiers of this machine, and where the memory of processes is.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use isotherm_core::{Node, NodeId, Tiers, units};
use isotherm_output::standard_output;
use serde_json::{Value, json};

use super::placed::{Placed, Surveys};
use super::{only_one, tiers};
use crate::cli::{PlainFormat, TierList};
use crate::command;
use crate::progress::Progress;
use crate::watch::{self, Call};

const SUBCOMMAND: &str = "tier list";

/// How long processes are watched: long enough to know what is not accessed for 10 s.
const DURATION: Duration = Duration::from_secs(15);

pub fn run(options: &TierList) -> Result<ExitCode> {
    let (tiers, why_not) = match tiers(SUBCOMMAND, options.tiers.tiers.as_deref())? {
        Ok(tiers) => {
            let why_not = only_one(&tiers);
            (Some(tiers), why_not)
        }
        Err(error) => (None, Some(error.to_string())),
    };
    let (tiers, why_not) = (tiers.as_ref(), why_not.as_deref());
    let call = Call { quiet: options.quiet, ..Call::new(SUBCOMMAND, &options.watch) };
    let several = tiers.filter(|tiers| tiers.tiers().iter().flatten().count() > 1);
    if call.selection()?.any.is_empty() && options.watch.command.is_empty() {
        show(options.format, tiers, why_not, None)?;
    } else if let Some(tiers) = several {
        return watch(call, options, tiers, why_not);
    } else {
        bail!("there is one memory node, where all memory is; `isotherm tier list` without processes shows it");
    }
    Ok(ExitCode::SUCCESS)
}

/// Watches the processes, and shows where their memory is.
fn watch(call: Call<'_>, options: &TierList, tiers: &Tiers, why_not: Option<&str>) -> Result<ExitCode> {
    let watch = &options.watch;
    // A command is watched to its end.
    let duration = watch.duration.or(watch.command.is_empty().then_some(DURATION));
    let run = watch::prepare(Call { duration, ..call })?;
    command::start_and_watch(run, watch.duration, command::handle_signals, |run, events| {
        let (mut progress, mut surveys) = (Progress::new(options.quiet), Surveys::default());
        progress.follow(run.start()?, events, |event| surveys.event(event))?;
        let placed = surveys.placed(options.by).context(
            "no survey found the nodes of the memory (it needs root, the probe bpf or idle, and more time than one \
             survey takes)",
        )?;
        show(options.format, Some(tiers), why_not, Some(&placed))
    })
}

fn show(format: PlainFormat, tiers: Option<&Tiers>, why_not: Option<&str>, placed: Option<&Placed>) -> Result<()> {
    let mut out = standard_output();
    let placed = placed.zip(tiers);
    match format {
        PlainFormat::Text => {
            write!(out, "{}", text(tiers, why_not))?;
            if let Some((placed, tiers)) = placed {
                write!(out, "\n{}", placed.text(tiers))?;
            }
        }
        PlainFormat::Json => {
            let mut json = as_json(tiers, why_not);
            if let Some((placed, tiers)) = placed {
                json["watched"] = placed.json(tiers);
            }
            writeln!(out, "{json}")?;
        }
    }
    Ok(())
}

/// One line of the list.
struct Row<'a> {
    tier: usize,
    node: &'a Node,
    promoted: Option<NodeId>,
    demoted: Option<NodeId>,
}

fn rows(tiers: &Tiers) -> impl Iterator<Item = Row<'_>> {
    let nodes = tiers.tiers().iter().enumerate().flat_map(|(tier, nodes)| nodes.iter().map(move |&node| (tier, node)));
    nodes.filter_map(|(tier, id)| {
        let node = tiers.node(id)?;
        let [promoted, demoted] = [tiers.faster(id), tiers.slower(id)].map(|nodes| nodes.first().copied());
        Some(Row { tier, node, promoted, demoted })
    })
}

fn text(tiers: Option<&Tiers>, why_not: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(tiers) = tiers {
        let count = tiers.tiers().len();
        let plural = if count == 1 { "" } else { "s" };
        let _ = writeln!(text, "{count} tier{plural}, {}; 0 is the fastest\n", tiers.origin());
        let _ = writeln!(text, "tier  node      size      free  processors  promoted to  demoted to  distances");
        for row in rows(tiers) {
            let to = |node: Option<NodeId>| node.map_or("-".into(), |node| node.to_string());
            let (size, free) = (units::bytes(row.node.size), units::bytes(row.node.free));
            let processors = if row.node.has_processors { "yes" } else { "no" };
            let distances = row.node.distances.iter().map(|(node, distance)| format!("{node}: {distance}"));
            let _ = writeln!(
                text,
                "{:>4}  {:>4}  {size:>8}  {free:>8}  {processors:<10}  {:>11}  {:>10}  {}",
                row.tier,
                row.node.id,
                to(row.promoted),
                to(row.demoted),
                distances.collect::<Vec<_>>().join(", "),
            );
        }
    }
    if let Some(why_not) = why_not {
        let between = if text.is_empty() { "" } else { "\n" };
        let _ = writeln!(text, "{between}Memory cannot move between tiers here: {why_not}.");
    }
    text
}

fn as_json(tiers: Option<&Tiers>, why_not: Option<&str>) -> Value {
    let node = |row: Row<'_>| {
        let node = row.node;
        let distances: serde_json::Map<String, Value> =
            node.distances.iter().map(|(node, distance)| (node.to_string(), json!(distance))).collect();
        json!({
            "node": node.id.0,
            "tier": row.tier,
            "size_bytes": node.size,
            "free_bytes": node.free,
            "has_processors": node.has_processors,
            "distances": distances,
            "promoted_to": row.promoted.map(|node| node.0),
            "demoted_to": row.demoted.map(|node| node.0),
        })
    };
    json!({
        "origin": tiers.map(|tiers| format!("{:?}", tiers.origin()).to_lowercase()),
        "tiers": tiers.map_or(0, |tiers| tiers.tiers().len()),
        "nodes": tiers.map(|tiers| rows(tiers).map(node).collect::<Vec<_>>()).unwrap_or_default(),
        "why_not": why_not,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    fn node(id: u32, has_processors: bool, distances: [u32; 2]) -> Node {
        let distances = (0..).map(NodeId).zip(distances).collect();
        Node { id: NodeId(id), size: 4 << 30, free: 512 << 20, has_processors, distances }
    }

    #[test]
    fn the_list_says_where_memory_would_move_to() {
        let tiers = Tiers::new([node(0, true, [10, 20]), node(1, false, [20, 10])], &[]);
        let expected = "\
2 tiers, by processors and distances; 0 is the fastest

tier  node      size      free  processors  promoted to  demoted to  distances
   0     0     4 GiB   512 MiB  yes                   -           1  0: 10, 1: 20
   1     1     4 GiB   512 MiB  no                    0           -  0: 20, 1: 10
";
        assert_eq!(text(Some(&tiers), None), expected);
        let json = as_json(Some(&tiers), None);
        assert_eq!((&json["origin"], &json["tiers"], &json["why_not"]), (&json!("distances"), &json!(2), &Value::Null));
        assert_eq!((&json["nodes"][0]["demoted_to"], &json["nodes"][1]["distances"]["0"]), (&json!(1), &json!(20)));
    }

    #[test]
    fn a_machine_with_one_tier_says_why_nothing_moves() {
        let tiers = Tiers::new([node(0, true, [10, 20])], &[]);
        let shown = text(Some(&tiers), Some("this machine has one memory node, 0"));
        assert!(
            shown.starts_with("1 tier, ") && shown.ends_with("here: this machine has one memory node, 0.\n"),
            "{shown}"
        );
        assert_eq!(text(None, Some("no NUMA")), "Memory cannot move between tiers here: no NUMA.\n");
        assert_eq!(as_json(None, Some("no NUMA"))["nodes"], json!([]));
    }
}
