//! `isotherm daemon`: watches groups of processes all the time.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use isotherm_agent::config::{DEFAULT, Rights};
use isotherm_output::standard_output;

use crate::cli::Daemon;
use crate::command;

pub fn run(options: &Daemon) -> Result<ExitCode> {
    if options.print_default {
        standard_output().write_all(DEFAULT.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let rights = if options.watch_only { Rights::Watch } else { Rights::Act };
    if options.check {
        let (config, path) = isotherm_agent::read_config(options.config.as_deref(), rights)?;
        let path = path.map_or_else(|| "the embedded configuration".into(), |path| path.display().to_string());
        let groups = match config.groups.len() {
            1 => "1 group".into(),
            count => format!("{count} groups"),
        };
        writeln!(standard_output(), "{}", isotherm_core::sanitise(&format!("{path}: right, with {groups}")))?;
        return Ok(ExitCode::SUCCESS);
    }
    isotherm_kernel::share_freed_memory();
    command::raise_file_limit();
    command::survive_file_size_limit()?;
    isotherm_agent::run(options.config.as_deref(), rights)?;
    Ok(ExitCode::SUCCESS)
}
