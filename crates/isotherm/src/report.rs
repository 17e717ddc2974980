//! `isotherm report`: shows a recording.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{IsTerminal, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use isotherm_agent::Client;
use isotherm_agent::api::encoded;
use isotherm_output::{Output, OutputError, OutputFile, standard_output};
use isotherm_record::{Joined, RecordError, Recording};
use isotherm_report::{
    Format, GroupBy, Kind, Limits, Measure, Options, ReportError, Source, SummarySort, Terminal, UnknownExtension,
};

use crate::cli::{KindOptions, RegionOptions, Report};
use crate::terminal::terminal;
use crate::{WrongCall, tell};

pub fn run(Report { kind: options }: &Report) -> Result<ExitCode> {
    let KindOptions { kind, all, by, window, measure, summary_sort, regions, .. } = options;
    let words = format!("report {}", kind.name());
    let to = Destination::new(words.clone(), all.format, all.output.as_deref(), kind.formats())?;
    check_effects(options, to.format).map_err(|what| WrongCall::new(words, what))?;
    if let Some(group) = &all.connect {
        return connected(options, group, &to);
    }
    let source = open(&all.recordings, all.reading.max_memory)?;
    let regions = isotherm_report::RegionOptions {
        at: regions.at,
        sort: regions.sort,
        rate: Limits { min: regions.min_rate, max: regions.max_rate },
        age: Limits { min: regions.min_age, max: regions.max_age },
        size: Limits { min: regions.min_size, max: regions.max_size },
    };
    let (by, window, measure, summary_sort) = (*by, *window, *measure, *summary_sort);
    let (terminal, selection) = (to.terminal(), all.selection.selection());
    let report = Options { terminal, regions, by, summary_sort, window, measure, ..Options::default() };
    to.write(&all.recordings, |out| isotherm_report::write(*kind, to.format, &*source, &selection, &report, out))
}

/// Has the daemon make the report, on what it keeps of a group.
fn connected(options: &KindOptions, group: &str, to: &Destination<'_>) -> Result<ExitCode> {
    let KindOptions { kind, all, by, window, measure, summary_sort, given, .. } = options;
    let KindOptions { regions, .. } = options;
    let selection = &all.selection;
    if selection.time.is_some() || selection.address.is_some() || *regions != RegionOptions::default() {
        let what = "the daemon selects by --last, --target and --hot only; leave the others out, or record first";
        return Err(WrongCall::new(format!("report {}", kind.name()), what).into());
    }
    let ns = |time: Duration| format!("{}ns", time.as_nanos());
    let sorted = given.iter().any(|option| option == "--sort").then(|| name_of(&SummarySort::NAMES, *summary_sort));
    let query = [
        ("last", all.last.map(ns)),
        ("by", by.map(|by| name_of(&GroupBy::NAMES, by))),
        ("window", window.map(ns)),
        ("measure", measure.map(|measure| name_of(&Measure::NAMES, measure))),
        ("sort", sorted),
        ("target", selection.target.map(|pid| pid.to_string())),
        ("hot", selection.hot.map(|hz| format!("{hz}Hz"))),
    ];
    let mut path = format!("/v1/groups/{}/reports/{}?format={}", encoded(group), kind.name(), to.format.name());
    for (name, value) in query.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        path += &format!("&{name}={}", encoded(&value));
    }
    let bytes = Client::new(&all.socket)?.ask("GET", &path, None)?;
    let no_inputs: [&Path; 0] = [];
    to.write(&no_inputs, |out| Ok(out.write_all(&bytes)?))
}

/// The name of one of some values.
fn name_of<T: PartialEq>(names: &[(T, &'static str, &'static str)], value: T) -> String {
    names.iter().find(|(of, ..)| *of == value).map(|(_, name, _)| (*name).to_owned()).unwrap_or_default()
}

/// Rejects options that would have no effect on this format.
fn check_effects(options: &KindOptions, format: Format) -> Result<(), String> {
    let on_page = |option: &&String| format == Format::Html && !matches!(option.as_str(), "--by" | "--window");
    if let Some(option) = options.given.iter().find(on_page) {
        return Err(format!("{option} has no effect on the HTML page; leave it out"));
    }
    if format == Format::Html && options.by == Some(GroupBy::Stack) {
        return Err("--by stack is for the report summary as text, JSON and a picture".into());
    }
    let is_picture = matches!(format, Format::Png | Format::Svg);
    if options.kind == Kind::Regions && is_picture && options.given.iter().any(|option| option == "--sort") {
        return Err("--sort has no effect on a picture, which shows regions by address; leave it out".into());
    }
    Ok(())
}

