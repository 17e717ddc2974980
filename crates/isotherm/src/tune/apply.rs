//! `isotherm tune --apply`: limits the cgroups of the targets to their right size.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use isotherm_agent::advice::{Advice, advise};
use isotherm_agent::config::right_size_scheme;
use isotherm_core::{sanitise, units};
use isotherm_kernel::Containers;
use isotherm_kernel::cgroup::SelectedCgroups;
use isotherm_record::Recording;
use isotherm_report::Selection;
use isotherm_report::right_size::window_of;
use isotherm_report::tune::Tune as Report;
use isotherm_run::{LeastLimits, SchemeSource};

use crate::cli::Tune;
use crate::ctl::advice_lines;
use crate::progress::Progress;
use crate::watch::Call;
use crate::{WrongCall, command, run as acting, tell};

/// How long the targets are watched unless --duration says otherwise: long enough for a window of 30 s.
pub const DURATION: Duration = Duration::from_secs(300);

/// A shorter time is not enough for a window of 10 s: it needs seven of them, and surveys begin after a moment.
const LEAST: Duration = Duration::from_secs(80);

/// Checks, before anything is watched, that the cgroups that the options name can be limited.
pub fn check(options: &Tune, duration: Duration) -> Result<()> {
    let wrong = |what: String| -> Result<()> { Err(WrongCall::new("tune", what).into()) };
    if options.physical.physical || !options.watch.command.is_empty() {
        return wrong(
            "--apply limits cgroups of running processes; name them with --cgroup, --unit or --container".into(),
        );
    }
    let selection = Call::new("tune", &options.watch).selection()?;
    if let Err(why) = selection.names_cgroups() {
        return wrong(format!("--apply: {why}"));
    }
    if duration < LEAST {
        let least = units::duration(LEAST);
        return wrong(format!("--apply needs a --duration of {least} or more: the right size is that of six windows"));
    }
    let refused = "no limit can be set here; `isotherm tune` without --apply says what it would be";
    SelectedCgroups::new(Path::new("/"), selection).check().context(refused)
}

/// Limits the cgroups of the targets until a signal, or says which limits would be set.
pub fn apply(options: &Tune, recording: &Path) -> Result<ExitCode> {
    let recording = Recording::open(recording)?;
    let covered = Report::new(&recording, &Selection::default(), None)?.working_set.covered_ns.unwrap_or(0);
    let window = window_of(Duration::from_nanos(covered)).context("no limit is set: the surveys cover too little")?;
    let containers = Containers::new(Path::new("/"));
    let all = advise(Path::new("/"), &recording, &Selection::default(), window, &containers)?;
    let sizes = LeastLimits::default();
    for advice in &all {
        advice_lines(advice).iter().for_each(|line| tell(sanitise(line)));
        let Advice { cgroup: Some(path), size: Some(size), .. } = advice else { continue };
        sizes.set(path, size.request_bytes);
        if options.dry_run {
            let bytes = units::bytes(size.request_bytes);
            tell(sanitise(&format!("a dry run: memory.high of {path} would be let down to {bytes}")));
        }
    }
    if sizes.is_empty() {
        bail!("no limit is set: no right size is known");
    }
    if options.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let call = Call {
        schemes: Some(SchemeSource::Fixed(right_size_scheme(window))),
        least_limits: Some(sizes),
        duration: None,
        quiet: options.quiet,
        ..Call::new("tune", &options.watch)
    };
    acting::apply(call, command::handle_signals, Progress::new(options.quiet))
}
