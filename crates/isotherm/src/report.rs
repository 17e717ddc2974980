//! `isotherm report`: looking at a recording.

use std::fs::File;
use std::io::{BufWriter, IsTerminal, stdout};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm_record::Recording;
use isotherm_report::{Bounds, Format, Kind, Options, SelectedTarget, Selection, Sort, Terminal};

use crate::WrongCall;
use crate::cli::{Report, ReportFormat, ReportKind, SortKey};
use crate::terminal::terminal;

pub fn run(options: &Report) -> Result<ExitCode> {
    let kind = kind(options.kind);
    let format = format(options, kind);
    if kind == Kind::Html && format != Format::Html {
        let what = "the kind html is a page; leave --format out, or take another kind";
        return Err(WrongCall::new("report", what).into());
    }
    let to_terminal = options.output.is_none() && stdout().is_terminal();
    if to_terminal && matches!(format, Format::Png | Format::Html) {
        let what = format!("{} is not for a terminal; name a file with -o", format.name());
        return Err(WrongCall::new("report", what).into());
    }

    let recording = Recording::open(&options.recording)?;
    let selection =
        Selection { time: options.time.clone(), address: options.address, target: options.target.map(selected) };
    let chosen = &options.regions;
    let regions = isotherm_report::RegionOptions {
        at: chosen.at,
        sort: match chosen.sort {
            SortKey::Address => Sort::Address,
            SortKey::Rate => Sort::Rate,
            SortKey::Age => Sort::Age,
            SortKey::Size => Sort::Size,
        },
        rate: Bounds { min: chosen.min_rate, max: chosen.max_rate },
        age: Bounds { min: chosen.min_age, max: chosen.max_age },
        size: Bounds { min: chosen.min_size, max: chosen.max_size },
    };
    let terminal = if options.output.is_none() { terminal() } else { Terminal::default() };
    let report = Options { terminal, regions, ..Options::default() };
    match &options.output {
        None => isotherm_report::write(kind, format, &recording, &selection, &report, &mut stdout().lock())?,
        Some(path) => {
            let mut out = create(path)?;
            isotherm_report::write(kind, format, &recording, &selection, &report, &mut out)
                .with_context(|| format!("{} is incomplete", path.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn kind(kind: ReportKind) -> Kind {
    match kind {
        ReportKind::Heatmap => Kind::Heatmap,
        ReportKind::Wss => Kind::Wss,
        ReportKind::Regions => Kind::Regions,
        ReportKind::Summary => Kind::Summary,
        ReportKind::Overhead => Kind::Overhead,
        ReportKind::Schemes => Kind::Schemes,
        ReportKind::Html => Kind::Html,
    }
}

/// The format that was asked for, that the output's name tells, or that is the kind's own.
fn format(options: &Report, kind: Kind) -> Format {
    match options.format {
        Some(ReportFormat::Text) => Format::Text,
        Some(ReportFormat::Json) => Format::Json,
        Some(ReportFormat::Png) => Format::Png,
        Some(ReportFormat::Svg) => Format::Svg,
        Some(ReportFormat::Html) => Format::Html,
        None => {
            let extension = options.output.as_deref().and_then(Path::extension).and_then(|ext| ext.to_str());
            let named = Format::ALL.into_iter().find(|format| Some(format.name()) == extension);
            named.unwrap_or(kind.default_format())
        }
    }
}

/// A file for a report, which tells as much as the recording: for its owner only.
fn create(path: &Path) -> Result<BufWriter<File>> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    let file = file.with_context(|| format!("the report {} cannot be created; name another file", path.display()))?;

    Ok(BufWriter::new(file))
}

/// What `--target` means: the pid of a process, or 0 for physical memory.
fn selected(number: u32) -> SelectedTarget {
    match number {
        0 => SelectedTarget::PhysicalMemory,
        pid => SelectedTarget::Process(pid),
    }
}