/// Where a report goes, and in which format.
pub struct Destination<'a> {
    pub format: Format,
    output: Option<&'a Path>,
}

impl<'a> Destination<'a> {
    /// The format is `chosen`, or that of the name of the output, or the first of `formats`, which are those that there
    /// are.
    pub fn new(
        subcommand: impl Into<Cow<'static, str>>,
        chosen: Option<Format>,
        output: Option<&'a Path>,
        formats: &[Format],
    ) -> Result<Self, WrongCall> {
        let subcommand = subcommand.into();
        let of_file = || output.map_or(Ok(None), Format::of_file);
        let named = chosen.map_or_else(of_file, |format| Ok(Some(format)));
        let named = named.map_err(|error| unknown_format(subcommand.clone(), &error))?;
        let format = named.or(formats.first().copied()).unwrap_or(Format::Text);
        if !formats.contains(&format) {
            let known: Vec<&str> = formats.iter().map(|format| format.name()).collect();
            let what = format!("there is no {} of this report; use --format {}", format.name(), known.join(" or "));
            return Err(WrongCall::new(subcommand, what));
        }
        if output.is_none() && stdout().is_terminal() && (format.is_binary() || format == Format::Html) {
            let what = format!("{} cannot be shown on a terminal; name a file with -o", format.name());
            return Err(WrongCall::new(subcommand, what));
        }
        Ok(Self { format, output })
    }

    /// The terminal that text is fitted to.
    pub fn terminal(&self) -> Terminal {
        if self.output.is_none() { terminal() } else { Terminal::default() }
    }

    /// Writes the report, which may not replace an input.
    pub fn write<I: AsRef<OsStr> + AsRef<Path>>(
        &self,
        inputs: &[I],
        write: impl FnOnce(&mut dyn Write) -> Result<(), ReportError>,
    ) -> Result<ExitCode> {
        match self.output {
            None => write(&mut standard_output().apart_from(inputs)?)?,
            Some(path) => write_file(Output::new(path).apart_from(inputs).create()?, write)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Opens a recording, or several as one.
fn open(paths: &[PathBuf], max_memory: Option<u64>) -> Result<Box<dyn Source>> {
    let recordings = open_all(paths, max_memory)?;
    recordings.iter().for_each(warn_of_damage);
    Ok(match <[Recording; 1]>::try_from(recordings) {
        Ok([recording]) => Box::new(recording),
        Err(recordings) => Box::new(Joined::new(recordings)?),
    })
}

/// Opens each of these recordings.
pub fn open_all(paths: &[PathBuf], max_memory: Option<u64>) -> Result<Vec<Recording>, RecordError> {
    paths.iter().map(|path| Recording::open_within(path, max_memory)).collect()
}

/// The error for a name of the output whose extension selects no format.
pub fn unknown_format(subcommand: impl Into<Cow<'static, str>>, error: &UnknownExtension) -> WrongCall {
    WrongCall::new(subcommand, format!("{error}, or choose one with --format"))
}

/// Says that a part of a recording is missing. Not all formats of reports have a place for it.
pub fn warn_of_damage(recording: &Recording) {
    if recording.is_header_corrected() {
        let path = recording.path().display();
        tell(format_args!("isotherm: one bit of the header of {path} is wrong; it was corrected by the checksum"));
    }
    if let Some(first) = recording.damage().first() {
        let (path, at, reason) = (recording.path().display(), first.start, first.reason);
        let what = "what cannot be read is missing, and `isotherm check` lists it";
        tell(format_args!("isotherm: the recording {path} is damaged at byte {at}: {reason}; {what}"));
    }
}

/// Lets `write` write a report to a file, which appears when it is whole.
pub fn write_file(file: OutputFile, write: impl FnOnce(&mut dyn Write) -> Result<(), ReportError>) -> Result<()> {
    let mut writer = file.writer()?;
    write(&mut writer).and_then(|()| Ok(writer.flush()?)).map_err(|error| match error {
        ReportError::Write(source) => OutputError::new(file.path(), source).into(),
        error => anyhow::Error::from(error),
    })?;
    Ok(file.finish()?)
}
