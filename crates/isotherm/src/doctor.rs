//! `isotherm doctor`: which probes work here.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use isotherm_linux::{Host, doctor};
use serde_json::json;

use crate::cli::{Doctor, DoctorFormat};

pub fn run(options: &Doctor) -> Result<ExitCode> {
    let host = Host::read();
    let findings = doctor::examine();
    let best = findings.iter().find(|finding| finding.works && finding.auto).map(|finding| finding.probe);
    let mut out = std::io::stdout().lock();
    match options.format {
        DoctorFormat::Json => {
            let document = json!({
                "kernel": host.kernel,
                "architecture": host.architecture,
                "probes": findings,
                "auto": best,
            });
            serde_json::to_writer_pretty(&mut out, &document)?;
            writeln!(out)?;
        }
        DoctorFormat::Text => {
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
            match best {
                Some(probe) => writeln!(out, "\n`isotherm record` uses {probe} here.")?,
                None => writeln!(out, "\n`isotherm record` cannot work here until one of them does.")?,
            }
        }
    }
    Ok(if best.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
